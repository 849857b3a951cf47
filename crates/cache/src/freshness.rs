//! Age and freshness lifetime of a response when it arrives (RFC 9111 §4.2).

use http1::{Name, ResponseHead};

use crate::directives::{DirectiveSource, ResponseDirectives, delta_seconds};
use crate::fields::{date_unix_seconds, value};
use crate::policy::CachePolicy;
use crate::stored::StoredTimes;

/// When a response was generated, and until when it is fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(crate) date_unix_seconds: u64,
    pub(crate) made_ms: u64,
    pub(crate) fresh_until_ms: u64,
    pub(crate) origin: LifetimeSource,
}

/// The source of a freshness lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LifetimeSource {
    /// The route's settings, which override the response.
    Route,
    /// The response itself.
    Explicit,
    /// Heuristic, from Last-Modified.
    Heuristic,
    /// The response counts as stale.
    Unknown,
}

/// Determines age and freshness of a response with this status as it arrives.
pub(crate) fn judge(
    head: &ResponseHead,
    bytes: &[u8],
    status: u16,
    directives: &ResponseDirectives,
    times: StoredTimes,
    policy: &CachePolicy,
) -> Lifetime {
    let received_seconds = times.received_ms / 1000;
    // RFC 9110 §6.6.1: without a valid Date, the time of receipt replaces it.
    let date_unix_seconds =
        head.value(bytes, Name::Date).and_then(date_unix_seconds).unwrap_or(received_seconds);
    let age_ms = initial_age_ms(head, bytes, times, date_unix_seconds);
    let made_ms = times.received_ms.saturating_sub(age_ms);
    // Not from `made_ms`, which ends at 1970.
    let fresh_for = |lifetime_ms| times.received_ms.saturating_add(lifetime_ms).saturating_sub(age_ms);
    let lifetime = |origin, fresh_until_ms| Lifetime { date_unix_seconds, made_ms, fresh_until_ms, origin };

    let obeys = !policy.ignore.response_directives;
    let explicit_ms = if obeys { explicit_ms(head, bytes, directives, date_unix_seconds) } else { None };
    // RFC 9111 §3: an error or redirect without explicit freshness is not stored, unless the route sets a lifetime for
    // its status.
    let may_be_stored =
        is_heuristically_cacheable(status) || (obeys && directives.public) || explicit_ms.is_some();
    // By status first: it is the more specific option, and may also make an error storable.
    let of_caller = times.ttl_ms.or_else(|| policy.status_ttl_ms(status));
    let set_ms = of_caller.or(policy.ttl_ms.filter(|_| may_be_stored));
    if let Some(ttl_ms) = set_ms {
        return lifetime(LifetimeSource::Route, times.received_ms.saturating_add(ttl_ms));
    }
    // A route's default applies only to responses that state no lifetime.
    if let Some(explicit_ms) = explicit_ms {
        return lifetime(LifetimeSource::Explicit, fresh_for(explicit_ms));
    }
    if let Some(default_ms) = policy.default_ttl_ms.filter(|_| may_be_stored) {
        return lifetime(LifetimeSource::Route, times.received_ms.saturating_add(default_ms));
    }
    if let Some(guess_ms) = heuristic_ms(head, bytes, status, directives, date_unix_seconds, policy) {
        return lifetime(LifetimeSource::Heuristic, fresh_for(guess_ms));
    }
    lifetime(LifetimeSource::Unknown, fresh_for(0))
}

/// RFC 9111 §4.2.3: `corrected_initial_age`.
fn initial_age_ms(head: &ResponseHead, bytes: &[u8], times: StoredTimes, date_unix_seconds: u64) -> u64 {
    // Date has whole seconds, so a difference below one second is no age.
    let apparent_ms = (times.received_ms / 1000).saturating_sub(date_unix_seconds) * 1000;
    // RFC 9111 §5.1: the first of several values counts; an invalid one is ignored.
    let age = value(head, bytes, b"age").and_then(|text| text.split(|&byte| byte == b',').next());
    let age_seconds = age.and_then(|text| delta_seconds(text.trim_ascii())).unwrap_or(0);
    let delay_ms = times.received_ms.saturating_sub(times.requested_ms);
    // The larger of both: Age may be missing, and clocks may differ.
    apparent_ms.max((u64::from(age_seconds) * 1000).saturating_add(delay_ms))
}

/// RFC 9111 §4.2.1: the explicit lifetime, from the first field that has precedence.
fn explicit_ms(
    head: &ResponseHead,
    bytes: &[u8],
    directives: &ResponseDirectives,
    date_unix_seconds: u64,
) -> Option<u64> {
    // RFC 9111 §5.2.2.10: s-maxage overrides max-age and Expires for a shared cache.
    if let Some(seconds) = directives.s_maxage_seconds.or(directives.max_age_seconds) {
        return Some(u64::from(seconds) * 1000);
    }
    if let Some(until_seconds) = directives.fresh_until_unix_seconds {
        return Some(until_seconds.saturating_sub(date_unix_seconds).saturating_mul(1000));
    }
    // RFC 9213 §2.2: Expires is for other caches then.
    if directives.source == DirectiveSource::Targeted {
        return None;
    }
    // RFC 9111 §5.3: an invalid date, usually `0`, is in the past.
    let expires = value(head, bytes, b"expires")?;
    let expires_seconds = self::date_unix_seconds(expires).unwrap_or(0);
    Some(expires_seconds.saturating_sub(date_unix_seconds) * 1000)
}

/// RFC 9111 §4.2.2.
fn heuristic_ms(
    head: &ResponseHead,
    bytes: &[u8],
    status: u16,
    directives: &ResponseDirectives,
    date_unix_seconds: u64,
    policy: &CachePolicy,
) -> Option<u64> {
    if !is_heuristically_cacheable(status) && !directives.public {
        return None;
    }
    let modified = self::date_unix_seconds(value(head, bytes, b"last-modified")?)?;
    let unchanged_ms = date_unix_seconds.saturating_sub(modified).saturating_mul(1000);
    // A page that has not changed for long is likely to stay so.
    let guess_ms = (unchanged_ms / 100).saturating_mul(u64::from(policy.heuristic.percent));
    Some(guess_ms.min(policy.heuristic.longest_ms)).filter(|&guess_ms| guess_ms > 0)
}

/// Whether responses with this status are heuristically cacheable (RFC 9110 §15.1). A part is stored with status 200.
pub(crate) fn is_heuristically_cacheable(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}
