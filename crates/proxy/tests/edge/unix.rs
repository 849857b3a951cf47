//! Unix sockets as listeners and as servers: the same conversations as over TCP, and their files.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::{Config, ListenAddress, Listener, Settings};
use control::{Running, StartError};
use socket2::{Domain, SockAddr, Socket, Type};
use testkit::http1::Http1Peer;
use testkit::scene::valid;
use testkit::text::{GET, OK};
use testkit::wait::assert_soon;

use super::scene::{
    Scene, accept, answer, exchange, listen, listen_unix, loopback, meet, unix_listener, url,
};

#[test]
fn requests_pass_over_unix_sockets_on_both_sides() {
    let mut server = None;
    let scene = Scene::with(0, |set| {
        let path = set.directory.join("server");
        set.config.listeners = vec![unix_listener(set.directory.join("front"))];
        set.config.upstreams[0].servers = vec![url(&format!("http+unix:{}", path.display()))];
        server = Some(listen_unix(&path));
    });
    let server = server.expect("it was made");
    let mut client = scene.client();
    let mut server = meet(&mut client, || accept(&server));
    answer(&mut client, &mut server);
    // The connection to the server is reused.
    exchange(&mut client, &mut server);
    exchange(&mut client, &mut server);
    assert_eq!(scene.running.counters().upstream_reuses, 2);
    assert!(scene.running.addresses().is_empty());
}

/// Long bodies move through a pipe between either kind of socket.
#[test]
fn long_bodies_pass_unchanged() {
    const BYTES: usize = 3 << 20;
    let body: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    for (is_front_unix, is_server_unix) in [(true, true), (true, false), (false, true)] {
        let mut server = None;
        let scene = Scene::with(0, |set| {
            let path = set.directory.join("server");
            if is_front_unix {
                set.config.listeners = vec![unix_listener(set.directory.join("front"))];
            }
            let listener = if is_server_unix { listen_unix(&path) } else { listen() };
            let server_url = match listener.local_addr() {
                Ok(address) => format!("http://{address}"),
                Err(_) => format!("http+unix:{}", path.display()),
            };
            set.config.upstreams[0].servers = vec![url(&server_url)];
            server = Some(listener);
        });
        let (mut client, listener) = (scene.client(), server.expect("it was made"));
        let upload = [
            format!("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: {BYTES}\r\n\r\n").as_bytes(),
            body.as_slice(),
        ]
        .concat();
        let download =
            [format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n").as_bytes(), body.as_slice()]
                .concat();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut server = accept(&listener);
                assert!(server.message().body == body, "the upload arrived changed");
                server.sends(&download);
            });
            client.sends(&upload);
            assert!(client.message().body == body, "the download arrived changed");
        });
    }
}

#[test]
fn a_server_that_is_not_there_is_answered_for() {
    let scene = Scene::with(0, |set| {
        let path = set.directory.join("server");
        set.config.upstreams[0].servers = vec![url(&format!("http+unix:{}", path.display()))];
    });
    let mut client = scene.client().saying(GET);
    assert_eq!(client.message().status(), 502);
}

