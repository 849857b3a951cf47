//! Ages, lifetimes, and directives of requests (RFC 9111 §4.2, §5.2.1, RFC 5861, RFC 9213).

use cache::{
    CachePolicy, Decision, Forward, Freshness, Heuristic, Ignore, LookUp, NotStored, OriginError, StatusTtl,
    decide, serves_on_error,
};

use crate::{NOW, NOW_MS, Request, Response, decide_after, keep, store, store_for, text};

const FRESH: Decision = Decision::Serve(Freshness::Fresh);

/// The freshness lifetime of a response with these fields, in seconds; negative if it is stale on arrival.
fn lifetime(fields: &str) -> i64 {
    store(&format!("{fields}ETag: \"a\"\r\n")).unwrap().0.ttl_seconds(NOW_MS)
}

#[test]
fn rfc9111_4_2_1_cache_control() {
    for (directives, expected) in [
        ("max-age=60", 60),
        ("MaX-aGe=60", 60),
        ("max-age=060", 60),
        ("max-age=\"60\"", 60),
        ("max-age=60, s-maxage=5", 5),
        ("s-maxage=5, max-age=60", 5),
        ("foo, max-age=60", 60),
        ("foo=\"max-age=9\", max-age=60", 60),
        ("max-age=60, foo=\"max-age=9\"", 60),
        ("foo=\"a\\\", max-age=9\", max-age=60", 60),
        (",, max-age=60 ,", 60),
        // The first of several values counts.
        ("max-age=60, max-age=9", 60),
        ("max-age=9, max-age=60", 9),
        // RFC 9111 §1.2.2: a number that does not fit counts as 2^31.
        ("max-age=2147483648", 1 << 31),
        ("max-age=99999999999999999999", 1 << 31),
        // An invalid number counts as 0.
        ("max-age", 0),
        ("max-age=", 0),
        ("max-age=-1", 0),
        ("max-age='60'", 0),
        ("max-age=60a", 0),
        ("max-age=6.5", 0),
        ("max-age =60", 0),
        ("max-age= 60", 0),
        ("max-age=\"60\"a", 0),
        ("max-age=a, max-age=60", 0),
        // An unterminated string hides no later directive.
        ("foo=\"bar, max-age=60", 60),
    ] {
        assert_eq!(lifetime(&format!("Cache-Control: {directives}\r\n")), expected, "{directives}");
    }
    assert_eq!(lifetime("Cache-Control: foo\r\nCache-Control: max-age=60\r\n"), 60);
}

#[test]
fn a_never_fresh_response_stays_so_for_a_lagging_clock() {
    for (age, is_fresh) in [(0, false), (1, true)] {
        let (stored, _) = store(&format!("Cache-Control: max-age={age}\r\nETag: \"a\"\r\n")).unwrap();
        assert_eq!(stored.is_fresh(NOW_MS - 100), is_fresh);
    }
}

#[test]
fn rfc9111_5_3_expires() {
    for (expires, expected) in [
        ("Sun, 06 Nov 1994 08:50:37 GMT", 60),
        ("Sunday, 06-Nov-94 08:50:37 GMT", 60),
        ("Sun Nov  6 08:50:37 1994", 60),
        ("Sun, 06 Nov 1994 08:48:37 GMT", 0),
        ("0", 0),
        ("-1", 0),
        ("", 0),
        ("Sun, 06 Nov 1994 08:50:37 UTC", 0),
    ] {
        assert_eq!(lifetime(&format!("Expires: {expires}\r\n")), expected, "{expires}");
    }
    let expires = "Expires: Sun, 06 Nov 1994 08:50:37 GMT\r\n";
    // Expires counts from Date, and max-age overrides it.
    assert_eq!(lifetime(&format!("{expires}Date: Sun, 06 Nov 1994 08:49:07 GMT\r\n")), 60);
    assert_eq!(lifetime(&format!("{expires}Cache-Control: max-age=5\r\n")), 5);
    assert_eq!(lifetime(&format!("{expires}Cache-Control: max-age=0\r\n")), 0);
}

