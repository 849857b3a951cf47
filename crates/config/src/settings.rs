//! The settings of a configuration, with all defaults in one place.
//!
//! `Settings` is plain data, which may have mistakes. `Config` is `Settings` that were checked (`checked`).

/// Listeners.
mod listeners;
/// Automatic certificates.
mod acme;
/// Forward authentication.
mod forward_auth;
/// Routes and their policies.
mod routes;
/// Tokens: keys, rules, and where requests have them.
mod tokens;
/// Upstreams: servers, load balancing, checks, pools and retries.
mod upstreams;
/// The cache store.
mod cache;
/// Request buffering.
mod buffering;
/// Shaping: rate limits and delays.
mod shaping;
/// Traces.
mod tracing;
/// What instances share.
mod redis;
/// The catalog of Consul.
mod consul;
/// Faults.
mod faults;
/// Settings of routes that answer with files.
mod files;
/// Time-outs, limits, shedding and logs.
mod limits;

pub use acme::{
    Acme, Authority, ChallengeKind, ChallengePorts, DnsChallenge, DnsUpdate, DnsWay, ExternalAccount,
    KeyType, TsigAlgorithm, TsigKey,
};
pub use buffering::{RequestBuffering, RequestBuffers};
pub use cache::{CacheDisk, CachePeers, CacheStore};
pub use consul::{CatalogService, Consul};
pub use faults::{FaultRule, Faults, First};
pub use files::Files;
pub use forward_auth::{AuthCache, ForwardAuth};
pub use limits::{
    AccessLog, Http2Limits, Limits, LogRotation, LogTarget, MemoryBound, MessageFormat, MessageLevel,
    Messages, RouteLog, Shedding, SyslogOptions, SyslogReceiver, SyslogTransport, Timeouts,
};
pub use listeners::{ListenAddress, Listener, Passthrough};
pub use redis::{Redis, RedisUrl, SharedSecret};
pub use routes::{
    Access, Action, Auth, ClientCertFields, Maintenance, Mirror, Page, Pages, Policies, RateLimit, Require,
    Respond, Rewrite, Route, RouteLimits, RouteTimeouts, SplitKey, Via,
};
pub use shaping::{Bandwidth, Bandwidths, DatagramRates, Link, Scope, Shaping};
pub use tokens::{Jwt, KeySource, KeyUrl, TokenKeys, WebBotAuth};
pub use tracing::{B3, FollowCallers, IdForm, RequestIds, Tracing};
pub use upstreams::{
    BodyRule, Check, CookieSecrets, Dns, HostHeader, Pool, Probe, Protocol, QueueSettings, Retry, RetryOn,
    Scheme, Server, ServerHost, Statuses, StickyCookie, StickySessions, StickyTable, Upstream,
};

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use route::Rule;

use crate::profile::OwnProfile;

/// The default of `Settings::wakeup_coalescing`: short compared with a network, long compared with the work for one
/// request.
pub(crate) const WAKEUP_COALESCING: Duration = Duration::from_micros(250);

/// The values of all options. Plain data: indices may be wrong, names may be repeated. A proxy runs with a `Config`,
/// which `Config::new` or `Config::edit` makes from settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The number of worker threads; `None` means one per available core.
    pub workers: Option<NonZeroUsize>,
    /// The longest time that a busy worker waits, to handle several requests per wake-up; zero turns it off.
    pub wakeup_coalescing: Duration,
    /// The Unix socket of the admin API, which only the user of the process may open; `None` turns it off.
    pub admin: Option<PathBuf>,
    /// The address for metrics, apart from clients; `None` turns them off.
    pub metrics: Option<SocketAddr>,
    /// The dashboard, a page for operators; `None` turns it off.
    pub dashboard: Option<Dashboard>,
    /// The listeners, at least one.
    pub listeners: Vec<Listener>,
    /// How automatic certificates are obtained, for listeners that have such.
    pub acme: Acme,
    /// The routes. The most specific match is used, whatever the order.
    pub routes: Vec<Route>,
    /// The upstreams.
    pub upstreams: Vec<Upstream>,
    /// Link profiles that the file defines. Listeners may get them while the proxy runs.
    pub profiles: Vec<OwnProfile>,
    /// Trusted proxies: networks whose `Forwarded` and `X-Forwarded-*` fields are believed and extended.
    pub trusted_proxies: Vec<IpNet>,
    /// Error pages for routes without their own.
    pub error_pages: Pages,
    /// The faults.
    pub faults: Faults,
    /// The time-outs.
    pub timeouts: Timeouts,
    /// The limits on sizes and counts.
    pub limits: Limits,
    /// Load shedding.
    pub shed: Shedding,
    /// The cache store, for routes with `Route::cache`; `None` turns caching off.
    pub cache: Option<CacheStore>,
    /// The bounds of request bodies that are buffered, for routes with `Policies::request_buffering`.
    pub request_buffers: RequestBuffers,
    /// The IDs of requests.
    pub request_ids: RequestIds,
    /// The access logs, each of which has a line for every request; empty turns logging off.
    pub access_logs: Vec<AccessLog>,
    /// Traces; `None` turns them off.
    pub tracing: Option<Tracing>,
    /// What instances share state through; `None` for an instance by itself.
    pub redis: Option<Redis>,
    /// The agent of Consul.
    pub consul: Consul,
    /// Messages to the operator on standard error.
    pub messages: Messages,
}

