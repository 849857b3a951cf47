//! Requests that bypass the store: their effects on it, and Cache-Status.

use std::thread;
use std::time::{Duration, Instant};

use testkit::http1::Http1Peer;
use testkit::scene::{BOTH, BodylessRequest, Got, Scene, SceneClient, Spoken, get};
use testkit::wait::assert_soon;

use super::answered::{ONE_ROUTE, response};

const FRESH: &str = "Cache-Control: max-age=60\r\n";

/// A client and a server, each on one connection.
struct Talk {
    client: SceneClient,
    server: Http1Peer,
}

impl Talk {
    /// Sends a first request, so that both connections exist.
    fn new(scene: &Scene) -> Self {
        let mut client = scene.client(Spoken::Http1).asking(&get("/first"));
        let mut server = scene.accept(0).after_head();
        server.sends(response("", ""));
        client.gets();
        Self { client, server }
    }

    fn asks(&mut self, request: &BodylessRequest<'_>, response: &str) -> Got {
        self.client.asks(request);
        self.server.head();
        self.server.sends(response);
        self.client.gets()
    }

    /// Whether the cache answers without the server.
    fn is_stored(&mut self, target: &str) -> bool {
        let asked = BodylessRequest { fields: "cache-control: only-if-cached\n", ..get(target) };
        self.client.asks_for(&asked).status == 200
    }
}

fn status(got: &Got) -> &str {
    got.field("cache-status").unwrap_or_else(|| panic!("not told: {got:?}"))
}

fn ttl_seconds(got: &Got) -> i64 {
    let found = status(got).split("; ").find_map(|parameter| parameter.strip_prefix("ttl="));
    found.and_then(|ttl| ttl.parse().ok()).unwrap_or_else(|| panic!("no ttl: {}", status(got)))
}

/// Removes the TTL, which depends on elapsed time.
fn status_without_ttl(got: &Got) -> String {
    let ttl = format!("; ttl={}", ttl_seconds(got));
    status(got).replacen(&ttl, "", 1)
}

#[test]
fn rfc9111_4_4_what_a_response_names_of_its_origin_is_invalid() {
    let rows = [
        ("200 OK", "Location: /b\r\n", &["/a", "/b"][..]),
        ("201 Created", "Content-Location: http://test/b\r\n", &["/a", "/b"]),
        ("303 See Other", "Location: /c\r\nContent-Location: /b\r\n", &["/a", "/b", "/c"]),
        ("200 OK", "Location: http://elsewhere/b\r\n", &["/a"]),
        ("404 Not Found", "Location: /b\r\n", &[]),
        ("500 Internal Server Error", "Location: /b\r\n", &[]),
    ];
    for (answer, fields, gone) in rows {
        for method in ["POST", "PUT", "DELETE", "PATCH", "MERGE"] {
            let scene = Scene::new(ONE_ROUTE);
            let mut talk = Talk::new(&scene);
            for target in ["/a", "/b", "/c"] {
                talk.asks(&get(target), &response(FRESH, target));
            }
            let answer = format!("HTTP/1.1 {answer}\r\n{fields}Content-Length: 0\r\n\r\n");
            let got = talk.asks(&BodylessRequest { method, ..get("/a") }, &answer);
            assert_eq!(status(&got), "vanward; fwd=method");
            for target in ["/a", "/b", "/c"] {
                assert_eq!(talk.is_stored(target), !gone.contains(&target), "{method} {fields} {target}");
            }
        }
    }
}

/// RFC 9110 §7.6.1: a field that Connection names is not forwarded. If it were in the key, a client could store the
/// response to a request without the field for clients that send it.
#[test]
fn what_the_server_does_not_see_is_in_no_key() {
    let options = "key_headers = [\"x-kind\", \"x-forwarded-host\"], key_cookies = [\"lang\"]";
    let scene = Scene::new(&ONE_ROUTE.replace("cache = {}", &format!("cache = {{ {options} }}")));
    let mut talk = Talk::new(&scene);
    for (target, sent, hidden) in [
        ("/a", "x-kind: k\n", "connection: x-kind\n"),
        ("/b", "cookie: lang=de\n", "connection: close-not, Cookie\n"),
        // Dropped from untrusted clients.
        ("/c", "x-forwarded-host: elsewhere\n", ""),
    ] {
        let fields = [sent, hidden].concat();
        talk.asks(&BodylessRequest { fields: &fields, ..get(target) }, &response(FRESH, target));
        assert!(talk.is_stored(target), "{fields}");
        let fields = format!("{sent}cache-control: only-if-cached\n");
        let got = talk.client.asks_for(&BodylessRequest { fields: &fields, ..get(target) });
        assert_eq!(got.status == 200, hidden.is_empty(), "{fields}");
    }
}

