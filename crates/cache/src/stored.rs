//! What is known of a stored response, computed once so that a hit costs a comparison.
//!
//! The response's head is kept as text, without what belongs to a hop or is said anew each time (`head_to_store`), and its
//! body elsewhere: this is only what decisions need.

use http1::Span;

use crate::ranges::Part;

/// What is known of a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Its status; 200 for a part of a representation, which came with 206.
    pub status: u16,
    pub(crate) traits: Traits,
    /// How long it may be used stale while it is revalidated.
    pub(crate) stale_while_revalidate_seconds: u32,
    /// How long it may be used stale when the origin answers with an error.
    pub(crate) stale_if_error_seconds: u32,
    /// Its entity tag as sent, in the stored head; empty without one.
    pub(crate) etag: Span,
    /// Its Last-Modified as sent, in the stored head; empty without a valid one.
    pub(crate) last_modified: Span,
    /// The same as a number, where there is one.
    pub(crate) last_modified_unix_seconds: u64,
    /// Its Date.
    pub(crate) date_unix_seconds: u64,
    /// When it was received, or last found to be still valid.
    pub received_ms: u64,
    /// When it was made at the origin, as well as can be told: its age counts from here (RFC 9111 §4.2.3).
    pub(crate) made_ms: u64,
    /// When it is no longer fresh.
    pub(crate) fresh_until_ms: u64,
    /// Which part of its representation is stored; `None` for the whole.
    pub part: Option<Part>,
}

/// What a stored response has said of itself, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Traits(u8);

impl Traits {
    /// Not to be used without validation: `no-cache`, or invalidated by an unsafe request.
    pub(crate) const VALIDATE_ALWAYS: Traits = Traits(1);
    /// Never to be used stale: `must-revalidate`, `proxy-revalidate`.
    pub(crate) const NEVER_STALE: Traits = Traits(2);
    /// `s-maxage`, which forbids what only this cache or a client would allow.
    pub(crate) const STALE_ONLY_IF_SAID: Traits = Traits(4);
    /// Its freshness is a guess from its Last-Modified.
    pub(crate) const HEURISTIC: Traits = Traits(8);

    pub(crate) fn with(self, traits: Traits, is_so: bool) -> Traits {
        if is_so { Traits(self.0 | traits.0) } else { self }
    }

    pub(crate) fn as_u8(self) -> u8 {
        self.0
    }

    pub(crate) fn from_u8(bits: u8) -> Self {
        Self(bits)
    }

    #[inline]
    pub(crate) fn has(self, traits: Traits) -> bool {
        self.0 & traits.0 != 0
    }
}

/// When an exchange with the origin was (RFC 9111 §4.2.3), in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// When the request was sent.
    pub requested_ms: u64,
    /// When the response's head was received.
    pub received_ms: u64,
}

/// How far behind a caller's clock may be that is set only now and then.
const CLOCK_LAG_MS: u64 = 100;

impl Stored {
    /// How old it is, for the Age field (RFC 9111 §4.2.3); rather a little too old than too young.
    #[inline]
    pub fn age_seconds(&self, now_ms: u64) -> u64 {
        now_ms.saturating_add(CLOCK_LAG_MS).saturating_sub(self.made_ms) / 1000
    }

    /// How long it stays fresh, in seconds; negative where it is stale: the `ttl` of Cache-Status (RFC 9211 §2.5).
    pub fn ttl_seconds(&self, now_ms: u64) -> i64 {
        let difference = i128::from(self.fresh_until_ms) - i128::from(now_ms);
        difference.div_euclid(1000).clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// Whether it is fresh, by what is stored of it alone. To a clock that lags behind the one by which it was received, what
    /// is never fresh is not so either.
    #[inline]
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        now_ms.max(self.received_ms) < self.fresh_until_ms && !self.traits.has(Traits::VALIDATE_ALWAYS)
    }

    /// How long ago it ceased to be fresh (RFC 9111 §4.2.4).
    #[inline]
    pub(crate) fn staleness_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.fresh_until_ms)
    }

    /// Whether its freshness is a guess from its Last-Modified (RFC 9111 §4.2.2).
    pub fn is_heuristic(&self) -> bool {
        self.traits.has(Traits::HEURISTIC)
    }

    /// Its entity tag, as it was sent.
    pub fn etag<'a>(&self, head: &'a [u8]) -> Option<&'a [u8]> {
        Some(self.etag.of(head)).filter(|etag| !etag.is_empty())
    }

    /// Its Last-Modified, as it was sent.
    pub fn last_modified<'a>(&self, head: &'a [u8]) -> Option<&'a [u8]> {
        Some(self.last_modified.of(head)).filter(|date| !date.is_empty())
    }

    /// Whether the origin can be asked if it is still valid (RFC 9111 §4.3.1).
    pub fn has_validator(&self) -> bool {
        self.etag.end > self.etag.start || self.last_modified.end > self.last_modified.start
    }

    /// What tells its representation from every other, byte by byte (RFC 9110 §8.8.1).
    pub fn strong_validator<'a>(&self, head: &'a [u8]) -> Option<&'a [u8]> {
        if let Some(etag) = self.etag(head) {
            return Some(etag).filter(|etag| !etag.starts_with(b"W/"));
        }
        // RFC 9110 §8.8.2.2: a date is strong if it is clearly before that of the response.
        let is_strong = self.last_modified_unix_seconds.saturating_add(60) <= self.date_unix_seconds;
        self.last_modified(head).filter(|_| is_strong)
    }

    /// Makes it stale as of now: what a soft purge does. It may still be used where stale responses may.
    pub fn make_stale(&mut self, now_ms: u64) {
        self.fresh_until_ms = self.fresh_until_ms.min(now_ms);
    }

    /// Forbids its use without validation, as an unsafe request to its URI does (RFC 9111 §4.4).
    pub fn invalidate(&mut self) {
        self.traits = self.traits.with(Traits::VALIDATE_ALWAYS, true);
    }
}
