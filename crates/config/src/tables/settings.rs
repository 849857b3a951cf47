//! The settings of a configuration, with all defaults in one place.
//!
//! `Settings` is plain data, which may have mistakes. `Config` is `Settings` that were checked (`checked`).

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use route::{NamedValues, RouteRule};

use crate::option::named_file::Pages;
use crate::option::server::Server;
use crate::option::shared::Shared;
use crate::tables::acme::Acme;
use crate::tables::cache::{CachePeers, CacheStore};
use crate::tables::consul::Consul;
use crate::tables::dashboard::Dashboard;
use crate::tables::fault::Faults;
use crate::tables::files::Files;
use crate::tables::limits::{Limits, Shedding};
use crate::tables::listen::Listener;
use crate::tables::log::AccessLog;
use crate::tables::map::Map;
use crate::tables::messages::Messages;
use crate::tables::profile::OwnProfile;
use crate::tables::redis::{Redis, SharedSecret};
use crate::tables::request_buffering::RequestBuffers;
use crate::tables::request_id::RequestIds;
use crate::tables::route::{Action, Route};
use crate::tables::timeouts::Timeouts;
use crate::tables::tracing::Tracing;
use crate::tables::upstream::Upstream;

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
    /// Settings of automatic certificates, for listeners that have such.
    pub acme: Acme,
    /// The routes. The most specific match is used, whatever the order.
    pub routes: Vec<Shared<Route>>,
    /// The values of the top level. Routes have them, too.
    pub values: Arc<NamedValues>,
    pub upstreams: Vec<Shared<Upstream>>,
    /// Link profiles that the file defines. Listeners may get them while the proxy runs.
    pub profiles: Vec<OwnProfile>,
    /// Trusted proxies: networks whose `Forwarded` and `X-Forwarded-*` fields are believed and extended.
    pub trusted_proxies: Vec<IpNet>,
    /// Error pages for routes without their own.
    pub error_pages: Pages,
    /// Maps for expressions, which know them by their places here.
    pub maps: Vec<Map>,
    pub faults: Faults,
    pub timeouts: Timeouts,
    /// The limits on sizes and counts.
    pub limits: Limits,
    pub shed: Shedding,
    /// The cache store, for routes with `Route::cache`; `None` turns caching off.
    pub cache: Option<CacheStore>,
    /// The bounds of request bodies that are buffered, for routes with `Policies::request_buffering`.
    pub request_buffers: RequestBuffers,
    pub request_ids: RequestIds,
    /// The access logs, each of which has a line for every request; empty turns logging off.
    pub access_logs: Vec<AccessLog>,
    /// Traces; `None` turns them off.
    pub tracing: Option<Tracing>,
    /// The store through which instances share state; `None` for a single instance.
    pub redis: Option<Redis>,
    pub consul: Consul,
    /// Messages to the operator on standard error.
    pub messages: Messages,
    /// The secret that connections of QUIC are recognized by after a start; `None` means a random one.
    pub quic_key: Option<SharedSecret>,
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

    /// Extension of the scripts that the server of `else` runs, if it runs scripts. These are never sent as files.
    pub fn scripts_beside(&self, files: &Files) -> Option<&str> {
        self.upstreams.get(files.otherwise?)?.scripts()
    }

    /// The settings of a proxy without a file: every request goes to `servers`, whatever its host and path.
    ///
    /// # Panics
    /// Without a listener or without a server: the command line requires both.
    pub fn for_servers(listeners: Vec<SocketAddr>, servers: Vec<Server>) -> Self {
        assert!(!servers.is_empty(), "an upstream has a server");
        Self::new(listeners, Route::to(None, "/", 0), vec![Upstream::from_name("default", servers)])
    }

    /// Serves the files beneath a directory to all requests, with every default.
    pub fn for_files(listeners: Vec<SocketAddr>, files: Files) -> Self {
        let route = Route { action: Action::Files(Arc::new(files)), ..Route::to(None, "/", 0) };
        Self::new(listeners, route, Vec::new())
    }

    fn new(listeners: Vec<SocketAddr>, route: Route, upstreams: Vec<Upstream>) -> Self {
        assert!(!listeners.is_empty(), "a proxy has a listener");
        Self {
            workers: None,
            wakeup_coalescing: WAKEUP_COALESCING,
            admin: None,
            metrics: None,
            dashboard: None,
            listeners: listeners.into_iter().map(Listener::plain).collect(),
            acme: Acme::default(),
            routes: vec![route.into()],
            values: Arc::default(),
            upstreams: upstreams.into_iter().map(Shared::from).collect(),
            profiles: Vec::new(),
            trusted_proxies: Vec::new(),
            error_pages: Pages::default(),
            maps: Vec::new(),
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
            quic_key: None,
        }
    }

    /// The index of the upstream that is the other instances, if the cache has such.
    pub fn peers(&self) -> Option<usize> {
        self.cache.as_ref()?.peers.as_ref()?;
        self.upstreams.iter().position(|upstream| upstream.name == CachePeers::NAME)
    }

    /// The rules of all routes, each with the index of its route.
    pub fn rules(&self) -> impl Iterator<Item = (usize, &RouteRule)> {
        self.routes
            .iter()
            .enumerate()
            .flat_map(|(index, route)| route.rules.iter().map(move |rule| (index, rule)))
    }

    /// Whether a route names only listeners without TLS: `redirect_to_https` does not apply to its requests.
    pub fn is_for_plain_http(&self, route: &Route) -> bool {
        let has_no_tls = |listener: &usize| self.listeners[*listener].tls.is_none();
        route.rules.iter().all(|rule| !rule.listeners.is_empty() && rule.listeners.iter().all(has_no_tls))
    }
}
