//! gRPC-Web calls, from clients of either version to a gRPC server.

use std::net::TcpStream;

use config::{Protocol, RetryOn};
use testkit::http1::Http1Peer;
use testkit::http2::H2End;
use testkit::http2::frame::{data, headers, last_data, last_headers, reset};

use super::scene::Scene;

const HEAD: &str = ":status: 200\ndate: D\ncontent-type: application/grpc+proto\n";
const DONE: &str = "grpc-status: 0\n";
/// A message of two bytes, and an empty one.
const MESSAGE: &str = "\0\0\0\0\x02hi";
const EMPTY: &str = "\0\0\0\0\0";
/// The message in base64, also followed by a frame that ends the call.
const TEXT: &str = "AAAAAAJoaQ==";
const TEXT_AND_END: &str = "AAAAAAJoaYAAAAAQZ3JwYy1zdGF0dXM6IDANCg==";

fn scene() -> Scene {
    Scene::with(Protocol::Http2, 2, |config| {
        config.routes[0].policies.options.grpc_web = true;
        config.upstreams[0].servers[0].weight = 1000;
        config.upstreams[0].retry.on = RetryOn::none();
        assert!(config.upstreams[0].retry.on.grpc.add("unavailable"));
    })
}

fn server(scene: &Scene, server: usize) -> H2End {
    H2End::server(scene.accept_stream(server), &[])
}

