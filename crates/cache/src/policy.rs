//! Cache options of a route, beyond the rules of RFC 9111.
//!
//! The defaults are the RFC's, and safe: no response is stored that could be meant for a single client. Size and place
//! of the store are configured elsewhere.

use std::borrow::Cow;

use crate::labels::names_tags;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachePolicy {
    /// Overrides the freshness lifetime of every storable response. A status that is not cacheable by default still has
    /// to allow storing (RFC 9111 §3).
    pub ttl_ms: Option<u64>,
    /// The freshness lifetime of responses that state none, if the status is heuristically cacheable. `None` means
    /// heuristic freshness.
    pub default_ttl_ms: Option<u64>,
    /// Overrides lifetimes by status. The first match applies, and overrides `ttl_ms`.
    pub status_ttl: Vec<StatusTtl>,
    /// Rules of RFC 9111 that are ignored.
    pub ignore: Ignore,
    /// Whether to store responses with `private`, `no-store` or `no-cache`, and responses to requests with
    /// Authorization.
    pub force: bool,
    /// How long a stale response is used while the origin is down or fails.
    pub grace_ms: u64,
    /// How long a stale response may be used during revalidation in the background, if its headers do not say.
    pub stale_while_revalidate_ms: u64,
    /// For responses that have only Last-Modified.
    pub heuristic: Heuristic,
    pub key: KeyOptions,
    /// Whether Accept-Encoding is normalised before Vary is applied to it.
    pub normalises_accept_encoding: bool,
    /// The response to the last of so many requests is the first that is stored. At least 1.
    pub min_uses: u8,
    /// Whether Cache-Status shows the key to clients.
    pub shows_key: bool,
    /// Whether clients get Surrogate-Key and Cache-Tag.
    pub sends_tags: bool,
    /// The fields that this cache obeys in place of Cache-Control; the first valid one counts (RFC 9213 §2.2).
    pub targets: Vec<TargetedField>,
}

/// A response field with directives for some caches only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetedField {
    /// In lower case. All fields but the two below with their own grammar are Dictionaries (RFC 9213 §2.1).
    pub name: Cow<'static, str>,
    /// Whether clients get the field, for caches in front of this one.
    pub is_sent: bool,
}

/// The targeted fields that are obeyed by default, the most specific first.
pub const TARGETS: [TargetedField; 2] = [
    // Edge Architecture Specification: for the surrogate next to the server.
    TargetedField { name: Cow::Borrowed(SURROGATE_CONTROL), is_sent: false },
    // RFC 9213 §3.1: caches typically forward it to others downstream.
    TargetedField { name: Cow::Borrowed("cdn-cache-control"), is_sent: true },
];

/// A targeted field with its own grammar: that of `Cache-Control`, with device tokens.
pub const SURROGATE_CONTROL: &str = "surrogate-control";
/// A targeted field with its own grammar: a lifetime, as nginx reads it.
pub const ACCEL_EXPIRES: &str = "x-accel-expires";

impl Default for CachePolicy {
    fn default() -> Self {
        Self {
            ttl_ms: None,
            default_ttl_ms: None,
            status_ttl: Vec::new(),
            ignore: Ignore::default(),
            force: false,
            grace_ms: 0,
            stale_while_revalidate_ms: 0,
            heuristic: Heuristic::default(),
            key: KeyOptions::default(),
            // Otherwise each browser's spelling would be a variant.
            normalises_accept_encoding: true,
            min_uses: 1,
            shows_key: false,
            sends_tags: false,
            targets: TARGETS.to_vec(),
        }
    }
}

