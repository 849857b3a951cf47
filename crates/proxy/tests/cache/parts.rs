//! Partial responses: stored, joined, and completed.

use testkit::http1::Http1Peer;
use testkit::scene::{BOTH, BodylessRequest, Got, Scene, SceneClient, Spoken, get};
use testkit::wait::assert_soon;

use super::answered::{ONE_ROUTE, next, response};

const WHOLE: &str = "0123456789";
const TAGGED: &str = "Cache-Control: max-age=60\r\nETag: \"a\"\r\n";

/// A 206 with these bytes of the complete body.
fn part(fields: &str, first: usize, last: usize) -> String {
    let body = &WHOLE[first..=last];
    let range = format!("Content-Range: bytes {first}-{last}/{}", WHOLE.len());
    format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\n{range}\r\nContent-Type: text/x\r\n{fields}\r\n{body}",
        body.len()
    )
}

fn ask(range: &str) -> BodylessRequest<'_> {
    BodylessRequest { fields: range, ..get("/a") }
}

/// Fetches a part, and waits until it is stored.
fn fetch(scene: &Scene, server: &mut Option<Http1Peer>, fields: &str, first: usize, last: usize) {
    let range = format!("range: bytes={first}-{last}\n");
    let mut client = scene.client(Spoken::Http1).asking(&ask(&range));
    let mut other = None;
    let answering = match server {
        Some(free) => next(scene, free, &mut other),
        None => server.insert(scene.accept(0)),
    };
    assert!(answering.head().to_lowercase().contains(&range.trim().to_lowercase()));
    answering.sends(part(fields, first, last));
    let got = client.gets();
    assert_eq!((got.status, got.body.as_str()), (206, &WHOLE[first..=last]));
    assert_eq!(got.field("content-range"), Some(format!("bytes {first}-{last}/10").as_str()));
    if let Some(other) = other {
        *server = Some(other);
    }
}

fn stored(scene: &Scene, spoken: Spoken, range: &str) -> Got {
    scene.answer(spoken, &ask(&format!("{range}cache-control: only-if-cached\n")))
}

fn wait_for(scene: &Scene, range: &str) {
    assert_soon("it is not stored", || stored(scene, Spoken::Http1, range).status != 504);
}

#[test]
fn a_part_answers_for_itself_and_for_what_is_in_it() {
    let scene = Scene::new(ONE_ROUTE);
    fetch(&scene, &mut None, TAGGED, 2, 6);
    wait_for(&scene, "range: bytes=2-6\n");
    for spoken in BOTH {
        for (range, body, told) in [
            ("range: bytes=2-6\n", "23456", "bytes 2-6/10"),
            ("range: bytes=3-4\n", "34", "bytes 3-4/10"),
            ("range: bytes=-4\n", "", ""),
            ("range: bytes=5-\n", "", ""),
            ("range: bytes=1-3\n", "", ""),
            ("range: bytes=2-3,5-6\n", "", ""),
            ("range: bytes=2-6\nif-range: \"a\"\n", "23456", "bytes 2-6/10"),
            ("range: bytes=2-6\nif-range: \"b\"\n", "", ""),
            ("", "", ""),
        ] {
            let got = stored(&scene, spoken, range);
            if told.is_empty() {
                assert_eq!(got.status, 504, "{range}");
                continue;
            }
            assert_eq!((got.status, got.body.as_str()), (206, body), "{range}");
            assert_eq!((got.field("content-range"), got.field("content-type")), (Some(told), Some("text/x")));
            assert!(got.field("cache-status").is_some_and(|status| status.starts_with("vanward; hit")));
        }
    }
    assert!(scene.try_accept(0).is_none());
}

#[test]
fn parts_that_make_a_whole_answer_as_one() {
    let scene = Scene::new(ONE_ROUTE);
    let mut server = None;
    for (first, last) in [(4, 6), (0, 5), (7, 9)] {
        fetch(&scene, &mut server, TAGGED, first, last);
        wait_for(&scene, &format!("range: bytes={first}-{last}\n"));
    }
    wait_for(&scene, "");
    for spoken in BOTH {
        let got = stored(&scene, spoken, "");
        assert_eq!((got.status, got.body.as_str(), got.field("content-range")), (200, WHOLE, None));
        assert_eq!(stored(&scene, spoken, "range: bytes=-3\n").body, "789");
    }
}

