//! Early data (RFC 8446 §4.2.10): none is accepted; a client that sends some, with a ticket of another server, is
//! served like any other.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::kx_group;
use rustls::version::TLS13;
use rustls::{ClientConfig, Connection, HandshakeKind, ServerConfig};
use testkit::tls::{TlsEnd, TlsEnding};

use super::scene::{Scene, loopback};

/// Gives the client a ticket of another server, which permits this much early data.
fn has_ticket_of_another_server(scene: &Scene, config: &Arc<ClientConfig>, early_data_max: u32) {
    let certificate = scene.authority.issue(&["a.example"]);
    let mut another: ServerConfig = scene.authority.server(&certificate, &TLS13);
    another.max_early_data_size = early_data_max;
    let listener = TcpListener::bind(loopback()).expect("a port on loopback is free");
    let tcp = TcpStream::connect(listener.local_addr().expect("it listens")).expect("it listens");
    let mut client = TlsEnd::client(tcp, config, "a.example");
    let mut server = TlsEnd::server(listener.accept().expect("there is one").0, &Arc::new(another));
    std::thread::scope(|scope| {
        scope.spawn(|| server.shakes_hands().expect("it lets in"));
        client.shakes_hands().expect("it is let in");
        client.has_tickets(1);
    });
}

/// Sends a request as early data, with a body that makes it this long. Returns the result of the handshake.
fn asks_early(
    scene: &Scene,
    config: &Arc<ClientConfig>,
    len: usize,
) -> (TlsEnd, Result<HandshakeKind, TlsEnding>) {
    let mut client = TlsEnd::client(scene.connect(), config, "a.example");
    let mut request = format!("POST /early HTTP/1.1\r\nHost: a.example\r\nContent-Length: {len}\r\n\r\n");
    request.extend(std::iter::repeat_n('x', len - request.len()));
    let Some(Connection::Client(tls)) = &mut client.tls else { unreachable!("it is a client with TLS") };
    tls.set_buffer_limit(None);
    let taken = tls.early_data().expect("the ticket allows it").write(request.as_bytes());
    assert_eq!(taken.expect("memory takes all"), len);
    let kind = client.shakes_hands();
    (client, kind)
}

/// With early data if a ticket permits it.
fn early(mut config: ClientConfig) -> ClientConfig {
    config.enable_early_data = true;
    config.resumption = Resumption::in_memory_sessions(8);
    config
}

/// Asserts that the connection continues, and that no early data reaches the server.
fn is_served(scene: &Scene, client: &mut TlsEnd, server: &mut Option<TlsEnd>) {
    let Some(Connection::Client(tls)) = &client.tls else { unreachable!("it is a client with TLS") };
    assert!(!tls.is_early_data_accepted());
    client.asks("/late");
    let server = server.get_or_insert_with(|| scene.accept());
    assert!(server.message().head.starts_with("GET /late "));
    server.answers(b"hello");
    assert_eq!(client.message().body, b"hello");
}

#[test]
fn early_data_is_skipped_as_far_as_a_ticket_of_another_server_allows() {
    let scene = Scene::new();
    let mut server = None;
    for len in [200, 8 * 1024, 16 * 1024, 64 * 1024] {
        for fragment in [None, Some(500)] {
            let mut config = early(scene.authority.client(&[&TLS13]));
            config.max_fragment_size = fragment;
            let config = Arc::new(config);
            has_ticket_of_another_server(&scene, &config, 64 * 1024);
            let (mut client, kind) = asks_early(&scene, &config, len);
            assert_eq!(kind, Ok(HandshakeKind::Full), "{len} {fragment:?}");
            is_served(&scene, &mut client, &mut server);
        }
    }
}

#[test]
fn early_data_is_skipped_before_a_second_hello_too() {
    // RFC 8446 §4.1.4: the server requests a key share of a supported group.
    let scene = Scene::new();
    let mut server = None;
    for len in [200, 64 * 1024] {
        let groups = vec![kx_group::MLKEM768, kx_group::X25519];
        let config = Arc::new(early(scene.authority.client_sharing(groups)));
        has_ticket_of_another_server(&scene, &config, 64 * 1024);
        let (mut client, kind) = asks_early(&scene, &config, len);
        assert_eq!(kind, Ok(HandshakeKind::FullWithHelloRetryRequest), "{len}");
        is_served(&scene, &mut client, &mut server);
    }
}

#[test]
fn tickets_of_ours_allow_no_early_data() {
    let scene = Scene::new();
    let config = Arc::new(early(scene.authority.client(&[&TLS13])));
    let mut server = None;
    for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let mut client = TlsEnd::client(scene.connect(), &config, "a.example");
        let Some(Connection::Client(tls)) = &mut client.tls else { unreachable!("it is a client with TLS") };
        assert!(tls.early_data().is_none(), "{kind:?}");
        assert_eq!(client.shakes_hands(), Ok(kind));
        is_served(&scene, &mut client, &mut server);
    }
}

#[test]
fn early_data_without_end_is_not_skipped() {
    let scene = Scene::new();
    let config = Arc::new(early(scene.authority.client(&[&TLS13])));
    has_ticket_of_another_server(&scene, &config, 1 << 20);
    let (mut client, kind) = asks_early(&scene, &config, 256 * 1024);
    // The client's part of the handshake may be complete by then.
    let ending = kind.err().unwrap_or_else(|| client.rest().1);
    assert!(matches!(ending, TlsEnding::Refused(_) | TlsEnding::Reset), "{ending:?}");
    scene.waits_for("it is counted", |counters| counters.handshake_failures == 1);
}
