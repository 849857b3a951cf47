//! Remembered decisions of authentication servers: which, for which clients, for how long; and a single question for
//! concurrent requests.

use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::http2::frame::{CANCEL, last_headers, reset};
use testkit::scene::{BOTH, BodylessRequest, Scene, SceneClient, Spoken, get};
use testkit::text::OK;
use testkit::wait::assert_soon;

use super::{assert_told, counting_server, server};

const REMEMBERED: &str = r#"
metrics = "127.0.0.1:0"
[[route]]
upstream = "app"
forward_auth = { upstream = "auth", copy_headers = "X-Auth-User", set_cookie = true, cache = { key = ["cookie:id", "path"], ttl = "1h" } }
[upstream.app]
servers = ["http://{app}"]
[upstream.auth]
servers = ["http://{auth}"]
"#;

fn config(app: &str, auth: &str) -> String {
    REMEMBERED.replace("{app}", app).replace("{auth}", auth)
}

const YES: &str = "HTTP/1.1 200 OK\r\nX-Auth-User: ann\r\nContent-Length: 0\r\n\r\n";
const NO: &str = "HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno";

/// Sends a request with these fields twice. Returns how many questions that took.
#[track_caller]
fn questions(
    scene: &Scene,
    spoken: Spoken,
    asked: &AtomicUsize,
    request: &BodylessRequest<'_>,
    status: u16,
) -> usize {
    let before = asked.load(Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!(scene.answer(spoken, request).status, status, "{request:?}");
    }
    asked.load(Ordering::Relaxed) - before
}

#[test]
fn a_decision_is_for_its_key() {
    for spoken in BOTH {
        let (auth, asked) = counting_server(YES);
        let scene = Scene::new(&config(&server(OK), &auth));
        for (target, fields, expected) in [
            ("/", "cookie: id=1\n", 1),
            ("/", "cookie: id=1; other=2\n", 0),
            ("/", "cookie: id=2\n", 1),
            ("/other", "cookie: id=1\n", 1),
            ("/other?query=1", "cookie: id=1\n", 0),
            ("/", "cookie: id=1; id=2\n", 1),
            // A client without credentials does not get another client's decision.
            ("/", "", 2),
            ("/", "cookie: idx=1\n", 2),
        ] {
            let request = BodylessRequest { fields, ..get(target) };
            assert_eq!(
                questions(&scene, spoken, &asked, &request, 200),
                expected,
                "{spoken:?} {target} {fields}"
            );
        }
        assert_told(&scene, &[("vanward_forward_auth_cached_total{route=\"/\"}", 8.0)]);
    }
}

#[test]
fn what_is_remembered_is_what_the_server_gets() {
    for spoken in BOTH {
        let scene = Scene::new(&config("{0}", &server(YES)));
        for _ in 0..2 {
            let fields = "cookie: id=1\nx-auth-user: root\n";
            let ok = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
            let (seen, got) = scene.exchange(spoken, &BodylessRequest { fields, ..get("/") }, ok);
            assert!(seen.contains("X-Auth-User: ann\r\n") && !seen.contains("root"), "{spoken:?} {seen}");
            assert_eq!(got.status, 200);
        }
    }
}

#[test]
fn an_answer_says_whether_and_how_long_it_counts() {
    for (answer, cache, status, expected) in [
        ("HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 0\r\n\r\n", "", 200, 2),
        ("HTTP/1.1 200 OK\r\nCache-Control: no-cache\r\nContent-Length: 0\r\n\r\n", "", 200, 2),
        ("HTTP/1.1 200 OK\r\nCache-Control: private, max-age=0\r\nContent-Length: 0\r\n\r\n", "", 200, 2),
        ("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 0\r\n\r\n", "", 200, 1),
        ("HTTP/1.1 200 OK\r\nSet-Cookie: id=2\r\nContent-Length: 0\r\n\r\n", "", 200, 2),
        (NO, "", 403, 2),
        (NO, ", negative_ttl = \"1h\"", 403, 1),
        (
            "HTTP/1.1 401 No\r\nSet-Cookie: state=1\r\nContent-Length: 0\r\n\r\n",
            ", negative_ttl = \"1h\"",
            401,
            2,
        ),
        ("HTTP/1.1 302 Go\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", ", negative_ttl = \"1h\"", 302, 2),
        ("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", ", negative_ttl = \"1h\"", 500, 2),
    ] {
        let (auth, asked) = counting_server(answer);
        let config = config(&server(OK), &auth).replace("ttl = \"1h\" }", &format!("ttl = \"1h\"{cache} }}"));
        let scene = Scene::new(&config);
        let request = BodylessRequest { fields: "cookie: id=1\n", ..get("/") };
        assert_eq!(questions(&scene, Spoken::Http1, &asked, &request, status), expected, "{answer}");
        // Nor longer than configured.
        let (auth, asked) = counting_server(answer);
        let scene = Scene::new(&config.replace("\"1h\"", "\"1ms\"").replace(&old(&config), &auth));
        let request = BodylessRequest { fields: "cookie: id=1\n", ..get("/") };
        assert_soon("it is asked about again", || {
            assert_eq!(scene.answer(Spoken::Http1, &request).status, status);
            asked.load(Ordering::Relaxed) > 1
        });
    }
}

