//! Parts of a request that are not in the cache key do not change the response: they are kept from the server, or their
//! response from the store.

use testkit::scene::{BOTH, BodylessRequest, Scene, Spoken, get};

use super::answered::{ONE_ROUTE, response};
use super::judged::comes_to_be_stored;

const FRESH: &str = "Cache-Control: max-age=60\r\n";

fn scene(cache: &str, route: &str) -> Scene {
    Scene::new(&ONE_ROUTE.replace("cache = {}", &format!("cache = {{ {cache} }}\n{route}")))
}

#[test]
fn parameters_that_do_not_count_do_not_reach_the_server() {
    for spoken in BOTH {
        for (cache, asked, seen) in [
            ("query_drop = \"utm_*\"", "/a?utm_x=1&b=2&utm_y=3", "/a?b=2"),
            ("query_drop = \"utm_*\"", "/a?utm_x=<script>", "/a"),
            ("query_drop = \"*\"", "/a?b=2", "/a"),
            ("query_keep = [\"b\", \"c\"]", "/a?x=1&c=3&b=2", "/a?c=3&b=2"),
            ("sort_query = true", "/a?c=3&b=2&c=1", "/a?b=2&c=3&c=1"),
            ("sort_query = true, query_drop = \"x\"", "/a?&c=3&&x=1&b=2", "/a?b=2&c=3"),
        ] {
            let scene = scene(cache, "");
            let (sent, _) = scene.exchange(spoken, &get(asked), &response(FRESH, "all"));
            assert!(sent.starts_with(&format!("GET {seen} HTTP/1.1\r\n")), "{cache} {asked}: {sent}");
            comes_to_be_stored(&scene, spoken, &get(seen));
            // Unsafe requests and upgrades are sent unchanged.
            let (sent, _) =
                scene.exchange(spoken, &BodylessRequest { method: "POST", ..get(asked) }, &response("", ""));
            assert!(sent.starts_with(&format!("POST {asked} HTTP/1.1\r\n")), "{cache}: {sent}");
            let fields = "range: bytes=0-\n";
            let (sent, _) = scene.exchange(
                spoken,
                &BodylessRequest { fields, ..get(asked) },
                &response("Cache-Control: private\r\n", ""),
            );
            assert!(sent.starts_with(&format!("GET {seen} HTTP/1.1\r\n")), "{cache}: {sent}");
        }
    }
}

#[test]
fn a_path_that_is_rewritten_has_only_the_parameters_that_count() {
    for (rewrite, seen) in [
        ("rewrite = { pattern = \"/a/(.*)\", path = \"/v1/$1\" }", "GET /v1/x?b=2 HTTP/1.1"),
        ("rewrite = { path = \"/v2?q=1&$query\" }", "GET /v2/a/x?q=1&b=2 HTTP/1.1"),
        ("request_headers = { set = { \"X-Query\" = \"$query\" } }", "GET /a/x?b=2 HTTP/1.1"),
    ] {
        let scene = scene("query_drop = \"utm_*\"", rewrite);
        let (sent, _) = scene.exchange(Spoken::Http1, &get("/a/x?utm_x=1&b=2"), &response(FRESH, "all"));
        assert!(sent.starts_with(seen) && !sent.contains("utm_x"), "{sent}");
    }
}

#[test]
fn a_lane_that_served_a_cached_route_asks_for_all_of_another_one() {
    let routes = ONE_ROUTE.replace(
        "cache = {}",
        "path = \"/a\"\ncache = { query_drop = \"x\" }\n[[route]]\nupstream = \"app\"",
    );
    let scene = Scene::new(&routes);
    let mut client = scene.client(Spoken::Http1);
    for (target, seen) in [("/a?x=1", "GET /a HTTP/1.1"), ("/b?x=1", "GET /b?x=1 HTTP/1.1")] {
        client.asks(&get(target));
        let mut server = scene.accept(0);
        let sent = server.head();
        assert!(sent.starts_with(seen), "{sent}");
        server.sends(response("Connection: close\r\n", ""));
        client.gets();
    }
}

