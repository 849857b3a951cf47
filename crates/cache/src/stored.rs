//! Metadata of a stored response, computed once so that a hit only compares.
//!
//! The stored head is text, without hop-by-hop fields and fields that are generated for each message (`admit`); the
//! body is elsewhere.

use http1::ByteSpan;

use crate::ranges::StoredPart;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// 200 for a part, which arrived with 206.
    pub status: u16,
    pub(crate) traits: Traits,
    /// How long the response may be used stale during revalidation.
    pub(crate) stale_while_revalidate_seconds: u32,
    /// How long the response may be used stale while the origin fails.
    pub(crate) stale_if_error_seconds: u32,
    /// The entity tag as sent, as a range of the stored head; empty if there is none.
    pub(crate) etag: ByteSpan,
    /// Last-Modified as sent, as a range of the stored head; empty if there is no valid one.
    pub(crate) last_modified: ByteSpan,
    /// In seconds since 1970; 0 without Last-Modified.
    pub(crate) last_modified_unix_seconds: u64,
    /// In seconds since 1970.
    pub(crate) date_unix_seconds: u64,
    /// When the response was received, or last validated.
    pub received_ms: u64,
    /// The estimated time of generation at the origin, from which its age counts (RFC 9111 §4.2.3).
    pub(crate) made_ms: u64,
    /// When the response becomes stale.
    pub(crate) fresh_until_ms: u64,
    /// The range that is stored; `None` for the whole representation.
    pub part: Option<StoredPart>,
}

/// Properties of a stored response, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Traits(u8);

impl Traits {
    /// Must be validated before each use: `no-cache`, or invalidated by an unsafe request.
    pub(crate) const VALIDATE_ALWAYS: Traits = Traits(1);
    /// Must never be used stale: `must-revalidate`, `proxy-revalidate`.
    pub(crate) const NEVER_STALE: Traits = Traits(2);
    /// `s-maxage`: may be used stale only if the response itself allows it, not because of options or the client.
    pub(crate) const STALE_ONLY_IF_SAID: Traits = Traits(4);
    /// The freshness lifetime is heuristic, from Last-Modified.
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

/// The times of an exchange with the origin (RFC 9111 §4.2.3), in milliseconds since 1970, and a lifetime in
/// milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredTimes {
    /// When the request was sent.
    pub requested_ms: u64,
    /// When the head of the response was received.
    pub received_ms: u64,
    /// The lifetime that the caller sets for this response. Overrides that of the policy.
    pub ttl_ms: Option<u64>,
}

/// How much a caller's coarse clock may lag.
// A worker's clock may be a tick old, a tenth of a second.
const CLOCK_LAG_MS: u64 = 100;

impl Stored {
    /// The age, for the Age field (RFC 9111 §4.2.3). Rounded so that it is rather too high than too low.
    #[inline]
    pub fn age_seconds(&self, now_ms: u64) -> u64 {
        now_ms.saturating_add(CLOCK_LAG_MS).saturating_sub(self.made_ms) / 1000
    }

    /// The remaining freshness lifetime; negative if the response is stale. Used as `ttl` of Cache-Status (RFC 9211
    /// §2.5).
    pub fn ttl_seconds(&self, now_ms: u64) -> i64 {
        let difference = i128::from(self.fresh_until_ms) - i128::from(now_ms);
        difference.div_euclid(1000).clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// Whether the response is fresh, judged only by the stored metadata. A response that is never fresh stays so,
    /// even if the clock lags behind the one used on receipt.
    #[inline]
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        // RFC 9111 §4: a response that is stale on arrival must not answer another request, whichever worker asks.
        now_ms.max(self.received_ms) < self.fresh_until_ms && !self.traits.has(Traits::VALIDATE_ALWAYS)
    }

    /// How long the response has been stale (RFC 9111 §4.2.4).
    #[inline]
    pub(crate) fn staleness_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.fresh_until_ms)
    }

    /// Whether the freshness lifetime is heuristic, from Last-Modified (RFC 9111 §4.2.2).
    pub fn is_heuristic(&self) -> bool {
        self.traits.has(Traits::HEURISTIC)
    }

    /// The entity tag as sent.
    pub fn etag<'a>(&self, head: &'a [u8]) -> Option<&'a [u8]> {
        Some(self.etag.for_bytes(head)).filter(|etag| !etag.is_empty())
    }

    /// Last-Modified as sent.
    pub fn last_modified<'a>(&self, head: &'a [u8]) -> Option<&'a [u8]> {
        Some(self.last_modified.for_bytes(head)).filter(|date| !date.is_empty())
    }

    /// Whether the response can be validated (RFC 9111 §4.3.1).
    pub fn has_validator(&self) -> bool {
        self.etag.end > self.etag.start || self.last_modified.end > self.last_modified.start
    }

    /// The strong validator, which identifies the representation byte by byte (RFC 9110 §8.8.1).
    pub fn strong_validator<'a>(&self, head: &'a [u8]) -> Option<&'a [u8]> {
        if let Some(etag) = self.etag(head) {
            return Some(etag).filter(|etag| !etag.starts_with(b"W/"));
        }
        // RFC 9110 §8.8.2.2: a date is strong if it is clearly before that of the response.
        // A minute, because a file may change twice within a second, and clocks may differ.
        let is_strong = self.last_modified_unix_seconds.saturating_add(60) <= self.date_unix_seconds;
        self.last_modified(head).filter(|_| is_strong)
    }

    /// Makes the response stale from now on, as a soft purge does. It may still be used where stale responses may.
    pub fn make_stale(&mut self, now_ms: u64) {
        // Never later: a response that was stale before stays stale since then.
        self.fresh_until_ms = self.fresh_until_ms.min(now_ms);
    }

    /// Shortens the freshness lifetime, and forbids stale use during revalidation.
    pub fn keep_until(&mut self, until_ms: u64) {
        self.fresh_until_ms = self.fresh_until_ms.min(until_ms);
        self.stale_while_revalidate_seconds = 0;
    }

    /// Requires validation before each use, as after an unsafe request to the URI (RFC 9111 §4.4).
    pub fn invalidate(&mut self) {
        self.traits = self.traits.with(Traits::VALIDATE_ALWAYS, true);
    }
}
