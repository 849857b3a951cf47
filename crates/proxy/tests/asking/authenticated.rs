//! Forward authentication: the question, the effects of the answer, and failures to get one.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use testkit::scene::{BOTH, BodylessRequest, Scene, SceneClient, Spoken, get};
use testkit::text::OK;

use super::{assert_told, nobody, server};

const GUARDED: &str = r#"
metrics = "127.0.0.1:0"
[log]
target = "{dir}/access.log"
format = "json"
[[route]]
upstream = "app"
forward_auth = { upstream = "auth", path = "/verify?a=b", copy_headers = ["X-Auth-User", "X-Auth-Groups"], copy_headers_as = { X-Mail = "X-Auth-Mail" }, user_header = "X-Auth-User", set_cookie = true }
request_headers = { set = { X-User = "$user" } }
[upstream.app]
servers = ["http://{0}"]
[upstream.auth]
servers = ["http://{1}"]
"#;

/// Returns the lines of a head in lower case.
fn lines(head: &str) -> Vec<String> {
    head.lines().map(str::to_lowercase).collect()
}

#[test]
fn a_request_is_asked_about_and_let_in_with_what_is_known_of_it() {
    for spoken in BOTH {
        let scene = Scene::new(GUARDED);
        let mut client = scene.client(spoken);
        let fields = "cookie: session=7\nauthorization: Bearer t\nx-auth-user: root\nx_auth_groups: admins\nx_mail: root@x\n\
                      if-none-match: \"x\"\nrange: bytes=0-1\ncontent-type: text/plain\naccept: */*\n\
                      x-original-url: http://evil/\nx-forwarded-uri: /evil\n";
        client.asks(&BodylessRequest { fields, ..get("/secret?q=1") });
        let mut auth = scene.accept(1);
        let asked = auth.head();
        assert!(asked.starts_with("GET /verify?a=b HTTP/1.1\r\n"), "{asked}");
        let asked = lines(&asked);
        for line in [
            "host: test",
            "cookie: session=7",
            "authorization: bearer t",
            "accept: */*",
            "x-forwarded-method: get",
            "x-forwarded-uri: /secret?q=1",
            "x-forwarded-host: test",
            "x-forwarded-proto: http",
            "x-forwarded-for: 127.0.0.1",
            "x-original-method: get",
            "x-original-uri: /secret?q=1",
            "x-original-url: http://test/secret?q=1",
        ] {
            let count = asked.iter().filter(|known| *known == line).count();
            assert_eq!(count, 1, "{spoken:?} {line}: {asked:?}");
        }
        for name in ["if-none-match", "range", "content-type"] {
            assert!(!asked.iter().any(|line| line.starts_with(&format!("{name}:"))), "{name}: {asked:?}");
        }
        assert!(!asked.concat().contains("evil"), "{asked:?}");
        auth.sends(
            "HTTP/1.1 200 OK\r\nX-Auth-User: ann\r\nX-Auth-Mail: a@b\r\nSet-Cookie: session=8\r\nContent-Length: 3\r\n\r\nyes",
        );
        let mut server = scene.accept(0);
        let seen = lines(&server.head());
        server.sends("HTTP/1.1 200 OK\r\nSet-Cookie: own=1\r\nContent-Length: 2\r\n\r\nok");
        let about_user: Vec<&String> = seen.iter().filter(|line| line.contains("auth-user")).collect();
        assert_eq!(about_user, ["x-auth-user: ann"], "{spoken:?}");
        assert!(seen.contains(&"x-user: ann".to_owned()), "{seen:?}");
        let of_mail: Vec<&String> = seen.iter().filter(|line| line.contains("mail")).collect();
        assert_eq!(of_mail, ["x-mail: a@b"], "{spoken:?}: the client's own is removed");
        assert!(!seen.concat().contains("admins"), "what the answer leaves out is removed: {seen:?}");
        assert!(seen.contains(&"if-none-match: \"x\"".to_owned()), "{seen:?}");
        let got = client.gets();
        assert_eq!((got.status, got.body.as_str()), (200, "ok"), "{spoken:?}");
        let mut cookies = got.all("set-cookie");
        cookies.sort_unstable();
        assert_eq!(cookies, ["own=1", "session=8"], "{spoken:?}");
        // The next request asks again, on the same connections, and does not inherit another client's user.
        client.asks(&get("/"));
        auth.head();
        auth.sends("HTTP/1.1 204 No Content\r\n\r\n");
        let seen = lines(&server.head());
        assert!(!seen.concat().contains("ann"), "{seen:?}");
        server.sends(OK);
        assert_eq!(client.gets().status, 200);
        drop((client, server, auth));
        let (running, directory) = scene.into_parts();
        running.drain();
        running.wait();
        let log = std::fs::read_to_string(directory.path().join("access.log")).expect("the log is there");
        let users: Vec<bool> = log.lines().map(|line| line.contains("\"user\":\"ann\"")).collect();
        assert_eq!(users, [true, false], "{log}");
    }
}

