//! The log of failed servers: each row in each version in which it can happen.

use std::io::{Read, Write};
use std::net::TcpListener;

use rustls::version::TLS13;
use testkit::http1::Http1Peer;
use testkit::http2::frame::{ENHANCE_YOUR_CALM, go_away, last_headers};
use testkit::http3::H3TestServer;
use testkit::ports::{self, loopback};
use testkit::tls::TestAuthority;

use super::asked::Asked;
use super::scene::{ALL, Scene, Spoken};

const GET: &str = "GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";

/// The client's result, and the log's.
struct Row {
    what: &'static str,
    tables: &'static str,
    plays: fn(&mut Asked, &mut Http1Peer),
    /// The log's status, word, and beginning of the detail for each version.
    status: u16,
    cause: &'static str,
    details: [&'static str; 3],
}

const SHORT: &str = "timeouts = { upstream_first_byte = \"1s\", upstream_body = \"1s\" }";

#[test]
fn each_failure_of_a_response_has_its_word_status_and_detail() {
    let code = "it reset the stream with ";
    let rows = [
        Row {
            what: "no response at all",
            tables: "",
            plays: |server, _| server.leaves(),
            status: 502,
            cause: "upstream-closed",
            details: ["it closed the connection", "it closed the connection", "it closed the connection"],
        },
        Row {
            what: "a reset before the response",
            tables: "",
            plays: |server, _| server.resets(),
            status: 502,
            cause: "upstream-reset",
            details: [
                "the connection broke: Connection reset by peer",
                &*[code, "INTERNAL_ERROR"].concat().leak(),
                &*[code, "H3_INTERNAL_ERROR"].concat().leak(),
            ],
        },
        Row {
            what: "an end of the connection with an error code",
            tables: "",
            plays: |server, _| match std::mem::replace(server, Asked::Gone) {
                Asked::Two(mut end) => end.sends(go_away(1, ENHANCE_YOUR_CALM)),
                Asked::Three(_, served) => served.closes(0x107),
                Asked::One(peer) => peer.resets(),
                Asked::Gone => {}
            },
            status: 502,
            cause: "upstream-reset",
            details: [
                "the connection broke: ",
                "it reset the stream with ENHANCE_YOUR_CALM",
                "it reset the stream with H3_EXCESSIVE_LOAD",
            ],
        },
        Row {
            what: "a body that breaks off",
            tables: "",
            plays: |server, client| {
                server.sends_head("content-length: 50000\n");
                server.sends_data(&[b'x'; 9_000]);
                client.head();
                client.exactly(9_000);
                server.resets();
            },
            status: 200,
            cause: "upstream-truncated",
            details: ["9000 of 50000 bytes (Content-Length) arrived"; 3],
        },
        Row {
            what: "a head that is too large",
            tables: "limits = { header_bytes = \"4KB\" }",
            plays: |server, _| {
                server.sends_head(&format!("x-long: {}\n", "x".repeat(8_000)));
                server.ends();
            },
            status: 502,
            cause: "upstream-head-too-large",
            details: [
                "the head is larger than limits.header_bytes",
                "with the field \'x-long\' the head is larger",
                "a field section of",
            ],
        },
        Row {
            what: "a field that is none",
            tables: "",
            plays: |server, _| {
                server.sends_head("x y: 1\n");
                server.ends();
            },
            status: 502,
            cause: "upstream-malformed",
            details: ["the field 'x y'", "'x y' is no field name", "'x y' is no field name"],
        },
        Row {
            what: "a body in another coding than the head says",
            tables: "",
            plays: |server, _| {
                server.sends_head("content-type: text/plain\ncontent-encoding: gzip\ncontent-length: 9000\n");
                server.sends_data(&[b'x'; 9_000]);
                server.ends();
            },
            status: 502,
            cause: "upstream-undecodable",
            details: ["the body is not valid gzip"; 3],
        },
        Row {
            what: "no response in time",
            tables: SHORT,
            plays: |_, _| (),
            status: 504,
            cause: "upstream-timeout",
            details: ["the server did not begin to answer within timeouts.upstream_first_byte, 1s"; 3],
        },
    ];
    for row in rows {
        for (place, spoken) in ALL.into_iter().enumerate() {
            let what = format!("{}, {spoken:?}", row.what);
            let scene = Scene::to(spoken, row.tables);
            let mut client = scene.client1();
            client.sends(GET);
            let mut server = Asked::by(&scene, spoken);
            (row.plays)(&mut server, &mut client);
            client.rest();
            drop(server);
            scene.tells(&what, "1.1", row.status, row.cause, row.details[place]);
        }
    }
}

const UNVERIFIED: &str = "tls = { verify = false }";

/// Asserts the log of a connection that cannot be made.
#[track_caller]
fn fails(
    upstream: &str,
    (tcp, quic): (TcpListener, H3TestServer),
    plays: impl Fn(&Scene),
    cause: &str,
    detail: &str,
) {
    let scene = Scene::at(upstream, "", tcp, quic);
    let mut client = scene.client1();
    client.sends(GET);
    plays(&scene);
    client.rest();
    scene.tells(upstream, "1.1", 502, cause, detail);
}

#[test]
fn a_server_that_does_not_listen_is_told_in_each_version() {
    let nobody = ports::nobody();
    for (upstream, detail) in [
        (format!("servers = [\"http://{nobody}\"]"), "Connection refused"),
        (format!("servers = [\"http://{nobody}\"]\nprotocol = \"h2\""), "Connection refused"),
        (
            format!("servers = [\"https://{nobody}\"]\nprotocol = \"h3\"\n{UNVERIFIED}"),
            "its UDP port does not respond",
        ),
    ] {
        fails(&upstream, (ports::listen(), H3TestServer::new()), |_| (), "upstream-refused", detail);
    }
}

#[test]
fn each_handshake_of_quic_that_fails_has_its_word_and_detail() {
    let authority = TestAuthority::new();
    let tls = |protocol: &[u8]| {
        let mut tls = authority.server(&authority.issue(&["a.test"]), &TLS13);
        tls.alpn_protocols = vec![protocol.to_vec()];
        tls
    };
    let rows = [
        (tls(b"h3"), "b.test", "upstream-certificate", "its certificate is not for b.test"),
        (tls(b"hq-interop"), "a.test", "upstream-protocol", "it does not speak the configured protocol"),
        (
            authority.server_asking(&authority.issue(&["a.test"])),
            "a.test",
            "upstream-alert",
            "it wants a client certificate",
        ),
    ];
    for (tls, name, cause, detail) in rows {
        let server = H3TestServer::from_tls(tls, loopback(), |_| ());
        let upstream = format!(
            "servers = [\"https://{}\"]\nprotocol = \"h3\"\ntls = {{ ca = {:?}, name = {name:?} }}",
            server.address(),
            authority.file
        );
        let tries = |scene: &Scene| assert!(scene.quic.try_accept().is_err());
        fails(&upstream, (ports::listen(), server), tries, cause, detail);
    }
}

#[test]
fn each_connection_of_tcp_that_is_not_made_has_its_word_and_detail() {
    // RFC 8446 §6: a fatal handshake_failure.
    const ALERT: &[u8] = &[21, 3, 3, 0, 2, 2, 40];
    const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    let rows: [(&str, &str, &[u8], &str, &str); 8] = [
        ("https", "", ALERT, "upstream-alert", "no TLS: it refuses what we offer"),
        ("https", "h2", ALERT, "upstream-alert", "no TLS: it refuses what we offer"),
        ("https", "", PLAIN, "upstream-handshake", "no TLS: it does not speak TLS on this port"),
        ("https", "h2", PLAIN, "upstream-handshake", "no TLS: it does not speak TLS on this port"),
        ("https", "", b"", "upstream-refused", "it closed the connection in the TLS handshake"),
        ("https", "h2", b"", "upstream-refused", "it closed the connection in the TLS handshake"),
        ("http", "h2", PLAIN, "upstream-protocol", "its first bytes are not HTTP/2"),
        ("http", "h2", b"", "upstream-protocol", "it closed the connection before its HTTP/2 SETTINGS"),
    ];
    for (scheme, protocol, said, cause, detail) in rows {
        let listener = ports::listen();
        let address = listener.local_addr().expect("it listens");
        let protocol = if protocol.is_empty() { String::new() } else { format!("protocol = {protocol:?}\n") };
        let tls = if scheme == "https" { UNVERIFIED } else { "" };
        let upstream = format!("servers = [\"{scheme}://{address}\"]\n{protocol}{tls}");
        // Sends this in answer to any bytes, and closes.
        let plays = |scene: &Scene| {
            let mut server = ports::accept(&scene.tcp);
            let _ = server.read(&mut [0; 4096]);
            server.write_all(said).expect("it is taken");
        };
        fails(&upstream, (listener, H3TestServer::new()), plays, cause, detail);
    }
}

#[test]
fn a_step_of_connecting_that_takes_too_long_is_named() {
    let tables = "timeouts = { upstream_connect = \"1s\" }";
    let within = "within timeouts.upstream_connect, 1s";
    let listener = ports::listen();
    let address = listener.local_addr().expect("it listens");
    let hole = std::net::UdpSocket::bind(loopback()).expect("a port is free");
    let quic = hole.local_addr().expect("it has one");
    let silent = H3TestServer::new();
    for (upstream, step) in [
        (format!("servers = [\"https://{address}\"]"), "the TLS handshake did not complete"),
        (format!("servers = [\"http://{address}\"]\nprotocol = \"h2\""), "it sent no HTTP/2 SETTINGS"),
        (format!("servers = [\"https://{quic}\"]\nprotocol = \"h3\""), "the QUIC handshake did not complete"),
    ] {
        let scene =
            Scene::at(&upstream, tables, listener.try_clone().expect("a descriptor"), H3TestServer::new());
        let mut client = scene.client1();
        client.sends(GET);
        client.rest();
        scene.tells(&upstream, "1.1", 504, "upstream-connect-timeout", &format!("{step} {within}"));
    }
    let upstream = format!(
        "servers = [\"https://{}\"]\nprotocol = \"h3\"\ntls = {{ verify = false }}",
        silent.address()
    );
    let scene = Scene::at(&upstream, tables, listener, silent);
    let mut client = scene.client1();
    client.sends(GET);
    let _served = scene.quic.accept_silently();
    client.rest();
    scene.tells(
        "no SETTINGS",
        "1.1",
        504,
        "upstream-connect-timeout",
        &format!("it sent no HTTP/3 SETTINGS {within}"),
    );
}

/// RFC 9114 §4.2.2: an HTTP/3 server limits the length of heads.
#[test]
fn a_request_longer_than_its_server_accepts_gets_431() {
    for client in ALL {
        let scene = Scene::to(Spoken::Http3, "");
        let long = "x".repeat(3_000);
        let accepts = |scene: &Scene| {
            let mut served = scene.quic.accept_silently();
            // SETTINGS_MAX_FIELD_SECTION_SIZE: 2000.
            served.control(&[0x04, 0x03, 0x06, 0x47, 0xd0]);
            served
        };
        let version = match client {
            Spoken::Http1 => {
                let mut client = scene.client1();
                client.sends(format!("GET / HTTP/1.1\r\nHost: test\r\nX-Long: {long}\r\n\r\n"));
                let _served = accepts(&scene);
                assert_eq!(client.message().status(), 431);
                "1.1"
            }
            Spoken::Http2 => {
                let mut client = scene.client2();
                let head =
                    format!(":method: GET\n:scheme: http\n:authority: test\n:path: /\nx-long: {long}\n");
                client.sends(last_headers(1, &head));
                let _served = accepts(&scene);
                assert!(client.whole(1).contains(":status: 431"));
                "2.0"
            }
            Spoken::Http3 => {
                let client = scene.client3();
                let mut stream = client.asks("GET", "/", &format!("x-long: {long}\n"));
                let _served = accepts(&scene);
                assert!(stream.response().0.starts_with(":status: 431\n"));
                "3.0"
            }
        };
        let detail = "the head of 3";
        scene.tells(&format!("{client:?}"), version, 431, "upstream-head-limit", detail);
    }
}
