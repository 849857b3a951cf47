//! 304 (RFC 9111 §3.2, §4.3.3 and §4.3.4).

use cache::{Policy, Refreshed, Refusal, Times, is_about, is_replaced_condition, refresh, write_conditions};

use crate::{LIMITS, NOW, NOW_MS, Request, Response, store, text};

const LATER: Times = Times { requested_ms: NOW_MS + 99_000, received_ms: NOW_MS + 99_000 };

const LATER_DATE: &str = "Sun, 06 Nov 1994 08:51:16 GMT";

/// What is stored after a 304 with these fields, and its head.
fn refreshed(stored: &str, answer: &str) -> (Refreshed, String) {
    let (stored, head) = store(stored).unwrap();
    let (request, response) = (Request::get(""), Response::new(304, answer));
    let mut out = Vec::new();
    let (head, bytes) = (head.as_slice(), response.bytes.as_slice());
    let refreshed = refresh(
        &request.asked(),
        &stored,
        head,
        &response.head,
        bytes,
        LATER,
        &Policy::default(),
        &LIMITS,
        &mut out,
    );
    (refreshed.unwrap(), text(&out))
}

#[test]
fn rfc9111_3_2_what_a_304_has_takes_the_place_of_what_is_stored() {
    let stored = format!(
        "Date: {NOW}\r\nCache-Control: max-age=1\r\nETag: \"a\"\r\nA: 1\r\nContent-Type: text/plain\r\n\
         Content-Encoding: gzip\r\nVary: x\r\nKept: 1\r\nA: 2\r\n"
    );
    let answer = "Date: Sun, 06 Nov 1994 08:51:16 GMT\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\na: 3\r\n\
        Content-Type: text/html\r\nContent-Encoding: br\r\nContent-Length: 5\r\nVary: y\r\nConnection: b\r\nb: 1\r\n\
        Content-Range: bytes 0-1/2\r\nSet-Cookie: a=b\r\n";
    let (refreshed, head) = refreshed(&stored, answer);
    let expected = "HTTP/1.1 200 Word\r\nContent-Encoding: gzip\r\nVary: x\r\nKept: 1\r\n\
        Date: Sun, 06 Nov 1994 08:51:16 GMT\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\na: 3\r\n\
        Content-Type: text/html\r\n\r\n";
    assert_eq!(head, expected);
    let Refreshed::Stored(stored) = refreshed else { panic!("{refreshed:?}") };
    assert_eq!(stored.ttl_seconds(LATER.received_ms), 60);
    assert_eq!(stored.age_seconds(LATER.received_ms), 0);
    assert_eq!((stored.status, stored.etag(head.as_bytes())), (200, Some(b"\"a\"".as_slice())));
}

#[test]
fn rfc9110_6_6_1_a_304_without_a_date_is_of_when_it_came() {
    let stored = format!("Date: {NOW}\r\nExpires: Sun, 06 Nov 1994 08:49:39 GMT\r\nETag: \"a\"\r\n");
    for (answer, ttl_seconds) in [
        // It is two seconds from now, and no longer from the first response on.
        ("Expires: Sun, 06 Nov 1994 08:51:18 GMT\r\n", 2),
        ("Date: yesterday\r\nExpires: Sun, 06 Nov 1994 08:51:18 GMT\r\n", 2),
        ("Date: Sun, 06 Nov 1994 08:51:16 GMT\r\nExpires: Sun, 06 Nov 1994 08:51:18 GMT\r\n", 2),
        // What has expired does not begin anew.
        ("", 0),
        ("Cache-Control: max-age=5\r\n", 5),
    ] {
        let (refreshed, head) = refreshed(&stored, answer);
        let Refreshed::Stored(stored) = refreshed else { panic!("{refreshed:?}") };
        assert_eq!(stored.ttl_seconds(LATER.received_ms), ttl_seconds, "{answer}");
        assert_eq!(stored.age_seconds(LATER.received_ms), 0, "{answer}");
        assert!(head.contains(&format!("Date: {LATER_DATE}\r\n")), "{head}");
        assert_eq!(head.matches("Date:").count(), 1, "{head}");
    }
}

#[test]
fn what_a_304_leaves_out_stays() {
    let kept = "Cache-Control: max-age=50\r\nETag: \"a\"\r\nA: 1\r\n";
    let (refreshed, head) = refreshed(&format!("Date: {NOW}\r\n{kept}"), "Age: 10\r\n");
    assert_eq!(head, format!("HTTP/1.1 200 Word\r\n{kept}Date: {LATER_DATE}\r\n\r\n"));
    let Refreshed::Stored(stored) = refreshed else { panic!("{refreshed:?}") };
    // As fresh as what the 304 says is valid, of the age that the 304 has.
    assert_eq!(stored.ttl_seconds(LATER.received_ms), 40);
    assert_eq!(stored.age_seconds(LATER.received_ms), 10);
}

#[test]
fn a_304_may_end_it() {
    let stored = "Cache-Control: max-age=50\r\nETag: \"a\"\r\n";
    for (answer, expected) in
        [("Cache-Control: no-store\r\n", Refusal::NoStore), ("Cache-Control: private\r\n", Refusal::Private)]
    {
        let (refreshed, head) = refreshed(stored, answer);
        assert!(matches!(refreshed, Refreshed::Unstored(_, refusal) if refusal == expected), "{answer}");
        assert!(head.contains(answer));
    }
}

#[test]
fn rfc9111_4_3_4_a_304_is_about_what_has_its_validator() {
    let modified = "Last-Modified: Sun, 06 Nov 1994 08:00:00 GMT\r\n";
    let tagged = "ETag: \"a\"\r\n";
    for (stored, answer, expected) in [
        (tagged, tagged, true),
        (tagged, "ETag: \"b\"\r\n", false),
        (tagged, "ETag: W/\"a\"\r\n", true),
        ("ETag: W/\"a\"\r\n", tagged, true),
        (tagged, "", true),
        (tagged, modified, true),
        (modified, modified, true),
        (modified, "Last-Modified: Sun, 06 Nov 1994 08:00:01 GMT\r\n", false),
    ] {
        let (stored, head) = store(&format!("Cache-Control: max-age=1\r\n{stored}")).unwrap();
        let response = Response::new(304, answer);
        assert_eq!(is_about(&response.head, &response.bytes, &stored, &head), expected, "{answer}");
    }
}

#[test]
fn rfc9111_4_3_1_how_the_origin_is_asked() {
    let (stored, head) = store(
        "Cache-Control: max-age=1\r\nETag: W/\"a\"\r\nLast-Modified: Sun, 06 Nov 1994 08:00:00 GMT\r\n",
    )
    .unwrap();
    let mut out = Vec::new();
    write_conditions(&mut out, &stored, &head);
    assert_eq!(text(&out), "If-None-Match: W/\"a\"\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:00:00 GMT\r\n");
    assert!(is_replaced_condition(b"If-None-Match") && is_replaced_condition(b"Range"));
    assert!(!is_replaced_condition(b"Accept"));
    let (stored, head) = store("Cache-Control: max-age=1\r\nLast-Modified: x\r\n").unwrap();
    let mut out = Vec::new();
    write_conditions(&mut out, &stored, &head);
    assert!(out.is_empty() && !stored.has_validator());
}
