//! Each toxic, Toxiproxy's and ours, on connections that outlive it.

use serde_json::json;
use testkit::http1::ReaderEnding;

use crate::scene::Scene;

/// Longer than any test.
const LONG_MS: u64 = 3_600_000;

#[test]
fn latency_holds_one_way_back_until_it_is_removed() {
    let scene = Scene::new();
    let (mut client, mut server) = scene.pair();
    scene.adds("latency", "downstream", json!({ "latency": LONG_MS }));
    server.sends("late");
    client.sends("in time");
    server.gets(b"in time");
    client.has_nothing();
    scene.removes("latency");
    client.gets(b"late");
    scene.adds("latency", "downstream", json!({ "latency": 1, "jitter": 1 }));
    server.sends("a little late");
    client.gets(b"a little late");
}

#[test]
fn what_waits_goes_by_a_change() {
    let scene = Scene::new();
    scene.adds("latency", "upstream", json!({ "latency": LONG_MS }));
    let (mut client, mut server) = scene.pair();
    client.sends("one");
    scene.changes("latency", json!({ "latency": 1 }));
    server.gets(b"one");
    client.sends("two");
    server.gets(b"two");
}

#[test]
fn a_bandwidth_of_nothing_holds_all_until_there_is_some() {
    let scene = Scene::new();
    scene.adds("bandwidth", "downstream", json!({ "rate": 0 }));
    let (mut client, mut server) = scene.pair();
    server.sends("slow");
    client.sends("x");
    server.gets(b"x");
    client.has_nothing();
    scene.changes("bandwidth", json!({ "rate": 1000 }));
    client.gets(b"slow");
}

#[test]
fn a_slow_close_holds_back_nothing_but_the_end() {
    let scene = Scene::new();
    scene.adds("slow_close", "downstream", json!({ "delay": LONG_MS }));
    let (mut client, mut server) = scene.pair();
    server.sends("bytes");
    server.half_closes();
    client.gets(b"bytes");
    client.sends("x");
    server.gets(b"x");
    client.has_nothing();
    scene.removes("slow_close");
    client.gets_the_end();
}

#[test]
fn a_timeout_lets_nothing_pass_and_closes() {
    let scene = Scene::new();
    let (mut client, mut server) = scene.pair();
    scene.adds("timeout", "upstream", json!({ "timeout": 1 }));
    client.is_closed();
    server.is_closed();
    scene.changes("timeout", json!({ "timeout": 0 }));
    let (mut client, mut server) = scene.pair();
    client.sends("lost");
    server.sends("x");
    client.gets(b"x");
    server.has_nothing();
    // Missing bytes must be noticed.
    scene.removes("timeout");
    client.is_closed();
    server.is_closed();
}

#[test]
fn a_peer_is_reset_once_it_has_said_something() {
    let scene = Scene::new();
    scene.adds("reset_peer", "upstream", json!({ "timeout": 0 }));
    let (mut client, mut server) = scene.pair();
    server.sends("x");
    client.gets(b"x");
    client.sends("lost");
    client.gets_a_reset();
    server.gets_a_reset();
}

#[test]
fn a_slicer_sends_a_small_piece_after_the_other() {
    let scene = Scene::new();
    scene.adds("slicer", "downstream", json!({ "average_size": 2, "delay": LONG_MS * 1000 }));
    let (mut client, mut server) = scene.pair();
    server.sends("sliced");
    let first = client.exactly(1);
    assert_eq!(first, b"s");
    client.sends("x");
    server.gets(b"x");
    scene.changes("slicer", json!({ "delay": 0 }));
    scene.removes("slicer");
    client.gets(b"liced");
}

#[test]
fn so_many_bytes_pass_and_then_it_ends() {
    let cases = [("limit_data", ReaderEnding::End), ("reset_data", ReaderEnding::Reset)];
    for (kind, expected) in cases {
        let scene = Scene::new();
        scene.adds(kind, "downstream", json!({ "bytes": 5 }));
        let (mut client, mut server) = scene.pair();
        server.sends("abc");
        client.gets(b"abc");
        server.sends("defg");
        let (rest, ending) = client.rest();
        // A reset may overtake bytes written just before it.
        assert!(b"de".starts_with(&rest), "{kind}: {rest:?}");
        assert!(expected == ReaderEnding::Reset || rest == b"de", "{kind}: {rest:?}");
        assert_eq!(ending, expected, "{kind}");
        server.is_closed();
    }
}

