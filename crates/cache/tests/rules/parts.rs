//! Preconditions, ranges and parts (RFC 9110 §13 and §14, RFC 9111 §3.4).

use cache::{
    Boundary, PreconditionResult, Selection, StoredPart, judge_conditions, may_combine, range_applies,
    select, write_content_range, write_unsatisfied_range,
};

use crate::{NOW, Request, Response, store, text};

const OURS: &str =
    "Cache-Control: max-age=60\r\nETag: \"ours\"\r\nLast-Modified: Sun, 06 Nov 1994 08:00:00 GMT\r\n";

fn verdict(stored: &str, method: &str, fields: &str) -> PreconditionResult {
    let (stored, head) = store(&format!("Date: {NOW}\r\n{stored}")).unwrap();
    let request = Request::new(method, fields);
    judge_conditions(&request.asked(), &request.head, &request.bytes, &stored, &head)
}

#[test]
fn rfc9110_13_1_2_if_none_match() {
    let weak = "Cache-Control: max-age=60\r\nETag: W/\"ours\"\r\n";
    let bare = "Cache-Control: max-age=60\r\nETag: ours\r\n";
    let none = "Cache-Control: max-age=60\r\n";
    for (stored, value, expected) in [
        (OURS, "\"ours\"", PreconditionResult::NotModified),
        (OURS, "W/\"ours\"", PreconditionResult::NotModified),
        (OURS, "\"a\", \"ours\"", PreconditionResult::NotModified),
        (OURS, "\"a,b\",,\"ours\"", PreconditionResult::NotModified),
        (OURS, "*", PreconditionResult::NotModified),
        (OURS, "\"other\"", PreconditionResult::Proceed),
        (OURS, "ours", PreconditionResult::Proceed),
        (OURS, "\"ours", PreconditionResult::Proceed),
        (weak, "\"ours\"", PreconditionResult::NotModified),
        (weak, "W/\"ours\"", PreconditionResult::NotModified),
        (bare, "ours", PreconditionResult::NotModified),
        (none, "\"ours\"", PreconditionResult::Proceed),
        (none, "*", PreconditionResult::NotModified),
    ] {
        for method in ["GET", "HEAD"] {
            let fields = format!("If-None-Match: {value}\r\n");
            assert_eq!(verdict(stored, method, &fields), expected, "{stored} {value}");
        }
    }
    let lines = "If-None-Match: \"a\"\r\nIf-None-Match: \"ours\"\r\n";
    assert_eq!(verdict(OURS, "GET", lines), PreconditionResult::NotModified);
    // RFC 9110 §13.1.3: If-None-Match overrides If-Modified-Since.
    let both = format!("If-None-Match: \"a\"\r\nIf-Modified-Since: {NOW}\r\n");
    assert_eq!(verdict(OURS, "GET", &both), PreconditionResult::Proceed);
}

#[test]
fn rfc9111_4_3_2_if_modified_since() {
    let undated = "Cache-Control: max-age=60\r\n";
    for (stored, value, expected) in [
        (OURS, "Sun, 06 Nov 1994 08:00:00 GMT", PreconditionResult::NotModified),
        (OURS, "Sunday, 06-Nov-94 08:00:01 GMT", PreconditionResult::NotModified),
        (OURS, "Sun, 06 Nov 1994 07:59:59 GMT", PreconditionResult::Proceed),
        (OURS, "yesterday", PreconditionResult::Proceed),
        // Compared with Date, because there is no Last-Modified.
        (undated, NOW, PreconditionResult::NotModified),
        (undated, "Sun, 06 Nov 1994 08:49:36 GMT", PreconditionResult::Proceed),
    ] {
        assert_eq!(verdict(stored, "GET", &format!("If-Modified-Since: {value}\r\n")), expected, "{value}");
    }
}

