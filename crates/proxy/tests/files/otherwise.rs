//! Files first, else a server.

use std::fs;
use std::time::Instant;

use testkit::http1::Http1Peer;
use testkit::scene::{BOTH, BodylessRequest, Got, Scene, SceneClient, Spoken, get, read};
use testkit::wait::PATIENCE;

use super::scene::{MODIFIED, scene, with, write};

/// The server closes its connection, so each request to it comes on a new one.
const FROM_SERVER: &str =
    "HTTP/1.1 200 OK\r\nDate: D\r\nConnection: close\r\nContent-Length: 6\r\n\r\nserver";
const APP: &str = "[upstream.app]\nservers = [\"http://{0}\"]\n";

/// Files, and a server for all other requests; `more` is the rest of the route.
fn files_first(options: &str, more: &str) -> Scene {
    scene(&format!(", else = {{ upstream = \"app\" }}{options}"), &format!("{more}{APP}"))
}

/// Lets the server answer the request that the client has sent. Returns what each of them gets.
fn serves(scene: &Scene, client: &mut SceneClient) -> (String, Got) {
    let mut server = scene.accept(0);
    let seen = server.head();
    server.sends(FROM_SERVER);
    (seen, client.gets())
}

/// The start line that the server gets.
fn asked_of_server(scene: &Scene, client: &mut SceneClient, asked: &BodylessRequest<'_>) -> String {
    client.asks(asked);
    let (seen, got) = serves(scene, client);
    assert_eq!((got.status, got.body.as_str()), (200, "server"), "{asked:?}");
    seen.lines().next().expect("has a start line").to_owned()
}

#[test]
fn a_file_is_sent_and_the_server_gets_all_other_requests() {
    let scene = files_first(", precompressed = true", "");
    write(&scene, "root/app.js", "script");
    write(&scene, "root/app.js.gz", "coded");
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        // Twice: the first time it is looked up.
        for _ in 0..2 {
            for (target, fields, status, body) in [
                ("/page.txt?v=1", "", 200, "0123456789"),
                ("/", "", 200, "<p>home"),
                ("/docs/", "", 200, "<p>docs"),
                ("/docs", "", 301, ""),
                ("/app.js", "accept-encoding: gzip", 200, "coded"),
                ("/page.txt", "range: bytes=2-3", 206, "23"),
                ("/.well-known/security.txt", "", 200, "Contact: mailto:a@example.com"),
            ] {
                let got = client.asks_for(&with(target, fields));
                assert_eq!((got.status, got.body.as_str()), (status, body), "{target}");
                assert_eq!(got.field("last-modified"), (status != 301).then_some(MODIFIED), "{target}");
            }
            for target in [
                "/gone?x=1",
                "/gone/deep/",
                "/page.txt/",
                // Nothing is sent of a directory without an index, so its slash is not asked for either.
                "/plain",
                "/plain/",
                // What clients never get as a file is no file for them.
                "/.secret",
                "/.git/config",
                "/a%2fb",
            ] {
                let seen = asked_of_server(&scene, &mut client, &get(target));
                assert_eq!(seen, format!("GET {target} HTTP/1.1"));
            }
        }
    }
}

#[test]
fn the_server_may_get_another_path() {
    let scene = scene(", else = { upstream = \"app\", path = \"/app?of=$path&$query\" }", APP);
    write(&scene, "root/app.js", "script");
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        for (target, expected) in
            [("/gone", "/app?of=/gone&"), ("/gone?x=1", "/app?of=/gone&x=1"), ("/plain/", "/app?of=/plain/&")]
        {
            // Twice: the second time it is known that there is no file.
            for _ in 0..2 {
                let seen = asked_of_server(&scene, &mut client, &get(target));
                assert_eq!(seen, format!("GET {expected} HTTP/1.1"), "{spoken:?}");
            }
        }
        let put = BodylessRequest { method: "DELETE", ..get("/app.js") };
        let seen = asked_of_server(&scene, &mut client, &put);
        assert_eq!(seen, "DELETE /app?of=/app.js& HTTP/1.1", "{spoken:?}");
        assert_eq!(client.asks_for(&get("/app.js")).body, "script", "{spoken:?}");
    }
}

