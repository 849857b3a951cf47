//! Requests over TLS: sequential, pipelined, long, slow, half-closed and cut.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use testkit::tls::TlsEnding;
use testkit::wait::PATIENCE;

use super::scene::{Scene, count};

const LONG: usize = 5_000_000;

fn long_body() -> Vec<u8> {
    (0..LONG).map(|index| (index % 251) as u8).collect()
}

#[test]
fn one_after_the_other_and_several_at_once() {
    let scene = Scene::new();
    let mut client = scene.client().asking("/1");
    let mut server = scene.accept();
    for path in ["/1", "/2"] {
        if path == "/2" {
            client.asks(path);
        }
        let request = server.message();
        assert!(request.head.starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{}", request.head);
        assert!(request.head.contains("\r\nX-Forwarded-Proto: https\r\n"), "{}", request.head);
        server.answers(path.as_bytes());
        assert_eq!(client.message().body, path.as_bytes());
    }
    // Three in one record, then one in many.
    let requests: String =
        (3..6).map(|path| format!("GET /{path} HTTP/1.1\r\nHost: a.example\r\n\r\n")).collect();
    client.sends(&requests);
    for path in 3..6 {
        assert!(server.message().head.starts_with(&format!("GET /{path} ")));
        server.answers(path.to_string().as_bytes());
        assert_eq!(client.message().body, path.to_string().as_bytes());
    }
    for byte in b"GET /6 HTTP/1.1\r\nHost: a.example\r\n\r\n" {
        client.sends([*byte]);
    }
    assert!(server.message().head.starts_with("GET /6 "));
    server.answers(b"6");
    assert_eq!(client.message().body, b"6");
    // A record whose bytes arrive one by one.
    for byte in client.sealed(b"GET /7 HTTP/1.1\r\nHost: a.example\r\n\r\n") {
        client.tcp.write_all(&[byte]).expect("the proxy takes it");
    }
    assert!(server.message().head.starts_with("GET /7 "));
    server.answers(b"7");
    assert_eq!(client.message().body, b"7");
    scene.assert_no_more_connections();
    client.tells_its_end();
    client.ends(&TlsEnding::Told);
}

#[test]
fn a_long_answer_of_our_own_is_sealed_behind_its_head() {
    let response = route::FixedResponse::new(200, "text/plain", long_body()).expect("is a response");
    let scene = Scene::with(|config, _| {
        let respond = config::Respond { response: response.into(), status: None, body: None, file: None };
        config.routes[0].action = config::Action::Respond(respond);
    });
    let mut client = scene.client();
    for path in ["/1", "/2"] {
        client.asks(path);
        assert!(client.message().body == long_body(), "{path}");
    }
}

#[test]
fn long_bodies_pass_both_ways_whatever_the_server_speaks() {
    for scene in [Scene::new(), Scene::to_tls13()] {
        let mut client = scene.client();
        std::thread::scope(|scope| {
            let body = long_body();
            let client = &mut client;
            let asking = scope.spawn(move || {
                let head = format!("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {LONG}\r\n\r\n");
                client.sends([head.as_bytes(), &body].concat());
                client.message()
            });
            let mut server = scene.accept();
            let request = server.message();
            assert!(request.body == long_body());
            server.answers(&request.body);
            assert!(asking.join().expect("no panic").body == long_body());
        });
    }
}

#[test]
fn pieces_of_a_long_body_do_not_wait_for_what_does_not_come() {
    for scene in [Scene::new(), Scene::to_tls13()] {
        let mut client = scene.client().asking("/");
        let mut server = scene.accept();
        server.message();
        server.sends("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nfirst");
        assert!(client.head().starts_with("HTTP/1.1 200"));
        assert_eq!(client.exactly(5), b"first");
        for piece in ["second", "third"] {
            server.sends(piece);
            assert_eq!(client.exactly(piece.len()), piece.as_bytes());
        }
        let rest = vec![b'x'; 100_000 - "firstsecondthird".len()];
        server.sends(&rest);
        assert!(client.exactly(rest.len()) == rest);
    }
}

#[test]
fn a_long_response_waits_for_a_client_that_does_not_read() {
    for scene in [Scene::new(), Scene::to_tls13()] {
        let mut client = scene.client().asking("/");
        let mut server = scene.accept();
        server.message();
        const ALL: usize = 256 << 20;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {ALL}\r\n\r\n");
        server.sends(head);
        // Not a deadline: if nothing held the server back, all bytes would fit.
        server.tcp.set_write_timeout(Some(Duration::from_millis(300))).expect("is a socket");
        let piece = vec![7; 64 * 1024];
        let (mut sent, mut unsent) = (0, Vec::new());
        while sent < ALL {
            let sealed = if server.tls.is_some() { server.sealed(&piece) } else { piece.clone() };
            sent += piece.len();
            let mut rest = &sealed[..];
            while !rest.is_empty() {
                match server.tcp.write(rest) {
                    Ok(count) => rest = &rest[count..],
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("it cannot send: {error}"),
                }
            }
            if !rest.is_empty() {
                unsent = rest.to_vec();
                break;
            }
        }
        assert!(sent < 64 << 20, "{sent} bytes were taken though nobody reads");
        assert!(client.head().starts_with("HTTP/1.1 200"));
        // All sent bytes arrive, and the following ones.
        std::thread::scope(|scope| {
            let server = &mut server;
            scope.spawn(move || {
                server.tcp.set_write_timeout(Some(PATIENCE)).expect("is a socket");
                server.tcp.write_all(&unsent).expect("it goes on");
                server.sends(vec![7; 100_000]);
            });
            let got = client.exactly(sent + 100_000);
            assert!(got.iter().all(|&byte| byte == 7));
        });
    }
}

#[test]
fn a_client_that_goes_without_a_word_between_requests_has_done_nothing_wrong() {
    let scene = Scene::new();
    let mut client = scene.client().asking("/");
    let mut server = scene.accept();
    server.message();
    server.answers(b"hello");
    assert_eq!(client.message().body, b"hello");
    client.cuts();
    // The proxy's close_notify is sent nevertheless.
    client.ends(&TlsEnding::Told);
    assert_eq!(scene.running.counters().failures.iter().sum::<u64>(), 0);
}

#[test]
fn a_request_that_is_cut_is_no_whole_request() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.sends("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\nhello");
    let mut server = scene.accept().after_head();
    assert_eq!(server.exactly(5), b"hello");
    client.cuts();
    let (rest, _) = server.rest();
    assert!(rest.is_empty());
    scene.waits_for("the client has gone", |counters| count(counters, "client-gone") == 1);
}

