//! Stored responses and their coded forms.

use coding::{BodyDecoder, BodyEncoder, Coding, Flush, Levels};
use testkit::http1::Http1Peer;
use testkit::scene::{BOTH, BodylessRequest, Scene, SceneClient, Spoken};

use super::{Answer, get, gets, gets_head, pieces, text};

const STORED: &str = "[cache]\nmemory = \"64MiB\"\nobject = \"512KiB\"\n\
     [[route]]\nupstream = \"app\"\ncache = {}\ncompress = true\n[upstream.app]\nservers = [\"http://{0}\"]\n";

fn asks(scene: &Scene, spoken: Spoken, target: &str, fields: &str) -> SceneClient {
    scene.client(spoken).asking(&get(target, fields))
}

fn answer(scene: &Scene, spoken: Spoken, target: &str, fields: &str) -> Answer {
    gets(&mut asks(scene, spoken, target, fields))
}

fn serves(server: &mut Http1Peer, fields: &str, body: &[u8]) {
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
        // A form that exists is sent with its length.
        let hit = answer(&scene, spoken, "/a", "accept-encoding: br\n");
        assert_eq!(hit.field("content-length"), Some(&*hit.body.len().to_string()));
        // RFC 9110 §13.1.2: both tags match weakly.
        for tag in ["W/\"a\"", "\"a\""] {
            let fields = format!("accept-encoding: br\nif-none-match: {tag}\n");
            let hit = answer(&scene, spoken, "/a", &fields);
            assert_eq!((hit.status, hit.field("etag")), (304, Some("W/\"a\"")), "{tag}");
        }
        // A range refers to the stored bytes.
        let part = answer(&scene, spoken, "/a", "accept-encoding: br\nrange: bytes=10-19\n");
        assert_eq!((part.status, part.field("content-encoding")), (206, None));
        assert_eq!(part.body, body.as_bytes()[10..20]);
        let mut client = scene.client(spoken);
        client.asks(&BodylessRequest { method: "HEAD", ..get("/a", "accept-encoding: br\n") });
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
        let mut server = scene.accept(0).after_head();
        server.sends(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n",
        );
        let mut clients = Vec::new();
        let (head, body) = gets_head(&mut first);
        assert_eq!(head.field("content-encoding"), Some(coding.name()));
        clients.push((first, body, BodyDecoder::new(coding).expect("it needs no dictionary")));
        // Another client joins while the response arrives.
        let mut second = asks(&scene, spoken, "/a", &fields);
        let (_, body) = gets_head(&mut second);
        clients.push((second, body, BodyDecoder::new(coding).expect("it needs no dictionary")));
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
        let mut server = scene.accept(0).after_head();
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
        let (body, coded) = gzipped(100_000);
        let mut client = asks(&scene, spoken, "/a", "accept-encoding: gzip\n");
        let mut server = scene.accept(0);
        serves(&mut server, "Content-Type: text/css\r\nContent-Encoding: gzip\r\n", &coded);
        assert_eq!(gets(&mut client).body, coded, "{spoken:?}");
        for _ in 0..2 {
            let hit = answer(&scene, spoken, "/a", "accept-encoding: br\n");
            assert_eq!((hit.status, hit.field("content-encoding")), (200, None));
            assert!(hit.body == body.as_bytes());
        }
        let stored = answer(&scene, spoken, "/a", "accept-encoding: gzip\n");
        assert_eq!((stored.all("vary"), &stored.body), (vec!["Accept-Encoding"], &coded));
        // RFC 9110 §14.2: a range refers to the bytes that this client gets.
        let part = answer(&scene, spoken, "/a", "accept-encoding: br\nrange: bytes=70000-70009\n");
        assert_eq!((part.status, part.field("content-encoding")), (206, None), "{part:?}");
        assert_eq!(
            (part.all("vary"), &part.body[..]),
            (vec!["Accept-Encoding"], &body.as_bytes()[70_000..70_010])
        );
        assert_eq!(part.field("content-range"), Some("bytes 70000-70009/100000"));
        let part = answer(&scene, spoken, "/a", "accept-encoding: gzip\nrange: bytes=1-9\n");
        assert_eq!(
            (part.field("content-encoding"), part.all("vary")),
            (Some("gzip"), vec!["Accept-Encoding"])
        );
        assert_eq!(part.body, coded[1..10]);
    }
}

