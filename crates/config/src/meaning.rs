//! What a configuration means, with every default in one place.
//!
//! Indices (`Route::upstream`) are valid by construction: only this crate builds a `Config`.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use crate::tls::{Hsts, ServerTls, UpstreamTls};

/// All that a proxy needs to know to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Worker threads; `None` means one for each core that the process may use.
    pub workers: Option<NonZeroUsize>,
    /// Where clients connect. At least one.
    pub listeners: Vec<Listener>,
    /// Which requests go where. The most specific match wins, whatever the order.
    pub routes: Vec<Route>,
    /// The groups of servers that routes lead to.
    pub upstreams: Vec<Upstream>,
    /// Networks whose `Forwarded` and `X-Forwarded-*` headers are believed and appended to.
    pub trusted_proxies: Vec<IpNet>,
    /// How long each wait may take.
    pub timeouts: Timeouts,
    /// How large or many each thing may be.
    pub limits: Limits,
    /// Where requests are logged; `None` is off.
    pub access_log: Option<AccessLog>,
    /// Where metrics are served, apart from clients; `None` is nowhere.
    pub metrics: Option<SocketAddr>,
}

impl Config {
    /// What flags mean: every request, whatever its host and path, goes to `servers`.
    ///
    /// # Panics
    /// Without a listener or without a server: whoever reads the flags requires both.
    pub fn for_servers(listeners: Vec<SocketAddr>, servers: Vec<Server>) -> Self {
        assert!(!listeners.is_empty() && !servers.is_empty(), "a proxy has a listener and a server");
        let upstream = Upstream {
            name: "default".to_owned(),
            servers,
            balance: Balance::default(),
            host: HostHeader::default(),
            protocol: Protocol::default(),
            tls: UpstreamTls::default(),
            pool: Pool::default(),
        };
        Self {
            workers: None,
            listeners: listeners.into_iter().map(Listener::plain).collect(),
            routes: vec![Route { host: None, path: "/".to_owned(), upstream: 0 }],
            upstreams: vec![upstream],
            trusted_proxies: Vec::new(),
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            access_log: None,
            metrics: None,
        }
    }
}

/// One address that clients connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Port 0 lets the kernel choose.
    pub address: SocketAddr,
    /// HTTPS, with these certificates; `None` is HTTP.
    pub tls: Option<ServerTls>,
    /// Every request is answered 308 to its `https` URL; never together with `tls`.
    pub redirect_to_https: bool,
    /// Strict-Transport-Security of every response; only together with `tls`.
    pub hsts: Option<Hsts>,
    /// Whether HTTP/2 is spoken beside HTTP/1.1: by ALPN with `tls`, else by prior knowledge.
    pub http2: bool,
}

impl Listener {
    /// HTTP, without anything that has to be asked for.
    pub fn plain(address: SocketAddr) -> Self {
        Self { address, tls: None, redirect_to_https: false, hsts: None, http2: true }
    }
}

/// Requests that match, and the upstream they go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Exact host name, lower case, without port; `None` matches every host.
    pub host: Option<String>,
    /// Path prefix, by whole segments: `/api` matches `/api` and `/api/x`, not `/apix`. Starts with `/`.
    pub path: String,
    /// Index into `Config::upstreams`.
    pub upstream: usize,
}

/// Servers that answer for the same routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// The name in the file.
    pub name: String,
    /// At least one.
    pub servers: Vec<Server>,
    /// How one of the servers is picked.
    pub balance: Balance,
    /// Which Host header the servers see.
    pub host: HostHeader,
    /// What is spoken with the servers.
    pub protocol: Protocol,
    /// How `https` servers are verified, and what is shown to them.
    pub tls: UpstreamTls,
    /// Connections kept to each server.
    pub pool: Pool,
}

/// One server of an upstream: `http://HOST[:PORT]` or `https://HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Whether it is spoken to through TLS.
    pub scheme: Scheme,
    /// Address or name.
    pub host: ServerHost,
    /// The scheme's unless written.
    pub port: u16,
    /// Share of requests relative to the other servers, 1 to 1000.
    pub weight: u32,
}