#[test]
fn who_has_told_the_end_of_its_requests_still_gets_the_response() {
    let scene = Scene::new();
    let mut client = scene.client().asking("/");
    client.tells_its_end();
    let mut server = scene.accept();
    server.message();
    server.answers(b"hello");
    assert_eq!(client.message().body, b"hello");
    client.ends(&TlsEnding::Told);
}

#[test]
fn the_end_of_a_response_is_told_and_a_response_that_is_cut_is_seen_to_be() {
    // The server's response after its start line, and whether only its end distinguishes it from a complete one.
    let cases = [
        ("Content-Length: 5\r\n\r\nhello", true),
        ("\r\nhello", true),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", true),
        ("Content-Length: 6\r\n\r\nhello", true),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", false),
    ];
    for (said, is_told) in cases {
        let scene = Scene::new();
        let mut client = scene.client();
        // The response ends with the connection.
        client.sends("GET / HTTP/1.0\r\nHost: a.example\r\n\r\n");
        let mut server = scene.accept();
        server.message();
        server.sends(format!("HTTP/1.1 200 OK\r\n{said}"));
        client.head();
        assert_eq!(client.exactly(5), b"hello");
        drop(server);
        client.ends(if is_told { &TlsEnding::Told } else { &TlsEnding::Reset });
    }
}

#[test]
fn a_record_that_does_not_become_whole_has_the_time_of_a_head() {
    let scene = Scene::with(|config, _| config.timeouts.client_header = Duration::from_secs(2));
    let mut client = scene.client().asking("/");
    let mut server = scene.accept();
    server.message();
    server.answers(b"hello");
    assert_eq!(client.message().body, b"hello");
    let record = client.sealed(b"GET /");
    client.tcp.write_all(&record[..record.len() - 1]).expect("the proxy takes it");
    assert!(client.message().head.starts_with("HTTP/1.1 408 "));
    client.ends(&TlsEnding::Told);
}

#[test]
fn a_record_that_was_tampered_with_ends_the_connection() {
    let scene = Scene::new();
    let mut client = scene.client();
    let mut record = client.sealed(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    record[20] ^= 1;
    client.tcp.write_all(&record).expect("the proxy takes it");
    client.ends(&TlsEnding::Refused(rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac)));
    scene.assert_no_more_connections();
}

#[test]
fn new_keys_do_not_disturb_a_conversation() {
    let scene = Scene::new();
    let mut client = scene.client().asking("/0");
    let mut server = scene.accept();
    for round in 0..5 {
        assert!(server.message().head.starts_with(&format!("GET /{round} ")));
        server.answers(&vec![7; 50_000]);
        assert_eq!(client.message().body.len(), 50_000);
        client.tls().refresh_traffic_keys().expect("it is TLS 1.3");
        client.asks(&format!("/{}", round + 1));
    }
}

#[test]
fn a_drain_ends_idle_connections_with_a_word() {
    let scene = Scene::new();
    let mut idle = scene.client().asking("/");
    let mut server = scene.accept();
    server.message();
    server.answers(b"hello");
    assert_eq!(idle.message().body, b"hello");
    let mut client = scene.client().asking("/under-way");
    server.message();
    scene.running.drain();
    idle.ends(&TlsEnding::Told);
    server.answers(b"still");
    let last = client.message();
    assert!(last.head.contains("\r\nConnection: close\r\n"), "{}", last.head);
    assert_eq!(last.body, b"still");
    client.ends(&TlsEnding::Told);
}
