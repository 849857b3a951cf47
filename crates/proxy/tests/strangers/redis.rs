//! Sessions that instances share through Redis: learned on one, and honoured by the other, while Redis is down, silent,
//! or rejects the password. On a busy machine Redis may answer too late: an instance then uses the session at a later
//! request.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use control::Running;
use tempfile::TempDir;
use testkit::scene::read;

use super::installed::{PATIENCE, installed};

const PASSWORD: &str = "a-password-of-tests";
const SESSIONS: usize = 8;

/// Treatment of bytes between instances and Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    /// Redis receives everything, and its answers are dropped.
    Silent,
    Cut,
}

/// Between the instances and Redis.
#[derive(Clone)]
struct Relay {
    address: SocketAddr,
    state: Arc<(Mutex<State>, Condvar)>,
}

struct State {
    way: Way,
    /// Connections of instances, to be closed by `Cut`.
    connections: Vec<TcpStream>,
}

impl Relay {
    fn start(socket: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        let state = State { way: Way::Open, connections: Vec::new() };
        let relay = Self { address, state: Arc::new((Mutex::new(state), Condvar::new())) };
        let (relaying, socket) = (relay.clone(), socket.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let mut state = relaying.state.0.lock().expect("no panic");
                let Ok(engine) = UnixStream::connect(&socket) else { continue };
                if state.way == Way::Cut {
                    continue;
                }
                let copies = (client.try_clone(), client.try_clone(), engine.try_clone());
                let (Ok(kept), Ok(mut from), Ok(mut to)) = copies else { continue };
                state.connections.push(kept);
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
                let answering = relaying.clone();
                std::thread::spawn(move || answering.answer(engine, client));
            }
        });
        relay
    }

    fn answer(&self, mut engine: UnixStream, mut client: TcpStream) {
        let mut bytes = [0; 4096];
        while let Ok(count) = engine.read(&mut bytes)
            && count > 0
        {
            let (state, changed) = &*self.state;
            let state = state.lock().expect("no panic");
            drop(changed.wait_while(state, |state| state.way == Way::Silent).expect("no panic"));
            if client.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
    }

    fn becomes(&self, way: Way) {
        let mut state = self.state.0.lock().expect("no panic");
        state.way = way;
        if way == Way::Cut {
            state.connections.drain(..).for_each(|connection| _ = connection.shutdown(Shutdown::Both));
        }
        self.state.1.notify_all();
    }
}

/// Redis, two servers that begin sessions, and instances.
struct Scene {
    folder: TempDir,
    engine: Child,
    relay: Relay,
    servers: [SocketAddr; 2],
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.engine.kill();
        let _ = self.engine.wait();
    }
}

impl Scene {
    /// `None` if Redis is not installed.
    fn start() -> Option<Self> {
        let program = installed("redis-server")?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join("socket");
        let mut command = Command::new(program);
        command.args(["--port", "0", "--save", "", "--requirepass", PASSWORD, "--unixsocket"]).arg(&socket);
        let engine = command.stdout(Stdio::null()).spawn().expect("it can be run");
        let relay = Relay::start(&socket);
        let count = Arc::new(AtomicUsize::new(0));
        let servers = [0, 1].map(|number| serve(number, &count));
        let scene = Self { folder, engine, relay, servers };
        std::fs::write(scene.file("secret"), "0123456789abcdef0123456789abcdef").expect("it is writable");
        until("Redis listens", || UnixStream::connect(&socket).is_ok());
        Some(scene)
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn write_password(&self, name: &str, password: &str) {
        std::fs::write(self.file(name), password).expect("it is writable");
    }

    /// An instance with a separate password, which is in its file.
    fn instance(&self, name: &str) -> Instance {
        let [one, two] = self.servers;
        let text = format!(
            "workers = 1\nmetrics = \"127.0.0.1:0\"\n[redis]\nurl = \"redis://{}\"\ninstance = {name:?}\n\
             password_file = {:?}\nsecret_file = {:?}\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
             [[route]]\nupstream = \"app\"\n[upstream.app]\nservers = [\"http://{one}\", \"http://{two}\"]\n\
             sticky = {{ by = \"origin-cookie:id\", shared = true }}\n",
            self.relay.address,
            self.file(name),
            self.file("secret")
        );
        Instance(control::start(read(&text)).unwrap_or_else(|error| panic!("{error}")))
    }

    /// Two instances that can reach Redis.
    fn pair(&self) -> [Instance; 2] {
        ["one", "two"].map(|name| {
            self.write_password(name, PASSWORD);
            let instance = self.instance(name);
            instance.until_up(true);
            instance
        })
    }
}

/// A server that begins a session for each client without one, and answers with its number.
fn serve(number: usize, count: &Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    let count = Arc::clone(count);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let count = Arc::clone(&count);
            std::thread::spawn(move || answer(stream, number, &count));
        }
    });
    address
}

