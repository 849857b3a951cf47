//! Each change of a server's state is reported once with its reason: by checks, ejections, circuits, commands and
//! the file.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::process::Signal;

use crate::process::{Patience, Process, connect, get, run_in};

/// Closes connections instead of an answer.
const CLOSES: u16 = 0;

/// A server that answers every request with a configurable status.
struct Server {
    address: SocketAddr,
    status: Arc<AtomicU16>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let status = Arc::new(AtomicU16::new(200));
        let answers = Arc::clone(&status);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let answers = Arc::clone(&answers);
                std::thread::spawn(move || {
                    while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {
                        let status = answers.load(Ordering::SeqCst);
                        if status == CLOSES {
                            return;
                        }
                        let head = format!("HTTP/1.1 {status} Said\r\nContent-Length: 0\r\n\r\n");
                        if stream.write_all(head.as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, status }
    }

    fn answers(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }
}

/// Writes the file, including the parts that every test needs.
fn write(folder: &Path, text: &str) {
    let text = format!(
        "admin = \"{}\"\nworkers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nupstream = \"app\"\n{text}",
        folder.join("admin").display()
    );
    std::fs::write(folder.join("vanward.toml"), text).expect("it is writable");
}

fn start(folder: &Path, text: &str) -> (Process, SocketAddr) {
    write(folder, text);
    let mut proxy = Process::start_in(folder, &["run"]);
    let address = proxy.address();
    (proxy, address)
}

fn asks_until(proxy: &Process, address: SocketAddr, text: &str) {
    let patience = Patience::new();
    while proxy.said(text) == 0 {
        get(address, "/");
        patience.wait_a_little(&format!("it does not say {text:?}"));
    }
}

/// Ends the proxy. Returns its messages about servers in order, without the upstream's name and the port.
fn ended(proxy: Process, servers: &[(&Server, &str)]) -> Vec<String> {
    proxy.signal(Signal::TERM);
    let errors = proxy.ended().with_code(0).errors;
    let lines =
        errors.lines().filter_map(|line| Some(line.split_once("upstream app, server ")?.1.to_owned()));
    let named = |line: String| {
        servers.iter().fold(line, |line, (server, name)| line.replace(&server.address.to_string(), name))
    };
    lines.map(named).collect()
}

#[test]
fn checks_tell_why_a_server_is_down_and_up() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Server::start();
    let text = format!(
        "[upstream.app]\nservers = [\"http://{}\"]\n\
         check = {{ type = \"http\", interval = \"10ms\", rise = 2, fall = 2 }}\n",
        server.address
    );
    let (proxy, _) = start(folder.path(), &text);
    server.answers(500);
    proxy.warns("down, ");
    server.answers(200);
    proxy.warns("up, 2 checks succeeded");
    let said = ended(proxy, &[(&server, "A")]);
    assert_eq!(said.len(), 2, "{said:?}");
    // Whether a check came before the failure depends on timing.
    let is_down = ["A: down, 2 checks failed: ", "A: down, its first check failed: "];
    assert!(is_down.iter().any(|text| said[0].starts_with(text)) && said[0].contains("500"), "{said:?}");
    assert_eq!(said[1], "A: up, 2 checks succeeded; its share of requests grows slowly");
}

#[test]
fn ejections_tell_what_failed_last_and_that_they_are_over() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (bad, good) = (Server::start(), Server::start());
    let text = format!(
        "[upstream.app]\nservers = [\"http://{}\", \"http://{}\"]\nretry = {{ attempts = 1 }}\n\
         eject = {{ failures_in_a_row = 3, failures = \"off\", latency_factor = \"off\", base = \"20ms\", longest = \"20ms\" }}\n",
        bad.address, good.address
    );
    let (proxy, address) = start(folder.path(), &text);
    bad.answers(503);
    asks_until(&proxy, address, "ejected for");
    bad.answers(200);
    let patience = Patience::new();
    while proxy.said("no longer ejected") + proxy.said("again") == 0 {
        patience.wait_a_little("the end of the ejection is not told");
    }
    let said = ended(proxy, &[(&bad, "A"), (&good, "B")]);
    let ejected = "A: ejected for 20ms: too many failures in a row, the last one with 503";
    assert_eq!(said.iter().filter(|line| *line == ejected).count(), 1, "{said:?}");
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[1].ends_with("; its share of requests grows slowly"), "{said:?}");
}

#[test]
fn circuits_tell_why_they_open_and_close() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Server::start();
    let text = format!(
        "[upstream.app]\nservers = [\"http://{}\"]\nretry = {{ attempts = 1 }}\neject = \"off\"\n\
         breaker = {{ failures = 2, open = \"20ms\", open_max = \"20ms\", successes = 1 }}\n",
        server.address
    );
    let (proxy, address) = start(folder.path(), &text);
    server.answers(504);
    asks_until(&proxy, address, "its circuit is open");
    server.answers(200);
    asks_until(&proxy, address, "its circuit is closed again");
    let said = ended(proxy, &[(&server, "A")]);
    let (closed, opened) = said.split_last().expect("it has said something");
    // A trial may have met the last 504.
    let is_open = "A: its circuit is open for 20ms: requests fail, the last one with 504";
    assert!(!opened.is_empty() && opened.iter().all(|line| line == is_open), "{said:?}");
    let is_closed =
        "A: its circuit is closed again: trial requests succeed; its share of requests grows slowly";
    assert_eq!(closed, is_closed);
}

