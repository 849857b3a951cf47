//! The request ID and the user in the access log.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use testkit::scene::{BOTH, BodylessRequest, Scene, get};
use testkit::text::OK;

use super::asked::USERS;

const ROUTES: &str = r#"
trusted_proxies = ["127.0.0.1"]
[log]
target = "{dir}/access.log"
format = "json"
mask = ["token"]

[[route]]
path = "/named"
upstream = "app"
request_headers = { set = { X-Request-Id = "$request_id" } }
[[route]]
path = "/passed"
upstream = "app"
[[route]]
path = "/stripped"
upstream = "app"
request_headers = { remove = ["X-Request-Id"] }
[[route]]
path = "/guarded"
upstream = "app"
auth = { users = "{dir}/users" }
request_headers = { set = { X-User = "$user" } }
response_headers = { set = { X-User = "$user" } }
[upstream.app]
servers = ["http://{0}"]
"#;

/// Returns the log lines of requests in the order of their targets, because each worker writes separately.
fn logged(scene: Scene, talk: impl FnOnce(&Scene)) -> Vec<Value> {
    talk(&scene);
    let (running, directory) = scene.into_parts();
    running.drain();
    running.wait();
    let text = std::fs::read_to_string(directory.path().join("access.log")).expect("the log is there");
    let mut lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("is JSON")).collect();
    lines.sort_by_key(|line| line["target"].as_str().map(str::to_owned));
    lines
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
}

#[test]
fn a_line_has_the_name_that_the_server_knows_the_request_by() {
    for spoken in BOTH {
        let mut seen = Vec::new();
        let lines = logged(Scene::with_files(&[("users", USERS)], ROUTES), |scene| {
            for (target, fields) in [
                ("/named?a=1&token=secret", "referer: http://from/?token=secret\n"),
                ("/named?b", "x-request-id: brought\n"),
                ("/passed?c", "x-request-id: passed\n"),
                ("/passed?d", ""),
                ("/stripped?e", "x-request-id: removed\n"),
            ] {
                seen.push(scene.exchange(spoken, &BodylessRequest { fields, ..get(target) }, OK).0);
            }
        });
        for (line, seen) in lines.iter().zip(&seen) {
            let told = field(seen, "x-request-id");
            assert_eq!(line["request_id"].as_str(), told, "{spoken:?} {line} {seen}");
            assert_eq!((&line["scheme"], &line["user"]), (&"http".into(), &Value::Null), "{line}");
        }
        let named: Vec<bool> = lines.iter().map(|line| line["request_id"].is_string()).collect();
        assert_eq!(named, [true, true, true, false, false], "{lines:#?}");
        assert_eq!(lines[1]["request_id"], "brought");
        // The server receives what the log masks.
        assert!(seen[0].contains("/named?a=1&token=secret "), "{}", seen[0]);
        assert_eq!(lines[0]["target"], "/named?a=1&token=***");
        assert_eq!(lines[0]["referer"], "http://from/?token=***");
    }
}

#[test]
fn a_line_and_the_server_have_the_user_who_gave_the_right_password() {
    for spoken in BOTH {
        let lines = logged(Scene::with_files(&[("users", USERS)], ROUTES), |scene| {
            let authorization =
                |text: &str| format!("authorization: Basic {}\n", BASE64_STANDARD.encode(text));
            // The first password is verified, the second is remembered.
            for target in ["/guarded?a", "/guarded?b"] {
                let fields = authorization("me:secret") + "x-user: root\n";
                let asked = BodylessRequest { fields: &fields, ..get(target) };
                let (seen, got) = scene.exchange(spoken, &asked, OK);
                assert_eq!(field(&seen, "x-user"), Some("me"), "{spoken:?} {seen}");
                assert_eq!(got.field("x-user"), Some("me"), "{spoken:?} {got:?}");
            }
            let fields = authorization("me:wrong");
            let got = scene.answer(spoken, &BodylessRequest { fields: &fields, ..get("/guarded?c") });
            assert_eq!((got.status, got.field("x-user")), (401, None), "{got:?}");
        });
        let users: Vec<&Value> = lines.iter().map(|line| &line["user"]).collect();
        // An unproven user is not logged.
        assert_eq!(users, [&Value::from("me"), &Value::from("me"), &Value::Null], "{lines:#?}");
    }
}

#[test]
fn a_route_can_be_left_out_of_the_log() {
    const ROUTES: &str = r#"
[log]
target = "{dir}/access.log"
format = "json"
[route_defaults]
access_log = false
[[route]]
path = "/quiet"
upstream = "app"
[[route]]
path = "/refused"
respond = { status = 200 }
deny = ["127.0.0.1"]
[[route]]
path = "/told"
upstream = "app"
access_log = true
[upstream.app]
servers = ["http://{0}"]
"#;
    for spoken in BOTH {
        let lines = logged(Scene::new(ROUTES), |scene| {
            scene.exchange(spoken, &get("/quiet"), OK);
            scene.exchange(spoken, &get("/told"), OK);
            assert_eq!(scene.answer(spoken, &get("/refused")).status, 403);
            // No route matches.
            assert_eq!(scene.answer(spoken, &get("/none")).status, 404);
        });
        let targets: Vec<&str> = lines.iter().filter_map(|line| line["target"].as_str()).collect();
        assert_eq!(targets, ["/none", "/told"], "{spoken:?}");
    }
}
