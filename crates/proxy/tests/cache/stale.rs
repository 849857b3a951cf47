//! When stale responses are served.

use testkit::scene::{BOTH, BodylessRequest, Scene, SceneClient, Spoken, get};
use testkit::wait;

use super::answered::{ONE_ROUTE, next, response};
use super::purged;

/// Two seconds old when it arrives, and fresh for one.
fn stale(more: &str) -> String {
    format!("Age: 2\r\nCache-Control: max-age=1{more}\r\nETag: \"a\"\r\n")
}

const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\ndown";

/// A client and a server with a stored response between them.
fn stored(scene: &Scene, spoken: Spoken, fields: &str) -> (SceneClient, testkit::http1::Http1Peer) {
    let mut client = scene.client(spoken).asking(&get("/a"));
    let mut server = scene.accept(0).after_head();
    server.sends(response(fields, "old"));
    assert_eq!(client.gets().body, "old");
    (client, server)
}

#[test]
fn rfc5861_3_what_is_stale_is_served_while_one_request_revalidates_it() {
    for spoken in BOTH {
        let scene = Scene::new(ONE_ROUTE);
        let (mut client, mut server) = stored(&scene, spoken, &stale(", stale-while-revalidate=60"));
        for _ in 0..3 {
            let got = client.asks_for(&get("/a"));
            assert_eq!(got.body, "old");
            assert!(
                got.field("cache-status").is_some_and(|status| status.starts_with("vanward; hit; ttl=-"))
            );
        }
        assert!(server.head().to_lowercase().contains("if-none-match: \"a\"\r\n"));
        assert!(!server.has_something() && scene.try_accept(0).is_none());
        server.sends(response("Cache-Control: max-age=60\r\n", "new"));
        // The stale response is served until the new one is stored completely.
        while client.asks_for(&get("/a")).body != "new" {}
        assert!(!server.has_something() && scene.try_accept(0).is_none());
    }
}

#[test]
fn a_revalidation_in_the_background_may_find_that_nothing_has_changed() {
    let scene = Scene::new(ONE_ROUTE);
    let (mut client, mut server) = stored(&scene, Spoken::Http1, &stale(", stale-while-revalidate=60"));
    client.asks_for(&get("/a"));
    server.head();
    server.sends("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\nX-New: 1\r\n\r\n");
    while client.asks_for(&get("/a")).field("x-new").is_none() {}
    assert_eq!(client.asks_for(&get("/a")).body, "old");
    assert!(!server.has_something() && scene.try_accept(0).is_none());
}

#[test]
fn a_background_fetch_outlives_the_client_that_it_began_with() {
    let scene = Scene::new(ONE_ROUTE);
    let (mut client, mut server) = stored(&scene, Spoken::Http1, &stale(", stale-while-revalidate=60"));
    client.asks_for(&get("/a"));
    server.head();
    drop(client);
    server.sends(response("Cache-Control: max-age=60\r\n", "new"));
    let mut client = scene.client(Spoken::Http2);
    while client.asks_for(&get("/a")).body != "new" {}
}