/// How a server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheme {
    /// Without TLS.
    #[default]
    Http,
    /// Through TLS.
    Https,
}

/// A server's address, or a name to resolve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerHost {
    /// Connected to as it is.
    Address(IpAddr),
    /// Resolved, and resolved again when its records expire.
    Name(String),
}

/// How a server is picked for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Balance {
    /// Each in turn, by weight.
    #[default]
    RoundRobin,
}

/// The Host header towards the servers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HostHeader {
    /// As the client sent it.
    #[default]
    Pass,
    /// The server's own host and port.
    Server,
    /// This value.
    Set(String),
}

/// What is spoken with the servers of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: by ALPN with `https` servers, by prior knowledge with others.
    Http2,
}

/// Limits of the connections that one worker keeps to one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// Idle connections kept for reuse.
    pub idle: usize,
    /// Connections in all, busy ones included; beyond it requests get 503.
    pub connections: usize,
    /// An idle connection is closed after this long.
    pub idle_timeout: Duration,
}

impl Default for Pool {
    fn default() -> Self {
        Self { idle: 512, connections: 16_384, idle_timeout: Duration::from_secs(60) }
    }
}

/// How long each wait may take. All are kept to within a tenth of a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a request (or from accept) to the end of its head; then 408.
    pub client_header: Duration,
    /// Without a byte of request body from the client; then 408.
    pub client_body: Duration,
    /// Without a byte of the response taken by the client; then the connection is dropped.
    pub client_write: Duration,
    /// Idle between two requests; then closed.
    pub keep_alive: Duration,
    /// To establish a connection to a server; then 504 (after the other addresses of its name).
    pub upstream_connect: Duration,
    /// From the end of the request to the head of the response; then 504.
    pub upstream_first_byte: Duration,
    /// Without a byte of response body; then the response is cut.
    pub upstream_body: Duration,
    /// Without a byte in either direction of an upgraded connection; then closed.
    pub tunnel_idle: Duration,
    /// What a drain waits for at most.
    pub drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            client_header: Duration::from_secs(10),
            client_body: Duration::from_secs(30),
            client_write: Duration::from_secs(30),
            keep_alive: Duration::from_secs(75),
            upstream_connect: Duration::from_secs(5),
            upstream_first_byte: Duration::from_secs(60),
            upstream_body: Duration::from_secs(60),
            tunnel_idle: Duration::from_secs(3600),
            drain: Duration::from_secs(30),
        }
    }
}

/// How large or many each thing may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A message head, start line included; more is 431 (from a server 502).
    pub header_bytes: usize,
    /// Header fields of a message; more is 431 (from a server 502).
    pub header_count: usize,
    /// The request target; more is 414.
    pub target_bytes: usize,
    /// A request body; more is 413. `None` is no limit.
    pub body_bytes: Option<u64>,
    /// Client connections in all, over every worker; more are answered 503 and closed.
    pub connections: usize,
    /// Requests served on one client connection before it is closed. `None` is no limit.
    pub requests_per_connection: Option<u64>,
    /// A client that sends a body or takes a response more slowly than this, in bytes/s over `rate_window`, is
    /// dropped. 0 is no minimum.
    pub minimum_rate_bytes_per_second: u64,
    /// The span over which the minimum rate is judged.
    pub rate_window: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: 64 * 1024,
            header_count: 256,
            target_bytes: 16 * 1024,
            body_bytes: None,
            connections: 100_000,
            requests_per_connection: None,
            minimum_rate_bytes_per_second: 64,
            rate_window: Duration::from_secs(20),
        }
    }
}

/// Where requests are logged, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLog {
    /// Standard output or a file.
    pub target: LogTarget,
    /// One line a request.
    pub format: LogFormat,
}

/// Where log lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// Appended to this file.
    File(PathBuf),
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// The Combined Log Format of Apache httpd.
    #[default]
    Combined,
    /// One JSON object a line, with timings and the cause of a failure.
    Json,
}
