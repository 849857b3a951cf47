//! Responses that are coded in transit.

use coding::{BodyDecoder, BodyEncoder, Coding, Flush, Levels};
use testkit::scene::{BOTH, BodylessRequest, Scene, Spoken};

use super::{Answer, Body, decode, get, gets, gets_head, pieces, text};

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

fn exchange(scene: &Scene, spoken: Spoken, asked: &BodylessRequest<'_>, response: &[u8]) -> Answer {
    let mut client = scene.client(spoken).asking(asked);
    let mut server = scene.accept(0).after_head();
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
        client.asks(&BodylessRequest { method: "HEAD", ..get("/", "accept-encoding: br\n") });
        let mut server = scene.accept(0).after_head();
        server.sends("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Type: text/css\r\nETag: \"a\"\r\nContent-Length: 5000\r\n\r\n");
        let answer = client.gets_head_alone();
        assert_eq!(answer.field("content-encoding"), Some("br"), "{spoken:?}");
        assert_eq!(answer.field("etag"), Some("W/\"a\""));
        assert_eq!(answer.field("content-length"), None);
        assert_eq!(answer.field("transfer-encoding"), None);
    }
}

/// RFC 9110 §15.4.5: the client has the weak tag, and a cache between finds its response by it.
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

/// RFC 9110 §13.1.1: only a strong tag matches, and the client has the weak one that the proxy has made.
#[test]
fn a_server_gets_the_tags_that_it_knows() {
    const STORED: &str = "[cache]\nmemory = \"16MiB\"\n[[route]]\nupstream = \"app\"\ncache = {}\ncompress = true\n[upstream.app]\nservers = [\"http://{0}\"]\n";
    for (config, spoken) in
        [COMPRESSED, STORED].into_iter().flat_map(|config| BOTH.map(|spoken| (config, spoken)))
    {
        // Tags that the server has sent before; the client's fields; the fields for the server.
        for (known, fields, expected) in [
            (&[][..], "if-match: W/\"a\"\n", "If-Match: \"a\"\r\n"),
            (&["\"a\""], "if-match: \"b\", W/\"a,b\"\n", "If-Match: \"b\", \"a,b\"\r\n"),
            (&["\"a\""], "if-none-match: W/\"a\"\n", "If-None-Match: \"a\"\r\n"),
            (&["\"a\""], "if-match: *\n", "If-Match: *\r\n"),
            // A client that resumes a coded body must not get the rest of the uncoded one.
            (&["\"a\""], "if-match: W/\"a\"\nrange: bytes=5-\n", "If-Match: W/\"a\"\r\n"),
            // Weak version tags, as in FHIR and OData.
            (&["W/\"1\""], "if-match: W/\"1\"\n", "If-Match: W/\"1\"\r\n"),
            (&["W/\"1\"", "\"a\""], "if-match: W/\"a\"\n", "If-Match: W/\"a\", \"a\"\r\n"),
        ] {
            let scene = Scene::new(config);
            for tag in known {
                let sent = response(&format!("Content-Type: text/html\r\nETag: {tag}\r\n"), &text(2000));
                exchange(
                    &scene,
                    spoken,
                    &get(&format!("/{}", tag.len()), "accept-encoding: gzip\n"),
                    sent.as_bytes(),
                );
            }
            let mut client = scene.client(spoken);
            client.asks(&BodylessRequest { method: "PUT", ..get("/saved", fields) });
            let mut server = scene.accept(0);
            let seen = server.head();
            let lines: Vec<&str> =
                seen.split_inclusive("\r\n").filter(|line| line.to_lowercase().starts_with("if-")).collect();
            assert!(lines.concat().eq_ignore_ascii_case(expected), "{spoken:?} {known:?} {fields}: {seen}");
            server.sends(response("ETag: \"b\"\r\n", ""));
            assert_eq!(gets(&mut client).status, 200);
            // The next request on the connection is not affected.
            client.asks(&get("/plain", ""));
            let mut server = scene.accept(0);
            assert!(!server.head().to_lowercase().contains("if-"), "{spoken:?}");
            server.sends(response("", ""));
            gets(&mut client);
        }
    }
}

