//! Options with conditions, on the request, on the user, and on the response.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use testkit::scene::{BOTH, BodylessRequest, Scene, Spoken, get, read};
use testkit::tokens::{Issuer, key_set};
use testkit::wait::holds_soon;

use super::asked::USERS;

fn line<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = head.lines().filter_map(|line| line.split_once(": "));
    pairs.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// The credentials of the user `me`.
fn me() -> String {
    format!("authorization: Basic {}\n", BASE64_STANDARD.encode("me:secret"))
}

fn response(status: &str, fields: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nDate: D\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

const EDITED: &str = r#"
[[route]]
upstream = "app"
[[route.request_headers]]
set = { X-Mode = "plain" }
remove = ["X-Gone"]
[[route.request_headers]]
when = '"1" in request.headers["x-beta"]'
set = { X-Mode = "beta" }
remove = ["X-Secret"]
[[route.request_headers]]
when = 'upstream.name == "app" && (server.name ?? "").contains("127.0.0.1")'
add = { X-Upstream = "$upstream" }
[[route.response_headers]]
set = { Cache-Control = "max-age=60" }
[[route.response_headers]]
when = 'response.status >= 500 && response.headers["x-kind"] == "html" && response.size == 3'
set = { Cache-Control = "no-store" }
default = { X-Error = "$status" }
[[route.response_headers]]
when = 'server.name != "" && response.time < duration("1h") && !has(cache.status)'
set = { X-Server-Asked = "yes" }
[[route]]
path = "/own"
respond = { status = 503, body = "closed" }
response_headers = [
  { when = 'response.status == 503 && !has(server.name)', set = { Retry-After = "5" } },
  { when = 'response.status == 404', set = { X-Wrong = "1" } },
]
[upstream.app]
servers = ["http://{0}"]
"#;

#[test]
fn edits_apply_where_their_conditions_hold() {
    for spoken in BOTH {
        let scene = Scene::new(EDITED);
        for (fields, mode, secret) in
            [("x-gone: 1\nx-secret: s\n", "plain", Some("s")), ("x-beta: 1\nx-secret: s\n", "beta", None)]
        {
            for (status, kind, control, error) in [
                ("200 OK", "X-Kind: html\r\n", "max-age=60", None),
                ("500 Broken", "X-Kind: html\r\n", "no-store", Some("500")),
                ("500 Broken", "X-Kind: text\r\n", "max-age=60", None),
                ("502 Broken", "X-Kind: html\r\nX-Error: own\r\n", "no-store", Some("own")),
            ] {
                let asked = BodylessRequest { fields, ..get("/") };
                let answer = response(
                    status,
                    &format!("Connection: close\r\nCache-Control: private\r\n{kind}"),
                    "abc",
                );
                let (seen, got) = scene.exchange(spoken, &asked, &answer);
                assert_eq!(line(&seen, "x-mode"), Some(mode), "{spoken:?} {seen}");
                assert_eq!(line(&seen, "x-secret"), secret, "{spoken:?} {seen}");
                assert_eq!((line(&seen, "x-gone"), line(&seen, "x-upstream")), (None, Some("app")), "{seen}");
                assert_eq!(got.all("cache-control"), [control], "{spoken:?} {status} {kind}");
                assert_eq!(got.field("x-error"), error, "{spoken:?} {status} {kind}");
                assert_eq!(got.field("x-server-asked"), Some("yes"), "{spoken:?} {status}");
            }
        }
        let got = scene.answer(spoken, &get("/own"));
        assert_eq!((got.status, got.field("retry-after"), got.field("x-wrong")), (503, Some("5"), None));
    }
}

/// A failure has the edits of its status, too.
#[test]
fn edits_see_the_status_of_a_failure() {
    for spoken in BOTH {
        let scene = Scene::new(
            "[[route]]\nupstream = \"app\"\ndeny = [\"127.0.0.0/8\"]\n\
             response_headers = { when = 'response.status == 403 && request.path == \"/a\"', set = { X-Why = \"net\" } }\n\
             [upstream.app]\nservers = [\"http://127.0.0.1:9\"]\n",
        );
        for (target, why) in [("/a", Some("net")), ("/b", None)] {
            let got = scene.answer(spoken, &get(target));
            assert_eq!((got.status, got.field("x-why")), (403, why), "{spoken:?} {target}");
        }
    }
}

const DENIED: &str = r#"
[[route]]
upstream = "app"
allow = ["127.0.0.0/8"]
deny = [
  "192.0.2.0/24",
  { when = 'request.path.endsWith(".php")', status = 404 },
  { when = '(request.headers["user-agent"] ?? "").matches("(?i)bot|spider") && request.version != "1.0"' },
]
auth = { users = "{dir}/users" }
rate_limit = { rate = "2/h", key = "route" }
error_pages = { 404 = "{dir}/page.html" }
[[route]]
path = "/one"
upstream = "app"
deny = { when = 'request.method == "DELETE"', status = 451 }
[upstream.app]
servers = ["http://{0}"]
"#;

#[test]
fn a_request_is_denied_by_a_condition() {
    let closing = response("200 OK", "Connection: close\r\n", "ok");
    for spoken in BOTH {
        let scene = Scene::with_files(&[("users", USERS), ("page.html", "none here")], DENIED);
        // Before authentication, and without counting against a rate.
        for _ in 0..2 {
            let got = scene.answer(spoken, &get("/a.php"));
            assert_eq!((got.status, got.body.as_str()), (404, "none here"), "{spoken:?}");
            let bot = BodylessRequest { fields: "user-agent: a SpiDer\n", ..get("/") };
            let got = scene.answer(spoken, &bot);
            assert_eq!(
                (got.status, got.body.as_str()),
                (403, "This request is not allowed.\n"),
                "{spoken:?}"
            );
        }
        assert_eq!(scene.answer(spoken, &BodylessRequest { method: "DELETE", ..get("/one") }).status, 451);
        assert_eq!(scene.exchange(spoken, &get("/one"), &closing).1.status, 200);
        assert_eq!(scene.answer(spoken, &get("/")).status, 401, "{spoken:?}");
        assert_eq!(
            scene.exchange(spoken, &BodylessRequest { fields: &me(), ..get("/") }, &closing).1.status,
            200
        );
    }
}

const SPLIT: &str = r#"
[[route]]
split = { app = 1, canary = { weight = 1000000, when = '"beta" in request.cookies["group"]' } }
[[route]]
path = "/user"
auth = { users = "{dir}/users" }
split = { app = 1, canary = { weight = 1000000, when = 'client.user == "me" && request.method == "GET"' } }
sticky = { by = "cookie" }
[upstream.app]
servers = ["http://{0}"]
[upstream.canary]
servers = ["http://{1}"]
"#;

#[test]
fn only_requests_within_a_condition_take_part_in_a_split() {
    for spoken in BOTH {
        let scene = Scene::with_files(&[("users", USERS)], SPLIT);
        let beta = BodylessRequest { fields: "cookie: a=b; group=beta\n", ..get("/") };
        let mine = me();
        let user = BodylessRequest { fields: &mine, ..get("/user") };
        for (request, side) in
            [(get("/"), 0), (beta, 1), (user, 1), (BodylessRequest { method: "DELETE", ..user }, 0)]
        {
            for _ in 0..4 {
                let mut client = scene.client(spoken).asking(&request);
                let mut server = scene.accept(side);
                server.head();
                server.sends("HTTP/1.1 204 No Content\r\nDate: D\r\nConnection: close\r\n\r\n");
                assert_eq!(client.gets().status, 204, "{spoken:?} {request:?}");
            }
        }
    }
}

const COMPRESSED: &str = r#"
[[route]]
upstream = "app"
[route.compress]
min_size = 0
when = 'response.headers["x-code"] == "yes" && !("no" in request.headers["x-code"]) && response.status < 300'
[[route]]
path = "/own"
respond = { status = 200, body = "REPEATED" }
compress = { min_size = 0, when = 'response.status == 200 && request.query["code"] == "1"' }
[[route]]
path = "/file"
files = { root = "{dir}" }
compress = { min_size = 0, when = '(response.headers["content-type"] ?? "").startsWith("text/css") && response.size != 10' }
[upstream.app]
servers = ["http://{0}"]
"#;

#[test]
fn a_response_is_coded_where_the_condition_holds() {
    let text = COMPRESSED.replace("REPEATED", &"a".repeat(2000));
    let long = "b".repeat(2000);
    for spoken in BOTH {
        let scene = Scene::with_files(&[("a.css", &long), ("a.txt", &long)], &text);
        std::fs::create_dir(scene.file("file")).expect("it can be made");
        for name in ["a.css", "a.txt"] {
            std::fs::rename(scene.file(name), scene.file(&format!("file/{name}"))).expect("it is there");
        }
        for (fields, status, of_server, coding) in [
            ("", "200 OK", "X-Code: yes\r\n", Some("gzip")),
            ("", "200 OK", "", None),
            ("x-code: no\n", "200 OK", "X-Code: yes\r\n", None),
            ("", "404 Not Found", "X-Code: yes\r\n", None),
        ] {
            let fields = format!("accept-encoding: gzip\n{fields}");
            let answer = response(
                status,
                &format!("Content-Type: text/plain\r\nConnection: close\r\n{of_server}"),
                &long,
            );
            let mut client = scene.client(spoken);
            client.asks(&BodylessRequest { fields: &fields, method: "HEAD", ..get("/") });
            let mut server = scene.accept(0);
            server.head();
            let head = answer.split("\r\n\r\n").next().unwrap_or_default();
            server.sends(format!("{head}\r\n\r\n"));
            let got = client.gets_head_alone();
            assert_eq!(got.field("content-encoding"), coding, "{spoken:?} {fields} {of_server}");
        }
        for (target, coding) in [
            ("/own?code=1", Some("gzip")),
            ("/own?code=0", None),
            ("/file/a.css", Some("gzip")),
            ("/file/a.txt", None),
        ] {
            let mut client = scene.client(spoken);
            client.asks(&BodylessRequest {
                fields: "accept-encoding: gzip\n",
                method: "HEAD",
                ..get(target)
            });
            assert_eq!(client.gets_head_alone().field("content-encoding"), coding, "{spoken:?} {target}");
        }
    }
}

const LOGGED: &str = r#"
[log]
target = "{dir}/access.log"
format = "json"
[[route]]
upstream = "app"
access_log = { when = 'response.status >= 400 || response.headers["x-log"] == "yes" || (response.size ?? 0) > 5' }
[[route]]
path = "/user"
upstream = "app"
auth = { users = "{dir}/users" }
access_log = { when = 'client.user == "me" && upstream.name == "app" && has(server.name) && response.time < duration("1h")' }
[[route]]
path = "/denied"
upstream = "app"
deny = { when = 'true' }
access_log = { when = 'request.query["log"] == "1"' }
[[route]]
path = "/sampled"
upstream = "app"
access_log = { when = 'request.query["log"] == "1"', share = "0%" }
[upstream.app]
servers = ["http://{0}"]
"#;

/// Returns the logged targets after the talk, sorted.
fn targets(scene: Scene, talk: impl FnOnce(&Scene)) -> Vec<String> {
    talk(&scene);
    let (running, directory) = scene.into_parts();
    running.drain();
    running.wait();
    let text = std::fs::read_to_string(directory.path().join("access.log")).expect("the log is there");
    let target = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("is JSON");
        format!("{} {}", line["target"].as_str().unwrap_or_default(), line["status"])
    };
    let mut targets: Vec<String> = text.lines().map(target).collect();
    targets.sort_unstable();
    targets
}

