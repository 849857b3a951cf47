//! Which requests go where, and what is done with them on the way.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use route::{
    CookieRewrite, ErrorPages, FixedResponse, HeaderEdits, HostRewrite, HostRule, PathRewrite, PathRule,
    Rate, RateKey, Redirect, Rule, Split, Users,
};

use super::shaping::Shaping;
use super::upstreams::Retry;
use crate::route_options::RouteOptions;

/// Requests that match, and what becomes of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// What it is called in logs and metrics: its host and path unless written. Unique.
    pub name: String,
    /// What requests have to be like, by one of these: at least one. They differ in their host alone. Their listeners are
    /// indices into `Settings::listeners`.
    pub rules: Vec<Rule>,
    /// What they get.
    pub action: Action,
    /// What is asked of them and done with them besides.
    pub policies: Policies,
    /// How they are slowed down on purpose.
    pub shaping: Shaping,
    /// What may answer them without a server; `None` is nothing. Only where there is a `Settings::cache`.
    pub cache: Option<cache::Policy>,
}

impl Route {
    /// Requests for a host, or for every one, with a path below a prefix go to an upstream.
    pub fn to(host: Option<&str>, path: &str, upstream: usize) -> Self {
        let rule = Rule {
            host: host.map_or(HostRule::Any, |host| HostRule::Exact(host.to_owned())),
            path: PathRule::Prefix(path.to_owned()),
            ..Rule::default()
        };
        Self {
            name: Self::default_name(&rule),
            rules: vec![rule],
            action: Action::Upstream(upstream),
            policies: Policies::default(),
            shaping: Shaping::default(),
            cache: None,
        }
    }

    /// Host and path.
    pub(crate) fn default_name(rule: &Rule) -> String {
        match &rule.host {
            HostRule::Any => rule.path.to_string(),
            host => format!("{host}{}", rule.path),
        }
    }
}

/// What a request gets.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// The answer of a server of this upstream: an index into `Settings::upstreams`.
    Upstream(usize),
    /// The same, of one of several upstreams by weight.
    Split(Split),
    /// Another URL to ask. Its groups are those of the route's path.
    Redirect(Redirect),
    /// Always the same answer.
    Respond(Respond),
}

impl Action {
    /// The upstreams that it may lead to.
    pub fn upstreams(&self) -> impl Iterator<Item = usize> {
        let (one, several) = match self {
            Self::Upstream(upstream) => (Some(*upstream), None),
            Self::Split(split) => (None, Some(split)),
            Self::Redirect(_) | Self::Respond(_) => (None, None),
        };
        one.into_iter()
            .chain(several.into_iter().flat_map(|split| split.shares().map(|(upstream, _)| upstream)))
    }
}

/// An answer that is always the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Respond {
    /// The answer.
    pub response: Arc<FixedResponse>,
    /// The file that its body was read from; `None` where it is written in the configuration.
    pub file: Option<PathBuf>,
}

/// What is asked of the requests of a route, and done with them besides; the default is nothing.
///
/// In this order: `access`, `rate_limits`, `auth`, `rewrite` and `request_headers`; of the response `location`, `cookies`,
/// `response_headers`, `error_pages`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Policies {
    /// Whom it lets in by network.
    pub access: Access,
    /// Whom it lets in by password.
    pub auth: Option<Auth>,
    /// How many requests it takes; all of them have to admit one.
    pub rate_limits: Vec<RateLimit>,
    /// What servers see in the place of the path and the host.
    pub rewrite: Rewrite,
    /// Fields of requests. Groups in values are those of the route's path.
    pub request_headers: HeaderEdits,
    /// Fields of responses, those made here included.
    pub response_headers: HeaderEdits,
    /// Whether Location and its kin are mapped back to what clients call the server.
    pub location: bool,
    /// What becomes of cookies that servers set.
    pub cookies: Option<CookieRewrite>,
    /// What is used as it is written: Via, error pages and more.
    pub options: RouteOptions,
    /// Retries, in the place of those of the upstream.
    pub retry: Option<Retry>,
    /// Waits, in the place of those of `Settings::timeouts`.
    pub timeouts: RouteTimeouts,
    /// Limits, in the place of those of `Settings::limits`.
    pub limits: RouteLimits,
}

/// What Via says of this proxy (RFC 9110 §7.6.3).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Via {
    /// `vanward`.
    #[default]
    Own,
    /// Another name, a token.
    Named(String),
    /// Nothing: there is no Via of this proxy's.
    Off,
}

/// Networks that are let in, and networks that are not; see `route::AccessList`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    /// Let in; none is everybody who is not denied.
    pub allow: Vec<IpNet>,
    /// Answered 403.
    pub deny: Vec<IpNet>,
}

/// Basic authentication (RFC 7617).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// What the client shows to its user; without control characters.
    pub realm: String,
    /// The file that they were read from.
    pub file: PathBuf,
    /// Who may come in.
    pub users: Arc<Users>,
}

/// How many requests a key may make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    /// How many.
    pub rate: Rate,
    /// What they are counted by.
    pub key: RateKey,
    /// How many keys are remembered.
    pub keys_max: usize,
}

/// What servers see in the place of what clients sent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rewrite {
    /// The path.
    pub path: Option<PathRewrite>,
    /// The host, in the place of the upstream's `host`.
    pub host: Option<HostRewrite>,
}

/// Waits of one route; `None` is that of `Settings::timeouts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RouteTimeouts {
    /// See `Timeouts::client_body`.
    pub client_body: Option<Duration>,
    /// See `Timeouts::client_write`.
    pub client_write: Option<Duration>,
    /// See `Timeouts::upstream_first_byte`.
    pub upstream_first_byte: Option<Duration>,
    /// See `Timeouts::upstream_body`.
    pub upstream_body: Option<Duration>,
    /// See `Timeouts::tunnel_idle`.
    pub tunnel_idle: Option<Duration>,
}

/// Limits of one route; `None` is that of `Settings::limits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RouteLimits {
    /// See `Limits::body_bytes`; `Some(None)` is no limit.
    pub body_bytes: Option<Option<u64>>,
    /// See `Limits::minimum_rate_bytes_per_second`.
    pub minimum_rate_bytes_per_second: Option<u64>,
    /// See `Limits::rate_window`.
    pub rate_window: Option<Duration>,
}

/// The bodies of errors, by status.
pub type Pages = ErrorPages<Page>;

/// The body of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The file that it was read from.
    pub file: PathBuf,
    /// By the file's ending.
    pub content_type: &'static str,
    /// Its bytes.
    pub body: Arc<[u8]>,
}