fn answer(mut stream: TcpStream, number: usize, count: &AtomicUsize) {
    let (mut head, mut bytes) = (Vec::new(), [0; 1024]);
    while let Ok(read) = stream.read(&mut bytes)
        && read > 0
    {
        head.extend_from_slice(&bytes[..read]);
        if head.ends_with(b"\r\n\r\n") {
            let has_session = head.windows(3).any(|window| window == b"id=");
            let begun = || format!("Set-Cookie: id={}\r\n", count.fetch_add(1, SeqCst));
            let cookie = if has_session { String::new() } else { begun() };
            head.clear();
            let _ = write!(stream, "HTTP/1.1 200 OK\r\n{cookie}Content-Length: 1\r\n\r\n{number}");
        }
    }
}

struct Instance(Running);

/// A session: its cookie, and the server that has begun it.
type Session = (String, usize);

impl Instance {
    /// Sends a request, with or without a cookie. Returns the session, and which server answered.
    fn ask(&self, cookie: Option<&str>) -> Session {
        let line = cookie.map(|cookie| format!("Cookie: {cookie}\r\n")).unwrap_or_default();
        let (head, body) = exchange(self.0.addresses()[0], "/", &line);
        let set = head.lines().find_map(|line| line.strip_prefix("Set-Cookie: ")).or(cookie);
        let cookie = set.unwrap_or_else(|| panic!("no server has answered: {head}{body}"));
        (cookie.to_owned(), body.parse().unwrap_or_else(|_| panic!("no server has answered: {head}{body}")))
    }

    fn server_of(&self, (cookie, _): &Session) -> usize {
        self.ask(Some(cookie)).1
    }

    fn begin(&self) -> Vec<Session> {
        (0..SESSIONS).map(|_| self.ask(None)).collect()
    }

    /// Begins sessions, and waits until Redis knows each of them.
    fn begin_known(&self) -> Vec<Session> {
        let begin_one = |_| {
            let told = self.metric("vanward_redis_sessions_told_total");
            let session = self.ask(None);
            self.until_told(&session, told);
            session
        };
        (0..SESSIONS).map(begin_one).collect()
    }

    /// Uses a session until Redis has stored one session more than before. A session that begins before the channel to
    /// Redis is open is stored at its next use.
    fn until_told(&self, session: &Session, before: u64) {
        until(&format!("Redis knows {session:?}"), || {
            self.server_of(session);
            self.metric("vanward_redis_sessions_told_total") > before
        });
    }

    /// Waits until each session reaches its server.
    fn until_followed(&self, sessions: &[Session]) {
        for session in sessions {
            until(&format!("{session:?} is with its server"), || self.server_of(session) == session.1);
        }
    }

    fn metric(&self, name: &str) -> u64 {
        let address = self.0.metrics_address().expect("there are metrics");
        let text = exchange(address, "/metrics", "").1;
        let values: HashMap<&str, &str> = text.lines().filter_map(|line| line.rsplit_once(' ')).collect();
        values.get(name).and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}: {text}"))
    }

    fn until_up(&self, is_up: bool) {
        until(&format!("Redis is up: {is_up}"), || self.metric("vanward_redis_up") == u64::from(is_up));
    }
}

