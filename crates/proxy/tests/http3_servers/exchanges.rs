//! Requests and responses, as client and server see them.

use std::io::Write;

use testkit::http3::Got;
use testkit::http3::frame::{DATA, head};

use super::scene::{GET, Scene, is_answered};

/// Returns the head of a request without a body as the server receives it.
fn seen(lines: &str) -> Vec<&str> {
    lines
        .lines()
        .filter(|line| {
            !line.starts_with("x-forwarded") && !line.starts_with("forwarded") && !line.starts_with("via")
        })
        .collect()
}

#[test]
fn a_request_and_its_response_pass() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.sends("GET /page?q=1 HTTP/1.1\r\nHost: Test\r\nX-Own: 1\r\nConnection: keep-alive\r\n\r\n");
    let server = scene.accept();
    let mut stream = server.request();
    let (head, body, trailers) = stream.response();
    assert_eq!(
        seen(&head),
        [":method: GET", ":scheme: https", ":authority: Test", ":path: /page?q=1", "x-own: 1"]
    );
    assert!(head.contains("via: 1.1 ") && head.contains("x-forwarded-for: 127.0.0.1"), "{head}");
    assert!(body.is_empty() && trailers.is_empty());
    stream.sends_head(":status: 200\ncontent-type: text/plain\ncontent-length: 2\n");
    stream.sends_data(b"ok");
    stream.ends();
    let message = client.message();
    assert!(message.head.starts_with("HTTP/1.1 200 OK\r\n"), "{}", message.head);
    assert!(message.head.to_lowercase().contains("via: 3.0 "), "{}", message.head);
    assert_eq!(message.body, b"ok");
    // Again, over the same connection.
    client.sends(GET);
    server.answers("again");
    is_answered(&mut client, 200, "again");
    let counters = scene.running.counters();
    assert_eq!((counters.upstream_connects, counters.upstream_reuses), (1, 1));
}

#[test]
fn bodies_pass_in_both_directions() {
    let body = vec![b'b'; 300_000];
    let chunked = [b"493e0\r\n", &body[..], b"\r\n0\r\n\r\n"].concat();
    for (framing, sent) in [("Content-Length: 300000", &body), ("Transfer-Encoding: chunked", &chunked)] {
        let scene = Scene::new();
        let mut client = scene.client();
        client.sends(format!("POST /up HTTP/1.1\r\nHost: test\r\n{framing}\r\n\r\n"));
        let mut sender = client.stream().try_clone().expect("a descriptor is free");
        let sent = sent.clone();
        let sending = std::thread::spawn(move || sender.write_all(&sent));
        let server = scene.accept();
        let mut stream = server.request();
        let (head, received, _) = stream.response();
        assert_eq!(head.contains("content-length: 300000"), framing.contains("300000"), "{head}");
        assert!(!head.contains("transfer-encoding"), "{head}");
        assert!(received == body, "{} bytes", received.len());
        sending.join().expect("it runs").expect("it is sent");
        stream.sends_head(":status: 201\n");
        stream.sends_data(&body);
        stream.ends();
        let message = client.message();
        assert_eq!((message.status(), message.body.len()), (201, body.len()));
        assert!(message.head.to_lowercase().contains("transfer-encoding: chunked"), "{}", message.head);
    }
}

#[test]
fn trailers_pass_in_both_directions() {
    let scene = Scene::new();
    let client = scene.client3();
    let mut asking = client.open();
    asking.sends_head(&testkit::http3::frame::request("POST", "/call", "te: trailers\n"));
    asking.sends_data(b"question");
    asking.sends_head("x-sum: 1\n");
    asking.ends();
    let server = scene.accept();
    let mut stream = server.request();
    let (head, body, trailers) = stream.response();
    assert!(head.contains("te: trailers"), "{head}");
    assert_eq!((body.as_slice(), trailers.as_str()), (&b"question"[..], "x-sum: 1\n"));
    stream.sends_head(":status: 200\n");
    stream.sends_data(b"answer");
    stream.sends_head("grpc-status: 0\n");
    stream.ends();
    let (head, body, trailers) = asking.response();
    assert!(head.starts_with(":status: 200\n"), "{head}");
    assert_eq!((body.as_slice(), trailers.as_str()), (&b"answer"[..], "grpc-status: 0\n"));
}

