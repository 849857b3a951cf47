//! Responses that their server has withdrawn are no longer served, neither while stale nor when the server fails later.

use testkit::http1::Http1Peer;
use testkit::scene::{BOTH, BodylessRequest, Got, Scene, Spoken, get};
use testkit::wait;

use super::answered::{ONE_ROUTE, response};
use super::purged;

/// Responses that withdraw the stored one, with their status.
const ANSWERS: [(&str, u16); 10] = [
    ("410 Gone\r\nCache-Control: no-store", 410),
    ("404 Not Found", 404),
    ("301 Moved Permanently\r\nLocation: /b", 301),
    ("302 Found\r\nLocation: /login", 302),
    ("401 Unauthorized\r\nWWW-Authenticate: Basic", 401),
    ("403 Forbidden", 403),
    ("200 OK\r\nCache-Control: private", 200),
    ("200 OK\r\nCache-Control: no-store", 200),
    ("200 OK\r\nCache-Control: max-age=60\r\nSet-Cookie: a=b", 200),
    ("200 OK\r\nCache-Control: max-age=60\r\nVary: *", 200),
];

/// Two seconds old when it arrives, and fresh for one.
fn stale(more: &str) -> String {
    format!("Age: 2\r\nCache-Control: max-age=1{more}\r\nConnection: close\r\n")
}

fn answer(line_and_fields: &str) -> String {
    format!("HTTP/1.1 {line_and_fields}\r\nContent-Length: 3\r\nConnection: close\r\n\r\nnew")
}

/// Answers the next request for the server, on a new connection. Returns its head.
fn serve(scene: &Scene, said: impl AsRef<[u8]>) -> String {
    let mut server: Http1Peer = scene.accept(0);
    let head = server.head();
    server.sends(said);
    head
}

/// Sends a request, and the server's answer.
fn ask(scene: &Scene, request: &BodylessRequest<'_>, said: &str) -> Got {
    let mut client = scene.client(Spoken::Http1).asking(request);
    serve(scene, said);
    if request.method == "HEAD" { client.gets_head_alone() } else { client.gets() }
}

fn store(scene: &Scene, request: &BodylessRequest<'_>, fields: &str) {
    assert_eq!(ask(scene, request, &response(fields, "old")).body, "old");
    wait::assert_soon("it is stored", || is_kept(scene, request));
}

/// Whether a stored response may be used, however stale.
fn is_kept(scene: &Scene, request: &BodylessRequest<'_>) -> bool {
    let fields = format!("{}cache-control: only-if-cached, max-stale\n", request.fields);
    scene.answer(Spoken::Http1, &BodylessRequest { fields: &fields, ..*request }).status != 504
}

/// Asserts that no stored response replaces the error of a failed server.
#[track_caller]
fn assert_is_withdrawn(scene: &Scene, request: &BodylessRequest<'_>, why: &str) {
    for fields in ["", "cache-control: max-stale\n"] {
        let fields = format!("{}{fields}", request.fields);
        let down = answer("503 Service Unavailable");
        let got = ask(scene, &BodylessRequest { fields: &fields, ..*request }, &down);
        assert_eq!((got.status, got.body.as_str()), (503, "new"), "{why}");
    }
}

#[test]
fn rfc9111_4_3_3_whatever_else_than_a_304_answers_a_validation_removes_what_is_stored() {
    let grace = ONE_ROUTE.replace("cache = {}", "cache = { grace = \"60s\" }");
    for (said, status) in ANSWERS {
        for (routes, more) in [(ONE_ROUTE, ", stale-if-error=60\r\nETag: \"a\""), (&grace, "")] {
            let scene = Scene::new(routes);
            store(&scene, &get("/a"), &stale(more));
            assert_eq!(ask(&scene, &get("/a"), &answer(said)).status, status, "{said}");
            assert_is_withdrawn(&scene, &get("/a"), said);
        }
    }
}

#[test]
fn rfc9111_4_3_3_so_it_is_in_the_background() {
    let option = ONE_ROUTE.replace("cache = {}", "cache = { stale_while_revalidate = \"60s\" }");
    for (said, _) in ANSWERS {
        for (routes, more) in
            [(ONE_ROUTE, ", stale-while-revalidate=60, stale-if-error=60"), (&option, "\r\nETag: \"a\"")]
        {
            let scene = Scene::new(routes);
            store(&scene, &get("/a"), &stale(more));
            assert_eq!(scene.answer(Spoken::Http1, &get("/a")).body, "old");
            serve(&scene, answer(said));
            wait::assert_soon(said, || !is_kept(&scene, &get("/a")));
            assert_is_withdrawn(&scene, &get("/a"), said);
        }
    }
}

