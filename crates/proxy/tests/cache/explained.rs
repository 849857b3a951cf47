//! The answers for `vanward cache explain`: what is stored, why a response is not, and how to change that.

use testkit::scene::{BodylessRequest, Scene, Spoken, get};

use super::answered::{ONE_ROUTE, response};
use super::purged::{self, order, scene};

/// Returns the answer about a URL, without white space.
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
        &[
            r#""key": "http://test/a""#,
            r#""now": {"miss": "no response is stored for this URL"#,
            r#""stored": []"#,
        ],
    );
    assert_has(&told, &[r#""last_miss": null"#, r#""remedies": []"#]);
}

#[test]
fn why_a_response_was_not_stored_is_told_with_the_remedy() {
    for (fields, reason, remedy) in [
        ("Cache-Control: private\r\n", "private", "remove private"),
        ("Cache-Control: no-store\r\n", "no-store", "remove no-store"),
        ("", "no-freshness", "send Cache-Control: max-age"),
        (
            "Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n",
            "set-cookie",
            "set the cookie in another response",
        ),
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
    let of = |fields| BodylessRequest { fields, ..get("/a") };
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
    assert_has(&explain(&scene, &url("c")), &[r#""now": {"miss": "the stored response is for other values"#]);
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
    let client = scene.client(Spoken::Http1).asking(&get("/a"));
    let mut server = scene.accept(0).after_head();
    server.sends("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 100000\r\n\r\nfirst");
    drop(server);
    let testkit::scene::SceneClient::One(mut peer) = client else { return };
    peer.rest();
    let told = explain(&scene, URL);
    assert_has(&told, &[r#""reason": "incomplete""#, "find out why the origin closes connections early"]);
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
        (r#"{"url":"http://other/a"}"#, "no route matches the request"),
        (r#"{"url":"ftp://test/"}"#, "unsupported scheme"),
        (r#"{"url":"http://test/a","headers":[["a b","c"]]}"#, "the request is invalid"),
        (r#"{"url":"http://test/a","headers":[["a","b\r\n\r\nc"]]}"#, "the request is invalid"),
        ("[]", "the body is invalid"),
    ] {
        let (status, told) = order(&scene, "/cache/explain", body);
        assert!(status == 400 && told.contains(what), "{body}: {status} {told}");
    }
}

/// Returns the texts between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn options_that_are_named_are_options_that_there_are() {
    let reference = config::reference();
    let refusals = ::cache::REFUSALS.iter().map(|row| row.remedy);
    let forwards = ::cache::Forward::ALL.iter().filter_map(|forward| forward.remedy());
    let mut named = 0;
    for remedy in refusals.chain(forwards) {
        // Everything that looks like an option is between backquotes.
        let mut bare = remedy.split('`').step_by(2);
        assert!(!bare.any(|text| text.contains("cache.") || text.contains('_')), "{remedy}");
        for quoted in quoted(remedy).filter(|quoted| !quoted.starts_with(['$', '['])) {
            let (name, value) =
                quoted.split_once(" = ").map_or((quoted, None), |(name, value)| (name, Some(value)));
            assert!(
                reference.contains(&format!("| `{name}` |")) || reference.contains(&format!("| `{name}.")),
                "{name} of {remedy}"
            );
            if let (Some(option), Some(value)) = (name.strip_prefix("cache."), value) {
                testkit::scene::read(&format!(
                    "[[listen]]\naddress = \"127.0.0.1:0\"\n{}",
                    ONE_ROUTE
                        .replace("{0}", "127.0.0.1:1")
                        .replace("cache = {}", &format!("cache = {{ {option} = {value} }}"))
                ));
            }
            named += 1;
        }
    }
    assert!(named > 8, "{named}");
}

/// A cache; fields of request and response; a body size that may be too large; the advice; the cache with the advice
/// applied.
type Advised<'a> = ((&'a str, &'a str), &'a str, (&'a str, usize), &'a str, (&'a str, &'a str));

#[test]
fn advice_that_is_followed_helps() {
    let (mib, sixteenth) = ("object = \"1MiB\"", "memory = \"1MiB\"");
    let large = sixteenth.replace("1MiB", "64MiB");
    let fresh = "Cache-Control: max-age=60\r\n";
    let rows: [Advised<'_>; 7] = [
        ((&large, mib), "", (fresh, 3 << 20), "raise `object` of `[cache]`", (&large, "object = \"4MiB\"")),
        ((sixteenth, ""), "", (fresh, 300 << 10), "raise `memory` of `[cache]`", (&large, "")),
        (
            (&large, ""),
            "cache-control: no-store\n",
            (fresh, 2),
            "request-directives",
            (&large, "ignore = \"request-directives\""),
        ),
        (
            (&large, ""),
            "cache-control: no-cache\n",
            (fresh, 2),
            "request-directives",
            (&large, "ignore = \"request-directives\""),
        ),
        ((&large, ""), "", ("", 2), "`cache.default_ttl = ", (&large, "default_ttl = \"1m\"")),
        (
            (&large, "status_ttl = { 200 = \"0s\" }"),
            "",
            (fresh, 2),
            "`cache.status_ttl`",
            (&large, "status_ttl = { 200 = \"1m\" }"),
        ),
        (
            (&large, ""),
            "",
            ("Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n", 2),
            "`cache.ignore = ",
            (&large, "ignore = \"set-cookie\""),
        ),
    ];
    for ((memory, options), fields, (answer, bytes), advice, (new_memory, new_options)) in rows {
        let scene = |memory: &str, options: &str| {
            // Options of the store, or of the route.
            let (store, route) = if options.starts_with("object") { (options, "") } else { ("", options) };
            let text = ONE_ROUTE
                .replace("memory = \"64MiB\"\nobject = \"1MiB\"", &format!("{memory}\n{store}"))
                .replace("cache = {}", &format!("cache = {{ {route} }}"));
            Scene::new(&format!("admin = \"{{dir}}/admin\"\n{text}"))
        };
        let asked = BodylessRequest { fields, ..get("/a") };
        let answer = response(answer, &"x".repeat(bytes));
        let before = scene(memory, options);
        for _ in 0..2 {
            before.exchange(Spoken::Http1, &asked, &answer);
        }
        let headers = fields.trim().split_once(": ");
        let headers = headers.map(|(name, value)| format!("[\"{name}\",\"{value}\"]")).unwrap_or_default();
        let url = format!("{{\"url\":\"http://test/a\",\"headers\":[{headers}]}}");
        assert_has(&explain(&before, &url), &[advice.replace('"', "\\\"").as_str()]);
        let after = scene(new_memory, new_options);
        after.exchange(Spoken::Http1, &asked, &answer);
        super::judged::comes_to_be_stored(&after, Spoken::Http1, &get("/a"));
        assert!(super::judged::is_hit(&after.answer(Spoken::Http1, &asked)), "{advice}");
    }
}

#[test]
fn many_variants_are_stored_and_told_of_by_their_number() {
    let scene = scene("", "");
    let answer = response("Cache-Control: max-age=60\r\nVary: X-Kind\r\n", "ok");
    let kinds: Vec<String> = (0..100).map(|number| format!("x-kind: {number}\n")).collect();
    for fields in &kinds {
        let asked = BodylessRequest { fields, ..get("/a") };
        scene.exchange(Spoken::Http1, &asked, &answer);
        super::judged::comes_to_be_stored(&scene, Spoken::Http1, &asked);
    }
    for fields in &kinds {
        assert!(super::judged::is_hit(
            &scene.answer(Spoken::Http2, &BodylessRequest { fields, ..get("/a") })
        ));
    }
    let told = explain(&scene, URL);
    assert_has(&told, &[r#""variants": 100"#, r#""variants_displaced": 0"#]);
    assert_eq!(told.matches(r#""is_asked_for""#).count(), 64);
}

#[test]
fn the_tags_of_a_response_are_told() {
    for route in ["", "send_tags = true"] {
        let scene = purged::scene("", route);
        let many: Vec<String> = (0..400).map(|number| format!("tag-{number}")).collect();
        for (target, fields, tags, untold) in [
            (
                "/a",
                "Surrogate-Key: alpha, beta,gamma\r\nCache-Tag: front page\r\n".to_owned(),
                r#"["alpha","beta","frontpage","gamma"]"#,
                0,
            ),
            ("/b", format!("Surrogate-Key: {}\r\n", many.join(" ")), r#"["tag-0","tag-1","#, 259),
            ("/c", String::new(), "[]", 0),
        ] {
            let fields = format!("Cache-Control: max-age=60\r\n{fields}");
            scene.exchange(Spoken::Http1, &get(target), &response(&fields, "ok"));
            let question = format!(r#"{{"url":"http://test{target}"}}"#);
            let mut told = String::new();
            testkit::wait::assert_soon("it is stored", || {
                told = explain(&scene, &question).split_whitespace().collect();
                !told.contains(r#""stored":[]"#)
            });
            assert!(told.contains(&format!("\"tags\":{tags}")), "{told}");
            let untold = if route.is_empty() { untold } else { 0 };
            assert!(told.contains(&format!("\"tags_untold\":{untold}")), "{told}");
        }
    }
}