#[test]
fn rfc9111_4_2_3_age() {
    for (age, expected) in [
        ("Age: 10\r\n", 10),
        ("Age: 10, 0\r\n", 10),
        ("Age: 0, 10\r\n", 0),
        ("Age: 10\r\nAge: 0\r\n", 10),
        ("Age: abc\r\n", 0),
        ("Age: -10\r\n", 0),
        ("Age: 10.0\r\n", 0),
        ("Date: Sun, 06 Nov 1994 08:49:07 GMT\r\n", 30),
        ("Date: Sun, 06 Nov 1994 08:49:07 GMT\r\nAge: 10\r\n", 30),
        ("Date: Sun, 06 Nov 1994 08:49:07 GMT\r\nAge: 40\r\n", 40),
        ("Date: Sun, 06 Nov 1994 08:59:07 GMT\r\n", 0),
    ] {
        let response = format!("{age}Cache-Control: max-age=100\r\nETag: \"a\"\r\n");
        let (stored, _) = store(&response).unwrap();
        assert_eq!(stored.ttl_seconds(NOW_MS), 100 - expected, "{age}");
        if expected < 100 {
            assert_eq!(stored.age_seconds(NOW_MS + 7000), expected as u64 + 7, "{age}");
        }
    }
    // An age beyond 1970 makes it stale, despite its max-age.
    let (stored, _) =
        store("Age: 99999999999\r\nCache-Control: max-age=1000000000\r\nETag: \"a\"\r\n").unwrap();
    assert!(!stored.is_fresh(NOW_MS));
}

#[test]
fn rfc9111_4_2_2_heuristic() {
    let modified = "Last-Modified: Sun, 06 Nov 1994 08:32:57 GMT\r\n";
    for (status, directives, expected) in [
        (200, "", Some(100)),
        (203, "", Some(100)),
        (404, "", Some(100)),
        (410, "", Some(100)),
        (501, "", Some(100)),
        (403, "", None),
        (502, "", None),
        (599, "", None),
        (599, "Cache-Control: public\r\n", Some(100)),
        (200, "Cache-Control: max-age=5\r\n", Some(5)),
    ] {
        let response = Response::new(status, &format!("{modified}{directives}"));
        let stored =
            store_for(&Request::get(""), &response, &CachePolicy::default()).map(|(stored, _)| stored);
        // RFC 9111 §3: a response without heuristic freshness is not stored.
        let ttl = stored.map(|stored| (stored.ttl_seconds(NOW_MS), stored.is_heuristic()));
        let expected = expected.map(|ttl| (ttl, ttl == 100)).ok_or(NotStored::NoFreshness);
        assert_eq!(ttl, expected, "{status} {directives}");
    }
    let old = "Last-Modified: Fri, 06 Nov 1970 08:32:57 GMT\r\n";
    assert_eq!(lifetime(old), 24 * 60 * 60, "never longer than a day");
    let off = CachePolicy { heuristic: Heuristic { percent: 0, longest_ms: 1 }, ..CachePolicy::default() };
    let (stored, _) = store_for(&Request::get(""), &Response::new(200, modified), &off).unwrap();
    assert_eq!(stored.ttl_seconds(NOW_MS), 0);
}

#[test]
fn rfc9213_cdn_cache_control_goes_before() {
    for (cdn, expected) in [
        ("max-age=60", 60),
        ("foo, max-age=60;a=1", 60),
        ("max-age=1, max-age=60", 60),
        ("max-age=999999999999999", 1 << 31),
        ("max-age=-5", 0),
        ("a=(1 \"b\" c);d, e=:YQ==:, f=@1, g=%\"%c3\", h=?0, i=1.5, max-age=60", 60),
        // Not a Dictionary, or no valid time: counts as missing.
        ("max-age=60, &&&", 7),
        ("max-age=\"60\"", 7),
        ("max-age =60", 7),
        ("max-age= 60", 7),
        ("MAX-AGE=60", 7),
        ("max-age=60,", 7),
        ("max-age=1234567890123456", 7),
        ("a=\"b, max-age=60", 7),
        ("", 7),
    ] {
        let fields = format!("CDN-Cache-Control: {cdn}\r\nCache-Control: max-age=7\r\n");
        assert_eq!(lifetime(&fields), expected, "{cdn}");
    }
    let both = "CDN-Cache-Control: max-age=60\r\nCDN-Cache-Control: foo\r\nCache-Control: no-store\r\n";
    assert_eq!(lifetime(both), 60);
    assert_eq!(lifetime("CDN-Cache-Control: foo\r\nExpires: Sun, 06 Nov 1994 08:50:37 GMT\r\n"), 0);
    for directive in ["no-store", "private", "no-cache"] {
        let fields = format!("CDN-Cache-Control: {directive}\r\nCache-Control: max-age=60\r\n");
        assert!(store(&fields).is_err(), "{directive}");
    }
    assert!(store("CDN-Cache-Control: max-age=60, no-store=?0\r\n").is_ok());
}

