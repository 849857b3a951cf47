//! Purged responses are not served by any worker, by any way of naming them; and responses fetched meanwhile are not
//! stored.

use testkit::admin;
use testkit::scene::{BOTH, BodylessRequest, Got, Scene, SceneClient, Spoken, get};
use testkit::wait::assert_soon;

use super::answered::{ONE_ROUTE, response};

const FRESH: &str = "Cache-Control: max-age=60\r\n";

/// A proxy with an admin socket, and more options of `[cache]` and of the route's cache.
pub(crate) fn scene(store: &str, route: &str) -> Scene {
    let text = ONE_ROUTE
        .replace("object = \"1MiB\"", &format!("object = \"1MiB\"\n{store}"))
        .replace("cache = {}", &format!("cache = {{ {route} }}"));
    Scene::new(&format!("admin = \"{{dir}}/admin\"\n{text}"))
}

/// Returns status and body of the admin API's answer.
pub(crate) fn order(scene: &Scene, place: &str, body: &str) -> (u16, String) {
    admin::asks(&scene.file("admin"), "POST", place, body)
}

fn purge(scene: &Scene, body: &str) -> String {
    let (status, told) = order(scene, "/cache/purge", body);
    assert_eq!(status, 200, "{body}: {told}");
    told.split_whitespace().collect()
}

fn from<'a>(host: &'a str, target: &'a str) -> BodylessRequest<'a> {
    BodylessRequest { host, ..get(target) }
}

fn store(scene: &Scene, request: &BodylessRequest<'_>, fields: &str) {
    let (_, got) = scene.exchange(Spoken::Http1, request, &response(&format!("{FRESH}{fields}"), "old"));
    assert_eq!(got.body, "old");
    // Its client may be done before the store is.
    assert_soon("it is not stored", || is_stored(scene, Spoken::Http1, request));
}

fn is_stored(scene: &Scene, spoken: Spoken, request: &BodylessRequest<'_>) -> bool {
    let fields = format!("{}cache-control: only-if-cached\n", request.fields);
    scene.answer(spoken, &BodylessRequest { fields: &fields, ..*request }).status == 200
}

/// Checks on enough connections to reach all workers.
fn is_stored_anywhere(scene: &Scene, request: &BodylessRequest<'_>) -> bool {
    (0..8).any(|number| is_stored(scene, BOTH[number % 2], request))
}

const STORED: [(&str, &str, &str); 4] = [
    ("test", "/img/a", "Surrogate-Key: news sport\r\n"),
    ("test", "/img/b?x=1", "Cache-Tag: sport, front page\r\n"),
    ("test", "/c", ""),
    ("other.test:8080", "/img/a", "Surrogate-Key: sale,news, shop\r\n"),
];

