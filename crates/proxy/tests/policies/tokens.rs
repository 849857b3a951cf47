//! Admission by token (JWT), and its claims for servers.

use std::fs;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use testkit::http1::Http1Peer;
use testkit::ports;
use testkit::scene::{BOTH, BodylessRequest, Got, Scene, SceneClient, Spoken, get, read};
use testkit::text::OK;
use testkit::tls::TestAuthority;
use testkit::tls::tunnel::server_named;
use testkit::tokens::{Issuer, key_set};

const ROUTES: &str = r#"
[log]
target = "{dir}/access.log"
format = "json"
[[route]]
path = "/"
upstream = "app"
jwt = { keys = "{dir}/keys.json", issuer = "id", audience = "api", require = { role = ["admin", "owner"] }, claims = { X-User = "sub", X-Roles = "role" } }
response_headers = { set = { X-Who = "$user" } }
[[route]]
path = "/header"
upstream = "app"
jwt = { keys = "{dir}/key.pem", from = "header:X-Token", remove_token = true, user = "email" }
[[route]]
path = "/cookie"
upstream = "app"
jwt = { keys = "{dir}/keys.json", from = "cookie:session", remove_token = true, token_bytes = 400 }
[[route]]
path = "/socket"
upstream = "app"
jwt = { keys = "{dir}/keys.json", from = "query:access_token", remove_token = true }
[[route]]
path = "/moved"
upstream = "app"
rewrite = { path = "/there" }
jwt = { keys = "{dir}/keys.json", from = "query:access_token", remove_token = true }
[[route]]
path = "/told"
upstream = "app"
claim = { "account.plan" = "gold" }
jwt = { keys = "{dir}/keys.json", from = "query:access_token" }
[[route]]
path = "/either"
upstream = "app"
auth = { users = "{dir}/users" }
jwt = { keys = "{dir}/keys.json", from = "header:X-Token" }
[[route]]
path = "/any"
upstream = "app"
auth = { users = "{dir}/users" }
jwt = { keys = "{dir}/keys.json" }
require = "any"
response_headers = { set = { X-Who = "$user" } }
[[route]]
name = "gold"
path = "/plan"
claim = { "account.plan" = "gold" }
upstream = "app"
jwt = { keys = "{dir}/keys.json" }
response_headers = { set = { X-Plan = "gold" } }
[[route]]
path = "/plan"
respond = { status = 204 }
[[route]]
path = "/counted"
upstream = "app"
jwt = { keys = "{dir}/keys.json" }
rate_limit = [{ rate = "2/h", key = "user" }, { rate = "1000/h", key = "client" }]
[upstream.app]
servers = ["http://{0}"]
"#;

fn scene(issuer: &Issuer) -> Scene {
    let users = format!("{}\n", super::asked::USERS);
    let files = [("keys.json", &*key_set(&[issuer])), ("key.pem", &*issuer.pem()), ("users", users.as_str())];
    Scene::with_files(&files, ROUTES)
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\n")
}

/// Returns the value of WWW-Authenticate.
fn challenge(error: &str, reason: &str) -> String {
    format!("Bearer error=\"{error}\", error_description=\"{reason}\"")
}

