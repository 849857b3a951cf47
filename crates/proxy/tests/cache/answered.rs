//! Which requests are answered from the store.

use testkit::http1::Http1Peer;
use testkit::scene::{BOTH, BodylessRequest, Got, Scene, SceneClient, Spoken, get};
use testkit::wait::Patience;

pub(crate) const ONE_ROUTE: &str = r#"
[cache]
memory = "64MiB"
object = "1MiB"

[[route]]
upstream = "app"
cache = {}

[upstream.app]
servers = ["http://{0}"]
"#;

pub(crate) fn response(fields: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len())
}

/// Returns the connection with the next request for the server: the free one, or another worker's.
pub(crate) fn next<'p>(
    scene: &Scene,
    free: &'p mut Http1Peer,
    other: &'p mut Option<Http1Peer>,
) -> &'p mut Http1Peer {
    let patience = Patience::new();
    loop {
        if free.has_something() {
            return free;
        }
        if let Some(peer) = scene.try_accept(0) {
            return other.insert(peer);
        }
        patience.wait("no server is asked");
    }
}

#[test]
fn what_is_fresh_is_answered_without_the_server() {
    for first in BOTH {
        for second in BOTH {
            for len in [0, 2, 5_000, 300_000] {
                let scene = Scene::new(ONE_ROUTE);
                let body = "x".repeat(len);
                let fields = "Cache-Control: max-age=60\r\nX-Kept: yes\r\n";
                let (_, came) = scene.exchange(first, &get("/a"), &response(fields, &body));
                assert_eq!((came.status, &came.body), (200, &body), "{first:?} {len}");
                let stored = scene.answer(second, &get("/a"));
                assert_eq!((stored.status, &stored.body), (200, &body), "{second:?} {len}");
                assert_eq!(stored.field("x-kept"), Some("yes"));
                let age: u64 = stored.field("age").and_then(|age| age.parse().ok()).expect("a number");
                assert!(age < 60, "a busy machine may take a while: {age}");
                assert!(stored.field("date").is_some() && stored.all("content-length").len() == 1);
                assert!(
                    stored.field("cache-status").is_some_and(|status| status.starts_with("vanward; hit"))
                );
                assert!(scene.try_accept(0).is_none());
            }
        }
    }
}

