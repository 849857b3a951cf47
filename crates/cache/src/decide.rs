//! Whether a stored response answers a request, has to be validated first, or does not help (RFC 9111 §4).

use crate::asked::Asked;
use crate::policy::Policy;
use crate::stored::{Stored, Traits};

/// What a look-up found.
#[derive(Debug, Clone, Copy)]
pub enum Found<'a> {
    /// Nothing of this URI.
    Nothing,
    /// Only variants that Vary tells apart from what is asked for.
    OtherVariants,
    /// A variant that fits.
    Variant(&'a Stored),
}

/// What is to be done with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The stored response answers.
    Serve(Freshness),
    /// The origin is asked whether the stored response is still valid, if it has a validator; see `Stored::has_validator`.
    Validate(Forward),
    /// The origin is asked, as if nothing were stored.
    Forward(Forward),
    /// 504: the client wants nothing but what is stored (RFC 9111 §5.2.1.7).
    OnlyIfCached,
}

/// How fresh a response is that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// It is fresh.
    Fresh,
    /// It is stale, which the client said is fine.
    StaleForClient,
    /// It is stale, and is to be validated in the background, once (RFC 5861 §3).
    StaleWhileRevalidate,
}

/// Why the origin is asked: the `fwd` of Cache-Status (RFC 9211 §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Forward {
    /// The cache was not to be used.
    Bypass,
    /// The method asks for it.
    Method,
    /// Nothing of this URI is stored.
    UriMiss,
    /// No variant fits.
    VaryMiss,
    /// The request's Cache-Control asks for it.
    Request,
    /// What is stored is stale.
    Stale,
    /// What is stored is a part, and more is asked for.
    Partial,
}

impl Forward {
    /// Every reason.
    pub const ALL: [Forward; 7] = [
        Self::Bypass,
        Self::Method,
        Self::UriMiss,
        Self::VaryMiss,
        Self::Request,
        Self::Stale,
        Self::Partial,
    ];

    /// The word of RFC 9211 §2.2.
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

    /// What was in the way of a hit.
    pub const fn what(self) -> &'static str {
        match self {
            Self::Bypass => "the request has a body, or asks for another protocol",
            Self::Method => "only GET and HEAD are answered from what is stored",
            Self::UriMiss => "nothing of this URL is stored",
            Self::VaryMiss => "what is stored is for other values of the fields that its Vary names",
            Self::Request => "the request's Cache-Control, Pragma or preconditions ask for the server",
            Self::Stale => "what is stored is no longer fresh",
            Self::Partial => "only a part is stored, and more is asked for",
        }
    }

    /// What the origin's owner, or that of the route, can do about it, where something can be done.
    pub const fn remedy(self) -> Option<&'static str> {
        match self {
            Self::VaryMiss => {
                Some("name in Vary only fields that the response depends on, with few values each")
            }
            Self::Request => {
                Some("set `cache.ignore = \"request-directives\"` for the route if clients are not to decide")
            }
            Self::Stale => Some("send a greater max-age or s-maxage, or stale-while-revalidate beside it"),
            Self::Bypass | Self::Method | Self::UriMiss | Self::Partial => None,
        }
    }
}

/// Decides about a request that a stored response may answer (`Asked::may_be_answered`).
///
/// Whether a stored part holds what is asked for is for `ranges` to say; here it counts as fresh or stale like a whole.
#[inline]
pub fn decide(asked: &Asked, found: Found<'_>, policy: &Policy, now_ms: u64) -> Decision {
    let only_if_cached = asked.directives.only_if_cached && !policy.ignore.request_directives;
    let decision = match found {
        Found::Nothing => Decision::Forward(Forward::UriMiss),
        Found::OtherVariants => Decision::Forward(Forward::VaryMiss),
        Found::Variant(stored) => decide_stored(asked, stored, policy, now_ms),
    };
    match decision {
        Decision::Validate(_) | Decision::Forward(_) if only_if_cached => Decision::OnlyIfCached,
        decision => decision,
    }
}

#[inline]
fn decide_stored(asked: &Asked, stored: &Stored, policy: &Policy, now_ms: u64) -> Decision {
    let has_directives = asked.has_directives() && !policy.ignore.request_directives;
    match (stored.is_fresh(now_ms), has_directives) {
        (true, false) => Decision::Serve(Freshness::Fresh),
        (false, false) => decide_stale(stored, now_ms),
        (_, true) => decide_as_asked(asked, stored, now_ms),
    }
}

/// RFC 9111 §5.2.1: what the client said of what it takes.
#[cold]
fn decide_as_asked(asked: &Asked, stored: &Stored, now_ms: u64) -> Decision {
    let directives = &asked.directives;
    if directives.no_store {
        // RFC 9111 §5.2.1.5 forbids only storing, but whoever says so does not want what others were sent.
        return Decision::Forward(Forward::Request);
    }
    let age_seconds = stored.age_seconds(now_ms);
    // RFC 9111 §5.2.1.1: not older than this, unless max-stale says that staleness is fine.
    let is_too_old = directives.max_age_seconds.is_some_and(|max| age_seconds > u64::from(max) || max == 0);
    // RFC 9111 §5.2.1.3.
    let min_fresh_ms = directives.min_fresh_seconds.map_or(0, |seconds| u64::from(seconds) * 1000);
    let is_fresh_enough = stored.is_fresh(now_ms.saturating_add(min_fresh_ms));
    if directives.no_cache || is_too_old {
        return Decision::Validate(Forward::Request);
    }
    if is_fresh_enough {
        return Decision::Serve(Freshness::Fresh);
    }
    if stored.is_fresh(now_ms) {
        return Decision::Validate(Forward::Request);
    }
    // RFC 9111 §5.2.1.2, against what the response itself forbids (§4.2.4).
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
        // Who says how fresh it is to be does not take what is stale.
        return Decision::Validate(Forward::Stale);
    }
    decide_stale(stored, now_ms)
}

#[inline]
fn decide_stale(stored: &Stored, now_ms: u64) -> Decision {
    let allowed_ms = u64::from(stored.stale_while_revalidate_seconds) * 1000;
    // RFC 9111 §4.2.4: must-revalidate and no-cache go before RFC 5861 §3.
    let is_forbidden = stored.traits.has(Traits::NEVER_STALE) || stored.traits.has(Traits::VALIDATE_ALWAYS);
    if !is_forbidden && stored.staleness_ms(now_ms) < allowed_ms {
        return Decision::Serve(Freshness::StaleWhileRevalidate);
    }
    Decision::Validate(Forward::Stale)
}

/// How asking the origin went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginError {
    /// There was no response.
    Unreachable,
    /// It answered with this status.
    Status(u16),
}

impl OriginError {
    /// RFC 5861 §4: the statuses that count as an error.
    pub fn of_status(status: u16) -> Option<OriginError> {
        matches!(status, 500 | 502..=504).then_some(OriginError::Status(status))
    }
}

/// Whether a stored response that is not fresh answers all the same, because the origin fails (RFC 5861 §4, RFC 9111
/// §4.2.4).
pub fn serves_on_error(
    asked: &Asked,
    stored: &Stored,
    error: OriginError,
    policy: &Policy,
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
    // RFC 9111 §4.2.4: a cache that cannot reach the origin may serve what is stale; s-maxage forbids it (§5.2.2.10).
    let is_down = matches!(error, OriginError::Unreachable | OriginError::Status(502..=504));
    let grace_ms =
        if is_down && !stored.traits.has(Traits::STALE_ONLY_IF_SAID) { policy.grace_ms } else { 0 };
    staleness_ms < said_ms.max(grace_ms)
}