#[test]
fn a_refusal_is_passed_on_whole() {
    for spoken in BOTH {
        let scene = Scene::new(GUARDED);
        let mut client = scene.client(spoken);
        let mut auth = None;
        for (answer, status, field, body) in [
            (
                "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 5\r\n\r\nlogin",
                401,
                ("www-authenticate", "Bearer"),
                "login",
            ),
            (
                "HTTP/1.1 302 Found\r\nLocation: https://login.example/?to=x\r\nSet-Cookie: state=1\r\n\
                 Connection: X-Hop\r\nX-Hop: 1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngoto\r\n1\r\n!\r\n0\r\n\r\n",
                302,
                ("location", "https://login.example/?to=x"),
                "goto!",
            ),
            ("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", 403, ("content-length", "0"), ""),
            ("HTTP/1.1 500 Oops\r\nContent-Length: 1\r\n\r\nx", 500, ("content-length", "1"), "x"),
        ] {
            client.asks(&get("/secret"));
            let peer = auth.get_or_insert_with(|| scene.accept(1));
            peer.head();
            peer.sends(answer);
            let got = client.gets();
            assert_eq!((got.status, got.body.as_str()), (status, body), "{spoken:?}");
            assert_eq!(got.field(field.0), Some(field.1), "{spoken:?} {}", got.fields);
            assert_eq!(got.field("x-hop"), None, "{spoken:?}");
        }
        let class = "vanward_forward_auth_requests_total{route=\"/\",class=\"4xx\"}";
        assert_told(&scene, &[(class, 2.0)]);
        assert!(scene.try_accept(0).is_none(), "the server is asked nothing");
    }
}

#[test]
fn a_refusal_may_be_the_proxys_own() {
    let own = GUARDED
        .replace("set_cookie =", "pass_answer = false, set_cookie =")
        .replace("request_headers", "error_pages = { 403 = \"{dir}/no.html\" }\nrequest_headers");
    for spoken in BOTH {
        let scene = Scene::with_files(&[("no.html", "<p>no")], &own);
        let mut client = scene.client(spoken);
        let mut auth = None;
        for (status, expected, challenge, body) in [
            ("401 Unauthorized", 401, Some("Bearer"), ""),
            ("403 Forbidden", 403, None, "<p>no"),
            ("302 Found", 500, None, ""),
            ("503 Busy", 500, None, ""),
        ] {
            client.asks(&get("/secret"));
            let peer = auth.get_or_insert_with(|| scene.accept(1));
            peer.head();
            peer.sends(format!(
                "HTTP/1.1 {status}\r\nWWW-Authenticate: Bearer\r\nLocation: /x\r\nX-A: 1\r\nContent-Length: 5\r\n\r\nlogin"
            ));
            let got = client.gets();
            assert_eq!((got.status, got.body.as_str()), (expected, body), "{spoken:?} {status}");
            assert_eq!(got.field("www-authenticate"), challenge, "{spoken:?} {status}");
            assert_eq!((got.field("location"), got.field("x-a")), (None, None), "{spoken:?} {status}");
        }
        assert!(scene.try_accept(0).is_none(), "the server is asked nothing");
    }
}

#[test]
fn a_call_is_refused_in_words_of_grpc() {
    let auth = server("HTTP/1.1 401 Unauthorized\r\nContent-Length: 5\r\n\r\nlogin");
    let scene = Scene::new(&GUARDED.replace("{1}", &auth));
    for spoken in BOTH {
        let fields = "content-type: application/grpc\nte: trailers\n";
        let got =
            scene.answer(spoken, &BodylessRequest { method: "POST", fields, ..get("/shop.Orders/Get") });
        assert_eq!(
            (got.status, got.field("grpc-status"), got.body.as_str()),
            (200, Some("16"), ""),
            "{spoken:?}"
        );
    }
}

