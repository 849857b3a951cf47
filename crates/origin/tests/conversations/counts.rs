//! Counters of connections and requests.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use super::client::{Client, start};

#[test]
fn stats_count_what_arrived_and_start_again() {
    let running = start();
    let mut client = Client::connect(&running);
    client.get("/tiny");
    client.get("/tiny?query");
    client.get("/a%62c");
    client.send("POST /tiny HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    client.response("POST");
    let stats = client.get("/stats");
    assert_eq!(stats.field("Cache-Control"), Some("no-store"));
    let json: serde_json::Value = serde_json::from_slice(&stats.body).expect("is JSON");
    let expected = serde_json::json!({
        "connections": 1, "connections_open": 1, "connections_refused": 0,
        "requests": 4, "requests_refused": 0, "body_bytes": 5,
        "paths": { "/tiny": 3, "/abc": 1 }, "paths_other": 0,
    });
    assert_eq!(json, expected);
    assert_eq!(json, serde_json::to_value(running.stats()).expect("is JSON"));

    assert_eq!(client.request("DELETE", "/stats", "").status, 204);
    let stats = running.stats();
    assert_eq!((stats.connections, stats.connections_open, stats.requests), (0, 1, 0));
    client.get("/tiny");
    assert_eq!(running.stats().paths, [("/tiny".to_owned(), 1)].into());
    running.reset_stats();
    assert!(running.stats().paths.is_empty());
}

#[test]
fn stats_add_up_over_workers() {
    let options = origin::OriginOptions { workers: NonZeroUsize::new(3), ..origin::OriginOptions::default() };
    let running = origin::start(options).expect("starts");
    let mut clients: Vec<_> = (0..40).map(|_| Client::connect(&running)).collect();
    for client in &mut clients {
        client.get("/tiny");
        client.get("/blank/1");
    }
    let stats = clients[0].get("/stats");
    let json: serde_json::Value = serde_json::from_slice(&stats.body).expect("is JSON");
    assert_eq!((&json["requests"], &json["connections"]), (&80.into(), &40.into()));
}

#[test]
fn a_kept_connection_is_announced_where_that_is_asked_for() {
    for says_keep_alive in [false, true] {
        let running =
            origin::start(origin::OriginOptions { says_keep_alive, ..origin::OriginOptions::default() })
                .expect("starts");
        let mut client = Client::connect(&running);
        // A page from memory, and pages rendered for each request.
        for path in ["/tiny", "/large", "/blank/5", "/chunked/5", "/nowhere"] {
            let response = client.get(path);
            let said = response.field("connection");
            assert_eq!(said, says_keep_alive.then_some("keep-alive"), "{path}");
        }
        client.send("GET /tiny HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(client.response("GET").field("connection"), Some("close"));
    }
}

#[test]
fn stopping_closes_every_connection_and_frees_the_port() {
    let running = start();
    let listen = running.addresses().to_vec();
    let mut clients: Vec<_> = (0..5).map(|_| Client::connect(&running)).collect();
    clients[0].get("/tiny");
    clients[1].send("GET /stall HTTP/1.1\r\nHost: a\r\n\r\n");
    clients[2].send("GET /delay/10m HTTP/1.1\r\nHost: a\r\n\r\n");
    running.stop();
    for client in &mut clients {
        let (bytes, _) = client.rest();
        assert!(bytes.is_empty());
    }
    let again =
        origin::start(origin::OriginOptions { listen: listen.clone(), ..origin::OriginOptions::default() });
    assert_eq!(again.expect("the port is free").addresses(), listen);
}

#[test]
fn what_was_begun_is_done_though_its_client_has_gone() {
    const WORK: Duration = Duration::from_millis(200);
    let capacity = NonZeroUsize::new(1);
    let running = origin::start(origin::OriginOptions { capacity, ..origin::OriginOptions::default() })
        .expect("starts");
    let began = Instant::now();
    for (requests, target) in [(1, "/delay/200ms"), (2, "/tiny?delay=200ms")] {
        let mut gone = Client::connect(&running);
        gone.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        while running.stats().requests < requests {
            std::thread::yield_now();
        }
    }
    let mut client = Client::connect(&running);
    assert_eq!(client.get("/tiny").status, 200, "what takes no time has no turn to wait for");
    assert_eq!(client.get("/delay/1ms").status, 200);
    assert!(began.elapsed() >= 2 * WORK, "both were worked on first: {:?}", began.elapsed());
}