/// An HTTP/1.1 client that has sent a call with these fields, as lines.
fn calls1(scene: &Scene, fields: &str, body: &str) -> Http1Peer {
    let mut client = scene.client1();
    let fields = fields.replace('\n', "\r\n");
    let length = body.len();
    client.sends(format!(
        "POST /shop.Cart/Add HTTP/1.1\r\nHost: test\r\n{fields}X-Grpc-Web: 1\r\nOrigin: http://page\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    ));
    client
}

/// An HTTP/2 client that has sent a call.
fn calls2(scene: &Scene, fields: &str, body: &str) -> H2End {
    let mut client = scene.client();
    let head = format!(
        ":method: POST\n:scheme: http\n:authority: test\n:path: /shop.Cart/Add\n{fields}x-grpc-web: 1\norigin: \
         http://page\n"
    );
    client.sends([headers(1, &head), last_data(1, body)].concat());
    client
}

fn chunk(piece: impl AsRef<[u8]>) -> Vec<u8> {
    let piece = piece.as_ref();
    [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()
}

#[test]
fn calls_become_those_of_grpc() {
    for (content_type, accept, body, server_type, expected) in [
        ("application/grpc-web", "", MESSAGE, "application/grpc", MESSAGE),
        ("application/grpc-web+proto", "*/*", MESSAGE, "application/grpc+proto", MESSAGE),
        ("application/grpc-web-text", "application/grpc-web-text", TEXT, "application/grpc", MESSAGE),
        // Padding where the client has flushed.
        ("application/grpc-web-text+proto", "", "AAAAAAI=aA==aQ==", "application/grpc+proto", MESSAGE),
        ("application/grpc-web-text", "", "", "application/grpc", ""),
    ] {
        let accept = if accept.is_empty() { String::new() } else { format!("accept: {accept}\n") };
        let fields = format!("content-type: {content_type}\n{accept}");
        for is_http2 in [false, true] {
            let scene = scene();
            let name = format!("{content_type}, over HTTP/2: {is_http2}");
            let answers = || {
                let mut server = server(&scene, 0);
                let got = server.whole(1);
                server.sends([headers(1, HEAD), last_headers(1, DONE)].concat());
                got
            };
            let got = if is_http2 {
                let mut client = calls2(&scene, &fields, body);
                let got = answers();
                client.whole(1);
                got
            } else {
                let mut client = calls1(&scene, &fields, body);
                let got = answers();
                assert_eq!(client.message().status(), 200, "{name}");
                got
            };
            let fields = |name: &str| -> Vec<String> {
                let prefix = format!("{name}: ");
                got.lines().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect()
            };
            assert_eq!(fields(":method"), ["POST"], "{name}: {got}");
            assert_eq!(fields("content-type"), [server_type], "{name}: {got}");
            assert_eq!(fields("te"), ["trailers"], "{name}: {got}");
            assert_eq!(fields("origin"), ["http://page"], "{name}: {got}");
            assert!(fields("x-grpc-web").is_empty() && fields("accept").is_empty(), "{name}: {got}");
            let has_length = !is_http2 && !content_type.contains("text");
            assert_eq!(!fields("content-length").is_empty(), has_length, "{name}: {got}");
            let is_right = expected.is_empty() || got.ends_with(&format!("---\n{expected}\n---\n"));
            assert!(is_right, "{name}: {got}");
        }
    }
}

#[test]
fn each_message_leaves_as_it_comes_and_the_trailers_are_the_last_frame() {
    let end = b"\x80\0\0\0\x10grpc-status: 0\r\n".to_vec();
    for (content_type, request, [first, second, last]) in [
        ("application/grpc-web+proto", MESSAGE, [MESSAGE.into(), EMPTY.into(), end]),
        (
            "application/grpc-web-text+proto",
            TEXT,
            [TEXT.into(), "AAAAAAA=".into(), b"gAAAABBncnBjLXN0YXR1czogMA0K".to_vec()],
        ),
    ] {
        let fields = format!("content-type: {content_type}\n");
        let scene = scene();
        let mut client = calls1(&scene, &fields, request);
        let mut server = server(&scene, 0);
        server.whole(1);
        server.sends([headers(1, &format!("{HEAD}trailer: grpc-status\n")), data(1, MESSAGE)].concat());
        let head = client.head();
        assert!(head.contains(&format!("\r\nContent-Type: {content_type}\r\n")), "{head}");
        assert!(head.contains("\r\nTransfer-Encoding: chunked\r\n") && !head.contains("railer: "), "{head}");
        client.gets(&chunk(&first));
        server.sends(data(1, EMPTY));
        client.gets(&chunk(&second));
        server.sends(last_headers(1, DONE));
        client.gets(&chunk(&last));
        client.gets(b"0\r\n\r\n");

        let mut client = calls2(&scene, &fields, request);
        server.whole(3);
        server.sends(headers(3, HEAD));
        client
            .gets_headers(1, &format!(":status: 200\ndate: D\ncontent-type: {content_type}\nvia: vanward\n"));
        server.sends(data(3, MESSAGE));
        client.gets_data(1, std::str::from_utf8(&first).expect("is ASCII"));
        server.sends([data(3, EMPTY), last_headers(3, DONE)].concat());
        let whole = client.whole(1);
        assert!(whole.starts_with("---\n") && whole.ends_with("\n---\n"), "{whole}");
    }
}

#[test]
fn text_in_odd_chunks_is_decoded_and_its_trailers_are_left_out() {
    for (text, is_closing) in [(TEXT, true), (TEXT, false)] {
        let scene = scene();
        let mut client = scene.client1();
        let chunks: Vec<u8> = text.as_bytes().chunks(5).flat_map(chunk).collect();
        let head =
            "POST /shop.Cart/Add HTTP/1.1\r\nHost: test\r\nContent-Type: application/grpc-web-text\r\n";
        let connection = if is_closing { "Connection: close\r\n" } else { "" };
        client.sends(
            [
                format!("{head}{connection}Transfer-Encoding: chunked\r\n\r\n").as_bytes(),
                &chunks,
                b"0\r\nx-trailer: 1\r\n\r\n",
                // The next bytes on the connection are another call.
                format!("{head}Content-Length: {}\r\n\r\n{text}", text.len()).as_bytes(),
            ]
            .concat(),
        );
        let mut server = server(&scene, 0);
        assert!(server.whole(1).ends_with(&format!("---\n{MESSAGE}\n---\n")));
        server.sends(last_headers(1, &format!("{HEAD}{DONE}")));
        assert_eq!(client.message().status(), 200);
        if !is_closing {
            assert!(server.whole(3).ends_with(&format!("---\n{MESSAGE}\n---\n")));
        }
    }
}

#[test]
fn the_client_says_whether_it_wants_text() {
    let scene = scene();
    let fields = "content-type: application/grpc-web\naccept: */*, application/grpc-web-text\n";
    let mut client = calls2(&scene, fields, MESSAGE);
    let mut server = server(&scene, 0);
    server.whole(1);
    server.sends([headers(1, HEAD), data(1, MESSAGE), last_headers(1, DONE)].concat());
    let got = client.whole(1);
    assert!(got.contains("content-type: application/grpc-web-text+proto\n"), "{got}");
    assert!(got.ends_with(&format!("---\n{TEXT_AND_END}\n---\n")), "{got}");
}

#[test]
fn a_response_that_is_trailers_only_keeps_its_head() {
    let scene = scene();
    let only = format!("{HEAD}grpc-status: 5\ngrpc-message: none\n");
    let mut client = calls1(&scene, "Content-Type: application/grpc-web-text\n", TEXT);
    let mut server = server(&scene, 0);
    server.whole(1);
    server.sends(last_headers(1, &only));
    let got = client.message();
    assert!(got.head.contains("\r\nContent-Type: application/grpc-web-text+proto\r\n"), "{}", got.head);
    assert!(got.head.contains("\r\ngrpc-status: 5\r\ngrpc-message: none\r\n"), "{}", got.head);
    assert_eq!(got.body, b"");
    // The connection continues.
    let head = "POST /shop.Cart/Add HTTP/1.1\r\nHost: test\r\nContent-Type: application/grpc-web\r\n";
    client.sends(format!("{head}Content-Length: 7\r\n\r\n{MESSAGE}"));
    assert!(server.whole(3).ends_with(&format!("---\n{MESSAGE}\n---\n")));
    server.sends(last_headers(3, &only));
    assert!(client.head().contains("\r\nContent-Type: application/grpc-web+proto\r\n"));
}

#[test]
fn a_status_in_the_head_of_a_response_with_a_body_is_told_once() {
    let scene = scene();
    let mut client = calls2(&scene, "content-type: application/grpc-web\n", MESSAGE);
    let mut server = server(&scene, 0);
    server.whole(1);
    server.sends([headers(1, &format!("{HEAD}grpc-status: 5\n")), last_data(1, "")].concat());
    let expected = format!("{HEAD}grpc-status: 5\nvia: vanward\n");
    assert_eq!(client.whole(1), expected.replace("grpc+", "grpc-web+"));
}

#[test]
fn a_call_of_grpc_web_is_repeated_as_one_of_grpc() {
    let scene = scene();
    let mut client = calls1(&scene, "Content-Type: application/grpc-web-text\n", TEXT);
    let mut first = server(&scene, 0);
    let asked = first.whole(1);
    first.sends([headers(1, HEAD), last_headers(1, "grpc-status: 14\n")].concat());
    let mut second = server(&scene, 1);
    assert_eq!(second.whole(1), asked);
    second.sends([headers(1, HEAD), data(1, MESSAGE), last_headers(1, DONE)].concat());
    assert_eq!(std::str::from_utf8(&client.message().body), Ok(TEXT_AND_END));
}

#[test]
fn failures_of_the_proxy_are_told_in_grpc_web() {
    let scene = Scene::with(Protocol::Http2, 1, |config| {
        config.routes[0].policies.options.grpc_web = true;
        config.upstreams[0].servers[0].port = 1;
        config.upstreams[0].retry.attempts = 1;
    });
    let got = calls2(&scene, "content-type: application/grpc-web+proto\n", MESSAGE).whole(1);
    let expected = "content-type: application/grpc-web+proto\ngrpc-status: 14\ngrpc-message: The server could not be \
                    reached.\n";
    assert!(got.starts_with(":status: 200\n") && got.contains(expected), "{got}");
    let got = calls1(&scene, "Content-Type: application/grpc-web-text\n", TEXT).message().head;
    let expected = "\r\nContent-Type: application/grpc-web-text\r\nContent-Length: 0\r\nGrpc-Status: 14\r\n";
    assert!(got.contains(expected), "{got}");
}

#[test]
fn a_server_that_breaks_off_between_messages_is_told_of_in_the_last_frame() {
    let told = b"\x80\0\0\0\x43grpc-status: 14\r\ngrpc-message: The server's response ended early.\r\n";
    for (sent, is_told) in [(MESSAGE, true), (&MESSAGE[..6], false)] {
        let scene = scene();
        let mut client = calls1(&scene, "Content-Type: application/grpc-web\n", MESSAGE);
        let mut server = server(&scene, 0);
        server.whole(1);
        server.sends([headers(1, HEAD), data(1, sent)].concat());
        client.head();
        client.gets(&chunk(sent));
        server.sends(reset(1, 2));
        if is_told {
            client.gets(&[&chunk(told)[..], b"0\r\n\r\n"].concat());
        } else {
            client.is_closed();
        }
        scene.assert_failure("upstream-truncated", 1);
    }
}

#[test]
fn text_that_is_no_base64_is_refused() {
    for body in ["AAAA!", "AAAAAAJoaQ", "AA==A"] {
        let scene = scene();
        let mut client = calls2(&scene, "content-type: application/grpc-web-text\n", body);
        let _server = server(&scene, 0);
        let got = client.whole(1);
        assert!(got.contains("grpc-status: 13\n"), "{body}: {got}");
        scene.assert_failure("bad-text", 1);
    }
}

#[test]
fn all_else_passes_as_it_is() {
    for (fields, method) in [
        ("content-type: application/grpc\nte: trailers\n", "POST"),
        ("content-type: application/json\n", "POST"),
        ("content-type: application/grpc-web\n", "PUT"),
        ("", "POST"),
    ] {
        let scene = scene();
        let mut client = scene.client();
        let head =
            format!(":method: {method}\n:scheme: http\n:authority: test\n:path: /shop.Cart/Add\n{fields}");
        client.sends([headers(1, &head), last_data(1, MESSAGE)].concat());
        let mut server = server(&scene, 0);
        let got = server.whole(1);
        assert!(fields.lines().all(|line| got.contains(line)), "{got}");
        server.sends([headers(1, HEAD), data(1, MESSAGE), last_headers(1, DONE)].concat());
        let expected = format!("{HEAD}via: vanward\n---\n{MESSAGE}\n---\n{DONE}");
        assert_eq!(client.whole(1), expected, "{method} {fields}");
    }
    // Responses other than gRPC are not translated.
    let scene = scene();
    let mut client = calls2(&scene, "content-type: application/grpc-web\n", MESSAGE);
    let mut server = server(&scene, 0);
    server.whole(1);
    server
        .sends([headers(1, ":status: 503\ndate: D\ncontent-type: text/html\n"), last_data(1, "no")].concat());
    let expected = ":status: 503\ndate: D\ncontent-type: text/html\nvia: vanward\n---\nno\n---\n";
    assert_eq!(client.whole(1), expected);
}

/// A route with everything that examines a request's body or changes a response's head.
const TOGETHER: &str = r#"
[[route]]
upstream = "app"
grpc_web = true
mirror = { upstream = "copy" }
cors = { origins = "http://page" }
compress = true
BUFFERING
[upstream.app]
servers = ["http://{0}"]
protocol = "h2"
[upstream.copy]
servers = ["http://{1}"]
"#;

#[test]
fn calls_are_copied_buffered_and_permitted_by_cors() {
    for buffering in ["", "request_buffering = true"] {
        let scene = testkit::scene::Scene::new(&TOGETHER.replace("BUFFERING", buffering));
        let stream = TcpStream::connect(scene.running().addresses()[0]).expect("the proxy listens");
        let mut client = Http1Peer::new("client", stream);
        client.sends(
            "OPTIONS /shop.Cart/Add HTTP/1.1\r\nHost: test\r\nOrigin: http://page\r\n\
             Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type,x-grpc-web\r\n\r\n",
        );
        let told = client.head();
        assert!(
            told.contains("-Headers: Content-Type, X-Grpc-Web, X-User-Agent, Grpc-Timeout\r\n"),
            "{told}"
        );
        client.sends(format!(
            "POST /shop.Cart/Add HTTP/1.1\r\nHost: test\r\nOrigin: http://page\r\nAccept-Encoding: gzip\r\n\
             Content-Type: application/grpc-web-text\r\nContent-Length: 12\r\n\r\n{TEXT}"
        ));
        let stream = scene.accept(0).stream().try_clone().expect("is a socket");
        let mut server = H2End::server(stream, &[]);
        let got = server.whole(1);
        assert!(got.ends_with(&format!("---\n{MESSAGE}\n---\n")), "{buffering}: {got}");
        let copy = scene.accept(1).message();
        assert_eq!(copy.body, MESSAGE.as_bytes(), "{buffering}: {}", copy.head);
        assert!(copy.head.contains("\r\nContent-Type: application/grpc\r\n"), "{}", copy.head);
        server.sends([headers(1, HEAD), data(1, MESSAGE), last_headers(1, DONE)].concat());
        let got = client.message();
        assert!(got.head.contains("-Origin: http://page\r\n"), "{}", got.head);
        let expected =
            "Access-Control-Expose-Headers: Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin\r\n";
        assert!(got.head.contains(expected), "{}", got.head);
        assert_eq!(std::str::from_utf8(&got.body), Ok(TEXT_AND_END), "{buffering}");
    }
}