#[test]
fn whatever_is_named_is_gone_for_all_workers_at_once() {
    for (body, told, gone) in [
        (r#"{"urls":["http://test/img/a"]}"#, 1, [true, false, false, false]),
        (r#"{"urls":["TEST:80/img/b?x=1","test/none"]}"#, 1, [false, true, false, false]),
        (r#"{"urls":["https://test/c"]}"#, 0, [false; 4]),
        (r#"{"tags":["news"]}"#, 2, [true, false, false, true]),
        (r#"{"tags":["front page"]}"#, 1, [false, true, false, false]),
        (r#"{"tags":["sale"]}"#, 1, [false, false, false, true]),
        (r#"{"tags":["shop"],"soft":true}"#, 1, [false, false, false, true]),
        (r#"{"prefixes":["http://test/img/"]}"#, 2, [true, true, false, false]),
        (r#"{"hosts":["other.test"]}"#, 1, [false, false, false, true]),
        (r#"{"hosts":["Test"],"soft":true}"#, 3, [true, true, true, false]),
        (r#"{"all":true}"#, 4, [true; 4]),
        (r#"{"urls":["test/img/*"]}"#, 2, [true, true, false, false]),
        (r#"{"urls":["http://TEST:80/*b?x=*"]}"#, 1, [false, true, false, false]),
        (r#"{"urls":["https://test/*"]}"#, 0, [false; 4]),
        (r#"{"urls":["*:8080/img/a"],"soft":true}"#, 1, [false, false, false, true]),
        (r#"{"hosts":["*"]}"#, 4, [true; 4]),
        (r#"{"hosts":["*.Test"]}"#, 1, [false, false, false, true]),
        // Each counts once, however many names match it.
        (r#"{"tags":["news"],"urls":["test/img/*","test/c"]}"#, 4, [true; 4]),
        (r#"{"tags":["nwes","new*"]}"#, 0, [false; 4]),
    ] {
        let scene = scene("", "");
        for (host, target, fields) in STORED {
            store(&scene, &from(host, target), fields);
        }
        let answer = purge(&scene, body);
        assert!(answer.contains(&format!("\"responses\":{told},\"met\"")), "{body}: {answer}");
        for ((host, target, _), is_gone) in STORED.iter().zip(gone) {
            assert_eq!(is_stored_anywhere(&scene, &from(host, target)), !is_gone, "{body} {host}{target}");
        }
    }
}

#[test]
fn what_is_being_fetched_is_not_stored() {
    for body in [
        r#"{"urls":["http://test/a"]}"#,
        r#"{"tags":["news"]}"#,
        r#"{"prefixes":["test/"]}"#,
        r#"{"hosts":["test"],"soft":true}"#,
        r#"{"all":true}"#,
    ] {
        let scene = scene("", "");
        let mut first = scene.client(Spoken::Http1).asking(&get("/a"));
        let mut server = scene.accept(0).after_head();
        purge(&scene, body);
        // A new request does not wait for a fetch that began before the purge.
        let mut second = scene.client(Spoken::Http2).asking(&get("/a"));
        let mut other = scene.accept(0).after_head();
        let fields = format!("{FRESH}Surrogate-Key: news\r\n");
        server.sends(response(&fields, "old"));
        assert_eq!(first.gets().body, "old", "{body}");
        other.sends(response(&fields, "new"));
        assert_eq!(second.gets().body, "new", "{body}");
        assert_eq!(scene.answer(Spoken::Http1, &get("/a")).body, "new", "{body}");
    }
}

#[test]
fn a_url_is_purged_whatever_else_its_keys_have() {
    let scene = scene("", "key_headers = \"X-Kind\", key_cookies = \"lang\", query_drop = \"utm_*\"");
    let of = |fields| BodylessRequest { fields, ..get("/a?utm_source=x") };
    let kinds = ["", "x-kind: a\n", "x-kind: b\ncookie: lang=de\n"];
    for fields in kinds {
        store(&scene, &of(fields), "");
    }
    store(&scene, &get("/b"), "");
    purge(&scene, r#"{"urls":["http://test/a?utm_medium=y"]}"#);
    for fields in kinds {
        assert!(!is_stored_anywhere(&scene, &of(fields)), "{fields}");
    }
    assert!(is_stored_anywhere(&scene, &get("/b")));
}

#[test]
fn what_is_not_understood_purges_nothing() {
    let scene = scene("", "");
    store(&scene, &get("/a"), "");
    for (body, what) in [
        ("{}", "the purge names nothing"),
        ("", "the body is invalid"),
        (r#"{"urls":["http://test/a","ftp://test/a"]}"#, "unsupported scheme"),
        (r#"{"hosts":["test:80"]}"#, "without scheme, port and path"),
        (r#"{"url":"http://test/a"}"#, "unknown field"),
        (r#"{"urls":["/a*"]}"#, "no valid host"),
        (r#"{"prefixes":["test/a*"]}"#, "give it as a URL"),
        (r#"{"hosts":["*********************"]}"#, "too many stars"),
    ] {
        let (status, told) = order(&scene, "/cache/purge", body);
        assert!(status == 400 && told.contains(what), "{body}: {status} {told}");
    }
    assert!(is_stored(&scene, Spoken::Http1, &get("/a")));
}

fn asks_to_purge(scene: &Scene, spoken: Spoken, fields: &str) -> Got {
    scene.answer(spoken, &BodylessRequest { method: "PURGE", fields, ..get("/a") })
}

#[test]
fn the_method_purge_is_for_some_networks() {
    for spoken in BOTH {
        for (fields, gone) in [
            ("", [true, false]),
            ("surrogate-key: one two\n", [false, true]),
            ("cache-tag: one, two\n", [false, true]),
            ("fastly-soft-purge: 1\n", [true, false]),
        ] {
            let scene = scene("purge_from = [\"127.0.0.0/8\"]", "");
            store(&scene, &get("/a"), "");
            store(&scene, &get("/b"), "Cache-Tag: two\r\n");
            let got = asks_to_purge(&scene, spoken, fields);
            assert_eq!(
                (got.status, got.field("content-type")),
                (200, Some("application/json")),
                "{}",
                got.body
            );
            for (target, is_gone) in ["/a", "/b"].into_iter().zip(gone) {
                assert_eq!(is_stored_anywhere(&scene, &get(target)), !is_gone, "{fields} {target}");
            }
            assert!(scene.try_accept(0).is_none());
        }
        let scene = scene("purge_from = [\"192.0.2.0/24\"]", "");
        store(&scene, &get("/a"), "");
        assert_eq!(asks_to_purge(&scene, spoken, "").status, 403);
        assert!(is_stored(&scene, spoken, &get("/a")));
    }
}

#[test]
fn what_is_purged_already_is_not_counted_again_and_each_name_has_its_count() {
    let scene = scene("", "");
    for (host, target, fields) in STORED {
        store(&scene, &from(host, target), fields);
    }
    let told = purge(&scene, r#"{"tags":["sport"],"urls":["test/c*"],"soft":true}"#);
    let met = r#""named":2,"responses":3,"met":[{"what":"patterntest/c*","responses":1},{"what":"tagsport","responses":2}]"#;
    assert!(told.contains(met), "{told}");
    let told = purge(&scene, r#"{"urls":["test/*"],"soft":true}"#);
    assert!(told.contains(r#""responses":0,"#), "{told}");
    // Stale responses can still be purged.
    let told = purge(&scene, r#"{"urls":["test/*"]}"#);
    assert!(told.contains(r#""responses":3,"#), "{told}");
    let told = purge(&scene, r#"{"all":true}"#);
    assert!(told.contains(r#""responses":1,"#), "{told}");
}

#[test]
fn the_method_purge_takes_patterns() {
    for spoken in BOTH {
        let scene = scene("purge_from = [\"127.0.0.0/8\"]", "");
        for target in ["/a", "/a/b?c", "/b"] {
            store(&scene, &get(target), "");
        }
        for responses in [2, 0] {
            let got = scene.answer(spoken, &BodylessRequest { method: "PURGE", ..get("/a*") });
            assert!(
                got.status == 200 && got.body.contains(&format!("\"responses\":{responses},")),
                "{}",
                got.body
            );
        }
        assert!(!is_stored_anywhere(&scene, &get("/a/b?c")) && is_stored_anywhere(&scene, &get("/b")));
    }
}

#[test]
fn without_networks_purge_is_a_method_like_any() {
    let scene = scene("", "");
    let mut client = scene.client(Spoken::Http1).asking(&BodylessRequest { method: "PURGE", ..get("/a") });
    let mut server = scene.accept(0);
    assert!(server.head().starts_with("PURGE /a HTTP/1.1\r\n"));
    server.sends(response("", "ok"));
    assert_eq!(client.gets().body, "ok");
}

#[test]
fn tags_are_for_caches_unless_the_route_sends_them() {
    const TAGS: &str = "Surrogate-Key: a\r\nX-Kept: yes\r\nCache-Tag: b\r\n";
    let edits = "response_headers = { remove = \"X-Gone\" }";
    for (route, more, is_sent) in [
        ("", "", false),
        ("send_tags = true", "", true),
        ("", edits, false),
        ("send_tags = true", edits, true),
    ] {
        let text = ONE_ROUTE.replace("cache = {}", &format!("cache = {{ {route} }}\n{more}"));
        let scene = Scene::new(&text);
        for (target, control) in [("/a", FRESH), ("/b", "Cache-Control: no-store\r\n")] {
            let (_, got) =
                scene.exchange(Spoken::Http1, &get(target), &response(&format!("{control}{TAGS}"), "ok"));
            for name in ["surrogate-key", "cache-tag"] {
                assert_eq!(got.field(name).is_some(), is_sent, "{target} {name} {text}");
            }
            assert_eq!(got.field("x-kept"), Some("yes"));
        }
        let stored = scene.answer(Spoken::Http2, &get("/a"));
        assert_eq!((stored.field("x-kept"), stored.field("cache-tag").is_some()), (Some("yes"), is_sent));
    }
}

#[test]
fn targeted_fields_are_obeyed_and_sent_as_the_route_says() {
    const TARGETED: &str = "Cache-Control: private\r\nCDN-Cache-Control: no-store\r\nSurrogate-Control: max-age=60\r\nX-Kept: yes\r\n";
    for (route, is_hit, sent) in [
        ("", true, ["cdn-cache-control", ""]),
        ("send_targets = []", true, ["", ""]),
        ("send_targets = [\"Surrogate-Control\"]", true, ["", "surrogate-control"]),
        ("targets = []", false, ["cdn-cache-control", "surrogate-control"]),
        ("targets = [\"cdn-cache-control\"]", false, ["cdn-cache-control", "surrogate-control"]),
    ] {
        for edits in ["", "response_headers = { remove = \"X-Gone\" }"] {
            let scene =
                Scene::new(&ONE_ROUTE.replace("cache = {}", &format!("cache = {{ {route} }}\n{edits}")));
            let (_, first) = scene.exchange(Spoken::Http1, &get("/a"), &response(TARGETED, "ok"));
            assert_eq!(is_stored(&scene, Spoken::Http2, &get("/a")), is_hit, "{route}");
            let second = is_hit.then(|| scene.answer(Spoken::Http2, &get("/a")));
            for got in std::iter::once(first).chain(second) {
                for name in ["cdn-cache-control", "surrogate-control"] {
                    assert_eq!(got.field(name).is_some(), sent.contains(&name), "{route} {name}");
                }
                assert_eq!((got.field("x-kept"), got.field("cache-control")), (Some("yes"), Some("private")));
            }
        }
    }
}

#[test]
fn what_is_on_its_way_to_a_slow_client_stays_what_it_was_though_it_is_purged() {
    let scene = scene("", "");
    let stores = |letter: &str| {
        let fields = format!("{FRESH}Connection: close\r\n");
        let (_, got) = scene.exchange(
            Spoken::Http1,
            &get(&format!("/{letter}")),
            &response(&fields, &letter.repeat(900_000)),
        );
        assert_eq!(got.body.len(), 900_000);
        assert_soon("it is not stored", || is_stored(&scene, Spoken::Http1, &get(&format!("/{letter}"))));
    };
    stores("a");
    let mut slow = scene.client(Spoken::Http1).asking(&get("/a"));
    assert_soon(
        "the response does not begin",
        || !matches!(&slow, SceneClient::One(peer) if !peer.has_something()),
    );
    purge(&scene, r#"{"all":true}"#);
    ["b", "c", "d", "e"].into_iter().for_each(stores);
    assert!(slow.gets().body == "a".repeat(900_000));
}
