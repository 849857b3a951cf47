//! Settings of routes and their policies.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use expression::Expression;
use ipnet::IpNet;
use route::{
    Alone, CookieRewrite, Cors, ErrorPages, FixedResponse, HeaderEdit, HeaderEdits, HostRewrite, HostRule,
    MappedUrls, NamedValues, PathRewrite, PathRule, Rate, RateKey, Redirect, RouteRule, RouteTemplate, Split,
    Users,
};
use shape::Millionths;

use crate::option::named_file::Page;
use crate::option::shared::Shared;
use crate::tables::cache::CacheRule;
use crate::tables::files::Files;
use crate::tables::forward_auth::ForwardAuth;
use crate::tables::jwt::{Jwt, WebBotAuth};
use crate::tables::request_buffering::RequestBuffering;
use crate::tables::route::accel::AccelFolder;
use crate::tables::route::capture::RouteCapture;
use crate::tables::route::concurrency::ConcurrencyLimit;
use crate::tables::route::options::RouteOptions;
use crate::tables::shaping::Shaping;
use crate::tables::timeouts::RouteTimeouts;
use crate::tables::upstream::{Retry, StickyCookie};

/// Options of routes.
pub(crate) mod options;
/// Rules between the options of a route.
pub(crate) mod relations;
/// Checks and converts the options of routes.
pub(crate) mod resolve;
/// The option `accel` of routes.
pub(crate) mod accel;
/// The option `compress` of routes.
pub(crate) mod compress;
/// The conditions of all options of a route.
pub(crate) mod conditions;
/// The option `concurrency` of routes.
pub(crate) mod concurrency;
/// Options of CORS.
pub(crate) mod cors;
/// Options that all routes have unless they have their own.
pub(crate) mod defaults;
/// The option `deny`.
pub(crate) mod deny;
/// Kinds of values that only routes have.
pub(crate) mod kinds;
/// Limits of routes.
pub(crate) mod limits;
/// The maintenance switch of routes.
pub(crate) mod maintenance;
/// The option `capture`.
pub(crate) mod capture;
/// The option `mirror`.
pub(crate) mod mirror;
/// Upstreams that values name.
pub(crate) mod named_upstream;
/// Pages of `error_pages`.
pub(crate) mod error_page;
/// The option `on_status`.
pub(crate) mod on_status;
/// The option `rate_limit` of routes.
pub(crate) mod rate_limit;
/// Keeps clients on their side of a split.
pub(crate) mod split;
/// The option `web_bot_auth` of routes.
pub(crate) mod web_bot_auth;

/// A route: conditions on requests, and what happens to matching ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// The name in logs and metrics; by default host and path. Unique.
    pub name: String,
    /// The conditions: a request matches if any rule does. At least one; they differ only in the host. Listeners are
    /// indices into `Settings::listeners`.
    pub rules: Vec<RouteRule>,
    /// The source of the response.
    pub action: Action,
    /// Policies for requests and responses.
    pub policies: Shared<Policies>,
    pub shaping: Shared<Shaping>,
    /// The cache policy; `None` turns caching off. Requires `Settings::cache`.
    pub cache: Option<Box<cache::CachePolicy>>,
    /// The condition under which requests use the cache; `None` means all.
    pub cache_when: Option<Arc<Expression>>,
    /// Lifetimes of responses by condition. The first that holds overrides the policy.
    pub cache_rules: Box<[CacheRule]>,
    /// The values that the route knows: its own and those of the top level.
    pub values: Arc<NamedValues>,
}

impl Route {
    /// A route to an upstream, for a host or every host, and a path prefix.
    pub fn to(host: Option<&str>, path: &str, upstream: usize) -> Self {
        let rule = RouteRule {
            host: host.map_or(HostRule::Any, |host| HostRule::Exact(host.to_owned())),
            path: PathRule::Prefix(path.to_owned()),
            ..RouteRule::default()
        };
        Self {
            name: Self::default_name(&rule),
            rules: vec![rule],
            action: Action::Upstream(upstream),
            policies: Shared::default(),
            shaping: Shared::default(),
            cache: None,
            cache_when: None,
            cache_rules: [].into(),
            values: Arc::default(),
        }
    }

    /// The upstreams that the route uses: for its requests, and besides.
    pub fn upstreams(&self) -> impl Iterator<Item = usize> {
        let Policies { mirror, forward_auth, on_status, .. } = &*self.policies;
        let mirror = mirror.iter().map(|mirror| mirror.upstream);
        let auth = forward_auth.iter().map(|auth| auth.upstream);
        let fallbacks = on_status.iter().flat_map(|fallbacks| fallbacks.pages());
        let fallbacks = fallbacks.map(|(_, fallback)| fallback.upstream);
        self.action.upstreams().chain(mirror).chain(auth).chain(fallbacks)
    }

