//! Features of the request path: gRPC calls, urgency, rates and time-outs of clients, buffered bodies.

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use testkit::http2::H2End;
use testkit::http2::frame::{data, headers, last_headers};
use testkit::http3::frame::{DATA, head, request};
use testkit::http3::{Got, H3TestClient};
use testkit::ports;

use super::exchanges::fills;
use super::scene::{PLAIN, Scene};

const MESSAGE: &[u8] = b"\0\0\0\0\x03abc";

fn calls() -> (Scene, TcpListener) {
    let server = ports::listen();
    let address = ports::address_of(&server);
    let more = format!(
        "[[route]]\nupstream = \"calls\"\n[upstream.calls]\nprotocol = \"h2\"\nservers = [\"http://{address}\"]"
    );
    (Scene::with(&more), server)
}

#[test]
fn a_call_of_grpc_goes_both_ways_at_once_and_ends_with_its_status() {
    let (scene, listener) = calls();
    let client = scene.client();
    let mut call = client.open();
    call.sends_head(&request("POST", "/shop.Cart/Add", "content-type: application/grpc\nte: trailers\n"));
    call.sends_data(MESSAGE);
    let mut server = H2End::server(ports::accept(&listener), &[]);
    let text = String::from_utf8_lossy(MESSAGE).into_owned();
    server.next_on(1);
    server.gets_data(1, &text);
    server.sends([headers(1, ":status: 200\ncontent-type: application/grpc\n"), data(1, MESSAGE)].concat());
    assert!(call.head().contains("content-type: application/grpc\n"));
    assert_eq!(call.gets(), Got::Data(MESSAGE.to_vec()));
    // Neither side has ended.
    for _ in 0..3 {
        call.sends_data(MESSAGE);
        server.gets_data(1, &text);
        server.sends(data(1, MESSAGE));
        assert_eq!(call.gets(), Got::Data(MESSAGE.to_vec()));
    }
    call.ends();
    server.sends(last_headers(1, "grpc-status: 5\ngrpc-message: none\n"));
    assert_eq!(call.gets(), Got::Headers("grpc-status: 5\ngrpc-message: none\n".to_owned()));
    assert_eq!(call.gets(), Got::End);
}

/// gRPC clients get the proxy's errors as a status (`grpc-status` 14 for 502 and 503).
#[test]
fn a_call_to_nobody_gets_a_status_of_grpc() {
    let (scene, listener) = calls();
    drop(listener);
    let client = scene.client();
    let mut call = client.asks("POST", "/a/b", "content-type: application/grpc\nte: trailers\n");
    let (head, body, _) = call.response();
    assert!(head.starts_with(":status: 200\n") && head.contains("grpc-status: 14\n"), "{head}");
    assert!(body.is_empty());
}

/// RFC 9218 §10. The less urgent response was requested first, and has filled all buffers.
#[test]
fn the_more_urgent_response_comes_first() {
    const WINDOW: u32 = 128 * 1024;
    const LONG: usize = 8 << 20;
    let scene = Scene::new();
    let client = H3TestClient::connect_with(scene.address(), |transport| {
        transport.receive_window(WINDOW.into());
    });
    let ask = |urgency| {
        let stream = client.asks("GET", "/", &format!("priority: u={urgency}\n"));
        let mut server = scene.accept().after_head();
        server.sends(format!("HTTP/1.1 200 OK\r\nContent-Length: {LONG}\r\n\r\n"));
        let sent = fills(server.stream());
        assert!(sent < LONG, "all of it was taken");
        server.stream().set_nonblocking(false).expect("is a socket");
        let writes = thread::spawn(move || server.can_send(&vec![b'x'; LONG - sent]));
        (stream, writes)
    };
    let ((mut late, late_server), (mut urgent, urgent_server)) = (ask(6), ask(1));
    let seen = AtomicUsize::new(0);
    let before = thread::scope(|scope| {
        scope.spawn(|| {
            while let count @ 1.. = late.receives(16_384) {
                seen.fetch_add(count, Ordering::Relaxed);
            }
        });
        while urgent.receives(16_384) > 0 {}
        seen.load(Ordering::Relaxed)
    });
    assert!(urgent_server.join().is_ok_and(|sent| sent) && late_server.join().is_ok_and(|sent| sent));
    // The part that QUIC had already taken, and a little per turn.
    assert!(before < LONG / 4, "{before} bytes of the other came first");
}

