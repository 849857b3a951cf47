//! Preconditions (RFC 9110 §13) and ranges (RFC 9110 §14).

use testkit::scene::{BOTH, BodylessRequest, Got, Scene, Spoken, get};

use super::scene::{MODIFIED, answer_twice, scene, with, write};

const EARLIER: &str = "Tue, 01 Oct 2024 09:59:59 GMT";
const LATER: &str = "Tue, 01 Oct 2024 10:00:01 GMT";

fn etag(scene: &Scene, target: &str) -> String {
    let got = scene.answer(Spoken::Http1, &get(target));
    got.field("etag").expect("a file has a tag").to_owned()
}

#[test]
fn rfc9110_13_conditions_are_evaluated_in_their_order() {
    let scene = scene(", cache_control = \"no-cache\"", "");
    let etag = etag(&scene, "/page.txt");
    let weak = format!("W/{etag}");
    let rows = [
        (format!("if-none-match: {etag}"), 304),
        (format!("if-none-match: {weak}"), 304),
        (format!("if-none-match: \"x\", {etag}"), 304),
        ("if-none-match: *".to_owned(), 304),
        ("if-none-match: \"x\"".to_owned(), 200),
        (format!("if-modified-since: {MODIFIED}"), 304),
        (format!("if-modified-since: {LATER}"), 304),
        (format!("if-modified-since: {EARLIER}"), 200),
        ("if-modified-since: yesterday".to_owned(), 200),
        // RFC 9110 §13.1.3: with If-None-Match, the date is ignored.
        (format!("if-none-match: \"x\"\nif-modified-since: {MODIFIED}"), 200),
        (format!("if-match: {etag}"), 200),
        ("if-match: *".to_owned(), 200),
        ("if-match: \"x\"".to_owned(), 412),
        // RFC 9110 §13.1.1: strong comparison.
        (format!("if-match: {weak}"), 412),
        (format!("if-unmodified-since: {MODIFIED}"), 200),
        (format!("if-unmodified-since: {EARLIER}"), 412),
        (format!("if-match: {etag}\nif-unmodified-since: {EARLIER}"), 200),
        (format!("if-match: {etag}\nif-none-match: {etag}"), 304),
        (format!("if-match: \"x\"\nif-none-match: {etag}"), 412),
        (format!("if-none-match: {etag}\nrange: bytes=0-1"), 304),
        ("if-match: \"x\"\nrange: bytes=0-1".to_owned(), 412),
    ];
    for spoken in BOTH {
        for method in ["GET", "HEAD"] {
            for (fields, status) in &rows {
                let asked = BodylessRequest { method, ..with("/page.txt", fields) };
                let got = answer_twice(&scene, spoken, &asked);
                assert_eq!(got.status, *status, "{method} {fields}");
                if *status == 304 {
                    // RFC 9110 §15.4.5.
                    assert_eq!(got.field("etag"), Some(etag.as_str()));
                    assert_eq!(got.field("cache-control"), Some("no-cache"));
                    assert!(got.field("content-length").is_none() && got.field("content-type").is_none());
                }
            }
        }
    }
}