#[test]
fn surrogate_control_goes_before_and_is_for_this_cache_alone() {
    for (surrogate, expected) in [
        ("max-age=60", Some(60)),
        ("MaX-aGe=60, foobar", Some(60)),
        ("content=\"ESI/1.0\", max-age=60", Some(60)),
        ("max-age=60+30", Some(60)),
        ("no-store-remote, max-age=60", Some(60)),
        ("max-age=1, max-age=60;vanward", Some(60)),
        ("max-age=1;abc, max-age=60; Vanward;def, no-store", Some(60)),
        ("max-age=60, no-store;abc", Some(60)),
        ("max-age =60", Some(0)),
        ("max-age= 60", Some(0)),
        ("no-store", None),
        ("max-age=60, no-store;vanward", None),
        ("private", None),
        // These directives have no meaning for this cache.
        ("content=\"ESI/1.0\"", Some(7)),
        ("max-age=60;abc, no-store;abc", Some(7)),
        ("no-store-remote", Some(7)),
        ("", Some(7)),
    ] {
        let fields = format!(
            "Surrogate-Control: {surrogate}\r\nCDN-Cache-Control: max-age=7\r\nCache-Control: no-store\r\nETag: \"a\"\r\n"
        );
        let found = store(&fields).map(|(stored, _)| stored.ttl_seconds(NOW_MS)).ok();
        assert_eq!(found, expected, "{surrogate}");
    }
    let (stored, _) = store("Surrogate-Control: max-age=60+30\r\n").unwrap();
    assert_eq!(decide_after(&stored, 89, ""), Decision::Serve(Freshness::StaleWhileRevalidate));
    assert_eq!(decide_after(&stored, 90, ""), Decision::Validate(Forward::Stale));
}

#[test]
fn x_accel_expires_is_a_lifetime_or_a_time() {
    let target = |name: &'static str| cache::TargetedField { name: name.into(), is_sent: false };
    let targets = vec![target(cache::ACCEL_EXPIRES), target("cdn-cache-control")];
    let policy = CachePolicy { targets, ..CachePolicy::default() };
    let now_seconds = NOW_MS / 1000;
    let (later, past) = (format!("@{}", now_seconds + 90), format!("@{}", now_seconds - 90));
    for (expires, expected) in [
        ("60", Some(60)),
        (" 60 ", Some(60)),
        (later.as_str(), Some(90)),
        (past.as_str(), Some(0)),
        ("@0", Some(0)),
        ("99999999999999999999", Some(1 << 31)),
        ("0", None),
        ("00", None),
        // What is neither a lifetime nor a time counts as missing.
        ("-1", Some(7)),
        ("1m", Some(7)),
        ("@", Some(7)),
        ("@+1", Some(7)),
        ("@99999999999999999999", Some(7)),
        ("off", Some(7)),
        ("", Some(7)),
    ] {
        let fields = format!(
            "Date: {NOW}\r\nX-Accel-Expires: {expires}\r\nCDN-Cache-Control: max-age=7\r\nCache-Control: private\r\nETag: \"a\"\r\n"
        );
        let found = keep(&Request::get(""), &Response::new(200, &fields), &policy);
        let seconds = found.as_ref().map(|(stored, _)| stored.ttl_seconds(NOW_MS)).ok();
        assert_eq!(seconds, expected, "{expires}");
        assert!(found.is_ok_and(|(_, kept)| !text(&kept.shown).contains("X-Accel")) || expected.is_none());
    }
    // It permits no session of one client to be stored for all.
    let cookie = "X-Accel-Expires: 60\r\nSet-Cookie: a=b\r\n";
    let found = keep(&Request::get(""), &Response::new(200, cookie), &policy);
    assert_eq!(found.err(), Some(NotStored::SetCookie));
    // Without the target, it is a field like any other.
    let (_, head) = store("X-Accel-Expires: 0\r\nCache-Control: max-age=60\r\n").unwrap();
    assert!(text(&head).contains("X-Accel-Expires: 0\r\n"));
}