#[test]
fn so_it_is_after_a_soft_purge() {
    let scene = purged::scene("", "stale_while_revalidate = \"60s\", grace = \"60s\"");
    let fresh = "Cache-Control: max-age=60, stale-if-error=60\r\nConnection: close\r\n";
    store(&scene, &get("/a"), fresh);
    assert_eq!(purged::order(&scene, "/cache/purge", r#"{"all":true,"soft":true}"#).0, 200);
    assert_eq!(scene.answer(Spoken::Http2, &get("/a")).body, "old");
    serve(&scene, answer("404 Not Found"));
    wait::assert_soon("it is withdrawn", || !is_kept(&scene, &get("/a")));
    assert_is_withdrawn(&scene, &get("/a"), "after a soft purge");
}

#[test]
fn a_server_that_fails_or_breaks_off_withdraws_nothing() {
    for said in [
        answer("500 Internal Server Error"),
        answer("501 Not Implemented"),
        answer("503 Service Unavailable"),
        response("Cache-Control: max-age=60\r\nContent-Length: 10\r\n", "")
            .replace("Content-Length: 0\r\n", ""),
    ] {
        let scene = Scene::new(ONE_ROUTE);
        store(&scene, &get("/a"), &stale(", stale-while-revalidate=60, stale-if-error=60"));
        assert_eq!(scene.answer(Spoken::Http1, &get("/a")).body, "old");
        serve(&scene, &said);
        wait::assert_soon("it is validated again", || {
            assert_eq!(scene.answer(Spoken::Http1, &get("/a")).body, "old", "{said}");
            scene.try_accept(0).is_some()
        });
    }
}

#[test]
fn a_variant_is_withdrawn_alone_and_others_are_validated_all_the_same() {
    let scene = Scene::new(ONE_ROUTE);
    let of = |fields| BodylessRequest { fields, ..get("/a") };
    let [nl, fr] = [of("accept-language: nl\n"), of("accept-language: fr\n")];
    let fields = stale(", stale-if-error=60\r\nVary: Accept-Language\r\nETag: \"a\"");
    store(&scene, &nl, &fields);
    store(&scene, &fr, &fields.replace("=60", "=60, stale-while-revalidate=60"));
    assert_eq!(ask(&scene, &nl, &answer("410 Gone\r\nCache-Control: no-store")).status, 410);
    assert!(!is_kept(&scene, &nl));
    // The last response for this key could not be stored, but the stored one is revalidated nevertheless.
    assert_eq!(scene.answer(Spoken::Http1, &fr).body, "old");
    serve(&scene, answer("410 Gone\r\nCache-Control: no-store"));
    wait::assert_soon("it is withdrawn", || !is_kept(&scene, &fr));
    assert_is_withdrawn(&scene, &fr, "the other variant");
    assert_is_withdrawn(&scene, &nl, "the first variant");
}

/// A response with another Vary is another variant, so the old one would remain beside it.
#[test]
fn a_response_that_varies_otherwise_takes_the_place_of_what_it_was_asked_for() {
    for spoken in BOTH {
        let scene = Scene::new(ONE_ROUTE);
        store(&scene, &get("/a"), &stale(", stale-if-error=60"));
        let said = response("Cache-Control: max-age=60\r\nVary: X-Kind\r\nConnection: close\r\n", "new");
        let kind = BodylessRequest { fields: "x-kind: a\n", ..get("/a") };
        assert_eq!(ask(&scene, &kind, &said).body, "new");
        wait::assert_soon("the old one is gone", || !is_kept(&scene, &get("/a")));
        assert_eq!(scene.answer(spoken, &kind).body, "new");
        assert_is_withdrawn(&scene, &get("/a"), "another Vary");
    }
}

#[test]
fn ranges_and_parts_are_withdrawn_too() {
    let range = BodylessRequest { fields: "range: bytes=1-2\n", ..get("/a") };
    for (said, status) in ANSWERS {
        // Without a validator, the range is forwarded unchanged.
        let scene = Scene::new(ONE_ROUTE);
        store(&scene, &get("/a"), &stale(", stale-if-error=60"));
        assert_eq!(ask(&scene, &range, &answer(said)).status, status, "{said}");
        assert_is_withdrawn(&scene, &get("/a"), said);

        let scene = Scene::new(ONE_ROUTE);
        let part = "HTTP/1.1 206 Partial Content\r\nContent-Length: 2\r\nContent-Range: bytes 1-2/9\r\nETag: \"a\"\r\n\
            Cache-Control: max-age=60\r\nConnection: close\r\n\r\nld";
        assert_eq!(ask(&scene, &range, part).status, 206);
        wait::assert_soon("the part is stored", || is_kept(&scene, &range));
        assert_eq!(ask(&scene, &get("/a"), &answer(said)).status, status, "{said}");
        assert!(!is_kept(&scene, &range), "{said}");
    }
    let private = "HTTP/1.1 206 Partial Content\r\nContent-Length: 1\r\nContent-Range: bytes 1-1/3\r\n\
        Cache-Control: private\r\nConnection: close\r\n\r\nl";
    let scene = Scene::new(ONE_ROUTE);
    store(&scene, &get("/a"), &stale(", stale-if-error=60"));
    assert_eq!(ask(&scene, &range, private).status, 206);
    assert_is_withdrawn(&scene, &get("/a"), "a private part");
}

#[test]
fn what_is_about_the_request_alone_withdraws_nothing() {
    let of = |fields| BodylessRequest { fields, ..get("/a") };
    let head = BodylessRequest { method: "HEAD", ..get("/a") };
    let no_content =
        |line: &str| format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    for (request, line, is_withdrawn) in [
        (of("cache-control: no-store\n"), "404 Not Found", false),
        (of("if-match: \"b\"\n"), "412 Precondition Failed", false),
        (of("if-match: \"b\"\n"), "404 Not Found", true),
        (of("range: bytes=90-\n"), "416 Range Not Satisfiable", false),
        (BodylessRequest { fields: "", ..head }, "405 Method Not Allowed", false),
        (BodylessRequest { fields: "", ..head }, "404 Not Found", true),
        (BodylessRequest { fields: "", ..head }, "200 OK\r\nCache-Control: private", true),
    ] {
        let scene = Scene::new(ONE_ROUTE);
        store(&scene, &get("/a"), &stale(", stale-if-error=60"));
        ask(&scene, &request, &no_content(line));
        let got = ask(&scene, &get("/a"), &answer("503 Service Unavailable"));
        assert_eq!(got.status == 503, is_withdrawn, "{} {line}", request.fields);
    }
}
