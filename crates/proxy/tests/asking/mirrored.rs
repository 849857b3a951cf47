//! Mirrors: which requests are copied, and that clients never wait for a copy.

use testkit::scene::{BOTH, BodylessRequest, Scene, SceneClient, Spoken, get};
use testkit::text::OK;

use super::{assert_told, nobody, server};

const EDITED: &str = r#"
metrics = "127.0.0.1:0"
[[route]]
path = "/api"
upstream = "app"
rewrite = { path = "/v1" }
request_headers = { set = { X-Tenant = "$host" } }
mirror = { upstream = "shadow", mark = "X-Mirrored" }
[upstream.app]
servers = ["http://{0}"]
[upstream.shadow]
servers = ["http://{1}"]
host = { set = "shadow.internal" }
"#;

#[test]
fn a_copy_is_what_the_server_gets_but_for_its_mark_and_its_host() {
    for spoken in BOTH {
        let scene = Scene::new(EDITED);
        let mut client = scene.client(spoken);
        client.asks(&BodylessRequest { fields: "x-mirrored: 7\nx-other: 1\n", ..get("/api/a?b=c") });
        let mut server = scene.accept(0);
        let seen = server.head();
        server.sends(OK);
        // The client has its response before the mirror responds.
        assert_eq!(client.gets().body, "ok", "{spoken:?}");
        let mut mirror = scene.accept(1);
        let copy = mirror.head();
        assert!(copy.starts_with("GET /v1/a?b=c HTTP/1.1\r\n"), "{copy}");
        let seen: Vec<String> = seen.lines().map(str::to_lowercase).collect();
        let copy: Vec<String> = copy.lines().map(str::to_lowercase).collect();
        assert!(seen.contains(&"x-tenant: test".to_owned()), "{seen:?}");
        let beyond = |lines: &[String], others: &[String]| -> Vec<String> {
            lines.iter().filter(|line| !others.contains(line)).cloned().collect()
        };
        assert_eq!(beyond(&seen, &copy), ["host: test"], "{spoken:?}");
        assert_eq!(beyond(&copy, &seen), ["host: shadow.internal", "x-mirrored: 1"], "{spoken:?}");
        mirror.sends("HTTP/1.1 500 Broken\r\nContent-Length: 3\r\n\r\nbad");
        assert_told(&scene, &[("vanward_mirror_requests_total{route=\"/api\",class=\"5xx\"}", 1.0)]);
        // The mirror's connection is reused.
        client.asks(&get("/api/next"));
        server.head();
        server.sends(OK);
        assert_eq!(client.gets().status, 200, "{spoken:?}");
        assert!(mirror.head().starts_with("GET /v1/next "));
    }
}

#[test]
fn only_requests_for_which_the_condition_holds_are_copied() {
    let mirror = "mirror = { upstream = \"shadow\", when = '\"1\" in request.headers[\"x-copy\"]' }";
    let text = BODIES.replace("mirror = { upstream = \"shadow\", bodies = \"100KB\" }", mirror);
    for spoken in BOTH {
        let scene = Scene::new(&text);
        let mut client = scene.client(spoken);
        let mut server = None;
        for (target, fields) in [("/a", ""), ("/b", "x-copy: 0\n"), ("/c", "x-copy: 1\n")] {
            client.asks(&BodylessRequest { fields, ..get(target) });
            let server = server.get_or_insert_with(|| scene.accept(0));
            server.head();
            server.sends(OK);
            assert_eq!(client.gets().status, 200, "{spoken:?}");
        }
        // The first copy is that of the last request.
        assert!(scene.accept(1).head().starts_with("GET /c "), "{spoken:?}");
    }
}

const BODIES: &str = r#"
metrics = "127.0.0.1:0"
[[route]]
upstream = "app"
mirror = { upstream = "shadow", bodies = "100KB" }
[upstream.app]
servers = ["http://{0}"]
[upstream.shadow]
servers = ["http://{1}"]
"#;

/// Returns the series of requests that were skipped for this reason.
fn skipped(cause: &str) -> String {
    format!("vanward_mirror_skipped_total{{route=\"/\",cause=\"{cause}\"}}")
}