/// Returns the address of the authentication server in a configuration.
fn old(config: &str) -> String {
    let (_, auth) = config.split_once("[upstream.auth]\nservers = [\"http://").expect("there is one");
    auth.split('"').next().unwrap_or_default().to_owned()
}

#[test]
fn a_crowd_asks_once() {
    let app = server(OK);
    for (answer, status, questions) in [
        (YES, 200, 1),
        (NO, 403, 1),
        ("HTTP/1.1 200 OK\r\nSet-Cookie: id=2\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 200, 4),
    ] {
        for spoken in BOTH {
            let scene = Scene::new(&config(&app, "{0}"));
            let mut clients: Vec<SceneClient> = (0..4).map(|_| scene.client(spoken)).collect();
            for client in &mut clients {
                client.asks(&BodylessRequest { fields: "cookie: id=1\n", ..get("/") });
            }
            let mut auth = scene.accept(0).after_head();
            assert_told(&scene, &[("vanward_forward_auth_waits_total{route=\"/\"}", 3.0)]);
            assert!(scene.try_accept(0).is_none(), "nobody else asks");
            auth.sends(answer);
            let mut peers = vec![auth];
            // A private answer holds for one client only: each asks.
            for _ in 1..questions {
                let peer = scene.accept(0);
                peers.push(peer);
            }
            for peer in &mut peers[1..] {
                peer.head();
                peer.sends(answer);
            }
            for client in &mut clients {
                assert_eq!(client.gets().status, status, "{spoken:?} {answer}");
            }
        }
    }
}

#[test]
fn if_who_asks_goes_another_one_asks() {
    let scene = Scene::new(&config(&server(OK), "{0}"));
    let fields = ":method: GET\n:scheme: http\n:authority: test\n:path: /\ncookie: id=1\n";
    let SceneClient::Two(mut first, _) = scene.client(Spoken::Http2) else { unreachable!() };
    first.sends(last_headers(1, fields));
    // Stays open, because a closed connection would cause a retry.
    let _unanswered = scene.accept(0).after_head();
    let mut second = scene.client(Spoken::Http1);
    second.asks(&BodylessRequest { fields: "cookie: id=1\n", ..get("/") });
    assert_told(&scene, &[("vanward_forward_auth_waits_total{route=\"/\"}", 1.0)]);
    first.sends(reset(1, CANCEL));
    let mut auth = scene.accept(0).after_head();
    auth.sends(YES);
    assert_eq!(second.gets().status, 200);
}

const STORED: &str = r#"
[cache]
memory = "8MiB"
[[route]]
path = "/told"
upstream = "app"
cache = {}
forward_auth = { upstream = "auth", copy_headers = "X-Auth-User" }
[[route]]
upstream = "app"
cache = {}
forward_auth = { upstream = "auth" }
[upstream.app]
servers = ["http://{0}"]
[upstream.auth]
servers = ["http://{1}"]
"#;

#[test]
fn what_is_stored_is_for_those_who_are_let_in() {
    for spoken in BOTH {
        for (path, control, is_stored) in [
            ("/plain", "max-age=60", true),
            // A response to one user is not shared, unless it says so.
            ("/told", "max-age=60", false),
            ("/told", "public, max-age=60", true),
            ("/told", "public, max-age=60\r\nVary: X-Auth-User", false),
        ] {
            let scene = Scene::new(STORED);
            let mut client = scene.client(spoken).asking(&get(path));
            let mut auth = scene.accept(1).after_head();
            auth.sends("HTTP/1.1 200 OK\r\nX-Auth-User: ann\r\nContent-Length: 0\r\n\r\n");
            let mut app = scene.accept(0);
            let answer = |body| {
                format!("HTTP/1.1 200 OK\r\nCache-Control: {control}\r\nContent-Length: 1\r\n\r\n{body}")
            };
            app.head();
            app.sends(answer("1"));
            assert_eq!(client.gets().body, "1", "{spoken:?} {path} {control}");
            client.asks(&get(path));
            auth.head();
            auth.sends("HTTP/1.1 200 OK\r\nX-Auth-User: bob\r\nContent-Length: 0\r\n\r\n");
            if !is_stored {
                app.head();
                app.sends(answer("2"));
            }
            assert_eq!(client.gets().body, if is_stored { "1" } else { "2" }, "{spoken:?} {path} {control}");
            client.asks(&get(path));
            auth.head();
            auth.sends(NO);
            assert_eq!(client.gets().status, 403, "{spoken:?} {path} {control}");
        }
    }
}

#[test]
fn a_reload_that_asks_the_same_remembers() {
    let (auth, asked) = counting_server(YES);
    let text = config(&server(OK), &auth);
    let scene = Scene::new(&text);
    let request = BodylessRequest { fields: "cookie: id=1\n", ..get("/") };
    assert_eq!(questions(&scene, Spoken::Http1, &asked, &request, 200), 1);
    let listen = "[[listen]]\naddress = \"127.0.0.1:0\"\n";
    let more = "[[route]]\npath = \"/more\"\nrespond = { status = 204 }\n";
    let same = format!("workers = 2\n{text}\n{more}\n{listen}");
    let other = same.replace("path\"]", "path\", \"method\"]");
    for (next, expected) in [(same, 0), (other, 1)] {
        scene.running().reload(testkit::scene::read(&next)).expect("is valid");
        assert_eq!(questions(&scene, Spoken::Http1, &asked, &request, 200), expected);
    }
}