/// Until its decoded form exists, a client that resumes gets the complete body, never bytes that it cannot read.
#[test]
fn a_range_of_what_is_coded_is_never_one_of_coded_bytes() {
    for spoken in BOTH {
        let scene = Scene::new(STORED);
        let (body, coded) = gzipped(300_000);
        let mut client = asks(&scene, spoken, "/a", "accept-encoding: gzip\n");
        let mut server = scene.accept(0);
        serves(&mut server, "Content-Type: text/css\r\nETag: \"a\"\r\nContent-Encoding: gzip\r\n", &coded);
        assert_eq!(gets(&mut client).body, coded, "{spoken:?}");
        let whole = answer(&scene, spoken, "/a", "range: bytes=5-\nif-range: \"a\"\n");
        assert_eq!((whole.status, whole.field("content-encoding")), (200, None));
        assert!(whole.body == body.as_bytes());
        let part = answer(&scene, spoken, "/a", "range: bytes=299990-\n");
        assert_eq!((part.status, part.field("etag")), (206, Some("W/\"a\"")));
        assert_eq!(part.body, body.as_bytes()[299_990..]);
    }
}

/// A part cannot be decoded, so the server is asked for one that the client can read.
#[test]
fn a_stored_part_in_a_coding_is_for_clients_that_accept_it() {
    for spoken in BOTH {
        let scene = Scene::new(STORED);
        let serves_part = |coding: &str| {
            let mut server = scene.accept(0).after_head();
            server.sends(format!(
                "HTTP/1.1 206 Partial Content\r\nCache-Control: max-age=3600\r\nContent-Type: text/css\r\nETag: \"a\"\r\n\
                 {coding}Content-Range: bytes 0-4/5000\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
            ));
        };
        let asked = "accept-encoding: gzip\nrange: bytes=0-4\n";
        let mut client = asks(&scene, spoken, "/a", asked);
        serves_part("Content-Encoding: gzip\r\n");
        for part in [gets(&mut client), answer(&scene, spoken, "/a", asked)] {
            assert_eq!((part.status, part.field("content-encoding")), (206, Some("gzip")), "{spoken:?}");
            assert_eq!((part.all("vary"), &part.body[..]), (vec!["Accept-Encoding"], &b"hello"[..]));
        }
        let mut client = asks(&scene, spoken, "/a", "range: bytes=0-4\n");
        serves_part("");
        let part = gets(&mut client);
        assert_eq!((part.status, part.field("content-encoding")), (206, None));
        assert_eq!(part.all("vary"), ["Accept-Encoding"]);
    }
}

/// A form that is too large to keep is made separately for each client that needs it.
#[test]
fn a_client_that_comes_late_to_a_large_form_gets_no_coding_that_it_does_not_accept() {
    let scene = Scene::new(STORED);
    let (body, coded) = gzipped(20_000_000);
    let mut client = asks(&scene, Spoken::Http1, "/a", "accept-encoding: gzip\n");
    let mut server = scene.accept(0);
    serves(&mut server, "Content-Type: text/css\r\nContent-Encoding: gzip\r\n", &coded);
    assert_eq!(gets(&mut client).body, coded);
    let mut slow = asks(&scene, Spoken::Http1, "/a", "");
    let (head, mut first) = gets_head(&mut slow);
    assert_eq!(head.field("content-encoding"), None);
    // By now the beginning of its form was discarded.
    let mut seen = 0;
    while seen < 2_000_000 {
        seen += first.next(&mut slow).expect("a piece").len();
    }
    let late = answer(&scene, Spoken::Http1, "/a", "");
    assert_eq!((late.field("content-encoding"), late.all("vary")), (None, vec!["Accept-Encoding"]));
    assert!(late.body == body.as_bytes());
}

