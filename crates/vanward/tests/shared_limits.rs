//! Limits that instances share through a real Redis: their total, an instance after kill -9, Redis that ends and returns,
//! and zones over an upgrade. Skipped if Redis is not installed, except in CI.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use testkit::http3::H3TestClient;

use crate::process::{self, Patience, Process, connect, get, read_head};

/// A server that holds each response until it is released.
#[derive(Clone)]
struct Server {
    address: SocketAddr,
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

#[derive(Default)]
struct Gate {
    begun: usize,
    /// Requests up to this number get their response.
    released: usize,
    under_way: usize,
    /// The most that were under way at once.
    highest: usize,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        let server = Self { address, gate: Arc::default() };
        let serving = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let server = serving.clone();
                std::thread::spawn(move || server.answer(stream));
            }
        });
        server
    }

    fn answer(&self, mut stream: TcpStream) {
        read_head(&mut stream);
        let (gate, changed) = &*self.gate;
        let mut state = gate.lock().expect("no thread panics");
        state.begun += 1;
        state.under_way += 1;
        state.highest = state.highest.max(state.under_way);
        let number = state.begun;
        changed.notify_all();
        let mut state = changed.wait_while(state, |state| state.released < number).expect("no thread panics");
        state.under_way -= 1;
        drop(state);
        // The proxy may have been killed.
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    }

    /// Waits until this number of requests has arrived in all.
    fn until_begun(&self, number: usize) {
        let (gate, changed) = &*self.gate;
        let state = gate.lock().expect("no thread panics");
        let (_state, waited) = changed
            .wait_timeout_while(state, process::PATIENCE, |state| state.begun < number)
            .expect("no thread panics");
        assert!(!waited.timed_out(), "fewer than {number} requests have arrived");
    }

    /// Lets requests up to this number end.
    fn release(&self, number: usize) {
        // Also called while a failed test ends.
        self.gate.0.lock().unwrap_or_else(PoisonError::into_inner).released = number;
        self.gate.1.notify_all();
    }
}

struct Scene {
    folder: TempDir,
    redis: Option<Child>,
    server: Server,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.ends_redis();
        self.server.release(usize::MAX);
    }
}

impl Scene {
    /// `None` if Redis is not installed.
    #[expect(clippy::print_stderr, reason = "says that the test is skipped")]
    fn start() -> Option<Self> {
        let found = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
        if found.is_err() {
            assert!(std::env::var_os("CI").is_none(), "redis-server is not installed");
            eprintln!("skipped: redis-server is not installed");
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut scene = Self { folder, redis: None, server: Server::start() };
        scene.starts_redis();
        Some(scene)
    }

    fn starts_redis(&mut self) {
        let socket = self.folder.path().join("socket");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket).stdout(Stdio::null());
        self.redis = Some(command.spawn().expect("it can be run"));
        let patience = Patience::new();
        while UnixStream::connect(&socket).is_err() {
            patience.wait_a_little("Redis does not listen");
        }
    }

    fn ends_redis(&mut self) {
        if let Some(mut redis) = self.redis.take() {
            let _ = redis.kill();
            let _ = redis.wait();
        }
    }

    /// Starts an instance with these routes, and waits until it reaches Redis.
    fn instance(&self, name: &str, routes: &str) -> (Process, SocketAddr) {
        let folder = self.folder.path().join(name);
        std::fs::create_dir(&folder).expect("it is writable");
        let text = format!(
            "admin = \"{0}/admin\"\nworkers = 2\n[redis]\nurl = \"redis+unix:{1}/socket\"\ninstance = {name:?}\n\
             instances = 2\n[[listen]]\naddress = \"127.0.0.1:0\"\n{routes}\
             [upstream.app]\nservers = [\"http://{2}\"]\n",
            folder.display(),
            self.folder.path().display(),
            self.server.address
        );
        std::fs::write(folder.join("vanward.toml"), text).expect("it is writable");
        let mut process = Process::start_in(&folder, &["run", "--pid-file", "pid"]);
        let address = process.address();
        process.warns("is in use by");
        (process, address)
    }

    fn pair(&self, limit: &str) -> [(Process, SocketAddr); 2] {
        let routes = format!("[[route]]\nupstream = \"app\"\nconcurrency = {limit}\n");
        ["one", "two"].map(|name| self.instance(name, &routes))
    }
}

/// Sends a request, and returns its status later.
fn asks(address: SocketAddr, path: &str) -> JoinHandle<u16> {
    let mut stream = connect(address);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").expect("it reads");
    std::thread::spawn(move || status(&read_head(&mut stream)))
}