fn exchange(address: SocketAddr, path: &str, fields: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n{fields}\r\n")
        .expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let (head, body) = text.split_once("\r\n\r\n").expect("has a head");
    (head.to_owned(), body.to_owned())
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_session_that_one_instance_has_learned_is_honoured_by_the_other() {
    let Some(scene) = Scene::start() else { return };
    let [one, two] = scene.pair();
    let sessions = one.begin_known();
    two.until_followed(&sessions);
    assert!(
        two.metric("vanward_redis_sessions_total{result=\"found\"}") > 0,
        "the other one has asked Redis"
    );
    // Known sessions need no question to Redis.
    scene.relay.becomes(Way::Cut);
    assert!(sessions.iter().all(|session| two.server_of(session) == session.1));
}

#[test]
fn without_redis_each_instance_keeps_its_sessions_and_tells_them_later() {
    let Some(scene) = Scene::start() else { return };
    let [one, two] = scene.pair();
    let before = one.begin_known();
    two.until_followed(&before);
    scene.relay.becomes(Way::Cut);
    [&one, &two].iter().for_each(|instance| instance.until_up(false));
    let meanwhile = one.begin();
    for session in before.iter().chain(&meanwhile) {
        assert_eq!(one.server_of(session), session.1, "{session:?}");
    }
    assert!(before.iter().all(|session| two.server_of(session) == session.1));
    scene.relay.becomes(Way::Open);
    [&one, &two].iter().for_each(|instance| instance.until_up(true));
    for session in &meanwhile {
        one.until_told(session, one.metric("vanward_redis_sessions_told_total"));
    }
    two.until_followed(&meanwhile);
}

#[test]
fn a_request_waits_for_no_redis_that_says_nothing() {
    let Some(scene) = Scene::start() else { return };
    let [one, two] = scene.pair();
    let sessions = one.begin_known();
    scene.relay.becomes(Way::Silent);
    // Any server may answer, but one must, before Redis does.
    for session in &sessions {
        two.server_of(session);
        assert_eq!(one.server_of(session), session.1, "who knows the session needs no answer");
    }
    assert!(two.metric("vanward_redis_sessions_total{result=\"missed\"}") > 0, "it has waited for an answer");
    scene.relay.becomes(Way::Open);
    // The first server wins, even if the other instance has chosen another.
    two.until_followed(&sessions);
    one.until_followed(&sessions);
}

#[test]
fn an_instance_whose_password_is_refused_serves_by_itself_until_it_has_the_right_one() {
    let Some(scene) = Scene::start() else { return };
    scene.write_password("one", PASSWORD);
    scene.write_password("two", "another");
    let (one, two) = (scene.instance("one"), scene.instance("two"));
    one.until_up(true);
    let sessions = one.begin_known();
    let own = two.begin();
    assert!(own.iter().all(|session| two.server_of(session) == session.1));
    assert_eq!(
        (two.metric("vanward_redis_up"), two.metric("vanward_redis_sessions_total{result=\"found\"}")),
        (0, 0)
    );
    // The password is read for each connection.
    scene.write_password("two", PASSWORD);
    two.until_up(true);
    two.until_followed(&sessions);
    assert!(two.metric("vanward_redis_sessions_total{result=\"found\"}") > 0, "it has asked Redis by now");
}

#[test]
fn each_instance_knows_how_many_there_are_as_they_come_and_go() {
    let Some(scene) = Scene::start() else { return };
    let [one, two] = scene.pair();
    let until_count = |instance: &Instance, count| {
        until(&format!("{count} instances"), || instance.metric("vanward_redis_instances") == count);
    };
    [&one, &two].iter().for_each(|instance| until_count(instance, 2));
    scene.write_password("three", PASSWORD);
    let three = scene.instance("three");
    [&one, &two, &three].iter().for_each(|instance| until_count(instance, 3));
    three.0.stop();
    three.0.wait();
    [&one, &two].iter().for_each(|instance| until_count(instance, 2));
}
