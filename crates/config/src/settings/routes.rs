//! Settings of routes and their policies.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use route::{
    Alone, CookieRewrite, Cors, ErrorPages, FixedResponse, HeaderEdits, HostRewrite, HostRule, PathRewrite,
    PathRule, Rate, RateKey, Redirect, Rule, Split, Users,
};

use shape::Share;

use super::buffering::RequestBuffering;
use super::files::Files;
use super::forward_auth::ForwardAuth;
use super::shaping::Shaping;
use super::tokens::{Jwt, WebBotAuth};
use super::upstreams::{Retry, StickyCookie};
use crate::route_options::RouteOptions;
use crate::shared::Shared;

/// A route: conditions on requests, and what happens to matching ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// The name in logs and metrics; by default host and path. Unique.
    pub name: String,
    /// The conditions: a request matches if any rule does. At least one; they differ only in the host. Listeners are
    /// indices into `Settings::listeners`.
    pub rules: Vec<Rule>,
    /// The source of the response.
    pub action: Action,
    /// Policies for requests and responses.
    pub policies: Shared<Policies>,
    /// Rate limits and delays.
    pub shaping: Shaping,
    /// The cache policy; `None` turns caching off. Requires `Settings::cache`.
    pub cache: Option<cache::Policy>,
}

impl Route {
    /// A route to an upstream, for a host or every host, and a path prefix.
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
            policies: Shared::default(),
            shaping: Shaping::default(),
            cache: None,
        }
    }

    /// The upstreams that the route uses: for its requests, and besides.
    pub fn upstreams(&self) -> impl Iterator<Item = usize> {
        let Policies { mirror, forward_auth, .. } = &*self.policies;
        let mirror = mirror.iter().map(|mirror| mirror.upstream);
        let auth = forward_auth.iter().map(|auth| auth.upstream);
        self.action.upstreams().chain(mirror).chain(auth)
    }

    /// The default name: host and path.
    pub(crate) fn default_name(rule: &Rule) -> String {
        match &rule.host {
            HostRule::Any => rule.path.to_string(),
            host => format!("{host}{}", rule.path),
        }
    }
}

/// The source of a response.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// A server of this upstream, an index into `Settings::upstreams`.
    Upstream(usize),
    /// A server of one of several upstreams, chosen by weight.
    Split(Split),
    /// A redirect. Groups refer to the route's path pattern.
    Redirect(Redirect),
    /// A fixed response.
    Respond(Respond),
    /// Files beneath a directory.
    Files(Arc<Files>),
}

impl Action {
    /// The upstreams that the action may use.
    pub fn upstreams(&self) -> impl Iterator<Item = usize> {
        let (one, several) = match self {
            Self::Upstream(upstream) => (Some(*upstream), None),
            Self::Split(split) => (None, Some(split)),
            Self::Redirect(_) | Self::Respond(_) | Self::Files(_) => (None, None),
        };
        one.into_iter()
            .chain(several.into_iter().flat_map(|split| split.shares().map(|(upstream, _)| upstream)))
    }
}

/// A fixed response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Respond {
    /// The response.
    pub response: Arc<FixedResponse>,
    /// The file that the body was read from; `None` if the body is written in the configuration.
    pub file: Option<PathBuf>,
}

/// Policies of a route; by default none.
///
/// Applied in this order: `access`, `rate_limits`, `auth` or `jwt`, `rewrite` and `request_headers`; to the response `location`,
/// `cookies`, `response_headers`, `error_pages`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Policies {
    /// Access control by network.
    pub access: Access,
    /// Access control by password.
    pub auth: Option<Auth>,
    /// Access control by another server.
    pub forward_auth: Option<ForwardAuth>,
    /// Whether one of the ways to prove who one is suffices, where there are several.
    pub require: Require,
    /// Access control by token.
    pub jwt: Option<Jwt>,
    /// Access control by signatures of bots.
    pub web_bot_auth: Option<WebBotAuth>,
    /// Rate limits; all of them must admit a request.
    pub rate_limits: Vec<RateLimit>,
    /// Copies of requests for another upstream.
    pub mirror: Option<Mirror>,
    /// Whether and how request bodies are buffered.
    pub request_buffering: Option<RequestBuffering>,
    /// Rewrites of path and host for servers.
    pub rewrite: Rewrite,
    /// Edits of request fields. Groups in values refer to the route's path pattern.
    pub request_headers: HeaderEdits,
    /// Edits of response fields, also in responses that the proxy makes.
    pub response_headers: HeaderEdits,
    /// Whether Location and similar fields are mapped to the client's view of the server.
    pub location: bool,
    /// What keeps a client on its side of `Action::Split`; `None` draws for each request.
    pub split_key: Option<SplitKey>,
    /// Which other origins may read responses. Preflights are answered after `access`.
    pub cors: Option<Cors>,
    /// Rewrites of the cookies that servers set.
    pub cookies: Option<CookieRewrite>,
    /// Options whose value needs no conversion: Via, error pages and more.
    pub options: RouteOptions,
    /// Retries; overrides those of the upstream.
    pub retry: Option<Retry>,
    /// Time-outs; override `Settings::timeouts`.
    pub timeouts: RouteTimeouts,
    /// Limits; override `Settings::limits`.
    pub limits: RouteLimits,
}

