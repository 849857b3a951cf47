//! Clients without a session on a route with a cache: they are redirected to a login page and get no stored response.
//! Also with faults of the authentication server and of the route. Clients use all three versions.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::http1::Http1Peer;
use testkit::http2::H2End;
use testkit::http3;
use testkit::scene::{BodylessRequest, Got, Scene, SceneClient, get};

use super::{assert_told, counting_server, deciding_server};

/// All responses may be stored for all clients.
const GUARDED: &str = r#"
metrics = "127.0.0.1:0"
[cache]
memory = "16MiB"
[[listen]]
address = "127.0.0.1:0"
tls = { self_signed = true }
http3 = true
[[route]]
name = "app"
upstream = "app"
forward_auth = { upstream = "auth", path = "/verify", timeout = "{timeout}", sign_in = "/start" }
cache = { ttl = "1h", status_ttl = { 302 = "1h", 4xx = "1h", 5xx = "1h" }, force = true, ignore = ["request-directives", "vary", "set-cookie"] }
[upstream.app]
servers = ["http://{app}"]
[upstream.auth]
servers = ["http://{auth}"]
"#;

const PAGE: &str =
    "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nETag: \"e\"\r\nContent-Length: 4\r\n\r\npage";
const KNOWN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nknown";
const UNKNOWN: &str = "HTTP/1.1 401 No\r\nCache-Control: max-age=3600\r\nContent-Length: 7\r\n\r\nunknown";

const SESSION: &str = "cookie: session=1\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
    Three,
}

use Version::{One, Three, Two};

const ALL: [Version; 3] = [One, Two, Three];

/// An authentication server that admits clients with a session.
fn authentication() -> (String, Arc<AtomicUsize>) {
    deciding_server(|head| if head.contains("session=1") { KNOWN } else { UNKNOWN })
}

/// Returns a guarded proxy, and the number of requests to its server.
fn guarded(auth: &str, timeout: &str, more: &str) -> (Scene, Arc<AtomicUsize>) {
    let (app, asked) = counting_server(PAGE);
    let text = GUARDED.replace("{app}", &app).replace("{auth}", auth).replace("{timeout}", timeout);
    (Scene::new(&format!("{text}{more}")), asked)
}

/// Connects to the second listener, which has no TLS.
fn client(scene: &Scene, version: Version) -> SceneClient {
    let stream = TcpStream::connect(scene.running().addresses()[1]).expect("the proxy listens");
    match version {
        One => SceneClient::One(Http1Peer::new("client", stream)),
        _ => SceneClient::Two(Box::new(H2End::client(stream, &[])), 1),
    }
}

/// Returns the response to a new client.
fn answer(scene: &Scene, version: Version, asked: &BodylessRequest<'_>) -> Got {
    let BodylessRequest { method, target, fields, .. } = *asked;
    if version == Three {
        let client = http3::H3TestClient::connect(scene.running().addresses()[0]);
        let (head, body, _) = client.asks(method, target, fields).response();
        let (status, fields) = head.split_once('\n').expect("has a status");
        let status = status.trim_start_matches(":status: ").parse().expect("is a number");
        return Got { status, fields: fields.to_owned(), body: String::from_utf8(body).expect("is text") };
    }
    let mut client = client(scene, version).asking(asked);
    if method == "HEAD" { client.gets_head_alone() } else { client.gets() }
}

fn asks<'a>(method: &'a str, target: &'a str, fields: &'a str) -> BodylessRequest<'a> {
    BodylessRequest { method, fields, ..get(target) }
}

#[track_caller]
fn is_sent_to_sign_in(got: &Got, what: &str) {
    assert_eq!((got.status, got.body.as_str()), (302, ""), "{what}: {}", got.fields);
    let back = got.field("location").and_then(|to| to.strip_prefix("/start?rd=http"));
    assert!(back.is_some(), "{what}: {}", got.fields);
    for field in ["age", "etag", "cache-status", "x-cache", "www-authenticate"] {
        assert_eq!(got.field(field), None, "{what}: {}", got.fields);
    }
}

