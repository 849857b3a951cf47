//! Connections without toxics: they pass unchanged.

use serde_json::json;

use crate::scene::Scene;

#[test]
fn either_side_may_speak_first_and_end_first() {
    let scene = Scene::new();
    let (mut client, mut server) = scene.pair();
    server.sends("220 ready\r\n");
    client.gets(b"220 ready\r\n");
    client.sends("EHLO\r\n");
    client.half_closes();
    server.gets(b"EHLO\r\n");
    server.gets_the_end();
    server.sends("still here");
    server.half_closes();
    client.gets(b"still here");
    client.gets_the_end();
}

#[test]
fn a_reset_is_passed_on() {
    let scene = Scene::new();
    let (client, mut server) = scene.pair();
    client.resets();
    server.gets_a_reset();
    let (mut client, mut server) = scene.pair();
    // A reset during connection setup looks like a server that is not running.
    server.sends("x");
    client.gets(b"x");
    server.resets();
    client.gets_a_reset();
}

#[test]
fn a_reset_does_not_overtake_what_toxics_hold() {
    let scene = Scene::new();
    scene.adds("bandwidth", "downstream", json!({ "rate": 0 }));
    let (mut client, mut server) = scene.pair();
    server.sends("hello");
    client.sends("x");
    server.gets(b"x");
    server.resets();
    // If the later connection has been relayed, this one would have been, too.
    let (mut other, mut server) = scene.pair();
    other.sends("x");
    server.gets(b"x");
    server.resets();
    other.gets_a_reset();
    client.has_nothing();
    scene.removes("bandwidth");
    client.gets(b"hello");
    client.gets_a_reset();
}

#[test]
fn much_passes_whole_with_and_without_toxics() {
    let scene = Scene::new();
    let sent: Vec<u8> = (0..4 << 20).map(|index: u32| (index % 251) as u8).collect();
    for toxic in [
        None,
        Some(("slicer", json!({ "average_size": 1500, "size_variation": 700, "delay": 0 }))),
        Some(("latency", json!({ "latency": 1, "jitter": 1 }))),
    ] {
        if let Some((kind, attributes)) = toxic.clone() {
            scene.adds(kind, "downstream", attributes);
        }
        let (mut client, mut server) = scene.pair();
        let bytes = sent.clone();
        let sender = std::thread::spawn(move || {
            server.sends(bytes);
            server.half_closes();
            server
        });
        assert!(client.rest().0 == sent, "{toxic:?}");
        drop(sender.join());
    }
}

#[test]
fn a_server_that_is_not_there_closes_the_client() {
    let scene = Scene::new();
    assert_eq!(scene.api("POST", "/proxies/p", json!({ "upstream": "127.0.0.1:1" })).0, 200);
    scene.client().is_closed();
}
