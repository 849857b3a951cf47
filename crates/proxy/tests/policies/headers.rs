//! Sets of header edits, the built-in set, and defaults for missing fields.

use testkit::scene::{BOTH, BodylessRequest, Got, Scene, get};

const ROUTES: &str = r#"
[cache]
memory = "1MiB"

[headers.tenant]
set = { X-Tenant = "$host", X-Zone = "a" }
remove = ["X-Debug"]

[route_defaults]
request_headers = { use = "tenant", default = { X-Trace = "none" } }
response_headers = { use = ["security", "tenant"], set = { X-Zone = "own" } }

[[route]]
upstream = "app"
[[route]]
path = "/cached"
upstream = "app"
cache = { ttl = "1h" }
[[route]]
path = "/own"
respond = { status = 200, body = "in" }
[[route]]
path = "/framed"
upstream = "app"
response_headers = { use = "security", set = { X-Frame-Options = "SAMEORIGIN" }, remove = ["Content-Security-Policy"] }
[[route]]
path = "/plain"
upstream = "app"
response_headers = "off"
[[route]]
path = "/gone"
upstream = "gone"
[[route]]
path = "/status"
upstream = "app"
proxy_status = "edge-1"
response_headers = "off"
[[route]]
path = "/status/gone"
upstream = "gone"
proxy_status = "edge-1"
[[route]]
path = "/status/cached"
upstream = "app"
proxy_status = "edge-1"
cache = { ttl = "1h" }
[[route]]
path = "/status/own"
respond = { status = 204 }
proxy_status = "edge-1"
deny = ["127.0.0.0/8"]
[upstream.app]
servers = ["http://{0}"]
[upstream.gone]
servers = ["http://127.0.0.1:1"]
"#;

const PRESET: [(&str, &str); 8] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("content-security-policy", "frame-ancestors 'none'"),
    ("referrer-policy", "strict-origin-when-cross-origin"),
    (
        "permissions-policy",
        "accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), magnetometer=(), microphone=(), midi=(), payment=(), usb=()",
    ),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-permitted-cross-domain-policies", "none"),
];

fn values<'g>(got: &'g Got, name: &str) -> Vec<&'g str> {
    got.fields
        .lines()
        .filter_map(|line| line.split_once(": "))
        .filter(|(known, _)| *known == name)
        .map(|(_, value)| value)
        .collect()
}

fn has_preset(got: &Got, but: &[&str]) {
    for (name, value) in PRESET.iter().filter(|(name, _)| !but.contains(name)) {
        assert_eq!(values(got, name), [*value], "{name}: {}", got.fields);
    }
}

#[test]
fn what_a_server_says_of_security_stays_and_the_rest_is_added() {
    let scene = Scene::new(ROUTES);
    let sent = "HTTP/1.1 200 OK\r\nServer: app/1.2\r\nX-Powered-By: PHP\r\nX-Frame-Options: SAMEORIGIN\r\n\
                content-security-policy: default-src 'self'\r\nX-Debug: 1\r\nX-Zone: b\r\nContent-Length: 2\r\n\r\nok";
    for spoken in BOTH {
        let (_, got) = scene.exchange(spoken, &get("/a"), sent);
        has_preset(&got, &["x-frame-options", "content-security-policy"]);
        assert_eq!(values(&got, "x-frame-options"), ["SAMEORIGIN"], "{spoken:?}");
        assert_eq!(values(&got, "content-security-policy"), ["default-src 'self'"]);
        for removed in ["server", "x-powered-by", "x-debug"] {
            assert_eq!(values(&got, removed), [""; 0], "{spoken:?} {removed}");
        }
        assert_eq!((values(&got, "x-tenant"), values(&got, "x-zone")), (vec!["test"], vec!["own"]));

        let (_, got) = scene.exchange(spoken, &get("/framed"), sent);
        has_preset(&got, &["x-frame-options", "content-security-policy"]);
        assert_eq!(values(&got, "x-frame-options"), ["SAMEORIGIN"], "{spoken:?}");
        assert_eq!(values(&got, "content-security-policy"), [""; 0]);

        let (_, got) = scene.exchange(spoken, &get("/plain"), sent);
        assert_eq!(values(&got, "server"), ["app/1.2"], "{spoken:?}");
        assert_eq!(values(&got, "referrer-policy"), [""; 0]);
    }
}