#[test]
fn a_client_without_a_session_is_sent_to_the_sign_in_page() {
    let back = "http%3A%2F%2Ftest%2Fsecret%3Fa%3Db%26c";
    let refusal = "HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer\r\nSet-Cookie: state=1\r\nset-cookie: b=2\r\n\
                   Content-Length: 5\r\n\r\nlogin";
    for (page, location) in [
        ("https://$host/start", format!("https://test/start?rd={back}")),
        ("/start?x=1", format!("/start?x=1&rd={back}")),
        ("/start?rd=$path_and_query", "/start?rd=/secret%3Fa%3Db%26c".to_owned()),
    ] {
        let config = GUARDED.replace("set_cookie =", &format!("sign_in = {page:?}, set_cookie ="));
        let scene = Scene::new(&config.replace("{1}", &server(refusal)));
        for spoken in BOTH {
            let got = scene.answer(spoken, &get("/secret?a=b&c"));
            assert_eq!((got.status, got.body.as_str()), (302, ""), "{spoken:?}");
            assert_eq!(got.field("location"), Some(location.as_str()), "{spoken:?}");
            assert_eq!(
                (got.all("set-cookie"), got.field("www-authenticate")),
                (vec!["state=1", "b=2"], Some("Bearer"))
            );
            // A gRPC client cannot use a login page.
            let call = BodylessRequest {
                method: "POST",
                fields: "content-type: application/grpc\n",
                ..get("/a.B/C")
            };
            assert_eq!(scene.answer(spoken, &call).field("grpc-status"), Some("16"), "{spoken:?}");
        }
        let scene =
            Scene::new(&config.replace("{1}", &server("HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno")));
        for spoken in BOTH {
            assert_eq!(scene.answer(spoken, &get("/secret")).status, 403, "{spoken:?} is passed on");
        }
    }
}

#[test]
fn nobody_is_let_in_without_an_answer() {
    let long =
        Box::leak(format!("HTTP/1.1 403 No\r\nContent-Length: 300000\r\n\r\n{}", "x".repeat(300_000)).into());
    for (auth, status, cause) in [
        (nobody(), 502, "auth-unreachable"),
        (server("nonsense\r\n\r\n"), 502, "auth-failed"),
        (server("HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n"), 502, "auth-failed"),
        (server("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"), 502, "auth-failed"),
        (server(long), 502, "auth-too-large"),
        (server("HTTP/1.1 403 No\r\nContent-Length: 5\r\n\r\nhal"), 504, "auth-timeout"),
        (server(""), 504, "auth-timeout"),
    ] {
        // A long time-out, so that only a silent server causes it, not a busy machine.
        let timeout = if cause == "auth-timeout" { "100ms" } else { "1h" };
        let config =
            GUARDED.replace("{1}", &auth).replace("path =", &format!("timeout = \"{timeout}\", path ="));
        let scene = Scene::new(&config);
        for spoken in BOTH {
            assert_eq!(scene.answer(spoken, &get("/")).status, status, "{spoken:?} {cause}");
        }
        let failed = format!("vanward_forward_auth_failures_total{{route=\"/\",cause=\"{cause}\"}}");
        let failures = format!("vanward_failures_total{{cause=\"{cause}\"}}");
        assert_told(&scene, &[(&failed, 2.0), (&failures, 2.0)]);
        assert!(scene.try_accept(0).is_none(), "{cause}");
    }
}

