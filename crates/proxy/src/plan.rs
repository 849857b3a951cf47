//! The configuration as the path uses it: compiled once, shared by all workers, never changed.

use std::net::IpAddr;
use std::sync::Arc;

use config::{Config, Hsts, IpNet};
use route::{RouteTable, has_dot_segments};
use tls::{ClientSide, Problem, ServerSide};

use crate::failure::Failure;

/// A compiled configuration.
pub(crate) struct Plan {
    pub(crate) config: Config,
    pub(crate) listeners: Vec<Listener>,
    /// Of each upstream; `None` where no server has TLS.
    pub(crate) upstream_tls: Vec<Option<Arc<ClientSide>>>,
    pub(crate) routes: Vec<Route>,
    table: RouteTable,
    /// Whether the path decides where a request goes, so that it must not be read in two ways.
    depends_on_path: bool,
}

/// A listener, by its index in the file.
pub(crate) struct Listener {
    pub(crate) tls: Option<Arc<ServerSide>>,
    /// Whether its requests are sent to https, and at which port.
    pub(crate) redirect_port: Option<u16>,
    /// Lines that every response gets: Strict-Transport-Security.
    pub(crate) added: Vec<u8>,
}

/// A route, by its index in the file.
pub(crate) struct Route {
    pub(crate) upstream: usize,
    /// Host and path as configured, for the log.
    pub(crate) label: String,
}

impl Plan {
    /// Reads the certificates and compiles the rest.
    ///
    /// # Errors
    /// What is wrong with a certificate.
    pub(crate) fn new(config: Config) -> Result<Self, Vec<Problem>> {
        let (listeners, upstream_tls) = load_tls(&config)?;
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
        let depends_on_path = table.depends_on_path();
        Ok(Self { listeners, upstream_tls, routes, depends_on_path, table, config })
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

/// Where https is spoken: at its own port if anywhere there, else at the first listener's that has TLS.
fn https_port(config: &Config) -> u16 {
    const HTTPS: u16 = 443;
    let mut ports = config.listeners.iter().filter(|listener| listener.tls.is_some());
    let first = ports.next().map_or(HTTPS, |listener| listener.address.port());
    if ports.any(|listener| listener.address.port() == HTTPS) { HTTPS } else { first }
}

/// RFC 6797 §6.1.
fn hsts_line(hsts: &Hsts) -> Vec<u8> {
    format!("Strict-Transport-Security: {}\r\n", hsts.header_value()).into_bytes()
}

type Tls = (Vec<Listener>, Vec<Option<Arc<ClientSide>>>);

fn load_tls(config: &Config) -> Result<Tls, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut listeners = Vec::new();
    for listener in &config.listeners {
        match ServerSide::load(listener) {
            Ok(tls) => listeners.push(Listener {
                tls: tls.map(Arc::new),
                redirect_port: listener.redirect_to_https.then(|| https_port(config)),
                added: listener.hsts.as_ref().map(hsts_line).unwrap_or_default(),
            }),
            Err(found) => problems.extend(found),
        }
    }
    let mut upstreams = Vec::new();
    for upstream in &config.upstreams {
        match ClientSide::load(upstream) {
            Ok(tls) => upstreams.push(tls.map(Arc::new)),
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() { Ok((listeners, upstreams)) } else { Err(problems) }
}