/// The dashboard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dashboard {
    /// Its address, which only this machine can reach unless there are tokens.
    pub address: SocketAddr,
    /// Whether the page may change the proxy.
    pub is_writable: bool,
    /// Tokens, of which a request has to bring one; `None` asks for none.
    pub tokens: Option<DashboardTokens>,
    /// Names under which browsers may ask for it, besides its address and `localhost`.
    pub hosts: Vec<String>,
}

/// The tokens of the dashboard. `Debug` does not show them.
#[derive(Clone, PartialEq, Eq)]
pub struct DashboardTokens {
    /// The file that they were read from.
    pub file: PathBuf,
    /// At least one, each of 24 bytes or more.
    pub tokens: Arc<[Box<[u8]>]>,
}

impl fmt::Debug for DashboardTokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "DashboardTokens({:?}, {} of them)", self.file, self.tokens.len())
    }
}

impl Settings {
    /// Whether requests are counted by name, with their times: for the metrics endpoint, and for the status of the admin
    /// API.
    pub fn is_measured(&self) -> bool {
        self.metrics.is_some() || self.is_watched()
    }

    /// Whether somebody may watch: the last hour is kept, and requests under way are noted.
    pub fn is_watched(&self) -> bool {
        self.admin.is_some() || self.dashboard.is_some()
    }

    /// The settings of a proxy without a file: every request goes to `servers`, whatever its host and path.
    ///
    /// # Panics
    /// Without a listener or without a server: the command line requires both.
    pub fn for_servers(listeners: Vec<SocketAddr>, servers: Vec<Server>) -> Self {
        assert!(!servers.is_empty(), "an upstream has a server");
        Self::of(listeners, Route::to(None, "/", 0), vec![Upstream::of("default", servers)])
    }

    /// Serves the files beneath a directory to all requests, with every default.
    pub fn for_files(listeners: Vec<SocketAddr>, files: Files) -> Self {
        let route = Route { action: Action::Files(Arc::new(files)), ..Route::to(None, "/", 0) };
        Self::of(listeners, route, Vec::new())
    }

    fn of(listeners: Vec<SocketAddr>, route: Route, upstreams: Vec<Upstream>) -> Self {
        assert!(!listeners.is_empty(), "a proxy has a listener");
        Self {
            workers: None,
            wakeup_coalescing: WAKEUP_COALESCING,
            admin: None,
            metrics: None,
            dashboard: None,
            listeners: listeners.into_iter().map(Listener::plain).collect(),
            acme: Acme::default(),
            routes: vec![route],
            upstreams,
            profiles: Vec::new(),
            trusted_proxies: Vec::new(),
            error_pages: Pages::default(),
            faults: Faults::default(),
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            shed: Shedding::default(),
            cache: None,
            request_buffers: RequestBuffers::default(),
            request_ids: RequestIds::default(),
            access_logs: Vec::new(),
            tracing: None,
            redis: None,
            consul: Consul::default(),
            messages: Messages::default(),
        }
    }

    /// The index of the upstream that is the other instances, if the cache has such.
    pub fn peers(&self) -> Option<usize> {
        self.cache.as_ref()?.peers.as_ref()?;
        self.upstreams.iter().position(|upstream| upstream.name == CachePeers::NAME)
    }

    /// The rules of all routes, each with the index of its route.
    pub fn rules(&self) -> impl Iterator<Item = (usize, &Rule)> {
        self.routes
            .iter()
            .enumerate()
            .flat_map(|(index, route)| route.rules.iter().map(move |rule| (index, rule)))
    }
}
