//! Changes of requests and responses by a route.

use testkit::http2::frame::{data, headers, last_headers};
use testkit::scene::{BOTH, BodylessRequest, Scene, SceneClient, Spoken, get};
use testkit::text::OK;

fn line<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = head.lines().filter_map(|line| line.split_once(": "));
    pairs.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

const REWRITTEN: &str = r#"
[[route]]
path = "/api"
upstream = "app"
rewrite = { path = "/v1", host = "$arg.tenant.internal" }
cookies = { domain = { "app.internal" = "shop.example" }, secure = true }

[[route]]
path = "~ /user/(\\d+)/(?<what>.*)"
upstream = "app"
rewrite = { path = "/$capture.what?id=$1", host = "u$1.internal" }
request_headers = { set = { X-User = "$1" } }

[upstream.app]
servers = ["http://{0}"]
"#;

#[test]
fn paths_and_hosts_are_other_ones_for_servers() {
    for spoken in BOTH {
        let scene = Scene::new(REWRITTEN);
        for (target, start, host) in [
            ("/api/a%20b?tenant=x", "GET /v1/a%20b?tenant=x HTTP/1.1\r\n", "x.internal"),
            ("/user/7/cart", "GET /cart?id=7 HTTP/1.1\r\n", "u7.internal"),
        ] {
            let (seen, got) =
                scene.exchange(spoken, &BodylessRequest { host: "shop.example", ..get(target) }, CLOSED);
            assert!(seen.starts_with(start), "{spoken:?}: {seen}");
            assert_eq!(line(&seen, "host"), Some(host));
            assert_eq!(line(&seen, "x-forwarded-host"), Some("shop.example"), "as the client asked");
            assert_eq!(got.status, 200);
            if target.starts_with("/user") {
                assert_eq!(line(&seen, "x-user"), Some("7"));
            }
        }
        // Without a tenant, the host would be empty.
        assert_eq!(scene.answer(spoken, &get("/api/x?tenant=a%2Fb")).status, 400);
        assert_eq!(scene.answer(spoken, &get("/user/7/..%2Fx")).status, 400);
    }
}

/// Closes the connection, so that the next request needs a new one.
const CLOSED: &str = "HTTP/1.1 200 OK\r\nDate: D\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn urls_and_cookies_of_servers_are_those_of_clients() {
    for spoken in BOTH {
        let scene = Scene::new(REWRITTEN);
        let server = scene.server_address(0);
        let response = format!(
            "HTTP/1.1 302 Found\r\nDate: D\r\nLocation: http://{server}/v1/login?x\r\n\
             Content-Location: http://x.internal/v1/y\r\nRefresh: 5; URL=/v1/z\r\n\
             Set-Cookie: a=b; Path=/v1/p; Domain=.app.internal\r\nX-Other: http://{server}/v1\r\n\
             Set-Cookie: c=d; secure\r\nContent-Length: 0\r\n\r\n"
        );
        let asked = BodylessRequest { host: "shop.example:81", ..get("/api/x?tenant=x") };
        let (_, got) = scene.exchange(spoken, &asked, &response);
        assert_eq!(got.status, 302);
        assert_eq!(got.field("location"), Some("http://shop.example:81/api/login?x"), "{spoken:?}");
        assert_eq!(got.field("content-location"), Some("http://shop.example:81/api/y"));
        assert_eq!(got.field("refresh"), Some("5; URL=/api/z"));
        assert_eq!(
            got.all("set-cookie"),
            ["a=b; Path=/api/p; Domain=shop.example; Secure", "c=d; secure"],
            "in their order"
        );
        assert_eq!(got.field("x-other"), Some(format!("http://{server}/v1").as_str()));
    }
}

const EDITED: &str = r#"
trusted_proxies = ["192.0.2.0/24"]
[[route]]
name = "main"
upstream = "app"
[route.request_headers]
set = { X-Client = "$client_address", X-Path = "$path_and_query", X-Server = "$upstream $server", X-Request-Id = "$request_id" }
add = { X-Tag = "b" }
remove = ["X-Secret", "X-Forwarded-Host"]
[route.response_headers]
set = { X-Status = "$status $route", X-Request-Id = "$request_id", Server = "" }
add = { Vary = "Accept" }
remove = ["X-Powered-By"]

[upstream.app]
servers = ["http://{0}"]
"#;

