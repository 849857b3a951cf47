//! Responses without a server: redirects, fixed responses, error pages.

use testkit::scene::{BOTH, BodylessRequest, Scene, SceneClient, Spoken, get};

#[test]
fn redirects() {
    let scene = Scene::new(
        r#"
[[route]]
redirect = { to = "https://www.example.com$path" }
[[route]]
path = "~ /old/(.*)"
redirect = { to = "/new/$1", status = 302 }
"#,
    );
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        for (target, status, location) in [
            ("/a?b", 308, "https://www.example.com/a?b"),
            ("/old/x%0d%0aSet-Cookie:%20a", 302, "/new/x%0D%0ASet-Cookie:%20a"),
        ] {
            let got = client.asks_for(&get(target));
            assert_eq!((got.status, got.field("location")), (status, Some(location)), "{spoken:?}");
            assert_eq!((got.field("content-length"), got.body.as_str()), (Some("0"), ""));
        }
    }
}

#[test]
fn a_redirect_to_nowhere_is_no_redirect() {
    let scene = Scene::new("[[route]]\nredirect = { to = \"https://$tls.sni$path\" }\n");
    for spoken in BOTH {
        let got = scene.answer(spoken, &get("/evil.example/x"));
        assert_eq!((got.status, got.field("location")), (400, None), "{spoken:?}");
    }
}

#[test]
fn every_answer_is_called_by_its_own_request() {
    let scene = Scene::new(
        "[[route]]\nrespond = { status = 200, body = \"in\" }\nresponse_headers = { set = { X-Id = \"$request_id\" } }\n",
    );
    let SceneClient::One(mut peer) = scene.client(Spoken::Http1) else { unreachable!() };
    let mut ids = Vec::new();
    for method in ["GET", "OPTIONS", "GET", "OPTIONS"] {
        peer.sends(format!("{method} / HTTP/1.1\r\nHost: test\r\nMax-Forwards: 0\r\n\r\n"));
        let head = peer.message().head;
        let id = head.split("X-Id: ").nth(1).and_then(|rest| rest.split('\r').next());
        let id = id.unwrap_or_else(|| panic!("{method} has no name: {head}")).to_owned();
        assert_eq!(id.len(), 32, "{id}");
        assert!(!ids.contains(&id), "{method}");
        ids.push(id);
    }
}

#[test]
fn fixed_responses() {
    let long = "x".repeat(100_000);
    let scene = Scene::with_files(
        &[("long.txt", &long)],
        r#"
[[route]]
respond = { status = 200, body = "{\"a\":1}", content_type = "application/json" }
response_headers = { set = { X-Own = "$status" }, remove = ["Date"] }
[[route]]
path = "/none"
respond = { status = 204 }
[[route]]
path = "/long"
respond = { status = 404, file = "{dir}/long.txt" }
"#,
    );
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        let got = client.asks_for(&get("/"));
        assert_eq!((got.status, got.body.as_str()), (200, "{\"a\":1}"), "{spoken:?}");
        assert_eq!(got.field("content-type"), Some("application/json"));
        assert_eq!((got.field("x-own"), got.field("date")), (Some("200"), None));
        let got = client.asks_for(&get("/none"));
        assert_eq!((got.status, got.field("content-length")), (204, None), "{spoken:?}");
        let got = client.asks_for(&get("/long"));
        assert_eq!((got.status, got.body.len()), (404, long.len()), "{spoken:?}");
    }
    // HEAD gets the same head, without a body.
    let SceneClient::One(mut peer) = scene.client(Spoken::Http1) else { unreachable!() };
    peer.sends("HEAD / HTTP/1.1\r\nHost: test\r\n\r\nHEAD /long HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(peer.head().contains("\r\nContent-Length: 7\r\n"));
    assert!(peer.head().contains("\r\nContent-Length: 100000\r\n"));
    peer.half_closes();
    peer.gets_the_end();
    let mut client = scene.client(Spoken::Http2);
    let got = client.asks_for(&BodylessRequest { method: "HEAD", ..get("/long") });
    assert_eq!((got.field("content-length"), got.body.as_str()), (Some("100000"), ""));
}

