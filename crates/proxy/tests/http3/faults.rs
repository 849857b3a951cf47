//! Connection faults affect HTTP/3 clients like TCP clients.

use std::time::Duration;

use quinn::{ConnectionError, TransportConfig};
use testkit::http3::H3TestClient;
use testkit::wait::assert_soon;

use super::scene::Scene;

const SERVED: &str = "[[route]]\nrespond = { status = 200 }";

/// A client with a short time-out.
fn tries(scene: &Scene) -> Result<H3TestClient, ConnectionError> {
    let mut transport = TransportConfig::default();
    let idle = Duration::from_millis(700).try_into().expect("is short enough");
    transport.max_idle_timeout(Some(idle)).initial_rtt(Duration::from_millis(20));
    H3TestClient::try_connect(scene.address(), &[b"h3"], transport)
}

fn with(fault: &str) -> Scene {
    Scene::with(&format!("{SERVED}\n[[fault]]\ninject = \"connection {fault}\""))
}

/// Asserts that clients are served once the fault is removed.
fn recovers(scene: &Scene) {
    scene.reload("http3 = true", SERVED);
    let client = H3TestClient::connect(scene.address());
    assert!(client.asks("GET", "/", "").response().0.starts_with(":status: 200\n"));
}

#[test]
fn a_listener_that_refuses_refuses_quic_too() {
    let scene = with("refuse");
    let error = tries(&scene).err().expect("it is refused");
    assert!(closed(&error).contains("refused"), "{error}");
    recovers(&scene);
}

#[test]
fn each_fault_keeps_connections_from_beginning() {
    for (fault, is_it) in [
        // RFC 9000 §20.1: CONNECTION_REFUSED.
        ("reset", (|error| closed(error).contains("refused")) as fn(&ConnectionError) -> bool),
        // RFC 9001 §4.8: handshake_failure, 40.
        ("bad-handshake", |error| closed(error).contains("40")),
        ("black-hole", |error| matches!(error, ConnectionError::TimedOut)),
        ("slow-start 1h", |error| matches!(error, ConnectionError::TimedOut)),
    ] {
        let scene = with(fault);
        let error = tries(&scene).err().unwrap_or_else(|| panic!("{fault}: it connects"));
        assert!(is_it(&error), "{fault}: {error}");
        let injected = || scene.running.counters().faults_injected;
        assert_soon("it is counted", || injected() == 1);
        recovers(&scene);
        assert_eq!(injected(), 1, "{fault}: the client's repetitions are one connection");
    }
}

/// Describes how the proxy has ended a connection.
fn closed(error: &ConnectionError) -> String {
    match error {
        ConnectionError::ConnectionClosed(close) => close.to_string(),
        other => panic!("it ended otherwise: {other}"),
    }
}

#[test]
fn a_client_that_is_held_back_is_served_then() {
    let scene = with("slow-start 100ms");
    let client = tries(&scene).expect("it connects later");
    drop(client);
    // Only after the pause, because nothing is answered before.
    assert_soon("it is counted", || scene.running.counters().faults_injected == 1);
    let scene = with("black-hole 100ms");
    let error = tries(&scene).err().expect("it is refused then");
    assert!(closed(&error).contains("refused"), "{error}");
}

#[test]
fn faults_of_bytes_spare_clients_of_http3() {
    for fault in ["slice 100", "reset 10KB", "limit 10KB", "corrupt 100", "half-open 10KB", "slow-close 1s"] {
        let scene = with(fault);
        let client = H3TestClient::connect(scene.address());
        assert!(client.asks("GET", "/", "").response().0.starts_with(":status: 200\n"), "{fault}");
        assert_eq!(scene.running.counters().faults_injected, 0, "{fault}");
    }
}