#[test]
fn rfc9110_14_ranges_of_a_file() {
    const BODY: &str = "0123456789";
    let rows = [
        ("bytes=0-3", 206, "0123", Some("bytes 0-3/10")),
        ("bytes=4-", 206, "456789", Some("bytes 4-9/10")),
        ("bytes=-3", 206, "789", Some("bytes 7-9/10")),
        ("bytes=-30", 206, BODY, Some("bytes 0-9/10")),
        ("bytes=9-9", 206, "9", Some("bytes 9-9/10")),
        ("bytes=5-100", 206, "56789", Some("bytes 5-9/10")),
        ("BYTES=0-0", 206, "0", Some("bytes 0-0/10")),
        ("bytes=10-", 416, "", Some("bytes */10")),
        ("bytes=-0", 416, "", Some("bytes */10")),
        ("bytes=3-1", 200, BODY, None),
        ("lines=0-3", 200, BODY, None),
        ("bytes=0-99999999999999999999", 206, BODY, Some("bytes 0-9/10")),
    ];
    let scene = scene("", "");
    for spoken in BOTH {
        for (range, status, body, content_range) in rows {
            let fields = format!("range: {range}");
            let got = answer_twice(&scene, spoken, &with("/page.txt", &fields));
            assert_eq!((got.status, got.body.as_str()), (status, body), "{range}");
            assert_eq!(got.field("content-range"), content_range, "{range}");
            assert_eq!(got.all("content-length"), [body.len().to_string()], "{range}");
            // RFC 9110 §14.2: ranges only apply to GET.
            let head = BodylessRequest { method: "HEAD", ..with("/page.txt", &fields) };
            assert_eq!(answer_twice(&scene, spoken, &head).status, 200, "{range}");
        }
        // An empty file has no satisfiable range.
        let got = answer_twice(&scene, spoken, &with("/empty.css", "range: bytes=0-0"));
        assert_eq!((got.status, got.field("content-range")), (416, Some("bytes */0")));
    }
}

#[test]
fn rfc9110_14_6_several_ranges_are_a_multipart() {
    let scene = scene("", "");
    for spoken in BOTH {
        let got = answer_twice(&scene, spoken, &with("/page.txt", "range: bytes=0-1, 4-5, -1"));
        assert_eq!(got.status, 206);
        let content_type = got.field("content-type").expect("says what it is");
        let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").expect("is a multipart");
        let part = |range: &str, body: &str| {
            format!(
                "\r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes {range}/10\r\n\r\n{body}"
            )
        };
        let expected =
            [part("0-1", "01"), part("4-5", "45"), part("9-9", "9"), format!("\r\n--{boundary}--\r\n")];
        assert_eq!(got.body, expected.concat());
        assert_eq!(got.all("content-length"), [got.body.len().to_string()]);
        assert!(got.field("content-range").is_none() && got.all("content-type").len() == 1);
    }
}

#[test]
fn rfc9110_13_1_5_if_range() {
    let scene = scene("", "");
    let etag = etag(&scene, "/page.txt");
    for spoken in BOTH {
        for (condition, expected) in [
            (etag.clone(), 206),
            (format!("W/{etag}"), 200),
            ("\"b\"".to_owned(), 200),
            (MODIFIED.to_owned(), 206),
            (LATER.to_owned(), 200),
            ("yesterday".to_owned(), 200),
        ] {
            let fields = format!("range: bytes=1-1\nif-range: {condition}");
            assert_eq!(
                answer_twice(&scene, spoken, &with("/page.txt", &fields)).status,
                expected,
                "{condition}"
            );
        }
    }
}

/// Longer than the limit for memory, than a buffer, and than a socket takes at once.
fn long(scene: &Scene) -> String {
    let body: String = (0..800_000).map(|number| format!("{number:06}")).collect();
    write(scene, "root/long.txt", &body);
    body
}

#[test]
fn long_files_and_their_ranges_are_whole() {
    let scene = scene("", "");
    let body = long(&scene);
    for spoken in BOTH {
        let got = answer_twice(&scene, spoken, &get("/long.txt"));
        assert!(got.status == 200 && got.body == body);
        for (first, last) in [(0, body.len() - 1), (1, 70_000), (1_048_575, 1_048_576), (16_383, 4_799_999)] {
            let fields = format!("range: bytes={first}-{last}");
            let got: Got = answer_twice(&scene, spoken, &with("/long.txt", &fields));
            assert!(got.status == 206 && got.body == body[first..=last], "{first}-{last}");
        }
        let got = answer_twice(&scene, spoken, &with("/long.txt", "range: bytes=0-99999,200000-1400000"));
        assert!(got.body.contains(&body[200_000..=1_400_000]) && got.body.contains(&body[..100_000]));
    }
}