#[test]
fn pages_for_errors() {
    let scene = Scene::with_files(
        &[("403.html", "<p>no</p>"), ("any.html", "<p>oh</p>")],
        r#"
error_pages = { "4xx" = "{dir}/any.html", "5xx" = "{dir}/any.html" }
[[route]]
host = "test"
respond = { status = 200, body = "in" }
deny = ["127.0.0.1"]
error_pages = { 403 = "{dir}/403.html" }
response_headers = { set = { X-Own = "$status $path" } }
[[route]]
host = "down"
upstream = "down"
[[route]]
host = "gone"
respond = { status = 410 }
[[route]]
host = "empty"
respond = { status = 201 }
[[route]]
host = "said"
respond = { status = 410, body = "said" }
[upstream.down]
servers = ["http://127.0.0.1:1"]
"#,
    );
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        // An error without a body has its page.
        for (host, status, body) in [("gone", 410, "<p>oh</p>"), ("empty", 201, ""), ("said", 410, "said")] {
            let got = client.asks_for(&BodylessRequest { host, ..get("/") });
            assert_eq!((got.status, got.body.as_str()), (status, body), "{spoken:?} {host}");
            let is_page = got.field("content-type").is_some_and(|found| found.starts_with("text/html"));
            assert_eq!(is_page, host == "gone", "{spoken:?} {host}");
        }
        let got = client.asks_for(&get("/a"));
        assert_eq!((got.status, got.body.as_str()), (403, "<p>no</p>"), "{spoken:?}");
        assert_eq!(got.field("content-type").map(|found| found.starts_with("text/html")), Some(true));
        assert_eq!(got.field("x-own"), Some("403 /a"), "edits reach our own words");
        let got = client.asks_for(&BodylessRequest { host: "down", ..get("/") });
        assert_eq!((got.status, got.body.as_str()), (502, "<p>oh</p>"), "{spoken:?}");
        let got = client.asks_for(&BodylessRequest { host: "nowhere", ..get("/") });
        assert_eq!((got.status, got.body.as_str()), (404, "<p>oh</p>"), "{spoken:?}");
    }
}

const REPLACED: &str = r#"
error_pages = { "5xx" = "{dir}/5xx.html" }
[[route]]
upstream = "app"
error_pages = { 404 = "{dir}/404.html" }
replace_errors = true
response_headers = { set = { X-Own = "$status" }, remove = ["X-Powered-By"] }
[[route]]
path = "/as-it-is"
upstream = "app"
[upstream.app]
servers = ["http://{0}"]
"#;

#[test]
fn pages_stand_in_for_errors_of_servers() {
    let files = [("404.html", "<p>not here</p>"), ("5xx.html", "<p>later</p>")];
    let busy = "HTTP/1.1 503 Busy\r\nDate: D\r\nRetry-After: 7\r\nX-Powered-By: y\r\nETag: \"a\"\r\n\
                Content-Language: en\r\nContent-Security-Policy: p\r\n";
    let missing = "HTTP/1.1 404 Not Found\r\nDate: D\r\nContent-Length: 3\r\n\r\nno!";
    let gone = "HTTP/1.1 410 Gone\r\nDate: D\r\nETag: \"a\"\r\nContent-Length: 3\r\n\r\nno!";
    for spoken in BOTH {
        let scene = Scene::with_files(&files, REPLACED);
        let mut client = scene.client(spoken);
        let mut server = None;
        // Each over the previous connection: the server's own body, if it has arrived, is read.
        for (target, response, status, body) in [
            ("/", format!("{busy}Content-Length: 2\r\n\r\nno"), 503, "<p>later</p>"),
            (
                "/",
                format!("{busy}Transfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n"),
                503,
                "<p>later</p>",
            ),
            ("/", missing.to_owned(), 404, "<p>not here</p>"),
            ("/", gone.to_owned(), 410, "no!"),
            ("/as-it-is", missing.to_owned(), 404, "no!"),
        ] {
            client.asks(&get(target));
            let server = server.get_or_insert_with(|| scene.accept(0));
            server.head();
            server.sends(&response);
            let got = client.gets();
            assert_eq!((got.status, got.body.as_str()), (status, body), "{spoken:?} {response}");
            if status == 503 {
                assert_eq!((got.field("retry-after"), got.field("x-own")), (Some("7"), Some("503")));
                assert_eq!(
                    got.field("content-security-policy"),
                    Some("p"),
                    "it is about what shows the page"
                );
                assert_eq!(got.field("content-type").map(|of| of.starts_with("text/html")), Some(true));
                for name in ["etag", "content-language", "x-powered-by", "transfer-encoding"] {
                    assert_eq!(got.field(name), None, "{spoken:?} {name}");
                }
                assert!(got.field("via").is_some());
            }
        }
        client.asks(&BodylessRequest { method: "HEAD", ..get("/") });
        let mut server = server.expect("it is connected");
        server.head();
        server.sends(format!("{busy}Content-Length: 1000\r\n\r\n"));
        assert_eq!(client.gets_head_alone().field("content-length"), Some("12"), "{spoken:?}");
        // The unused body is not awaited.
        client.asks(&get("/"));
        server.head();
        server.sends(format!("{busy}Content-Length: 1000\r\n\r\nthe beginning"));
        assert_eq!(client.gets().body, "<p>later</p>", "{spoken:?}");
        server.is_closed();
    }
}

