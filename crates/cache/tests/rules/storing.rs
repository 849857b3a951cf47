//! Which responses are stored, and which of their fields (RFC 9111 §3).

use cache::{CachePolicy, Ignore, KeptHead, NotStored, REFUSALS, StatusTtl, StoredTimes, admit};

use crate::{NOW, NOW_MS, Request, Response, TIMES, store, store_for, text};

fn refusal(request: &str, status: u16, response: &str) -> Option<NotStored> {
    store_for(&Request::get(request), &Response::new(status, response), &CachePolicy::default()).err()
}

#[test]
fn rfc9111_3_storable_responses() {
    let fresh = "Cache-Control: max-age=60\r\n";
    for (request, status, response, expected) in [
        ("", 200, fresh, None),
        ("", 200, "Cache-Control: s-maxage=60\r\n", None),
        ("", 200, "Expires: Sun, 06 Nov 1994 09:49:37 GMT\r\n", None),
        ("", 200, "ETag: \"a\"\r\n", None),
        ("", 200, "", Some(NotStored::NoFreshness)),
        ("", 503, "ETag: \"a\"\r\n", Some(NotStored::NoFreshness)),
        ("", 503, "ETag: \"a\"\r\nCache-Control: public\r\n", None),
        ("", 200, "Cache-Control: max-age=0\r\nCache-Control: must-revalidate\r\n", Some(NotStored::Stale)),
        ("", 200, "Cache-Control: max-age=60, no-store\r\n", Some(NotStored::NoStore)),
        ("", 200, "Cache-Control: max-age=60, No-StOrE\r\n", Some(NotStored::NoStore)),
        ("", 200, "Cache-Control: max-age=60, private\r\n", Some(NotStored::Private)),
        ("", 200, "Cache-Control: max-age=60, private=\"a\"\r\n", None),
        ("", 200, "Cache-Control: max-age=60, private=\"a, set-cookie\"\r\nSet-Cookie: a=1\r\n", None),
        (
            "",
            200,
            "Cache-Control: max-age=60, private=\"a\"\r\nSet-Cookie: a=1\r\n",
            Some(NotStored::SetCookie),
        ),
        ("", 200, "Cache-Control: max-age=60, private=\"\"\r\n", Some(NotStored::Private)),
        ("", 200, "Cache-Control: max-age=60, no-cache\r\n", Some(NotStored::NoCache)),
        ("", 200, "Cache-Control: no-cache\r\nETag: \"a\"\r\n", None),
        ("Cache-Control: no-store\r\n", 200, fresh, Some(NotStored::RequestNoStore)),
        ("Upgrade: websocket\r\n", 200, fresh, Some(NotStored::Method)),
        ("Content-Length: 3\r\n", 200, fresh, Some(NotStored::Method)),
        ("Content-Length: 0\r\n", 200, fresh, None),
        // RFC 9111 §3: any final status with explicit freshness.
        ("", 499, fresh, None),
        ("", 599, fresh, None),
        ("", 302, fresh, None),
        ("", 500, fresh, None),
        ("", 304, fresh, Some(NotStored::Status)),
        ("", 412, fresh, Some(NotStored::Status)),
        ("", 416, fresh, Some(NotStored::Status)),
        // RFC 9111 §5.2.2.3.
        ("", 599, "Cache-Control: max-age=60, must-understand\r\n", Some(NotStored::NotUnderstood)),
        ("", 200, "Cache-Control: max-age=60, must-understand, no-store\r\n", None),
        ("", 599, "Cache-Control: max-age=60, must-understand, no-store\r\n", Some(NotStored::NotUnderstood)),
    ] {
        assert_eq!(refusal(request, status, response), expected, "{request:?} {status} {response:?}");
    }
}

#[test]
fn never_fresh_responses_are_not_stored_for_stale_use() {
    let policy =
        CachePolicy { stale_while_revalidate_ms: 60_000, grace_ms: 60_000, ..CachePolicy::default() };
    for (status, response, expected) in [
        (503, "", Some(NotStored::NoFreshness)),
        (200, "", Some(NotStored::NoFreshness)),
        (200, "Cache-Control: max-age=0\r\n", None),
    ] {
        let stored = store_for(&Request::get(""), &Response::new(status, response), &policy);
        assert_eq!(stored.err(), expected, "{status} {response:?}");
    }
}

#[test]
fn rfc9111_3_5_authorization() {
    for (directives, expected) in [
        ("max-age=60", Some(NotStored::Authorization)),
        ("max-age=60, public", None),
        ("max-age=60, must-revalidate", None),
        ("s-maxage=60", None),
        ("max-age=60, proxy-revalidate", Some(NotStored::Authorization)),
    ] {
        let response = format!("Cache-Control: {directives}\r\n");
        assert_eq!(refusal("Authorization: Basic YTpi\r\n", 200, &response), expected, "{directives}");
    }
    // Only `force` allows sharing of responses that are not meant to be shared.
    let ignore = Ignore { response_directives: true, ..Ignore::default() };
    for (force, expected) in [(false, Some(NotStored::Authorization)), (true, None)] {
        let policy = CachePolicy { ttl_ms: Some(60_000), ignore, force, ..CachePolicy::default() };
        for directives in ["", "Cache-Control: public\r\n", "Cache-Control: private, no-store\r\n"] {
            let response = Response::new(200, directives);
            let stored = |fields| store_for(&Request::get(fields), &response, &policy).err();
            assert_eq!(stored("Authorization: Bearer alice\r\n"), expected, "{directives}");
            assert_eq!(stored(""), None, "{directives}");
        }
    }
}

