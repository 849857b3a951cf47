//! Responses that are stored, and coded beside that.

use coding::{Coding, Decoder, Encoder, Flush, Levels};
use testkit::http1::Peer;
use testkit::scene::{Asked, BOTH, Client, Scene, Spoken};

use crate::{Answer, get, gets, gets_head, pieces, text};

const STORED: &str = "[cache]\nmemory = \"64MiB\"\nobject = \"512KiB\"\n\
     [[route]]\nupstream = \"app\"\ncache = {}\ncompress = true\n[upstream.app]\nservers = [\"http://{0}\"]\n";

fn asks(scene: &Scene, spoken: Spoken, target: &str, fields: &str) -> Client {
    let mut client = scene.client(spoken);
    client.asks(&get(target, fields));
    client
}

fn answer(scene: &Scene, spoken: Spoken, target: &str, fields: &str) -> Answer {
    gets(&mut asks(scene, spoken, target, fields))
}

fn serves(server: &mut Peer, fields: &str, body: &[u8]) {
    server.head();
    let length = body.len();
    let head =
        format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\n{fields}Content-Length: {length}\r\n\r\n");
    server.sends([head.as_bytes(), body].concat());
}

#[test]
fn what_is_stored_is_served_in_each_coding() {
    for (spoken, bytes) in
        BOTH.into_iter().flat_map(|spoken| [5_000, 50_000, 300_000].map(|bytes| (spoken, bytes)))
    {
        let scene = Scene::new(STORED);
        let body = text(bytes);
        let mut client = asks(&scene, spoken, "/a", "accept-encoding: gzip\n");
        let mut server = scene.accept(0);
        serves(&mut server, "Content-Type: text/html\r\nETag: \"a\"\r\nVary: Cookie\r\n", body.as_bytes());
        let first = gets(&mut client);
        assert_eq!(first.field("content-encoding"), Some("gzip"), "{spoken:?} {bytes}");
        assert!(first.decoded() == body.as_bytes(), "{spoken:?} {bytes}");
        for (accepted, coding) in [
            ("gzip", Some("gzip")),
            ("gzip, br", Some("br")),
            ("gzip, br", Some("br")),
            ("zstd", Some("zstd")),
            ("identity", None),
            ("gzip", Some("gzip")),
        ] {
            // No server is asked.
            let hit = answer(&scene, spoken, "/a", &format!("accept-encoding: {accepted}\n"));
            assert_eq!(hit.field("content-encoding"), coding, "{spoken:?} {accepted}");
            assert_eq!(hit.all("vary"), ["Cookie", "Accept-Encoding"]);
            assert!(hit.field("cache-status").is_some_and(|status| status.contains("hit")));
            assert!(hit.decoded() == body.as_bytes(), "{spoken:?} {accepted}");
            let tag = if coding.is_some() { "W/\"a\"" } else { "\"a\"" };
            assert_eq!(hit.all("etag"), [tag]);
        }
        // What has been made once is there as a whole.
        let hit = answer(&scene, spoken, "/a", "accept-encoding: br\n");
        assert_eq!(hit.field("content-length"), Some(&*hit.body.len().to_string()));
        // RFC 9110 §13.1.2: both tags are those of the response.
        for tag in ["W/\"a\"", "\"a\""] {
            let fields = format!("accept-encoding: br\nif-none-match: {tag}\n");
            let hit = answer(&scene, spoken, "/a", &fields);
            assert_eq!((hit.status, hit.field("etag")), (304, Some("W/\"a\"")), "{tag}");
        }
        // A range is one of the bytes that are stored.
        let part = answer(&scene, spoken, "/a", "accept-encoding: br\nrange: bytes=10-19\n");
        assert_eq!((part.status, part.field("content-encoding")), (206, None));
        assert_eq!(part.body, body.as_bytes()[10..20]);
        let mut client = scene.client(spoken);
        client.asks(&Asked { method: "HEAD", ..get("/a", "accept-encoding: br\n") });
        let head = client.gets_head_alone();
        assert_eq!((head.status, head.field("content-encoding")), (200, Some("br")));
    }
}

#[test]
fn what_is_arriving_leaves_coded_as_it_arrives() {
    for (spoken, coding) in BOTH.into_iter().flat_map(|spoken| Coding::PLAIN.map(|coding| (spoken, coding))) {
        let scene = Scene::new(STORED);
        let fields = format!("accept-encoding: {}\n", coding.name());
        let mut first = asks(&scene, spoken, "/a", &fields);
        let mut server = scene.accept(0);
        server.head();
        server.sends(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n",
        );
        let mut clients = Vec::new();
        let (head, body) = gets_head(&mut first);
        assert_eq!(head.field("content-encoding"), Some(coding.name()));
        clients.push((first, body, Decoder::new(coding).expect("it needs no dictionary")));
        // Another one joins while the response arrives.
        let mut second = asks(&scene, spoken, "/a", &fields);
        let (_, body) = gets_head(&mut second);
        clients.push((second, body, Decoder::new(coding).expect("it needs no dictionary")));
        for number in 0..3 {
            let piece = format!("piece {number}\n");
            server.sends(format!("{:x}\r\n{piece}\r\n", piece.len()));
            for (client, body, decoder) in &mut clients {
                let mut seen = Vec::new();
                while seen.len() < piece.len() {
                    seen.extend(pieces(decoder, &body.next(client).expect("a piece")));
                }
                assert_eq!(String::from_utf8_lossy(&seen), piece, "{spoken:?} {coding:?}");
            }
        }
        server.sends("0\r\n\r\n");
        for (client, body, decoder) in &mut clients {
            while let Some(bytes) = body.next(client) {
                pieces(decoder, &bytes);
            }
            assert!(decoder.is_over());
        }
        let hit = answer(&scene, spoken, "/a", &fields);
        assert_eq!(hit.decoded(), b"piece 0\npiece 1\npiece 2\n");
        assert_eq!(
            hit.field("content-length"),
            Some(&*hit.body.len().to_string()),
            "it was made while it arrived"
        );
    }
}