#[test]
fn other_methods_go_to_the_server_with_their_body_even_for_a_file() {
    let scene = files_first("", "");
    write(&scene, "root/up", "a file");
    for spoken in BOTH {
        for has_length in [true, false] {
            let mut client = scene.client(spoken);
            client.posts(&[b"some ", b"body"], has_length);
            let mut server = scene.accept(0);
            let message = server.message();
            assert!(message.head.starts_with("POST /up HTTP/1.1\r\n"), "{}", message.head);
            assert_eq!(message.body, b"some body");
            server.sends(FROM_SERVER);
            assert_eq!(client.gets().body, "server");
        }
        let mut client = scene.client(spoken);
        for method in ["DELETE", "OPTIONS", "PROPFIND"] {
            let seen = asked_of_server(&scene, &mut client, &BodylessRequest { method, ..get("/page.txt") });
            assert_eq!(seen, format!("{method} /page.txt HTTP/1.1"));
        }
    }
}

#[test]
fn head_and_a_get_with_a_body_reach_the_server_if_there_is_no_file() {
    let scene = files_first("", "");
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        client.asks(&BodylessRequest { method: "HEAD", ..get("/gone") });
        let mut server = scene.accept(0);
        assert!(server.head().starts_with("HEAD /gone HTTP/1.1\r\n"));
        server.sends("HTTP/1.1 200 OK\r\nDate: D\r\nConnection: close\r\nContent-Length: 6\r\n\r\n");
        let got = client.gets_head_alone();
        assert_eq!((got.status, got.field("content-length")), (200, Some("6")));
    }
    let SceneClient::One(mut client) = scene.client(Spoken::Http1) else { panic!("it is HTTP/1") };
    client.sends("GET /gone HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nbody");
    let mut server = scene.accept(0);
    assert_eq!(server.message().body, b"body");
    server.sends(FROM_SERVER);
    assert_eq!(client.message().body, b"server");
}

#[test]
fn files_that_come_and_go_are_noticed() {
    let scene = files_first("", "");
    let mut client = scene.client(Spoken::Http1);
    asked_of_server(&scene, &mut client, &get("/new.txt"));
    write(&scene, "root/new.txt", "new");
    let began = Instant::now();
    loop {
        client.asks(&get("/new.txt"));
        // The absence is remembered for a second: until then, the server is asked.
        let body = match server_or_file(&scene, &mut client) {
            Some(server) => answer(server, &mut client).body,
            None => client.gets().body,
        };
        if body == "new" {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "the file was not seen");
    }
    fs::remove_file(scene.file("root/new.txt")).expect("it is there");
    loop {
        client.asks(&get("/new.txt"));
        if let Some(server) = server_or_file(&scene, &mut client) {
            assert_eq!(answer(server, &mut client).body, "server");
            break;
        }
        assert_eq!(client.gets().body, "new");
        assert!(began.elapsed() < PATIENCE, "the removal was not seen");
    }
}

/// Waits until the request has reached the server, or a response the client.
fn server_or_file(scene: &Scene, client: &mut SceneClient) -> Option<Http1Peer> {
    let SceneClient::One(peer) = client else { panic!("it is HTTP/1") };
    loop {
        if let Some(server) = scene.try_accept(0) {
            return Some(server);
        }
        if peer.has_something() {
            return None;
        }
        std::thread::yield_now();
    }
}

fn answer(mut server: Http1Peer, client: &mut SceneClient) -> Got {
    server.head();
    server.sends(FROM_SERVER);
    client.gets()
}

#[test]
fn the_path_is_rewritten_for_files_and_server_alike() {
    let scene = scene(
        "",
        &format!(
            "[[route]]\npath = \"/site\"\nrewrite = {{ path = \"/plain\" }}\nrequest_headers = {{ set = {{ x-from = \
             \"files\" }} }}\nfiles = {{ root = \"{{dir}}/root\", else = {{ upstream = \"app\" }} }}\n{APP}"
        ),
    );
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        assert_eq!(client.asks_for(&get("/site/one.txt")).body, "1");
        client.asks(&get("/site/gone"));
        let (seen, _) = serves(&scene, &mut client);
        assert!(seen.starts_with("GET /plain/gone HTTP/1.1\r\n"), "{seen}");
        assert!(seen.to_lowercase().contains("\r\nx-from: files\r\n"), "{seen}");
    }
}