#[test]
fn fields_are_set_added_and_removed() {
    for spoken in BOTH {
        let scene = Scene::new(EDITED);
        let fields = "x-client: forged\nx-secret: 1\nx-tag: a\nx-request-id: forged\nx-kept: k\n";
        let response = "HTTP/1.1 201 Created\r\nDate: D\r\nServer: x\r\nX-Powered-By: y\r\nVary: Cookie\r\nX-Status: 1\r\n\
                        Content-Length: 2\r\n\r\nok";
        let (seen, got) = scene.exchange(spoken, &BodylessRequest { fields, ..get("/a?b") }, response);
        let server = format!("app {}", scene.server_address(0));
        for (name, value) in [
            ("x-client", Some("127.0.0.1")),
            ("x-path", Some("/a?b")),
            ("x-server", Some(server.as_str())),
            ("x-secret", None),
            ("x-forwarded-host", None),
            ("x-forwarded-for", Some("127.0.0.1")),
            ("x-kept", Some("k")),
        ] {
            assert_eq!(line(&seen, name), value, "{spoken:?} {name}: {seen}");
        }
        let tags = seen.lines().filter(|line| line.to_lowercase().starts_with("x-tag: ")).count();
        assert_eq!(tags, 2);
        assert!(!seen.contains("forged"), "{seen}");
        let id = line(&seen, "x-request-id").expect("has a name");
        assert_eq!((id.len(), got.field("x-request-id")), (32, Some(id)), "one name both ways");
        assert_eq!(got.status, 201);
        assert_eq!(got.field("x-status"), Some("201 main"));
        assert_eq!((got.field("server"), got.field("x-powered-by")), (None, None));
        assert_eq!(got.all("vary"), ["Cookie", "Accept"]);
        assert!(got.field("via").is_some());
        assert_eq!(got.body, "ok");
    }
}

#[test]
fn what_is_removed_is_in_no_trailer_and_no_interim_response() {
    for spoken in BOTH {
        let scene = Scene::new(EDITED);
        let mut client = scene.client(spoken);
        match &mut client {
            SceneClient::One(peer) => peer.sends(
                "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n\
                 1\r\na\r\n0\r\nx-kept: k\r\nx-secret: 1\r\nx_client: forged\r\n\r\n",
            ),
            SceneClient::Two(end, stream) => {
                let head = ":method: POST\n:scheme: http\n:authority: test\n:path: /\n";
                let trailers = "x-kept: k\nx-secret: 1\nx_client: forged\n";
                let frames = [headers(*stream, head), data(*stream, "a"), last_headers(*stream, trailers)];
                end.sends(frames.concat());
            }
        }
        let mut server = scene.accept(0).after_head();
        server.gets(b"1\r\na\r\n0\r\nx-kept: k\r\n\r\n");
        server.sends(
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nX-Powered-By: y\r\nServer: x\r\n\r\n\
             HTTP/1.1 200 OK\r\nDate: D\r\nTransfer-Encoding: chunked\r\n\r\n\
             2\r\nok\r\n0\r\nx-kept: k\r\nX-Powered-By: y\r\nx-status: forged\r\n\r\n",
        );
        match &mut client {
            SceneClient::One(peer) => {
                let hints = peer.head();
                assert!(hints.contains("Link: </a>\r\n") && !hints.contains("X-Powered-By"), "{hints}");
                assert!(!hints.contains("Server"), "{hints}");
                peer.head();
                peer.gets(b"2\r\nok\r\n0\r\nx-kept: k\r\n\r\n");
            }
            SceneClient::Two(end, stream) => {
                let text = end.whole(*stream);
                assert!(text.contains("link: </a>\n") && text.ends_with("x-kept: k\n"), "{text}");
                assert!(
                    !["x-powered-by", "server", "forged"].iter().any(|name| text.contains(name)),
                    "{text}"
                );
            }
        }
    }
}

#[test]
fn request_ids_come_in_the_field_and_the_form_that_are_configured() {
    let with = |options: &str| format!("{EDITED}[request_id]\n{options}\n");
    let fields = "x-correlation-id: theirs\n";
    let id_of = |text: &str, fields: &str| {
        let scene = Scene::new(text);
        let (seen, _) = scene.exchange(Spoken::Http1, &BodylessRequest { fields, ..get("/") }, OK);
        line(&seen, "x-request-id").expect("has a name").to_owned()
    };
    let followed = with("header = \"X-Correlation-Id\"\nfollow = \"all\"");
    assert_eq!(id_of(&followed, fields), "theirs");
    assert_eq!(id_of(&followed, "x-request-id: other\n").len(), 32);
    assert_ne!(id_of(&with("header = \"X-Correlation-Id\""), fields), "theirs");
    let nobody = with("follow = \"nobody\"").replace("192.0.2.0/24", "127.0.0.1");
    assert_ne!(id_of(&nobody, "x-request-id: theirs\n"), "theirs");
    let uuid = id_of(&with("form = \"uuid7\""), "");
    assert!(uuid.len() == 36 && uuid.as_bytes()[14] == b'7', "{uuid}");
}

#[test]
fn a_trusted_proxy_says_who_asks_and_what_the_request_is_called() {
    for spoken in BOTH {
        let scene = Scene::new(&EDITED.replace("192.0.2.0/24", "127.0.0.1"));
        let fields = "x-forwarded-for: 203.0.113.9\nx-request-id: theirs\n";
        let (seen, got) = scene.exchange(spoken, &BodylessRequest { fields, ..get("/") }, OK);
        assert_eq!(line(&seen, "x-client"), Some("203.0.113.9"), "{spoken:?}");
        assert_eq!(line(&seen, "x-forwarded-for"), Some("203.0.113.9, 127.0.0.1"));
        assert_eq!(line(&seen, "x-request-id"), Some("theirs"));
        assert_eq!(got.field("x-request-id"), Some("theirs"));
    }
}