    /// Keeps once what is equal in both.
    pub(crate) fn share_with(&mut self, other: &Self) {
        self.shaping.share_with(&other.shaping);
        if self.values == other.values {
            self.values = Arc::clone(&other.values);
        }
        if !self.policies.share_with(&other.policies) {
            Policies::share_with(&mut self.policies, &other.policies);
        }
    }

    /// The default name: host and path.
    pub(crate) fn default_name(rule: &RouteRule) -> String {
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
    /// A server of the upstream that a text with values names.
    Named(Box<NamedUpstream>),
    /// A redirect. Groups refer to the route's path pattern.
    Redirect(Box<Redirect>),
    Respond(Respond),
    Files(Arc<Files>),
}

impl Action {
    /// Whether all responses are files.
    pub(crate) fn has_only_files(&self) -> bool {
        matches!(self, Self::Files(files) if files.otherwise.is_none())
    }

    /// The upstreams that the action may use.
    pub fn upstreams(&self) -> impl Iterator<Item = usize> {
        let (one, several) = match self {
            Self::Upstream(upstream) => (Some(*upstream), None),
            Self::Split(split) => (None, Some(split)),
            Self::Files(files) => (files.otherwise, None),
            Self::Named(_) | Self::Redirect(_) | Self::Respond(_) => (None, None),
        };
        let named = match self {
            Self::Named(named) => named.upstreams.as_slice(),
            _ => &[],
        };
        one.into_iter()
            .chain(several.into_iter().flat_map(|split| split.shares().map(|(upstream, _)| upstream)))
            .chain(named.iter().map(|(_, upstream)| *upstream))
    }
}

/// An upstream that values name, for each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedUpstream {
    /// The text that becomes the name.
    pub name: RouteTemplate,
    /// The upstreams that it may name, as names and indices into `Settings::upstreams`, sorted by name.
    pub upstreams: Vec<(String, usize)>,
}

impl NamedUpstream {
    /// The index of an upstream, if the text may name it.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        let place = self.upstreams.binary_search_by(|(known, _)| known.as_bytes().cmp(name)).ok()?;
        Some(self.upstreams[place].1)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Respond {
    pub response: Arc<FixedResponse>,
    /// The status, if it is a value. It is computed for each request, in place of the response's.
    pub status: Option<Arc<RouteTemplate>>,
    /// The body, if it has variables. It is filled in for each request, in place of the response's.
    pub body: Option<Arc<RouteTemplate>>,
    /// The file that the body was read from; `None` if the body is written in the configuration.
    pub file: Option<PathBuf>,
}

/// Policies of a route; by default none. Those that few routes have are behind pointers, so that they take no room where they
/// are not set.
///
/// Applied in this order: `access`, `rate_limits`, `auth` or `jwt`, `concurrency`, `rewrite` and `request_headers`; to the response `location`,
/// `cookies`, `response_headers`, `error_pages`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Policies {
    /// Access control by network.
    pub access: Shared<Access>,
    /// Access control by password.
    pub auth: Option<Box<Auth>>,
    /// Access control by another server.
    pub forward_auth: Option<Box<ForwardAuth>>,
    /// Whether one of the ways to prove who one is suffices, where there are several.
    pub require: Require,
    /// Access control by token.
    pub jwt: Option<Box<Jwt>>,
    /// Access control by signatures of bots.
    pub web_bot_auth: Option<Box<WebBotAuth>>,
    /// Rate limits; all of them must admit a request.
    pub rate_limits: Box<[RateLimit]>,
    /// Limits on requests under way; all of them must admit a request.
    pub concurrency: Box<[ConcurrencyLimit]>,
    /// Copies of requests for another upstream.
    pub mirror: Option<Box<Mirror>>,
    /// The file that gets the route's requests.
    pub capture: Option<Box<RouteCapture>>,
    /// Other servers for error statuses and failures of servers; not empty.
    pub on_status: Option<Box<StatusFallbacks>>,
    /// Folders whose files servers may name in place of a body.
    pub accel: Box<[AccelFolder]>,
    /// Whether and how request bodies are buffered.
    pub request_buffering: Option<RequestBuffering>,
    /// Rewrites of path and host for servers.
    pub rewrite: Shared<Rewrite>,
    /// Edits of request fields. Groups in values refer to the route's path pattern.
    pub request_headers: HeaderEdits,
    /// Edits of response fields, also in responses that the proxy makes.
    pub response_headers: HeaderEdits,
    /// Which URLs in Location and similar fields are mapped to the client's view of the server; `None` maps none.
    pub location: Option<MappedUrls>,
    /// Keeps a client on its side of `Action::Split`; `None` draws for each request.
    pub split_key: Option<Box<SplitKey>>,
    /// Which other origins may read responses. Preflights are answered after `access`.
    pub cors: Option<Box<Cors>>,
    /// Rewrites of the cookies that servers set.
    pub cookies: Option<Box<CookieRewrite>>,
    /// Options whose value needs no conversion: Via, error pages and more.
    pub options: Shared<RouteOptions>,
    /// Retries; overrides those of the upstream.
    pub retry: Option<Box<Retry>>,
    pub timeouts: Shared<RouteTimeouts>,
    pub limits: Shared<RouteLimits>,
}