/// A request in the background uses the route's rules, rather than the upstream's.
#[test]
fn a_revalidation_in_the_background_is_retried_by_the_rules_of_its_route() {
    let routes = ONE_ROUTE
        .replace("cache = {}", "cache = {}\nretry = { on = [\"503\"], attempts = 2 }")
        .replace("[\"http://{0}\"]", "[\"http://{0}\", \"http://{1}\"]\nretry = { attempts = 1 }");
    let scene = Scene::new(&routes);
    let asked = || {
        let mut found = None;
        wait::assert_soon("no server is asked", || {
            found = (0..2).find_map(|at| Some((at, scene.try_accept(at)?)));
            found.is_some()
        });
        found.expect("the wait is over")
    };
    let mut client = scene.client(Spoken::Http1).asking(&get("/a"));
    let (_, mut server) = asked();
    server.head();
    server.sends(response(&stale(", stale-while-revalidate=60\r\nConnection: close"), "old"));
    assert_eq!(client.gets().body, "old");
    assert_eq!(client.asks_for(&get("/a")).body, "old");
    let (first, mut server) = asked();
    server.head();
    server.sends(UNAVAILABLE.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
    let (second, mut server) = asked();
    assert_ne!(first, second);
    assert!(server.head().to_lowercase().contains("if-none-match: \"a\"\r\n"));
    server.sends(response("Cache-Control: max-age=60\r\n", "new"));
    while client.asks_for(&get("/a")).body != "new" {}
    assert_eq!(scene.running().counters().upstream_retries, 1);
}

#[test]
fn a_route_may_have_what_is_stale_served_while_it_is_revalidated() {
    let routes = ONE_ROUTE.replace("cache = {}", "cache = { stale_while_revalidate = \"60s\" }");
    let scene = Scene::new(&routes);
    let (mut client, mut server) = stored(&scene, Spoken::Http1, &stale(""));
    assert_eq!(client.asks_for(&get("/a")).body, "old");
    server.head();
}

#[test]
fn rfc9111_5_2_2_what_must_be_revalidated_is_waited_for() {
    for directive in [", must-revalidate", ", proxy-revalidate", ", no-cache"] {
        let routes =
            ONE_ROUTE.replace("cache = {}", "cache = { stale_while_revalidate = \"60s\", grace = \"60s\" }");
        let scene = Scene::new(&routes);
        let said = stale(&format!("{directive}, stale-while-revalidate=60, stale-if-error=60"));
        let (mut client, mut server) = stored(&scene, Spoken::Http1, &said);
        client.asks(&get("/a"));
        server.head();
        server.sends(UNAVAILABLE);
        let got = client.gets();
        assert_eq!((got.status, got.body.as_str()), (503, "down"), "{directive}");
        // A server that fails briefly is asked again, for all clients.
        client.asks(&get("/a"));
        server.head();
        server.sends(response("Cache-Control: max-age=60\r\n", "new"));
        assert_eq!(client.gets().body, "new");
        assert_eq!(client.asks_for(&get("/a")).body, "new");
    }
}

#[test]
fn rfc5861_4_what_is_stale_stands_in_for_a_server_that_fails() {
    let grace = ONE_ROUTE.replace("cache = {}", "cache = { grace = \"60s\" }");
    let rows = [
        (ONE_ROUTE, ", stale-if-error=60", "old"),
        (ONE_ROUTE, "", "down"),
        (&grace, "", "old"),
        // RFC 9111 §5.2.2.10: a server's s-maxage is not extended.
        (&grace, ", s-maxage=1", "down"),
    ];
    for (routes, said, expected) in rows {
        for spoken in BOTH {
            let scene = Scene::new(routes);
            let (mut client, mut server) = stored(&scene, spoken, &stale(said));
            client.asks(&get("/a"));
            server.head();
            server.sends(UNAVAILABLE);
            let got = client.gets();
            assert_eq!(got.body, expected, "{said}");
            if expected == "old" {
                let status = got.field("cache-status").expect("is told");
                assert!(status.starts_with("vanward; fwd=stale; fwd-status=503; ttl=-"), "{status}");
            }
        }
    }
}

#[test]
fn what_was_purged_while_a_server_was_asked_does_not_stand_in_for_it() {
    for (body, expected) in [
        (r#"{"urls":["http://test/a"]}"#, 503),
        (r#"{"hosts":["test"]}"#, 503),
        (r#"{"all":true}"#, 503),
        (r#"{"urls":["http://test/a"],"soft":true}"#, 200),
        (r#"{"hosts":["test"],"soft":true}"#, 200),
    ] {
        // GET asks for all clients, HEAD only for itself.
        for method in ["GET", "HEAD"] {
            let scene = purged::scene("", "");
            let (_, mut server) = stored(&scene, Spoken::Http1, &stale(", stale-if-error=60"));
            let mut client = scene.client(Spoken::Http1).asking(&BodylessRequest { method, ..get("/a") });
            let mut other = None;
            let server = next(&scene, &mut server, &mut other);
            server.head();
            assert_eq!(purged::order(&scene, "/cache/purge", body).0, 200);
            server.sends("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
            assert_eq!(client.gets_head_alone().status, expected, "{method} {body}");
        }
    }
}

#[test]
fn a_head_is_stood_in_for_as_well() {
    let grace = ONE_ROUTE.replace("cache = {}", "cache = { grace = \"60s\" }");
    let scene = Scene::new(&grace);
    let (_, mut server) = stored(&scene, Spoken::Http1, &stale(""));
    let mut client = scene.client(Spoken::Http2).asking(&BodylessRequest { method: "HEAD", ..get("/a") });
    let mut other = None;
    let server = next(&scene, &mut server, &mut other);
    assert!(server.head().starts_with("HEAD "));
    server.sends("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\n");
    let got = client.gets();
    assert_eq!((got.status, got.field("content-length")), (200, Some("3")));
}
