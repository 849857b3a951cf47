//! Common properties of the responses to a request. A plan may set them by checks; otherwise the first responses are
//! the pattern. No I/O, no clock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use flate2::Crc;

use crate::watch::{Missed, ResponseVerdict};

/// Number of equal bodies after which the size of a body is part of the pattern.
const EQUAL: u32 = 10;
/// How long bodies must be equal before their digest joins the pattern: many pages show the time in seconds.
const EQUAL_FOR: Duration = Duration::from_secs(1);
const VARIES: u32 = u32::MAX;

/// Computes the digest for checks of a body: its CRC-32.
pub fn digest(body: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(body);
    crc.sum()
}

/// Returns a number for the media type of a Content-Type field, without its parameters; 0 for a response without one.
pub(crate) fn kind(content_type: &[u8]) -> u32 {
    let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let mut crc = Crc::new();
    media_type.iter().for_each(|byte| crc.update(&[byte.to_ascii_lowercase()]));
    crc.sum().max(1)
}

/// The properties of a complete response that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageFacts {
    pub(crate) status: u16,
    pub(crate) kind: u32,
    pub(crate) body_bytes: u64,
    /// `None` if it was not computed.
    pub(crate) digest: Option<u32>,
}

/// The pattern of the responses to one request: the first good one, and whether later bodies were equal to it.
#[derive(Debug)]
pub(crate) struct PagePattern {
    /// Whether equal requests have equal responses (RFC 9110 §9.2.1). If not, only the status class is compared.
    is_safe: bool,
    first: OnceLock<(PageFacts, Instant)>,
    /// Number of bodies that were equal to the first, up to [`EQUAL`], or [`VARIES`].
    equal: AtomicU32,
}

