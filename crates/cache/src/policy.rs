//! What a route's owner wants of the cache, beyond what RFC 9111 says.
//!
//! The defaults are the RFC's, and safe: nothing is stored that could be meant for one client alone. How large the store is,
//! and where, is not for here.

/// A route's options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Every response that may be stored is fresh for so long, whatever it says (RFC 9111 §3: a status that is not cacheable by
    /// default has to say so).
    pub ttl_ms: Option<u64>,
    /// A response that says nothing of its freshness is fresh for so long, if it may be stored without a word about it; `None`
    /// leaves it to the heuristic.
    pub default_ttl_ms: Option<u64>,
    /// How long responses of some statuses are fresh, whatever they say; the first that fits counts, and goes before `ttl_ms`.
    pub status_ttl: Vec<StatusTtl>,
    /// What of the RFC is left aside.
    pub ignore: Ignore,
    /// Whether responses are stored that say `private`, `no-store` or `no-cache`, or answer an Authorization.
    pub force: bool,
    /// How long a response that is no longer fresh is served while the origin is down or fails.
    pub grace_ms: u64,
    /// For how long a stale response may be served while it is revalidated in the background, if it does not say itself.
    pub stale_while_revalidate_ms: u64,
    /// How fresh a response is that says nothing but Last-Modified.
    pub heuristic: Heuristic,
    /// What tells one stored response from another.
    pub key: KeyOptions,
    /// Whether Accept-Encoding is brought to one of few forms before variants are told apart by it.
    pub normalises_accept_encoding: bool,
    /// Whether clients are told what responses are found by, in Cache-Status.
    pub shows_key: bool,
    /// Whether clients are sent Surrogate-Key and Cache-Tag.
    pub sends_tags: bool,
}

impl Default for Policy {
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
            normalises_accept_encoding: true,
            shows_key: false,
            sends_tags: false,
        }
    }
}

/// How long responses of some statuses are fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusTtl {
    /// The lowest status.
    pub first: u16,
    /// The highest.
    pub last: u16,
    /// How long; zero stores none of them.
    pub ttl_ms: u64,
}

/// What of the RFC is left aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ignore {
    /// Cache-Control and Pragma of requests: clients cannot make the origin be asked.
    pub request_directives: bool,
    /// Cache-Control, CDN-Cache-Control, Expires and Pragma of responses: only the route's own times count.
    pub response_directives: bool,
    /// Vary of responses but for Accept-Encoding: one variant for all. What differs by client will be mixed up, unless `key`
    /// tells it apart; what came for a cookie or an Authorization that Vary names is not stored.
    pub vary: bool,
    /// Set-Cookie of responses: they are stored without it.
    pub set_cookie: bool,
}

/// RFC 9111 §4.2.2: what is said of nothing but Last-Modified is fresh for a part of its age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heuristic {
    /// The part, in percent; zero turns it off.
    pub percent: u32,
    /// And never longer than this.
    pub longest_ms: u64,
}

impl Default for Heuristic {
    fn default() -> Self {
        // RFC 9111 §4.2.2 names ten percent as a typical setting.
        Self { percent: 10, longest_ms: 24 * 60 * 60 * 1000 }
    }
}

/// What tells one stored response from another, besides scheme, host and path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyOptions {
    /// What of the query counts.
    pub query: Query,
    /// Whether the query's parameters are sorted by name, so that their order does not count.
    pub sorts_query: bool,
    /// Cookies whose values count. Names are case-sensitive.
    pub cookies: Vec<Box<[u8]>>,
    /// Fields of the request whose values count, in lower case.
    pub headers: Vec<Box<[u8]>>,
    /// Whether hosts are told apart.
    pub ignores_host: bool,
    /// Whether http and https are told apart.
    pub ignores_scheme: bool,
}

impl KeyOptions {
    /// Whether something of a query does not count, be it the order.
    #[inline]
    pub fn leaves_out(&self) -> bool {
        self.query != Query::Whole || self.sorts_query
    }

    /// Whether nothing of a request counts but its URI.
    pub(crate) fn is_uri_alone(&self) -> bool {
        self.cookies.is_empty() && self.headers.is_empty()
    }
}

/// What of a query counts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Query {
    /// All of it.
    #[default]
    Whole,
    /// Nothing.
    None,
    /// Parameters of these names only.
    Keep(Vec<Parameter>),
    /// All but parameters of these names.
    Drop(Vec<Parameter>),
}

/// Names of query parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parameter {
    /// This one.
    Named(Box<[u8]>),
    /// Every one that begins like this; written `utm_*`.
    Beginning(Box<[u8]>),
}

impl Parameter {
    /// From how it is written: a name, or a name's beginning and `*`.
    pub fn of(written: &str) -> Self {
        match written.strip_suffix('*') {
            Some(beginning) => Self::Beginning(beginning.as_bytes().into()),
            None => Self::Named(written.as_bytes().into()),
        }
    }

    /// Whether a parameter of this name is meant.
    pub fn is(&self, name: &[u8]) -> bool {
        match self {
            Self::Named(named) => name == &**named,
            Self::Beginning(beginning) => name.starts_with(beginning),
        }
    }
}

impl Policy {
    /// The time that the route's owner has set for responses of this status alone, whatever they say.
    pub fn status_ttl_ms(&self, status: u16) -> Option<u64> {
        let of_status = self.status_ttl.iter().find(|row| (row.first..=row.last).contains(&status));
        of_status.map(|row| row.ttl_ms)
    }
}
