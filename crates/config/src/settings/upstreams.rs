//! Settings of upstreams: servers, load balancing, health checks, sessions, pools and retries.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use balance::{
    AddressPrefixes, CheckSettings, CookieAttributes, EjectionSettings, PolicyRow, RetrySettings, Settings,
    Source,
};
use route::{Pattern, ProxyVersion, ValueRule};

use super::consul::CatalogService;
use super::redis::SharedSecret;
use super::shaping::{Bandwidths, Link};
use crate::tls::UpstreamTls;

/// An upstream: servers that serve the same routes.
#[derive(Debug, Clone, PartialEq)]
pub struct Upstream {
    /// The name in the file.
    pub name: String,
    /// The servers, at least one.
    pub servers: Vec<Server>,
    /// How a server name with several addresses is treated.
    pub dns: Dns,
    /// The load balancing policy.
    pub balance: &'static PolicyRow,
    /// The key that requests are hashed by, for policies that hash.
    pub hash_key: Source,
    /// Rules of the fleet: slow start, priorities, ejection, circuit breakers.
    pub settings: Settings,
    /// Sticky sessions.
    pub sticky: Option<StickySessions>,
    /// The wait queue for servers at their limit.
    pub queue: QueueSettings,
    /// Health checks; `None` turns them off.
    pub check: Option<Check>,
    /// Which requests are retried.
    pub retry: Retry,
    /// The retry budget.
    pub retry_budget: RetrySettings,
    /// The Host header for servers.
    pub host: HostHeader,
    /// The HTTP version spoken with servers.
    pub protocol: Protocol,
    /// Sends a PROXY header of this version at the start of each connection to a server. Such a connection serves only
    /// one client.
    pub send_proxy_protocol: Option<ProxyVersion>,
    /// TLS towards `https` servers.
    pub tls: UpstreamTls,
    /// Limits of the connection pools.
    pub pool: Pool,
    /// Bandwidth limits on bodies, to and from all servers together.
    pub bandwidths: Bandwidths,
    /// The emulated network link of the servers.
    pub link: Link,
}

impl Upstream {
    /// An upstream with these servers, and defaults for the rest.
    pub fn of(name: &str, servers: Vec<Server>) -> Self {
        Self {
            name: name.to_owned(),
            servers,
            dns: Dns::default(),
            balance: balance::DEFAULT,
            hash_key: Source::ClientAddress(AddressPrefixes::default()),
            settings: Self::default_settings(),
            sticky: None,
            queue: QueueSettings::default(),
            check: None,
            retry: Retry::default(),
            retry_budget: RetrySettings::default(),
            host: HostHeader::default(),
            protocol: Protocol::default(),
            send_proxy_protocol: None,
            tls: UpstreamTls::default(),
            pool: Pool::default(),
            bandwidths: Bandwidths::default(),
            link: Link::default(),
        }
    }

    /// The default rules: outliers are ejected and return slowly, and circuit breakers are off.
    pub(crate) fn default_settings() -> Settings {
        Settings {
            slow_start: Duration::from_secs(10),
            ejection: Some(EjectionSettings::default()),
            ..Settings::default()
        }
    }
}

/// A server of an upstream: `http://HOST[:PORT]`, `https://HOST[:PORT]`, `tcp://HOST:PORT` or `http+unix:/PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The name in logs, metrics and sessions; `None` means the URL. Unique in its upstream.
    pub name: Option<String>,
    /// The scheme.
    pub scheme: Scheme,
    /// The host.
    pub host: ServerHost,
    /// The port; by default that of the scheme, and 0 for a Unix socket and services.
    pub port: u16,
    /// The weight relative to the other servers, up to 1000. With 0 the server gets only requests of its sessions.
    pub weight: u32,
    /// Whether the server gets no requests at all, until an operator restores it.
    pub down: bool,
    /// The priority group. The lowest number is used first, the next one if too few servers are up.
    pub priority: u16,
    /// The most requests in progress over all workers; if the name stands for several servers, per server. `None` means
    /// no limit.
    pub max_requests: Option<NonZeroU32>,
}