#[test]
fn only_requests_within_the_condition_of_the_log_are_logged() {
    for spoken in BOTH {
        let scene = Scene::with_files(&[("users", USERS)], LOGGED);
        let logged = targets(scene, |scene| {
            let closing = "Connection: close\r\n";
            for (target, status, fields, body) in [
                ("/a", "200 OK", "", "ok"),
                ("/b", "404 Not Found", "", "ok"),
                ("/c", "200 OK", "X-Log: yes\r\n", "ok"),
                ("/d", "200 OK", "X-Log: no\r\n", "long body"),
            ] {
                let answer = response(status, &format!("{closing}{fields}"), body);
                scene.exchange(spoken, &get(target), &answer);
            }
            let answer = response("200 OK", closing, "ok");
            scene.exchange(spoken, &BodylessRequest { fields: &me(), ..get("/user") }, &answer);
            assert_eq!(scene.answer(spoken, &get("/user/unknown")).status, 401);
            // Not even failures outside the condition.
            assert_eq!(scene.answer(spoken, &get("/denied?log=0")).status, 403);
            assert_eq!(scene.answer(spoken, &get("/denied?log=1")).status, 403);
            // Within the condition the share counts, and failures are all logged.
            scene.exchange(spoken, &get("/sampled?log=1"), &answer);
            for target in ["/sampled/bad?log=1", "/sampled/bad?log=0"] {
                scene.exchange(spoken, &get(target), &response("500 Broken", closing, ""));
            }
        });
        assert_eq!(
            logged,
            ["/b 404", "/c 200", "/d 200", "/denied?log=1 403", "/sampled/bad?log=1 500", "/user 200"],
            "{spoken:?}"
        );
    }
}