#[test]
fn set_cookie_is_not_shared_unless_allowed() {
    let with = |directives: &str| format!("Cache-Control: {directives}\r\nSet-Cookie: a=b\r\n");
    assert_eq!(refusal("", 200, &with("max-age=60")), Some(NotStored::SetCookie));
    for directives in ["max-age=60, public", "s-maxage=60"] {
        let (_, head) = store(&with(directives)).unwrap();
        assert!(text(&head).contains("Set-Cookie: a=b\r\n"), "{directives}");
    }
    let policy =
        CachePolicy { ignore: Ignore { set_cookie: true, ..Ignore::default() }, ..CachePolicy::default() };
    let response = Response::new(200, &with("max-age=60"));
    let (_, head) = store_for(&Request::get(""), &response, &policy).unwrap();
    assert!(!text(&head).contains("Set-Cookie"));
}

#[test]
fn head_and_unsafe_methods_store_nothing() {
    let response = Response::new(200, "Cache-Control: max-age=60\r\n");
    for (method, expected) in [
        ("HEAD", NotStored::Head),
        ("POST", NotStored::Method),
        ("FOO", NotStored::Method),
        ("OPTIONS", NotStored::Method),
    ] {
        let request = Request::new(method, "");
        assert_eq!(store_for(&request, &response, &CachePolicy::default()).err(), Some(expected), "{method}");
    }
}

#[test]
fn rfc9111_3_1_fields_of_a_hop_are_not_stored() {
    let (_, head) = store(&format!(
        "Connection: a, keep-alive\r\na: 1\r\nb: 2\r\nKeep-Alive: 5\r\nProxy-Authenticate: x\r\n\
         Proxy-Authentication-Info: x\r\nProxy-Connection: x\r\nTE: x\r\nTransfer-Encoding: chunked\r\n\
         Upgrade: x\r\nAge: 5\r\nContent-Length: 3\r\nDate: {NOW}\r\nContent-Range: e\r\n\
         Cache-Control: max-age=60, no-cache=\"c, d\"\r\nC: 3\r\nD: 4\r\nVary: e\r\n",
    ))
    .unwrap();
    let expected = format!(
        "HTTP/1.1 200 Word\r\nb: 2\r\nDate: {NOW}\r\nContent-Range: e\r\nCache-Control: max-age=60, no-cache=\"c, d\"\r\nVary: e\r\n\r\n"
    );
    assert_eq!(text(&head), expected);
}

#[test]
fn rfc9110_6_6_1_a_response_without_a_date_gets_one() {
    for given in ["", "Date: 0\r\n"] {
        let (_, head) = store(&format!("{given}Cache-Control: max-age=60\r\n")).unwrap();
        assert_eq!(
            text(&head),
            format!("HTTP/1.1 200 Word\r\nCache-Control: max-age=60\r\nDate: {NOW}\r\n\r\n")
        );
    }
}

#[test]
fn rfc9111_3_3_parts_are_stored_as_their_whole() {
    let fields = "Cache-Control: max-age=60\r\nContent-Range: bytes 5-9/10\r\nETag: \"a\"\r\n";
    let response = Response::new(206, fields);
    let (stored, head) =
        store_for(&Request::get("Range: bytes=5-\r\n"), &response, &CachePolicy::default()).unwrap();
    assert_eq!((stored.status, stored.part.map(|part| (part.start, part.end))), (200, Some((5, 10))));
    assert!(text(&head).starts_with("HTTP/1.1 200 OK\r\nCache-Control"));
    assert!(!text(&head).contains("Content-Range"));
    assert_eq!(stored.etag(&head), Some(b"\"a\"".as_slice()));
    // Not requested, in several parts, or wrong.
    assert_eq!(refusal("", 206, fields), Some(NotStored::Status));
    for range in ["items 5-9/10", "bytes 9-5/10", "bytes 5-9/9", "bytes */10", "bytes 5-9", "bytes x-9/10"] {
        let response = format!("Cache-Control: max-age=60\r\nContent-Range: {range}\r\n");
        assert_eq!(refusal("Range: bytes=5-\r\n", 206, &response), Some(NotStored::Status), "{range}");
    }
}

