//! What a configuration means, with every default in one place.
//!
//! `Settings` is plain data, which may have mistakes. `Config` is `Settings` that were checked (`checked`).

/// Where clients connect.
mod listeners;
/// Which requests go where, and what is done with them.
mod routes;
/// The servers behind them, and how one of them is chosen, watched and spared.
mod upstreams;
/// What is stored of responses.
mod cache;
/// How they are slowed down on purpose.
mod shaping;
/// What goes wrong on purpose.
mod faults;
/// How long, how large and how many.
mod limits;

pub use cache::{CacheDisk, CacheStore};
pub use faults::{FaultRule, Faults, First};
pub use limits::{
    AccessLog, Http2Limits, Limits, LogFormat, LogQuery, LogTarget, MemoryBound, MessageFormat, MessageLevel,
    Messages, Shedding, Timeouts,
};
pub use listeners::{ListenAddress, Listener};
pub use routes::{
    Access, Action, Auth, Page, Pages, Policies, RateLimit, Respond, Rewrite, Route, RouteLimits,
    RouteTimeouts, Via,
};
pub use shaping::{Bandwidth, Bandwidths, Link, Scope, Shaping};
pub use upstreams::{
    BodyRule, Check, CookieSecrets, Dns, HostHeader, Pool, Probe, Protocol, QueueSettings, Retry, RetryOn,
    Scheme, Server, ServerHost, Statuses, StickyCookie, StickySessions, StickyTable, Upstream,
};

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use route::Rule;

use crate::profile::OwnProfile;

/// The default of `Settings::wakeup_coalescing`: short beside a network, long beside the work for one request.
pub(crate) const WAKEUP_COALESCING: Duration = Duration::from_micros(250);

/// The values of all options. Plain data: indices may be wrong, names may be there twice. A proxy runs with a `Config`,
/// which is made of settings by `Config::new` or `Config::edit`.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Worker threads; `None` means one for each core that the process may use.
    pub workers: Option<NonZeroUsize>,
    /// How long a worker that many requests come to sleeps at most before it looks what has come; zero is not at all.
    pub wakeup_coalescing: Duration,
    /// The Unix socket of the admin API, which only the user of the process may open; `None` is none.
    pub admin: Option<PathBuf>,
    /// Where metrics are served, apart from clients; `None` is nowhere.
    pub metrics: Option<SocketAddr>,
    /// Where clients connect. At least one.
    pub listeners: Vec<Listener>,
    /// Which requests go where. The most specific match wins, whatever the order.
    pub routes: Vec<Route>,
    /// The groups of servers that routes lead to.
    pub upstreams: Vec<Upstream>,
    /// Links of its own, which listeners may be given while the proxy runs.
    pub profiles: Vec<OwnProfile>,
    /// Networks whose `Forwarded` and `X-Forwarded-*` headers are believed and appended to.
    pub trusted_proxies: Vec<IpNet>,
    /// The pages of errors where a route has none of its own.
    pub error_pages: Pages,
    /// What goes wrong on purpose.
    pub faults: Faults,
    /// How long each wait may take.
    pub timeouts: Timeouts,
    /// How large or many each thing may be.
    pub limits: Limits,
    /// What is refused before it is too much.
    pub shed: Shedding,
    /// What is stored of the responses of routes with `Route::cache`; `None` is nothing.
    pub cache: Option<CacheStore>,
    /// Where requests are logged; `None` is off.
    pub access_log: Option<AccessLog>,
    /// What is said on standard error.
    pub messages: Messages,
}

impl Settings {
    /// Settings of a proxy without a file: every request, whatever its host and path, goes to `servers`.
    ///
    /// # Panics
    /// Without a listener or without a server: whoever reads the flags requires both.
    pub fn for_servers(listeners: Vec<SocketAddr>, servers: Vec<Server>) -> Self {
        assert!(!listeners.is_empty() && !servers.is_empty(), "a proxy has a listener and a server");
        Self {
            workers: None,
            wakeup_coalescing: WAKEUP_COALESCING,
            admin: None,
            metrics: None,
            listeners: listeners.into_iter().map(Listener::plain).collect(),
            routes: vec![Route::to(None, "/", 0)],
            upstreams: vec![Upstream::of("default", servers)],
            profiles: Vec::new(),
            trusted_proxies: Vec::new(),
            error_pages: Pages::default(),
            faults: Faults::default(),
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            shed: Shedding::default(),
            cache: None,
            access_log: None,
            messages: Messages::default(),
        }
    }

    /// The rules of all routes, each with the index of its route.
    pub fn rules(&self) -> impl Iterator<Item = (usize, &Rule)> {
        self.routes
            .iter()
            .enumerate()
            .flat_map(|(index, route)| route.rules.iter().map(move |rule| (index, rule)))
    }
}