#[test]
fn bodies_are_copied_as_they_pass() {
    let long = vec![b'b'; 50_000];
    for spoken in BOTH {
        for has_length in [true, false] {
            let scene = Scene::new(BODIES);
            for pieces in [vec![&b"small"[..]], vec![&b"a"[..], &long, &b"c"[..]], vec![&b""[..]]] {
                let whole = pieces.concat();
                let mut client = scene.client(spoken);
                client.posts(&pieces, has_length);
                let mut server = scene.accept(0);
                assert_eq!(server.message().body, whole, "{spoken:?} {has_length}");
                server.sends("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
                assert_eq!(client.gets().status, 200);
                let mut mirror = scene.accept(1);
                let copy = mirror.message();
                assert!(copy.body == whole, "{spoken:?} {has_length}: {}", copy.head);
                mirror.sends("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            }
        }
    }
}

#[test]
fn larger_bodies_are_not_copied() {
    let piece = vec![b'x'; 60_000];
    for spoken in BOTH {
        for has_length in [true, false] {
            let scene = Scene::new(BODIES);
            let mut client = scene.client(spoken);
            client.posts(&[&piece, &piece], has_length);
            let mut server = scene.accept(0);
            assert_eq!(server.message().body.len(), 120_000, "{spoken:?} {has_length}");
            server.sends(OK);
            assert_eq!(client.gets().status, 200);
            assert_told(&scene, &[(&skipped("body-too-large"), 1.0)]);
            assert!(scene.try_accept(1).is_none(), "{spoken:?} {has_length}");
        }
    }
}

#[test]
fn half_a_request_is_not_copied() {
    let scene = Scene::new(BODIES);
    let SceneClient::One(mut peer) = scene.client(Spoken::Http1) else { unreachable!() };
    peer.sends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\nhalf");
    let mut server = scene.accept(0).after_head();
    drop(peer);
    server.gets(b"half");
    assert_told(&scene, &[(&skipped("incomplete"), 1.0)]);
    // A tunnel cannot be copied, and a malformed chunk ends the copy like the request.
    let SceneClient::One(mut peer) = scene.client(Spoken::Http1) else { unreachable!() };
    peer.sends("GET / HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    let mut server = scene.accept(0).after_head();
    server.sends(OK);
    assert_eq!(peer.message().status(), 200);
    peer.sends("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n");
    server.head();
    peer.sends("zz\r\n");
    assert_eq!(peer.message().status(), 400);
    assert_told(&scene, &[(&skipped("incomplete"), 2.0), (&skipped("upgrade"), 1.0)]);
    assert!(scene.try_accept(1).is_none());
}

#[test]
fn a_share_is_exact_and_what_becomes_of_copies_is_counted() {
    let app = server(OK);
    let shadow = server("HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno");
    let scene = Scene::new(&format!(
        r#"
metrics = "127.0.0.1:0"
[[route]]
upstream = "app"
mirror = {{ upstream = "shadow", share = "30%" }}
[[route]]
path = "/closed"
upstream = "app"
deny = ["127.0.0.1"]
mirror = {{ upstream = "shadow" }}
[upstream.app]
servers = ["http://{app}"]
[upstream.shadow]
servers = ["http://{shadow}"]
"#
    ));
    for spoken in BOTH {
        for _ in 0..10 {
            let mut client = scene.client(spoken);
            for _ in 0..10 {
                assert_eq!(client.asks_for(&get("/")).status, 200);
            }
            assert_eq!(client.asks_for(&get("/closed")).status, 403);
        }
    }
    let class = |class| format!("vanward_mirror_requests_total{{route=\"/\",class=\"{class}\"}}");
    let late = "vanward_mirror_first_byte_seconds_count{route=\"/\"}";
    assert_told(&scene, &[(&class("4xx"), 60.0), (&class("none"), 0.0), (late, 60.0)]);
    let told = super::series(&scene);
    assert!(!told.keys().any(|name| name.contains("mirror") && name.contains("/closed")), "none were let in");
}

#[test]
fn a_mirror_that_is_gone_or_fails_is_asked_once() {
    let app = server(OK);
    let busy = server("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
    for (servers, class, attempts) in
        [([nobody(), nobody()], "none", 0.0), ([busy.clone(), busy.clone()], "5xx", 1.0)]
    {
        let [one, other] = servers;
        let scene = Scene::new(&format!(
            r#"
metrics = "127.0.0.1:0"
[[route]]
upstream = "app"
retry = {{ attempts = 5, on = ["connect", "503"] }}
mirror = {{ upstream = "shadow" }}
[upstream.app]
servers = ["http://{app}"]
[upstream.shadow]
servers = ["http://{one}", "http://{other}"]
"#
        ));
        for spoken in BOTH {
            assert_eq!(scene.answer(spoken, &get("/")).status, 200);
        }
        let class = format!("vanward_mirror_requests_total{{route=\"/\",class=\"{class}\"}}");
        assert_told(&scene, &[(&class, 2.0)]);
        let told = super::series(&scene);
        let retries = told.iter().filter(|(name, _)| name.starts_with("vanward_upstream_retries_total"));
        assert_eq!(retries.count(), 0, "{class}");
        let cause = "vanward_mirror_failures_total{route=\"/\",cause=\"upstream-refused\"}";
        assert_eq!(told.get(cause).copied().unwrap_or_default(), 2.0 * (1.0 - attempts));
    }
}

#[test]
fn a_mirror_that_never_answers_holds_nobody_up() {
    for spoken in BOTH {
        let scene = Scene::new(&BODIES.replace("bodies =", "max_requests = 1, bodies ="));
        let mut client = scene.client(spoken).asking(&get("/first"));
        let mut server = scene.accept(0).after_head();
        server.sends(OK);
        assert_eq!(client.gets().status, 200);
        let mut mirror = scene.accept(1);
        assert!(mirror.head().starts_with("GET /first "));
        for _ in 0..3 {
            client.asks(&get("/more"));
            server.head();
            server.sends(OK);
            assert_eq!(client.gets().status, 200, "{spoken:?}");
        }
        assert_told(&scene, &[(&skipped("too-many"), 3.0)]);
        // An incomplete response.
        mirror.sends("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhalf");
        drop(mirror);
        let failed = "vanward_mirror_failures_total{route=\"/\",cause=\"upstream-truncated\"}";
        assert_told(&scene, &[(failed, 1.0)]);
        client.asks(&get("/last"));
        server.head();
        server.sends(OK);
        assert_eq!(client.gets().status, 200, "{spoken:?}");
        assert!(scene.accept(1).head().starts_with("GET /last "), "there is a place again");
    }
}