fn status(response: &str) -> u16 {
    response.get(9..12).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{response}"))
}

fn status_of(address: SocketAddr, path: &str) -> u16 {
    status(&get(address, path))
}

/// Sends requests until one is not refused, which is the `number`th at the server.
fn until_admitted(server: &Server, address: SocketAddr, path: &str, number: usize) -> JoinHandle<u16> {
    let patience = Patience::new();
    loop {
        let asked = asks(address, path);
        let has_begun = || server.gate.0.lock().expect("no thread panics").begun >= number;
        while !asked.is_finished() && !has_begun() {
            patience.wait_a_little("it is neither admitted nor refused");
        }
        if has_begun() {
            return asked;
        }
        assert_eq!(asked.join().expect("it does not panic"), 429);
        patience.wait_a_little("it is refused for ever");
    }
}

#[track_caller]
fn are_answered(asked: impl IntoIterator<Item = JoinHandle<u16>>) {
    for asked in asked {
        assert_eq!(asked.join().expect("it does not panic"), 200);
    }
}

#[test]
fn two_instances_have_one_limit() {
    let Some(scene) = Scene::start() else { return };
    let [(_one, one), (_two, two)] = scene.pair("{ max = 3, shared = \"closed\" }");
    let first = [asks(one, "/"), asks(two, "/"), asks(one, "/")];
    scene.server.until_begun(3);
    assert_eq!([status_of(one, "/"), status_of(two, "/")], [429; 2]);
    scene.server.release(3);
    are_answered(first);
    // Permits of the one are there for the other.
    let second: Vec<_> = (4..=6).map(|number| until_admitted(&scene.server, two, "/", number)).collect();
    assert_eq!([status_of(one, "/"), status_of(two, "/")], [429; 2]);
    scene.server.release(usize::MAX);
    are_answered(second);
}

#[test]
fn a_queue_gets_the_permits_of_the_other_instance() {
    let Some(scene) = Scene::start() else { return };
    let [(_one, one), (_two, two)] = scene.pair("{ max = 1, queue = 1, wait = \"1h\", shared = \"closed\" }");
    let first = asks(one, "/");
    scene.server.until_begun(1);
    let second = asks(two, "/");
    let third = asks(one, "/");
    scene.server.release(1);
    scene.server.until_begun(2);
    scene.server.release(2);
    scene.server.until_begun(3);
    scene.server.release(3);
    are_answered([first, second, third]);
}

/// Many requests of both, each of which waits: never more than the limit are under way, and all are answered.
#[test]
fn a_crowd_at_both_instances() {
    const CLIENTS: usize = 16;
    const REQUESTS: usize = 25;
    let Some(scene) = Scene::start() else { return };
    scene.server.release(usize::MAX);
    let pair = scene.pair("{ max = 3, queue = 100, wait = \"1h\", shared = \"closed\" }");
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let address = pair[client % 2].1;
            scope.spawn(move || {
                (0..REQUESTS).for_each(|_| assert_eq!(status_of(address, "/"), 200));
            });
        }
    });
    let highest = scene.server.gate.0.lock().expect("no thread panics").highest;
    assert!((1..=3).contains(&highest), "{highest}");
}

#[test]
fn a_killed_instance_gives_its_permits_back() {
    let Some(scene) = Scene::start() else { return };
    let [(killed, one), (_two, two)] = scene.pair("{ max = 2, shared = \"closed\" }");
    let first = [asks(one, "/"), asks(one, "/")];
    scene.server.until_begun(2);
    assert_eq!(status_of(two, "/"), 429);
    let id = Pid::from_raw(killed.id() as i32).expect("a process has an id");
    kill_process(id, Signal::KILL).expect("it runs");
    let admitted = until_admitted(&scene.server, two, "/", 3);
    scene.server.release(usize::MAX);
    are_answered([admitted]);
    // Their connections ended with the instance.
    first.into_iter().for_each(|asked| _ = asked.join());
}

