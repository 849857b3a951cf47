//! Decides whether a stored response is sent, must be validated first, or cannot be used (RFC 9111 §4).

use crate::asked::CacheRequestFields;
use crate::policy::CachePolicy;
use crate::stored::{Stored, Traits};

/// The result of a lookup.
#[derive(Debug, Clone, Copy)]
pub enum LookUp<'a> {
    /// Nothing is stored for the URI.
    Nothing,
    /// Only other variants are stored, according to Vary.
    OtherVariants,
    Variant(&'a Stored),
}

/// The handling of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Serve(Freshness),
    /// Ask the origin to validate the stored response, if it has a validator (`Stored::has_validator`).
    Validate(Forward),
    /// Ask the origin, as if nothing were stored.
    Forward(Forward),
    /// Send 504: the client accepts only a stored response (`only-if-cached`, RFC 9111 §5.2.1.7).
    OnlyIfCached,
}

/// The freshness of a stored response that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    Fresh,
    /// The response is stale, which the client accepts (`max-stale`).
    StaleForClient,
    /// The response is stale, and must be validated once in the background (RFC 5861 §3).
    StaleWhileRevalidate,
}

/// Why a request is forwarded: the `fwd` of Cache-Status (RFC 9211 §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Forward {
    Bypass,
    /// The method requires it.
    Method,
    /// Nothing is stored for the URI.
    UriMiss,
    /// No stored variant matches.
    VaryMiss,
    /// The request's Cache-Control requires it.
    Request,
    /// The stored response is stale.
    Stale,
    /// Only a part is stored, and the request needs more.
    Partial,
}

impl Forward {
    pub const ALL: [Forward; 7] = [
        Self::Bypass,
        Self::Method,
        Self::UriMiss,
        Self::VaryMiss,
        Self::Request,
        Self::Stale,
        Self::Partial,
    ];

    /// The reason as a word (RFC 9211 §2.2).
    pub const fn word(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Request => "request",
            Self::Stale => "stale",
            Self::Partial => "partial",
        }
    }

    /// The reason in words for people.
    pub const fn what(self) -> &'static str {
        match self {
            Self::Bypass => "the request has a body, or asks for another protocol",
            Self::Method => "only GET and HEAD are answered from the cache",
            Self::UriMiss => "no response is stored for this URL",
            Self::VaryMiss => "the stored response is for other values of the request fields in its Vary",
            Self::Request => "the request's Cache-Control, Pragma or preconditions require the server",
            Self::Stale => "the stored response is no longer fresh",
            Self::Partial => "only a part of the response is stored, and the request asks for more",
        }
    }

    /// Advice for the owner of the origin or of the route, if there is any.
    pub const fn remedy(self) -> Option<&'static str> {
        match self {
            Self::VaryMiss => {
                Some("name in Vary only fields that the response depends on, with few values each")
            }
            Self::Request => Some(
                "set `cache.ignore = \"request-directives\"` for the route so that clients cannot decide this",
            ),
            Self::Stale => Some("send a longer max-age or s-maxage, or add stale-while-revalidate"),
            Self::Bypass | Self::Method | Self::UriMiss | Self::Partial => None,
        }
    }
}

/// Decides how to handle a request that a stored response may answer (`Asked::may_be_answered`).
///
/// Here a stored part counts as fresh or stale like a whole response. `ranges` decides whether it holds the requested
/// range.
#[inline]
pub fn decide(asked: &CacheRequestFields, found: LookUp<'_>, policy: &CachePolicy, now_ms: u64) -> Decision {
    let only_if_cached = asked.directives.only_if_cached && !policy.ignore.request_directives;
    let decision = match found {
        LookUp::Nothing => Decision::Forward(Forward::UriMiss),
        LookUp::OtherVariants => Decision::Forward(Forward::VaryMiss),
        LookUp::Variant(stored) => decide_stored(asked, stored, policy, now_ms),
    };
    match decision {
        Decision::Validate(_) | Decision::Forward(_) if only_if_cached => Decision::OnlyIfCached,
        decision => decision,
    }
}

#[inline]
fn decide_stored(asked: &CacheRequestFields, stored: &Stored, policy: &CachePolicy, now_ms: u64) -> Decision {
    let has_directives = asked.has_directives() && !policy.ignore.request_directives;
    match (stored.is_fresh(now_ms), has_directives) {
        // The usual hit: one comparison of times.
        (true, false) => Decision::Serve(Freshness::Fresh),
        (false, false) => decide_stale(stored, now_ms),
        (_, true) => decide_as_asked(asked, stored, now_ms),
    }
}

