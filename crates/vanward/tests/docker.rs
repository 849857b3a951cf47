//! `vanward docker` with a fake engine that responds as Docker's and Podman's API does.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::{Patience, Process, response, run_in};

/// A fake engine: its containers, and the connections that wait for events.
struct Engine {
    socket: PathBuf,
    state: Arc<Mutex<(Vec<Value>, Vec<UnixStream>)>>,
    /// Whether it responds with something other than a list.
    is_garbled: Arc<AtomicBool>,
}

impl Engine {
    fn start(folder: &Path) -> Self {
        let socket = folder.join("engine.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let state: Arc<Mutex<(Vec<Value>, Vec<UnixStream>)>> = Arc::default();
        let is_garbled = Arc::<AtomicBool>::default();
        let (of_thread, garbled) = (Arc::clone(&state), Arc::clone(&is_garbled));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                answer(stream, &of_thread, garbled.load(SeqCst));
            }
        });
        Self { socket, state, is_garbled }
    }

    fn has(&self, containers: Vec<Value>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = containers;
        state.1.retain_mut(|stream| {
            stream.write_all(b"{\"Type\":\"container\",\"Action\":\"start\"}\n").is_ok()
        });
    }

    fn go(&self) {
        std::fs::remove_file(&self.socket).expect("it is there");
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1.clear();
    }
}

fn answer(mut stream: UnixStream, state: &Mutex<(Vec<Value>, Vec<UnixStream>)>, is_garbled: bool) {
    let mut reader = BufReader::new(stream.try_clone().expect("another handle"));
    let mut request = String::new();
    reader.read_line(&mut request).expect("a request");
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
        line.clear();
    }
    let path = request.split(' ').nth(1).unwrap_or_default();
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    if path.starts_with("/events?") {
        stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n").expect("a head");
        state.1.push(stream);
        return;
    }
    let body = if is_garbled {
        Some(json!({ "message": "starting" }))
    } else if path == "/containers/json" {
        Some(state.0.iter().map(|one| json!({ "Id": one["Id"] })).collect())
    } else {
        let id = path.trim_start_matches("/containers/").trim_end_matches("/json");
        state.0.iter().find(|one| one["Id"] == id).cloned()
    };
    let answer = match body {
        Some(body) => format!("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{body}"),
        None => "HTTP/1.0 404 Not Found\r\n\r\n{}".to_owned(),
    };
    stream.write_all(answer.as_bytes()).expect("an answer");
}

/// A container with the host's network.
fn container(name: &str, port: u16, labels: &[(&str, &str)]) -> Value {
    let labels: serde_json::Map<String, Value> =
        labels.iter().map(|(label, value)| ((*label).to_owned(), json!(value))).collect();
    json!({
        "Id": format!("id{name}"),
        "Name": format!("/{name}"),
        "State": { "Running": true },
        "Config": { "Labels": labels, "ExposedPorts": { format!("{port}/tcp"): {} } },
        "HostConfig": { "NetworkMode": "host" },
    })
}

/// Has one worker, because several take up a change one after the other.
const FILE: &str = "workers = 1\nadmin = \"admin.sock\"\ninclude = \"conf.d/*.toml\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
                    [[route]]\npath = \"/own\"\nrespond = { status = 204 }\n";
const GOOD: [(&str, &str); 2] = [("vanward.enable", "true"), ("vanward.path", "/tiny")];

/// Starts a proxy, an engine with a container at this port, and `vanward docker` between them.
fn follow(path: &Path, port: u16) -> (Process, Engine, Process) {
    std::fs::create_dir(path.join("conf.d")).expect("a folder");
    std::fs::write(path.join("vanward.toml"), FILE).expect("it is written");
    let proxy = Process::start_in(path, &["run"]);
    let engine = Engine::start(path);
    engine.has(vec![container("good", port, &GOOD)]);
    let command = ["docker", "--output", "conf.d/docker.toml", "--engine", "engine.sock"];
    (proxy, engine, Process::start_in(path, &command))
}

