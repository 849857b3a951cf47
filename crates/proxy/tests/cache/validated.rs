//! Preconditions of clients, answered from the store, and those that the store sends to the server.

use testkit::scene::{BOTH, BodylessRequest, Scene, SceneClient, Spoken, get};

use super::answered::{ONE_ROUTE, response};
use super::purged;

const MODIFIED: &str = "Tue, 01 Oct 2024 10:00:00 GMT";
const EARLIER: &str = "Tue, 01 Oct 2024 09:59:59 GMT";
const LATER: &str = "Tue, 01 Oct 2024 10:00:01 GMT";

/// Stale immediately, but it can be revalidated.
const STALE: &str = "Cache-Control: max-age=0\r\nETag: \"a\"\r\nContent-Type: text/plain\r\n";

fn of<'a>(target: &'a str, fields: &'a str) -> BodylessRequest<'a> {
    BodylessRequest { fields, ..get(target) }
}

/// Returns a header field that the server has received.
fn seen<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let pairs = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    pairs.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

#[test]
fn rfc9110_13_preconditions_are_judged_against_what_is_stored() {
    let with_etag = format!("Cache-Control: max-age=60\r\nETag: \"a\"\r\nLast-Modified: {MODIFIED}\r\n");
    let weak = with_etag.replace("\"a\"", "W/\"a\"");
    let dated = format!("Cache-Control: max-age=60\r\nLast-Modified: {MODIFIED}\r\n");
    let since = |date: &str| format!("if-modified-since: {date}\n");
    let rows = [
        (&with_etag, "if-none-match: \"a\"\n".to_owned(), 304),
        (&with_etag, "if-none-match: W/\"a\"\n".to_owned(), 304),
        (&with_etag, "if-none-match: \"x\", \"a\"\n".to_owned(), 304),
        (&with_etag, "if-none-match: *\n".to_owned(), 304),
        (&with_etag, "if-none-match: \"b\"\n".to_owned(), 200),
        (&with_etag, format!("if-none-match: \"b\"\n{}", since(MODIFIED)), 200),
        (&weak, "if-none-match: \"a\"\n".to_owned(), 304),
        (&dated, since(MODIFIED), 304),
        (&dated, since(LATER), 304),
        (&dated, since(EARLIER), 200),
        (&dated, since("yesterday"), 200),
    ];
    for (stored, condition, expected) in rows {
        for spoken in BOTH {
            let scene = Scene::new(ONE_ROUTE);
            let fields = format!("{stored}Content-Type: text/plain\r\nExpires: {LATER}\r\n");
            scene.exchange(spoken, &get("/a"), &response(&fields, "hello"));
            let got = scene.answer(spoken, &of("/a", &condition));
            assert_eq!(got.status, expected, "{stored} {condition}");
            assert_eq!(got.body, if expected == 304 { "" } else { "hello" });
            // RFC 9110 §15.4.5.
            assert!(got.field("cache-control").is_some() && got.field("date").is_some());
            assert!(got.field("expires").is_some() && got.field("last-modified").is_some());
            assert_eq!(got.field("content-type").is_some(), expected == 200);
            assert_eq!(got.field("content-length"), (expected == 200).then_some("5"));
            assert!(scene.try_accept(0).is_none());
        }
    }
}

#[test]
fn a_condition_on_what_is_not_stored_asks_for_all_and_is_judged_then() {
    for spoken in BOTH {
        for (condition, expected) in [("if-none-match: \"a\"\n", 304), ("if-none-match: \"b\"\n", 200)] {
            let scene = Scene::new(ONE_ROUTE);
            let fields = "Cache-Control: max-age=60\r\nETag: \"a\"\r\n";
            let (head, got) = scene.exchange(spoken, &of("/a", condition), &response(fields, "hello"));
            assert_eq!((seen(&head, "if-none-match"), got.status), (None, expected));
            assert_eq!(scene.answer(spoken, &get("/a")).body, "hello");
        }
    }
}

#[test]
fn who_wants_a_certain_state_asks_the_server_if_that_is_not_stored() {
    let scene = Scene::new(ONE_ROUTE);
    let fields = "Cache-Control: max-age=60\r\nETag: \"a\"\r\n";
    let mut client = scene.client(Spoken::Http1).asking(&get("/a"));
    let mut server = scene.accept(0).after_head();
    server.sends(response(fields, "hello"));
    client.gets();
    assert_eq!(client.asks_for(&of("/a", "if-match: \"a\"\n")).status, 200);
    client.asks(&of("/a", "if-match: \"b\"\n"));
    assert_eq!(seen(&server.head(), "if-match"), Some("\"b\""));
    server.sends("HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n");
    let got = client.gets();
    assert_eq!((got.status, got.field("cache-status")), (412, Some("vanward; fwd=request")));
}