#[test]
fn our_own_responses_and_stored_ones_have_them_once() {
    for spoken in BOTH {
        let scene = Scene::new(ROUTES);
        let mut client = scene.client(spoken);
        for (target, status) in [("/own", 200), ("/gone", 502)] {
            let got = client.asks_for(&get(target));
            assert_eq!(got.status, status, "{spoken:?}");
            has_preset(&got, &[]);
        }
        let sent = "HTTP/1.1 200 OK\r\nReferrer-Policy: no-referrer\r\nContent-Length: 2\r\n\r\nok";
        let (_, got) = scene.exchange(spoken, &get("/cached"), sent);
        let hit = client.asks_for(&get("/cached"));
        for got in [got, hit] {
            has_preset(&got, &["referrer-policy"]);
            assert_eq!(values(&got, "referrer-policy"), ["no-referrer"], "{spoken:?} {}", got.fields);
        }
    }
}

#[test]
fn a_request_has_a_default_for_what_the_client_does_not_send() {
    let scene = Scene::new(ROUTES);
    for spoken in BOTH {
        for (fields, trace) in [("", "none"), ("x-trace: 7\nx-tenant: evil\nx-debug: 1\n", "7")] {
            let sent = "HTTP/1.1 204 No Content\r\n\r\n";
            let (seen, _) = scene.exchange(spoken, &BodylessRequest { fields, ..get("/a") }, sent);
            let lower = seen.to_ascii_lowercase();
            let of = |name: &str| -> Vec<String> {
                lower.lines().filter_map(|line| line.strip_prefix(name)).map(str::to_owned).collect()
            };
            assert_eq!(of("x-trace: "), [trace], "{spoken:?} {seen}");
            assert_eq!((of("x-tenant: "), of("x-zone: ")), (vec!["test".to_owned()], vec!["a".to_owned()]));
            assert_eq!(of("x-debug: "), [""; 0]);
        }
    }
}

/// RFC 9209: the members of other proxies stay, and this proxy's comes last.
#[test]
fn a_response_says_whether_it_is_a_servers_and_what_failed_otherwise() {
    let scene = Scene::new(ROUTES);
    for spoken in BOTH {
        for (sent, expected) in [
            ("HTTP/1.1 404 N\r\nContent-Length: 0\r\n\r\n", &["edge-1; received-status=404"][..]),
            (
                "HTTP/1.1 502 B\r\nProxy-Status: inner; error=dns_error\r\nContent-Length: 0\r\n\r\n",
                &["inner; error=dns_error", "edge-1; received-status=502"],
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                &["edge-1; error=http_protocol_error; details=\"upstream-framing\""],
            ),
        ] {
            let post = BodylessRequest { method: "POST", ..get("/status") };
            let (_, got) = scene.exchange(spoken, &post, sent);
            assert_eq!(values(&got, "proxy-status"), expected, "{spoken:?} {sent}");
        }
        for (path, expected) in [
            ("/status/gone", "edge-1; error=connection_refused; details=\"upstream-refused\""),
            ("/status/own", "edge-1; error=http_request_denied; details=\"forbidden\""),
        ] {
            assert_eq!(values(&scene.answer(spoken, &get(path)), "proxy-status"), [expected], "{spoken:?}");
        }
        let path = format!("/status/cached/{spoken:?}");
        let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let (_, got) = scene.exchange(spoken, &get(&path), ok);
        assert_eq!(values(&got, "proxy-status"), ["edge-1"], "{spoken:?}");
        assert_eq!(values(&scene.answer(spoken, &get(&path)), "proxy-status"), ["edge-1"], "{spoken:?}");
        let (_, got) = scene.exchange(spoken, &get("/a"), ok);
        assert_eq!(values(&got, "proxy-status"), [""; 0], "{spoken:?}: nobody asked for it");
    }
}
