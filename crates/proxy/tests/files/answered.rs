//! Look-up of files, and their responses.

use testkit::scene::{BOTH, BodylessRequest, Spoken, get};

use super::scene::{MODIFIED, TREE, answer_twice, scene, write};

#[test]
fn files_are_found_and_say_what_they_are() {
    let rows = [
        ("/page.txt", 200, "text/plain; charset=utf-8", "0123456789"),
        ("//page.txt", 200, "text/plain; charset=utf-8", "0123456789"),
        ("/page.txt?v=1", 200, "text/plain; charset=utf-8", "0123456789"),
        ("/%70age.txt", 200, "text/plain; charset=utf-8", "0123456789"),
        ("/a%20b&c.txt", 200, "text/plain; charset=utf-8", "spaces"),
        ("/empty.css", 200, "text/css; charset=utf-8", ""),
        ("/", 200, "text/html; charset=utf-8", "<p>home"),
        ("/docs/", 200, "text/html; charset=utf-8", "<p>docs"),
        ("/plain/sub/x", 200, "application/octet-stream", "x"),
        ("/.well-known/security.txt", 200, "text/plain; charset=utf-8", "Contact: mailto:a@example.com"),
        ("/plain/", 404, "text/plain", "There is no such file.\n"),
        ("/gone", 404, "text/plain", "There is no such file.\n"),
        ("/page.txt/", 404, "text/plain", "There is no such file.\n"),
        ("/page.txt/x", 404, "text/plain", "There is no such file.\n"),
    ];
    let scene = scene("", "");
    for spoken in BOTH {
        for (target, status, content_type, body) in rows {
            let got = answer_twice(&scene, spoken, &get(target));
            assert_eq!((got.status, got.body.as_str()), (status, body), "{target}");
            assert_eq!(got.field("content-type"), Some(content_type), "{target}");
            assert_eq!(got.all("content-length"), [body.len().to_string()], "{target}");
            assert!(got.field("date").is_some() && got.field("via").is_none(), "{target}");
            let is_file = status == 200;
            assert_eq!(got.field("last-modified"), is_file.then_some(MODIFIED), "{target}");
            assert_eq!(got.field("accept-ranges"), is_file.then_some("bytes"), "{target}");
            assert_eq!(got.field("etag").is_some(), is_file, "{target}");
            assert!(got.field("vary").is_none() && got.field("cache-control").is_none(), "{target}");
        }
    }
}

#[test]
fn rfc9110_9_3_2_head_is_as_get_without_the_body() {
    let scene = scene(", cache_control = \"max-age=60\"", "");
    for spoken in BOTH {
        for target in ["/page.txt", "/", "/empty.css"] {
            let whole = answer_twice(&scene, spoken, &get(target));
            let head = answer_twice(&scene, spoken, &BodylessRequest { method: "HEAD", ..get(target) });
            assert_eq!((head.status, head.body.as_str()), (200, ""));
            let fields =
                |fields: &str| fields.lines().filter(|it| !it.starts_with("date")).collect::<String>();
            assert_eq!(fields(&head.fields), fields(&whole.fields));
            assert_eq!(whole.field("cache-control"), Some("max-age=60"));
        }
    }
}

#[test]
fn rfc9110_15_5_6_other_methods_are_not_allowed() {
    let scene = scene("", "");
    for spoken in BOTH {
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"] {
            let got = answer_twice(&scene, spoken, &BodylessRequest { method, ..get("/page.txt") });
            assert_eq!((got.status, got.field("allow")), (405, Some("GET, HEAD")), "{method}");
        }
    }
}

#[test]
fn a_directory_without_its_slash_is_redirected_within_this_host() {
    let scene = scene("", "");
    write(&scene, "root/evil.example/x", "x");
    for spoken in BOTH {
        for (target, location) in [
            ("/docs", "/docs/"),
            ("/docs?a=b", "/docs/?a=b"),
            ("/plain/sub", "/plain/sub/"),
            ("/%64ocs", "/%64ocs/"),
            ("//evil.example", "/evil.example/"),
            ("///evil.example?//x", "/evil.example/?//x"),
        ] {
            let got = answer_twice(&scene, spoken, &get(target));
            assert_eq!((got.status, got.field("location")), (301, Some(location)), "{target}");
        }
    }
}

#[test]
fn a_fallback_is_sent_where_there_is_no_file() {
    let scene = scene(", fallback = \"/index.html\"", "");
    for spoken in BOTH {
        for (target, status, body) in [
            ("/app/view/7", 200, "<p>home"),
            ("/plain/", 200, "<p>home"),
            ("/page.txt", 200, "0123456789"),
            ("/docs/", 200, "<p>docs"),
            ("/.git/config", 404, "There is no such file.\n"),
        ] {
            let got = answer_twice(&scene, spoken, &get(target));
            assert_eq!((got.status, got.body.as_str()), (status, body), "{target}");
        }
    }
}

