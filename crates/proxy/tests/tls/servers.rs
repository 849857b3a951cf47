//! Servers with TLS: trust, client certificates, and use of their connections.

use config::{Protocol, Settings};
use rustls::version::{TLS12, TLS13};
use rustls::{HandshakeKind, ServerConfig};
use testkit::tls::{TestAuthority, TlsEnd, TlsEnding};

use super::scene::{Scene, count};

/// Sends a request over existing connections, and its response.
fn asks(client: &mut TlsEnd, server: &mut TlsEnd, path: &str) {
    client.asks(path);
    assert!(server.message().head.starts_with(&format!("GET {path} ")));
    server.answers(path.as_bytes());
    assert_eq!(client.message().body, path.as_bytes());
}

#[test]
fn servers_are_believed_or_not() {
    let other = TestAuthority::new();
    let other_ca = || Some(other.file.clone());
    type Change<'a> = Box<dyn Fn(&mut Settings) + 'a>;
    let cases: [(&str, &[&str], i32, Change<'_>, u16); 7] = [
        ("its name and its CA are right", &["a.example"], 4000, Box::new(|_| ()), 200),
        ("it has another name", &["b.example"], 4000, Box::new(|_| ()), 502),
        ("it has expired", &["a.example"], 2021, Box::new(|_| ()), 502),
        (
            "another CA signed it",
            &["a.example"],
            4000,
            Box::new(|config| config.upstreams[0].tls.ca = other_ca()),
            502,
        ),
        (
            "the system's CAs did not sign it",
            &["a.example"],
            4000,
            Box::new(|config| config.upstreams[0].tls.ca = None),
            502,
        ),
        (
            "the address is no name of it",
            &["a.example"],
            4000,
            Box::new(|config| config.upstreams[0].tls.name = None),
            502,
        ),
        ("nobody asks", &["b.example"], 2021, Box::new(|config| config.upstreams[0].tls.verify = false), 200),
    ];
    for (what, names, year, change, status) in cases {
        let authority = TestAuthority::new();
        let tls = authority.server(&authority.issue_until(names, year), &TLS13);
        let scene = Scene::to_tls(authority, tls, |config, _| change(config));
        let mut client = scene.client().asking("/");
        let mut server = scene.accept_unshaken();
        let shaken = server.shakes_hands();
        assert_eq!(shaken.is_ok(), status == 200, "{what}: {shaken:?}");
        if shaken.is_ok() {
            server.message();
            server.answers(b"hello");
        }
        let answer = client.message();
        assert!(answer.head.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {}", answer.head);
        scene.waits_for(what, |counters| count(counters, "upstream-certificate") == u64::from(status == 502));
    }
}

#[test]
fn a_server_that_speaks_no_http2_is_not_spoken_to_in_it() {
    let authority = TestAuthority::new();
    let tls = authority.server(&authority.issue(&["a.example"]), &TLS13);
    let scene = Scene::to_tls(authority, tls, |config, _| config.upstreams[0].protocol = Protocol::Http2);
    let mut client = scene.client().asking("/");
    let mut server = scene.accept_unshaken();
    // The server ignores the offered protocols, and its connection is closed.
    let _ = server.shakes_hands();
    assert!(client.message().head.starts_with("HTTP/1.1 502 "));
    scene.waits_for("it is counted", |counters| count(counters, "upstream-protocol") == 1);
}

#[test]
fn a_server_in_the_clear_is_not_taken_for_one_with_tls() {
    let scene = Scene::with(|config, _| {
        let server = &mut config.upstreams[0].servers[0];
        server.scheme = config::Scheme::Https;
    });
    let mut client = scene.client().asking("/");
    let mut server = scene.accept();
    server.sends("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    assert!(client.message().head.starts_with("HTTP/1.1 502 "));
}

#[test]
fn servers_see_our_certificate() {
    let authority = TestAuthority::new();
    let tls = authority.server_asking(&authority.issue(&["a.example"]));
    let scene = Scene::to_tls(authority, tls, |config, authority| {
        config.upstreams[0].tls.certificate = Some(authority.files("shown", &["client"]).pair);
    });
    let mut client = scene.client().asking("/");
    let mut server = scene.accept();
    assert!(server.tls().peer_certificates().is_some());
    server.message();
    server.answers(b"hello");
    assert_eq!(client.message().body, b"hello");
}

#[test]
fn the_name_and_the_protocol_are_asked_for() {
    let authority = TestAuthority::new();
    let mut tls = authority.server(&authority.issue(&["a.example"]), &TLS13);
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let scene = Scene::to_tls(authority, tls, |_, _| ());
    let mut client = scene.client().asking("/");
    let mut server = scene.accept();
    let Some(rustls::Connection::Server(connection)) = &server.tls else { panic!("it is a server") };
    assert_eq!(connection.server_name(), Some("a.example"));
    assert_eq!(connection.alpn_protocol(), Some(&b"http/1.1"[..]));
    server.message();
    server.answers(b"hello");
    assert_eq!(client.message().body, b"hello");
}

#[test]
fn tickets_and_new_keys_leave_a_connection_as_it_is() {
    for version in [&TLS13, &TLS12] {
        let authority = TestAuthority::new();
        let mut tls = authority.server(&authority.issue(&["a.example"]), version);
        tls.send_tls13_tickets = 4;
        tls.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().expect("there is randomness");
        let scene = Scene::to_tls(authority, tls, |_, _| ());
        let mut client = scene.client().asking("/0");
        let mut server = scene.accept();
        server.message();
        server.answers(b"/0");
        assert_eq!(client.message().body, b"/0");
        for round in 1..6 {
            if version.version == rustls::ProtocolVersion::TLSv1_3 {
                server.tls().refresh_traffic_keys().expect("it is TLS 1.3");
                server.sends(b"");
            }
            asks(&mut client, &mut server, &format!("/{round}"));
        }
        // A non-idempotent request makes the proxy ask the kernel, which knows about data that has arrived meanwhile.
        server.tls().refresh_traffic_keys().ok();
        server.sends(b"");
        client.sends("POST /last HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\n\r\n1");
        assert!(server.message().head.starts_with("POST /last "));
        server.answers(b"last");
        assert_eq!(client.message().body, b"last");
        scene.assert_no_more_connections();
    }
}

#[test]
fn a_connection_that_its_server_has_ended_is_not_used_again() {
    // The end comes with the response or later, with a TCP close or without.
    for is_with_answer in [true, false] {
        for is_closed in [true, false] {
            let scene = Scene::to_tls13();
            let mut client = scene.client().asking("/1");
            let mut server = scene.accept();
            server.message();
            if is_with_answer {
                let mut bytes = server.sealed(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1");
                server.tls().send_close_notify();
                bytes.extend(server.sealed(b""));
                std::io::Write::write_all(&mut server.tcp, &bytes).expect("it is connected");
            } else {
                server.answers(b"1");
                assert_eq!(client.message().body, b"1");
                server.tells_its_end();
            }
            if is_closed {
                server.cuts();
            }
            if is_with_answer {
                assert_eq!(client.message().body, b"1");
            }
            // A non-idempotent request uses another connection at once.
            client.sends("POST /2 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\n\r\n1");
            let mut next = scene.accept();
            assert!(next.message().head.starts_with("POST /2 "));
            next.answers(b"2");
            assert_eq!(client.message().body, b"2", "{is_with_answer} {is_closed}");
        }
    }
}

#[test]
fn what_a_server_says_unasked_is_nobodys_answer() {
    let scene = Scene::to_tls13();
    let mut client = scene.client().asking("/1");
    let mut server = scene.accept();
    server.message();
    server.answers(b"1");
    assert_eq!(client.message().body, b"1");
    // A complete response, or a part of a record that may become one.
    for part in [false, true] {
        let bytes = server.sealed(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged");
        let sent = if part { &bytes[..10] } else { &bytes[..] };
        std::io::Write::write_all(&mut server.tcp, sent).expect("it is connected");
        client.sends("POST /2 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\n\r\n1");
        server = scene.accept();
        assert!(server.message().head.starts_with("POST /2 "));
        server.answers(b"2");
        assert_eq!(client.message().body, b"2");
    }
}

#[test]
fn an_answer_that_its_server_cuts_is_cut_for_the_client() {
    // RFC 8446 §6.1: without close_notify, the end of a connection does not end a body until close. The columns: the
    // server's bytes; close_notify; a complete response; the proxy's close_notify to the client, which is unnecessary
    // if a length is not reached.
    for (said, is_told, is_whole, is_client_told) in [
        ("\r\nhello", true, true, true),
        ("\r\nhello", false, false, false),
        ("Content-Length: 5\r\n\r\nhello", false, true, true),
        ("Content-Length: 6\r\n\r\nhello", true, false, true),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false, true, true),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", true, false, false),
    ] {
        let scene = Scene::to_tls13();
        let mut client = scene.client().saying("GET / HTTP/1.0\r\nHost: a.example\r\n\r\n");
        let mut server = scene.accept();
        server.message();
        server.sends(format!("HTTP/1.1 200 OK\r\n{said}"));
        client.head();
        assert_eq!(client.exactly(5), b"hello");
        if is_told {
            server.tells_its_end();
        }
        drop(server);
        client.ends(if is_client_told { &TlsEnding::Told } else { &TlsEnding::Reset });
        scene.waits_for(said, |counters| {
            counters.requests_active == 0 && count(counters, "upstream-truncated") == u64::from(!is_whole)
        });
    }
}

#[test]
fn sessions_with_servers_are_resumed() {
    for version in [&TLS13, &TLS12] {
        let authority = TestAuthority::new();
        let mut tls: ServerConfig = authority.server(&authority.issue(&["a.example"]), version);
        tls.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().expect("there is randomness");
        let scene = Scene::to_tls(authority, tls, |_, _| ());
        let mut client = scene.client();
        for round in 0..4 {
            client.asks("/");
            let mut server = scene.accept_unshaken();
            let kind = server.shakes_hands();
            let expected = if round == 0 { HandshakeKind::Full } else { HandshakeKind::Resumed };
            assert_eq!(kind, Ok(expected), "{version:?}");
            server.message();
            server.sends("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
            assert_eq!(client.message().body, b"hello");
        }
    }
}

#[test]
fn a_request_leaves_with_the_end_of_the_handshake() {
    let scene = Scene::to_tls13();
    let _client = scene.client().asking("/");
    let mut server = scene.accept_unshaken();
    server.shakes_hands().expect("it is believed");
    // Nothing more needs to be read from the socket.
    server.tcp.set_nonblocking(true).expect("is a socket");
    assert!(server.message().head.starts_with("GET / "));
}

/// A request that waits for a new connection takes one that becomes free earlier; the new one goes to a later request.
#[test]
fn a_request_that_waits_for_a_handshake_takes_a_connection_that_becomes_free() {
    let scene = Scene::to_tls13();
    let (mut first, mut second) = (scene.client(), scene.client());
    first.asks("/1");
    let mut server = scene.accept();
    server.message();
    second.asks("/2");
    let mut other = scene.accept_unshaken();
    server.answers(b"1");
    assert_eq!(first.message().body, b"1");
    assert!(server.message().head.starts_with("GET /2 "));
    server.answers(b"2");
    assert_eq!(second.message().body, b"2");
    other.shakes_hands().unwrap_or_else(|ending| panic!("no handshake: {ending:?}"));
    scene.waits_for("both are there", |counters| counters.upstream_connects == 2);
    // The newest connection is used first.
    asks(&mut first, &mut other, "/3");
    scene.assert_no_more_connections();
    let counters = scene.running.counters();
    assert_eq!((counters.upstream_connects, counters.upstream_reuses), (2, 2));
}

/// A free connection goes to the request that has waited longest, rather than to one whose own connection failed.
#[test]
fn those_who_wait_for_handshakes_are_served_in_turn() {
    let scene = Scene::to_tls13();
    let mut clients = [scene.client(), scene.client(), scene.client()];
    clients[0].asks("/0");
    let mut server = scene.accept();
    server.message();
    clients[1].asks("/1");
    let refused = scene.accept_unshaken();
    clients[2].asks("/2");
    let mut slow = scene.accept_unshaken();
    for (at, client) in clients.iter_mut().enumerate().take(2) {
        server.answers(b"ok");
        assert_eq!(client.message().body, b"ok");
        assert!(server.message().head.starts_with(&format!("GET /{} ", at + 1)));
    }
    // The third request is under way, so the connections begun for it and for the second are for later requests. If one
    // of them fails, no request fails.
    drop(refused);
    scene.waits_for("it is noticed", |counters| counters.upstream_connect_failures == 1);
    clients[0].asks("/3");
    slow.shakes_hands().unwrap_or_else(|ending| panic!("no handshake: {ending:?}"));
    assert!(slow.message().head.starts_with("GET /3 "));
    slow.answers(b"ok");
    assert_eq!(clients[0].message().body, b"ok");
    server.answers(b"ok");
    assert_eq!(clients[2].message().body, b"ok");
}