#[test]
fn a_form_follows_the_head_of_a_validated_response() {
    for spoken in BOTH {
        let scene = Scene::new(STORED);
        let body = text(5000);
        let mut client = asks(&scene, spoken, "/a", "accept-encoding: gzip\n");
        let mut server = scene.accept(0);
        server.head();
        server.sends(format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=0\r\nContent-Type: text/css\r\nETag: \"a\"\r\nX-Version: 1\r\n\
             Content-Length: 5000\r\n\r\n{body}"
        ));
        assert_eq!(gets(&mut client).field("x-version"), Some("1"));
        client.asks(&get("/a", "accept-encoding: gzip\n"));
        let seen = server.head();
        assert!(seen.contains("If-None-Match: \"a\"\r\n"), "the server is asked by its own tag: {seen}");
        server.sends(
            "HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=3600\r\nETag: \"a\"\r\nX-Version: 2\r\n\r\n",
        );
        for answer in [gets(&mut client), answer(&scene, spoken, "/a", "accept-encoding: gzip\n")] {
            assert_eq!((answer.field("x-version"), answer.field("etag")), (Some("2"), Some("W/\"a\"")));
            assert_eq!(answer.field("content-encoding"), Some("gzip"));
            assert_eq!(answer.decoded(), body.as_bytes());
            assert_eq!(
                answer.field("content-length"),
                Some(&*answer.body.len().to_string()),
                "nothing is coded anew"
            );
        }
    }
}

#[test]
fn what_is_stored_in_a_coding_is_decoded_for_who_does_not_take_it() {
    for spoken in BOTH {
        let scene = Scene::new(STORED);
        let body = text(100_000);
        let mut coded = Vec::new();
        let mut encoder = Encoder::new(Coding::Gzip, Levels::default(), None);
        encoder.encode(body.as_bytes(), Flush::End, &mut coded).expect("it has memory");
        let mut client = asks(&scene, spoken, "/a", "accept-encoding: gzip\n");
        let mut server = scene.accept(0);
        serves(&mut server, "Content-Type: text/css\r\nContent-Encoding: gzip\r\n", &coded);
        assert_eq!(gets(&mut client).body, coded, "{spoken:?}");
        for _ in 0..2 {
            let hit = answer(&scene, spoken, "/a", "accept-encoding: br\n");
            assert_eq!((hit.status, hit.field("content-encoding")), (200, None));
            assert!(hit.body == body.as_bytes());
        }
        assert_eq!(answer(&scene, spoken, "/a", "accept-encoding: gzip\n").body, coded);
    }
}

/// What is too large to be stored is read by all as it comes, no faster than they read.
#[test]
fn what_is_too_large_to_be_stored_is_coded_all_the_same() {
    for spoken in BOTH {
        let scene = Scene::new(STORED);
        let mut state = 1_u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let body: Vec<u8> = (0..1_200_000).map(|_| noise()).collect();
        let mut client = asks(&scene, spoken, "/a", "accept-encoding: gzip\n");
        let mut server = scene.accept(0);
        server.head();
        let chunks: Vec<u8> = body
            .chunks(60_000)
            .flat_map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat())
            .collect();
        let sending = std::thread::spawn(move || {
            server.sends("HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n");
            server.sends(chunks);
            server.sends("0\r\n\r\n");
            server
        });
        let answer = gets(&mut client);
        drop(sending.join().expect("it sends"));
        assert!(answer.decoded() == body, "{spoken:?}");
        assert!(answer.body.len() > 1 << 19, "more than is kept: {}", answer.body.len());
    }
}

#[test]
fn a_server_that_breaks_off_breaks_the_form_off() {
    let scene = Scene::new(STORED);
    let mut client = asks(&scene, Spoken::Http1, "/a", "accept-encoding: gzip\n");
    let mut server = scene.accept(0);
    server.head();
    server.sends("HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Type: text/plain\r\nContent-Length: 5000\r\n\r\nhello");
    let (head, mut body) = gets_head(&mut client);
    assert_eq!(head.field("content-encoding"), Some("gzip"));
    assert!(body.next(&mut client).is_some_and(|bytes| !bytes.is_empty()));
    drop(server);
    let Client::One(mut peer) = client else { panic!("it is of HTTP/1.1") };
    assert_ne!(peer.rest().1, testkit::http1::Ending::End, "it does not look whole");
    // The next one is whole again.
    let mut client = asks(&scene, Spoken::Http1, "/a", "accept-encoding: gzip\n");
    let mut server = scene.accept(0);
    serves(&mut server, "Content-Type: text/plain\r\n", text(5000).as_bytes());
    assert_eq!(gets(&mut client).decoded(), text(5000).as_bytes());
}
