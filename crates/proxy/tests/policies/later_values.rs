//! Values that ask for the user, the server or the response: known in the places of their stage and later, and never
//! kept from a time before that.

use testkit::scene::{BOTH, BodylessRequest, Scene, Spoken, get};
use testkit::tokens::{Issuer, key_set};

const ROUTES: &str = r#"
[log]
target = "{dir}/access.log"
format = '$status $path ${plan} "${who}" ${tried} ${failed} "${kind}" ${label} ${is_quick} "${map.tier}"'
[cache]
memory = "1MiB"

[values]
plan = 'jwt.claims["plan"] ?? "free"'
who = 'client.user'
tried = '(upstream.name ?? "none") + "@" + (server.name ?? "nowhere")'
failed = 'response.status >= 500'
kind = '(response.headers["content-type"] ?? "none").lowerAscii()'
label = 'values.failed ? "bad-" + values.plan : values.plan'
is_quick = 'response.time < duration("1h")'
[map.tier]
key = 'client.user ?? ""'
entries = { ann = "first" }

[[route]]
upstream = "app"
jwt = { keys = "{dir}/keys.json" }
request_headers = { set = { X-Plan = "${plan} ${who} ${map.tier}", X-Tried = "${tried}" } }
response_headers = [
  { set = { X-Label = "${label} ${plan}", X-Tried = "${tried}", X-Kind = "${kind}", X-Quick = "${is_quick}" } },
  { when = 'values.failed && values.plan == "gold"', set = { X-Sorry = "${who}" } },
]

[[route]]
path = "/named"
jwt = { keys = "{dir}/keys.json" }
upstream = "${plan}"
rewrite = { path = "/of/${who}" }

[[route]]
path = "/limited"
jwt = { keys = "{dir}/keys.json" }
respond = { status = 200, body = "${who} has ${plan}" }
rate_limit = { rate = "1/h", key = "${plan}", when = 'values.who != "eve"' }

[[route]]
path = "/moved"
jwt = { keys = "{dir}/keys.json" }
redirect = { to = "/plans/${plan}" }

[[route]]
path = "/kept"
jwt = { keys = "{dir}/keys.json" }
upstream = "app"
cache = { ttl = "1h", key_values = "plan", show_key = true }
response_headers = { set = { X-Kind = "${kind}", X-Tried = "${tried}" } }

[[route]]
path = "/sides"
jwt = { keys = "{dir}/keys.json" }
split = { app = 1, gold = 1 }
sticky = { by = "${who}" }

[[route]]
path = "/retried"
upstream = "pair"
request_headers = { set = { X-Tried = "${tried}" } }
response_headers = { set = { X-Tried = "${tried}" } }

[[route]]
path = "/own"
respond = { status = 503, body = "closed", content_type = "text/PLAIN" }
response_headers = { set = { X-Kind = "${kind} ${failed} ${plan} ${tried}" } }

[upstream.app]
servers = ["http://{0}"]
[upstream.gold]
servers = ["http://{1}"]
[upstream.free]
servers = ["http://{0}"]
[upstream.pair]
servers = ["http://{0}", "http://{1}"]
"#;