/// The freshness lifetime of responses with some statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusTtl {
    pub first: u16,
    /// Inclusive.
    pub last: u16,
    /// With zero, these responses are not stored.
    pub ttl_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ignore {
    /// Ignores Cache-Control and Pragma of requests: clients cannot force a request to the origin.
    pub request_directives: bool,
    /// Ignores Cache-Control, targeted fields, Expires and Pragma of responses: only the route's lifetimes apply.
    pub response_directives: bool,
    /// Ignores Vary except for Accept-Encoding: there is one variant for all. Responses that differ by client are mixed
    /// up unless `key` distinguishes them. Responses to a cookie or an Authorization that Vary names are not stored.
    pub vary: bool,
    /// Ignores Origin in Vary: the fields that depend on it are written for each request (CORS).
    pub origin: bool,
    /// Stores responses without their Set-Cookie, instead of not at all.
    pub set_cookie: bool,
}

/// Heuristic freshness (RFC 9111 §4.2.2): a share of the time since Last-Modified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heuristic {
    /// Zero turns the heuristic off.
    pub percent: u32,
    /// The longest heuristic lifetime.
    pub longest_ms: u64,
}

impl Default for Heuristic {
    fn default() -> Self {
        // RFC 9111 §4.2.2 names ten percent as a typical setting.
        Self { percent: 10, longest_ms: 24 * 60 * 60 * 1000 }
    }
}

/// Parts of the cache key besides scheme, host and path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyOptions {
    pub query: KeyQuery,
    /// Whether query parameters are sorted by name, so that their order does not matter.
    pub sorts_query: bool,
    /// Cookies whose values are part of the key. Names are case-sensitive.
    pub cookies: Vec<Box<[u8]>>,
    /// Request fields whose values are part of the key, in lower case.
    pub headers: Vec<Box<[u8]>>,
    /// Names of values that are part of the key. The caller computes them.
    pub values: Vec<Box<str>>,
    pub ignores_host: bool,
    pub ignores_scheme: bool,
}

impl KeyOptions {
    /// Whether anything of the query is left out of the key, even if only the order.
    #[inline]
    pub fn leaves_out(&self) -> bool {
        self.query != KeyQuery::Whole || self.sorts_query
    }

    /// Whether the key consists only of the URI.
    pub(crate) fn is_uri_alone(&self) -> bool {
        self.cookies.is_empty() && self.headers.is_empty() && self.values.is_empty()
    }
}

/// The query parameters in the cache key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum KeyQuery {
    #[default]
    Whole,
    None,
    /// Only parameters with these names.
    Keep(Vec<Parameter>),
    /// All parameters except those with these names.
    Drop(Vec<Parameter>),
}

/// A name, or a prefix of names, of query parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parameter {
    Named(Box<[u8]>),
    /// A prefix, written as `utm_*`.
    Beginning(Box<[u8]>),
}

impl Parameter {
    /// Parses a name, or a prefix followed by `*`.
    pub fn from_written(written: &str) -> Self {
        match written.strip_suffix('*') {
            Some(beginning) => Self::Beginning(beginning.as_bytes().into()),
            None => Self::Named(written.as_bytes().into()),
        }
    }

    /// Whether a parameter with this name matches.
    pub fn is(&self, name: &[u8]) -> bool {
        match self {
            Self::Named(named) => name == &**named,
            Self::Beginning(beginning) => name.starts_with(beginning),
        }
    }
}

impl CachePolicy {
    /// Whether any field may be hidden from clients.
    pub fn hides_any(&self) -> bool {
        !self.sends_tags || self.targets.iter().any(|target| !target.is_sent)
    }

    /// Whether a response field is only for this cache: tags, and targeted fields that are not sent.
    pub fn hides(&self, name: &[u8]) -> bool {
        let is_hidden =
            |target: &TargetedField| !target.is_sent && target.name.as_bytes().eq_ignore_ascii_case(name);
        (!self.sends_tags && names_tags(name)) || self.targets.iter().any(is_hidden)
    }

    /// The freshness lifetime that the route sets for this status, if any.
    pub fn status_ttl_ms(&self, status: u16) -> Option<u64> {
        let of_status = self.status_ttl.iter().find(|row| (row.first..=row.last).contains(&status));
        of_status.map(|row| row.ttl_ms)
    }
}