#[test]
fn without_redis_the_option_decides() {
    let Some(mut scene) = Scene::start() else { return };
    let route = |name: &str| {
        format!(
            "[[route]]\npath = \"/{name}\"\nupstream = \"app\"\n\
             concurrency = {{ max = 4, shared = {name:?} }}\n"
        )
    };
    let routes: String = ["open", "local", "closed"].map(route).concat();
    let (process, address) = scene.instance("one", &routes);
    scene.ends_redis();
    process.warns("cannot be reached");
    let mut begun = 0;
    let mut all = Vec::new();
    // One instance is known: it has the whole limit.
    for (path, admitted) in [("/open", 6), ("/local", 4)] {
        for _ in 0..admitted {
            all.push(asks(address, path));
            begun += 1;
            scene.server.until_begun(begun);
        }
    }
    assert_eq!([status_of(address, "/local"), status_of(address, "/closed")], [429; 2]);
    scene.starts_redis();
    process.warns("is back after");
    let closed = until_admitted(&scene.server, address, "/closed", begun + 1);
    // Requests that began without Redis are reported.
    assert_eq!([status_of(address, "/open"), status_of(address, "/local")], [429; 2]);
    scene.server.release(usize::MAX);
    are_answered(all.into_iter().chain([closed]));
}

/// Streams of one connection count with the requests of another instance, and a reset gives its permit back.
#[test]
fn streams_over_http3_count_with_the_other_instance() {
    let Some(scene) = Scene::start() else { return };
    let route = "[[route]]\nupstream = \"app\"\nconcurrency = { max = 2, shared = \"closed\" }\n";
    let (_one, one) =
        scene.instance("one", &format!("tls = {{ self_signed = true }}\nhttp3 = true\n{route}"));
    let (_two, two) = scene.instance("two", route);
    let client = H3TestClient::connect(one);
    let mut streams = [client.asks("GET", "/", ""), client.asks("GET", "/", "")];
    scene.server.until_begun(2);
    assert!(client.asks("GET", "/", "").head().starts_with(":status: 429\n"));
    assert_eq!(status_of(two, "/"), 429);
    let [reset, stays] = &mut streams;
    // H3_REQUEST_CANCELLED, RFC 9114 §8.1.
    reset.stops(0x10c);
    let third = until_admitted(&scene.server, two, "/", 3);
    assert!(client.asks("GET", "/", "").head().starts_with(":status: 429\n"));
    scene.server.release(usize::MAX);
    assert!(stays.head().starts_with(":status: 200\n"));
    are_answered([third]);
}

/// The process that takes over knows what its predecessor still serves, and what it has admitted.
#[test]
fn zones_hold_over_an_upgrade() {
    const BURST: usize = 20;
    let Some(scene) = Scene::start() else { return };
    let route = |path: &str, options: &str| format!("[[route]]\npath = \"/{path}\"\n{options}\n");
    let counted = "upstream = \"app\"\nconcurrency = { max = 1, zone = \"both\", shared = \"closed\" }";
    let rated = format!(
        "respond = {{ status = 200 }}\nrate_limit = {{ rate = \"{BURST}/h\", zone = \"rates\", shared = \"closed\" }}"
    );
    let routes = [route("a", counted), route("b", counted), route("c", &rated), route("d", &rated)].concat();
    let (process, address) = scene.instance("one", &routes);
    let first = asks(address, "/a");
    scene.server.until_begun(1);
    assert_eq!(status_of(address, "/b"), 429, "the other route of the zone");
    (0..BURST).for_each(|_| assert_eq!(status_of(address, "/c"), 200));
    assert_eq!(status_of(address, "/d"), 429, "the other route of the zone");

    process.signal(Signal::USR2);
    let pid = scene.folder.path().join("one/pid");
    let patience = Patience::new();
    let next = loop {
        let next = std::fs::read_to_string(&pid).ok().and_then(|text| text.trim().parse::<i32>().ok());
        match next.filter(|next| *next != process.id() as i32) {
            Some(next) => break next,
            None => patience.wait_a_little("no other process takes over"),
        }
    };
    let _ends = EndedByDrop(Pid::from_raw(next).expect("a process has an id"));
    process.warns_again("is in use by", 2);
    assert_eq!(status_of(address, "/b"), 429, "the first process still serves one");
    // A process learns the count of a key some milliseconds after its first request.
    let admitted = (0..BURST)
        .take_while(|_| {
            std::thread::sleep(Duration::from_millis(50));
            status_of(address, "/d") == 200
        })
        .count();
    assert!(admitted < BURST / 2, "{admitted} more than the limit");
    scene.server.release(1);
    are_answered([first]);
    let second = until_admitted(&scene.server, address, "/b", 2);
    scene.server.release(usize::MAX);
    are_answered([second]);
}

/// Ends a process that is no child of this one.
struct EndedByDrop(Pid);

impl Drop for EndedByDrop {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::TERM);
    }
}