#[test]
fn no_client_is_told_to_go_on_before_it_is_let_in() {
    let scene = Scene::new(GUARDED);
    let SceneClient::One(mut peer) = scene.client(Spoken::Http1) else { unreachable!() };
    let head = "PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
    peer.sends(head);
    let mut auth = scene.accept(1);
    let asked = lines(&auth.head());
    assert!(
        !asked.iter().any(|line| line.starts_with("expect") || line.starts_with("content-")),
        "{asked:?}"
    );
    peer.has_nothing();
    auth.sends("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let mut server = scene.accept(0).after_head();
    peer.has_nothing();
    server.sends("HTTP/1.1 100 Continue\r\n\r\n");
    assert!(peer.head().starts_with("HTTP/1.1 100 "));
    peer.sends("body");
    server.gets(b"body");
    server.sends(OK);
    assert_eq!(peer.message().status(), 200);
    peer.sends(head);
    auth.head();
    auth.sends("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(peer.message().status(), 403);
    peer.gets_the_end();
}

#[test]
fn bodies_and_upgrades_pass_once_they_are_let_in() {
    let auth = server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let body = vec![b'b'; 100_000];
    for spoken in BOTH {
        let scene = Scene::new(&GUARDED.replace("{1}", &auth));
        let mut client = scene.client(spoken);
        client.posts(&[b"a", &body, b"c"], true);
        let mut server = scene.accept(0);
        assert_eq!(server.message().body.len(), 100_002, "{spoken:?}");
        server.sends(OK);
        assert_eq!(client.gets().status, 200, "{spoken:?}");
    }
    let scene = Scene::new(&GUARDED.replace("{1}", &auth));
    let SceneClient::One(mut peer) = scene.client(Spoken::Http1) else { unreachable!() };
    peer.sends("GET / HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    let mut server = scene.accept(0);
    assert!(lines(&server.head()).contains(&"upgrade: echo".to_owned()));
    server.sends("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nhello");
    assert!(peer.head().starts_with("HTTP/1.1 101 "));
    peer.gets(b"hello");
}

#[test]
fn only_listed_fields_are_told() {
    let config = GUARDED.replace("path =", "request_headers = [\"Cookie\", \"X-Device\"], path =");
    for spoken in BOTH {
        let scene = Scene::new(&config);
        let mut client = scene.client(spoken);
        let fields = "cookie: a=1\nx-device: d\nauthorization: Bearer t\naccept: */*\n";
        client.asks(&BodylessRequest { fields, ..get("/") });
        let mut auth = scene.accept(1);
        let asked = lines(&auth.head());
        for line in ["cookie: a=1", "x-device: d", "x-forwarded-uri: /"] {
            assert!(asked.contains(&line.to_owned()), "{spoken:?} {line} {asked:?}");
        }
        for name in ["authorization", "accept"] {
            assert!(!asked.iter().any(|line| line.starts_with(&format!("{name}:"))), "{name}: {asked:?}");
        }
        auth.sends("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(client.gets().status, 403);
    }
}

/// The user `me` with the password `secret`, with a cheap hash.
const USERS: &str = "me:$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n";

#[test]
fn ways_are_combined() {
    let yes = "HTTP/1.1 200 OK\r\nX-Auth-User: ann\r\nContent-Length: 0\r\n\r\n";
    let no = "HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n";
    let password = format!("authorization: Basic {}\n", BASE64_STANDARD.encode("me:secret"));
    let wrong = format!("authorization: Basic {}\n", BASE64_STANDARD.encode("me:wrong"));
    let app = server(OK);
    for (require, answer, fields, status, challenges) in [
        ("", yes, password.as_str(), 200, 0),
        ("", yes, "", 401, 1),
        ("", no, &password, 401, 1),
        ("require = \"all\"", yes, &wrong, 401, 1),
        ("require = \"any\"", yes, "", 200, 0),
        ("require = \"any\"", no, &password, 200, 0),
        ("require = \"any\"", no, "", 401, 2),
        ("require = \"any\"", no, &wrong, 401, 2),
    ] {
        let config = GUARDED.replace("{0}", &app).replace("{1}", &server(answer));
        let config = config
            .replace("upstream = \"app\"\n", "upstream = \"app\"\nauth = { users = \"{dir}/users\" }\n");
        let scene = Scene::with_files(
            &[("users", USERS)],
            &config.replace("[[route]]", &format!("[[route]]\n{require}")),
        );
        for spoken in BOTH {
            // The second time the password is known.
            for _ in 0..2 {
                let got = scene.answer(spoken, &BodylessRequest { fields, ..get("/") });
                assert_eq!(got.status, status, "{require} {fields}");
                assert_eq!(
                    got.all("www-authenticate").len(),
                    challenges,
                    "{require} {fields} {}",
                    got.fields
                );
            }
        }
    }
}