#[test]
fn a_reset_comes_whether_bytes_do_or_not() {
    let scene = Scene::new();
    let (mut client, mut server) = scene.pair();
    scene.adds("reset_after", "downstream", json!({ "timeout": 1 }));
    client.gets_a_reset();
    server.gets_a_reset();
}

#[test]
fn a_half_open_way_falls_silent() {
    let scene = Scene::new();
    scene.adds("half_open", "downstream", json!({ "bytes": 3 }));
    let (mut client, mut server) = scene.pair();
    server.sends("abcdef");
    server.half_closes();
    client.gets(b"abc");
    client.sends("anybody?");
    server.gets(b"anybody?");
    client.has_nothing();
}

#[test]
fn a_half_open_way_keeps_no_connection_that_both_sides_have_left() {
    let scene = Scene::new();
    scene.adds("half_open", "downstream", json!({ "bytes": 3 }));
    for is_server_first in [true, false] {
        let (mut client, mut server) = scene.pair();
        server.sends("abcdef");
        client.gets(b"abc");
        if is_server_first {
            server.half_closes();
            client.half_closes();
        } else {
            client.half_closes();
            server.gets_the_end();
            server.half_closes();
        }
        client.gets_a_reset();
        server.is_closed();
    }
}

#[test]
fn corrupt_bytes_are_others_and_as_many() {
    let scene = Scene::new();
    scene.adds("corrupt", "upstream", json!({ "every": 4 }));
    let (mut client, mut server) = scene.pair();
    client.sends([0; 400]);
    let received = server.exactly(400);
    assert!(
        received.chunks(4).all(|four| four.iter().filter(|byte| **byte != 0).count() == 1),
        "{received:?}"
    );
}

#[test]
fn a_slow_start_holds_what_comes_first() {
    let scene = Scene::new();
    scene.adds("slow_start", "upstream", json!({ "delay": LONG_MS }));
    let (mut client, mut server) = scene.pair();
    client.sends("hello");
    server.sends("x");
    client.gets(b"x");
    server.has_nothing();
    scene.changes("slow_start", json!({ "delay": 0 }));
    server.gets(b"hello");
}

#[test]
fn a_seed_decides_which_connections_have_a_toxic() {
    let drawn = |seed: u64| {
        let scene = Scene::empty(seed);
        let proxy = json!({ "name": "p", "listen": "127.0.0.1:0", "upstream": scene.upstream() });
        assert_eq!(scene.api("POST", "/proxies", proxy).0, 201);
        let toxic = json!({ "type": "limit_data", "toxicity": 0.5, "attributes": { "bytes": 1 } });
        assert_eq!(scene.api("POST", "/proxies/p/toxics", toxic).0, 200);
        let is_limited = |_| {
            let (mut client, mut server) = scene.pair();
            server.sends("ab");
            server.half_closes();
            client.rest().0 == b"a"
        };
        (0..32).map(is_limited).collect::<Vec<_>>()
    };
    let first = drawn(1);
    assert!(first.contains(&true) && first.contains(&false), "{first:?}");
    assert_eq!(first, drawn(1));
    assert_ne!(first, drawn(2));
}

#[test]
fn a_packet_that_is_lost_is_late_and_so_is_what_follows() {
    let scene = Scene::new();
    let (mut client, mut server) = scene.pair();
    scene.adds("packet_loss", "downstream", json!({ "percent": 100, "delay": LONG_MS }));
    server.sends("lost");
    server.half_closes();
    client.sends("other way");
    server.gets(b"other way");
    client.has_nothing();
    scene.changes("packet_loss", json!({ "delay": 1 }));
    client.gets(b"lost");
    client.gets_the_end();
    // Without lost packets, nothing is late.
    let (mut client, mut server) = scene.pair();
    scene.changes("packet_loss", json!({ "percent": 0, "delay": LONG_MS }));
    server.sends("in time");
    client.gets(b"in time");
}