#[test]
fn only_a_list_says_which_containers_run_and_the_status_says_since_when_there_is_none() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    let (mut proxy, engine, docker) = follow(path, 9);
    let address = proxy.address();
    docker.warns("conf.d/docker.toml has 1 route");
    let problem = |expected: &str, is_there: bool| {
        let patience = Patience::new();
        while run_in(path, &["status"]).with_code(0).output.contains(expected) != is_there {
            patience.wait_a_little(expected);
        }
    };
    let has_route = || !response(address, "/tiny", "").starts_with("HTTP/1.1 404");
    engine.is_garbled.store(true, SeqCst);
    engine.has(vec![]);
    docker.warns("its answer is not a list of containers");
    problem("its answer is not a list of containers; conf.d/docker.toml stays as it is (since ", true);
    assert!(has_route(), "what was known stays");
    engine.is_garbled.store(false, SeqCst);
    problem("its answer is not a list of containers", false);
    assert!(!has_route(), "an empty list is an answer");
    drop(docker);
    proxy.signal(Signal::TERM);
    proxy.ended();
}

#[test]
fn routes_follow_the_containers() {
    let origin = origin::start(origin::OriginOptions::default()).expect("the origin starts");
    let port = origin.addresses()[0].port();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    let (mut proxy, engine, docker) = follow(path, port);
    let (file, good, address) = (FILE, GOOD, proxy.address());
    let until = |status: &str, what: &str| {
        let patience = Patience::new();
        while !response(address, "/tiny", "").starts_with(&format!("HTTP/1.1 {status}")) {
            patience.wait_a_little(what);
        }
    };
    until("200", "there is no route to the container");

    // A container with a mistake in its labels does not affect others.
    let bad = [("vanward.enable", "true"), ("vanward.path", "/bad"), ("vanward.route.rate_limit", "fast")];
    let other = [("vanward.enable", "true"), ("vanward.path", "/medium")];
    engine.has(vec![
        container("good", port, &good),
        container("bad", port, &bad),
        container("other", port, &other),
    ]);
    docker.warns("bad: its labels make a mistake, it is left out");
    docker.warns("conf.d/docker.toml has 2 routes and 2 servers of 3 containers");
    assert!(response(address, "/tiny", "").starts_with("HTTP/1.1 200"));

    // After a rejected reload, the file is unchanged.
    let before = std::fs::read_to_string(path.join("conf.d/docker.toml")).expect("it is there");
    std::fs::write(
        path.join("vanward.toml"),
        format!("{file}\n[upstream.docker-good]\nservers = [\"http://127.0.0.1:1\"]\n"),
    )
    .expect("it is written");
    engine.has(vec![container("good", port, &good)]);
    docker.warns("conf.d/docker.toml is as it was, until containers change");
    assert_eq!(std::fs::read_to_string(path.join("conf.d/docker.toml")).expect("it is there"), before);
    std::fs::write(path.join("vanward.toml"), file).expect("it is written");

    engine.has(vec![]);
    until("404", "the container that is gone has a route");
    assert!(response(address, "/own", "").starts_with("HTTP/1.1 204"), "the file's own routes stay");

    engine.has(vec![container("good", port, &good)]);
    until("200", "there is no route to the container that came back");
    engine.go();
    docker.warns("stays as it is");
    assert!(response(address, "/tiny", "").starts_with("HTTP/1.1 200"), "without the engine, requests go on");
    drop(docker);
    proxy.signal(Signal::TERM);
    proxy.ended();
}

#[test]
fn a_missing_engine_is_reported_with_a_remedy() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ended =
        run_in(folder.path(), &["docker", "--once", "--output", "docker.toml", "--engine", "none.sock"])
            .with_code(1);
    assert!(
        ended.errors.contains("is Docker or Podman running, and is this its socket (--engine)?"),
        "{}",
        ended.errors
    );
    assert!(!folder.path().join("docker.toml").exists());
}

#[test]
fn once_writes_the_file_and_ends() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let engine = Engine::start(folder.path());
    engine.has(vec![container("web", 8080, &[("traefik.http.routers.web.rule", "Host(`a.example`)")])]);
    run_in(folder.path(), &["docker", "--once", "--output", "docker.toml", "--engine", "engine.sock"])
        .with_code(0);
    let text = std::fs::read_to_string(folder.path().join("docker.toml")).expect("it is there");
    assert!(text.contains("host = [\"a.example\"]") && text.contains("http://127.0.0.1:8080"), "{text}");
}
