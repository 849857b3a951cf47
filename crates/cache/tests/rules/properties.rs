//! Properties of every input, and the cost of a hit.

use cache::{
    CacheKey, CachePolicy, CacheRequestFields, KeptHead, KeyOptions, KeySecret, LookUp, StoredTimes, Uri,
    Vary, admit, decide, no_values,
};
use http1::ResponseHead;
use proptest::prelude::*;

use crate::{LIMITS, NOW_MS, Request, Response, store};

proptest! {
    #[test]
    fn any_field_value_is_read(
        value in "[ -~\t]{0,60}",
        name in "(Cache-Control|CDN-Cache-Control|Surrogate-Control|Surrogate-Key|Expires|Age|Date|Vary|ETag|Content-Range|Last-Modified)",
    ) {
        let request = Request::get("Range: bytes=0-1\r\n");
        for status in [200, 206] {
            let response = Response::new(status, &format!("{name}: {value}\r\nCache-Control: max-age=5\r\n"));
            let mut head = KeptHead::default();
            let times = StoredTimes { requested_ms: 0, received_ms: NOW_MS, ttl_ms: None };
            let stored = admit(&request.asked(), &response.head, &response.bytes, times, &CachePolicy::default(), &mut head);
            if stored.is_ok() {
                // A stored head can be parsed again, with the same result.
                let mut again = ResponseHead::default();
                prop_assert!(again.parse(&head.shown, &LIMITS).is_ok());
            } else {
                prop_assert!(head == KeptHead::default());
            }
            let _ = Vary::new(&response.head, &response.bytes, &CachePolicy::default());
        }
    }

    #[test]
    fn any_request_value_is_read(value in "[ -~\t]{0,60}", name in "(Cache-Control|Pragma|Range|If-None-Match|If-Range|Cookie)") {
        let (stored, head) = store("Cache-Control: max-age=60\r\nETag: \"a\"\r\n").unwrap();
        let request = Request::get(&format!("{name}: {value}\r\n"));
        let asked = request.asked();
        let _ = decide(&asked, LookUp::Variant(&stored), &CachePolicy::default(), NOW_MS);
        let _ = cache::judge_conditions(&asked, &request.head, &request.bytes, &stored, &head);
        if let cache::Selection::Several(ranges) = cache::select(&request.head, &request.bytes, 1000) {
            prop_assert!(ranges.iter().all(|range| range.start < range.end && range.end <= 1000));
        }
    }

    #[test]
    fn age_and_freshness_never_overflow(
        age in any::<u64>(),
        max_age in any::<u64>(),
        requested_ms in any::<u64>(),
        received_ms in any::<u64>(),
        now_ms in any::<u64>(),
    ) {
        let response = Response::new(200, &format!(
            "Age: {age}\r\nCache-Control: max-age={max_age}, stale-while-revalidate={age}\r\nETag: \"a\"\r\n"
        ));
        let times = StoredTimes { requested_ms, received_ms, ttl_ms: None };
        let asked = Request::get("Cache-Control: max-stale=5, min-fresh=5\r\n").asked();
        let mut head = KeptHead::default();
        let stored = admit(&asked, &response.head, &response.bytes, times, &CachePolicy::default(), &mut head);
        let stored = stored.expect("a validator makes it storable");
        let _ = (stored.age_seconds(now_ms), stored.ttl_seconds(now_ms));
        let _ = decide(&asked, LookUp::Variant(&stored), &CachePolicy::default(), now_ms);
        // Age grows with time, and a stale response stays stale.
        let later = now_ms.saturating_add(1000);
        prop_assert!(stored.age_seconds(later) >= stored.age_seconds(now_ms));
        prop_assert!(stored.is_fresh(now_ms) || !stored.is_fresh(later));
    }

    #[test]
    fn any_order_of_vary_is_the_same(mut names in prop::collection::vec("[a-c]{1,2}", 1..6), seed in any::<u64>()) {
        let read = |names: &[String]| {
            let response = Response::new(200, &format!("Vary: {}\r\n", names.join(", ")));
            Vary::new(&response.head, &response.bytes, &CachePolicy::default()).expect("is short")
        };
        let first = read(&names);
        let turns = seed as usize % names.len();
        names.rotate_left(turns);
        prop_assert_eq!(read(&names), first);
    }

    #[test]
    fn any_order_of_different_parameters_is_the_same_when_sorted(
        names in prop::collection::btree_set("[a-z]{1,4}", 1..20), turns in 0usize..20,
    ) {
        let options = KeyOptions { sorts_query: true, ..KeyOptions::default() };
        let request = Request::get("");
        let key = |names: &[String]| {
            let path = format!("/?{}", names.join("=1&"));
            let uri = Uri::new(false, b"a", path.as_bytes());
            // The last one has no value, which belongs to its name.
            CacheKey::from_secret(KeySecret::new(1), &uri, &options, (&request.head, &request.bytes), |_| true, no_values)
        };
        let mut turned: Vec<String> = names.iter().cloned().collect();
        let last = turned.pop().unwrap_or_default();
        let at = turns % turned.len().max(1);
        turned.rotate_left(at);
        turned.push(last);
        let sorted: Vec<String> = names.into_iter().collect();
        prop_assert_eq!(key(&turned), key(&sorted));
    }
}

#[test]
fn a_hit_allocates_nothing() {
    let (stored, _) = store("Cache-Control: max-age=60\r\nETag: \"a\"\r\n").unwrap();
    let request = Request::get("Accept-Encoding: gzip, br\r\nCookie: a=1; b=2\r\nUser-Agent: x\r\n");
    let response = Response::new(200, "Vary: Accept-Encoding\r\n");
    let policy = CachePolicy::default();
    let vary = Vary::new(&response.head, &response.bytes, &policy).unwrap();
    let options =
        KeyOptions { sorts_query: true, cookies: vec![b"b".as_slice().into()], ..KeyOptions::default() };
    let measured = allocation_counter::measure(|| {
        let asked = CacheRequestFields::new(&request.head, &request.bytes);
        let uri = Uri::new(false, b"A.example:80", b"/p?b=1&a=2");
        let key = CacheKey::from_secret(
            KeySecret::new(1),
            &uri,
            &options,
            (&request.head, &request.bytes),
            |_| true,
            no_values,
        );
        let variant = vary.variant(KeySecret::new(1), &policy, &request.head, &request.bytes, |_| true);
        let decision = decide(&asked, LookUp::Variant(&stored), &policy, NOW_MS + 1000);
        std::hint::black_box((key, variant, decision));
    });
    assert_eq!(measured.count_total, 0);
}
