//! Access of other origins to responses (CORS).

use testkit::scene::{BOTH, BodylessRequest, Got, Scene, get};

const APP: &str = "https://app.example.com";

const ROUTES: &str = r#"
[[route]]
upstream = "app"
cors = { origins = ["https://*.example.com", "null"], methods = ["PUT", "DELETE"], headers = ["X-Key"], expose = "X-Total", credentials = true, max_age = "10m" }
[[route]]
path = "/open"
upstream = "app"
cors = { origins = "*", headers = "*" }
[[route]]
path = "/own"
respond = { status = 200, body = "in" }
auth = { users = "{dir}/users" }
rate_limit = { rate = "1/h", key = "header:X-Key" }
response_headers = { set = { X-Own = "$status" } }
cors = { origins = "https://app.example.com" }
[[route]]
path = "/moved"
redirect = { to = "/own" }
cors = { origins = "https://app.example.com", private_network = true }
[[route]]
path = "/denied"
respond = { status = 200 }
deny = ["127.0.0.1"]
cors = { origins = "*" }
[[route]]
path = "/gone"
upstream = "gone"
cors = { origins = "https://app.example.com" }
[upstream.app]
servers = ["http://{0}"]
[upstream.gone]
servers = ["http://127.0.0.1:1"]
"#;

fn scene() -> Scene {
    Scene::with_files(&[("users", "ann:$apr1$abcdefgh$aaaaaaaaaaaaaaaaaaaaa0\n")], ROUTES)
}

/// Returns the CORS fields, and Vary.
fn told(got: &Got) -> Vec<String> {
    let is_told = |line: &&str| line.starts_with("access-control-") || line.starts_with("vary: ");
    got.fields.lines().filter(is_told).map(str::to_owned).collect()
}

fn origin(name: &str) -> String {
    format!("origin: {name}\n")
}

#[test]
fn preflights_reach_no_server() {
    let scene = scene();
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        for (target, origin, expected) in [
            (
                "/a",
                APP,
                &[
                    "access-control-allow-origin: https://app.example.com",
                    "access-control-allow-credentials: true",
                    "access-control-allow-methods: PUT, DELETE",
                    "access-control-allow-headers: X-Key",
                    "access-control-max-age: 600",
                    "vary: Origin",
                ][..],
            ),
            ("/a", "https://evil.example", &["vary: Origin"]),
            ("/a", "http://app.example.com", &["vary: Origin"]),
            ("/open", "https://any", &["access-control-allow-origin: *", "access-control-allow-headers: *"]),
            // Preflights need no password and count against no rate; the second would exceed it.
            ("/own", APP, &["access-control-allow-origin: https://app.example.com", "vary: Origin"]),
            ("/own", APP, &["access-control-allow-origin: https://app.example.com", "vary: Origin"]),
            (
                "/moved",
                APP,
                &[
                    "access-control-allow-origin: https://app.example.com",
                    "access-control-allow-private-network: true",
                    "vary: Origin",
                ],
            ),
        ] {
            let fields = format!(
                "origin: {origin}\naccess-control-request-method: PUT\naccess-control-request-private-network: true\nx-key: 1\n"
            );
            let got = client.asks_for(&BodylessRequest { method: "OPTIONS", fields: &fields, ..get(target) });
            assert_eq!((got.status, got.body.as_str()), (204, ""), "{spoken:?} {target} {origin}");
            assert_eq!(told(&got), expected, "{spoken:?} {target} {origin}");
        }
        let fields = "origin: https://any\naccess-control-request-method: PUT\n";
        let got = client.asks_for(&BodylessRequest { method: "OPTIONS", fields, ..get("/denied") });
        assert_eq!((got.status, told(&got)), (403, vec!["access-control-allow-origin: *".to_owned()]));
    }
    assert!(scene.try_accept(0).is_none());
}

