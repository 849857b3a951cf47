//! The ends of connections: idle time, limits, reload, drain.

use std::time::{Duration, Instant};

use super::scene::{PLAIN, Scene};
use testkit::http3::H3TestClient;
use testkit::http3::frame::{GOAWAY, read_varint};

/// H3_NO_ERROR.
const NO_ERROR: u64 = 0x100;

#[test]
fn an_idle_connection_is_told_and_closed() {
    let scene = Scene::with("timeouts = { keep_alive = \"200ms\" }\n[[route]]\nrespond = { status = 200 }");
    let client = scene.client();
    assert!(client.asks("GET", "/", "").response().0.starts_with(":status: 200\n"));
    assert!(!client.hears(GOAWAY).is_empty());
    assert_eq!(client.closed().0, NO_ERROR);
}

#[test]
fn idle_time_begins_with_the_end_of_the_last_request() {
    let keep_alive = Duration::from_secs(1);
    let scene = Scene::with("timeouts = { keep_alive = \"1s\" }\n[[route]]\nupstream = \"app\"");
    let client = scene.client();
    let mut stream = client.asks("GET", "/slow", "");
    let mut server = scene.accept().after_head();
    std::thread::sleep(keep_alive * 7 / 10);
    server.sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    assert_eq!(stream.response().1, b"ok");
    let idle_since = Instant::now();
    assert_eq!(client.closed().0, NO_ERROR);
    let idle = idle_since.elapsed();
    assert!(idle >= keep_alive * 9 / 10, "it was closed after {idle:?}");
}

#[test]
fn a_connection_has_so_many_requests() {
    let scene =
        Scene::with("limits = { requests_per_connection = 2 }\n[[route]]\nrespond = { status = 200 }");
    let client = scene.client();
    for _ in 0..2 {
        assert!(client.asks("GET", "/", "").response().0.starts_with(":status: 200\n"));
    }
    assert_eq!(client.closed().0, NO_ERROR);
}

#[test]
fn a_head_that_does_not_come_in_time_is_reset() {
    let scene =
        Scene::with("timeouts = { client_header = \"300ms\" }\n[[route]]\nrespond = { status = 200 }");
    let client = scene.client();
    let mut stream = client.open();
    stream.sends(&[0x01, 0x20, 0x00]);
    // H3_REQUEST_CANCELLED.
    assert_eq!(stream.gets(), testkit::http3::Got::Reset(0x10c));
    scene.assert_failure("client-header-timeout", 1);
    assert!(client.asks("GET", "/", "").response().0.starts_with(":status: 200\n"));
}

#[test]
fn a_reload_keeps_connections_and_what_is_under_way() {
    let scene = Scene::new();
    let client = scene.client();
    let mut stream = client.asks("GET", "/long", "");
    let mut server = scene.accept().after_head();
    for _ in 0..3 {
        scene.reload("http3 = true", PLAIN);
    }
    server.sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    assert_eq!(stream.response().1, b"ok");
    let mut next = client.asks("GET", "/next", "");
    server.head();
    server.sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    assert_eq!(next.response().1, b"ok");
    assert_eq!(scene.running.counters().http3_connections, 1);
}

#[test]
fn http3_can_be_switched_on_and_off_by_a_reload() {
    let scene = Scene::of(1, "", "[[route]]\nrespond = { status = 200 }");
    let refused = |address| {
        let mut transport = quinn::TransportConfig::default();
        transport.max_idle_timeout(Some(quinn::VarInt::from_u32(500).into()));
        H3TestClient::try_connect(address, &[b"h3"], transport).is_err()
    };
    assert!(refused(scene.address()), "nothing is there");
    scene.reload("http3 = true", "[[route]]\nrespond = { status = 200 }");
    let client = scene.client();
    assert!(client.asks("GET", "/", "").response().0.starts_with(":status: 200\n"));
    scene.reload("", "[[route]]\nrespond = { status = 200 }");
    assert_eq!(client.closed().0, NO_ERROR);
    assert!(refused(scene.address()), "nothing is there any more");
    scene.reload("http3 = true", "[[route]]\nrespond = { status = 200 }");
    assert!(scene.client().asks("GET", "/", "").response().0.starts_with(":status: 200\n"));
}

#[test]
fn a_drain_finishes_what_is_under_way() {
    let scene = Scene::new();
    let client = scene.client();
    let mut stream = client.asks("GET", "/long", "");
    let mut server = scene.accept().after_head();
    scene.running.drain();
    // RFC 9114 §5.2: first a GOAWAY that names no request, then one that does.
    let first = read_varint(&client.hears(GOAWAY)).expect("is a number").0;
    assert_eq!(first, (1 << 62) - 4);
    server.sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    assert_eq!(stream.response().1, b"ok");
    assert_eq!(client.closed().0, NO_ERROR);
    scene.running.wait();
}

#[test]
fn a_process_that_stops_says_so() {
    let scene = Scene::new();
    let client = scene.client();
    let _stream = client.asks("GET", "/", "");
    scene.accept().head();
    drop(scene);
    assert_eq!(client.closed().0, NO_ERROR);
}

#[test]
fn a_proxy_that_has_ended_leaves_no_socket_behind() {
    let scene = Scene::new();
    let (address, client) = (scene.address(), scene.client());
    let mut stream = client.asks("GET", "/", "");
    let mut server = scene.accept().after_head();
    server.sends("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    stream.response();
    drop(scene);
    // With SO_REUSEPORT, the next socket at the port would share datagrams with an unread one.
    testkit::wait::assert_soon("its port is free", || std::net::UdpSocket::bind(address).is_ok());
}