#[test]
fn a_token_lets_in_and_its_claims_are_passed_on() {
    let issuer = Issuer::new("a");
    let scene = scene(&issuer);
    let token = issuer.token(r#""iss":"id","aud":"api","sub":"alice","role":["user","owner"]"#);
    for spoken in BOTH {
        let forged = "x-user: root\nX_User: root\nx-roles: admin\nx-kept: 1\n".to_lowercase();
        let fields = format!("{}{forged}", bearer(&token));
        // Twice: the second time the token is remembered.
        for _ in 0..2 {
            let (seen, got) = scene.exchange(spoken, &BodylessRequest { fields: &fields, ..get("/a") }, OK);
            assert_eq!((got.status, got.field("x-who")), (200, Some("alice")), "{spoken:?}");
            let of = |name: &str| -> Vec<&str> {
                let lines = seen.lines().filter_map(|line| line.split_once(": "));
                lines
                    .filter(|(known, _)| known.replace('_', "-").eq_ignore_ascii_case(name))
                    .map(|pair| pair.1)
                    .collect()
            };
            assert_eq!(
                (of("x-user"), of("x-roles")),
                (vec!["alice"], vec!["user,owner"]),
                "{spoken:?}\n{seen}"
            );
            assert_eq!((of("x-kept"), of("authorization")), (vec!["1"], vec![&*format!("Bearer {token}")]));
        }
    }
    let (running, directory) = scene.into_parts();
    running.drain();
    running.wait();
    let log = fs::read_to_string(directory.path().join("access.log")).expect("the log is there");
    assert_eq!(log.lines().filter(|line| line.contains(r#""user":"alice""#)).count(), 4, "{log}");
    assert!(!log.contains(&token), "no token in the log");
}

#[test]
fn without_a_valid_token_nobody_comes_in() {
    let (issuer, other) = (Issuer::new("a"), Issuer::new("a"));
    let scene = scene(&issuer);
    let right = r#""iss":"id","aud":"api","role":"admin""#;
    let token = issuer.token(right);
    let missing = ("Bearer".to_owned(), 401);
    let invalid = |reason: &str| (challenge("invalid_token", reason), 401);
    let insufficient = (challenge("insufficient_scope", "the token does not grant access to this"), 403);
    for (fields, (challenge, status)) in [
        (String::new(), missing.clone()),
        ("authorization: Basic QTpC\n".to_owned(), missing.clone()),
        (format!("authorization: {token}\n"), missing.clone()),
        (format!("authorization: Bearer{token}\n"), missing.clone()),
        (format!("x-token: {token}\n"), missing.clone()),
        (format!("cookie: access_token={token}\n"), missing.clone()),
        ("authorization: Bearer\n".to_owned(), invalid("the token is malformed")),
        (format!("{}{}", bearer(&token), bearer(&token)), invalid("there is more than one token")),
        (format!("{}authorization: Basic QTpC\n", bearer(&token)), invalid("there is more than one token")),
        (format!("authorization: Bearer {token}, Bearer {token}\n"), invalid("the token is malformed")),
        (bearer(&format!("{token}x")), invalid("the signature of the token is wrong")),
        (bearer(&format!("{token}.")), invalid("the token is malformed")),
        (bearer(&other.token(right)), invalid("the signature of the token is wrong")),
        (bearer(&Issuer::new("b").token(right)), invalid("the key of the token is not known")),
        (bearer(&issuer.sign("{\"exp\":1}")), invalid("the token has expired")),
        (bearer(&issuer.sign("{}")), invalid("the token never expires")),
        (bearer(&issuer.token("\"nbf\":4900000000")), invalid("the token is not valid yet")),
        (bearer(&issuer.token("\"iss\":\"evil\"")), invalid("the issuer of the token is not accepted")),
        (
            bearer(&issuer.token("\"iss\":\"id\",\"aud\":[\"x\"]")),
            invalid("the token is for another audience"),
        ),
        (bearer(&"x".repeat(8193)), invalid("the token is too long")),
        (bearer("eyJhbGciOiJub25lIn0.e30."), invalid("the algorithm of the token is not accepted")),
        (bearer(&issuer.token("\"iss\":\"id\",\"aud\":\"api\",\"role\":\"user\"")), insufficient),
    ] {
        for spoken in BOTH {
            let mut client = scene.client(spoken);
            let got = client.asks_for(&BodylessRequest { fields: &fields, ..get("/") });
            let told = (got.all("www-authenticate").join(", "), got.status);
            assert_eq!(told, (challenge.clone(), status), "{spoken:?} {fields:.60}");
            // The connection continues, because the request is valid.
            client.asks(&BodylessRequest { fields: &bearer(&token), ..get("/") });
            let mut server = scene.accept(0).after_head();
            server.sends(OK);
            assert_eq!(client.gets().status, 200);
        }
    }
    let call = format!("content-type: application/grpc\n{}", bearer("x"));
    for (fields, status) in [(call.as_str(), "16"), ("content-type: application/grpc\n", "16")] {
        let got = scene.answer(Spoken::Http2, &BodylessRequest { method: "POST", fields, ..get("/") });
        assert_eq!((got.status, got.field("grpc-status")), (200, Some(status)));
    }
}

#[test]
fn a_token_is_taken_out_of_a_field_or_a_cookie() {
    let issuer = Issuer::new("a");
    let scene = scene(&issuer);
    let token = issuer.token(r#""email":"a@x.test""#);
    for spoken in BOTH {
        let fields = format!("x-token: {token}\nauthorization: Basic QTpC\n");
        let (seen, _) = scene.exchange(spoken, &BodylessRequest { fields: &fields, ..get("/header") }, OK);
        assert!(!seen.contains(&token) && seen.contains("Basic QTpC"), "{spoken:?}\n{seen}");

        for (cookies, left) in [
            (format!("cookie: a=1; session={token}; b=2\n"), Some("a=1; b=2")),
            (format!("cookie: session={token}\n"), None),
            (format!("cookie: session_=x;session={token}\n"), Some("session_=x")),
        ] {
            let (seen, _) =
                scene.exchange(spoken, &BodylessRequest { fields: &cookies, ..get("/cookie") }, OK);
            let sent =
                seen.lines().find_map(|line| line.to_lowercase().strip_prefix("cookie: ").map(str::to_owned));
            assert_eq!(sent.as_deref(), left, "{spoken:?}\n{seen}");
        }
        for (fields, target) in [
            (format!("x-token: {token}\nx-token: {token}\n"), "/header"),
            (format!("cookie: session={token}; session=x\n"), "/cookie"),
            (format!("cookie: session=\"{token}\"\n"), "/cookie"),
            (format!("cookie: Session={token}\n"), "/cookie"),
            (
                format!("cookie: session={}\n", issuer.token(&format!("\"x\":\"{}\"", "y".repeat(300)))),
                "/cookie",
            ),
        ] {
            let got = scene.answer(spoken, &BodylessRequest { fields: &fields, ..get(target) });
            assert_eq!(got.status, 401, "{spoken:?} {fields:.40}");
        }
    }
}

/// RFC 6750 §2.3: browsers cannot set fields in a WebSocket handshake.
#[test]
fn a_token_in_the_query_is_neither_passed_on_nor_logged() {
    let issuer = Issuer::new("a");
    let scene = scene(&issuer);
    let token = issuer.token(r#""sub":"alice","account":{"plan":"gold"}"#);
    let mut log = Vec::new();
    for spoken in BOTH {
        for (target, passed_on) in [
            (format!("/socket?access_token={token}"), "/socket".to_owned()),
            (format!("/socket?a=1&access_token={token}&b"), "/socket?a=1&b".to_owned()),
            (format!("/socket?access%5ftoken={token}&a=1"), "/socket?a=1".to_owned()),
            (format!("/moved?access_token={token}&a=1"), "/there?a=1".to_owned()),
            (format!("/told?access_token={token}"), format!("/told?access_token={token}")),
        ] {
            let (seen, got) = scene.exchange(spoken, &get(&target), OK);
            assert_eq!(got.status, 200, "{spoken:?} {target}");
            assert!(seen.starts_with(&format!("GET {passed_on} HTTP/1.1")), "{spoken:?} {target}\n{seen}");
            log.push(target.split('?').next().unwrap_or_default().to_owned());
        }
        for target in [
            "/socket".to_owned(),
            "/socket?access_token=".to_owned(),
            format!("/socket?access_token={token}x"),
            format!("/socket?access_token={token}&access_token={token}"),
            format!("/socket?token={token}"),
        ] {
            assert_eq!(scene.answer(spoken, &get(&target)).status, 401, "{spoken:?} {target}");
        }
        // Authorization is ignored here.
        let asked = BodylessRequest { fields: &bearer(&token), ..get("/socket") };
        assert_eq!(scene.answer(spoken, &asked).status, 401, "{spoken:?}");
    }
    let (running, directory) = scene.into_parts();
    running.drain();
    running.wait();
    let text = fs::read_to_string(directory.path().join("access.log")).expect("the log is there");
    assert!(text.contains("access_token=***") && !text.contains(&format!("access_token={token}")), "{text}");
    assert!(log.iter().all(|path| text.contains(path)), "{text}");
}

#[test]
fn a_password_and_a_token_may_both_be_needed() {
    let issuer = Issuer::new("a");
    let scene = scene(&issuer);
    let token = format!("x-token: {}\n", issuer.token(""));
    let password = "authorization: Basic bWU6c2VjcmV0\n";
    for spoken in BOTH {
        for fields in ["", password, &token] {
            let got = scene.answer(spoken, &BodylessRequest { fields, ..get("/either") });
            let schemes = got.all("www-authenticate");
            assert_eq!((got.status, schemes.len()), (401, 2), "{spoken:?} {fields:.20} {schemes:?}");
        }
        let fields = format!("{password}{token}");
        let (_, got) = scene.exchange(spoken, &BodylessRequest { fields: &fields, ..get("/either") }, OK);
        assert_eq!(got.status, 200, "{spoken:?}");
    }
}

#[test]
fn a_password_or_a_token_may_be_enough() {
    let issuer = Issuer::new("a");
    let scene = scene(&issuer);
    for spoken in BOTH {
        for (fields, user) in [
            ("authorization: Basic bWU6c2VjcmV0\n".to_owned(), "me"),
            (bearer(&issuer.token("\"sub\":\"alice\"")), "alice"),
        ] {
            let (_, got) = scene.exchange(spoken, &BodylessRequest { fields: &fields, ..get("/any") }, OK);
            assert_eq!((got.status, got.field("x-who")), (200, Some(user)), "{spoken:?}");
        }
        let got = scene
            .answer(spoken, &BodylessRequest { fields: &bearer(&issuer.sign("{\"exp\":1}")), ..get("/any") });
        let schemes = got.all("www-authenticate").join(", ");
        let expired = challenge("invalid_token", "the token has expired");
        assert!(
            got.status == 401 && schemes.starts_with("Basic ") && schemes.ends_with(&expired),
            "{schemes}"
        );
    }
}

/// Claims select a route before they are verified: a forged one leads to the route, which rejects it.
#[test]
fn claims_lead_to_a_route() {
    let (issuer, other) = (Issuer::new("a"), Issuer::new("a"));
    let scene = scene(&issuer);
    let (gold, tin) = (r#""account":{"plan":"gold"}"#, r#""account":{"plan":"tin"}"#);
    for spoken in BOTH {
        let asks = |fields: &str| scene.answer(spoken, &BodylessRequest { fields, ..get("/plan") }).status;
        let fields = bearer(&issuer.token(gold));
        let (_, got) = scene.exchange(spoken, &BodylessRequest { fields: &fields, ..get("/plan") }, OK);
        assert_eq!((got.status, got.field("x-plan")), (200, Some("gold")), "{spoken:?}");
        assert_eq!(asks(&bearer(&issuer.token(tin))), 204, "{spoken:?}");
        assert_eq!(asks(""), 204, "{spoken:?}");
        assert_eq!(asks(&bearer(&other.token(gold))), 401, "{spoken:?}");
        assert_eq!(asks(&format!("{fields}{fields}")), 204, "{spoken:?}: which of them is meant?");
    }
}

#[test]
fn users_are_counted_once_they_are_known() {
    let (issuer, other) = (Issuer::new("a"), Issuer::new("a"));
    for spoken in BOTH {
        let scene = scene(&issuer);
        let fields = |issuer: &Issuer, user: &str| bearer(&issuer.token(&format!("\"sub\":\"{user}\"")));
        let asks = |fields: &str| scene.answer(spoken, &BodylessRequest { fields, ..get("/counted") });
        // A rejected client does not use up the rate of the user that it claims to be.
        for _ in 0..3 {
            assert_eq!(asks(&fields(&other, "alice")).status, 401, "{spoken:?}");
        }
        for user in ["alice", "bob", "alice", "bob"] {
            let fields = fields(&issuer, user);
            let (_, got) =
                scene.exchange(spoken, &BodylessRequest { fields: &fields, ..get("/counted") }, OK);
            assert_eq!(got.status, 200, "{spoken:?} {user}");
        }
        let got = asks(&fields(&issuer, "bob"));
        assert!(got.status == 429 && got.field("retry-after").is_some(), "{spoken:?} {}", got.status);
    }
}

/// Fields for claims are also removed from trailers.
#[test]
fn trailers_bring_no_claims() {
    let issuer = Issuer::new("a");
    let scene = scene(&issuer);
    let token = issuer.token(r#""iss":"id","aud":"api","sub":"alice","role":"admin""#);
    let mut client = scene.client(Spoken::Http1);
    let SceneClient::One(peer) = &mut client else { unreachable!("it speaks HTTP/1.1") };
    peer.sends(format!(
        "POST / HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {token}\r\nTransfer-Encoding: chunked\r\n\r\n\
         1\r\na\r\n0\r\nX-Kept: 1\r\nX-User: root\r\nx_roles: root\r\n\r\n"
    ));
    let mut server = scene.accept(0);
    let seen = server.head();
    assert!(seen.to_lowercase().contains("x-user: alice\r\n"), "{seen}");
    server.gets(b"1\r\na\r\n0\r\nX-Kept: 1\r\n\r\n");
}

const FETCHED: &str = r#"
metrics = "127.0.0.1:0"
[[route]]
path = "/"
upstream = "app"
jwt = { jwks = "http://PUBLISHER/keys?a=b" }
[[route]]
path = "/other"
respond = { status = 204 }
jwt = { jwks = "http://PUBLISHER/keys?a=b", require = { role = "admin" } }
[upstream.app]
servers = ["http://{0}"]
"#;

/// A server that publishes keys, and answers every fetch.
pub(crate) struct Publisher {
    pub(crate) address: String,
    /// The response, and the number of fetches.
    state: Arc<Mutex<(String, usize)>>,
}

impl Publisher {
    /// Publishes a response. `open` first prepares each connection, such as with TLS.
    pub(crate) fn new(response: String, open: impl Fn(TcpStream) -> TcpStream + Send + 'static) -> Self {
        let listener = ports::listen();
        let address = listener.local_addr().expect("it listens").to_string();
        let state = Arc::new(Mutex::new((response, 0)));
        let (shared, own) = (Arc::clone(&state), address.clone());
        // Ends with the test program.
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let mut peer = Http1Peer::new("publisher", open(stream));
                let head = peer.head();
                let known = ["/keys?a=b", "/.well-known/http-message-signatures-directory"];
                let is_for = |path: &str| head.starts_with(&format!("GET {path} HTTP/1.1\r\n"));
                let (response, count) = &mut *shared.lock().expect("no panic");
                *count += 1;
                if known.into_iter().any(is_for) {
                    peer.sends(response.as_str());
                } else if is_for("/realm/.well-known/openid-configuration") {
                    peer.sends(provider(&own));
                } else {
                    peer.sends("HTTP/1.1 404 No\r\n\r\n");
                }
            }
        });
        Self { address, state }
    }

    pub(crate) fn publishes(&self, response: String) {
        self.state.lock().expect("no panic").0 = response;
    }

    pub(crate) fn fetches(&self) -> usize {
        self.state.lock().expect("no panic").1
    }

    /// A proxy that fetches keys here.
    fn scene(&self) -> Scene {
        Scene::new(&FETCHED.replace("PUBLISHER", &self.address))
    }
}

/// The provider configuration of the issuer `/realm` (OpenID Connect Discovery 1.0 §4.2).
fn provider(address: &str) -> String {
    let body = format!(
        r#"{{"issuer":"http://{address}/realm","jwks_uri":"http://{address}/keys?a=b","scopes":[]}}"#
    );
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

pub(crate) fn key_response(issuers: &[&Issuer]) -> String {
    let body = key_set(issuers);
    format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn metrics(scene: &Scene) -> String {
    let address = scene.running().metrics_address().expect("they are served");
    let mut peer = Http1Peer::new("scraper", TcpStream::connect(address).expect("it listens"));
    peer.sends("GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    String::from_utf8(peer.rest().0).expect("is text")
}

/// Sends a request with a token.
fn asks(client: &mut SceneClient, token: &str) -> Got {
    client.asks_for(&BodylessRequest { fields: &bearer(token), ..get("/other") })
}

#[test]
fn keys_are_fetched_and_rotated_while_requests_come() {
    let (old, new, newest) = (Issuer::new("old"), Issuer::new("new"), Issuer::new("newest"));
    let [first, second, third] = [&old, &new, &newest].map(|issuer| issuer.token(r#""role":"admin""#));
    for spoken in BOTH {
        let publisher = Publisher::new("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n".to_owned(), |it| it);
        let scene = publisher.scene();
        let mut client = scene.client(spoken);
        // No client is admitted before there are keys.
        let got = asks(&mut client, &first);
        assert_eq!((got.status, got.field("retry-after")), (503, Some("1")), "{spoken:?}");
        assert_eq!(got.body, "The keys for verifying tokens are not available yet.\n");
        // The next request causes another fetch, and waits.
        publisher.publishes(key_response(&[&old]));
        assert_eq!(asks(&mut client, &first).status, 204, "{spoken:?}");
        let fetches = publisher.fetches();
        assert_eq!(asks(&mut client, &first).status, 204, "{spoken:?}");
        assert_eq!(publisher.fetches(), fetches, "{spoken:?}");
        // An unknown key causes a fetch: first both keys are valid, then only the new one.
        publisher.publishes(key_response(&[&old, &new]));
        assert_eq!(asks(&mut client, &second).status, 204, "{spoken:?}");
        assert_eq!(asks(&mut client, &first).status, 204, "{spoken:?}");
        publisher.publishes(key_response(&[&new]));
        assert_eq!(asks(&mut client, &third).status, 401, "{spoken:?}");
        // Tokens that the old key had verified are forgotten with it. A failed fetch keeps the present keys.
        publisher.publishes("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}".to_owned());
        assert_eq!(asks(&mut client, &first).status, 401, "{spoken:?}");
        assert_eq!(asks(&mut client, &second).status, 204, "{spoken:?}");
        // Further unknown keys cause no fetches.
        for _ in 0..9 {
            assert_eq!(asks(&mut client, &third).status, 401, "{spoken:?}");
        }
        let fetches = publisher.fetches();
        assert!((4..=7).contains(&fetches), "{spoken:?} {fetches}");
        assert_eq!(asks(&mut client, &second).status, 204, "{spoken:?}");
        let metrics = metrics(&scene);
        assert!(metrics.contains("vanward_token_key_fetches_total 3\n"), "{spoken:?}\n{metrics}");
        assert!(!metrics.contains("vanward_token_key_fetch_failures_total 0\n"), "{spoken:?}\n{metrics}");
    }
}

#[test]
fn keys_are_found_by_the_url_of_their_issuer() {
    let issuer = Issuer::new("a");
    let publisher = Publisher::new(key_response(&[&issuer]), |it| it);
    let own = format!("http://{}/realm", publisher.address);
    for (discovery, status) in [(own.clone(), 204), (format!("{own}/"), 503)] {
        let jwt = format!("discovery = \"{discovery}\"");
        let scene = Scene::new(&FETCHED.replace("jwks = \"http://PUBLISHER/keys?a=b\"", &jwt));
        let mut client = scene.client(Spoken::Http1);
        let claims = |issuer: &str| format!(r#""role":"admin","iss":"{issuer}""#);
        assert_eq!(asks(&mut client, &issuer.token(&claims(&own))).status, status, "{discovery}");
        // A token of another issuer with the same keys.
        let other = asks(&mut client, &issuer.token(&claims("http://id.test")));
        assert_eq!(other.status, if status == 204 { 401 } else { 503 }, "{discovery}");
    }
}

#[test]
fn keys_outlive_a_reload() {
    let issuer = Issuer::new("a");
    let token = issuer.token(r#""role":"admin""#);
    let publisher = Publisher::new(key_response(&[&issuer]), |it| it);
    let scene = publisher.scene();
    let mut client = scene.client(Spoken::Http1);
    assert_eq!(asks(&mut client, &token).status, 204);
    let next = FETCHED.replace("{0}", &scene.server_address(0)).replace("PUBLISHER", &publisher.address);
    let next = next.replace("require = { role = \"admin\" }", "require = { role = \"*\" }");
    let listen = "[[listen]]\naddress = \"127.0.0.1:0\"\n";
    scene.running().reload(read(&format!("workers = 2\n{next}{listen}"))).expect("is valid");
    // A client of the new configuration, which has other rules and the same keys.
    assert_eq!(asks(&mut client, &token).status, 204);
    assert_eq!(publisher.fetches(), 1, "nothing is fetched anew");
}

#[test]
fn keys_are_fetched_over_tls() {
    let (issuer, authority) = (Issuer::new("a"), Arc::new(TestAuthority::new()));
    let ca = fs::read_to_string(&authority.file).expect("it is there");
    for (name, status) in [("127.0.0.1", 204), ("a.example", 503)] {
        let shared = Arc::clone(&authority);
        let open = move |stream| server_named(&shared, name, false, stream);
        let publisher = Publisher::new(key_response(&[&issuer]), open);
        let url = format!("https://{}/keys?a=b\", ca = \"{{dir}}/ca.pem\"", publisher.address);
        let scene =
            Scene::with_files(&[("ca.pem", &ca)], &FETCHED.replace("http://PUBLISHER/keys?a=b\"", &url));
        let mut client = scene.client(Spoken::Http1);
        assert_eq!(asks(&mut client, &issuer.token("\"role\":\"admin\"")).status, status, "{name}");
    }
}

/// A response for a known user is only stored if the server permits sharing it (RFC 9111 §3.5).
#[test]
fn what_a_token_tells_the_server_is_not_stored_for_others() {
    let issuer = Issuer::new("a");
    let keys = key_set(&[&issuer]);
    let [first, second] = ["alice", "bob"].map(|user| issuer.token(&format!("\"sub\":\"{user}\"")));
    for (options, cache_control, is_stored) in [
        ("", "max-age=60", false),
        ("", "max-age=60, public", true),
        (", remove_token = true", "max-age=60", true),
        (", remove_token = true, claims = { X-User = \"sub\" }", "max-age=60", false),
        (", remove_token = true, claims = { X-User = \"sub\" }", "max-age=60, public", true),
        (", from = \"cookie:session\"", "max-age=60", false),
        (", from = \"cookie:session\", remove_token = true", "max-age=60", true),
        (", from = \"header:X-Token\"", "max-age=60", false),
    ] {
        let routes = format!(
            "[cache]\nmemory = \"16MiB\"\n[[route]]\nupstream = \"app\"\ncache = {{}}\n\
             jwt = {{ keys = \"{{dir}}/keys.json\"{options} }}\n[upstream.app]\nservers = [\"http://{{0}}\"]\n"
        );
        let scene = Scene::with_files(&[("keys.json", &keys)], &routes);
        let response =
            format!("HTTP/1.1 200 OK\r\nCache-Control: {cache_control}\r\nContent-Length: 1\r\n\r\na");
        let fields = |token: &str| match options {
            cookie if cookie.contains("cookie") => format!("cookie: session={token}\n"),
            header if header.contains("header") => format!("x-token: {token}\n"),
            _ => bearer(token),
        };
        let mut client = scene.client(Spoken::Http1);
        let mut server = None;
        for (token, comes_from_server) in [(&first, true), (&second, !is_stored)] {
            client.asks(&BodylessRequest { fields: &fields(token), ..get("/") });
            if comes_from_server {
                let server = server.get_or_insert_with(|| scene.accept(0));
                server.head();
                server.sends(&response);
            }
            assert_eq!(client.gets().status, 200, "{options} {cache_control}");
        }
        // The stored response only answers admitted clients.
        assert_eq!(client.asks_for(&get("/")).status, 401, "{options} {cache_control}");
    }
}
