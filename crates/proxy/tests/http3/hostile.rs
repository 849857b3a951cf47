//! Hostile clients: each is limited, counted, and logged.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use quinn_proto::TransportConfig;
use testkit::http3::RawClient;
use testkit::http3::frame::head;
use testkit::wait::holds_soon;

use super::scene::{PLAIN, Scene};

/// H3_EXCESSIVE_LOAD.
const EXCESSIVE_LOAD: u64 = 0x107;
/// Clients that begin at once: fewer than cause a Retry.
const BEGINNING: usize = 50;
/// The number of handshakes under way from which clients get a Retry.
const RETRIES_FROM: u64 = 64;

#[test]
fn rapid_resets_end_the_connection() {
    let scene = Scene::with("[limits.http2]\nresets_per_second = 20\n[[route]]\nupstream = \"app\"");
    let client = scene.client();
    for _ in 0..200 {
        if client.quic.close_reason().is_some() {
            break;
        }
        let Ok(opened) =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client.asks("GET", "/", "")))
        else {
            break;
        };
        let mut stream = opened;
        let _ = stream.receive.stop(0x10c_u32.into());
    }
    assert_eq!(client.closed().0, EXCESSIVE_LOAD);
    scene.assert_failure("http3-reset-flood", 1);
}

#[test]
fn empty_frames_end_the_connection() {
    let scene = Scene::with(PLAIN);
    let client = scene.client();
    let mut stream = client.open();
    stream.sends_head(&testkit::http3::frame::request("POST", "/", ""));
    let empty = head(0x0, 0).repeat(2_000);
    stream.sends(&empty);
    assert_eq!(client.closed().0, EXCESSIVE_LOAD);
    scene.assert_failure("http3-empty-frame-flood", 1);
}

#[test]
fn meaningless_frames_and_priorities_end_the_connection() {
    let scene = Scene::with(PLAIN);
    let mut client = scene.client();
    client.control(&head(0x21, 0).repeat(3_000));
    assert_eq!(client.closed().0, EXCESSIVE_LOAD);
    scene.assert_failure("http3-overhead-flood", 1);
    let mut client = scene.client();
    client.control(&[&head(0xf0700, 4)[..], &[0x00], b"u=1"].concat().repeat(1_000));
    assert_eq!(client.closed().0, EXCESSIVE_LOAD);
    scene.assert_failure("http3-priority-flood", 1);
}

/// A flood of Initial packets with spoofed addresses: from a number on, each client gets a Retry, and the bytes sent to
/// silent ones are limited.
#[test]
fn a_flood_of_initials_meets_retries_and_others_are_served() {
    let scene = Scene::with("[[route]]\nrespond = { status = 200 }");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.connect(scene.address()).expect("is reachable");
    socket.set_read_timeout(Some(Duration::from_millis(1))).expect("is a socket");
    let (mut sent, mut received) = (0, 0);
    let mut answer = [0; 2048];
    for _ in 0..400 {
        // Packets for which the kernel has no room are lost.
        sent += socket.send(&first_datagram(b"h3")).unwrap_or_default();
        while let Ok(count) = socket.recv(&mut answer) {
            received += count;
        }
    }
    assert!(holds_soon(|| scene.running.counters().quic_retries > 0), "nobody was asked to retry");
    // RFC 9000 §8.1: at most three times the received bytes.
    assert!(received <= 3 * sent, "{received} bytes were sent for {sent}");
    let client = scene.client();
    assert!(client.asks("GET", "/", "").response().0.starts_with(":status: 200\n"));
}

/// Existing clients do not wait for many new handshakes: packets are received before the next handshake begins.
#[test]
fn who_is_served_comes_before_handshakes() {
    // On a busy machine all handshakes may be done before the request is sent.
    let answered: Vec<_> =
        (0..20).map(|_| answered_before_a_request()).take_while(|count| *count > BEGINNING / 2).collect();
    assert!(answered.len() < 20, "handshakes that were answered before the request: {answered:?}");
}

/// Finished and failed handshakes do not count toward the threshold of Retry.
#[test]
fn a_handshake_that_is_over_leaves_its_place() {
    let scene = Scene::with("[[route]]\nrespond = { status = 200 }");
    for failed in 1..=RETRIES_FROM {
        client_socket(&scene).send(&first_datagram(b"other")).expect("there is room");
        scene.assert_failure("tls-handshake", failed);
    }
    for _ in 0..=RETRIES_FROM {
        assert!(scene.client().asks("GET", "/", "").response().0.starts_with(":status: 200\n"));
    }
    assert_eq!(scene.running.counters().quic_retries, 0);
}

/// Returns how many of the handshakes that begin at once are answered before a later request.
fn answered_before_a_request() -> usize {
    let scene = Scene::with("[[route]]\nrespond = { status = 200 }");
    let mut client = RawClient::connect(scene.address(), TransportConfig::default());
    let beginning: Vec<_> = (0..BEGINNING).map(|_| (client_socket(&scene), first_datagram(b"h3"))).collect();
    for (socket, datagram) in &beginning {
        socket.send(datagram).expect("there is room");
    }
    let stream = client.asks("GET", "/", "", true);
    client.until("no answer", |client| client.reads(stream).0 > 0);
    beginning.iter().filter(|(socket, _)| socket.recv(&mut [0; 2048]).is_ok()).count()
}

fn client_socket(scene: &Scene) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.connect(scene.address()).expect("is reachable");
    socket.set_nonblocking(true).expect("is a socket");
    socket
}

/// The first datagram of a client that sends nothing else.
fn first_datagram(protocol: &[u8]) -> Vec<u8> {
    let address = "127.0.0.1:1".parse().expect("is an address");
    let config = quinn_proto::EndpointConfig::default();
    let mut endpoint = quinn_proto::Endpoint::new(Arc::new(config), None, false, None);
    let mut tls =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("it has TLS 1.3")
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
    tls.alpn_protocols = vec![protocol.to_vec()];
    let crypto = quinn_proto::crypto::rustls::QuicClientConfig::try_from(tls).expect("is TLS 1.3");
    let config = quinn_proto::ClientConfig::new(Arc::new(crypto));
    let now = std::time::Instant::now();
    let (_, mut connection) = endpoint.connect(now, config, address, "test").expect("it can begin");
    let mut bytes = Vec::new();
    let transmit = connection.poll_transmit(now, 1, &mut bytes).expect("there is a first packet");
    bytes.truncate(transmit.size);
    bytes
}