#[test]
fn a_client_is_sent_to_the_location_of_the_answer_or_to_exactly_the_page() {
    const PORTAL: &str = "HTTP/1.1 401 No\r\nLocation: https://portal.example/?a=b\r\nSet-Cookie: n=1\r\n\
                          WWW-Authenticate: Bearer\r\nContent-Length: 7\r\n\r\nunknown";
    let (auth, _) = deciding_server(|head| if head.contains("x-portal") { PORTAL } else { UNKNOWN });
    for (sign_in, portal, other) in [
        ("sign_in = \"location\"", Some("https://portal.example/?a=b"), None),
        (
            "sign_in = \"/start?to=$path\", sign_in_parameter = \"off\"",
            Some("/start?to=/x"),
            Some("/start?to=/x"),
        ),
    ] {
        let (app, _) = counting_server(PAGE);
        let text = GUARDED.replace("sign_in = \"/start\"", sign_in);
        let text = text.replace("{app}", &app).replace("{auth}", &auth).replace("{timeout}", "5s");
        let scene = Scene::new(&text);
        for version in ALL {
            let got = answer(&scene, version, &asks("GET", "/x", "x-portal: 1\n"));
            assert_eq!((got.status, got.field("location")), (302, portal), "{sign_in} {version:?}");
            let kept = [got.field("set-cookie"), got.field("www-authenticate")];
            assert_eq!(kept, [Some("n=1"), Some("Bearer")], "{sign_in} {version:?}");
            let got = answer(&scene, version, &asks("GET", "/x", ""));
            let status = if other.is_some() { 302 } else { 401 };
            assert_eq!((got.status, got.field("location")), (status, other), "{sign_in} {version:?}");
        }
    }
}

#[test]
fn a_redirect_to_sign_in_is_not_stored_and_nothing_stored_is_for_strangers() {
    let (auth, questions) = authentication();
    let (scene, asked) = guarded(&auth, "5s", "");
    for (place, version) in ALL.into_iter().enumerate() {
        let url = &format!("/page/{place}");
        let pages = || asked.load(Ordering::Relaxed);
        for method in ["GET", "HEAD", "GET", "POST", "PUT"] {
            is_sent_to_sign_in(&answer(&scene, version, &asks(method, url, "")), method);
        }
        assert_eq!(pages(), place, "{version:?}: no server is asked for a stranger");
        // The redirect is not stored, and the page is stored afterwards.
        for _ in 0..2 {
            let got = answer(&scene, version, &asks("GET", url, SESSION));
            assert_eq!((got.status, got.body.as_str(), pages()), (200, "page", place + 1), "{version:?}");
        }
        for (method, fields) in [
            ("GET", ""),
            ("HEAD", ""),
            ("POST", ""),
            ("DELETE", ""),
            ("GET", "if-none-match: \"e\"\n"),
            ("GET", "range: bytes=0-1\n"),
            ("GET", "cache-control: only-if-cached\n"),
            ("GET", "cookie: session=2\n"),
        ] {
            let what = format!("{version:?} {method} {fields}");
            is_sent_to_sign_in(&answer(&scene, version, &asks(method, url, fields)), &what);
        }
        // Rejected requests of other clients have invalidated nothing.
        let before = questions.load(Ordering::Relaxed);
        for (method, body) in [("GET", "page"), ("HEAD", "")] {
            let got = answer(&scene, version, &asks(method, url, SESSION));
            assert_eq!(
                (got.status, got.body.as_str(), pages()),
                (200, body, place + 1),
                "{version:?} {method}"
            );
            assert!(got.field("age").is_some(), "{version:?} {method} {}", got.fields);
        }
        assert_eq!(questions.load(Ordering::Relaxed), before + 2, "a hit is asked about as well");
    }
}