/// The scheme of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheme {
    /// HTTP without TLS.
    #[default]
    Http,
    /// HTTP over TLS.
    Https,
    /// Bytes, only for listeners with `tcp`, which may use servers of the other schemes as well.
    Tcp,
}

/// The host of a server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerHost {
    /// An IP address.
    Address(IpAddr),
    /// A name. It is resolved, and resolved again when its records expire.
    Name(String),
    /// A service: its SRV records (RFC 2782) say which servers there are, with their ports, weights and priorities.
    Service(String),
    /// A service of Consul, whose catalog says which servers there are, with their ports and weights.
    Catalog(CatalogService),
    /// A Unix socket in the file system. Its Host header is `localhost`.
    Unix(PathBuf),
}

/// How a server name with several addresses is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dns {
    /// As one server per address, which come and go with the DNS records. If there are addresses of both families, only
    /// IPv4 is used, because a machine with one of each is one server.
    #[default]
    All,
    /// As one server: its addresses are tried in turn, IPv4 first.
    One,
}

/// The Host header for servers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HostHeader {
    /// The client's Host.
    #[default]
    Pass,
    /// The server's own host and port.
    Server,
    /// A fixed value.
    Set(String),
}

/// The HTTP version spoken with the servers of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: by ALPN with `https` servers, by prior knowledge with others.
    Http2,
    /// HTTP/3, of `https` servers only.
    Http3,
}

impl Protocol {
    /// Whether a connection carries many requests at once.
    pub fn is_multiplexed(self) -> bool {
        matches!(self, Self::Http2 | Self::Http3)
    }
}

/// Limits on the connections of one worker to one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// The most idle connections that are kept for reuse. The actual number follows from recent use.
    pub idle: usize,
    /// The most connections, busy ones included. Above, requests get 503.
    pub connections: usize,
    /// The time after which an idle connection is closed.
    pub idle_timeout: Duration,
    /// To establish a connection; `None` means `Timeouts::upstream_connect`.
    pub connect_timeout: Option<Duration>,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            idle: 16_384,
            connections: 16_384,
            idle_timeout: Duration::from_secs(60),
            connect_timeout: None,
        }
    }
}

/// The wait queue for servers at their limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSettings {
    /// The most waiting requests per worker; further ones get 503. 0 turns the queue off.
    pub length: usize,
    /// The longest wait; then 503.
    pub timeout: Duration,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self { length: 1024, timeout: Duration::from_secs(1) }
    }
}

/// How a client is kept on one server.
#[derive(Debug, Clone, PartialEq)]
pub enum StickySessions {
    /// By a signed cookie that the proxy inserts, which names the server.
    Cookie(StickyCookie),
    /// By a table of session keys and their servers.
    Table(StickyTable),
}

/// The session cookie that the proxy inserts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StickyCookie {
    /// The name.
    pub name: String,
    /// How long a session lasts without a request; `None` means until the browser is closed.
    pub ttl: Option<Duration>,
    /// The cookie attributes.
    pub attributes: CookieAttributes,
    /// The secrets for signatures; `None` means a new secret at each start.
    pub secrets: Option<CookieSecrets>,
}

/// The secrets that sign session cookies. `Debug` does not show them.
#[derive(Clone, PartialEq, Eq)]
pub struct CookieSecrets {
    /// The file that the secrets were read from.
    pub file: PathBuf,
    /// The first secret signs; all are accepted. At least one, each of 32 bytes or more.
    pub secrets: Arc<[Box<[u8]>]>,
}

impl fmt::Debug for CookieSecrets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CookieSecrets({:?}, {} of them)", self.file, self.secrets.len())
    }
}

/// A table of sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StickyTable {
    /// The session key. For a cookie, the proxy learns it from the Set-Cookie of responses.
    pub source: Source,
    /// How long a session lasts without a request.
    pub ttl: Duration,
    /// The most sessions; the least recently used one is evicted.
    pub sessions_max: usize,
    /// If instances share them, what their names are hidden with: the secret of `[redis]`.
    pub shared: Option<SharedSecret>,
}

