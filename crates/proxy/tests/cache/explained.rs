//! What `vanward cache explain` is told: what is stored, why not, and what to change.

use crate::answered::{ONE_ROUTE, response};
use crate::purged::{order, scene};
use crate::scene::{Asked, Scene, Spoken, get};

/// The answer about a URL, without white space.
fn explain(scene: &Scene, body: &str) -> String {
    let (status, told) = order(scene, "/cache/explain", body);
    assert_eq!(status, 200, "{body}: {told}");
    told.lines().map(str::trim).collect()
}

#[track_caller]
fn assert_has(told: &str, parts: &[&str]) {
    for part in parts {
        assert!(told.contains(part), "{part}\n{told}");
    }
}

const URL: &str = r#"{"url":"http://test/a"}"#;

#[test]
fn nothing_is_known_of_what_nobody_asked_for() {
    let scene = scene("", "");
    let told = explain(&scene, URL);
    assert_has(
        &told,
        &[r#""key": "http://test/a""#, r#""now": {"miss": "nothing of this URL"#, r#""stored": []"#],
    );
    assert_has(&told, &[r#""last_miss": null"#, r#""remedies": []"#]);
}

#[test]
fn why_a_response_was_not_stored_is_told_with_the_remedy() {
    for (fields, reason, remedy) in [
        ("Cache-Control: private\r\n", "private", "leave private out"),
        ("Cache-Control: no-store\r\n", "no-store", "leave no-store out"),
        ("", "no-freshness", "send Cache-Control: max-age"),
        ("Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n", "set-cookie", "send the cookie elsewhere"),
        ("Cache-Control: max-age=60\r\nVary: *\r\n", "vary-star", "name the request fields"),
    ] {
        let scene = scene("", "");
        scene.exchange(Spoken::Http1, &get("/a"), &response(fields, "ok"));
        let told = explain(&scene, URL);
        assert_has(&told, &[&format!(r#""reason": "{reason}""#), remedy, r#""forward": "uri-miss""#]);
        assert_has(&told, &[r#""status": 200"#, r#""is_stored": false"#, r#""stored": []"#]);
    }
}

#[test]
fn what_is_stored_is_told_variant_by_variant() {
    let scene = scene("", "");
    let of = |fields| Asked { fields, ..get("/a") };
    let fields = "Cache-Control: max-age=60\r\nVary: X-Kind\r\n";
    for kind in ["x-kind: a\n", "x-kind: b\n"] {
        scene.exchange(Spoken::Http1, &of(kind), &response(fields, "12345"));
    }
    let url = |kind: &str| format!(r#"{{"url":"test/a","headers":[["X-Kind","{kind}"]]}}"#);
    let told = explain(&scene, &url("b"));
    assert_has(&told, &[r#""now": "hit""#, r#""vary": "x-kind""#, r#""body_bytes": 5"#, "send an ETag"]);
    assert_eq!(told.matches(r#""is_asked_for": true"#).count(), 1, "{told}");
    assert_eq!(told.matches(r#""is_asked_for": false"#).count(), 1, "{told}");
    assert_has(&told, &[r#""forward": "vary-miss""#, r#""is_stored": true"#]);
    assert_has(&explain(&scene, &url("c")), &[r#""now": {"miss": "what is stored is for other values"#]);
}

#[test]
fn what_was_softly_purged_is_stale() {
    let scene = scene("", "");
    let fields = "Cache-Control: max-age=60\r\nETag: \"1\"\r\n";
    scene.exchange(Spoken::Http1, &get("/a"), &response(fields, "ok"));
    order(&scene, "/cache/purge", r#"{"urls":["http://test/a"],"soft":true}"#);
    let told = explain(&scene, URL);
    assert_has(&told, &[r#""is_purged_softly": true"#, r#""now": {"validated": "#, r#""etag": "\"1\"""#]);
}

#[test]
fn a_body_that_breaks_off_is_why() {
    let scene = scene("", "");
    let mut client = scene.client(Spoken::Http1);
    client.asks(&get("/a"));
    let mut server = scene.accept(0);
    server.head();
    server.sends("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 100000\r\n\r\nfirst");
    drop(server);
    let crate::scene::Client::One(mut peer) = client else { return };
    peer.rest();
    let told = explain(&scene, URL);
    assert_has(&told, &[r#""reason": "incomplete""#, "look at why the origin ends connections"]);
}

#[test]
fn what_is_no_request_or_not_stored_at_all_is_said() {
    let scene = Scene::new(&format!(
        "admin = \"{{dir}}/admin\"\n{}",
        ONE_ROUTE.replace(
            "cache = {}",
            "host = \"test\"\n[[route]]\npath = \"/x\"\nupstream = \"app\"\ncache = {}"
        )
    ));
    assert_has(&explain(&scene, URL), &[r#""now": "off""#, "give the route `cache = {}`"]);
    for (body, what) in [
        (r#"{"url":"http://other/a"}"#, "no route takes it"),
        (r#"{"url":"ftp://test/"}"#, "another scheme"),
        (r#"{"url":"http://test/a","headers":[["a b","c"]]}"#, "no valid request"),
        (r#"{"url":"http://test/a","headers":[["a","b\r\n\r\nc"]]}"#, "no valid request"),
        ("[]", "not understood"),
    ] {
        let (status, told) = order(&scene, "/cache/explain", body);
        assert!(status == 400 && told.contains(what), "{body}: {status} {told}");
    }
}