#[test]
fn a_body_is_not_waited_for_before_a_client_is_sent_to_sign_in() {
    let (auth, _) = authentication();
    let (scene, asked) = guarded(&auth, "5s", "");
    let SceneClient::One(mut peer) = client(&scene, One) else { unreachable!("it speaks HTTP/1") };
    peer.sends("POST /a HTTP/1.1\r\nHost: test\r\nContent-Length: 100000\r\n\r\nthe beginning");
    let head = peer.head();
    assert!(head.starts_with("HTTP/1.1 302 ") && head.contains("\r\nLocation: /start?rd="), "{head}");
    let mut two = client(&scene, Two);
    two.posts(&[b"whole"], true);
    is_sent_to_sign_in(&two.gets(), "a whole body");
    let three = http3::H3TestClient::connect(scene.running().addresses()[0]);
    let mut stream = three.open();
    stream.sends_head(&http3::frame::request("POST", "/a", "content-length: 9\n"));
    stream.sends_data(b"abc");
    assert!(stream.head().starts_with(":status: 302\n"));
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

/// The faults are injected by a second proxy in front of the authentication server, into questions about requests with
/// `x-break`.
#[test]
fn faults_of_the_authentication_server_let_nobody_in() {
    const BREAK: &str = "x-break: 1\n";
    let (auth, _) = authentication();
    for (fault, timeout, stranger, known, cause) in [
        ("delay 50ms", "5s", 302, 200, None),
        ("delay 1h", "500ms", 504, 504, Some("auth-timeout")),
        ("reset", "5s", 502, 502, Some("auth-failed")),
        ("cut 3", "5s", 502, 502, Some("auth-failed")),
        ("length +10", "5s", 502, 502, Some("auth-failed")),
        ("bad-chunk", "5s", 502, 502, Some("auth-failed")),
        ("drip 1ms", "5s", 302, 200, None),
        ("401", "5s", 302, 302, None),
        ("403", "5s", 403, 403, None),
        ("503", "5s", 503, 503, None),
        // The first question of each client breaks, and is retried.
        ("reset\"\nfirst = 1\nkey = \"header:x-break\"\nname = \"once", "5s", 302, 200, None),
    ] {
        let broken = "[upstream.auth]\nservers = [\"http://{auth}\"]\n[[route]]\nupstream = \"auth\"\n[[fault]]\n\
                      headers = { x-break = true }\n";
        let broken = Scene::new(&format!("{}inject = \"{fault}\"\n", broken.replace("{auth}", &auth)));
        let (scene, asked) = guarded(&broken.running().addresses()[0].to_string(), timeout, "");
        for (place, version) in ALL.into_iter().enumerate() {
            let url = &format!("/page/{place}");
            let what = format!("{fault} {version:?}");
            let with_both = format!("{SESSION}{BREAK}");
            // A stored response helps no client without a session, before and after.
            assert_eq!(answer(&scene, version, &asks("GET", url, SESSION)).body, "page", "{what}");
            for method in ["GET", "HEAD", "POST"] {
                let got = answer(&scene, version, &asks(method, url, BREAK));
                assert_eq!(got.status, stranger, "{what} {method}");
                assert!(!got.body.contains("page") && got.field("age").is_none(), "{what}: {got:?}");
            }
            let got = answer(&scene, version, &asks("GET", url, &with_both));
            assert_eq!((got.status, got.body == "page"), (known, known == 200), "{what}");
            let got = answer(&scene, version, &asks("GET", url, SESSION));
            assert_eq!((got.status, got.body.as_str()), (200, "page"), "{what}");
            is_sent_to_sign_in(&answer(&scene, version, &get(url)), &what);
            assert_eq!(asked.load(Ordering::Relaxed), place + 1, "{what}: the page is asked for once");
        }
        if let Some(cause) = cause {
            let failed = format!("vanward_forward_auth_failures_total{{route=\"app\",cause=\"{cause}\"}}");
            assert_told(&scene, &[(&failed, 12.0)]);
        }
    }
}

/// A fault on the route affects the client's request only, and the question is not counted.
#[test]
fn a_fault_of_the_route_is_the_client_s_alone() {
    let (auth, questions) = authentication();
    for (fault, status, asks_first) in [("delay 10ms", 302, true), ("503", 503, false), ("302", 302, false)] {
        let more = format!("[[fault]]\nname = \"f\"\ninject = \"{fault}\"\nroute = \"app\"\nshow = true\n");
        let (scene, _) = guarded(&auth, "5s", &more);
        for (number, version) in ALL.into_iter().enumerate() {
            let before = questions.load(Ordering::Relaxed);
            let got = answer(&scene, version, &get("/"));
            let told = format!("f; seed=1; number={number}");
            assert_eq!((got.status, got.field("vanward-fault")), (status, Some(told.as_str())), "{fault}");
            let is_asked = questions.load(Ordering::Relaxed) > before;
            assert_eq!(is_asked, asks_first, "{fault} {version:?}");
            assert_eq!(got.field("location").is_some(), asks_first, "{fault} {version:?}");
        }
        assert_eq!(scene.running().counters().faults_injected, 3, "{fault}");
    }
}

/// The login page is on another route of the same proxy, without authentication and cache.
#[test]
fn the_sign_in_page_is_on_a_route_without_the_question() {
    let (auth, _) = authentication();
    let more = "[[route]]\npath = \"/start\"\nrespond = { status = 200, body = \"sign in\" }\n";
    let (scene, _) = guarded(&auth, "5s", more);
    for version in ALL {
        let got = answer(&scene, version, &get("/a"));
        let page = got.field("location").expect("it is sent there").to_owned();
        assert_eq!(answer(&scene, version, &get(&page)).body, "sign in", "{version:?}");
    }
}
