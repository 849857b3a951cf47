//! Admission by network, rate, and password.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use testkit::scene::{BOTH, BodylessRequest, Got, Scene, Spoken, get, read};
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
        // The connection continues, because the request is valid.
        let mut client = scene.client(spoken);
        for (forwarded, status) in [("192.0.2.7", 200), ("192.0.2.200", 403), ("203.0.113.9", 403)] {
            let fields = format!("x-forwarded-for: {forwarded}\n");
            let got = client.asks_for(&BodylessRequest { fields: &fields, ..get("/") });
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
    let asked = BodylessRequest { fields: "x-forwarded-for: 192.0.2.7\n", ..get("/") };
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

const TOLD: &str = r#"
[cache]
memory = "1MiB"
[[route]]
path = "/own"
respond = { status = 204 }
rate_limit = { rate = "2/h", key = "header:X-Key", fields = true }
[[route]]
path = "/app"
upstream = "app"
rate_limit = [{ rate = "10/m", burst = 20, key = "header:X-Key", fields = true }, { rate = "10/m", key = "route", fields = true }]
[[route]]
path = "/cached"
upstream = "app"
cache = { ttl = "1h" }
rate_limit = { rate = "100/100ms", key = "header:X-Key", fields = true }
[[route]]
path = "/silent"
respond = { status = 204 }
rate_limit = { rate = "2/h", key = "header:X-Key" }
[upstream.app]
servers = ["http://{0}"]
"#;

/// draft-ietf-httpapi-ratelimit-headers-10.
#[test]
fn clients_are_told_what_is_left_of_a_rate() {
    for spoken in BOTH {
        let scene = Scene::new(TOLD);
        let fields = "x-key: a\n";
        let own = |target| scene.answer(spoken, &BodylessRequest { fields, ..get(target) });
        let told = |got: &Got| {
            let value = |name: &str| got.all(name).join(", ");
            (got.status, value("ratelimit-policy"), value("ratelimit"))
        };
        let policy = "\"2/1h\";q=2;w=3600".to_owned();
        assert_eq!(told(&own("/own")), (204, policy.clone(), "\"2/1h\";r=1;t=1800".to_owned()), "{spoken:?}");
        assert_eq!(told(&own("/own")).2.split(";t=").next(), Some("\"2/1h\";r=0"), "{spoken:?}");
        let refused = own("/own");
        let (status, its_policy, left) = told(&refused);
        let again = refused.field("retry-after").expect("says when").to_owned();
        assert_eq!(
            (status, its_policy, left),
            (429, policy, format!("\"2/1h\";r=0;t={again}")),
            "{spoken:?}"
        );
        // One request's quota is not carried over to the next on the connection.
        assert_eq!(told(&own("/silent")), (204, String::new(), String::new()), "{spoken:?}");

        let (_, got) = scene.exchange(spoken, &BodylessRequest { fields, ..get("/app") }, OK);
        let policies = "\"10/1m\";q=20;w=120, \"10/1m-2\";q=10;w=60".to_owned();
        let left = "\"10/1m\";r=19;t=6, \"10/1m-2\";r=9;t=6".to_owned();
        assert_eq!(told(&got), (200, policies, left), "{spoken:?}");

        // From a server, and from the cache, which does not store these fields.
        let (_, got) = scene.exchange(spoken, &BodylessRequest { fields, ..get("/cached") }, OK);
        assert_eq!(told(&got).1, "\"100/100ms\";q=100", "{spoken:?}");
        let hit = scene.answer(spoken, &BodylessRequest { fields: "x-key: b\n", ..get("/cached") });
        assert_eq!(
            told(&hit),
            (200, "\"100/100ms\";q=100".into(), "\"100/100ms\";r=99;t=1".into()),
            "{spoken:?}"
        );
    }
}

#[test]
fn a_rate_with_a_condition_counts_only_requests_for_which_it_holds() {
    for spoken in BOTH {
        let scene = Scene::new(
            "[[route]]\nrespond = { status = 204 }\nrate_limit = [{ rate = \"1/h\", key = \"route\", when = \
             'request.method == \"DELETE\"' }, { rate = \"2/h\", key = \"route\", when = 'has(request.query)' }]\n",
        );
        let delete = |target| BodylessRequest { method: "DELETE", ..get(target) };
        let asked =
            [get("/"), get("/"), delete("/"), delete("/"), get("/?a"), get("/"), get("/?a"), get("/?a")];
        let statuses = asked.map(|request| scene.answer(spoken, &request).status);
        assert_eq!(statuses, [204, 204, 204, 429, 204, 204, 204, 429], "{spoken:?}");
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
        let asked = BodylessRequest { fields: &fields, ..get("/") };
        // A new client each, so that both workers are involved.
        let statuses: Vec<u16> = (0..6).map(|_| scene.answer(spoken, &asked).status).collect();
        assert_eq!(statuses, [204, 204, 429, 429, 429, 429], "{spoken:?}");
        let got = scene.answer(spoken, &asked);
        let seconds: u64 = got.field("retry-after").expect("says when").parse().expect("is a number");
        assert!((1..=1800).contains(&seconds), "{seconds}");
        let other = BodylessRequest { fields: "x-key: other\n", ..asked };
        assert_eq!(scene.answer(spoken, &other).status, 204, "another key");
    }
    // The limit is unchanged, so its counts stay.
    let changed = format!(
        "workers = 2\n{LIMITED}\n[[route]]\npath = \"/new\"\nrespond = {{ status = 200, body = \"new\" }}\n"
    );
    scene.running().reload(read(&changed)).expect("is valid");
    let asked = |key| BodylessRequest { fields: key, ..get("/") };
    assert_eq!(scene.answer(Spoken::Http1, &get("/new")).body, "new");
    assert_eq!(scene.answer(Spoken::Http1, &asked("x-key: one\n")).status, 429);
    // Another limit starts with new counts.
    scene.running().reload(read(&changed.replace("2/h", "3/h"))).expect("is valid");
    assert_eq!(scene.answer(Spoken::Http1, &asked("x-key: one\n")).status, 204);
}

const ZONES: &str = r#"
workers = 2
[[listen]]
address = "127.0.0.1:0"
[[route]]
path = "/in"
respond = { status = 204 }
rate_limit = { rate = "3/h", key = "header:X-Key", zone = "logins" }
[[route]]
path = "/reset"
respond = { status = 204 }
rate_limit = { rate = "3/h", burst = 5, key = "header:X-Key", zone = "logins" }
[[route]]
path = "/alone"
respond = { status = 204 }
rate_limit = { rate = "3/h", key = "header:X-Key" }
"#;

#[test]
fn routes_of_one_zone_count_together() {
    for spoken in BOTH {
        let scene = Scene::new(&ZONES.replace("workers = 2\n[[listen]]\naddress = \"127.0.0.1:0\"\n", ""));
        let ask =
            |target| scene.answer(spoken, &BodylessRequest { fields: "x-key: a\n", ..get(target) }).status;
        assert_eq!([ask("/in"), ask("/reset"), ask("/in"), ask("/in")], [204, 204, 204, 429], "{spoken:?}");
        // Its own burst is larger.
        assert_eq!([ask("/reset"), ask("/reset"), ask("/reset")], [204, 204, 429], "{spoken:?}");
        assert_eq!(ask("/alone"), 204, "{spoken:?}");
        // A new route joins the counts, and a changed one keeps them.
        let added = "[[route]]\npath = \"/new\"\nrespond = { status = 204 }\nrate_limit = { rate = \"3/h\", key = \"header:X-Key\", zone = \"logins\" }\n";
        let changed = ZONES.replace("path = \"/reset\"", "path = \"/other\"");
        scene.running().reload(read(&format!("{changed}{added}"))).expect("is valid");
        assert_eq!([ask("/new"), ask("/other"), ask("/in")], [429, 429, 429], "{spoken:?}");
    }
}

/// The user `me` with the password `secret`, with a cheap hash.
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
            let got = client.asks_for(&BodylessRequest { fields, ..get("/") });
            assert_eq!(got.status, 401, "{spoken:?} {fields}");
            assert_eq!(
                got.field("www-authenticate"),
                Some(r#"Basic realm="The \"cellar\"", charset="UTF-8""#),
                "{spoken:?}"
            );
        }
        let fields = authorization("me:secret");
        let (seen, got) = scene.exchange(spoken, &BodylessRequest { fields: &fields, ..get("/") }, OK);
        assert_eq!(got.status, 200);
        assert!(seen.contains(fields.trim_end()), "{seen}");
    }
}

