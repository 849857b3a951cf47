//! Responses on a disk answer in the next process, unless they were purged or damaged; and without the disk the cache
//! works on.

use std::fs;
use std::path::Path;

use testkit::admin;
use testkit::scene::{BodylessRequest, Scene, Spoken, get, read};
use testkit::wait::assert_soon;

use super::answered::{ONE_ROUTE, response};
use super::purged::order;

const FRESH: &str = "Cache-Control: max-age=60\r\n";

/// Returns a proxy whose cache is in this folder.
fn scene(folder: &Path) -> Scene {
    sized(folder, "1MiB", "64MiB", "cache = {}")
}

/// With limits for objects and for the disk, and route options.
fn sized(folder: &Path, object: &str, size: &str, route: &str) -> Scene {
    Scene::new(&text(folder, object, size, route))
}

fn text(folder: &Path, object: &str, size: &str, route: &str) -> String {
    let path = folder.display();
    let disk = format!("object = \"{object}\"\ndisk = {{ path = \"{path}\", size = \"{size}\" }}");
    let text = ONE_ROUTE.replace("object = \"1MiB\"", &disk).replace("cache = {}", route);
    format!("admin = \"{{dir}}/admin\"\n{text}")
}

/// Waits until the disk can be read.
fn ready(folder: &Path) -> Scene {
    on(scene(folder))
}

fn on(scene: Scene) -> Scene {
    assert_soon("the disk does not come on", || disk(&scene)["is_on"].as_bool().expect("is told"));
    scene
}

/// Returns the disk's part of the status.
fn disk(scene: &Scene) -> serde_json::Value {
    let (_, body) = admin::asks(&scene.file("admin"), "GET", "/status", "");
    let status: serde_json::Value = serde_json::from_str(&body).expect("is JSON");
    status["cache"]["disk"].clone()
}

/// Stores a response, at least in memory.
fn store(scene: &Scene, request: &BodylessRequest<'_>, fields: &str, body: &str) {
    let (_, got) = scene.exchange(Spoken::Http1, request, &response(fields, body));
    assert_eq!(got.body, body);
    assert_soon("it is not stored", || is_stored(scene, request));
}