#[test]
fn a_prefix_is_removed_by_rewrite() {
    let scene = scene(
        "",
        "rewrite = { path = \"/\" }\n[[route]]\npath = \"/assets\"\nfiles = { root = \"{dir}/root\" }\nrewrite = { path = \"/plain\" }\n",
    );
    for spoken in BOTH {
        for (target, status, body) in [
            ("/assets/one.txt", 200, "1"),
            ("/assets/one.txt?x=/page.txt", 200, "1"),
            ("/assets/page.txt", 404, "There is no such file.\n"),
            ("/page.txt", 200, "0123456789"),
        ] {
            let got = answer_twice(&scene, spoken, &get(target));
            assert_eq!((got.status, got.body.as_str()), (status, body), "{target}");
        }
        // The URL is the client's, not the file's.
        let got = scene.answer(spoken, &get("/assets/sub"));
        assert_eq!((got.status, got.field("location")), (301, Some("/assets/sub/")));
    }
}

/// Otherwise relative links of the page or listing would leave the prefix.
#[test]
fn a_prefix_without_its_slash_is_redirected() {
    let mounts = [
        ("/app", "/docs", "index = [\"index.html\"]"),
        ("/app", "/docs/", "index = [\"index.html\"]"),
        ("/app", "/plain/", "listing = true"),
        ("/app", "/", "listing = true"),
        ("/a%20b", "/docs/", "fallback = \"/page.txt\""),
        // A rewritten host is for servers only: the client's redirect keeps its host.
        ("/app", "/docs/\", host = \"inner.example", "index = [\"index.html\"]"),
    ];
    for (prefix, to, options) in mounts {
        let route = format!(
            "[[route]]\npath = \"{prefix}\"\nfiles = {{ root = \"{{dir}}/root\", {options} }}\nrewrite = {{ path = \"{to}\" }}\n"
        );
        let scene = scene("", &format!("host = \"other\"\n{route}"));
        for spoken in BOTH {
            // The page is now open, under the same name.
            assert_eq!(answer_twice(&scene, spoken, &get(&format!("{prefix}/"))).status, 200, "{to}");
            for (target, location) in [("", "/"), ("?x=1&y", "/?x=1&y")] {
                let got = answer_twice(&scene, spoken, &get(&format!("{prefix}{target}")));
                let location = format!("{prefix}{location}");
                assert_eq!((got.status, got.field("location")), (301, Some(location.as_str())), "{to}");
            }
            assert_eq!(answer_twice(&scene, spoken, &get(&format!("{prefix}//"))).status, 200, "{to}");
        }
    }
}

#[test]
fn what_is_missing_behind_a_prefix_is_the_fallback_or_404() {
    for (options, status) in [("fallback = \"/page.txt\"", 200), ("listing = true", 404)] {
        let route = format!(
            "[[route]]\npath = \"/app\"\nfiles = {{ root = \"{{dir}}/root\", {options} }}\nrewrite = {{ path = \"/gone/\" }}\n"
        );
        let scene = scene("", &format!("host = \"other\"\n{route}"));
        for spoken in BOTH {
            assert_eq!(answer_twice(&scene, spoken, &get("/app")).status, status, "{options}");
        }
    }
}

/// With a slash, the path would match another route.
#[test]
fn a_path_that_is_rewritten_as_a_whole_is_not_redirected() {
    let route = "[[route]]\npath = \"= /start\"\nfiles = { root = \"{dir}/root\" }\nrewrite = { path = \"/docs/\" }\n";
    let scene = scene("", &format!("host = \"other\"\n{route}"));
    for spoken in BOTH {
        assert_eq!(answer_twice(&scene, spoken, &get("/start")).body, "<p>docs");
    }
}

#[test]
fn a_directory_is_listed_where_that_is_wanted() {
    let scene = scene(", listing = true", "");
    for spoken in BOTH {
        let got = answer_twice(&scene, spoken, &get("/plain/"));
        assert_eq!((got.status, got.field("content-type")), (200, Some("text/html; charset=utf-8")));
        let links: Vec<&str> =
            got.body.split("href=\"").skip(1).filter_map(|it| it.split('"').next()).collect();
        assert_eq!(links, ["../", "./sub/", "./one.txt", "./two.txt"]);
        // An index represents its directory.
        assert_eq!(answer_twice(&scene, spoken, &get("/docs/")).body, "<p>docs");
        let head = answer_twice(&scene, spoken, &BodylessRequest { method: "HEAD", ..get("/plain/") });
        assert_eq!(head.field("content-length"), Some(got.body.len().to_string().as_str()));
    }
}