#[test]
fn a_dead_server_is_reported_at_once_and_has_its_last_error_in_the_status() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (proxy, address) = start(folder.path(), "[upstream.app]\nservers = [\"http://127.0.0.1:1\"]\n");
    for _ in 0..31 {
        assert!(get(address, "/").starts_with("HTTP/1.1 502 "));
    }
    let shown = run_in(folder.path(), &["status"]).with_code(0).output;
    let row = shown.lines().find(|line| line.trim_start().starts_with("127.0.0.1:1 ")).expect("a row");
    assert!(row.contains(" up ") && row.contains("last error "), "{shown}");
    assert!(row.ends_with(" ago: connection refused"), "{shown}");
    let text = run_in(folder.path(), &["status", "--json"]).with_code(0).output;
    let status: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let error = &status["upstreams"][0]["servers"][0]["last_error"];
    assert_eq!(
        (error["cause"].as_str(), error["reason"].as_str()),
        (Some("upstream-refused"), Some("connection refused"))
    );
    assert!(error["failures"].as_u64().is_some_and(|failures| failures >= 31), "{error}");
    let said = ended(proxy, &[]);
    assert_eq!(said, ["127.0.0.1:1: a request failed: connection refused"], "the others in a minute");
}

#[test]
fn each_first_failure_after_a_success_is_reported() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Server::start();
    let text =
        format!("[upstream.app]\nservers = [\"http://{}\"]\nretry = {{ attempts = 1 }}\n", server.address);
    let (proxy, address) = start(folder.path(), &text);
    for _ in 0..2 {
        server.answers(CLOSES);
        (0..3).for_each(|_| assert!(get(address, "/").starts_with("HTTP/1.1 502 ")));
        server.answers(200);
        assert!(get(address, "/").starts_with("HTTP/1.1 200 "));
    }
    let said = ended(proxy, &[(&server, "A")]);
    assert_eq!(said.iter().filter(|line| line.starts_with("A: a request failed: ")).count(), said.len());
    // One text is written once a second at most, so the second message may be counted only.
    assert!(!said.is_empty(), "{said:?}");
}

#[test]
fn messages_about_servers_name_the_initiator_of_a_change() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let servers: Vec<Server> = (0..3).map(|_| Server::start()).collect();
    let [a, b, c] = [0, 1, 2].map(|index: usize| format!("http://{}", servers[index].address));
    let (proxy, _) = start(folder.path(), &format!("[upstream.app]\nservers = [\"{a}\", \"{b}\"]\n"));
    let does = |words: &[&str]| drop(run_in(folder.path(), words).with_code(0));
    does(&["drain", "--server", &a]);
    does(&["restore", "--server", &a]);
    does(&["weigh", "--server", &a, "--weight", "7"]);
    does(&["add", "--server", &c, "--upstream", "app"]);
    does(&["remove", "--server", &c]);
    let file = |servers: &str| {
        write(folder.path(), &format!("[upstream.app]\nservers = [{servers}]\n"));
        does(&["reload"]);
    };
    file(&format!("\"{a}\", \"{c}\""));
    file(&format!("\"{a}\", {{ url = \"{c}\", weight = 5 }}"));
    file(&format!("{{ url = \"{a}\", down = true }}, {{ url = \"{c}\", weight = 5 }}"));
    file(&format!("\"{a}\", {{ url = \"{c}\", weight = 5 }}"));
    // Nothing changes.
    file(&format!("\"{a}\", {{ url = \"{c}\", weight = 5 }}"));
    let said = ended(proxy, &[(&servers[0], "A"), (&servers[1], "B"), (&servers[2], "C")]);
    let expected = [
        "A: drained, by the admin API",
        "A: restored, by the admin API",
        "A: weight 7, by the admin API",
        "C: added with weight 1, by the admin API",
        "C: removed, by the admin API",
        "C: added; its share of requests grows slowly, by the file",
        "B: removed, by the file",
        "C: weight 5, before 1, by the file",
        "A: taken out, its sessions move, by the file",
        "A: back in service, by the file",
    ];
    assert_eq!(said, expected);
}

#[test]
fn a_reached_limit_of_connections_is_reported_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = "respond = { status = 200 }\n[limits]\nconnections = 4\n";
    let text = text.replace("respond", "[[route]]\npath = \"/own\"\nrespond");
    let (proxy, address) =
        start(folder.path(), &format!("{text}[upstream.app]\nservers = [\"http://127.0.0.1:1\"]\n"));
    let full = || {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let mut client = connect(address);
                // Half a head keeps the accepted connection open.
                client.write_all(b"GET /own HTTP/1.1\r\n").expect("it reads");
                client
            })
            .collect();
        let patience = Patience::new();
        while !get(address, "/own").starts_with("HTTP/1.1 503 ") {
            patience.wait_a_little("nobody is refused");
        }
        assert!(get(address, "/own").starts_with("HTTP/1.1 503 "));
        clients
    };
    let clients = full();
    proxy.warns("clients are refused: there are 4 connections, as many as limits.connections allows");
    let status = run_in(folder.path(), &["status"]).with_code(0).output;
    let told = "problem: clients are refused: limits.connections allows 4 connections; ";
    let told = status.split_once(told).and_then(|(_, rest)| rest.split_once(" refused in the last minute\n"));
    assert!(told.is_some_and(|(count, _)| count.parse::<u32>().is_ok_and(|count| count > 0)), "{status}");
    assert_eq!(proxy.said("clients are refused"), 1);
    drop(clients);
    let patience = Patience::new();
    while proxy.said("clients are no longer refused") == 0 {
        get(address, "/own");
        patience.wait_a_little("it is not told that there is room again");
    }
    let status = run_in(folder.path(), &["status"]).with_code(0).output;
    assert!(!status.contains("problem:"), "{status}");
    proxy.signal(Signal::TERM);
    proxy.ended().with_code(0);
}