const USERS_ONLY: &str = r#"
metrics = "127.0.0.1:0"
[route_defaults]
jwt = { keys = "{dir}/keys.json" }
[[route]]
upstream = "app"
rate_limit = { rate = "1/h", key = "user", when = '!("admin" in jwt.claims["roles"])' }
mirror = { upstream = "shadow", when = 'client.user == "ann"' }
request_headers = { when = 'jwt.claims["account.plan"] == "gold"', set = { X-Plan = "gold" } }
response_headers = { when = '"admin" in jwt.claims.roles', set = { X-Role = "admin" } }
[upstream.app]
servers = ["http://{0}"]
[upstream.shadow]
servers = ["http://{1}"]
"#;

#[test]
fn conditions_see_the_user_and_the_claims_of_a_verified_token() {
    let issuer = Issuer::new("a");
    let ann = issuer.token(r#""sub":"ann","roles":["user","admin"],"account":{"plan":"gold"}"#);
    let bob = issuer.token(r#""sub":"bob","roles":["user"],"account":{"plan":"free"}"#);
    let closing = response("200 OK", "Connection: close\r\n", "ok");
    for spoken in BOTH {
        let scene = Scene::with_files(&[("keys.json", &*key_set(&[&issuer]))], USERS_ONLY);
        // Twice: the second time the token is remembered.
        for _ in 0..2 {
            let fields = format!("authorization: Bearer {ann}\nx-plan: forged\n");
            let (seen, got) =
                scene.exchange(spoken, &BodylessRequest { fields: &fields, ..get("/ann") }, &closing);
            assert_eq!(
                (line(&seen, "x-plan"), got.field("x-role")),
                (Some("gold"), Some("admin")),
                "{spoken:?}"
            );
            let mut copy = scene.accept(1);
            let copied = copy.head();
            assert!(copied.starts_with("GET /ann ") && line(&copied, "x-plan") == Some("gold"), "{copied}");
            copy.sends(&closing);
        }
        let fields = format!("authorization: Bearer {bob}\n");
        let asked = BodylessRequest { fields: &fields, ..get("/bob") };
        let (seen, got) = scene.exchange(spoken, &asked, &closing);
        assert_eq!((line(&seen, "x-plan"), got.field("x-role")), (None, None), "{spoken:?}");
        assert_eq!(scene.answer(spoken, &asked).status, 429, "{spoken:?}: only admins are not counted");
        assert!(scene.try_accept(1).is_none(), "{spoken:?}: only requests of ann are copied");
    }
}

#[test]
fn a_reload_changes_conditions() {
    let text = |when: &str| {
        format!(
            "workers = 2\n[[route]]\nupstream = \"app\"\ndeny = {{ when = 'request.path.matches(\"{when}\")' }}\n\
             response_headers = {{ when = 'request.path.matches(\"{when}$\")', set = {{ X-Hit = \"1\" }} }}\n\
             [upstream.app]\nservers = [\"http://127.0.0.1:9\"]\n[[listen]]\naddress = \"127.0.0.1:0\"\n"
        )
    };
    let scene = Scene::new(
        &text("^/a+$").replace("workers = 2\n", "").replace("[[listen]]\naddress = \"127.0.0.1:0\"\n", ""),
    );
    let status = |target: &str| scene.answer(Spoken::Http1, &get(target)).status;
    assert_eq!((status("/aa"), status("/b")), (403, 502));
    scene.running().reload(read(&text("^/b+$"))).expect("is valid");
    // Connections take the new plan with their next request.
    assert!(holds_soon(|| (status("/aa"), status("/b")) == (502, 403)));
}