/// RFC 9111 §5.2.1: applies the client's directives.
#[cold]
fn decide_as_asked(asked: &CacheRequestFields, stored: &Stored, now_ms: u64) -> Decision {
    let directives = &asked.directives;
    if directives.no_store {
        // RFC 9111 §5.2.1.5 forbids only storing, but a client that sends no-store does not want a shared response.
        return Decision::Forward(Forward::Request);
    }
    let age_seconds = stored.age_seconds(now_ms);
    // RFC 9111 §5.2.1.1: not older than this, unless max-stale accepts staleness.
    // `max-age=0` is what browsers send on reload: it asks for validation even in the second of storing.
    let is_too_old = directives.max_age_seconds.is_some_and(|max| age_seconds > u64::from(max) || max == 0);
    // RFC 9111 §5.2.1.3.
    let min_fresh_ms = directives.min_fresh_seconds.map_or(0, |seconds| u64::from(seconds) * 1000);
    let is_fresh_enough = stored.is_fresh(now_ms.saturating_add(min_fresh_ms));
    // Before freshness: the client may ask for less than the response allows.
    if directives.no_cache || is_too_old {
        return Decision::Validate(Forward::Request);
    }
    if is_fresh_enough {
        return Decision::Serve(Freshness::Fresh);
    }
    // Fresh, but not for as long as the client wants.
    if stored.is_fresh(now_ms) {
        return Decision::Validate(Forward::Request);
    }
    // RFC 9111 §5.2.1.2, unless the response itself forbids it (§4.2.4).
    let takes_stale = directives
        .max_stale_seconds
        .is_some_and(|max| stored.staleness_ms(now_ms) <= u64::from(max).saturating_mul(1000));
    let may_be_stale = !stored.traits.has(Traits::VALIDATE_ALWAYS)
        && !stored.traits.has(Traits::NEVER_STALE)
        && !stored.traits.has(Traits::STALE_ONLY_IF_SAID);
    if takes_stale && may_be_stale {
        return Decision::Serve(Freshness::StaleForClient);
    }
    if directives.max_age_seconds.is_some() || directives.min_fresh_seconds.is_some() {
        // A client that requires a minimum freshness does not accept a stale response.
        return Decision::Validate(Forward::Stale);
    }
    decide_stale(stored, now_ms)
}

#[inline]
fn decide_stale(stored: &Stored, now_ms: u64) -> Decision {
    let allowed_ms = u64::from(stored.stale_while_revalidate_seconds) * 1000;
    // RFC 9111 §4.2.4: must-revalidate and no-cache override RFC 5861 §3.
    let is_forbidden = stored.traits.has(Traits::NEVER_STALE) || stored.traits.has(Traits::VALIDATE_ALWAYS);
    if !is_forbidden && stored.staleness_ms(now_ms) < allowed_ms {
        return Decision::Serve(Freshness::StaleWhileRevalidate);
    }
    Decision::Validate(Forward::Stale)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginError {
    /// There was no response.
    Unreachable,
    /// The origin responded with this error status.
    Status(u16),
}

impl OriginError {
    /// `None` unless the status counts as an error (RFC 5861 §4).
    pub fn of_status(status: u16) -> Option<OriginError> {
        matches!(status, 500 | 502..=504).then_some(OriginError::Status(status))
    }
}

/// Whether a stale response may be sent because the origin fails (RFC 5861 §4, RFC 9111 §4.2.4).
pub fn serves_on_error(
    asked: &CacheRequestFields,
    stored: &Stored,
    error: OriginError,
    policy: &CachePolicy,
    now_ms: u64,
) -> bool {
    let is_asked_anew = !policy.ignore.request_directives
        && (asked.directives.no_cache
            || asked.directives.no_store
            || asked.directives.max_age_seconds == Some(0));
    if stored.traits.has(Traits::NEVER_STALE) || stored.traits.has(Traits::VALIDATE_ALWAYS) || is_asked_anew {
        return false;
    }
    let staleness_ms = stored.staleness_ms(now_ms);
    let said_ms = u64::from(stored.stale_if_error_seconds) * 1000;
    // RFC 9111 §4.2.4: a cache that cannot reach the origin may serve stale responses; s-maxage forbids it (§5.2.2.10).
    let is_down = matches!(error, OriginError::Unreachable | OriginError::Status(502..=504));
    let grace_ms =
        if is_down && !stored.traits.has(Traits::STALE_ONLY_IF_SAID) { policy.grace_ms } else { 0 };
    staleness_ms < said_ms.max(grace_ms)
}