#[test]
fn rfc9111_4_3_4_a_304_refreshes_what_is_stored() {
    for spoken in BOTH {
        let scene = Scene::new(ONE_ROUTE);
        let mut client = scene.client(spoken).asking(&get("/a"));
        let mut server = scene.accept(0).after_head();
        server.sends(response(&format!("{STALE}X-Old: 1\r\nX-Both: old\r\n"), "hello"));
        assert_eq!(client.gets().body, "hello");
        // The client's own preconditions are not forwarded.
        client.asks(&of("/a", "if-none-match: \"mine\"\nif-modified-since: yesterday\nrange: bytes=1-2\n"));
        let head = server.head();
        assert_eq!((seen(&head, "if-none-match"), seen(&head, "range")), (Some("\"a\""), None));
        assert_eq!(seen(&head, "if-modified-since"), None);
        server.sends(
            "HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\nX-Both: new\r\n\r\n",
        );
        let got = client.gets();
        assert_eq!((got.status, got.body.as_str()), (206, "el"));
        assert_eq!((got.field("x-old"), got.field("x-both")), (Some("1"), Some("new")));
        assert_eq!(
            got.field("cache-status").map(|status| status.split("; ttl").next()),
            Some(Some("vanward; fwd=stale; fwd-status=304; stored"))
        );
        let got = client.asks_for(&get("/a"));
        assert_eq!((got.field("x-both"), got.body.as_str()), (Some("new"), "hello"));
        assert!(!server.has_something() && scene.try_accept(0).is_none());
    }
}

#[test]
fn a_304_for_the_client_too_is_one() {
    let scene = Scene::new(ONE_ROUTE);
    let mut client = scene.client(Spoken::Http1).asking(&get("/a"));
    let mut server = scene.accept(0).after_head();
    server.sends(response(STALE, "hello"));
    client.gets();
    client.asks(&of("/a", "if-none-match: \"a\"\n"));
    server.head();
    server.sends("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n");
    assert_eq!(client.gets().status, 304);
    // The connection is reused, and the new response replaces the stored one.
    client.asks(&of("/a", "if-none-match: \"a\"\n"));
    server.head();
    server.sends(response("Cache-Control: max-age=60\r\nETag: \"b\"\r\n", "other"));
    let got = client.gets();
    assert_eq!((got.status, got.body.as_str()), (200, "other"));
    assert_eq!(client.asks_for(&get("/a")).body, "other");
}

#[test]
fn only_the_variant_that_was_asked_about_is_refreshed() {
    let scene = Scene::new(ONE_ROUTE);
    let mut client = scene.client(Spoken::Http1);
    let mut server = None;
    for (kind, tag) in [("x-kind: a\n", "\"a\""), ("x-kind: b\n", "\"b\"")] {
        client.asks(&of("/a", kind));
        let server = server.get_or_insert_with(|| scene.accept(0));
        assert_eq!(seen(&server.head(), "if-none-match"), None);
        let fields = format!("Cache-Control: max-age=0\r\nVary: X-Kind\r\nETag: {tag}\r\nX-Age: old\r\n");
        server.sends(response(&fields, tag));
        assert_eq!(client.gets().body, tag);
    }
    let Some(mut server) = server else { return };
    client.asks(&of("/a", "x-kind: b\n"));
    assert_eq!(seen(&server.head(), "if-none-match"), Some("\"b\""));
    server
        .sends("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\nX-Age: new\r\nETag: \"b\"\r\n\r\n");
    assert_eq!(client.gets().field("x-age"), Some("new"));
    let got = client.asks_for(&of("/a", "x-kind: b\n"));
    assert_eq!((got.field("x-age"), got.body.as_str()), (Some("new"), "\"b\""));
    client.asks(&of("/a", "x-kind: a\n"));
    assert_eq!(seen(&server.head(), "if-none-match"), Some("\"a\""));
    server.sends("HTTP/1.1 304 Not Modified\r\n\r\n");
    let got = client.gets();
    assert_eq!((got.field("x-age"), got.body.as_str()), (Some("old"), "\"a\""));
}

#[test]
fn a_304_about_something_else_is_asked_again_without_conditions() {
    let scene = Scene::new(ONE_ROUTE);
    let mut client = scene.client(Spoken::Http1).asking(&get("/a"));
    let mut server = scene.accept(0).after_head();
    server.sends(response(STALE, "hello"));
    client.gets();
    client.asks(&get("/a"));
    assert_eq!(seen(&server.head(), "if-none-match"), Some("\"a\""));
    server.sends("HTTP/1.1 304 Not Modified\r\nETag: \"other\"\r\n\r\n");
    assert_eq!(seen(&server.head(), "if-none-match"), None);
    server.sends(response("Cache-Control: max-age=60\r\nETag: \"other\"\r\n", "other"));
    assert_eq!(client.gets().body, "other");
    assert_eq!(client.asks_for(&get("/a")).body, "other");
}