#[test]
fn an_error_has_the_text_of_its_status() {
    let scene = Scene::new(
        "error_pages = { \"*\" = { body = \"all {status}\" }, 404 = { body = \"<p>{status}\", content_type = \"text/html\" } }\n\
         [[route]]\npath = \"/gone\"\nrespond = { status = 410 }\n[[route]]\npath = \"/lost\"\nrespond = { status = 404 }\n",
    );
    for spoken in BOTH {
        for (target, status, content_type, body) in [
            ("/gone", 410, "text/plain; charset=utf-8", "all 410"),
            ("/lost", 404, "text/html", "<p>404"),
            ("/nowhere", 404, "text/html", "<p>404"),
        ] {
            let got = scene.answer(spoken, &get(target));
            assert_eq!((got.status, got.body.as_str()), (status, body), "{target}");
            assert_eq!(got.field("content-type"), Some(content_type), "{target}");
        }
    }
}

#[test]
fn a_redirect_may_lead_to_a_part_of_the_requested_host() {
    let scene = Scene::new(
        "[[route]]\nvalues = { bare = 'request.host.replaceFirst(\"^te\", \"\")' }\n\
         redirect = { to = \"https://${bare}$path_and_query\", status = 301 }\n",
    );
    for spoken in BOTH {
        let got = scene.answer(spoken, &get("/a?b"));
        assert_eq!((got.status, got.field("location")), (301, Some("https://st/a?b")));
    }
}

#[test]
fn a_signed_link_is_judged_by_its_digest_and_its_end() {
    let scene = Scene::new(
        "[[route]]\nwhen = 'request.query[\"s\"] == (request.path + (request.query[\"e\"] ?? \"\") + \"secret\").hash(\"md5\", \"base64url\") \
         && (int(request.query[\"e\"] ?? \"\") ?? 0) > int(time)'\nrespond = { status = 200 }\n\
         [[route]]\nrespond = { status = 403 }\n",
    );
    for spoken in BOTH {
        for (target, status) in [
            ("/a?e=99999999999&s=SIGNED", 200),
            ("/b?e=99999999999&s=SIGNED", 403),
            ("/a?e=99999999998&s=SIGNED", 403),
            ("/a?e=1&s=ENDED", 403),
            ("/a", 403),
        ] {
            let target = target.replace("SIGNED", SIGNED).replace("ENDED", ENDED);
            assert_eq!(scene.answer(spoken, &get(&target)).status, status, "{target}");
        }
    }
}

/// The digests of `/a99999999999secret` and `/a1secret`.
const SIGNED: &str = "BOyUdEXHpifhnL547q96yA";
const ENDED: &str = "3s381i2wUXtLDyY0cDKK2w";
