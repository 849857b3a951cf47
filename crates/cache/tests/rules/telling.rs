//! Invalidation (RFC 9111 §4.4), Age and Cache-Status (RFC 9211).

use cache::{CacheStatus, Forward, Handling, Uri, also_invalid, invalidates, write_age};

use crate::{Request, Response, text};

#[test]
fn rfc9111_4_4_unsafe_requests_that_succeed() {
    for (method, status, expected) in [
        ("POST", 200, true),
        ("PUT", 204, true),
        ("DELETE", 303, true),
        ("PATCH", 200, true),
        ("FOO", 200, true),
        ("POST", 400, false),
        ("POST", 503, false),
        ("GET", 200, false),
        ("HEAD", 200, false),
        ("OPTIONS", 200, false),
    ] {
        assert_eq!(
            invalidates(Request::new(method, "").head.start.method, status),
            expected,
            "{method} {status}"
        );
    }
}

#[test]
fn rfc9111_4_4_location_of_the_same_origin() {
    let target = Uri::new(false, b"a.example:80", b"/dir/page?q");
    for (location, expected) in [
        ("/other", Some("/other")),
        ("/other?x#f", Some("/other?x")),
        ("http://a.example/x", Some("/x")),
        ("http://A.EXAMPLE:80", Some("/")),
        ("HTTP://a.example?x", Some("/?x")),
        ("//a.example/x", Some("/x")),
        ("next", Some("/dir/next")),
        ("../x?a/../b", Some("/x?a/../b")),
        ("./", Some("/dir/")),
        ("/a/b/../../../c/.", Some("/c/")),
        ("?z", Some("/dir/page?z")),
        ("#f", Some("/dir/page?q")),
        ("https://a.example/x", None),
        ("http://b.example/x", None),
        ("http://a.example:8080/x", None),
        ("//b.example/x", None),
        ("mailto:a@b", None),
        ("http:/x", None),
    ] {
        for name in ["Location", "Content-Location"] {
            let response = Response::new(200, &format!("{name}: {location}\r\n"));
            let also: Vec<_> = also_invalid(&response.head, &response.bytes, &target).collect();
            let expected: Vec<_> = expected.iter().map(|path| path.as_bytes().to_vec()).collect();
            assert_eq!(also, expected, "{name}: {location}");
        }
    }
}

#[test]
fn rfc9211_cache_status() {
    let told = |handling, ttl_seconds, key, detail| {
        let mut out = Vec::new();
        CacheStatus { handling, ttl_seconds, key, detail }.write(&mut out);
        text(&out)
    };
    let forwarded = |forward, status, is_stored, is_collapsed| Handling::Forwarded {
        forward,
        status,
        is_stored,
        is_collapsed,
    };
    for (line, expected) in [
        (told(Handling::Hit, Some(30), None, None), "hit; ttl=30"),
        (told(Handling::Hit, Some(-5), None, None), "hit; ttl=-5"),
        (
            told(forwarded(Forward::UriMiss, None, true, false), Some(9), None, None),
            "fwd=uri-miss; stored; ttl=9",
        ),
        (
            told(forwarded(Forward::Stale, Some(304), true, true), None, None, None),
            "fwd=stale; fwd-status=304; stored; collapsed",
        ),
        (
            told(
                forwarded(Forward::Bypass, None, false, false),
                None,
                Some(b"http://a/\"x\"\\\xff\nb=1"),
                Some("no-store"),
            ),
            "fwd=bypass; key=\"http://a/\\\"x\\\"\\\\? b=1\"; detail=no-store",
        ),
    ] {
        assert_eq!(line, format!("Cache-Status: vanward; {expected}\r\n"));
    }
    for forward in Forward::ALL {
        assert!(told(forwarded(forward, None, false, false), None, None, None).contains(forward.word()));
    }
}

#[test]
fn rfc9111_5_1_age() {
    for (age, expected) in [(0, "0"), (7, "7"), (1234, "1234"), (u64::MAX, "2147483648")] {
        let mut out = Vec::new();
        write_age(&mut out, age);
        assert_eq!(text(&out), format!("Age: {expected}\r\n"));
    }
}
