//! Responses that are coded while they pass.

use coding::{Coding, Decoder, Encoder, Flush, Levels};
use testkit::scene::{Asked, BOTH, Scene, Spoken};

use crate::{Answer, Body, decode, get, gets, gets_head, pieces, text};

const COMPRESSED: &str =
    "[[route]]\nupstream = \"app\"\ncompress = true\n[upstream.app]\nservers = [\"http://{0}\"]\n";

fn response(fields: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nDate: D\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn chunked(fields: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nDate: D\r\n{fields}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
         {length:x}\r\n{body}\r\n0\r\n\r\n"
    )
}

fn exchange(scene: &Scene, spoken: Spoken, asked: &Asked<'_>, response: &[u8]) -> Answer {
    let mut client = scene.client(spoken);
    client.asks(asked);
    let mut server = scene.accept(0);
    server.head();
    server.sends(response);
    gets(&mut client)
}

#[test]
fn a_body_is_coded_as_the_client_likes_it() {
    for spoken in BOTH {
        let scene = Scene::new(COMPRESSED);
        let body = text(50_000);
        for (accepted, coding) in [
            ("gzip", Some("gzip")),
            ("gzip, deflate, br", Some("br")),
            ("gzip, br, zstd", Some("zstd")),
            ("gzip;q=1.0, zstd;q=0.5", Some("gzip")),
            ("identity", None),
            ("gzip;q=0", None),
            ("compress", None),
        ] {
            let fields = format!("accept-encoding: {accepted}\n");
            for plain in [response, chunked] {
                let sent = plain("Content-Type: text/html; charset=utf-8\r\nETag: \"a\"\r\n", &body);
                let answer = exchange(&scene, spoken, &get("/", &fields), sent.as_bytes());
                assert_eq!(answer.field("content-encoding"), coding, "{spoken:?} {accepted}");
                assert_eq!(answer.all("vary"), ["Accept-Encoding"], "whatever the client accepts");
                let tag = if coding.is_some() { "W/\"a\"" } else { "\"a\"" };
                assert_eq!(answer.all("etag"), [tag]);
                assert_eq!(answer.decoded(), body.as_bytes(), "{spoken:?} {accepted}");
                if coding.is_some() {
                    assert!(answer.body.len() < 1000, "{accepted}: {}", answer.body.len());
                    assert_eq!(answer.field("content-length"), None);
                }
            }
        }
        let answer = exchange(
            &scene,
            spoken,
            &get("/", ""),
            response("Content-Type: text/html\r\n", &body).as_bytes(),
        );
        assert_eq!(answer.field("content-encoding"), None, "who says nothing gets no coding");
    }
}

#[test]
fn what_is_short_of_another_type_or_not_to_be_changed_stays_as_it_is() {
    for spoken in BOTH {
        let scene = Scene::new(COMPRESSED);
        let (long, short) = (text(5000), text(999));
        for (fields, body, asked) in [
            ("Content-Type: text/html\r\n", &short, ""),
            ("Content-Type: image/png\r\n", &long, ""),
            ("", &long, ""),
            ("Content-Type: text/html\r\nCache-Control: no-transform\r\n", &long, ""),
            ("Content-Type: text/html\r\n", &long, "cache-control: no-transform\n"),
            ("Content-Type: text/html\r\nContent-Encoding: gzip\r\n", &long, ""),
            ("Content-Type: text/html\r\nContent-Encoding: compress\r\n", &long, ""),
        ] {
            let asked = format!("accept-encoding: gzip\n{asked}");
            let sent = response(&format!("{fields}ETag: \"a\"\r\nAccept-Ranges: bytes\r\n"), body);
            let answer = exchange(&scene, spoken, &get("/", &asked), sent.as_bytes());
            assert_eq!(answer.body, body.as_bytes(), "{fields}");
            assert_eq!(
                (answer.field("etag"), answer.field("accept-ranges")),
                (Some("\"a\""), Some("bytes")),
                "{fields}"
            );
        }
        let part = format!(
            "HTTP/1.1 206 Partial Content\r\nDate: D\r\nContent-Type: text/html\r\nContent-Range: bytes 0-4999/9000\r\n\
             Content-Length: 5000\r\nConnection: close\r\n\r\n{long}"
        );
        let asked = "accept-encoding: gzip\nrange: bytes=0-4999\n";
        let answer = exchange(&scene, spoken, &get("/", asked), part.as_bytes());
        assert_eq!((answer.status, answer.field("content-encoding")), (206, None));
        assert_eq!(answer.body, long.as_bytes());
    }
}

/// RFC 9110 §9.3.2: the fields are those of the response to GET.
#[test]
fn a_head_says_what_a_get_would_get() {
    for spoken in BOTH {
        let scene = Scene::new(COMPRESSED);
        let mut client = scene.client(spoken);
        client.asks(&Asked { method: "HEAD", ..get("/", "accept-encoding: br\n") });
        let mut server = scene.accept(0);
        server.head();
        server.sends("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Type: text/css\r\nETag: \"a\"\r\nContent-Length: 5000\r\n\r\n");
        let answer = client.gets_head_alone();
        assert_eq!(answer.field("content-encoding"), Some("br"), "{spoken:?}");
        assert_eq!(answer.field("etag"), Some("W/\"a\""));
        assert_eq!(answer.field("content-length"), None);
        assert_eq!(answer.field("transfer-encoding"), None);
    }
}

