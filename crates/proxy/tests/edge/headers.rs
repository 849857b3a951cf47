//! The PROXY protocol from proxies in front: required from their networks; it sets the client.

use std::time::Duration;

use config::{AccessLog, LogFormat, LogTarget};
use testkit::text::{GET, OK};

use super::scene::{Scene, Set, answer};

/// A version 2 header: from 192.0.2.7:4711 to 192.0.2.1:443, with an empty TLV.
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0f\xc0\0\x02\x07\xc0\0\x02\x01\x12\x67\x01\xbb\x04\0\0";
const V2_LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
const V1: &[u8] = b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 443\r\n";
const V1_SIX: &[u8] = b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n";
const V1_UNKNOWN: &[u8] = b"PROXY UNKNOWN\r\n";

/// A listener that expects headers from the machine itself.
fn scene() -> Scene {
    scene_with(|_| ())
}

fn scene_with(change: impl FnOnce(&mut Set)) -> Scene {
    Scene::with(1, |set| {
        set.config.listeners[0].proxy_protocol = vec!["127.0.0.0/8".parse().expect("is a network")];
        change(set);
    })
}

#[test]
fn the_client_is_whom_the_header_names() {
    for (header, client) in [
        (V1, "192.0.2.7"),
        (V2, "192.0.2.7"),
        (V1_SIX, "2001:db8::7"),
        (V1_UNKNOWN, "127.0.0.1"),
        (V2_LOCAL, "127.0.0.1"),
    ] {
        let scene = scene();
        let mut peer = scene.client().saying([header, GET.as_bytes()].concat());
        let mut server = scene.accept(0);
        let head = server.head();
        assert!(head.contains(&format!("\r\nX-Forwarded-For: {client}\r\n")), "{head}");
        answer(&mut peer, &mut server);
        // One header for the whole connection.
        peer.sends(GET);
        assert!(server.head().contains(&format!("\r\nX-Forwarded-For: {client}\r\n")));
        answer(&mut peer, &mut server);
    }
}

/// PROXY protocol §2.2.6: a balancer that terminates TLS says so; servers and redirects depend on it.
#[test]
fn a_client_that_spoke_tls_to_the_sender_of_the_header_came_by_https() {
    let header = |bits: u8| [&V2[..15], b"\x14", &V2[16..28], b"\x20\0\x05", &[bits], b"\0\0\0\0"].concat();
    // `GET http://test/` over HTTP/2.
    let over_http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x09\x01\x05\0\0\0\x01\x82\x86\x84\x01\x04test";
    for request in [GET.as_bytes(), over_http2] {
        let scene = scene_with(|set| set.config.listeners[0].redirect_to_https = true);
        let _peer = scene.client().saying([&header(1), request].concat());
        let head = scene.accept(0).head();
        assert!(head.contains("\r\nX-Forwarded-Proto: https\r\n"), "{head}");
        assert!(head.contains(";proto=https;"), "{head}");
    }
    // The client has shown a certificate earlier but uses no TLS now; and headers without such a TLV.
    for header in [header(6), V2.to_vec(), V1.to_vec()] {
        let scene = scene_with(|set| set.config.listeners[0].redirect_to_https = true);
        let mut peer = scene.client().saying([&header, GET.as_bytes()].concat());
        assert_eq!(peer.message().status(), 308);
    }
}

#[test]
fn a_header_may_come_in_any_pieces() {
    for header in [V1, V2] {
        let scene = scene();
        let mut peer = scene.client();
        // Each byte in a separate segment, as far as that is possible without waiting.
        for byte in header {
            peer.sends([*byte]);
        }
        peer.sends(GET);
        let mut server = scene.accept(0);
        assert!(server.head().contains("\r\nX-Forwarded-For: 192.0.2.7\r\n"));
        answer(&mut peer, &mut server);
    }
}

#[test]
fn what_does_not_begin_with_a_header_is_closed_and_counted() {
    for bytes in [
        GET.as_bytes(),
        b"PROXY TCP4 192.0.2.7 192.0.2.1 4711\r\n",
        b"PROXY UNKNOWN\n",
        b"\r\n\r\n\0\r\nQUIT\n\x11\x11\0\0",
        &[b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat(),
    ] {
        let scene = scene();
        let mut peer = scene.client().saying(bytes);
        peer.is_closed();
        scene.assert_failures(&["bad-proxy-header"]);
    }
}

#[test]
fn a_header_has_to_come_in_time_and_whole() {
    let mut log = None;
    let scene = scene_with(|set| {
        set.config.timeouts.client_header = Duration::from_secs(1);
        log = Some(set.logs());
    });
    let mut slow = scene.client().saying(&V1[..20]);
    slow.is_closed();
    scene.assert_failures(&["proxy-header-timeout"]);
    let mut gone = scene.client().saying(&V2[..20]);
    gone.half_closes();
    gone.is_closed();
    scene.assert_failures(&["client-gone", "proxy-header-timeout"]);
    // Only checks that the port is open.
    let mut look = scene.client();
    look.half_closes();
    look.is_closed();
    scene.assert_failures(&["client-gone", "proxy-header-timeout"]);
    let mut wrong = scene.client().saying("HELO\r\n");
    wrong.is_closed();
    let lines = scene.log_lines(&log.expect("it was made"));
    let told = [
        ("proxy-header-timeout", "no complete PROXY header arrived within timeouts.client_header, 1s"),
        ("bad-proxy-header", "the connection does not begin with a PROXY protocol header"),
    ];
    for (line, (cause, detail)) in lines.iter().zip(told) {
        assert!(line.contains(&format!(r#""cause":"{cause}","detail":"{detail}"#)), "{line}");
    }
    assert_eq!(lines.len(), told.len(), "{lines:?}");
}

#[test]
fn others_have_no_header() {
    let scene = Scene::with(1, |set| {
        set.config.listeners[0].proxy_protocol = vec!["192.0.2.0/24".parse().expect("is a network")];
    });
    let mut peer = scene.client().saying(GET);
    let mut server = scene.accept(0);
    assert!(server.head().contains("\r\nX-Forwarded-For: 127.0.0.1\r\n"));
    answer(&mut peer, &mut server);
    let mut liar = scene.client().saying([V1, GET.as_bytes()].concat());
    assert_eq!(liar.message().status(), 400);
}

/// Peers at a Unix socket count as the machine itself; their clients are not trusted more than others.
#[test]
fn a_unix_socket_takes_headers_too() {
    let mut log = None;
    let scene = Scene::with(1, |set| {
        let path = set.directory.join("access.log");
        set.config.access_logs = vec![AccessLog::new(LogTarget::File(path.clone()), LogFormat::Json)];
        set.config.listeners[0] = super::scene::unix_listener(set.directory.join("front"));
        set.config.listeners[0].proxy_protocol = vec!["127.0.0.1/32".parse().expect("is a network")];
        set.config.trusted_proxies = vec!["127.0.0.1/32".parse().expect("is a network")];
        log = Some(path);
    });
    let mut peer = scene.client();
    peer.sends([V1, b"GET / HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n"].concat());
    let mut server = scene.accept(0);
    let head = server.head();
    assert!(head.contains("\r\nX-Forwarded-For: 192.0.2.7\r\n") && !head.contains("10.0.0.1"), "{head}");
    server.sends(OK);
    assert_eq!(peer.message().status(), 200);
    drop(peer);
    let lines = scene.log_lines(&log.expect("it was made"));
    assert!(lines.len() == 1 && lines[0].contains("\"client\":\"192.0.2.7\""), "{lines:?}");
}
