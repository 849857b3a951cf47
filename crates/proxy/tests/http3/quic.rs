//! Properties of QUIC: path MTU discovery, stateless resets, session resumption without early data, versions.

use std::net::UdpSocket;
use std::time::Duration;

use quinn_proto::{ConnectionError, TransportConfig};
use testkit::http3::{RawClient, trusting};

use super::scene::Scene;

const LONG: usize = 2 << 20;
/// The size of datagrams that every QUIC path supports (RFC 9000 §14).
const SHORTEST: usize = 1200;

/// A file whose download takes a while.
fn long_file() -> Scene {
    let scene = Scene::with("[[route]]\nfiles = { root = \"{dir}\" }");
    std::fs::write(scene.file("long"), vec![b'x'; LONG]).expect("it can be written");
    scene
}

/// Downloads the file over a path with this limit. Returns the size of the longest datagram received.
fn download(scene: &Scene, path_limit: usize) -> usize {
    let mut client = RawClient::new(scene.address(), TransportConfig::default());
    client.path_limit = path_limit;
    client.begins();
    let stream = client.asks("GET", "/long", "", true);
    let mut count = 0;
    client.until("the download does not end", |client| {
        let (more, is_over) = client.reads(stream);
        count += more;
        is_over
    });
    assert!(count > LONG, "only {count} bytes have come");
    client.longest
}

/// RFC 9000 §14.3.
#[test]
fn datagrams_grow_as_far_as_the_path_permits() {
    let scene = long_file();
    let longest = download(&scene, usize::MAX);
    assert!(longest > 1400, "{longest} bytes at most, on a path of 64 KiB");
    let longest = download(&scene, 1300);
    assert!((SHORTEST..=1300).contains(&longest), "{longest} bytes at most, on a path of 1300");
}

/// RFC 9000 §10.3.
#[test]
fn a_connection_that_the_proxy_has_forgotten_is_reset() {
    let scene = Scene::with("timeouts = { keep_alive = \"100ms\" }\n[[route]]\nrespond = { status = 200 }");
    let mut silence = Duration::from_millis(500);
    loop {
        let mut client = RawClient::connect(scene.address(), TransportConfig::default());
        client.is_deaf = true;
        client.until("the connection does not end", |_| scene.running.counters().connections_active == 0);
        // For a moment the proxy still repeats the close. If the pause was too short, the test tries again.
        std::thread::sleep(silence);
        client.turn();
        client.is_deaf = false;
        client.until("nobody answers", |client| {
            client.quic.ping();
            client.lost.is_some()
        });
        match client.lost {
            Some(ConnectionError::Reset) => return,
            _ => silence *= 2,
        }
    }
}

/// A request in the first datagram could be replayed by any observer (RFC 8446 §8).
#[test]
fn sessions_are_resumed_and_early_data_is_not_offered() {
    let scene = Scene::with("[[route]]\nrespond = { status = 200 }");
    let mut tls = trusting(&[b"h3"]);
    tls.enable_early_data = true;
    let session = || {
        let client = RawClient::from_address(scene.address(), tls.clone(), TransportConfig::default());
        assert!(!client.quic.has_0rtt(), "early data is offered");
        client
    };
    let mut first = session();
    first.begins();
    let stream = first.asks("GET", "/", "", true);
    first.until("no response", |client| client.reads(stream).1);
    let resumed = || scene.running.counters().handshakes_resumed;
    for sessions in 2..100 {
        let mut next = session();
        next.begins();
        assert!(!next.quic.accepted_0rtt());
        next.until("a session is not counted", |_| {
            scene.running.counters().handshakes + resumed() == sessions
        });
        if resumed() > 0 {
            return;
        }
        // The ticket may follow the response.
        first.turn();
    }
    panic!("no session is resumed");
}

/// RFC 9000 §6.1: a spoofed address only gets a list of versions, and only for datagrams that could begin a connection.
#[test]
fn other_versions_are_told_ours_and_short_datagrams_nothing() {
    let scene = Scene::with("[[route]]\nrespond = { status = 200 }");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.connect(scene.address()).expect("it is reachable");
    let hello = |id: &[u8; 8], len| {
        let mut hello = [&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8][..], id, &[0; SHORTEST]].concat();
        hello.truncate(len);
        hello
    };
    socket.set_read_timeout(Some(testkit::wait::PATIENCE)).expect("is a socket");
    let mut answer = [0; 2048];
    for _ in 0..100 {
        // A short one first: its answer would come first.
        socket.send(&hello(b"tooshort", 100)).expect("it takes it");
        socket.send(&hello(b"12345678", SHORTEST)).expect("it takes it");
        let count = socket.recv(&mut answer).expect("there is an answer");
        // RFC 9000 §17.2.1: version zero, the IDs swapped, and our version besides a reserved one.
        assert_eq!(
            (&answer[1..5], answer[5], answer[6], &answer[7..15]),
            (&[0; 4][..], 0, 8, &b"12345678"[..])
        );
        assert!(
            answer[15..count].chunks(4).any(|version| version == [0, 0, 0, 1]),
            "{:x?}",
            &answer[..count]
        );
    }
    assert_eq!(scene.running.counters().connections_accepted, 0);
}
