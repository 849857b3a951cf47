//! Ranges of responses that are stored or still arriving.

use testkit::scene::{BOTH, BodylessRequest, Got, Scene, Spoken, get};

use super::answered::{ONE_ROUTE, response};

const BODY: &str = "0123456789";
const FIELDS: &str = "Cache-Control: max-age=60\r\nETag: \"a\"\r\nContent-Type: text/plain\r\n\
                      Last-Modified: Tue, 01 Oct 2024 10:00:00 GMT\r\n";

fn ranged(scene: &Scene, spoken: Spoken, fields: &str) -> Got {
    scene.answer(spoken, &BodylessRequest { fields, ..get("/a") })
}

#[test]
fn rfc9110_14_a_range_of_a_stored_whole() {
    let rows = [
        ("bytes=0-3", 206, "0123", Some("bytes 0-3/10")),
        ("bytes=8-", 206, "89", Some("bytes 8-9/10")),
        ("bytes=-4", 206, "6789", Some("bytes 6-9/10")),
        ("bytes=-40", 206, BODY, Some("bytes 0-9/10")),
        ("bytes=5-500", 206, "56789", Some("bytes 5-9/10")),
        ("bytes=10-", 416, "", Some("bytes */10")),
        ("bytes=-0", 416, "", Some("bytes */10")),
        // RFC 9110 §14.2: an unknown range unit is ignored.
        ("lines=0-3", 200, BODY, None),
        ("bytes=3-1", 200, BODY, None),
    ];
    for spoken in BOTH {
        let scene = Scene::new(ONE_ROUTE);
        scene.exchange(spoken, &get("/a"), &response(FIELDS, BODY));
        for (range, status, body, content_range) in rows {
            let got = ranged(&scene, spoken, &format!("range: {range}\n"));
            assert_eq!((got.status, got.body.as_str()), (status, body), "{range}");
            assert_eq!(got.field("content-range"), content_range, "{range}");
            assert_eq!(got.all("content-length"), [body.len().to_string()], "{range}");
            assert_eq!(got.field("etag").is_some(), status != 416, "{range}");
        }
        assert!(scene.try_accept(0).is_none());
    }
}

#[test]
fn rfc9110_14_6_several_ranges_are_a_multipart() {
    let scene = Scene::new(ONE_ROUTE);
    scene.exchange(Spoken::Http1, &get("/a"), &response(FIELDS, BODY));
    let got = ranged(&scene, Spoken::Http1, "range: bytes=0-1, 4-5, -1\n");
    assert_eq!(got.status, 206);
    let content_type = got.field("content-type").expect("says what it is");
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").expect("is a multipart");
    let part = |range: &str, body: &str| {
        format!(
            "\r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes {range}/10\r\n\r\n{body}"
        )
    };
    let expected =
        [part("0-1", "01"), part("4-5", "45"), part("9-9", "9"), format!("\r\n--{boundary}--\r\n")];
    assert_eq!(got.body, expected.concat());
    assert!(got.field("content-range").is_none() && got.all("content-type").len() == 1);
}

#[test]
fn rfc9110_13_1_5_if_range() {
    let rows = [
        ("\"a\"", 206),
        ("W/\"a\"", 200),
        ("\"b\"", 200),
        ("Tue, 01 Oct 2024 10:00:00 GMT", 206),
        ("Tue, 01 Oct 2024 10:00:01 GMT", 200),
    ];
    let scene = Scene::new(ONE_ROUTE);
    scene.exchange(Spoken::Http1, &get("/a"), &response(FIELDS, BODY));
    for (condition, expected) in rows {
        let got = ranged(&scene, Spoken::Http1, &format!("range: bytes=1-1\nif-range: {condition}\n"));
        assert_eq!(got.status, expected, "{condition}");
    }
}

#[test]
fn a_range_of_what_lies_in_many_pieces() {
    for spoken in BOTH {
        let scene = Scene::new(ONE_ROUTE);
        let body: String = (0..60_000).map(|number| format!("{number:05}")).collect();
        scene.exchange(spoken, &get("/a"), &response(FIELDS, &body));
        for (first, last) in [(0, 299_999), (1, 299_998), (65_535, 65_536), (100_000, 250_000)] {
            let got = ranged(&scene, spoken, &format!("range: bytes={first}-{last}\n"));
            assert!(got.status == 206 && got.body == body[first..=last], "{first}-{last}");
        }
    }
}

#[test]
fn a_range_of_what_is_not_stored_is_for_the_server() {
    let scene = Scene::new(ONE_ROUTE);
    let asked = BodylessRequest { fields: "range: bytes=0-1\n", ..get("/a") };
    let part = "HTTP/1.1 206 Partial Content\r\nCache-Control: max-age=60\r\nContent-Range: bytes 0-1/10\r\n\
                Content-Length: 2\r\n\r\n01";
    let mut client = scene.client(Spoken::Http1).asking(&asked);
    let mut server = scene.accept(0);
    assert!(server.head().to_lowercase().contains("range: bytes=0-1\r\n"));
    server.sends(part);
    let got = client.gets();
    assert_eq!((got.status, got.body.as_str()), (206, "01"));
    // A part does not answer a request for the complete response.
    client.asks(&get("/a"));
    server.head();
    server.sends(response(FIELDS, BODY));
    assert_eq!(client.gets().body, BODY);
}

#[test]
fn a_range_of_what_is_just_coming_does_not_wait_for_the_rest() {
    let scene = Scene::new(ONE_ROUTE);
    // Stale, so that a request for a range fetches the complete response again.
    let stale = FIELDS.replace("max-age=60", "max-age=0");
    let mut client = scene.client(Spoken::Http1).asking(&get("/a"));
    let mut server = scene.accept(0).after_head();
    server.sends(response(&stale, BODY));
    client.gets();
    client.asks(&BodylessRequest { fields: "range: bytes=3-5\n", ..get("/a") });
    server.head();
    let fresh = FIELDS.replace("\"a\"", "\"b\"");
    let (early, late) = "abcdefghij".split_at(6);
    server.sends(format!("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n{fresh}\r\n{early}"));
    let got = client.gets();
    assert_eq!((got.status, got.body.as_str()), (206, "def"));
    server.sends(late);
    assert_eq!(client.asks_for(&get("/a")).body, "abcdefghij");
}