impl PagePattern {
    /// The pattern of requests with this method, before the first response.
    pub(crate) fn new(method: &str) -> Self {
        let is_safe = matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "QUERY");
        Self { is_safe, first: OnceLock::new(), equal: AtomicU32::new(0) }
    }

    #[inline]
    pub(crate) fn wants_digest(&self) -> bool {
        self.is_safe && self.equal.load(Ordering::Relaxed) != VARIES
    }

    /// Judges a good response that was complete at `now`.
    #[inline]
    pub(crate) fn verdict(&self, page: PageFacts, now: Instant) -> ResponseVerdict {
        let (first, since) = self.first.get_or_init(|| (page, now));
        if !self.is_safe {
            let is_alike = page.status / 100 == first.status / 100;
            return if is_alike { ResponseVerdict::Good } else { ResponseVerdict::Unlike(Missed::Status) };
        }
        if page.status != first.status {
            return ResponseVerdict::Unlike(Missed::Status);
        }
        if page.kind != first.kind {
            return ResponseVerdict::Unlike(Missed::Kind);
        }
        // Even if bodies differ, they must not be empty.
        if (page.body_bytes == 0) != (first.body_bytes == 0) {
            return ResponseVerdict::Unlike(Missed::Size);
        }
        let is_size = page.body_bytes == first.body_bytes;
        let is_equal = is_size && page.digest.is_none_or(|digest| first.digest == Some(digest));
        match self.equal.load(Ordering::Relaxed) {
            VARIES => ResponseVerdict::Good,
            EQUAL.. if is_equal => ResponseVerdict::Good,
            EQUAL.. if !is_size => ResponseVerdict::Unlike(Missed::Size),
            EQUAL.. if now.saturating_duration_since(*since) >= EQUAL_FOR => {
                ResponseVerdict::Unlike(Missed::Digest)
            }
            _ => {
                self.learn(is_equal);
                ResponseVerdict::Good
            }
        }
    }

    #[cold]
    fn learn(&self, is_equal: bool) {
        let next = |equal| match (equal, is_equal) {
            (VARIES, _) => None,
            (_, false) => Some(VARIES),
            (EQUAL.., true) => None,
            (equal, true) => Some(equal + 1),
        };
        // Without a next value it stays.
        let _ = self.equal.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// Describes the difference of a response from the first ones.
    pub(crate) fn words(&self, missed: Missed, status: u16, body_bytes: u64) -> String {
        let first = self.first.get().map_or((0, 0), |(first, _)| (first.status, first.body_bytes));
        let what = match missed {
            Missed::Status => format!("status {status}, the first response had {}", first.0),
            Missed::Kind => "Content-Type differs from the first response".to_owned(),
            Missed::Size => format!("the body has {body_bytes} bytes, the first responses had {}", first.1),
            Missed::Field(_) | Missed::Contains(_) | Missed::Digest => {
                format!("the body of {body_bytes} bytes differs from the first responses")
            }
        };
        format!("{what} (if that is intended: --responses any, or --check)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(status: u16, content_type: &str, body: &str) -> PageFacts {
        let (kind, digest) = (kind(content_type.as_bytes()), Some(digest(body.as_bytes())));
        PageFacts { status, kind, body_bytes: body.len() as u64, digest }
    }

    /// Judges responses, whose times are in milliseconds.
    fn judged(method: &str, responses: &[(u64, PageFacts)]) -> Vec<Option<Missed>> {
        let (pattern, start) = (PagePattern::new(method), Instant::now());
        let judge = |(at_ms, page): &(u64, PageFacts)| {
            let page = PageFacts { digest: page.digest.filter(|_| pattern.wants_digest()), ..*page };
            match pattern.verdict(page, start + Duration::from_millis(*at_ms)) {
                ResponseVerdict::Unlike(missed) => Some(missed),
                _ => None,
            }
        };
        responses.iter().map(judge).collect()
    }

    fn last(method: &str, first: PageFacts, learned_ms: u64, then: PageFacts) -> Option<Missed> {
        let mut responses = vec![(0, first); 11];
        responses.extend([(learned_ms, first), (learned_ms, then)]);
        judged(method, &responses).pop().expect("a verdict")
    }

    #[test]
    fn what_is_unlike_the_first_responses_is_missed_by_its_kind() {
        let first = page(200, "text/html; charset=utf-8", "a page");
        for (then, expected) in [
            (first, None),
            (page(200, "TEXT/html", "a page"), None),
            (page(204, "text/html", ""), Some(Missed::Status)),
            (page(302, "text/html", "a page"), Some(Missed::Status)),
            (page(200, "text/plain", "a page"), Some(Missed::Kind)),
            (page(200, "text/html", ""), Some(Missed::Size)),
            (page(200, "text/html", "a page and more"), Some(Missed::Size)),
            (page(200, "text/html", "a cage"), Some(Missed::Digest)),
        ] {
            assert_eq!(last("GET", first, 1_000, then), expected, "{then:?}");
        }
        // The body may show the time.
        assert_eq!(last("GET", first, 999, page(200, "text/html", "a cage")), None);
    }

    #[test]
    fn bodies_that_differ_from_the_start_are_compared_by_status_and_type_alone() {
        let of = |body: &str| page(200, "application/json", body);
        let counted: Vec<(u64, PageFacts)> =
            (8..30).map(|count| (count * 1_000, of(&count.to_string()))).collect();
        assert!(judged("GET", &counted).iter().all(Option::is_none));
        let mut ended = counted.clone();
        ended.extend([(40_000, of("")), (40_000, page(200, "text/html", "1")), (40_000, page(204, "", ""))]);
        let missed = judged("GET", &ended);
        assert_eq!(missed[22..], [Some(Missed::Size), Some(Missed::Kind), Some(Missed::Status)]);
    }

    #[test]
    fn rfc_9110_9_2_1_responses_to_methods_that_are_not_safe_may_differ() {
        let created = page(201, "application/json", "{}");
        assert_eq!(last("PUT", created, 2_000, page(204, "", "")), None);
        assert_eq!(last("POST", created, 2_000, page(302, "", "")), Some(Missed::Status));
    }
}