#[test]
fn credentials_may_stay_here() {
    for spoken in BOTH {
        let scene = Scene::with_files(&[("users", USERS)], GUARDED);
        let fields = format!("authorization: Basic {}\n", BASE64_STANDARD.encode("me:secret"));
        let (seen, got) = scene.exchange(spoken, &BodylessRequest { fields: &fields, ..get("/kept") }, OK);
        assert_eq!(got.status, 200);
        assert!(!seen.to_lowercase().contains("authorization"), "{seen}");
        assert!(scene.file("users").exists());
    }
}

#[test]
fn a_body_that_was_not_read_never_becomes_a_request() {
    let scene = Scene::new("[[route]]\nrespond = { status = 200, body = \"in\" }\ndeny = [\"127.0.0.1\"]\n");
    let testkit::scene::SceneClient::One(mut peer) = scene.client(Spoken::Http1) else { unreachable!() };
    // First a complete exchange, so that there is state of an earlier body.
    peer.sends("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(peer.message().status(), 403);
    peer.sends("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 60\r\n\r\nGET /stolen HTTP/1.1\r\nHost: test\r\n\r\n");
    let message = peer.message();
    assert_eq!(message.status(), 403);
    assert!(message.head.contains("\r\nConnection: close\r\n"), "{}", message.head);
    peer.gets_the_end();
}