impl Policies {
    /// All edits of requests and responses, also those of requests for error pages.
    pub fn edits(&self) -> impl Iterator<Item = HeaderEdit<'_>> {
        let fallbacks = self.on_status.iter().flat_map(|fallbacks| fallbacks.pages());
        let of_pages = fallbacks.flat_map(|(_, fallback)| fallback.fields.edits());
        self.request_headers.edits().chain(self.response_headers.edits()).chain(of_pages)
    }

    /// Keeps once what is equal in both.
    pub(crate) fn share_with(&mut self, other: &Self) {
        for (edits, others) in [
            (&mut self.request_headers, &other.request_headers),
            (&mut self.response_headers, &other.response_headers),
        ] {
            if edits == others {
                edits.clone_from(others);
            }
        }
        self.access.share_with(&other.access);
        self.rewrite.share_with(&other.rewrite);
        self.options.share_with(&other.options);
        self.timeouts.share_with(&other.timeouts);
        self.limits.share_with(&other.limits);
    }
}

/// The name of this proxy in Via (RFC 9110 §7.6.3).
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

/// The fields with a client's certificate that servers get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertFields {
    /// The certificate: Client-Cert (RFC 9440).
    Certificate,
    /// Also those behind it: Client-Cert-Chain.
    Chain,
    /// The certificate in PEM with percent escapes: ssl-client-cert, as from ingress-nginx.
    Pem,
}

/// The key that decides a client's side of a split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SplitKey {
    /// A number in a signed cookie, which the proxy gives the client.
    Cookie(StickyCookie),
    /// A part of the request, hashed.
    Source(balance::SessionSource),
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

/// Default of Retry-After: about as long as a deployment takes.
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
    /// Conditions of denied requests.
    pub rules: Vec<DenyRule>,
}

/// A condition under which requests are denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenyRule {
    pub when: Arc<Expression>,
    /// The status of the response, 400 to 599.
    pub status: u16,
}

/// Basic authentication (RFC 7617).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// The realm that clients show to users; without control characters.
    pub realm: String,
    /// The file that the users were read from.
    pub file: PathBuf,
    pub users: Arc<Users>,
}

/// How many of the ways of a route to prove who one is are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Require {
    #[default]
    All,
    Any,
}

/// Copies of requests for another upstream. Their responses are dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// The upstream, an index into `Settings::upstreams`.
    pub upstream: usize,
    /// The share of the requests.
    pub share: Millionths,
    /// The largest body that is copied.
    pub body_bytes_max: u64,
    /// The most copies under way at once, over all workers.
    pub requests_max: u32,
    /// The field that tells servers that a request is a copy.
    pub mark: Option<String>,
    /// The condition under which requests are copied; `None` means all.
    pub when: Option<Arc<Expression>>,
}
/// Other servers by the status of the first response. A status is preferred to its class.
pub type StatusFallbacks = ErrorPages<StatusFallback>;

/// Another server, which answers in place of one with an error status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusFallback {
    /// The upstream, an index into `Settings::upstreams`.
    pub upstream: usize,
    /// The path of an error page, in which `{status}` is the first status; `None` repeats the request.
    pub path: Option<String>,
    /// Edits of the request for the page. `$status` is the first status.
    pub fields: HeaderEdits,
    /// Whether the client gets the first status.
    pub keep_status: bool,
    /// Whether responses of servers are final.
    pub only_failures: bool,
}

/// A rate limit per key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    pub rate: Rate,
    /// The key that requests are counted by.
    pub key: RateKey,
    /// The most keys that are remembered.
    pub keys_max: usize,
    /// For a limit over all instances: what happens while they cannot reach each other.
    pub shared: Option<Alone>,
    /// Whether responses tell clients what is left.
    pub fields: bool,
    /// The condition under which requests count; `None` means all.
    pub when: Option<Arc<Expression>>,
    /// Routes with the same zone count together.
    pub zone: Option<Box<str>>,
}

impl RateLimit {
    /// Whether both count by the same keys at the same rate, whichever requests they apply to.
    pub fn counts_like(&self, other: &Self) -> bool {
        *self == Self { fields: self.fields, when: self.when.clone(), ..other.clone() }
    }

    /// Whether both can count in one zone. Instances that share a zone know one burst.
    pub fn is_of_one_zone(&self, other: &Self) -> bool {
        let of = |limit: &Self| {
            let burst = limit.shared.map(|_| limit.rate.burst());
            (limit.rate.requests_per(), burst, limit.keys_max, limit.shared)
        };
        of(self) == of(other) && self.key == other.key && self.zone == other.zone
    }
}

/// Rewrites of path and host for servers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rewrite {
    pub path: Option<PathRewrite>,
    /// The rewrite of the host; overrides the upstream's `host`.
    pub host: Option<HostRewrite>,
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