#[test]
fn pages_and_fields_of_the_route_hold() {
    let more = "error_pages = { 404 = \"{dir}/404.html\" }\n\
                response_headers = { set = { X-From = \"files $status\" }, remove = [\"ETag\"] }\n";
    let scene = scene("", more);
    for spoken in BOTH {
        for (target, status, body) in [("/gone", 404, "<h1>lost</h1>"), ("/page.txt", 200, "0123456789")] {
            let got = answer_twice(&scene, spoken, &get(target));
            assert_eq!((got.status, got.body.as_str()), (status, body));
            assert_eq!(got.field("x-from"), Some(format!("files {status}").as_str()));
            assert_eq!(got.field("etag"), None);
        }
    }
}

#[test]
fn connections_are_kept_and_closed_as_clients_want() {
    let scene = scene("", "");
    let mut client = scene.client(Spoken::Http1);
    for _ in 0..2 {
        for (fields, connection) in [("", None), ("connection: keep-alive", None)] {
            let got = client.asks_for(&BodylessRequest { fields, ..get("/page.txt") });
            assert_eq!(got.field("connection"), connection);
        }
        // A request with a body is handled alike, and the next request follows it.
        let got = client.asks_for(&BodylessRequest { fields: "content-length: 0", ..get("/page.txt") });
        assert_eq!((got.status, got.field("connection")), (200, None));
    }
    let got = client.asks_for(&BodylessRequest { fields: "connection: close", ..get("/page.txt") });
    assert_eq!((got.status, got.field("connection"), got.body.as_str()), (200, Some("close"), "0123456789"));
    let testkit::scene::SceneClient::One(mut peer) = client else { return };
    assert_eq!(peer.rest().0, b"");
    let mut old = testkit::http1::Http1Peer::new(
        "client",
        std::net::TcpStream::connect(scene.running().addresses()[0]).expect("the proxy listens"),
    );
    old.sends("GET /page.txt HTTP/1.0\r\nHost: test\r\nConnection: keep-alive\r\n\r\n".repeat(2));
    for _ in 0..2 {
        assert!(old.message().head.contains("Connection: keep-alive\r\n"));
    }
    old.sends("GET /page.txt HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nabcGET /gone HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(old.message().body, b"0123456789");
    assert_eq!(old.message().status(), 404);
}

#[test]
fn every_file_of_the_tree_is_served_or_hidden() {
    let scene = scene("", "");
    for (name, text) in TREE {
        let Some(path) = name.strip_prefix("root") else { continue };
        let target = path.replace(' ', "%20");
        let got = scene.answer(Spoken::Http1, &get(&target));
        let is_hidden = path.split('/').any(|name| name.starts_with('.') && name != ".well-known");
        if is_hidden {
            assert_eq!(got.status, 404, "{target}");
        } else {
            assert_eq!((got.status, got.body.as_str()), (200, *text), "{target}");
        }
    }
}

#[test]
fn places_are_tried_in_their_order() {
    let scene = scene(", try = [\"/docs$path\", \"$path\", \"$path.txt\", \"$path/one.txt\"]", "");
    for spoken in BOTH {
        for (target, status, body) in [
            ("/index.html", 200, "<p>docs"),
            ("/page.txt", 200, "0123456789"),
            ("/page", 200, "0123456789"),
            ("/plain", 200, "1"),
            ("/plain/", 200, "1"),
            ("/page/", 404, "There is no such file.\n"),
            ("/docs", 404, "There is no such file.\n"),
            ("/docs/", 404, "There is no such file.\n"),
            ("/", 404, "There is no such file.\n"),
            ("/.git/config", 404, "There is no such file.\n"),
        ] {
            let got = answer_twice(&scene, spoken, &get(target));
            assert_eq!((got.status, got.body.as_str()), (status, body), "{target}");
        }
    }
}

#[test]
fn some_files_have_their_own_lifetime() {
    let options = ", fallback = \"/index.html\", cache_control = \"max-age=60\", \
                   cache_control_for = { \"/index.html\" = \"no-cache\", \"/plain/*\" = \"max-age=1\", \"*.txt\" = \"private\" }";
    let scene = scene(options, "");
    for spoken in BOTH {
        for (target, value) in [
            ("/", "no-cache"),
            ("/gone", "no-cache"),
            ("/docs/", "max-age=60"),
            ("/page.txt", "private"),
            ("/plain/one.txt", "max-age=1"),
            ("/empty.css", "max-age=60"),
        ] {
            let got = answer_twice(&scene, spoken, &get(target));
            assert_eq!(got.all("cache-control"), [value], "{target}");
        }
    }
}