#[test]
fn options_that_are_no_preflight_reach_the_server() {
    let scene = scene();
    for spoken in BOTH {
        for fields in ["", "origin: https://app.example.com\n", "access-control-request-method: PUT\n"] {
            let asked = BodylessRequest { method: "OPTIONS", fields, ..get("/a") };
            let (seen, got) =
                scene.exchange(spoken, &asked, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            assert!(seen.starts_with("OPTIONS /a "), "{seen}");
            assert_eq!(got.body, "ok", "{spoken:?} {fields}");
        }
    }
}

#[test]
fn fields_of_servers_are_replaced() {
    let scene = scene();
    let allowed = [
        "access-control-allow-origin: https://app.example.com",
        "access-control-allow-credentials: true",
        "access-control-expose-headers: X-Total",
    ];
    let with = |vary: &str| -> Vec<String> {
        let mut fields: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        fields.push(format!("vary: {vary}"));
        fields.sort();
        fields
    };
    let only = |vary: &str| vec![format!("vary: {vary}")];
    let own = "Access-Control-Allow-Origin: https://evil.example\r\nAccess-Control-Allow-Credentials: true\r\n\
               Access-Control-Expose-Headers: *\r\nAccess-Control-Allow-Methods: *\r\nAccess-Control-Max-Age: 1\r\n";
    for spoken in BOTH {
        for (asked, vary, expected) in [
            (origin(APP), "", with("Origin")),
            (origin(APP), "Vary: Accept-Encoding\r\n", with("Accept-Encoding, Origin")),
            (origin(APP), "Vary: accept, origin\r\n", with("accept, origin")),
            (origin(APP), "Vary: *\r\n", with("*")),
            (origin(APP), "Vary:\r\n", with("Origin")),
            (origin("https://evil.example"), "Vary: a\r\n", only("a, Origin")),
            (origin("https://app.example.com.evil"), "", only("Origin")),
            (format!("{}{}", origin(APP), origin(APP)), "", only("Origin")),
            (String::new(), "", only("Origin")),
        ] {
            let response = format!("HTTP/1.1 200 OK\r\n{own}{vary}Content-Length: 2\r\n\r\nok");
            let (_, got) =
                scene.exchange(spoken, &BodylessRequest { fields: &asked, ..get("/a") }, &response);
            let mut found = told(&got);
            found.sort();
            assert_eq!(found, expected, "{spoken:?} {asked:?} {vary:?}");
        }
        let response = format!("HTTP/1.1 200 OK\r\n{own}Content-Length: 2\r\n\r\nok");
        // `*` is equal for all clients, so Vary is not needed.
        let (_, got) = scene.exchange(spoken, &get("/open"), &response);
        assert_eq!(told(&got), ["access-control-allow-origin: *"], "{spoken:?}");
    }
}

#[test]
fn several_lines_of_vary_stay() {
    let scene = scene();
    let response = "HTTP/1.1 200 OK\r\nVary: a\r\nVary: b\r\nContent-Length: 0\r\n\r\n";
    for spoken in BOTH {
        let (_, got) = scene.exchange(spoken, &get("/a"), response);
        assert_eq!(got.all("vary"), ["a, Origin", "b"], "{spoken:?}");
    }
}

#[test]
fn a_browser_can_read_why_it_was_refused() {
    for spoken in BOTH {
        let scene = scene();
        let mut client = scene.client(spoken);
        let fields = format!("{}x-key: 1\n", origin(APP));
        for (target, status) in [("/own", 401), ("/own", 429), ("/gone", 502), ("/moved", 308)] {
            let got = client.asks_for(&BodylessRequest { fields: &fields, ..get(target) });
            assert_eq!(got.status, status, "{spoken:?} {target}");
            let expected = ["access-control-allow-origin: https://app.example.com", "vary: Origin"];
            assert_eq!(told(&got), expected, "{spoken:?} {target}");
        }
        let got = client.asks_for(&BodylessRequest { fields: &fields, ..get("/denied") });
        assert_eq!((got.status, told(&got)), (403, vec!["access-control-allow-origin: *".to_owned()]));
    }
}

const CACHED: &str = r#"
[cache]
memory = "16MiB"
[[route]]
upstream = "app"
cache = {}
cors = { origins = "https://*.example.com" }
[upstream.app]
servers = ["http://{0}"]
"#;

#[test]
fn a_response_is_stored_once_for_all_origins() {
    for spoken in BOTH {
        let scene = Scene::new(CACHED);
        let response = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\nVary: Origin\r\n\
                        Access-Control-Allow-Origin: https://a.example.com\r\nContent-Length: 2\r\n\r\nok";
        let origins = ["https://a.example.com", "https://b.example.com", "https://evil.example"].map(origin);
        let [a, b, evil] = origins.each_ref().map(|fields| BodylessRequest { fields, ..get("/a") });
        let (_, first) = scene.exchange(spoken, &a, response);
        assert_eq!(first.all("access-control-allow-origin"), ["https://a.example.com"], "{spoken:?}");
        let mut client = scene.client(spoken);
        for (asked, allowed) in
            [(b, &["https://b.example.com"][..]), (evil, &[]), (a, &["https://a.example.com"])]
        {
            let got = client.asks_for(&asked);
            assert_eq!((got.status, got.body.as_str()), (200, "ok"), "{spoken:?} {asked:?}");
            assert_eq!(got.all("access-control-allow-origin"), allowed, "{spoken:?} {asked:?}");
            assert_eq!(got.all("vary"), ["Origin"], "{spoken:?} {asked:?}");
        }
        let fields = "origin: https://b.example.com\nif-none-match: \"a\"\n";
        let got = client.asks_for(&BodylessRequest { fields, ..get("/a") });
        assert_eq!(
            (got.status, got.field("access-control-allow-origin")),
            (304, Some("https://b.example.com"))
        );
        let got = client.asks_for(&get("/a"));
        assert_eq!((got.body.as_str(), told(&got)), ("ok", vec!["vary: Origin".to_owned()]));
        assert!(scene.try_accept(0).is_none(), "{spoken:?}: the server is asked once");
    }
}
