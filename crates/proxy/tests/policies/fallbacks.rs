//! Another upstream's answer in place of an error.

use std::net::{TcpListener, TcpStream};

use testkit::http1::Http1Peer;
use testkit::http2::frame::headers;
use testkit::http3::H3TestClient;
use testkit::ports;
use testkit::scene::{BOTH, BodylessRequest, Got, Scene, SceneClient, Spoken, get, read};
use testkit::text::OK;
use testkit::wait::{Patience, assert_soon};

/// Connections of both servers end with each response, so that every request comes on a new one.
fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nDate: D\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A route to the first server, with these fallbacks to the second; `more` is the rest of the route and the file.
fn scene_with(on_status: &str, more: &str) -> Scene {
    Scene::new(&format!(
        "[[route]]\nupstream = \"app\"\non_status = {{ {on_status} }}\n{more}\n\
         [upstream.app]\nservers = [\"http://{{0}}\"]\n[upstream.legacy]\nservers = [\"http://{{1}}\"]\n"
    ))
}

fn scene(on_status: &str) -> Scene {
    scene_with(on_status, "")
}

const LEGACY: &str = "404 = { upstream = \"legacy\" }";
const PAGES: &str = "\"5xx\" = { upstream = \"legacy\", path = \"/{status}.html\", keep_status = true }";

/// Lets a server answer its next request; returns the head.
fn serves(scene: &Scene, server: usize, response: &str) -> String {
    let mut peer = scene.accept(server);
    let head = peer.head();
    peer.sends(response);
    head
}

fn head_of(got: &Got, client: Spoken) -> (u16, &str) {
    assert!(client == Spoken::Http2 || got.field("content-length").is_some(), "{got:?}");
    (got.status, &got.body)
}

#[test]
fn another_server_answers_the_same_request() {
    let scene = scene(LEGACY);
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        for method in ["GET", "DELETE", "POST"] {
            let asked = BodylessRequest { method, fields: "x-a: b\nif-none-match: \"x\"", ..get("/old?x=1") };
            client.asks(&asked);
            let first = serves(&scene, 0, &answer("404 Not Found", "lost"));
            let second = serves(&scene, 1, &answer("200 OK", "found"));
            assert!(first.starts_with(&format!("{method} /old?x=1 HTTP/1.1\r\n")), "{first}");
            assert_eq!(first, second);
            let got = client.gets();
            assert_eq!(head_of(&got, spoken), (200, "found"), "{method}");
        }
        // One hop: the second answer is final.
        client.asks(&get("/never"));
        serves(&scene, 0, &answer("404 Not Found", "lost"));
        serves(&scene, 1, &answer("404 Not Found", "lost there, too"));
        assert_eq!(head_of(&client.gets(), spoken), (404, "lost there, too"));
        // Another status is that of the first.
        client.asks(&get("/gone"));
        serves(&scene, 0, &answer("410 Gone", "gone"));
        assert_eq!(head_of(&client.gets(), spoken), (410, "gone"));
        assert!(scene.try_accept(1).is_none());
    }
}