#[test]
fn conditions_for_the_origin_are_left_to_it_unless_they_hold() {
    for (fields, expected) in [
        ("If-Match: \"ours\"\r\n", PreconditionResult::Proceed),
        ("If-Match: *\r\n", PreconditionResult::Proceed),
        ("If-Match: W/\"ours\"\r\n", PreconditionResult::AskOrigin),
        ("If-Match: \"a\"\r\n", PreconditionResult::AskOrigin),
        ("If-Match: \"ours\"\r\nIf-None-Match: \"ours\"\r\n", PreconditionResult::NotModified),
        ("If-Unmodified-Since: Sun, 06 Nov 1994 08:00:00 GMT\r\n", PreconditionResult::Proceed),
        ("If-Unmodified-Since: Sun, 06 Nov 1994 07:00:00 GMT\r\n", PreconditionResult::AskOrigin),
        ("If-Unmodified-Since: x\r\n", PreconditionResult::Proceed),
    ] {
        assert_eq!(verdict(OURS, "GET", fields), expected, "{fields}");
    }
}

#[test]
fn rfc9110_13_2_1_conditions_apply_only_to_successes() {
    let response = Response::new(404, OURS);
    let request = Request::get("If-None-Match: \"ours\"\r\n");
    let (stored, head) = crate::store_for(&request, &response, &cache::CachePolicy::default()).unwrap();
    let verdict = judge_conditions(&request.asked(), &request.head, &request.bytes, &stored, &head);
    assert_eq!(verdict, PreconditionResult::Proceed);
}

#[test]
fn rfc9110_13_1_5_if_range() {
    let weak = "Cache-Control: max-age=60\r\nETag: W/\"ours\"\r\n";
    let young = format!("Cache-Control: max-age=60\r\nLast-Modified: {NOW}\r\n");
    for (stored, value, expected) in [
        (OURS, "\"ours\"", true),
        (OURS, "W/\"ours\"", false),
        (OURS, "\"a\"", false),
        (OURS, "\"ours\", \"a\"", false),
        (OURS, "Sun, 06 Nov 1994 08:00:00 GMT", true),
        (OURS, "Sun, 06 Nov 1994 08:00:01 GMT", false),
        (OURS, "x", false),
        (weak, "W/\"ours\"", false),
        // A date within the second of the response is weak.
        (young.as_str(), NOW, false),
    ] {
        let (stored, head) = store(&format!("Date: {NOW}\r\n{stored}")).unwrap();
        let request = Request::get(&format!("If-Range: {value}\r\nRange: bytes=0-\r\n"));
        let applies = range_applies(&request.asked(), &request.head, &request.bytes, &stored, &head);
        assert_eq!(applies, expected, "{value}");
    }
}

#[test]
fn rfc9110_14_1_2_ranges_of_a_whole() {
    for (range, expected) in [
        ("bytes=0-4", Selection::One(0..5)),
        ("BYTES=0-4", Selection::One(0..5)),
        ("bytes=5-", Selection::One(5..10)),
        ("bytes=-3", Selection::One(7..10)),
        ("bytes=-30", Selection::One(0..10)),
        ("bytes=8-30", Selection::One(8..10)),
        ("bytes=0-99999999999999999999999", Selection::One(0..10)),
        ("bytes=10-", Selection::Unsatisfiable),
        ("bytes=-0", Selection::Unsatisfiable),
        ("bytes=10-, 99999999999999999999999-", Selection::Unsatisfiable),
        ("bytes=0-1, 10-", Selection::One(0..2)),
        ("bytes=0-1, 4-5", Selection::Several(vec![0..2, 4..6])),
        ("bytes=-1 ,, 0-1", Selection::Several(vec![9..10, 0..2])),
        // Malformed, another unit, or too many.
        ("bytes=4-0", Selection::Whole),
        ("bytes=", Selection::Whole),
        ("bytes=-", Selection::Whole),
        ("bytes=a-b", Selection::Whole),
        ("bytes=0-1, x", Selection::Whole),
        ("items=0-1", Selection::Whole),
        ("0-1", Selection::Whole),
        ("bytes=0-, 0-", Selection::Whole),
        ("bytes=0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0,0-0", Selection::Whole),
    ] {
        let request = Request::get(&format!("Range: {range}\r\n"));
        assert_eq!(select(&request.head, &request.bytes, 10), expected, "{range}");
    }
    let empty = Request::get("Range: bytes=0-\r\n");
    assert_eq!(select(&empty.head, &empty.bytes, 0), Selection::Unsatisfiable);
    let plain = Request::get("");
    assert_eq!(select(&plain.head, &plain.bytes, 10), Selection::Whole);
    // RFC 9110 §14.2: only GET has ranges.
    assert!(!Request::new("HEAD", "Range: bytes=0-1\r\n").asked().has_range());
}