#[test]
fn a_304_that_forbids_storing_answers_once() {
    let scene = Scene::new(ONE_ROUTE);
    let mut client = scene.client(Spoken::Http1).asking(&get("/a"));
    let mut server = scene.accept(0).after_head();
    server.sends(response(STALE, "hello"));
    client.gets();
    client.asks(&get("/a"));
    server.head();
    server.sends("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nCache-Control: no-store\r\n\r\n");
    assert_eq!(client.gets().body, "hello");
    client.asks(&get("/a"));
    assert_eq!(seen(&server.head(), "if-none-match"), None);
    server.sends(response(STALE, "again"));
    assert_eq!(client.gets().body, "again");
}

#[test]
fn all_who_wait_are_answered_by_one_validation() {
    let scene = purged::scene("", "");
    // The server closes the connection, so the next request needs another one.
    let fields = "Cache-Control: max-age=60\r\nETag: \"a\"\r\nConnection: close\r\n";
    scene.exchange(Spoken::Http1, &get("/a"), &response(fields, "hello"));
    scene.answer(Spoken::Http1, &get("/a"));
    // A soft purge makes it stale, and the server may revalidate it for all.
    purged::order(&scene, "/cache/purge", r#"{"urls":["http://test/a"],"soft":true}"#);
    let ask = |number: usize| scene.client(BOTH[number % 2]).asking(&get("/a"));
    let mut clients: Vec<SceneClient> = (0..20).map(ask).collect();
    let mut server = scene.accept(0).after_head();
    server.sends("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\n\r\n");
    for client in &mut clients {
        assert_eq!(client.gets().body, "hello");
    }
    assert!(!server.has_something() && scene.try_accept(0).is_none());
}

#[test]
fn cookies_of_a_304_go_to_the_client_whose_request_it_answers_alone() {
    let session = "Set-Cookie: s=new\r\nSet-Cookie: t=1\r\n";
    for (route, fields, expected, later) in [
        ("cache = {}", "Cache-Control: max-age=60\r\n", &["s=new", "t=1"][..], &[][..]),
        // Declared public, it is stored.
        ("cache = {}", "Cache-Control: s-maxage=60\r\n", &["s=new", "t=1"], &["s=new", "t=1"]),
        ("cache = {}", "Cache-Control: max-age=60, no-cache=\"set-cookie\"\r\n", &["s=new", "t=1"], &[]),
        ("cache = { ignore = \"set-cookie\" }", "Cache-Control: max-age=60\r\n", &[], &[]),
    ] {
        for spoken in BOTH {
            let scene = Scene::new(&ONE_ROUTE.replace("cache = {}", route));
            scene.exchange(spoken, &get("/a"), &response(STALE, "hello"));
            let answer = format!("HTTP/1.1 304 Not Modified\r\n{fields}{session}\r\n");
            let (_, got) = scene.exchange(spoken, &get("/a"), &answer);
            assert_eq!((got.status, got.body.as_str()), (200, "hello"));
            assert_eq!(got.all("set-cookie"), expected, "{route} {fields}");
            assert_eq!(scene.answer(spoken, &get("/a")).all("set-cookie"), later, "{route} {fields}");
        }
    }
}

#[test]
fn rfc9111_4_3_5_a_head_refreshes_what_is_stored_or_makes_it_stale() {
    let agreeing = "ETag: \"a\"\r\nCache-Control: max-age=60\r\nX-Age: new\r\nContent-Length: 3\r\n";
    let rows = [
        (agreeing.to_owned(), true),
        (agreeing.replace("ETag: \"a\"\r\n", ""), true),
        (agreeing.replace("Content-Length: 3\r\n", ""), true),
        (agreeing.replace("\"a\"", "\"b\""), false),
        (agreeing.replace("Length: 3", "Length: 4"), false),
        (format!("{agreeing}Last-Modified: {MODIFIED}\r\n"), false),
    ];
    for (fields, agrees) in rows {
        let scene = Scene::new(ONE_ROUTE);
        let mut client = scene.client(Spoken::Http1).asking(&get("/a"));
        let mut server = scene.accept(0).after_head();
        server.sends(response("Cache-Control: max-age=60\r\nETag: \"a\"\r\nX-Age: old\r\n", "old"));
        assert_eq!(client.gets().body, "old");
        client.asks(&BodylessRequest { method: "HEAD", fields: "cache-control: no-cache\n", ..get("/a") });
        assert!(server.head().starts_with("HEAD /a "));
        server.sends(format!("HTTP/1.1 200 OK\r\n{fields}\r\n"));
        assert_eq!(client.gets_head_alone().field("x-age"), Some("new"), "{fields}");
        client.asks(&get("/a"));
        if !agrees {
            assert_eq!(seen(&server.head(), "if-none-match"), Some("\"a\""), "{fields}");
            server.sends(response("", "new"));
        }
        let got = client.gets();
        let expected = if agrees { ("old", Some("new")) } else { ("new", None) };
        assert_eq!((got.body.as_str(), got.field("x-age")), expected, "{fields}");
    }
}