fn line<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = head.lines().filter_map(|line| line.split_once(": "));
    pairs.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn response(status: &str, body: &str) -> String {
    let fields =
        "Date: D\r\nContent-Type: Text/HTML\r\nCache-Control: public, max-age=60\r\nConnection: close\r\n";
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// Users with tokens, and a scene that knows them.
struct Users {
    scene: Scene,
    ann: String,
    bob: String,
}

impl Users {
    fn new() -> Self {
        let issuer = Issuer::new("a");
        let bearer = |claims: &str| format!("authorization: Bearer {}\n", issuer.token(claims));
        let ann = bearer(r#""sub":"ann","plan":"gold""#);
        let bob = bearer(r#""sub":"bob""#);
        Self { scene: Scene::with_files(&[("keys.json", &*key_set(&[&issuer]))], ROUTES), ann, bob }
    }
}

fn of<'a>(user: &'a str, target: &'a str) -> BodylessRequest<'a> {
    BodylessRequest { fields: user, ..get(target) }
}

#[test]
fn edits_know_the_user_the_server_and_the_response() {
    for spoken in BOTH {
        let Users { scene, ann, bob } = Users::new();
        for (user, status, sent, label, sorry) in [
            (&ann, "200 OK", "gold ann first", "gold gold", None),
            (&ann, "503 Busy", "gold ann first", "bad-gold gold", Some("ann")),
            (&bob, "200 OK", "free bob", "free free", None),
            (&bob, "500 Broken", "free bob", "bad-free free", None),
        ] {
            let (seen, got) = scene.exchange(spoken, &of(user, "/"), &response(status, "body"));
            let tried = got.field("x-tried").unwrap_or_default().to_owned();
            assert_eq!(line(&seen, "x-plan"), Some(sent), "{spoken:?} {status}");
            assert_eq!(line(&seen, "x-tried"), Some(&*tried), "{spoken:?} {status}");
            assert!(tried.starts_with("app@127.0.0.1:"), "{tried}");
            assert_eq!(got.field("x-label"), Some(label), "{spoken:?} {status}");
            assert_eq!((got.field("x-kind"), got.field("x-quick")), (Some("text/html"), Some("true")));
            assert_eq!(got.field("x-sorry"), sorry, "{spoken:?} {status}");
        }
        let refused = scene.answer(spoken, &get("/"));
        assert_eq!((refused.status, refused.field("x-label")), (401, Some("free free")), "{spoken:?}");
        assert_eq!(refused.field("x-tried"), Some("app@nowhere"), "{spoken:?}");
    }
}

#[test]
fn steps_after_authentication_know_the_user() {
    for spoken in BOTH {
        let Users { scene, ann, bob } = Users::new();
        for (user, name, plan, server) in [(&ann, "ann", "gold", 1), (&bob, "bob", "free", 0)] {
            let mut client = scene.client(spoken).asking(&of(user, "/named/x"));
            let mut peer = scene.accept(server);
            let seen = peer.head();
            assert!(seen.starts_with(&format!("GET /of/{name}/x HTTP/1.1\r\n")), "{seen}");
            peer.sends(response("200 OK", ""));
            assert_eq!(client.gets().status, 200, "{spoken:?}");
            let limited = scene.answer(spoken, &of(user, "/limited"));
            assert_eq!((limited.status, limited.body), (200, format!("{name} has {plan}")), "{spoken:?}");
            assert_eq!(scene.answer(spoken, &of(user, "/limited")).status, 429, "{spoken:?}");
            let moved = scene.answer(spoken, &of(user, "/moved"));
            assert_eq!(moved.field("location"), Some(&*format!("/plans/{plan}")), "{spoken:?}");
        }
        // A stored response is for those with the same value. RFC 9111 §3.5: with `public`, despite Authorization.
        for (user, body) in [(&ann, "for gold"), (&bob, "for free")] {
            let (_, got) = scene.exchange(spoken, &of(user, "/kept"), &response("200 OK", body));
            assert_eq!(got.body, body, "{spoken:?}");
        }
        for (user, body) in [(&ann, "for gold"), (&bob, "for free")] {
            let kept = scene.answer(spoken, &of(user, "/kept"));
            assert_eq!(kept.body, body, "{spoken:?}");
            assert_eq!(
                (kept.field("x-kind"), kept.field("x-tried")),
                (Some("text/html"), Some("app@nowhere"))
            );
        }
    }
}

/// A client stays on the side of its user, whatever else it sends.
#[test]
fn a_user_stays_on_one_side_of_a_split() {
    for spoken in BOTH {
        let Users { scene, ann, bob } = Users::new();
        for user in [&ann, &bob] {
            let sides: Vec<usize> = (0..4)
                .map(|number| {
                    let target = format!("/sides/{number}");
                    let mut client = scene.client(spoken).asking(&of(user, &target));
                    let (side, mut peer) = loop {
                        let found = [0, 1].into_iter().find_map(|side| Some((side, scene.try_accept(side)?)));
                        if let Some(found) = found {
                            break found;
                        }
                        std::thread::yield_now();
                    };
                    peer.head();
                    peer.sends(response("200 OK", ""));
                    assert_eq!(client.gets().status, 200);
                    side
                })
                .collect();
            assert!(sides.iter().all(|side| *side == sides[0]), "{spoken:?}: {sides:?}");
        }
    }
}

/// A request that is retried has another server: the value is that of each attempt.
#[test]
fn a_value_of_the_server_is_not_kept() {
    for spoken in BOTH {
        let Users { scene, .. } = Users::new();
        let mut client = scene.client(spoken).asking(&get("/retried"));
        let accept = |sides: [usize; 2]| loop {
            let found = sides.into_iter().find_map(|side| Some((side, scene.try_accept(side)?)));
            if let Some(found) = found {
                break found;
            }
            std::thread::yield_now();
        };
        let (side, mut peer) = accept([0, 1]);
        let first = peer.head();
        drop(peer);
        let mut peer = scene.accept(1 - side);
        let second = peer.head();
        peer.sends(response("200 OK", ""));
        let got = client.gets();
        let tried = [&first, &second].map(|seen| line(seen, "x-tried").unwrap_or_default());
        assert!(tried.iter().all(|tried| tried.starts_with("pair@127.0.0.1:")), "{tried:?}");
        assert_ne!(tried[0], tried[1], "{spoken:?}");
        assert_eq!(got.field("x-tried"), Some(tried[1]), "{spoken:?}");
    }
}

/// The proxy's own responses have values, too, before their fields are edited.
#[test]
fn own_responses_have_values() {
    for spoken in BOTH {
        let Users { scene, .. } = Users::new();
        let got = scene.answer(spoken, &get("/own"));
        assert_eq!(got.field("x-kind"), Some("text/plain true free none@nowhere"), "{spoken:?}");
    }
}

#[test]
fn lines_of_the_log_have_values_of_the_whole_exchange() {
    let Users { scene, ann, bob } = Users::new();
    let mut server = String::new();
    for (user, status) in [(&ann, "200 OK"), (&bob, "503 Busy")] {
        let (_, got) = scene.exchange(Spoken::Http1, &of(user, "/"), &response(status, "x"));
        server = got.field("x-tried").unwrap_or_default().to_owned();
    }
    scene.answer(Spoken::Http1, &get("/"));
    scene.answer(Spoken::Http1, &get("/own"));
    let (running, directory) = scene.into_parts();
    running.drain();
    running.wait();
    let log = std::fs::read_to_string(directory.path().join("access.log")).expect("the log is there");
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            &*format!(r#"200 / gold "ann" {server} false "text/html" gold true "first""#),
            r#"401 / free "-" none@nowhere false "text/plain" free true "-""#,
            &*format!(r#"503 / free "bob" {server} true "text/html" bad-free true "-""#),
            r#"503 /own free "-" none@nowhere true "text/plain" bad-free true "-""#,
        ]
    );
}
