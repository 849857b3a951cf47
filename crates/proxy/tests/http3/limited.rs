//! Limits on requests under way, where each stream counts, and on the connections of a client.

use testkit::http3::H3TestClient;
use testkit::wait::assert_soon;

use super::scene::{PLAIN, Scene};

const OK: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
/// RFC 9114 §8.1: H3_REQUEST_CANCELLED.
const CANCELLED: u64 = 0x010c;

fn limited(options: &str) -> Scene {
    Scene::with(&format!("[[route]]\nupstream = \"app\"\nconcurrency = {{ max = 1{options} }}"))
}

fn settles(scene: &Scene, number: u64) {
    assert_soon("the others have ended", || scene.running.counters().requests_active == number);
}

#[test]
fn each_stream_counts() {
    let scene = limited("");
    let client = scene.client();
    let mut first = client.asks("GET", "/", "");
    let mut server = scene.accept().after_head();
    let refused = client.asks("GET", "/", "").response();
    assert!(refused.0.starts_with(":status: 429\n") && refused.0.contains("retry-after: 1\n"), "{refused:?}");
    server.sends(OK);
    assert!(first.response().0.starts_with(":status: 200\n"));
    settles(&scene, 0);
    // A cancelled one counts no longer.
    let mut second = client.asks("GET", "/", "");
    let _server = scene.accept().after_head();
    second.stops(CANCELLED);
    settles(&scene, 0);
    let mut third = client.asks("GET", "/", "");
    scene.accept().after_head().sends(OK);
    assert!(third.response().0.starts_with(":status: 200\n"));
}

#[test]
fn a_stream_waits_and_can_be_cancelled_meanwhile() {
    let scene = limited(", queue = 1, wait = \"1h\"");
    let client = scene.client();
    let mut first = client.asks("GET", "/", "");
    let mut server = scene.accept().after_head();
    let waits = |number| {
        assert_soon("it waits", || scene.running.counters().requests_queued == number);
    };
    let mut second = client.asks("GET", "/second", "");
    waits(1);
    second.stops(CANCELLED);
    settles(&scene, 1);
    let mut third = client.asks("GET", "/third", "");
    waits(2);
    server.sends(OK);
    assert!(first.response().0.starts_with(":status: 200\n"));
    let mut server = scene.accept();
    assert!(server.head().starts_with("GET /third "));
    server.sends(OK);
    assert!(third.response().0.starts_with(":status: 200\n"));
}

#[test]
fn a_client_has_a_number_of_connections() {
    let scene = Scene::of(1, "http3 = true\nconnections_per_client = 1", PLAIN);
    let first = scene.client();
    let refused = H3TestClient::try_connect(scene.address(), &[b"h3"], quinn::TransportConfig::default());
    assert!(refused.is_err(), "the second one is refused");
    assert_eq!(scene.running.counters().connections_refused, 1);
    scene.assert_failure("too-many-connections", 1);
    first.ends();
    assert_soon("it has ended", || scene.running.counters().connections_active == 0);
    let _second = scene.client();
}