#[test]
fn a_websocket_reaches_the_server() {
    let scene = files_first("", "");
    let SceneClient::One(mut client) = scene.client(Spoken::Http1) else { panic!("it is HTTP/1") };
    client.sends("GET /ws HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    let mut server = scene.accept(0);
    assert!(server.head().to_lowercase().contains("\r\nupgrade: websocket\r\n"));
    server
        .sends("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello");
    assert!(client.head().starts_with("HTTP/1.1 101 "));
    client.gets(b"hello");
    client.sends("back");
    server.gets(b"back");
}

#[test]
fn responses_of_the_server_are_cached_and_coded_and_files_are_not_stored() {
    let scene = files_first("", "cache = {}\ncompress = { min_size = 0 }\n[cache]\nmemory = \"8MiB\"\n");
    let long = "long ".repeat(400);
    for (target, spoken) in [("/one", Spoken::Http1), ("/two", Spoken::Http2)] {
        let mut client = scene.client(spoken);
        let asked = with(target, "accept-encoding: identity");
        client.asks(&asked);
        let mut server = scene.accept(0);
        server.head();
        server.sends(format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{long}",
            long.len()
        ));
        assert_eq!(client.gets().body, long);
        // The store answers without the server.
        assert_eq!(client.asks_for(&asked).body, long);
        let SceneClient::One(mut coded) = scene.client(Spoken::Http1) else { panic!("it is HTTP/1") };
        coded.sends(format!("GET {target} HTTP/1.1\r\nHost: test\r\nAccept-Encoding: gzip\r\n\r\n"));
        assert!(coded.head().to_lowercase().contains("\r\ncontent-encoding: gzip\r\n"));
        assert_eq!(client.asks_for(&get("/page.txt")).body, "0123456789");
    }
    assert!(scene.try_accept(0).is_none());
    write(&scene, "root/one", "now a file");
    let began = Instant::now();
    let mut client = scene.client(Spoken::Http1);
    while client.asks_for(&with("/one", "accept-encoding: identity")).body != "now a file" {
        assert!(began.elapsed() < PATIENCE, "the stored response hides the file");
    }
}

#[test]
fn a_copy_for_a_mirror_is_made_of_requests_for_the_server() {
    let scene = scene(
        ", else = { upstream = \"app\" }",
        &format!("mirror = {{ upstream = \"copy\" }}\n{APP}[upstream.copy]\nservers = [\"http://{{1}}\"]\n"),
    );
    let mut client = scene.client(Spoken::Http1);
    assert_eq!(client.asks_for(&get("/page.txt")).status, 200);
    client.asks(&get("/gone"));
    serves(&scene, &mut client);
    assert!(scene.accept(1).head().starts_with("GET /gone HTTP/1.1\r\n"));
}

#[test]
fn a_reload_changes_where_requests_without_a_file_go() {
    let (first, second) = (testkit::ports::listen(), testkit::ports::listen());
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = |server: &std::net::TcpListener, otherwise: &str| {
        let (root, address) = (directory.path().display(), server.local_addr().expect("it listens"));
        let listen = "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n";
        let route = format!("[[route]]\nfiles = {{ root = \"{root}\"{otherwise} }}\n");
        read(&format!("{listen}{route}[upstream.app]\nservers = [\"http://{address}\"]\n"))
    };
    let otherwise = ", else = { upstream = \"app\" }";
    let running = control::start(config(&first, otherwise)).unwrap_or_else(|error| panic!("{error}"));
    let stream = std::net::TcpStream::connect(running.addresses()[0]).expect("the proxy listens");
    let mut client = Http1Peer::new("client", stream);
    for server in [&first, &second] {
        running.reload(config(server, otherwise)).expect("it is valid");
        client.sends("GET /gone HTTP/1.1\r\nHost: test\r\n\r\n");
        let mut server = Http1Peer::new("server", testkit::ports::accept(server));
        server.head();
        server.sends(FROM_SERVER);
        assert_eq!(client.message().body, b"server");
    }
    running.reload(config(&second, "")).expect("it is valid");
    client.sends("GET /gone HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(client.message().status(), 404);
}