#[test]
fn a_host_that_is_not_named_plainly_fills_nothing() {
    for host in ["test:80", "TEST", "test:"] {
        let scene = Scene::new(ONE_ROUTE);
        let asked = BodylessRequest { host, ..get("/a") };
        let redirect = format!(
            "HTTP/1.1 301 Moved Permanently\r\nLocation: http://{host}/b\r\nContent-Length: 0\r\n\r\n"
        );
        scene.exchange(Spoken::Http1, &asked, &redirect);
        // The redirect of one client is not served to others.
        scene.exchange(Spoken::Http1, &get("/a"), &response(FRESH, "plain"));
        comes_to_be_stored(&scene, Spoken::Http1, &get("/a"));
        assert_eq!(scene.answer(Spoken::Http1, &asked).body, "plain", "{host}");
    }
}

#[test]
fn all_cookies_of_a_name_count() {
    let scene = scene("key_cookies = \"lang\"", "");
    let of = |fields| BodylessRequest { fields, ..get("/a") };
    // A server may use the last cookie of that name.
    scene.exchange(Spoken::Http1, &of("cookie: lang=en; lang=evil\n"), &response(FRESH, "evil"));
    let (_, got) = scene.exchange(Spoken::Http1, &of("cookie: lang=en\n"), &response(FRESH, "en"));
    assert_eq!(got.body, "en");
}

#[test]
fn where_vary_is_left_aside_what_is_personal_is_not_stored_and_what_cannot_be_decoded_not_served() {
    let of = |fields| BodylessRequest { fields, ..get("/a") };
    for (fields, answer) in [
        ("cookie: sid=1\n", "Cache-Control: max-age=60\r\nVary: Accept, Cookie\r\n"),
        ("authorization: Basic eDp5\n", "Cache-Control: public, max-age=60\r\nVary: Authorization\r\n"),
        (
            "accept-encoding: gzip\n",
            "Cache-Control: max-age=60\r\nVary: Accept-Encoding\r\nContent-Encoding: gzip\r\n",
        ),
    ] {
        let scene = scene("ignore = \"vary\"", "");
        scene.exchange(Spoken::Http1, &of(fields), &response(answer, "one"));
        let (_, got) = scene.exchange(Spoken::Http1, &get("/a"), &response(FRESH, "all"));
        assert_eq!(got.body, "all", "{fields}");
    }
    let scene = scene("ignore = \"vary\"", "");
    let answer = "Cache-Control: max-age=60\r\nVary: Cookie, User-Agent\r\n";
    scene.exchange(Spoken::Http1, &of("user-agent: a\n"), &response(answer, "all"));
    comes_to_be_stored(&scene, Spoken::Http1, &of("user-agent: b\ncookie: sid=1\n"));
}

#[test]
fn only_what_is_asked_for_often_is_stored() {
    for spoken in BOTH {
        let scene = scene("min_uses = 3", "");
        for target in ["/a", "/b"] {
            // Requests that are passed keep their conditions.
            let fields = "if-none-match: \"x\"\n";
            for _ in 0..2 {
                let asked = BodylessRequest { fields, ..get(target) };
                let (sent, got) = scene.exchange(spoken, &asked, &response(FRESH, "all"));
                assert!(sent.to_ascii_lowercase().contains("if-none-match: \"x\""), "{sent}");
                assert_eq!(got.field("cache-status"), Some("vanward; fwd=uri-miss"), "{target}");
            }
            let (_, got) = scene.exchange(spoken, &get(target), &response(FRESH, "all"));
            assert!(got.field("cache-status").is_some_and(|status| status.contains("stored")), "{got:?}");
            comes_to_be_stored(&scene, spoken, &get(target));
        }
    }
}