fn is_stored(scene: &Scene, request: &BodylessRequest<'_>) -> bool {
    let fields = format!("{}cache-control: only-if-cached\n", request.fields);
    scene.answer(Spoken::Http2, &BodylessRequest { fields: &fields, ..*request }).status == 200
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

#[test]
fn what_is_stored_answers_in_the_next_process() {
    let folder = folder();
    let bodies = [0, 2, 5_000, 300_000].map(|len| "x".repeat(len));
    let target = |body: &String| format!("/{}", body.len());
    {
        let scene = ready(folder.path());
        for body in &bodies {
            store(&scene, &get(&target(body)), &format!("{FRESH}X-Kept: yes\r\n"), body);
        }
    }
    let scene = ready(folder.path());
    for body in &bodies {
        for spoken in [Spoken::Http2, Spoken::Http1] {
            let got = scene.answer(spoken, &get(&target(body)));
            assert_eq!((got.status, &got.body, got.field("x-kept")), (200, body, Some("yes")));
            assert!(got.field("cache-status").is_some_and(|status| status.starts_with("vanward; hit")));
        }
    }
    let part = BodylessRequest { fields: "range: bytes=1-3\n", ..get("/5000") };
    assert_eq!(scene.answer(Spoken::Http1, &part).status, 206);
    assert!(scene.try_accept(0).is_none());
    // Read once each, then served from memory.
    assert_eq!(disk(&scene)["read"], 4);
}

#[test]
fn rfc9111_5_2_1_7_only_if_cached_counts_for_what_is_stale_on_the_disk_unless_it_is_ignored() {
    for (route, is_obeyed) in [("cache = {}", true), ("cache = { ignore = \"request-directives\" }", false)] {
        let folder = folder();
        {
            let scene = on(sized(folder.path(), "1MiB", "64MiB", route));
            let stale = response("Cache-Control: max-age=0\r\nETag: \"a\"\r\n", "old");
            scene.exchange(Spoken::Http1, &get("/a"), &stale);
        }
        let scene = on(sized(folder.path(), "1MiB", "64MiB", route));
        let asked = BodylessRequest { fields: "cache-control: only-if-cached\n", ..get("/a") };
        if is_obeyed {
            assert_eq!(scene.answer(Spoken::Http1, &asked).status, 504);
        } else {
            let (head, got) = scene.exchange(Spoken::Http1, &asked, "HTTP/1.1 304 Not Modified\r\n\r\n");
            assert!(head.to_lowercase().contains("if-none-match: \"a\""), "{head}");
            assert_eq!((got.status, got.body.as_str()), (200, "old"));
        }
    }
}

#[test]
fn a_part_is_had_from_the_whole_on_the_disk() {
    let folder = folder();
    store(&ready(folder.path()), &get("/a"), FRESH, "0123456789");
    let scene = ready(folder.path());
    let got = scene.answer(Spoken::Http1, &BodylessRequest { fields: "range: bytes=2-4\n", ..get("/a") });
    assert_eq!((got.status, got.body.as_str()), (206, "234"));
    let same = BodylessRequest { fields: "if-modified-since: Thu, 01 Jan 2099 00:00:00 GMT\n", ..get("/a") };
    assert!(matches!(scene.answer(Spoken::Http1, &same).status, 200 | 304));
}

#[test]
fn a_head_is_had_from_the_whole_on_the_disk() {
    let folder = folder();
    let head = |target| BodylessRequest { method: "HEAD", ..get(target) };
    {
        let scene = ready(folder.path());
        for (target, len) in [("/1", 10), ("/2", 300_000)] {
            store(&scene, &get(target), &format!("{FRESH}ETag: \"a\"\r\n"), &"x".repeat(len));
        }
    }
    let scene = ready(folder.path());
    for (target, spoken, len) in [("/1", Spoken::Http1, "10"), ("/2", Spoken::Http2, "300000")] {
        for request in
            [head(target), BodylessRequest { fields: "cache-control: only-if-cached\n", ..head(target) }]
        {
            let mut client = scene.client(spoken).asking(&request);
            let got = client.gets_head_alone();
            assert_eq!(
                (got.status, got.field("content-length"), &*got.body),
                (200, Some(len), ""),
                "{target}"
            );
        }
        assert_eq!(scene.answer(spoken, &get(target)).body.len().to_string(), len);
    }
    assert!(scene.try_accept(0).is_none());
    // Read once each, then served from memory.
    assert_eq!(disk(&scene)["read"], 2);
    let mut client = scene.client(Spoken::Http1);
    client.asks(&BodylessRequest { fields: "cache-control: only-if-cached\n", ..head("/none") });
    assert_eq!(client.gets_head_alone().status, 504);
}

#[test]
fn a_head_of_what_is_stale_on_the_disk_is_the_servers() {
    let folder = folder();
    let fields = "Cache-Control: max-age=6000\r\nAge: 1000\r\nETag: \"a\"\r\n";
    store(&ready(folder.path()), &get("/a"), fields, "old");
    let scene = ready(folder.path());
    let mut client = scene.client(Spoken::Http1);
    client.asks(&BodylessRequest { method: "HEAD", fields: "cache-control: max-age=500\n", ..get("/a") });
    let mut server = scene.accept(0);
    assert!(server.head().starts_with("HEAD /a HTTP/1.1\r\n"));
    server.sends("HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: 3\r\nX-New: yes\r\n\r\n");
    assert_eq!(client.gets_head_alone().field("x-new"), Some("yes"));
    // A question about the stored response, which remains usable.
    assert_eq!(scene.answer(Spoken::Http1, &get("/a")).body, "old");
}

#[test]
fn variants_are_told_apart_on_the_disk() {
    let folder = folder();
    let kinds = ["x-kind: a\n", "x-kind: b\n", "x-kind: c\n"];
    {
        let scene = ready(folder.path());
        for kind in kinds {
            let fields = format!("{FRESH}Vary: X-Kind\r\n");
            store(&scene, &BodylessRequest { fields: kind, ..get("/v") }, &fields, kind.trim());
        }
    }
    let scene = ready(folder.path());
    for kind in kinds {
        let got = scene.answer(Spoken::Http1, &BodylessRequest { fields: kind, ..get("/v") });
        assert_eq!((got.status, got.body.as_str()), (200, kind.trim()));
    }
    let other = BodylessRequest { fields: "x-kind: d\ncache-control: only-if-cached\n", ..get("/v") };
    assert_eq!(scene.answer(Spoken::Http1, &other).status, 504);
}

#[test]
fn what_is_stale_on_the_disk_is_validated() {
    let folder = folder();
    let fields = "Cache-Control: max-age=60\r\nAge: 59\r\nETag: \"a\"\r\n";
    {
        let scene = ready(folder.path());
        let (_, got) = scene.exchange(Spoken::Http1, &get("/a"), &response(fields, "old"));
        assert_eq!(got.body, "old");
        assert_soon("the disk does not have all records", || disk(&scene)["records"] == 1);
    }
    let scene = ready(folder.path());
    let mut client = scene.client(Spoken::Http1);
    client.asks(&BodylessRequest { fields: "cache-control: max-age=10\n", ..get("/a") });
    let mut server = scene.accept(0);
    assert!(server.head().to_lowercase().contains("if-none-match: \"a\""));
    server.sends("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=600\r\n\r\n");
    assert_eq!(client.gets().body, "old");
    assert!(is_stored(&scene, &get("/a")));
}

#[test]
fn what_was_purged_stays_purged() {
    for order_body in [
        r#"{"urls":["http://test/a"]}"#,
        r#"{"tags":["one"]}"#,
        r#"{"prefixes":["http://test/a"]}"#,
        r#"{"urls":["test/*"]}"#,
        r#"{"hosts":["test"]}"#,
        r#"{"hosts":["t*t"]}"#,
        r#"{"all":true}"#,
        r#"{"tags":["one"],"soft":true}"#,
    ] {
        let folder = folder();
        let kept = BodylessRequest { host: "other", ..get("/b") };
        {
            let scene = ready(folder.path());
            store(&scene, &get("/a"), &format!("{FRESH}Cache-Tag: one, two\r\n"), "old");
            store(&scene, &kept, FRESH, "kept");
        }
        {
            // Purged by the next process, which has not read it.
            let scene = ready(folder.path());
            let (status, told) = order(&scene, "/cache/purge", order_body);
            assert_eq!(status, 200, "{order_body}");
            let told: String = told.split_whitespace().collect();
            // Purges other than by URL or of everything are only counted in memory.
            let is_counted = [(r#""urls":["http"#, 1), ("all", 2)]
                .into_iter()
                .find(|(named, _)| order_body.contains(named));
            let (responses, is_more) = is_counted.map_or((0, true), |(_, count)| (count, false));
            assert!(told.contains(&format!("\"responses\":{responses},\"met\"")), "{told}");
            assert!(told.contains(&format!("\"is_more_on_disk\":{is_more}")), "{told}");
            assert!(!is_stored(&scene, &get("/a")), "{order_body}");
        }
        let scene = ready(folder.path());
        assert!(!is_stored(&scene, &get("/a")), "{order_body}");
        assert_eq!(is_stored(&scene, &kept), !order_body.contains("all"), "{order_body}");
        store(&scene, &get("/a"), &format!("{FRESH}Cache-Tag: one\r\n"), "new");
        drop(scene);
        let scene = ready(folder.path());
        assert_eq!(scene.answer(Spoken::Http1, &get("/a")).body, "new", "{order_body}");
    }
}

#[test]
fn what_a_request_has_changed_is_gone_from_the_disk() {
    let folder = folder();
    store(&ready(folder.path()), &get("/a"), FRESH, "old");
    {
        let scene = ready(folder.path());
        scene.exchange(Spoken::Http1, &BodylessRequest { method: "DELETE", ..get("/a") }, &response("", ""));
    }
    assert!(!is_stored(&ready(folder.path()), &get("/a")));
}

#[test]
fn rfc9111_4_3_what_a_server_has_said_of_it_since_holds_on_the_disk() {
    let not_modified = "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nCache-Control: private, no-store\r\n\r\n";
    let other = "HTTP/1.1 200 OK\r\nETag: \"b\"\r\nContent-Length: 3\r\n\r\n";
    let gone = "HTTP/1.1 410 Gone\r\nCache-Control: no-store\r\nContent-Length: 0\r\n\r\n";
    let private = "HTTP/1.1 200 OK\r\nCache-Control: private\r\nContent-Length: 3\r\n\r\nnew";
    for (method, said, status) in [
        ("GET", not_modified, 200),
        ("HEAD", other, 200),
        ("GET", gone, 410),
        ("HEAD", gone, 410),
        ("GET", private, 200),
    ] {
        let folder = folder();
        store(&ready(folder.path()), &get("/a"), &format!("{FRESH}ETag: \"a\"\r\n"), "old");
        {
            let scene = ready(folder.path());
            assert!(is_stored(&scene, &get("/a")));
            let mut client = scene.client(Spoken::Http1);
            client.asks(&BodylessRequest { method, fields: "cache-control: no-cache\n", ..get("/a") });
            let mut server = scene.accept(0);
            assert!(server.head().starts_with(method));
            server.sends(said);
            let got = if method == "GET" { client.gets() } else { client.gets_head_alone() };
            assert_eq!(got.status, status);
        }
        assert!(!is_stored(&ready(folder.path()), &get("/a")), "{method}");
    }
}

#[test]
fn what_is_too_long_for_the_disk_takes_the_older_one_from_it() {
    let folder = folder();
    let scene = || on(sized(folder.path(), "2MiB", "16MiB", "cache = {}"));
    {
        let scene = scene();
        store(&scene, &get("/a"), FRESH, "old");
        store(&scene, &get("/b"), FRESH, "kept");
        assert_soon("the disk does not have all records", || disk(&scene)["records"] == 2);
        let anew = BodylessRequest { fields: "cache-control: no-cache\n", ..get("/a") };
        let long = "x".repeat(1_200_000);
        let (_, got) = scene.exchange(Spoken::Http1, &anew, &response(FRESH, &long));
        assert!(got.body == long);
        assert!(scene.answer(Spoken::Http2, &get("/a")).body == long);
        assert_eq!(disk(&scene)["records"], 1);
    }
    let scene = scene();
    assert_eq!((is_stored(&scene, &get("/a")), is_stored(&scene, &get("/b"))), (false, true));
}

#[test]
fn what_is_damaged_is_fetched_anew() {
    let folder = folder();
    store(&ready(folder.path()), &get("/a"), FRESH, "old");
    for entry in fs::read_dir(folder.path()).expect("listed") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "segment") {
            let mut bytes = fs::read(&path).expect("read");
            *bytes.last_mut().expect("has some") ^= 1;
            fs::write(&path, bytes).expect("written");
        }
    }
    let scene = ready(folder.path());
    let (_, got) = scene.exchange(Spoken::Http1, &get("/a"), &response(FRESH, "new"));
    assert_eq!(got.body, "new");
    assert_eq!(disk(&scene)["damaged"], 1);
}

#[test]
fn without_its_disk_the_cache_goes_on() {
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, "in the way").expect("written");
    let gone = folder.path().join("gone");
    for path in [file, gone.clone()] {
        let scene = scene(&path);
        if path == gone {
            assert_soon("the disk does not come on", || disk(&scene)["is_on"].as_bool().expect("is told"));
            fs::remove_dir_all(&path).expect("removed");
        }
        store(&scene, &get("/a"), FRESH, "body");
        assert_soon("the disk stays on", || !disk(&scene)["is_on"].as_bool().expect("is told"));
        assert!(disk(&scene)["state"].as_str().is_some_and(|state| state.starts_with("off")));
        assert!(is_stored(&scene, &get("/a")));
        assert_eq!(order(&scene, "/cache/purge", r#"{"all":true}"#).0, 200);
        assert!(!is_stored(&scene, &get("/a")));
    }
}

/// The folder is unchanged, and only the memory's part is read again.
#[test]
fn a_reload_that_changes_the_size_of_the_disk_keeps_what_is_on_it() {
    let folder = folder();
    let scene = ready(folder.path());
    for number in 0..20 {
        store(&scene, &get(&format!("/{number}")), FRESH, "kept");
    }
    for size in ["128MiB", "32MiB"] {
        let settings = text(folder.path(), "1MiB", size, "cache = {}")
            .replace("{0}", &scene.server_address(0))
            .replace("{dir}", &scene.file("").display().to_string());
        let settings = format!("workers = 2\n{settings}\n[[listen]]\naddress = \"127.0.0.1:0\"\n");
        scene.running().reload(read(&settings)).expect("it is valid");
        let expected: u64 = size.trim_end_matches("MiB").parse::<u64>().expect("is a number") << 20;
        assert_soon("the disk does not change", || {
            disk(&scene)["size_bytes"] == expected && disk(&scene)["is_on"] == true
        });
        for number in 0..20 {
            let got = scene.answer(Spoken::Http1, &get(&format!("/{number}")));
            assert!(
                got.field("cache-status").is_some_and(|status| status.starts_with("vanward; hit")),
                "{size} {number}: {got:?}"
            );
        }
    }
}
