//! Emulated links to servers: `loss` and `latency` apply to each datagram.

use super::scene::{GET, Scene, is_answered};

#[test]
fn datagrams_are_lost_and_everything_arrives() {
    // A lost handshake datagram is repeated after one second, then after two: the time-out covers several losses.
    let scene = Scene::with("loss = \"10% 0ms\"", "[timeouts]\nupstream_connect = \"60s\"\n");
    let mut client = scene.client();
    client.sends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 100000\r\n\r\n");
    client.sends([b'u'; 100_000]);
    let server = scene.accept();
    let mut stream = server.request();
    assert_eq!(stream.response().1.len(), 100_000);
    let body = "x".repeat(200_000);
    stream.answers(&body);
    is_answered(&mut client, 200, &body);
    let lost = server.quic.stats().path.lost_packets;
    assert!(lost > 0, "the server's datagrams are lost as well");
}

#[test]
fn a_reload_changes_the_link_of_a_connection() {
    let scene = Scene::new();
    let mut client = scene.asks();
    let server = scene.accept();
    server.answers("ok");
    is_answered(&mut client, 200, "ok");
    assert_eq!(server.quic.stats().path.lost_packets, 0);
    scene.reload("tls = { verify = false }\nloss = \"10% 0ms\"", "");
    client.sends(GET);
    let body = "x".repeat(200_000);
    server.answers(&body);
    is_answered(&mut client, 200, &body);
    assert!(server.quic.stats().path.lost_packets > 0);
    assert_eq!(scene.running.counters().upstream_connects, 1);
}