/// RFC 9110 §9.3.2: only a GET has the body of a form that is being made.
#[test]
fn a_head_of_a_form_that_is_being_made_has_no_body() {
    for spoken in BOTH {
        let scene = Scene::new(STORED);
        let body = text(300_000);
        let mut client = asks(&scene, spoken, "/a", "accept-encoding: identity\n");
        let mut server = scene.accept(0);
        serves(&mut server, "Content-Type: text/css\r\n", body.as_bytes());
        assert!(gets(&mut client).body == body.as_bytes());
        for coding in ["gzip", "br", "zstd"] {
            let fields = format!("accept-encoding: {coding}\n");
            client.asks(&BodylessRequest { method: "HEAD", ..get("/a", &fields) });
            let head = client.gets_head_alone();
            assert_eq!((head.status, head.field("content-encoding")), (200, Some(coding)), "{spoken:?}");
            // The next response does not follow an unexpected body.
            client.asks(&get("/a", "accept-encoding: identity\n"));
            assert!(gets(&mut client).body == body.as_bytes(), "{spoken:?} {coding}");
        }
    }
}

/// As without a cache: nothing is sent before the first piece was examined.
#[test]
fn a_first_piece_that_is_malformed_is_answered_with_502() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Type: text/plain\r\n";
    let chunked = |chunk: &str| format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n{chunk}");
    let undecodable = |length: usize| {
        format!("{HEAD}Content-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n{}", text(length))
    };
    let passed = STORED.replace("cache = {}\n", "");
    for (config, spoken) in
        [STORED, &passed].into_iter().flat_map(|config| BOTH.map(|spoken| (config, spoken)))
    {
        let scene =
            Scene::new(&format!("[log]\ntarget = \"{{dir}}/log\"\nformat = \"$status $cause\"\n{config}"));
        let asked = "accept-encoding: br\n";
        let rows = [
            chunked("xyz\r\nhi\r\n0\r\n\r\n"),
            chunked("2\r\nhiX\r\n0\r\n\r\n"),
            chunked("10000000000000002\r\nhi\r\n"),
            undecodable(50),
            undecodable(200_000),
        ];
        for (number, sent) in rows.iter().enumerate() {
            let mut client = scene.client(spoken).asking(&get(&format!("/{number}"), asked));
            let mut server = scene.accept(0).after_head();
            // The proxy may close early.
            server.can_send(sent.as_bytes());
            assert_eq!(gets(&mut client).status, 502, "{spoken:?} {sent:.100} {config}");
            drop(server);
        }
        let log = scene.file("log");
        let (running, _directory) = scene.into_parts();
        running.drain();
        running.wait();
        let log = std::fs::read_to_string(log).expect("there is a log");
        assert_eq!(log.lines().count(), rows.len(), "{log}");
        let logged = log.lines().filter(|line| *line == "502 upstream-framing").count();
        assert_eq!(logged, 3, "{spoken:?} {config}: {log}");
        assert!(log.lines().all(|line| line.starts_with("502 upstream-")), "{log}");
    }
}

fn gzipped(bytes: usize) -> (String, Vec<u8>) {
    let (body, mut coded) = (text(bytes), Vec::new());
    let mut encoder = BodyEncoder::new(Coding::Gzip, Levels::default(), None);
    encoder.encode(body.as_bytes(), Flush::End, &mut coded).expect("it has memory");
    (body, coded)
}

/// A response that is too large to store is shared while it arrives, at the pace of its readers.
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
        let mut server = scene.accept(0).after_head();
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
    let mut server = scene.accept(0).after_head();
    server.sends("HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Type: text/plain\r\nContent-Length: 5000\r\n\r\nhello");
    let (head, mut body) = gets_head(&mut client);
    assert_eq!(head.field("content-encoding"), Some("gzip"));
    assert!(body.next(&mut client).is_some_and(|bytes| !bytes.is_empty()));
    drop(server);
    let SceneClient::One(mut peer) = client else { panic!("it is of HTTP/1.1") };
    assert_ne!(peer.rest().1, testkit::http1::ReaderEnding::End, "it does not look whole");
    // The next response is complete again.
    let mut client = asks(&scene, Spoken::Http1, "/a", "accept-encoding: gzip\n");
    let mut server = scene.accept(0);
    serves(&mut server, "Content-Type: text/plain\r\n", text(5000).as_bytes());
    assert_eq!(gets(&mut client).decoded(), text(5000).as_bytes());
}
