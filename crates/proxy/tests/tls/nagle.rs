//! Clients with Nagle's algorithm (no TCP_NODELAY): their last data must be answered or acknowledged before the proxy
//! waits for more. Otherwise each new connection waits for a delayed acknowledgment. Also servers that speak first.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use nix::getsockopt_impl;
use nix::libc;
use nix::sys::socket::GetSockOpt;
use nix::sys::socket::sockopt::GetStruct;
use route::Split;
use rustls::HandshakeKind;
use rustls::version::{TLS12, TLS13};
use testkit::tls::{TestAuthority, TlsEnd};
use testkit::wait::Patience;

use super::scene::{Scene, loopback};

#[derive(Clone, Copy)]
struct TcpFigures;

getsockopt_impl!(TcpFigures, libc::IPPROTO_TCP, libc::TCP_INFO, libc::tcp_info, GetStruct<libc::tcp_info>);

/// Whether the other end has acknowledged all data.
fn is_acknowledged(tcp: &TcpStream) -> bool {
    TcpFigures.get(tcp).expect("is a TCP socket").tcpi_unacked == 0
}

/// A connection whose other end only sends delayed acknowledgments, because no program reads or writes there.
struct Silent {
    near: TcpStream,
    _far: TcpStream,
}

impl Silent {
    /// With unacknowledged data under way.
    fn new() -> Self {
        let listener = TcpListener::bind(loopback()).expect("a port on loopback is free");
        let mut near = TcpStream::connect(listener.local_addr().expect("it listens")).expect("it listens");
        let (mut far, _) = listener.accept().expect("there is one");
        // After some answers, the kernel delays acknowledgments, to send them with the next answer.
        for _ in 0..3 {
            near.write_all(b"?").expect("is connected");
            far.read_exact(&mut [0]).expect("is connected");
            far.write_all(b"!").expect("is connected");
            near.read_exact(&mut [0]).expect("is connected");
        }
        near.write_all(b"?").expect("is connected");
        Self { near, _far: far }
    }
}

/// Sends the last message of a handshake. Returns whether it is acknowledged before older data on the silent
/// connection.
fn is_acknowledged_at_once(client: &mut TlsEnd) -> bool {
    let silent = Silent::new();
    client.flush();
    let patience = Patience::new();
    loop {
        let is_late = is_acknowledged(&silent.near);
        if is_late || is_acknowledged(&client.tcp) {
            return !is_late;
        }
        patience.wait("neither message is acknowledged");
    }
}

#[test]
fn the_last_word_of_a_handshake_is_acknowledged_though_nothing_is_said_to_it() {
    // RFC 5246 §7.3: a resuming client sends the last message. In TLS 1.3 so does a client that takes no tickets (RFC
    // 8446 §4.2.9).
    let scene = Scene::new();
    let config = Arc::new(scene.authority.client(&[&TLS12]));
    let mut server = None;
    let mut asks = |mut client: TlsEnd| {
        client.asks("/");
        let server = server.get_or_insert_with(|| scene.accept());
        server.message();
        server.answers(b"hello");
        assert_eq!(client.message().body, b"hello");
    };
    asks(scene.client_with(&config));
    // A busy machine may be late sometimes, which is then no worse than without.
    let (mut at_once, mut late) = (0, 0);
    while at_once < 10 {
        let mut client = TlsEnd::client(scene.connect(), &config, "a.example");
        assert_eq!(client.shakes_hands_all_but(), HandshakeKind::Resumed);
        *if is_acknowledged_at_once(&mut client) { &mut at_once } else { &mut late } += 1;
        assert!(late < 30, "{at_once} at once, {late} late");
        asks(client);
    }
}

#[test]
fn tickets_leave_before_the_rest_of_a_request_is_waited_for() {
    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
    const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\n\r\nxy";
    let scene = Scene::new();
    let config = Arc::new(scene.authority.client(&[&TLS13]));
    let mut server = None;
    // Within the head, behind it, and within the body.
    for (request, first, body) in
        [(GET, 1, 0), (GET, 20, 0), (POST, POST.len() - 2, 2), (POST, POST.len() - 1, 2)]
    {
        for is_within_a_record in [false, true] {
            let mut client = TlsEnd::client(scene.connect(), &config, "a.example");
            client.shakes_hands_all_but();
            let (first, rest) = request.split_at(first);
            let mut first = client.sealed(first);
            let mut rest = client.sealed(rest);
            if is_within_a_record {
                rest.splice(..0, first.drain(first.len() - 1..));
            }
            client.tcp.write_all(&first).expect("the proxy takes it");
            client.has_tickets(1);
            client.tcp.write_all(&rest).expect("the proxy takes it");
            let server = server.get_or_insert_with(|| scene.accept());
            assert_eq!(server.message().body, request[request.len() - body..]);
            server.answers(b"hello");
            assert_eq!(client.message().body, b"hello");
        }
    }
}

#[test]
fn settings_of_http2_leave_with_the_end_of_the_handshake() {
    for version in [&TLS13, &TLS12] {
        let scene = Scene::new();
        let mut config = scene.authority.client(&[version]);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let config = Arc::new(config);
        for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
            let mut client = TlsEnd::client(scene.connect(), &config, "a.example");
            assert_eq!(client.shakes_hands(), Ok(kind), "{version:?}");
            // RFC 9113 §3.4: the server's SETTINGS come first, without waiting for the client.
            let head = client.exactly(9);
            assert_eq!(head[3..], [4, 0, 0, 0, 0, 0], "{version:?}");
        }
    }
}

#[test]
fn a_server_that_speaks_first_has_the_whole_handshake() {
    for version in [&TLS13, &TLS12] {
        let authority = TestAuthority::new();
        let tls = authority.server(&authority.issue(&["a.example"]), version);
        let scene = Scene::to_tls(authority, tls, |config, _| {
            config.listeners[0].tcp = Split::new([(0, "", 1)]);
        });
        let mut client = scene.client();
        let mut server = scene.accept();
        server.sends("220 hello");
        assert_eq!(client.exactly(9), b"220 hello", "{version:?}");
        client.sends("QUIT");
        assert_eq!(server.exactly(4), b"QUIT", "{version:?}");
    }
}
