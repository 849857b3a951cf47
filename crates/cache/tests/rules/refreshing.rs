//! Updates by a 304 (RFC 9111 §3.2, §4.3.3 and §4.3.4).

use cache::{
    CachePolicy, KeptHead, NotStored, Refreshed, StoredTimes, is_about, is_replaced_condition, outdates,
    refresh, write_conditions,
};

use crate::{LIMITS, NOW, NOW_MS, Request, Response, keep, store, text};

const LATER: StoredTimes =
    StoredTimes { requested_ms: NOW_MS + 99_000, received_ms: NOW_MS + 99_000, ttl_ms: None };

const LATER_DATE: &str = "Sun, 06 Nov 1994 08:51:16 GMT";

/// The stored response after a 304 with these fields, and its head.
fn refreshed(stored: &str, answer: &str) -> (Refreshed, String) {
    let (refreshed, kept) = refreshed_by(stored, answer);
    (refreshed, text(&kept.shown))
}

fn refreshed_by(stored: &str, answer: &str) -> (Refreshed, KeptHead) {
    let request = Request::get("");
    let (stored, head) = keep(&request, &Response::new(200, stored), &CachePolicy::default()).unwrap();
    let response = Response::new(304, answer);
    let mut out = KeptHead::default();
    let refreshed = refresh(
        &request.asked(),
        &stored,
        (&head.shown, &head.hidden),
        &response.head,
        &response.bytes,
        LATER,
        &CachePolicy::default(),
        &LIMITS,
        &mut out,
    );
    (refreshed.unwrap(), out)
}

#[test]
fn rfc9111_3_2_fields_of_a_304_replace_stored_ones() {
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
        // Expires is two seconds from now; it no longer counts from the first response.
        ("Expires: Sun, 06 Nov 1994 08:51:18 GMT\r\n", 2),
        ("Date: yesterday\r\nExpires: Sun, 06 Nov 1994 08:51:18 GMT\r\n", 2),
        ("Date: Sun, 06 Nov 1994 08:51:16 GMT\r\nExpires: Sun, 06 Nov 1994 08:51:18 GMT\r\n", 2),
        // An expired lifetime does not start again.
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
fn fields_that_a_304_lacks_stay() {
    let kept = "Cache-Control: max-age=50\r\nETag: \"a\"\r\nA: 1\r\n";
    let (refreshed, head) = refreshed(&format!("Date: {NOW}\r\n{kept}"), "Age: 10\r\n");
    assert_eq!(head, format!("HTTP/1.1 200 Word\r\n{kept}Date: {LATER_DATE}\r\n\r\n"));
    let Refreshed::Stored(stored) = refreshed else { panic!("{refreshed:?}") };
    // The lifetime is that of the fields in the 304, minus the age of the 304.
    assert_eq!(stored.ttl_seconds(LATER.received_ms), 40);
    assert_eq!(stored.age_seconds(LATER.received_ms), 10);
}

#[test]
fn a_304_may_end_it() {
    let stored = "Cache-Control: max-age=50\r\nETag: \"a\"\r\n";
    for (answer, expected) in [
        ("Cache-Control: no-store\r\n", NotStored::NoStore),
        ("Cache-Control: private\r\n", NotStored::Private),
    ] {
        let (refreshed, head) = refreshed(stored, answer);
        assert!(matches!(refreshed, Refreshed::Unstored(_, refusal) if refusal == expected), "{answer}");
        assert!(head.contains(answer));
    }
}

#[test]
fn rfc9111_4_3_4_a_304_applies_to_the_response_with_its_validator() {
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

#[test]
fn rfc9111_4_3_3_what_outdates_a_stored_response() {
    let (stored, stored_head) = store("Cache-Control: max-age=1\r\nETag: \"a\"\r\n").unwrap();
    let (get, no_store) = (Request::get(""), Request::get("Cache-Control: no-store\r\n"));
    let (range, matching) = (Request::get("Range: bytes=0-1\r\n"), Request::get("If-Match: \"b\"\r\n"));
    let head = Request::new("HEAD", "");
    for (request, status, fields, expected) in [
        (&get, 200, "", true),
        (&get, 200, "Cache-Control: private\r\n", true),
        (&get, 204, "", true),
        (&get, 302, "", true),
        (&get, 404, "", true),
        (&get, 410, "", true),
        (&get, 429, "", true),
        (&get, 304, "", false),
        (&get, 500, "", false),
        (&get, 501, "", false),
        (&get, 599, "", false),
        (&get, 412, "", true),
        (&get, 416, "", true),
        (&no_store, 404, "", false),
        (&matching, 412, "", false),
        (&matching, 404, "", true),
        (&range, 416, "", false),
        (&range, 206, "ETag: \"a\"\r\n", false),
        (&range, 206, "ETag: \"b\"\r\n", true),
        (&range, 206, "ETag: \"a\"\r\nCache-Control: private\r\n", true),
        (&head, 200, "ETag: \"b\"\r\n", false),
        (&head, 200, "Set-Cookie: a=b\r\n", true),
        (&head, 405, "", false),
        (&head, 404, "", true),
    ] {
        let response = Response::new(status, fields);
        let known = Some((&stored, stored_head.as_slice()));
        let is_outdated =
            outdates(&request.asked(), &response.head, &response.bytes, known, &CachePolicy::default());
        assert_eq!(is_outdated, expected, "{status} {fields}");
    }
    let ignoring = CachePolicy {
        ignore: cache::Ignore { request_directives: true, ..cache::Ignore::default() },
        ..CachePolicy::default()
    };
    let response = Response::new(404, "");
    assert!(outdates(&no_store.asked(), &response.head, &response.bytes, None, &ignoring));
}

/// A 304 need not repeat fields that are for this cache alone (RFC 9110 §15.4.5).
#[test]
fn hidden_fields_outlive_a_304() {
    let stored =
        "Cache-Control: private\r\nSurrogate-Control: max-age=1\r\nSurrogate-Key: a b\r\nETag: \"a\"\r\n";
    let hidden = |control: &str| format!("Surrogate-Key: a b\r\nSurrogate-Control: {control}\r\n");
    let (_, before) = keep(&Request::get(""), &Response::new(200, stored), &CachePolicy::default()).unwrap();
    assert_eq!(text(&before.hidden), "Surrogate-Control: max-age=1\r\nSurrogate-Key: a b\r\n");
    for (answer, ttl_seconds, expected) in [
        ("Cache-Control: private\r\nETag: \"a\"\r\n", 1, text(&before.hidden)),
        ("Surrogate-Control: max-age=9\r\nETag: \"a\"\r\n", 9, hidden("max-age=9")),
    ] {
        let (refreshed, kept) = refreshed_by(stored, answer);
        let Refreshed::Stored(fresh) = refreshed else { panic!("{refreshed:?}") };
        assert_eq!(fresh.ttl_seconds(LATER.received_ms), ttl_seconds);
        assert_eq!(text(&kept.hidden), expected);
        assert!(!text(&kept.shown).contains("Surrogate") && fresh.etag(&kept.shown) == Some(b"\"a\""));
    }
}