/// The scheme and host that a proxy in front reports count only if it is trusted. Servers receive them, so a response
/// for another host is stored separately.
#[test]
fn rfc9110_7_1_scheme_and_host_are_those_that_the_client_used() {
    for (trusted, is_apart) in [("127.0.0.1", true), ("192.0.2.1", false)] {
        let fields = [
            "x-forwarded-proto: https\n",
            "x-forwarded-host: elsewhere\n",
            "forwarded: for=192.0.2.2;proto=https\n",
            "forwarded: for=192.0.2.2;host=elsewhere\n",
        ];
        for fields in fields {
            let scene = Scene::new(&format!("trusted_proxies = [\"{trusted}\"]\n{ONE_ROUTE}"));
            let mut talk = Talk::new(&scene);
            let told = BodylessRequest { fields, ..get("/a") };
            talk.asks(&told, &response(FRESH, "a"));
            assert_eq!(talk.is_stored("/a"), !is_apart, "{trusted} {fields}");
            assert_eq!(talk.client.asks_for(&told).body, "a", "{trusted} {fields}");
        }
    }
}

#[test]
fn a_safe_method_leaves_all_as_it_is() {
    let scene = Scene::new(ONE_ROUTE);
    let mut talk = Talk::new(&scene);
    talk.asks(&get("/a"), &response(FRESH, "a"));
    let got = talk.asks(&BodylessRequest { method: "OPTIONS", ..get("/a") }, &response("", ""));
    assert_eq!(status(&got), "vanward; fwd=method");
    assert!(talk.is_stored("/a"));
}

#[test]
fn rfc9211_clients_are_told_why_a_server_was_asked() {
    let routes = ONE_ROUTE.replace("cache = {}", "cache = { show_key = true }");
    let scene = Scene::new(&routes);
    let mut talk = Talk::new(&scene);
    let kind = |fields| BodylessRequest { fields, ..get("/a") };
    let varying = format!("{FRESH}Vary: X-Kind\r\n");
    let got = talk.asks(&kind("x-kind: a\n"), &response(&varying, "a"));
    assert_eq!(status_without_ttl(&got), "vanward; fwd=uri-miss; stored; key=\"http://test/a\"");
    assert!((1..=60).contains(&ttl_seconds(&got)));
    let got = talk.asks(&kind("x-kind: b\n"), &response(&varying, "b"));
    assert_eq!(status_without_ttl(&got), "vanward; fwd=vary-miss; stored; key=\"http://test/a\"");
    let got = talk.asks(&kind("x-kind: a\ncache-control: no-cache\n"), &response(&varying, "a"));
    assert_eq!(status_without_ttl(&got), "vanward; fwd=request; stored; key=\"http://test/a\"");
    let got = talk.asks(&kind("x-kind: a\ncache-control: no-store\n"), &response(&varying, "a"));
    assert_eq!(status(&got), "vanward; fwd=request; detail=request-no-store");
    let got = talk.asks(&get("/b"), &response("Cache-Control: private\r\n", "b"));
    assert_eq!(status(&got), "vanward; fwd=uri-miss; detail=private");
    let got = talk.client.asks_for(&kind("x-kind: a\n"));
    assert_eq!(status_without_ttl(&got), "vanward; hit; key=\"http://test/a\"");
}

#[test]
fn what_was_refused_is_stored_once_it_may_be() {
    let scene = Scene::new(ONE_ROUTE);
    let mut talk = Talk::new(&scene);
    talk.asks(&get("/a"), &response("Cache-Control: no-store\r\n", "1"));
    talk.asks(&get("/a"), &response(FRESH, "2"));
    assert!(talk.is_stored("/a"));
}