/// The kernel does not report room in a Unix socket's queue: the proxy retries until the time-out (504).
#[test]
fn a_server_whose_queue_is_full_is_waited_for() {
    let (mut listener, mut path) = (None, PathBuf::new());
    let scene = Scene::with(0, |set| {
        path = set.directory.join("server");
        set.config.timeouts.upstream_connect = Duration::from_millis(300);
        set.config.upstreams[0].servers = vec![url(&format!("http+unix:{}", path.display()))];
        listener = Some(unix_socket());
    });
    let (listener, address) = (listener.expect("it was made"), SockAddr::unix(&path).expect("a short path"));
    listener.bind(&address).expect("nothing is there");
    listener.listen(0).expect("it listens");
    let mut queue = Vec::new();
    loop {
        let socket = unix_socket();
        socket.set_nonblocking(true).expect("is a socket");
        match socket.connect(&address) {
            Ok(()) => queue.push(socket),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    let mut client = scene.client().saying(GET);
    assert_eq!(client.message().status(), 504);
    for _ in queue {
        listener.accept().expect("it is in the queue");
    }
    let listener = TcpListener::from(OwnedFd::from(listener));
    let mut server = meet(&mut client, || accept(&listener));
    answer(&mut client, &mut server);
}

/// A request that waits to connect takes a connection that becomes free earlier.
#[test]
fn a_request_that_waits_to_connect_takes_a_connection_that_becomes_free() {
    let (mut listener, mut path) = (None, PathBuf::new());
    let scene = Scene::with(0, |set| {
        path = set.directory.join("server");
        set.config.upstreams[0].servers = vec![url(&format!("http+unix:{}", path.display()))];
        set.config.timeouts.upstream_connect = Duration::from_secs(600);
        listener = Some(unix_socket());
    });
    let (listener, address) = (listener.expect("it was made"), SockAddr::unix(&path).expect("a short path"));
    listener.bind(&address).expect("nothing is there");
    listener.listen(0).expect("it listens");
    let mut first = scene.client().saying(GET);
    let listener = TcpListener::from(OwnedFd::from(listener));
    let mut server = accept(&listener);
    assert!(server.head().starts_with("GET / "));
    let mut queue = Vec::new();
    loop {
        let socket = unix_socket();
        socket.set_nonblocking(true).expect("is a socket");
        match socket.connect(&address) {
            Ok(()) => queue.push(socket),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    let mut second = scene.client().saying(GET);
    assert_soon("the request does not begin", || scene.running.counters().requests_active >= 2);
    server.sends(OK);
    assert_eq!(first.message().status(), 200);
    exchange_rest(&mut second, &mut server);
}

/// The rest of an exchange after its request.
fn exchange_rest(client: &mut Http1Peer, server: &mut Http1Peer) {
    assert!(server.head().starts_with("GET / "));
    server.sends(OK);
    assert_eq!(client.message().status(), 200);
}

fn unix_socket() -> Socket {
    Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket")
}

/// The file has the mode of its group, and is removed with the proxy.
#[test]
fn the_file_of_a_listener_is_there_for_as_long_as_it_is_listened_on() {
    let mut path = None;
    let scene = Scene::with(1, |set| {
        let front = set.directory.join("front");
        set.config.listeners.push(unix_listener(front.clone()));
        path = Some((front, set.config.clone()));
    });
    let (path, config) = path.expect("it was made");
    let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    assert_eq!(scene.running.listeners()[1], ListenAddress::Unix(path.clone()));
    let mut early = scene.client_of(1);
    let mut server = meet(&mut early, || scene.accept(0));

    // Removed from the configuration, it accepts no client; existing ones are served.
    let without = Settings { listeners: vec![config.listeners[0].clone()], ..config.clone() };
    scene.running.reload(valid(without)).expect("nothing is wrong with it");
    assert!(!path.exists());
    server.sends(OK);
    assert_eq!(early.message().status(), 200);
    early.gets_the_end();

    // Added again.
    scene.running.reload(valid(config)).expect("nothing is wrong with it");
    exchange(&mut scene.client_of(1), &mut server);
    drop(scene);
    assert!(!path.exists());
}

#[test]
fn a_reload_that_fails_leaves_no_file() {
    let mut found = None;
    let scene = Scene::with(1, |set| found = Some((set.directory.clone(), set.config.clone())));
    let (directory, mut config) = found.expect("it was made");
    let taken = TcpListener::bind(loopback()).expect("a port on loopback is free");
    config.listeners.push(unix_listener(directory.join("front")));
    config.listeners.push(Listener::plain(taken.local_addr().expect("it listens")));
    assert!(matches!(scene.running.reload(valid(config)), Err(StartError::Listen { .. })));
    assert!(!directory.join("front").exists());
}

fn at(path: &Path) -> Settings {
    let settings = Settings::for_servers(vec![loopback()], vec![url("http://127.0.0.1:1")]);
    Settings { listeners: vec![unix_listener(path.to_owned())], ..settings }
}

fn start_at(path: &Path) -> Result<Running, StartError> {
    control::start(valid(at(path)))
}

#[test]
fn only_a_socket_that_nobody_listens_on_makes_way() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("front");
    let taken = UnixListener::bind(&path).expect("nothing is there");
    let error = start_at(&path).err().expect("somebody listens there");
    assert!(error.to_string().contains("another process listens there"), "{error}");
    assert!(UnixStream::connect(&path).is_ok(), "it was left as it was");
    drop(taken);
    assert!(path.exists(), "the file stays when its process goes");
    let running = start_at(&path).unwrap_or_else(|error| panic!("the socket is stale: {error}"));
    assert!(UnixStream::connect(&path).is_ok());
    drop(running);

    std::fs::write(&path, "notes").expect("the file can be written");
    let error = start_at(&path).err().expect("a file is there");
    assert!(error.to_string().contains("not a socket"), "{error}");
    assert_eq!(std::fs::read(&path).expect("it is left"), b"notes");

    let error = start_at(&directory.path().join("none/front")).err().expect("its directory is missing");
    assert!(error.to_string().contains("its directory has to exist"), "{error}");
    let mistakes =
        Config::new(at(&directory.path().join("a".repeat(200)))).expect_err("its path is too long");
    assert!(mistakes[0].message.contains("is longer than the 107 bytes"), "{mistakes:?}");
}

/// All workers accept from the same socket.
#[test]
fn workers_share_a_socket() {
    let scene = Scene::with(1, |set| {
        set.config.workers = Some(4.try_into().expect("is not zero"));
        set.config.listeners = vec![unix_listener(set.directory.join("front"))];
    });
    let talk = |mut client| {
        let server = meet(&mut client, || scene.accept(0));
        (client, server)
    };
    let mut talks: Vec<_> = (0..32).map(|_| talk(scene.client())).collect();
    for (client, server) in &mut talks {
        answer(client, server);
    }
    assert_eq!(scene.running.counters().connections_accepted, 32);
}