/// What Via says about this proxy (RFC 9110 §7.6.3).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Via {
    /// The default name, `vanward`.
    #[default]
    Own,
    /// Another name, which is a token.
    Named(String),
    /// No Via of this proxy.
    Off,
}

/// What servers are told of a client's certificate (RFC 9440).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertFields {
    /// The certificate: Client-Cert.
    Certificate,
    /// Also those behind it: Client-Cert-Chain.
    Chain,
}

/// What a client's side of a split depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SplitKey {
    /// A number in a signed cookie, which the proxy gives the client.
    Cookie(StickyCookie),
    /// A part of the request, hashed.
    Source(balance::Source),
}

/// Maintenance of a route: whether and how its requests are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maintenance {
    /// Whether requests are refused now.
    pub is_on: bool,
    /// The page that clients get; `None` means the error page for 503.
    pub page: Option<Page>,
    /// When clients may come again.
    pub retry_after: Duration,
    /// Networks of clients that are served as usual.
    pub allow: Vec<IpNet>,
}

impl Default for Maintenance {
    fn default() -> Self {
        Self { is_on: true, page: None, retry_after: RETRY_AFTER, allow: Vec::new() }
    }
}

/// When clients may come again where nothing else is said: about how long a deployment takes.
const RETRY_AFTER: Duration = Duration::from_secs(5 * 60);

impl Maintenance {
    /// Whether a client is refused.
    pub fn refuses(&self, client: IpAddr) -> bool {
        self.is_on && !self.allow.iter().any(|network| network.contains(&client))
    }
}

/// Access control by client network; see `route::AccessList`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    /// Allowed networks; if empty, everybody who is not denied is allowed.
    pub allow: Vec<IpNet>,
    /// Denied networks, which get 403.
    pub deny: Vec<IpNet>,
}

/// Basic authentication (RFC 7617).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// The realm that clients show to users; without control characters.
    pub realm: String,
    /// The file that the users were read from.
    pub file: PathBuf,
    /// The users.
    pub users: Arc<Users>,
}

/// How many of the ways of a route to prove who one is are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Require {
    /// Every one of them.
    #[default]
    All,
    /// Any one of them.
    Any,
}

/// Copies of requests for another upstream, whose responses nobody gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// The upstream, an index into `Settings::upstreams`.
    pub upstream: usize,
    /// The share of the requests.
    pub share: Share,
    /// The largest body that is copied.
    pub body_bytes_max: u64,
    /// The most copies under way at once, over all workers.
    pub requests_max: u32,
    /// The field that tells servers that a request is a copy.
    pub mark: Option<String>,
}

/// A rate limit per key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    /// The rate.
    pub rate: Rate,
    /// The key that requests are counted by.
    pub key: RateKey,
    /// The most keys that are remembered.
    pub keys_max: usize,
    /// For a limit over all instances: what happens while they cannot reach each other.
    pub shared: Option<Alone>,
}

/// Rewrites of path and host for servers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rewrite {
    /// The rewrite of the path.
    pub path: Option<PathRewrite>,
    /// The rewrite of the host; overrides the upstream's `host`.
    pub host: Option<HostRewrite>,
}

/// Time-outs of one route; `None` means the value in `Settings::timeouts`.
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
    /// See `Timeouts::upstream_send`.
    pub upstream_send: Option<Duration>,
    /// See `Timeouts::tunnel_idle`.
    pub tunnel_idle: Option<Duration>,
}

/// Limits of one route; `None` means the value in `Settings::limits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RouteLimits {
    /// See `Limits::body_bytes`; `Some(None)` means no limit.
    pub body_bytes: Option<Option<u64>>,
    /// See `Limits::minimum_rate_bytes_per_second`.
    pub minimum_rate_bytes_per_second: Option<u64>,
    /// See `Limits::rate_window`.
    pub rate_window: Option<Duration>,
}

/// Error pages by status.
pub type Pages = ErrorPages<Page>;

/// An error page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The file that the page was read from.
    pub file: PathBuf,
    /// The content type, which follows from the file name.
    pub content_type: &'static str,
    /// The body.
    pub body: Arc<[u8]>,
}