#[test]
fn routes_choose_the_targeted_fields() {
    let fields = "Surrogate-Control: max-age=60\r\nCDN-Cache-Control: max-age=7\r\nOur-Cache-Control: max-age=9\r\n\
        Cache-Control: max-age=1\r\n";
    let target = |name: &'static str, is_sent| cache::TargetedField { name: name.into(), is_sent };
    for (targets, ttl_seconds, hidden) in [
        (cache::TARGETS.to_vec(), 60, "Surrogate-Control: max-age=60\r\n"),
        (vec![], 1, ""),
        (
            vec![target("our-cache-control", true), target("cdn-cache-control", false)],
            9,
            "CDN-Cache-Control: max-age=7\r\n",
        ),
        (vec![target("cdn-cache-control", true), target("surrogate-control", true)], 7, ""),
    ] {
        let policy = CachePolicy { targets, ..CachePolicy::default() };
        let (stored, kept) = keep(&Request::get(""), &Response::new(200, fields), &policy).unwrap();
        assert_eq!((stored.ttl_seconds(NOW_MS), text(&kept.hidden).as_str()), (ttl_seconds, hidden));
        assert_eq!(text(&kept.shown).matches("Control").count(), if hidden.is_empty() { 4 } else { 3 });
    }
}

#[test]
fn rfc9111_5_2_1_client_directives() {
    let validate = Decision::Validate(Forward::Request);
    let stale = Decision::Validate(Forward::Stale);
    for (fields, seconds, expected) in [
        ("", 0, FRESH),
        ("", 99, FRESH),
        ("", 100, stale),
        ("Cache-Control: max-age=50\r\n", 50, FRESH),
        ("Cache-Control: max-age=50\r\n", 51, validate),
        ("Cache-Control: max-age=0\r\n", 0, validate),
        ("Cache-Control: max-age=x\r\n", 0, validate),
        ("Cache-Control: min-fresh=50\r\n", 49, FRESH),
        ("Cache-Control: min-fresh=50\r\n", 51, validate),
        ("Cache-Control: max-stale\r\n", 5000, Decision::Serve(Freshness::StaleForClient)),
        ("Cache-Control: max-stale=50\r\n", 150, Decision::Serve(Freshness::StaleForClient)),
        ("Cache-Control: max-stale=50\r\n", 151, stale),
        ("Cache-Control: max-stale=x\r\n", 101, stale),
        ("Cache-Control: no-cache\r\n", 0, validate),
        ("Cache-Control: no-store\r\n", 0, Decision::Forward(Forward::Request)),
        ("Cache-Control: only-if-cached\r\n", 0, FRESH),
        ("Cache-Control: only-if-cached\r\n", 100, Decision::OnlyIfCached),
        ("Cache-Control: only-if-cached, max-stale\r\n", 200, Decision::Serve(Freshness::StaleForClient)),
        // RFC 9111 §5.4: Pragma counts if Cache-Control is missing.
        ("Pragma: no-cache\r\n", 0, validate),
        ("Pragma: no-cache\r\nCache-Control: foo\r\n", 0, FRESH),
        ("Pragma: foo\r\n", 0, FRESH),
    ] {
        let (stored, _) = store("Cache-Control: max-age=100\r\n").unwrap();
        assert_eq!(decide_after(&stored, seconds, fields), expected, "{fields:?} after {seconds} s");
    }
    let (stored, _) = store("Cache-Control: max-age=100\r\n").unwrap();
    let deaf = CachePolicy {
        ignore: Ignore { request_directives: true, ..Ignore::default() },
        ..CachePolicy::default()
    };
    for fields in ["Cache-Control: no-cache\r\n", "Cache-Control: only-if-cached, no-store\r\n"] {
        let asked = Request::get(fields).asked();
        assert_eq!(decide(&asked, LookUp::Variant(&stored), &deaf, NOW_MS), FRESH);
        assert_eq!(decide(&asked, LookUp::Nothing, &deaf, NOW_MS), Decision::Forward(Forward::UriMiss));
    }
    let only = Request::get("Cache-Control: only-if-cached\r\n").asked();
    assert_eq!(decide(&only, LookUp::Nothing, &CachePolicy::default(), NOW_MS), Decision::OnlyIfCached);
    let plain = Request::get("").asked();
    let other = decide(&plain, LookUp::OtherVariants, &CachePolicy::default(), NOW_MS);
    assert_eq!(other, Decision::Forward(Forward::VaryMiss));
}

