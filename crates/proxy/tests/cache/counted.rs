//! The metrics of the cache.

use std::io::{Read, Write};
use std::net::TcpStream;

use testkit::scene::{BodylessRequest, Scene, Spoken, get};

use super::answered::{ONE_ROUTE, response};

fn metrics(scene: &Scene) -> String {
    let address = scene.running().metrics_address().expect("they are served");
    let mut stream = TcpStream::connect(address).expect("they are served");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("is text");
    page
}

#[test]
fn each_route_counts_what_its_cache_does_and_why_not_more() {
    let routes = ONE_ROUTE.replace("[[route]]", "[[route]]\nname = \"site\"");
    let scene = Scene::new(&format!("metrics = \"127.0.0.1:0\"\n{routes}"));
    let mut client = scene.client(Spoken::Http1).asking(&get("/b"));
    let mut server = scene.accept(0).after_head();
    server.sends(response("Cache-Control: private\r\n", "mine"));
    client.gets();
    client.asks(&get("/a"));
    server.head();
    server.sends(response("Cache-Control: max-age=60\r\nETag: \"a\"\r\n", "hello"));
    client.gets();
    for _ in 0..3 {
        client.asks_for(&get("/a"));
    }
    client.asks(&BodylessRequest { fields: "cache-control: no-cache\n", ..get("/a") });
    server.head();
    server.sends("HTTP/1.1 304 Not Modified\r\n\r\n");
    assert_eq!(client.gets().body, "hello");
    let page = metrics(&scene);
    for line in [
        "vanward_cache_hits_total{route=\"site\"} 3",
        "vanward_cache_stale_total{route=\"site\"} 0",
        "vanward_cache_waits_total{route=\"site\"} 0",
        "vanward_cache_misses_total{route=\"site\",reason=\"uri-miss\"} 2",
        "vanward_cache_misses_total{route=\"site\",reason=\"request\"} 1",
        "vanward_cache_refusals_total{route=\"site\",reason=\"private\"} 1",
        "vanward_cache_stored_total{route=\"site\"} 2",
        "vanward_cache_sent_bytes_total{route=\"site\"} 20",
        "vanward_cache_limit_bytes 67108864",
        "vanward_cache_bytes{state=\"filling\"} 0",
        "vanward_cache_keys 1",
        "vanward_cache_evictions_total 0",
    ] {
        assert!(page.lines().any(|told| told == line), "{line}\n{page}");
    }
    let described = include_str!("../../../../docs/observing.md");
    let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    for family in families {
        assert!(described.contains(&format!("`{family}`")), "docs/observing.md says nothing of {family}");
    }
}