/// RFC 9112 §9.6: pipelined requests after the last one do not cost the client its response.
#[test]
fn what_is_stored_reaches_a_client_that_has_sent_more_than_is_read() {
    for len in [2, 300_000] {
        let scene = Scene::new(ONE_ROUTE);
        let body = "x".repeat(len);
        scene.exchange(Spoken::Http1, &get("/a"), &response("Cache-Control: max-age=60\r\n", &body));
        let SceneClient::One(mut client) = scene.client(Spoken::Http1) else {
            unreachable!("it speaks HTTP/1")
        };
        let BodylessRequest { host, .. } = get("/a");
        let last = format!("GET /a HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        client.sends([last, "\r\n".repeat(100_000)].concat());
        assert_eq!(client.message().body, body.as_bytes());
        client.gets_the_end();
    }
}

#[test]
fn a_body_of_unknown_length_is_stored_whole() {
    for spoken in BOTH {
        for response in [
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
        ] {
            let scene = Scene::new(ONE_ROUTE);
            let (_, came) = scene.exchange(spoken, &get("/a"), response);
            assert_eq!(came.body, "abcde");
            let stored = scene.answer(spoken, &get("/a"));
            assert_eq!((stored.field("content-length"), stored.body.as_str()), (Some("5"), "abcde"));
        }
    }
}

#[test]
fn head_is_answered_from_a_stored_get() {
    let scene = Scene::new(ONE_ROUTE);
    scene.exchange(Spoken::Http1, &get("/a"), &response("Cache-Control: max-age=60\r\n", "hello"));
    let mut client = scene.client(Spoken::Http2);
    let got = client.asks_for(&BodylessRequest { method: "HEAD", ..get("/a") });
    assert_eq!((got.status, got.field("content-length"), got.body.as_str()), (200, Some("5"), ""));
}

#[test]
fn rfc9111_5_2_2_4_fields_that_are_named_go_to_the_client_that_brought_them_alone() {
    for spoken in BOTH {
        let scene = Scene::new(ONE_ROUTE);
        let fields = "Cache-Control: max-age=60, no-cache=\"set-cookie\", private=\"x-mine\"\r\n\
                      Set-Cookie: a=1\r\nX-Mine: yes\r\nX-All: yes\r\n";
        let (_, came) = scene.exchange(spoken, &get("/a"), &response(fields, "hello"));
        let of = |got: &Got| ["set-cookie", "x-mine", "x-all"].map(|name| got.all(name).len());
        assert_eq!((of(&came), came.body.as_str()), ([1, 1, 1], "hello"));
        let stored = scene.answer(spoken, &get("/a"));
        assert_eq!((of(&stored), stored.body.as_str()), ([0, 0, 1], "hello"));
    }
}

#[test]
fn what_may_not_be_stored_is_asked_for_each_time() {
    for fields in [
        "Cache-Control: no-store\r\n",
        "Cache-Control: private\r\n",
        "Cache-Control: max-age=60\r\nVary: *\r\n",
        "Cache-Control: max-age=60\r\nSet-Cookie: id=1\r\n",
    ] {
        let scene = Scene::new(ONE_ROUTE);
        let mut client = scene.client(Spoken::Http1).asking(&get("/a"));
        let mut server = scene.accept(0);
        for _ in 0..2 {
            server.head();
            server.sends(response(fields, "ok"));
            assert_eq!(client.gets().body, "ok", "{fields}");
            client.asks(&get("/a"));
        }
        server.head();
    }
}

#[test]
fn an_unsafe_request_that_succeeds_makes_what_is_stored_invalid() {
    for (status, is_gone) in [("200 OK", true), ("500 Internal Server Error", false)] {
        let scene = Scene::new(ONE_ROUTE);
        let mut client = scene.client(Spoken::Http1).asking(&get("/a"));
        let mut server = scene.accept(0).after_head();
        server.sends(response("Cache-Control: max-age=60\r\n", "old"));
        assert_eq!(client.gets().body, "old");
        client.asks(&BodylessRequest { method: "DELETE", ..get("/a") });
        server.head();
        server.sends(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"));
        client.gets();
        client.asks(&get("/a"));
        if is_gone {
            server.head();
            server.sends(response("Cache-Control: max-age=60\r\n", "new"));
        }
        assert_eq!(client.gets().body, if is_gone { "new" } else { "old" });
    }
}

#[test]
fn variants_are_told_apart_by_vary() {
    let scene = Scene::new(ONE_ROUTE);
    let mut client = scene.client(Spoken::Http1);
    let of = |fields| BodylessRequest { fields, ..get("/a") };
    let fields = "Cache-Control: max-age=60\r\nVary: X-Kind\r\n";
    client.asks(&of("x-kind: a\n"));
    let mut server = scene.accept(0).after_head();
    server.sends(response(fields, "a"));
    assert_eq!(client.gets().body, "a");
    client.asks(&of("x-kind: b\n"));
    server.head();
    server.sends(response(fields, "b"));
    assert_eq!(client.gets().body, "b");
    for (kind, body) in [("x-kind: a\n", "a"), ("x-kind: b\n", "b")] {
        assert_eq!(client.asks_for(&of(kind)).body, body);
    }
}

/// RFC 9111 §4.1: where an edit of a field has a condition, the client's field does not say what the server has seen.
#[test]
fn what_varies_by_a_field_with_conditional_edits_is_not_stored() {
    const WHEN: &str = "when = 'request.query[\"edit\"] == \"1\"'";
    for (edits, is_stored) in [
        (format!("{{ {WHEN}, set = {{ X-Kind = \"fixed\" }} }}"), false),
        (format!("{{ {WHEN}, default = {{ x-kind = \"fixed\" }} }}"), false),
        (format!("{{ {WHEN}, remove = \"X-Kind\" }}"), false),
        (format!("[{{ set = {{ X-Kind = \"a\" }} }}, {{ {WHEN}, set = {{ X-Kind = \"b\" }} }}]"), false),
        ("{ set = { X-Kind = \"fixed\" } }".to_owned(), true),
        (format!("{{ {WHEN}, set = {{ X-Other = \"fixed\" }} }}"), true),
    ] {
        let routes = ONE_ROUTE.replace("cache = {}", &format!("cache = {{}}\nrequest_headers = {edits}"));
        for spoken in BOTH {
            let scene = Scene::new(&routes);
            let asked = BodylessRequest { fields: "x-kind: a\n", ..get("/a") };
            let answer = |body: &str| response("Cache-Control: max-age=60\r\nVary: X-Kind\r\n", body);
            let mut client = scene.client(spoken).asking(&asked);
            let mut server = scene.accept(0).after_head();
            server.sends(answer("first"));
            assert_eq!(client.gets().body, "first");
            client.asks(&asked);
            if !is_stored {
                server.head();
                server.sends(answer("second"));
            }
            let expected = if is_stored { "first" } else { "second" };
            assert_eq!(client.gets().body, expected, "{spoken:?} {edits}");
        }
    }
}

#[test]
fn only_if_cached_never_asks_the_server() {
    let scene = Scene::new(ONE_ROUTE);
    let got = scene
        .answer(Spoken::Http1, &BodylessRequest { fields: "cache-control: only-if-cached\n", ..get("/a") });
    assert_eq!(got.status, 504);
    assert!(scene.try_accept(0).is_none());
}

#[test]
fn what_a_route_does_with_responses_is_done_with_stored_ones() {
    let routes = ONE_ROUTE.replace(
        "cache = {}",
        "cache = {}\nresponse_headers = { set = { X-Host = \"$host\" }, remove = \"X-Kept\" }",
    );
    for spoken in BOTH {
        let scene = Scene::new(&routes);
        scene.exchange(spoken, &get("/a"), &response("Cache-Control: max-age=60\r\nX-Kept: yes\r\n", "ok"));
        let got = scene.answer(spoken, &get("/a"));
        assert_eq!((got.field("x-host"), got.field("x-kept"), got.body.as_str()), (Some("test"), None, "ok"));
        assert!(got.field("age").is_some());
    }
}

/// The body is the same buffer each time, with the head of each request before it.
#[test]
fn a_long_body_leaves_with_the_head_of_each_request() {
    let scene = Scene::new(ONE_ROUTE);
    let body: String = (0..60_000).map(|number| format!("{number} ")).collect();
    let came = scene.exchange(Spoken::Http1, &get("/a"), &response("Cache-Control: max-age=60\r\n", &body)).1;
    assert_eq!(came.body, body);
    let mut client = scene.client(Spoken::Http1);
    for number in 0..12 {
        let kept = client.asks_for(&get("/a"));
        assert_eq!((kept.status, kept.field("connection")), (200, None), "{number}");
        assert!(kept.body == body, "{number}");
        if number % 3 > 0 {
            let closed =
                scene.answer(Spoken::Http1, &BodylessRequest { fields: "connection: close\n", ..get("/a") });
            assert_eq!((closed.status, closed.field("connection")), (200, Some("close")), "{number}");
            assert!(closed.body == body, "{number}");
        }
    }
}