#[test]
fn interim_responses_pass() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.sends("POST / HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    let server = scene.accept();
    let mut stream = server.request();
    assert!(stream.head().contains("expect: 100-continue"));
    stream.sends_head(":status: 100\n");
    assert!(client.head().starts_with("HTTP/1.1 100 "));
    client.sends("abc");
    assert_eq!(stream.gets(), Got::Data(b"abc".to_vec()));
    assert_eq!(stream.gets(), Got::End);
    stream.sends_head(":status: 103\nlink: </style.css>\n");
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 103 ") && head.contains("link: </style.css>"), "{head}");
    stream.answers("done");
    is_answered(&mut client, 200, "done");
}

#[test]
fn responses_without_a_body_end_with_their_head() {
    let scene = Scene::new();
    let mut client = scene.client().saying("HEAD / HTTP/1.1\r\nHost: test\r\n\r\n");
    let server = scene.accept();
    for (status, fields, next) in [
        (200, "content-length: 5\n", "GET /none HTTP/1.1\r\nHost: test\r\nIf-None-Match: \"a\"\r\n\r\n"),
        (304, "etag: \"a\"\ncontent-length: 7\n", "DELETE / HTTP/1.1\r\nHost: test\r\n\r\n"),
        (204, "x: y\n", GET),
    ] {
        let mut stream = server.request();
        stream.response();
        stream.sends_head(&format!(":status: {status}\n{fields}"));
        stream.ends();
        let head = client.head();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        client.sends(next);
    }
    server.answers("body");
    is_answered(&mut client, 200, "body");
}

#[test]
fn a_response_streams_while_its_request_does() {
    let scene = Scene::new();
    let client = scene.client3();
    let mut asking = client.open();
    asking.sends_head(&testkit::http3::frame::request("POST", "/talk", ""));
    let server = scene.accept();
    let mut stream = server.request();
    stream.head();
    stream.sends_head(":status: 200\n");
    assert!(asking.head().starts_with(":status: 200"));
    for word in ["one", "two", "three"] {
        asking.sends_data(word.as_bytes());
        assert_eq!(stream.gets(), Got::Data(word.into()));
        stream.sends_data(word.to_uppercase().as_bytes());
        assert_eq!(asking.gets(), Got::Data(word.to_uppercase().into()));
    }
    asking.ends();
    assert_eq!(stream.gets(), Got::End);
    stream.ends();
    assert_eq!(asking.gets(), Got::End);
}

#[test]
fn a_server_waits_for_a_slow_client() {
    let scene = Scene::new();
    let mut client = scene.asks();
    let server = scene.accept();
    let mut stream = server.request();
    stream.response();
    // Far more than windows and buffers permit, while other requests are served.
    const LEN: usize = 24 << 20;
    stream.sends_head(&format!(":status: 200\ncontent-length: {LEN}\n"));
    let sending = std::thread::spawn(move || {
        stream.sends(&head(DATA, LEN));
        for _ in 0..LEN / (64 << 10) {
            stream.sends(&[b'x'; 64 << 10]);
        }
        stream.ends();
    });
    for _ in 0..20 {
        let mut other = scene.asks();
        server.answers("quick");
        is_answered(&mut other, 200, "quick");
    }
    assert!(!sending.is_finished(), "the proxy takes it all");
    assert_eq!(client.message().body.len(), LEN);
    sending.join().expect("it is sent");
}

#[test]
fn a_websocket_is_a_connect_where_the_server_takes_it() {
    let scene = Scene::new();
    let mut client = scene.client();
    let upgrade = "GET /chat HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    client.sends(upgrade);
    let mut server = scene.servers[0].accept_silently();
    // SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 9220 §3).
    server.control(&[0x04, 0x02, 0x08, 0x01]);
    let mut stream = server.request();
    let head = stream.head();
    assert!(head.starts_with(":method: CONNECT\n") && head.contains(":protocol: websocket\n"), "{head}");
    assert!(!head.contains("sec-websocket-key"), "{head}");
    stream.sends_head(":status: 200\n");
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.to_lowercase().contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
    client.sends("ping");
    assert_eq!(stream.gets(), Got::Data(b"ping".to_vec()));
    stream.sends_data(b"pong");
    client.gets(b"pong");
    drop(client);
    assert!(matches!(stream.gets(), Got::End | Got::Reset(_)));
}