/// RFC 9110 §15.4.5: a cache between finds its stored response by them.
#[test]
fn a_304_of_a_file_has_the_tag_and_the_vary_of_the_200() {
    for spoken in BOTH {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in ["page.css", "picture.png"] {
            std::fs::write(folder.path().join(name), text(5000)).expect("is writable");
        }
        let root = folder.path().display();
        let scene = Scene::new(&format!("[[route]]\nfiles = {{ root = \"{root}\" }}\ncompress = true\n"));
        for (path, accepted) in ["/page.css", "/picture.png"]
            .into_iter()
            .flat_map(|path| ["gzip", "identity"].map(|coding| (path, coding)))
        {
            let mut client = scene.client(spoken);
            client.asks(&get(path, &format!("accept-encoding: {accepted}\n")));
            let whole = gets(&mut client);
            let tag = whole.field("etag").expect("a file has a tag");
            client.asks(&get(path, &format!("accept-encoding: {accepted}\nif-none-match: {tag}\n")));
            let known = gets(&mut client);
            assert_eq!((known.status, known.field("etag")), (304, Some(tag)), "{spoken:?} {path} {accepted}");
            assert_eq!(known.all("vary"), whole.all("vary"), "{spoken:?} {path} {accepted}");
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
            let mut server = scene.accept(0).after_head();
            server.sends("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
            // The head does not wait for the first event.
            let (answer, mut body) = gets_head(&mut client);
            assert_eq!(answer.field("content-encoding"), Some(coding.name()));
            let mut decoder = BodyDecoder::new(coding).expect("it needs no dictionary");
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
            let mut encoder = BodyEncoder::new(coding, Levels::default(), None);
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
            // A client that accepts the coding gets the response unchanged.
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
        let mut server = scene.accept(0).after_head();
        server.sends("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
        let (_, mut body) = gets_head(&mut client);
        assert!(body.next(&mut client).is_some_and(|bytes| !bytes.is_empty()));
        drop(server);
        let (testkit::scene::SceneClient::Two(end, _), Body::Stream(stream)) = (&mut client, body) else {
            panic!("it is a stream")
        };
        let reset = end.find(|frame| matches!(frame, testkit::http2::frame::H2Frame::Reset { .. }));
        assert_eq!(reset.stream(), stream, "{coding}");
    }
    // A body that is not in its declared coding is an error.
    let scene = Scene::new(COMPRESSED);
    let sent = response("Content-Type: text/plain\r\nContent-Encoding: gzip\r\n", "this is not gzip");
    let answer = exchange(&scene, Spoken::Http1, &get("/", ""), sent.as_bytes());
    assert_eq!(answer.status, 502);
}

/// A regression: part of a long chunk was sent, and the bytes after the failure were taken for another response.
#[test]
fn a_body_that_breaks_in_its_coding_is_followed_by_nothing() {
    let scene = Scene::new(COMPRESSED);
    let body = text(4_000_000);
    let mut coded = Vec::new();
    let mut encoder = BodyEncoder::new(Coding::Gzip, Levels::default(), None);
    encoder.encode(body.as_bytes(), Flush::End, &mut coded).expect("it has memory");
    let mut client = scene.client(Spoken::Http1).asking(&get("/", ""));
    let mut server = scene.accept(0).after_head();
    let length = coded.len();
    let head =
        format!("HTTP/1.1 200 OK\r\nDate: D\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n");
    server.sends([head.as_bytes(), &coded[..length / 2]].concat());
    let testkit::scene::SceneClient::One(peer) = &mut client else { panic!("it is of HTTP/1.1") };
    assert!(peer.head().starts_with("HTTP/1.1 200 OK\r\n"));
    let size = usize::from_str_radix(&peer.line(), 16).expect("is the size of a chunk");
    assert!(size > 32 << 10, "a long chunk: {size}");
    peer.exactly(size);
    server.sends(vec![b'?'; length - length / 2]);
    let (rest, _) = peer.rest();
    let rest = String::from_utf8_lossy(&rest);
    assert!(!rest.contains("HTTP/1.1") && !rest.ends_with("0\r\n\r\n"), "{rest}");
}

/// RFC 9110 §12.5.5: otherwise a cache between would serve one client's response to another that does not accept it.
#[test]
fn what_negotiation_could_have_changed_varies() {
    for spoken in BOTH {
        let scene = Scene::new(COMPRESSED);
        for (fields, asked, varies) in [
            ("Content-Type: image/png\r\nContent-Encoding: gzip\r\n", "accept-encoding: gzip\n", true),
            (
                "Content-Type: text/html\r\nContent-Encoding: br\r\nVary: Accept-encoding\r\n",
                "accept-encoding: br\n",
                true,
            ),
            ("Content-Encoding: gzip\r\n", "cache-control: no-transform\n", true),
            ("Content-Encoding: gzip\r\nCache-Control: no-transform\r\n", "", false),
            ("Content-Encoding: compress\r\n", "", false),
            ("Content-Type: image/png\r\n", "", false),
        ] {
            let sent = response(fields, &text(5000));
            let answer = exchange(&scene, spoken, &get("/", asked), sent.as_bytes());
            assert_eq!(answer.all("vary").len(), usize::from(varies), "{spoken:?} {fields} {answer:?}");
        }
        for (fields, status, varies) in [
            ("Content-Type: text/css\r\nContent-Range: bytes 0-4/5000\r\n", 206, true),
            ("Content-Type: image/png\r\nContent-Range: bytes 0-4/5000\r\n", 206, false),
            ("Content-Type: text/css\r\nETag: \"a\"\r\n", 304, true),
            ("Content-Type: image/png\r\nETag: \"a\"\r\n", 304, false),
        ] {
            let body = if status == 206 { "Content-Length: 5\r\n\r\nhello" } else { "\r\n" };
            let sent = format!("HTTP/1.1 {status} Word\r\nDate: D\r\nConnection: close\r\n{fields}{body}");
            let asked = "accept-encoding: gzip\nrange: bytes=0-4\nif-none-match: \"a\"\n";
            let answer = exchange(&scene, spoken, &get("/", asked), sent.as_bytes());
            assert_eq!(answer.status, status);
            assert_eq!(answer.all("vary").len(), usize::from(varies), "{spoken:?} {fields} {answer:?}");
        }
    }
}

#[test]
fn trailers_pass_except_those_about_the_bytes() {
    let scene = Scene::new(COMPRESSED);
    let mut client = scene.client(Spoken::Http1);
    client.asks(&get("/", "accept-encoding: gzip\nte: trailers\n"));
    let mut server = scene.accept(0).after_head();
    let body = text(2000);
    server.sends(format!(
        "HTTP/1.1 200 OK\r\nDate: D\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n\
         {:x}\r\n{body}\r\n0\r\nX-Sum: 1\r\nContent-Digest: sha-256=:x:\r\n\r\n",
        body.len()
    ));
    let testkit::scene::SceneClient::One(peer) = &mut client else { panic!("it is of HTTP/1.1") };
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
            let mut client = scene.client(spoken).asking(&get("/", fields));
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
                let mut client = scene.client(spoken).asking(&get(path, fields));
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
            let mut client = scene.client(spoken).asking(&get(path, fields));
            let answer = gets(&mut client);
            assert_eq!((answer.status, answer.field("content-encoding")), (status, None), "{path}");
            assert!(answer.field("content-length").is_some());
        }
    }
}