#[test]
fn a_request_body_that_stops_is_408() {
    let scene = Scene::with(&format!("timeouts = {{ client_body = \"100ms\" }}\n{PLAIN}"));
    let client = scene.client();
    let mut stream = client.open();
    stream.sends_head(&request("POST", "/", "content-length: 9\n"));
    stream.sends_data(b"abc");
    let (head, ..) = stream.response();
    assert!(head.starts_with(":status: 408\n"), "{head}");
    scene.assert_failure("client-body-timeout", 1);
    // The connection continues.
    let _server = scene.accept().after_head();
    let mut next = client.asks("GET", "/", "");
    let mut server = scene.accept().after_head();
    server.sends("HTTP/1.1 204 No Content\r\n\r\n");
    assert!(next.response().0.starts_with(":status: 204\n"));
}

/// Announced bytes are due: a length, or the rest of a DATA frame. A client that owes none is not slow.
#[test]
fn a_client_below_the_minimum_rate_is_cut_off() {
    let limits = "limits = { minimum_rate = \"1MB/s\", rate_window = \"1s\" }\n";
    let scene = Scene::with(&format!("{limits}{PLAIN}"));
    let client = scene.client();
    for (fields, sent) in [
        ("content-length: 9\n", &[&head(DATA, 3)[..], b"abc"].concat()[..]),
        ("", &[&head(DATA, 9)[..], b"abc"].concat()),
    ] {
        let mut stream = client.open();
        stream.sends_head(&request("POST", "/", fields));
        stream.sends(sent);
        let _server = scene.accept().after_head();
        let (head, ..) = stream.response();
        assert!(head.starts_with(":status: 408\n"), "{fields}: {head}");
    }
    scene.assert_failure("client-too-slow", 2);
    let mut quiet = client.open();
    quiet.sends_head(&request("POST", "/", ""));
    quiet.sends_data(b"abc");
    let mut server = scene.accept().after_head();
    // Lets time pass, until another client is cut off.
    let mut clock = client.open();
    clock.sends_head(&request("POST", "/", "content-length: 9\n"));
    clock.sends_data(b"abc");
    assert!(clock.response().0.starts_with(":status: 408\n"));
    server.sends("HTTP/1.1 204 No Content\r\n\r\n");
    assert!(quiet.response().0.starts_with(":status: 204\n"));
}

#[test]
fn a_client_that_does_not_read_is_cut_off_by_the_minimum_rate() {
    let limits = "limits = { minimum_rate = \"1MB/s\", rate_window = \"1s\" }\n";
    let scene = Scene::with(&format!("{limits}{PLAIN}"));
    let client = H3TestClient::connect_with(scene.address(), |transport| {
        transport.stream_receive_window(100_000_u32.into());
    });
    let _slow = client.asks("GET", "/slow", "");
    let mut server = scene.accept().after_head();
    server.sends(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 64 << 20));
    while server.can_send(&[b'x'; 65_536]) {}
    scene.assert_failure("client-stalled", 1);
    assert!(client.quic.close_reason().is_none(), "the connection has ended with it");
}

#[test]
fn a_buffered_request_reaches_its_server_as_a_whole() {
    let scene = Scene::with(
        "[[route]]\nupstream = \"app\"\nrequest_buffering = true\n[request_buffering]\nmemory = \"1MB\"",
    );
    let client = scene.client();
    let mut stream = client.open();
    stream.sends_head(&request("POST", "/up", ""));
    let body: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
    let (first, rest) = body.split_at(150_000);
    stream.sends_data(first);
    assert!(ports::try_accept(&scene.server).is_none(), "a server was asked before the body was there");
    stream.sends_data(rest);
    stream.ends();
    let mut server = scene.accept();
    let head = server.head();
    assert!(head.to_lowercase().contains("content-length: 200000\r\n"), "{head}");
    assert!(server.exactly(body.len()) == body, "it is another");
    server.sends("HTTP/1.1 204 No Content\r\n\r\n");
    assert!(stream.response().0.starts_with(":status: 204\n"));
}