#[test]
fn times_of_the_route_go_before_those_of_the_server() {
    let routes = ONE_ROUTE
        .replace("cache = {}", "cache = { status_ttl = { 404 = \"1m\", 5xx = \"0s\" }, heuristic = \"0%\" }");
    let scene = Scene::new(&routes);
    let mut talk = Talk::new(&scene);
    talk.asks(&get("/a"), "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(talk.client.asks_for(&get("/a")).status, 404);
    talk.asks(&get("/b"), &format!("HTTP/1.1 500 Error\r\n{FRESH}Content-Length: 0\r\n\r\n"));
    assert!(!talk.is_stored("/b"));
    let modified = "Last-Modified: Tue, 01 Oct 2024 10:00:00 GMT\r\n";
    let got = talk.asks(&get("/c"), &response(modified, "c"));
    assert!(ttl_seconds(&got) <= 0, "{}", status(&got));
}

#[test]
fn rfc9111_4_1_a_variant_is_told_by_what_servers_see_of_clients_alone() {
    let set = "request_headers = { set = { X-Who = \"$client_address\" } }\ncache = {}";
    let constant = "request_headers = { set = { X-Who = \"us\" } }\ncache = {}";
    let host = "rewrite = { host = \"$client_address\" }\ncache = {}";
    for (route, vary, first, second, expected) in [
        // Written by the proxy, so the client's field is ignored.
        ("cache = {}", "X-Forwarded-For", "", "", "fwd=uri-miss; detail=vary-rewritten"),
        ("cache = {}", "Accept, forwarded", "", "", "fwd=uri-miss; detail=vary-rewritten"),
        ("cache = {}", "X-Client-Cert-Subject", "", "", "fwd=uri-miss; detail=vary-rewritten"),
        (set, "x-who", "", "", "fwd=uri-miss; detail=vary-rewritten"),
        (host, "Host", "", "", "fwd=uri-miss; detail=vary-rewritten"),
        (constant, "x-who", "", "", "hit"),
        ("cache = {}", "Host", "", "", "hit"),
        // Dropped, so responses cannot be distinguished by it either.
        ("cache = {}", "X-Forwarded-Proto", "x-forwarded-proto: https\n", "", "hit"),
        ("cache = {}", "X-Kind", "x-kind: a\nconnection: x-kind\n", "", "hit"),
        ("cache = {}", "X-Kind", "x-kind: a\nconnection: x-kind\n", "x-kind: a\n", "fwd=vary-miss; stored"),
    ] {
        let scene = Scene::new(&ONE_ROUTE.replace("cache = {}", route));
        let mut talk = Talk::new(&scene);
        let fields = format!("{FRESH}Vary: {vary}\r\n");
        talk.asks(&BodylessRequest { fields: first, ..get("/a") }, &response(&fields, "a"));
        let asked = BodylessRequest { fields: second, ..get("/a") };
        let got = if expected == "hit" {
            talk.client.asks_for(&asked)
        } else {
            talk.asks(&asked, &response(&fields, "b"))
        };
        let told = status(&got);
        assert!(told.starts_with(&format!("vanward; {expected}")), "{route} {vary} {first}: {told}");
    }
}

#[test]
fn rfc9111_4_1_a_rare_coding_is_for_the_client_that_named_it() {
    let scene = Scene::new(ONE_ROUTE);
    let mut talk = Talk::new(&scene);
    let fields = |coding| format!("{FRESH}Vary: Accept-Encoding\r\nContent-Encoding: {coding}\r\n");
    for (accepted, coding) in [("accept-encoding: gzip, compress\n", "compress"), ("", "gzip")] {
        let got =
            talk.asks(&BodylessRequest { fields: accepted, ..get("/a") }, &response(&fields(coding), "rare"));
        assert_eq!(status(&got), "vanward; fwd=uri-miss; detail=coding");
    }
    // A common response is stored for others at once.
    let asked = BodylessRequest { fields: "accept-encoding: gzip\n", ..get("/a") };
    let got = talk.asks(&asked, &response(&fields("gzip"), "common"));
    assert!(status(&got).starts_with("vanward; fwd=uri-miss; stored"), "{}", status(&got));
    assert_eq!(talk.client.asks_for(&asked).body, "common");
}

#[test]
fn who_reads_slowly_what_is_too_large_to_be_kept_gets_all_of_it() {
    // Of unknown length, and six times the object limit: more than the connections buffer.
    const CHUNKS: usize = 96;
    for spoken in BOTH {
        let scene = Scene::new(ONE_ROUTE);
        let mut client = scene.client(spoken).asking(&get("/a"));
        let mut server = scene.accept(0).after_head();
        let sending = thread::spawn(move || {
            server.sends(format!("HTTP/1.1 200 OK\r\n{FRESH}Transfer-Encoding: chunked\r\n\r\n"));
            for number in 0..CHUNKS {
                let letter = char::from(b'a' + (number % 26) as u8);
                server.sends(format!("10000\r\n{}\r\n", letter.to_string().repeat(1 << 16)));
            }
            server.sends("0\r\n\r\n");
        });
        if let SceneClient::One(_) = &client {
            // Whatever the proxy does with it meanwhile.
            assert_soon("the response does not arrive", || {
                scene.running().counters().upstream_bytes_received >= (1 << 20)
            });
        }
        let got = client.gets();
        sending.join().expect("all is taken");
        assert_eq!((got.status, got.body.len()), (200, CHUNKS << 16), "{spoken:?}");
        for (number, chunk) in got.body.as_bytes().chunks(1 << 16).enumerate() {
            assert!(chunk.iter().all(|&byte| byte == b'a' + (number % 26) as u8));
        }
    }
}

#[test]
fn the_rate_of_a_route_is_that_of_stored_bodies_too() {
    for spoken in BOTH {
        // A new scene, because a late timer would leave allowance for the second response.
        let scene = Scene::new(&ONE_ROUTE.replace("cache = {}", "cache = {}\nrate = \"20KB/s\""));
        let began = Instant::now();
        scene.exchange(spoken, &get("/a"), &response(FRESH, &"x".repeat(4000)));
        let stored = Instant::now();
        assert_eq!(scene.answer(spoken, &get("/a")).body.len(), 4000);
        assert!(stored.duration_since(began) >= Duration::from_millis(198), "as it came");
        // A late timer leaves the second response at most 32 ms.
        assert!(stored.elapsed() >= Duration::from_millis(167), "from the store");
    }
}

#[test]
fn what_the_cache_receives_is_counted() {
    for len in [1000, 100_000] {
        let scene = Scene::new(ONE_ROUTE);
        let answer = response(FRESH, &"x".repeat(len));
        scene.exchange(Spoken::Http1, &get("/a"), &answer);
        scene.answer(Spoken::Http2, &get("/a"));
        let counters = scene.running().counters();
        assert_eq!(counters.upstream_bytes_received, answer.len() as u64);
        assert_eq!((counters.cache_hits, counters.cache_misses), (1, 1));
    }
}