/// Health checks of servers.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// The schedule of checks.
    pub settings: CheckSettings,
    /// The time after which a check fails.
    pub timeout: Duration,
    /// The port to check; `None` means the server's port.
    pub port: Option<u16>,
    /// What a check does.
    pub probe: Probe,
}

impl Check {
    /// The default of `timeout`.
    pub const TIMEOUT: Duration = Duration::from_secs(1);
}

/// What a health check does. Through TLS if the server is `https`.
#[derive(Debug, Clone, PartialEq)]
pub enum Probe {
    /// Sends a GET, in the upstream's protocol.
    Http {
        /// Path and query.
        path: String,
        /// The Host header; `None` means the server's.
        host: Option<String>,
        /// The status codes of a healthy server.
        status: Statuses,
        /// Required fields of the response: for each name, at least one field line must pass.
        headers: Vec<(String, ValueRule)>,
        /// A condition on the first 64 KiB of the response body.
        body: Option<BodyRule>,
    },
    /// Opens a connection.
    Tcp,
    /// Opens a connection and completes a TLS handshake, whatever the server's scheme.
    Tls,
    /// Calls grpc.health.v1.Health/Check.
    Grpc {
        /// The service to check; empty for the server as a whole.
        service: String,
    },
    /// Runs a program, which must exit with 0. It learns about the server from VANWARD_SERVER, VANWARD_HOST,
    /// VANWARD_ADDRESS and VANWARD_PORT.
    Command {
        /// The program and its arguments. At least one.
        command: Vec<String>,
    },
}

/// A condition on a response body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyRule {
    /// The body contains this text.
    Contains(String),
    /// The pattern matches the whole body.
    Pattern(Pattern),
}

impl BodyRule {
    /// Whether a body fulfils the condition.
    pub fn passes(&self, body: &[u8]) -> bool {
        match self {
            Self::Contains(text) => {
                text.is_empty() || body.windows(text.len()).any(|window| window == text.as_bytes())
            }
            Self::Pattern(pattern) => pattern.matches(body),
        }
    }
}

/// Status codes of responses, as ranges within 100 to 599.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statuses(pub(crate) Vec<RangeInclusive<u16>>);

impl Statuses {
    /// The status codes from 200 to 299.
    pub fn successful() -> Self {
        Self(vec![200..=299])
    }

    /// These status codes.
    pub fn of(statuses: impl IntoIterator<Item = u16>) -> Self {
        Self(statuses.into_iter().map(|status| status..=status).collect())
    }

    /// Whether a status code is included.
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }

    /// Whether no status code is included.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Which requests are retried, on another server if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// The failures that are retried.
    pub on: RetryOn,
    /// The most attempts per request; 1 means no retries.
    pub attempts: u32,
    /// The time after the first attempt from which no other one begins.
    pub within: Duration,
    /// Whether methods that are not idempotent (RFC 9110 §9.2.2) are retried too, even if a server may have seen the
    /// request, which may then be executed twice.
    pub non_idempotent: bool,
}

impl Default for Retry {
    fn default() -> Self {
        Self { on: RetryOn::default(), attempts: 3, within: Duration::from_secs(10), non_idempotent: false }
    }
}

/// The failures that are retried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryOn {
    /// No connection, or none in time: no server has seen the request.
    pub connect: bool,
    /// The connection was closed or reset before there was a response.
    pub reset: bool,
    /// No response in time.
    pub timeout: bool,
    /// Responses with these status codes.
    pub status: Statuses,
    /// Calls of gRPC that end with these statuses.
    pub grpc: grpc::Statuses,
}

impl RetryOn {
    /// Nothing is retried.
    pub fn none() -> Self {
        let (status, grpc) = (Statuses::default(), grpc::Statuses::default());
        Self { connect: false, reset: false, timeout: false, status, grpc }
    }
}

impl Default for RetryOn {
    fn default() -> Self {
        Self { connect: true, reset: true, ..Self::none() }
    }
}