#[test]
fn rfc9111_3_4_parts() {
    let part = StoredPart { start: 5, end: 10, whole_bytes: Some(20) };
    let open = StoredPart { whole_bytes: None, ..part };
    for (stored, range, expected) in [
        (part, "bytes=5-9", Some(5..10)),
        (part, "bytes=6-7", Some(6..8)),
        (part, "bytes=4-9", None),
        (part, "bytes=5-10", None),
        (part, "bytes=5-", None),
        (part, "bytes=-5", None),
        (part, "bytes=5-6, 7-8", None),
        (StoredPart { start: 15, end: 20, ..part }, "bytes=16-", Some(16..20)),
        (StoredPart { start: 15, end: 20, ..part }, "bytes=-1", Some(19..20)),
        (open, "bytes=6-7", Some(6..8)),
        (open, "bytes=6-", None),
        (open, "bytes=-1", None),
    ] {
        let request = Request::get(&format!("Range: {range}\r\n"));
        assert_eq!(stored.select(&request.head, &request.bytes), expected, "{range} of {stored:?}");
    }
    let from = |start, end| StoredPart { start, end, whole_bytes: Some(10) };
    for (one, other, expected) in [
        (from(0, 5), from(5, 10), Some(from(0, 10))),
        (from(5, 10), from(0, 7), Some(from(0, 10))),
        (from(0, 4), from(5, 10), None),
        (from(0, 5), StoredPart { whole_bytes: Some(11), ..from(5, 10) }, None),
        (StoredPart { whole_bytes: None, ..from(0, 5) }, from(5, 10), Some(from(0, 10))),
    ] {
        assert_eq!(one.joined(&other), expected, "{one:?} {other:?}");
    }
    assert!(from(0, 10).is_whole() && !from(1, 10).is_whole());
    assert_eq!(from(0, 5).missing(), Some(5..10));
    assert_eq!(from(5, 10).missing(), Some(0..5));
    assert_eq!(from(2, 5).missing(), None);
    assert_eq!(from(0, 10).missing(), None);
}

#[test]
fn rfc9110_15_3_7_3_only_parts_with_a_strong_validator_are_joined() {
    let (fresh, early) =
        ("Cache-Control: max-age=60\r\n", "Last-Modified: Sun, 06 Nov 1994 08:00:00 GMT\r\n");
    for (one, other, expected) in [
        ("ETag: \"a\"\r\n", "ETag: \"a\"\r\n", true),
        ("ETag: \"a\"\r\n", "ETag: \"b\"\r\n", false),
        ("ETag: W/\"a\"\r\n", "ETag: W/\"a\"\r\n", false),
        ("ETag: \"a\"\r\n", early, false),
        (early, early, true),
        ("", "", false),
    ] {
        let (stored, head) = store(&format!("Date: {NOW}\r\n{fresh}{one}")).unwrap();
        let response = Response::new(206, other);
        assert_eq!(may_combine(&stored, &head, &response.head, &response.bytes), expected, "{one} {other}");
    }
}

#[test]
fn rfc9110_14_6_several_parts_in_one_message() {
    let boundary = Boundary::new(0x0123_4567_89ab_cdef);
    let mut out = Vec::new();
    boundary.write_content_type(&mut out);
    boundary.write_part_head(&mut out, Some(b"text/plain"), &(0..2), 10);
    out.extend_from_slice(b"ab");
    boundary.write_part_head(&mut out, None, &(4..5), 10);
    out.extend_from_slice(b"e");
    boundary.write_end(&mut out);
    let expected = "Content-Type: multipart/byteranges; boundary=fedcba9876543210\r\n\
        \r\n--fedcba9876543210\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/10\r\n\r\nab\
        \r\n--fedcba9876543210\r\nContent-Range: bytes 4-4/10\r\n\r\ne\
        \r\n--fedcba9876543210--\r\n";
    assert_eq!(text(&out), expected);
    let mut lines = Vec::new();
    write_content_range(&mut lines, &(3..7), None);
    write_unsatisfied_range(&mut lines, 10);
    assert_eq!(text(&lines), "Content-Range: bytes 3-6/*\r\nContent-Range: bytes */10\r\n");
}
