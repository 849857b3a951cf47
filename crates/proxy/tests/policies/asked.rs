//! Who may come in: by network, by rate, by password.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use testkit::scene::{Asked, BOTH, Scene, Spoken, get, read};
use testkit::text::OK;

#[test]
fn networks_are_let_in_and_denied() {
    let scene = Scene::new(
        r#"
trusted_proxies = ["127.0.0.1"]
[[route]]
respond = { status = 200, body = "in" }
allow = ["192.0.2.0/24"]
deny = ["192.0.2.128/25"]
"#,
    );
    for spoken in BOTH {
        // The connection goes on: nothing is wrong with it.
        let mut client = scene.client(spoken);
        for (forwarded, status) in [("192.0.2.7", 200), ("192.0.2.200", 403), ("203.0.113.9", 403)] {
            let fields = format!("x-forwarded-for: {forwarded}\n");
            let got = client.asks_for(&Asked { fields: &fields, ..get("/") });
            assert_eq!(got.status, status, "{spoken:?} {forwarded}");
        }
        assert_eq!(client.asks_for(&get("/")).body, "Clients from your network are not allowed.\n");
    }
}

#[test]
fn who_is_trusted_is_decided_anew_on_connections_that_are_there() {
    let config = |trusted: &str| {
        let route = "respond = { status = 200, body = \"in\" }\nallow = [\"192.0.2.0/24\"]\n";
        format!("trusted_proxies = [{trusted}]\n[[route]]\n{route}")
    };
    let scene = Scene::new(&config("\"127.0.0.1\""));
    let asked = Asked { fields: "x-forwarded-for: 192.0.2.7\n", ..get("/") };
    let mut clients = BOTH.map(|spoken| scene.client(spoken));
    for (trusted, status) in [(None, 200), (Some(""), 403), (Some("\"::ffff:127.0.0.0/104\""), 200)] {
        if let Some(trusted) = trusted {
            let listen = "[[listen]]\naddress = \"127.0.0.1:0\"\n";
            let next = format!("workers = 2\n{}{listen}", config(trusted));
            scene.running().reload(read(&next)).expect("is valid");
        }
        for (client, spoken) in clients.iter_mut().zip(BOTH) {
            assert_eq!(client.asks_for(&asked).status, status, "{spoken:?} {trusted:?}");
        }
    }
}

const LIMITED: &str = r#"
[[listen]]
address = "127.0.0.1:0"
[[route]]
name = "limited"
respond = { status = 204 }
rate_limit = { rate = "2/h", key = "header:X-Key" }
"#;

#[test]
fn a_rate_holds_over_workers_connections_and_reloads() {
    let scene = Scene::new(&LIMITED.replace("[[listen]]\naddress = \"127.0.0.1:0\"\n", ""));
    for (spoken, key) in BOTH.into_iter().zip(["one", "two"]) {
        let fields = format!("x-key: {key}\n");
        let asked = Asked { fields: &fields, ..get("/") };
        // A client each, so that both workers have to do with it.
        let statuses: Vec<u16> = (0..6).map(|_| scene.answer(spoken, &asked).status).collect();
        assert_eq!(statuses, [204, 204, 429, 429, 429, 429], "{spoken:?}");
        let got = scene.answer(spoken, &asked);
        let seconds: u64 = got.field("retry-after").expect("says when").parse().expect("is a number");
        assert!((1..=1800).contains(&seconds), "{seconds}");
        let other = Asked { fields: "x-key: other\n", ..asked };
        assert_eq!(scene.answer(spoken, &other).status, 204, "another key");
    }
    // Nothing about the limit changes: what was counted stays.
    let changed = format!(
        "workers = 2\n{LIMITED}\n[[route]]\npath = \"/new\"\nrespond = {{ status = 200, body = \"new\" }}\n"
    );
    scene.running().reload(read(&changed)).expect("is valid");
    let asked = |key| Asked { fields: key, ..get("/") };
    assert_eq!(scene.answer(Spoken::Http1, &get("/new")).body, "new");
    assert_eq!(scene.answer(Spoken::Http1, &asked("x-key: one\n")).status, 429);
    // Another limit begins anew.
    scene.running().reload(read(&changed.replace("2/h", "3/h"))).expect("is valid");
    assert_eq!(scene.answer(Spoken::Http1, &asked("x-key: one\n")).status, 204);
}

/// The user `me` with the password `secret`, in a hash that is quick to verify.
pub(crate) const USERS: &str = "me:$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n";

const GUARDED: &str = r#"
[[route]]
upstream = "app"
auth = { users = "{dir}/users", realm = "The \"cellar\"" }
[[route]]
path = "/kept"
upstream = "app"
auth = { users = "{dir}/users", realm = "The \"cellar\"" }
request_headers = { remove = ["Authorization"] }
[upstream.app]
servers = ["http://{0}"]
"#;

#[test]
fn a_password_lets_in() {
    let scene = Scene::with_files(&[("users", USERS)], GUARDED);
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        let authorization = |text: &str| format!("authorization: Basic {}\n", BASE64_STANDARD.encode(text));
        let twice = authorization("me:secret").repeat(2);
        for fields in [
            "",
            "authorization: Bearer x\n",
            &authorization("me:wrong"),
            &authorization("you:secret"),
            &twice,
        ] {
            let got = client.asks_for(&Asked { fields, ..get("/") });
            assert_eq!(got.status, 401, "{spoken:?} {fields}");
            assert_eq!(
                got.field("www-authenticate"),
                Some(r#"Basic realm="The \"cellar\"", charset="UTF-8""#),
                "{spoken:?}"
            );
        }
        let fields = authorization("me:secret");
        let (seen, got) = scene.exchange(spoken, &Asked { fields: &fields, ..get("/") }, OK);
        assert_eq!(got.status, 200);
        assert!(seen.contains(fields.trim_end()), "{seen}");
    }
}

#[test]
fn credentials_may_stay_here() {
    for spoken in BOTH {
        let scene = Scene::with_files(&[("users", USERS)], GUARDED);
        let fields = format!("authorization: Basic {}\n", BASE64_STANDARD.encode("me:secret"));
        let (seen, got) = scene.exchange(spoken, &Asked { fields: &fields, ..get("/kept") }, OK);
        assert_eq!(got.status, 200);
        assert!(!seen.to_lowercase().contains("authorization"), "{seen}");
        assert!(scene.file("users").exists());
    }
}

#[test]
fn a_body_that_was_not_read_never_becomes_a_request() {
    let scene = Scene::new("[[route]]\nrespond = { status = 200, body = \"in\" }\ndeny = [\"127.0.0.1\"]\n");
    let testkit::scene::Client::One(mut peer) = scene.client(Spoken::Http1) else { unreachable!() };
    // First a whole exchange, so that there is a body of before that has ended.
    peer.sends("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(peer.message().status(), 403);
    peer.sends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 60\r\n\r\nGET /stolen HTTP/1.1\r\nHost: test\r\n\r\n");
    let message = peer.message();
    assert_eq!(message.status(), 403);
    assert!(message.head.contains("\r\nConnection: close\r\n"), "{}", message.head);
    peer.gets_the_end();
}