#[test]
fn a_response_that_is_discarded_leaves_its_connection_to_the_next_request() {
    let scene = scene(LEGACY);
    let SceneClient::One(mut client) = scene.client(Spoken::Http1) else { panic!("it is HTTP/1") };
    let lost = "HTTP/1.1 404 Not Found\r\nDate: D\r\nContent-Length: 4\r\n\r\nlost";
    let ask = |client: &mut Http1Peer| client.sends("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    ask(&mut client);
    let (mut app, mut legacy) = (scene.accept(0), None);
    for _ in 0..3 {
        app.head();
        app.sends(lost);
        let legacy = legacy.get_or_insert_with(|| scene.accept(1));
        legacy.head();
        legacy.sends(OK);
        assert_eq!(client.message().body, b"ok");
        ask(&mut client);
    }
}

#[test]
fn an_error_page_keeps_the_status() {
    let scene = scene(PAGES);
    for spoken in BOTH {
        for (status, page) in [("503 Busy", "200 OK"), ("500 Oops", "404 Not Found")] {
            let mut client = scene.client(spoken);
            client.posts(&[b"some ", b"body"], true);
            let mut app = scene.accept(0);
            assert_eq!(app.message().body, b"some body");
            app.sends(answer(status, "not shown"));
            let code = &status[..3];
            let second = serves(&scene, 1, &answer(page, "a page"));
            assert!(second.starts_with(&format!("GET /{code}.html HTTP/1.1\r\n")), "{second}");
            let lower = second.to_lowercase();
            assert!(lower.contains("\r\nhost: test\r\n") && !lower.contains("content-"), "{second}");
            let got = client.gets();
            assert_eq!(head_of(&got, spoken), (code.parse().unwrap(), "a page"));
            // The connection goes on.
            client.asks(&get("/next"));
            serves(&scene, 0, &answer("200 OK", "next"));
            assert_eq!(client.gets().body, "next");
        }
        let mut client = scene.client(spoken);
        client.asks(&BodylessRequest {
            method: "HEAD",
            fields: "range: bytes=0-1\nif-none-match: \"x\"",
            ..get("/")
        });
        serves(&scene, 0, "HTTP/1.1 502 Bad\r\nConnection: close\r\nContent-Length: 3\r\n\r\n");
        let second = serves(&scene, 1, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 6\r\n\r\n");
        assert!(second.starts_with("HEAD /502.html HTTP/1.1\r\n"), "{second}");
        assert!(
            !second.to_lowercase().contains("range") && !second.to_lowercase().contains("if-none"),
            "{second}"
        );
        let got = client.gets_head_alone();
        assert_eq!((got.status, got.field("content-length")), (502, Some("6")));
        // A page without a body, and without a length.
        let mut client = scene.client(spoken);
        client.asks(&get("/"));
        serves(&scene, 0, &answer("503 Busy", "not shown"));
        serves(&scene, 1, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
        let got = client.gets();
        assert_eq!((got.status, got.body.as_str(), got.field("content-length")), (503, "", Some("0")));
    }
}

/// A scene whose first upstream cannot be reached.
fn unreachable(on_status: &str) -> Scene {
    Scene::new(&format!(
        "[[route]]\nupstream = \"app\"\non_status = {{ {on_status} }}\n\
         [upstream.app]\nservers = [\"http://127.0.0.1:1\"]\n[upstream.legacy]\nservers = [\"http://{{0}}\"]\n"
    ))
}

#[test]
fn a_failure_is_answered_by_another_server() {
    let scene = unreachable("502 = { upstream = \"legacy\" }");
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        client.asks(&get("/a"));
        assert!(serves(&scene, 0, &answer("200 OK", "here")).starts_with("GET /a "));
        assert_eq!(head_of(&client.gets(), spoken), (200, "here"));
        // No server has seen the body, so it may be sent.
        let long = vec![b'x'; 300_000];
        for pieces in [&[b"some ".as_slice(), b"body"][..], &[&long]] {
            let mut client = scene.client(spoken);
            std::thread::scope(|threads| {
                // A client with HTTP/2 has to hear of the window while it sends.
                threads.spawn(|| client.posts(pieces, true));
                let mut server = scene.accept(0);
                let message = server.message();
                assert!(message.head.starts_with("POST /up "), "{}", message.head);
                assert_eq!(message.body, pieces.concat());
                server.sends(answer("200 OK", "here"));
            });
            assert_eq!(client.gets().body, "here");
        }
    }
    let pages = unreachable(PAGES);
    let mut client = pages.client(Spoken::Http2);
    client.asks(&get("/a"));
    assert!(serves(&pages, 0, &answer("200 OK", "page")).starts_with("GET /502.html "));
    assert_eq!(head_of(&client.gets(), Spoken::Http2), (502, "page"));
    // Without a page, the client gets the text of the failure.
    client.asks(&get("/a"));
    drop(pages.accept(0));
    let got = client.gets();
    assert_eq!((got.status, got.body.as_str()), (502, "The server could not be reached.\n"));
}

#[test]
fn the_request_for_a_page_has_fields_of_its_own() {
    let fields = "{ X-Code = \"$status\", X-Original-URI = \"$path_and_query\", X-Format = \"$header.accept\", X-None = \"$arg.none\" }";
    let scene =
        scene(&format!("\"5xx\" = {{ upstream = \"legacy\", path = \"/{{status}}\", fields = {fields} }}"));
    for spoken in BOTH {
        let mut client = scene.client(spoken);
        // A client cannot write them.
        let forged = "accept: text/css\nx-code: 200\nx_code: 201\nx-none: 1\nx-own: a";
        client.asks(&BodylessRequest { method: "GET", fields: forged, ..get("/a/b?c=d") });
        let first = serves(&scene, 0, &answer("503 Busy", "not shown")).to_lowercase();
        assert!(first.contains("x-code: 200\r\n") && !first.contains("x-format"), "{first}");
        let page = serves(&scene, 1, &answer("418 Teapot", "page")).to_lowercase();
        assert!(page.starts_with("get /503 "), "{page}");
        let of_pages = |line: &&str| line.starts_with("x-") || line.starts_with("x_");
        let own: Vec<&str> =
            page.lines().filter(of_pages).filter(|line| !line.starts_with("x-forwarded")).collect();
        assert_eq!(own, ["x-own: a", "x-code: 503", "x-original-uri: /a/b?c=d", "x-format: text/css"]);
        assert_eq!(head_of(&client.gets(), spoken), (418, "page"));
    }
}

#[test]
fn an_upstream_without_a_free_server_is_replaced() {
    let of = |servers: &str| {
        Scene::new(&format!(
            "[[route]]\nupstream = \"app\"\non_status = {{ 503 = {{ upstream = \"legacy\" }} }}\n\
             [[log]]\ntarget = \"{{dir}}/log\"\nformat = \"json\"\n\
             [upstream.legacy]\nservers = [\"http://{{0}}\"]\n[upstream.app]\n{servers}\n"
        ))
    };
    // No server is in service.
    let none = of("servers = [{ url = \"http://127.0.0.1:1\", down = true }]");
    for spoken in BOTH {
        let mut client = none.client(spoken);
        client.asks(&get("/none"));
        assert!(serves(&none, 0, &answer("200 OK", "here")).starts_with("GET /none "));
        assert_eq!(head_of(&client.gets(), spoken), (200, "here"));
        client.posts(&[b"seen by none"], true);
        let mut server = none.accept(0);
        assert_eq!(server.message().body, b"seen by none");
        server.sends(answer("200 OK", "here"));
        assert_eq!(client.gets().body, "here");
    }
    assert_eq!(logged(&none)["fallback_from"], "no-server@app");
    // The only server is busy, and the queue has no place. Each worker has its queue, so a longer one may differ.
    let full = of("servers = [{ url = \"http://{1}\", max_requests = 1 }]\nqueue = { length = 0 }");
    let [mut first, mut second] = [(); 2].map(|()| full.client(Spoken::Http1));
    first.asks(&get("/first"));
    let mut app = full.accept(1);
    app.head();
    second.asks(&get("/second"));
    assert!(serves(&full, 0, &answer("200 OK", "here")).starts_with("GET /second "));
    assert_eq!(second.gets().body, "here");
    assert_eq!(logged(&full)["fallback_from"], "upstream-full@app");
    app.sends(answer("200 OK", "first"));
    assert_eq!(first.gets().body, "first");
}

#[test]
fn a_request_keeps_the_fallback_with_which_it_began() {
    let [app, old, new] = [(); 3].map(|()| ports::listen());
    let config = |legacy: &TcpListener| {
        read(&format!(
            "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[route]]\nupstream = \"app\"\non_status = {{ {LEGACY} }}\n\
             [upstream.app]\nservers = [\"http://{}\"]\n[upstream.legacy]\nservers = [\"http://{}\"]\n",
            ports::address_of(&app),
            ports::address_of(legacy)
        ))
    };
    let running = control::start(config(&old)).unwrap_or_else(|error| panic!("{error}"));
    let stream = TcpStream::connect(running.addresses()[0]).expect("the proxy listens");
    let mut client = Http1Peer::new("client", stream);
    for legacy in [&old, &new] {
        client.sends("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
        let mut server = Http1Peer::new("server", ports::accept(&app));
        server.head();
        // A reload between the first answer and the second.
        running.reload(config(&new)).expect("it is valid");
        server.sends(answer("404 Not Found", "lost"));
        let mut server = Http1Peer::new("server", ports::accept(legacy));
        server.head();
        server.sends(answer("200 OK", "found"));
        assert_eq!(client.message().body, b"found");
    }
}

#[test]
fn responses_of_servers_may_stay() {
    let fallback = "503 = { upstream = \"legacy\", only_failures = true }, 502 = { upstream = \"legacy\", only_failures = true }";
    let reachable = scene(fallback);
    let mut client = reachable.client(Spoken::Http1);
    client.asks(&get("/"));
    serves(&reachable, 0, &answer("503 Busy", "busy"));
    assert_eq!(client.gets().body, "busy");
    assert!(reachable.try_accept(1).is_none());
    let unreachable = unreachable(fallback);
    let mut client = unreachable.client(Spoken::Http1);
    client.asks(&get("/"));
    serves(&unreachable, 0, &answer("200 OK", "here"));
    assert_eq!(client.gets().body, "here");
}

#[test]
fn clients_of_http3_get_the_second_answer() {
    let (app, legacy) = (ports::listen(), ports::listen());
    let config = format!(
        "workers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\ntls = {{ self_signed = true }}\nhttp3 = true\n\
         [[route]]\nupstream = \"app\"\non_status = {{ {LEGACY}, {PAGES} }}\n\
         [upstream.app]\nservers = [\"http://{}\"]\n[upstream.legacy]\nservers = [\"http://{}\"]\n",
        ports::address_of(&app),
        ports::address_of(&legacy)
    );
    let running = control::start(read(&config)).unwrap_or_else(|error| panic!("{error}"));
    let client = H3TestClient::connect(running.addresses()[0]);
    for (first, target, status, body) in [
        ("404 Not Found", "/old", 200, "found"),
        ("503 Busy", "/503.html", 503, "found"),
        ("410 Gone", "", 410, "not shown"),
    ] {
        let mut stream = client.asks("GET", "/old", "");
        let mut server = Http1Peer::new("server", ports::accept(&app));
        server.head();
        server.sends(answer(first, "not shown"));
        if !target.is_empty() {
            let mut server = Http1Peer::new("server", ports::accept(&legacy));
            let head = server.head();
            assert!(head.starts_with(&format!("GET {target} HTTP/1.1\r\n")), "{head}");
            server.sends(answer("200 OK", "found"));
        }
        let (head, got, _) = stream.response();
        assert!(head.starts_with(&format!(":status: {status}\n")), "{head}");
        assert_eq!(String::from_utf8_lossy(&got), body);
    }
}

#[test]
fn a_server_that_is_late_is_replaced() {
    let scene =
        scene_with("504 = { upstream = \"legacy\" }", "timeouts = { upstream_first_byte = \"100ms\" }");
    let mut client = scene.client(Spoken::Http1);
    client.asks(&get("/"));
    let mut late = scene.accept(0);
    late.head();
    serves(&scene, 1, &answer("200 OK", "in time"));
    assert_eq!(client.gets().body, "in time");
}

#[test]
fn a_body_is_sent_twice_only_if_it_may_be() {
    let scene = scene("404 = { upstream = \"legacy\" }");
    for spoken in BOTH {
        // The first server may have acted on a POST, so its response is the client's.
        let mut client = scene.client(spoken);
        client.posts(&[b"once"], true);
        let mut app = scene.accept(0);
        assert_eq!(app.message().body, b"once");
        app.sends(answer("404 Not Found", "lost"));
        assert_eq!(head_of(&client.gets(), spoken), (404, "lost"));
    }
    // PUT may be repeated (RFC 9110 §9.2.2) while its body is still here.
    let SceneClient::One(mut client) = scene.client(Spoken::Http1) else { panic!("it is HTTP/1") };
    for (framing, body) in
        [("Content-Length: 5", "twice"), ("Transfer-Encoding: chunked", "5\r\ntwice\r\n0\r\n\r\n")]
    {
        client.sends(format!("PUT /x HTTP/1.1\r\nHost: test\r\n{framing}\r\n\r\n{body}"));
        for (server, response) in [(0, answer("404 Not Found", "lost")), (1, answer("200 OK", "put"))] {
            let mut peer = scene.accept(server);
            let message = peer.message();
            assert_eq!(message.body, b"twice", "{framing}: {}", message.head);
            peer.sends(response);
        }
        assert_eq!(client.message().body, b"put");
    }
    // A longer one has left.
    let long = vec![b'x'; 1 << 20];
    client.sends(format!("PUT /x HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", long.len()));
    client.sends(&long);
    let mut app = scene.accept(0);
    assert_eq!(app.message().body.len(), long.len());
    app.sends(answer("404 Not Found", "lost"));
    assert_eq!(client.message().status(), 404);
    assert!(scene.try_accept(1).is_none());
}

#[test]
fn a_buffered_body_is_sent_again() {
    let scene = scene_with(
        "404 = { upstream = \"legacy\" }",
        "request_buffering = { memory = 100 }\n[request_buffering]\npath = \"{dir}\"",
    );
    let long = vec![b'x'; 100_000];
    for spoken in BOTH {
        for body in [b"short".as_slice(), &long] {
            let mut client = scene.client(spoken);
            client.posts(&[body], true);
            for (server, response) in [(0, answer("404 Not Found", "lost")), (1, answer("200 OK", "found"))] {
                let mut peer = scene.accept(server);
                assert_eq!(peer.message().body, body);
                peer.sends(response);
            }
            assert_eq!(client.gets().body, "found");
            client.asks(&get("/next"));
            serves(&scene, 0, &answer("200 OK", "next"));
            assert_eq!(client.gets().body, "next");
        }
    }
}

#[test]
fn an_error_page_for_an_unfinished_body_ends_the_connection() {
    let scene = scene(PAGES);
    let SceneClient::One(mut client) = scene.client(Spoken::Http1) else { panic!("it is HTTP/1") };
    client.sends("POST /up HTTP/1.1\r\nHost: test\r\nContent-Length: 100\r\n\r\nbegun");
    let mut app = scene.accept(0);
    app.head();
    app.sends(answer("503 Busy", "not shown"));
    assert!(serves(&scene, 1, &answer("200 OK", "page")).starts_with("GET /503.html "));
    let message = client.message();
    assert!(message.head.contains("Connection: close\r\n"), "{}", message.head);
    assert_eq!((message.status(), message.body.as_slice()), (503, b"page".as_slice()));
    client.gets_the_end();
    // Over HTTP/2 only the stream ends.
    let SceneClient::Two(mut client, stream) = scene.client(Spoken::Http2) else { panic!("it is HTTP/2") };
    client.sends(headers(stream, ":method: POST\n:scheme: http\n:authority: test\n:path: /up\n"));
    client.sends_body(stream, b"begun", false);
    let mut app = scene.accept(0);
    app.head();
    app.sends(answer("503 Busy", "not shown"));
    serves(&scene, 1, &answer("200 OK", "page"));
    assert!(client.whole(stream).contains("page"));
}

#[test]
fn upgrades_and_interim_responses() {
    let scene = scene(LEGACY);
    let SceneClient::One(mut client) = scene.client(Spoken::Http1) else { panic!("it is HTTP/1") };
    client.sends("GET /ws HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    serves(&scene, 0, &answer("404 Not Found", "no socket"));
    serves(&scene, 1, &answer("426 Upgrade Required", "no socket here either"));
    assert_eq!(client.message().body, b"no socket here either");
    let SceneClient::One(mut client) = scene.client(Spoken::Http1) else { panic!("it is HTTP/1") };
    client.sends("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    serves(&scene, 0, &format!("HTTP/1.1 103 Early Hints\r\n\r\n{}", answer("404 Not Found", "lost")));
    serves(&scene, 1, &answer("200 OK", "found"));
    assert!(client.head().starts_with("HTTP/1.1 103 "));
    assert_eq!(client.message().body, b"found");
}

#[test]
fn the_stored_response_is_the_final_one() {
    let more = "cache = {}\ncompress = { min_size = 0 }\n[cache]\nmemory = \"8MiB\"";
    let scene = scene_with(
        "404 = { upstream = \"legacy\" }, 503 = { upstream = \"legacy\", path = \"/busy\", keep_status = true }",
        more,
    );
    let fresh = |text: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nETag: \"e\"\r\nContent-Type: text/plain\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{text}",
            text.len()
        )
    };
    let text = "from legacy ".repeat(100);
    for (spoken, target) in [(Spoken::Http1, "/one"), (Spoken::Http2, "/two")] {
        let mut client = scene.client(spoken);
        let asked = BodylessRequest { fields: "accept-encoding: identity", ..get(target) };
        client.asks(&asked);
        serves(&scene, 0, &answer("404 Not Found", "lost"));
        serves(&scene, 1, &fresh(&text));
        assert_eq!(client.gets().body, text);
        // A hit asks neither server.
        assert_eq!(client.asks_for(&asked).body, text);
        let SceneClient::One(mut coded) = scene.client(Spoken::Http1) else { panic!("it is HTTP/1") };
        coded.sends(format!("GET {target} HTTP/1.1\r\nHost: test\r\nAccept-Encoding: gzip\r\n\r\n"));
        assert!(coded.head().to_lowercase().contains("\r\ncontent-encoding: gzip\r\n"));
    }
    // Without a lifetime, RFC 9111 §4.2.2 allows to store a page for 200, but not for 503.
    let heuristic = "HTTP/1.1 200 OK\r\nLast-Modified: Tue, 01 Oct 2024 10:00:00 GMT\r\nConnection: close\r\n\
                     Content-Length: 4\r\n\r\npage";
    for _ in 0..2 {
        let mut client = scene.client(Spoken::Http1);
        client.asks(&get("/busy"));
        serves(&scene, 0, &answer("503 Busy", "busy"));
        serves(&scene, 1, heuristic);
        assert_eq!(client.gets().status, 503);
    }
}

#[test]
fn a_stored_response_is_validated_with_the_first_server_only() {
    let scene = scene_with(LEGACY, "cache = {}\n[cache]\nmemory = \"8MiB\"");
    let stale = "HTTP/1.1 200 OK\r\nCache-Control: max-age=0\r\nETag: \"e\"\r\nConnection: close\r\nContent-Length: 3\r\n\r\nold";
    let mut client = scene.client(Spoken::Http1);
    client.asks(&get("/"));
    serves(&scene, 0, stale);
    assert_eq!(client.gets().body, "old");
    client.asks(&get("/"));
    let first = serves(&scene, 0, &answer("404 Not Found", "lost"));
    assert!(first.to_lowercase().contains("\r\nif-none-match: \"e\"\r\n"), "{first}");
    let second = serves(&scene, 1, &answer("200 OK", "new"));
    assert!(!second.to_lowercase().contains("if-none-match"), "{second}");
    assert_eq!(client.gets().body, "new");
}

#[test]
fn retries_come_first() {
    let scene = Scene::new(
        "[[route]]\nupstream = \"app\"\non_status = { 503 = { upstream = \"legacy\" } }\n\
         retry = { on = [\"503\"], attempts = 2 }\n\
         [upstream.app]\nservers = [\"http://{0}\", \"http://{1}\"]\n[upstream.legacy]\nservers = [\"http://{2}\"]\n",
    );
    let mut client = scene.client(Spoken::Http1);
    client.asks(&get("/"));
    let mut asked = [false; 2];
    while asked != [true; 2] {
        for (server, was_asked) in asked.iter_mut().enumerate() {
            if let Some(mut peer) = scene.try_accept(server) {
                peer.head();
                peer.sends(answer("503 Busy", "busy"));
                *was_asked = true;
            }
        }
        std::thread::yield_now();
    }
    serves(&scene, 2, &answer("200 OK", "found"));
    assert_eq!(client.gets().body, "found");
}

#[test]
fn a_mirror_is_asked_once() {
    let scene = Scene::new(
        "[[route]]\nupstream = \"app\"\non_status = { 404 = { upstream = \"legacy\" } }\nmirror = { upstream = \"copy\" }\n\
         [upstream.app]\nservers = [\"http://{0}\"]\n[upstream.legacy]\nservers = [\"http://{1}\"]\n\
         [upstream.copy]\nservers = [\"http://{2}\"]\n",
    );
    let mut client = scene.client(Spoken::Http1);
    client.asks(&get("/"));
    serves(&scene, 0, &answer("404 Not Found", "lost"));
    serves(&scene, 1, &answer("200 OK", "found"));
    assert_eq!(client.gets().body, "found");
    serves(&scene, 2, &answer("404 Not Found", "lost"));
    // A copy's status concerns no client: no other server is asked for it.
    client.asks(&get("/"));
    serves(&scene, 0, &answer("200 OK", "here"));
    assert_eq!(client.gets().body, "here");
    assert!(scene.try_accept(1).is_none());
}

/// The first line of the log.
fn logged(scene: &Scene) -> serde_json::Value {
    let log = scene.file("log");
    let patience = Patience::new();
    loop {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        if let Some((line, _)) = text.split_once('\n') {
            return serde_json::from_str(line).expect("is JSON");
        }
        patience.wait("no line");
    }
}

#[test]
fn the_log_names_both_servers() {
    let scene = scene_with(LEGACY, "[[log]]\ntarget = \"{dir}/log\"\nformat = \"json\"");
    let mut client = scene.client(Spoken::Http1);
    client.asks(&get("/"));
    serves(&scene, 0, &answer("404 Not Found", "lost"));
    serves(&scene, 1, &answer("200 OK", "found"));
    assert_eq!(client.gets().body, "found");
    let line = logged(&scene);
    assert_eq!(line["fallback_from"], format!("404@{}", scene.server_address(0)));
    assert_eq!((&line["upstream"], &line["status"]), (&"legacy".into(), &200.into()));
    assert_eq!(line["server"], scene.server_address(1));
    assert_soon("it is not counted", || scene.running().counters().upstream_fallbacks == 1);
}