/// RFC 9110 §15.4.5: the client has the weak tag, and a cache on the way knows its response by that.
#[test]
fn a_response_that_is_not_modified_has_the_tag_that_the_client_has() {
    for spoken in BOTH {
        let scene = Scene::new(COMPRESSED);
        for (known, expected) in [("W/\"a\"", "W/\"a\""), ("\"a\"", "\"a\""), ("\"b\", W/\"a\"", "W/\"a\"")] {
            let fields = format!("accept-encoding: gzip\nif-none-match: {known}\n");
            let sent = b"HTTP/1.1 304 Not Modified\r\nDate: D\r\nETag: \"a\"\r\nConnection: close\r\n\r\n";
            let answer = exchange(&scene, spoken, &get("/", &fields), sent);
            assert_eq!((answer.status, answer.field("etag")), (304, Some(expected)), "{spoken:?} {known}");
            assert_eq!(answer.all("vary"), ["Accept-Encoding"]);
        }
    }
}

#[test]
fn each_piece_of_a_stream_leaves_at_once() {
    for spoken in BOTH {
        for coding in Coding::PLAIN {
            let scene = Scene::new(COMPRESSED);
            let mut client = scene.client(spoken);
            client.asks(&get("/events", &format!("accept-encoding: {}\n", coding.name())));
            let mut server = scene.accept(0);
            server.head();
            server.sends("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
            // The head does not wait for the first event.
            let (answer, mut body) = gets_head(&mut client);
            assert_eq!(answer.field("content-encoding"), Some(coding.name()));
            let mut decoder = Decoder::new(coding).expect("it needs no dictionary");
            for number in 0..5 {
                let event = format!("data: {number}\n\n");
                server.sends(format!("{:x}\r\n{event}\r\n", event.len()));
                let mut seen = Vec::new();
                while seen.len() < event.len() {
                    seen.extend(pieces(&mut decoder, &body.next(&mut client).expect("an event")));
                }
                assert_eq!(String::from_utf8_lossy(&seen), event, "{spoken:?} {coding:?}");
            }
            server.sends("0\r\n\r\n");
            while let Some(bytes) = body.next(&mut client) {
                pieces(&mut decoder, &bytes);
            }
            assert!(decoder.is_over(), "the end is told");
        }
    }
}

#[test]
fn a_coding_that_the_client_does_not_take_is_removed() {
    for spoken in BOTH {
        let scene = Scene::new(COMPRESSED);
        let body = text(100_000);
        for coding in Coding::PLAIN {
            let mut coded = Vec::new();
            let mut encoder = Encoder::new(coding, Levels::default(), None);
            encoder.encode(body.as_bytes(), Flush::End, &mut coded).expect("it has memory");
            let name = coding.name();
            let head = format!(
                "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Type: image/png\r\nContent-Encoding: {name}\r\nETag: \"a\"\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n",
                coded.len()
            );
            let sent = [head.as_bytes(), &coded].concat();
            let answer = exchange(&scene, spoken, &get("/", ""), &sent);
            assert_eq!(answer.field("content-encoding"), None, "{spoken:?} {name}");
            assert_eq!(
                (answer.field("etag"), answer.all("vary")),
                (Some("W/\"a\""), vec!["Accept-Encoding"])
            );
            assert!(answer.body == body.as_bytes(), "{spoken:?} {name}");
            // Who takes it gets it as it is.
            let answer = exchange(&scene, spoken, &get("/", &format!("accept-encoding: {name}\n")), &sent);
            assert_eq!((answer.field("content-encoding"), answer.field("etag")), (Some(name), Some("\"a\"")));
            assert_eq!(answer.body, coded);
        }
    }
}

#[test]
fn a_body_that_does_not_come_as_a_whole_does_not_look_whole() {
    for coding in ["gzip", "br", "zstd"] {
        let scene = Scene::new(COMPRESSED);
        let mut client = scene.client(Spoken::Http2);
        client.asks(&get("/", &format!("accept-encoding: {coding}\n")));
        let mut server = scene.accept(0);
        server.head();
        server.sends("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
        let (_, mut body) = gets_head(&mut client);
        assert!(body.next(&mut client).is_some_and(|bytes| !bytes.is_empty()));
        drop(server);
        let (testkit::scene::Client::Two(end, _), Body::Stream(stream)) = (&mut client, body) else {
            panic!("it is a stream")
        };
        let reset = end.find(|frame| matches!(frame, testkit::http2::frame::Frame::Reset { .. }));
        assert_eq!(reset.stream(), stream, "{coding}");
    }
    // What is not of its coding is no answer.
    let scene = Scene::new(COMPRESSED);
    let sent = response("Content-Type: text/plain\r\nContent-Encoding: gzip\r\n", "this is not gzip");
    let answer = exchange(&scene, Spoken::Http1, &get("/", ""), sent.as_bytes());
    assert_eq!(answer.status, 502);
}

#[test]
fn trailers_pass_except_those_about_the_bytes() {
    let scene = Scene::new(COMPRESSED);
    let mut client = scene.client(Spoken::Http1);
    client.asks(&get("/", "accept-encoding: gzip\nte: trailers\n"));
    let mut server = scene.accept(0);
    server.head();
    let body = text(2000);
    server.sends(format!(
        "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n\
         {:x}\r\n{body}\r\n0\r\nX-Sum: 1\r\nContent-Digest: sha-256=:x:\r\n\r\n",
        body.len()
    ));
    let testkit::scene::Client::One(peer) = &mut client else { panic!("it is of HTTP/1.1") };
    assert!(peer.head().contains("Content-Encoding: gzip\r\n"));
    let mut coded = Vec::new();
    loop {
        let size = usize::from_str_radix(&peer.line(), 16).expect("is the size of a chunk");
        if size == 0 {
            break;
        }
        coded.extend(peer.exactly(size));
        assert_eq!(peer.line(), "");
    }
    assert_eq!(decode(Coding::Gzip, &coded), body.as_bytes());
    assert_eq!((peer.line(), peer.line()), ("X-Sum: 1".to_owned(), String::new()));
}

#[test]
fn a_connection_serves_on_after_a_coded_response() {
    let scene = Scene::new(COMPRESSED);
    let mut client = scene.client(Spoken::Http1);
    let mut server = None;
    for _ in 0..3 {
        client.asks(&get("/", "accept-encoding: gzip\n"));
        let server = server.get_or_insert_with(|| scene.accept(0));
        server.head();
        server.sends(
            response("Content-Type: text/plain\r\n", &text(30_000)).replace("Connection: close\r\n", ""),
        );
        assert_eq!(gets(&mut client).decoded(), text(30_000).as_bytes());
    }
}

#[test]
fn what_the_proxy_says_itself_is_coded_as_well() {
    for spoken in BOTH {
        let body = text(5000);
        let routes = format!("[[route]]\nrespond = {{ status = 404, body = \"{body}\" }}\ncompress = true\n");
        let scene = Scene::new(&routes);
        for (fields, coding) in
            [("accept-encoding: gzip\n", Some("gzip")), ("accept-encoding: identity\n", None)]
        {
            let mut client = scene.client(spoken);
            client.asks(&get("/", fields));
            let answer = gets(&mut client);
            assert_eq!((answer.status, answer.field("content-encoding")), (404, coding), "{spoken:?}");
            assert_eq!(answer.all("vary"), ["Accept-Encoding"]);
            assert_eq!(answer.field("content-length"), Some(&*answer.body.len().to_string()));
            assert_eq!(answer.decoded(), body.as_bytes());
        }
    }
}

#[test]
fn files_are_coded_and_kept_so() {
    for spoken in BOTH {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let write = |name: &str, bytes: usize| {
            std::fs::write(folder.path().join(name), text(bytes)).expect("is writable");
        };
        write("short.css", 5_000);
        write("long.css", 2_000_000);
        write("picture.png", 5_000);
        let root = folder.path().display();
        let scene = Scene::new(&format!("[[route]]\nfiles = {{ root = \"{root}\" }}\ncompress = true\n"));
        for (path, bytes) in [("/short.css", 5_000), ("/long.css", 2_000_000), ("/short.css", 5_000)] {
            for (fields, coding) in [
                ("accept-encoding: gzip\n", Some("gzip")),
                ("accept-encoding: br\n", Some("br")),
                ("accept-encoding: identity\n", None),
                ("accept-encoding: br\n", Some("br")),
            ] {
                let mut client = scene.client(spoken);
                client.asks(&get(path, fields));
                let answer = gets(&mut client);
                assert_eq!(
                    (answer.status, answer.field("content-encoding")),
                    (200, coding),
                    "{spoken:?} {path}"
                );
                assert_eq!(answer.all("vary"), ["Accept-Encoding"]);
                assert!(answer.decoded() == text(bytes).as_bytes(), "{spoken:?} {path} {coding:?}");
                assert_eq!(answer.field("etag").is_some_and(|tag| tag.starts_with("W/")), coding.is_some());
            }
        }
        for (path, fields, status) in [
            ("/picture.png", "accept-encoding: gzip\n", 200),
            ("/short.css", "accept-encoding: gzip\nrange: bytes=0-9\n", 206),
        ] {
            let mut client = scene.client(spoken);
            client.asks(&get(path, fields));
            let answer = gets(&mut client);
            assert_eq!((answer.status, answer.field("content-encoding")), (status, None), "{path}");
            assert!(answer.field("content-length").is_some());
        }
    }
}