#[test]
fn rfc5861_3_stale_while_revalidate() {
    let served = Decision::Serve(Freshness::StaleWhileRevalidate);
    let stale = Decision::Validate(Forward::Stale);
    for (directives, seconds, expected) in [
        ("max-age=100, stale-while-revalidate=10", 109, served),
        ("max-age=100, stale-while-revalidate=10", 110, stale),
        ("max-age=100, stale-while-revalidate=10, must-revalidate", 101, stale),
        ("max-age=100, stale-while-revalidate=10, proxy-revalidate", 101, stale),
        ("max-age=100, stale-while-revalidate=x", 101, stale),
        ("s-maxage=100, stale-while-revalidate=10", 101, served),
        ("max-age=100", 101, stale),
    ] {
        let (stored, _) = store(&format!("Cache-Control: {directives}\r\nETag: \"a\"\r\n")).unwrap();
        assert_eq!(decide_after(&stored, seconds, ""), expected, "{directives} after {seconds} s");
    }
}

#[test]
fn rfc5861_4_and_rfc9111_4_2_4_when_the_origin_fails() {
    let down = OriginError::Unreachable;
    let broken = OriginError::of_status(500).unwrap();
    let overloaded = OriginError::of_status(503).unwrap();
    assert_eq!(OriginError::of_status(501), None);
    let graceful = CachePolicy { grace_ms: 50_000, ..CachePolicy::default() };
    for (directives, error, seconds, expected) in [
        ("max-age=100, stale-if-error=10", down, 109, true),
        ("max-age=100, stale-if-error=10", broken, 109, true),
        ("max-age=100, stale-if-error=10", broken, 110, false),
        ("max-age=100", broken, 101, false),
        ("max-age=100", overloaded, 149, true),
        ("max-age=100", down, 149, true),
        ("max-age=100", down, 150, false),
        ("max-age=100, must-revalidate", down, 101, false),
        ("max-age=100, proxy-revalidate", down, 101, false),
        ("max-age=100, no-cache", down, 101, false),
        ("s-maxage=100", down, 101, false),
        ("s-maxage=100, stale-if-error=10", down, 101, true),
        ("max-age=100, must-revalidate, stale-if-error=10", down, 101, false),
    ] {
        let (stored, _) = store(&format!("Cache-Control: {directives}\r\nETag: \"a\"\r\n")).unwrap();
        let serves = |fields: &str| {
            let asked = Request::get(fields).asked();
            serves_on_error(&asked, &stored, error, &graceful, NOW_MS + seconds * 1000)
        };
        assert_eq!(serves(""), expected, "{directives} {error:?} after {seconds} s");
        assert!(!serves("Cache-Control: no-cache\r\n"), "{directives}");
    }
}

#[test]
fn route_times_count_from_receipt() {
    let short = StatusTtl { first: 404, last: 404, ttl_ms: 5000 };
    let policy = CachePolicy { ttl_ms: Some(60_000), status_ttl: vec![short], ..CachePolicy::default() };
    let old = format!("Date: {NOW}\r\nAge: 500\r\nCache-Control: max-age=1\r\n");
    for (status, expected) in [(200, 60), (404, 5)] {
        let (stored, _) = store_for(&Request::get(""), &Response::new(status, &old), &policy).unwrap();
        assert_eq!(stored.ttl_seconds(NOW_MS), expected);
        assert_eq!(stored.age_seconds(NOW_MS), 500);
    }
}

#[test]
fn purged_softly_it_may_be_stale_invalidated_it_may_not() {
    let (mut stored, _) = store("Cache-Control: max-age=100, stale-while-revalidate=10\r\n").unwrap();
    stored.make_stale(NOW_MS + 1000);
    assert_eq!(decide_after(&stored, 1, ""), Decision::Serve(Freshness::StaleWhileRevalidate));
    stored.invalidate();
    assert_eq!(decide_after(&stored, 1, ""), Decision::Validate(Forward::Stale));
    assert_eq!(decide_after(&stored, 1, "Cache-Control: max-stale\r\n"), Decision::Validate(Forward::Stale));
}