#[test]
fn what_cannot_be_told_from_another_state_is_not_kept_as_a_part() {
    for fields in ["Cache-Control: max-age=60\r\n", "Cache-Control: max-age=60\r\nETag: W/\"a\"\r\n"] {
        let scene = Scene::new(ONE_ROUTE);
        let mut server = None;
        fetch(&scene, &mut server, fields, 0, 4);
        fetch(&scene, &mut server, fields, 0, 4);
    }
}

/// Returns a client that waits for the complete response, and the server with the request for the missing part.
fn completing(scene: &Scene) -> (SceneClient, Http1Peer) {
    let mut server = None;
    fetch(scene, &mut server, TAGGED, 0, 3);
    wait_for(scene, "range: bytes=0-3\n");
    let client = scene.client(Spoken::Http2).asking(&get("/a"));
    let (mut free, mut other) = (server.expect("it was asked"), None);
    let answering = next(scene, &mut free, &mut other);
    let head = answering.head().to_lowercase();
    assert!(head.contains("range: bytes=4-\r\n") && head.contains("if-range: \"a\"\r\n"), "{head}");
    (client, other.unwrap_or(free))
}

#[test]
fn of_a_part_only_the_rest_is_asked_for() {
    let scene = Scene::new(ONE_ROUTE);
    let (mut client, mut server) = completing(&scene);
    // RFC 9110 §15.3.7: a response to If-Range may omit fields.
    let rest = "Content-Length: 6\r\nContent-Range: bytes 4-9/10\r\nETag: \"a\"\r\nCache-Control: max-age=600\r\n\r\n";
    server.sends(format!("HTTP/1.1 206 Partial Content\r\n{rest}456789"));
    let got = client.gets();
    assert_eq!((got.status, got.body.as_str()), (200, WHOLE));
    assert_eq!((got.field("content-type"), got.field("content-range")), (Some("text/x"), None));
    wait_for(&scene, "");
    assert_eq!(stored(&scene, Spoken::Http1, "").body, WHOLE);
}

#[test]
fn a_whole_that_is_another_by_now_takes_the_place_of_the_part() {
    let scene = Scene::new(ONE_ROUTE);
    let (mut client, mut server) = completing(&scene);
    server.sends(response("Cache-Control: max-age=60\r\nETag: \"b\"\r\n", "another"));
    let got = client.gets();
    assert_eq!((got.status, got.body.as_str()), (200, "another"));
}

#[test]
fn a_rest_of_another_state_is_not_put_behind_a_part() {
    for answer in [
        part("ETag: \"b\"\r\n", 4, 9),
        part("ETag: \"a\"\r\n", 5, 9),
        part("", 4, 9),
        "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n".to_owned(),
    ] {
        let scene = Scene::new(ONE_ROUTE);
        let (mut client, mut server) = completing(&scene);
        server.sends(answer);
        // An unwanted body is not read, so its connection ends.
        let mut answering = scene.accept(0);
        assert!(!answering.head().to_lowercase().contains("range:"));
        answering.sends(response(TAGGED, WHOLE));
        assert_eq!(client.gets().body, WHOLE);
    }
}

#[test]
fn a_fetch_that_died_is_taken_up_where_it_ended() {
    let scene = Scene::new(ONE_ROUTE);
    let client = scene.client(Spoken::Http1).asking(&get("/a"));
    let mut server = scene.accept(0).after_head();
    // Too long for the proxy to await before it sends.
    let rest = "x".repeat(99_996);
    server.sends(format!("HTTP/1.1 200 OK\r\n{TAGGED}Content-Length: 100000\r\n\r\n0123"));
    drop(server);
    let SceneClient::One(mut peer) = client else { return };
    assert!(peer.rest().0.ends_with(b"0123"));
    wait_for(&scene, "range: bytes=0-3\n");
    let mut client = scene.client(Spoken::Http1).asking(&get("/a"));
    let mut server = scene.accept(0);
    assert!(server.head().to_lowercase().contains("range: bytes=4-\r\n"));
    let fields = "Content-Range: bytes 4-99999/100000\r\nContent-Length: 99996";
    server.sends(format!("HTTP/1.1 206 Partial Content\r\n{TAGGED}{fields}\r\n\r\n{rest}"));
    let got = client.gets();
    assert_eq!(got.status, 200);
    assert!(got.body == format!("0123{rest}"));
}