#[test]
fn the_route_takes_precedence() {
    let default = CachePolicy::default;
    let none = StatusTtl { first: 500, last: 599, ttl_ms: 0 };
    let some = StatusTtl { ttl_ms: 1000, ..none };
    let ignore = Ignore { response_directives: true, ..Ignore::default() };
    for (policy, status, fields, expected) in [
        (CachePolicy { default_ttl_ms: Some(1000), ..default() }, 200, "", None),
        (CachePolicy { ttl_ms: Some(1000), ..default() }, 200, "", None),
        // RFC 9111 §3: an error or redirect needs explicit freshness.
        (CachePolicy { ttl_ms: Some(1000), ..default() }, 500, "", Some(NotStored::NoFreshness)),
        (
            CachePolicy { ttl_ms: Some(1000), ..default() },
            302,
            "ETag: \"a\"\r\n",
            Some(NotStored::NoFreshness),
        ),
        (CachePolicy { ttl_ms: Some(1000), ..default() }, 500, "Cache-Control: max-age=0\r\n", None),
        (CachePolicy { ttl_ms: Some(1000), ..default() }, 302, "Cache-Control: public\r\n", None),
        (CachePolicy { default_ttl_ms: Some(1000), ..default() }, 500, "", Some(NotStored::NoFreshness)),
        (CachePolicy { default_ttl_ms: Some(1000), ..default() }, 401, "", Some(NotStored::NoFreshness)),
        (CachePolicy { default_ttl_ms: Some(1000), ..default() }, 403, "", Some(NotStored::NoFreshness)),
        (CachePolicy { default_ttl_ms: Some(1000), ..default() }, 302, "", Some(NotStored::NoFreshness)),
        (
            CachePolicy { default_ttl_ms: Some(1000), ..default() },
            503,
            "ETag: \"a\"\r\n",
            Some(NotStored::NoFreshness),
        ),
        (CachePolicy { default_ttl_ms: Some(1000), ..default() }, 404, "", None),
        (CachePolicy { default_ttl_ms: Some(1000), ..default() }, 302, "Cache-Control: public\r\n", None),
        (CachePolicy { default_ttl_ms: Some(1000), ..default() }, 302, "Cache-Control: max-age=9\r\n", None),
        (CachePolicy { default_ttl_ms: Some(1000), status_ttl: vec![some], ..default() }, 500, "", None),
        (
            CachePolicy { ttl_ms: Some(1000), ignore, ..default() },
            500,
            "Cache-Control: public, max-age=9\r\n",
            Some(NotStored::NoFreshness),
        ),
        (
            CachePolicy { ttl_ms: Some(1000), ..default() },
            200,
            "Cache-Control: private\r\n",
            Some(NotStored::Private),
        ),
        (
            CachePolicy { ttl_ms: Some(1000), force: true, ..default() },
            200,
            "Cache-Control: private\r\n",
            None,
        ),
        (CachePolicy { force: true, ..default() }, 200, "", Some(NotStored::NoFreshness)),
        (
            CachePolicy { status_ttl: vec![none], ..default() },
            503,
            "Cache-Control: max-age=9\r\n",
            Some(NotStored::StatusTtlZero),
        ),
        (CachePolicy { status_ttl: vec![none], ..default() }, 404, "Cache-Control: max-age=9\r\n", None),
    ] {
        let stored = store_for(&Request::get(""), &Response::new(status, fields), &policy);
        assert_eq!(stored.err(), expected, "{policy:?} {status} {fields:?}");
    }
}

/// A lifetime of the caller overrides those of the policy by status, and what a response says.
#[test]
fn the_caller_may_set_a_lifetime() {
    let zero = |status| CachePolicy {
        status_ttl: vec![StatusTtl { first: status, last: status, ttl_ms: 0 }],
        ttl_ms: Some(1000),
        ..CachePolicy::default()
    };
    for (policy, ttl_ms, status, fields, expected) in [
        (CachePolicy::default(), 7000, 200, "Cache-Control: max-age=9\r\n", Ok(7)),
        (CachePolicy::default(), 7000, 500, "", Ok(7)),
        (zero(404), 7000, 404, "", Ok(7)),
        (zero(500), 0, 200, "Cache-Control: max-age=9\r\n", Err(NotStored::StatusTtlZero)),
        (CachePolicy::default(), 7000, 200, "Cache-Control: private\r\n", Err(NotStored::Private)),
    ] {
        let (request, response) = (Request::get(""), Response::new(status, fields));
        let times = StoredTimes { ttl_ms: Some(ttl_ms), ..TIMES };
        let mut kept = KeptHead::default();
        let stored = admit(&request.asked(), &response.head, &response.bytes, times, &policy, &mut kept);
        assert_eq!(stored.map(|stored| stored.ttl_seconds(NOW_MS)), expected, "{status} {fields:?}");
    }
}

#[test]
fn each_refusal_has_its_row_and_a_word_of_its_own() {
    for row in REFUSALS {
        assert_eq!(row.refusal.row(), row);
        assert!(!row.what.is_empty() && !row.remedy.is_empty());
        assert_eq!(REFUSALS.iter().filter(|other| other.word == row.word).count(), 1, "{}", row.word);
    }
}
