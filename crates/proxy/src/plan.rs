//! The configuration as the path uses it: compiled once, shared by all workers, never changed.

use std::net::IpAddr;

use config::{Config, IpNet};
use route::{RouteTable, has_dot_segments};

use crate::failure::Failure;

/// A compiled configuration.
pub(crate) struct Plan {
    pub(crate) config: Config,
    pub(crate) routes: Vec<Route>,
    table: RouteTable,
    /// Whether the path decides where a request goes, so that it must not be read in two ways.
    depends_on_path: bool,
}

/// A route, by its index in the file.
pub(crate) struct Route {
    pub(crate) upstream: usize,
    /// Host and path as configured, for the log.
    pub(crate) label: String,
}

impl Plan {
    pub(crate) fn new(config: Config) -> Self {
        let table =
            RouteTable::new(config.routes.iter().map(|route| (route.host.as_deref(), route.path.as_str())));
        let routes = config
            .routes
            .iter()
            .map(|route| Route {
                upstream: route.upstream,
                label: format!("{}{}", route.host.as_deref().unwrap_or(""), route.path),
            })
            .collect();
        Self { routes, depends_on_path: table.depends_on_path(), table, config }
    }

    /// The index of the route for a host, without its port, and a path, without its query.
    pub(crate) fn route(&self, host: &[u8], path: &[u8]) -> Result<usize, Failure> {
        if self.depends_on_path && has_dot_segments(path) {
            return Err(Failure::AmbiguousPath);
        }
        self.table.find(host, path).ok_or(Failure::NoRoute)
    }

    /// Whether a client with this address may say whom it forwards for.
    pub(crate) fn trusts(&self, address: IpAddr) -> bool {
        self.config.trusted_proxies.iter().any(|network: &IpNet| network.contains(&address))
    }
}
