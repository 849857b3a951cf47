//! Header fields for a cache, from clients and origins: any are accepted, and stored ones can be read again.

#![no_main]

use cache::{
    CachePolicy, CacheRequestFields, KeptHead, KeySecret, LookUp, StoredTimes, Vary, admit, decide,
    judge_conditions, select,
};
use http1::{HeadLimits, Parsed, RequestHead, ResponseHead};
use libfuzzer_sys::fuzz_target;

const LIMITS: HeadLimits = HeadLimits { bytes: 64 * 1024, fields: 256, target: 16 * 1024 };
const NOW_MS: u64 = 1_700_000_000_000;

fuzz_target!(|bytes: &[u8]| {
    // The fields of a request, an empty line, and those of a response.
    let end = bytes.windows(4).position(|end| end == b"\r\n\r\n").map_or(bytes.len(), |at| at + 2);
    let (request, response) = (&bytes[..end], bytes.get(end + 2..).unwrap_or_default());
    let request = [b"GET / HTTP/1.1\r\n", request, b"\r\n"].concat();
    let mut request_head = RequestHead::default();
    if request_head.parse(&request, &LIMITS) != Ok(Parsed::Complete) {
        return;
    }
    let asked = CacheRequestFields::new(&request_head, &request);
    let policy = CachePolicy::default();
    for status in ["200 A", "206 B", "404 C"] {
        let response = [b"HTTP/1.1 ", status.as_bytes(), b"\r\n", response, b"\r\n"].concat();
        let mut head = ResponseHead::default();
        if head.parse(&response, &LIMITS) != Ok(Parsed::Complete) {
            return;
        }
        let mut kept = KeptHead::default();
        let times = StoredTimes { requested_ms: NOW_MS, received_ms: NOW_MS + 5, ttl_ms: None };
        let Ok(stored) = admit(&asked, &head, &response, times, &policy, &mut kept) else {
            assert_eq!(kept, KeptHead::default());
            continue;
        };
        let mut again = ResponseHead::default();
        assert_eq!(again.parse(&kept.shown, &LIMITS), Ok(Parsed::Complete));
        let _ = decide(&asked, LookUp::Variant(&stored), &policy, NOW_MS + 60_000);
        let _ = judge_conditions(&asked, &request_head, &request, &stored, &kept.shown);
        let _ = select(&request_head, &request, 100);
        if let Ok(vary) = Vary::new(&head, &response, &policy) {
            let _ = vary.variant(KeySecret::default(), &policy, &request_head, &request, |_| true);
            assert_eq!(Vary::from_bytes(vary.as_bytes()), vary);
        }
    }
});
