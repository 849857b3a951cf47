//! Settings of upstreams: servers, load balancing, health checks, sessions, pools and retries.

use std::time::Duration;

use balance::{
    AddressPrefixes, CheckSettings, CookieAttributes, EjectionSettings, FleetSettings, PolicyRow,
    RetrySettings, SessionSource,
};
use route::{BytePattern, ProxyVersion, ValueRule};

use crate::option::bandwidth::Bandwidths;
use crate::option::named_file::CookieSecrets;
use crate::option::server::Server;
use crate::option::statuses::Statuses;
use crate::tables::redis::SharedSecret;
use crate::tables::shaping::Link;
use crate::tables::tls::UpstreamTls;
pub use crate::tables::upstream::fastcgi::Fastcgi;

/// Options of upstreams.
pub(crate) mod options;
/// Scripts of FastCGI applications.
pub(crate) mod fastcgi;
/// Checks and converts the options of upstreams.
pub(crate) mod resolve;
/// Rules between the options of an upstream.
pub(crate) mod relations;
/// Options of retries.
pub(crate) mod retry;
/// Options of sticky sessions.
pub(crate) mod sticky;
/// Options of health checks, ejection and circuit breakers.
pub(crate) mod watch;

/// An upstream: servers that serve the same routes.
#[derive(Debug, Clone, PartialEq)]
pub struct Upstream {
    /// The name in the file.
    pub name: String,
    /// The servers, at least one.
    pub servers: Vec<Server>,
    /// The treatment of a server name with several addresses.
    pub dns: Dns,
    pub balance: &'static PolicyRow,
    /// The key that requests are hashed by, for policies that hash.
    pub hash_key: SessionSource,
    /// Rules of the fleet: slow start, priorities, ejection, circuit breakers.
    pub settings: FleetSettings,
    pub sticky: Option<StickySessions>,
    /// The wait queue for servers at their limit.
    pub queue: QueueSettings,
    /// Health checks; `None` turns them off.
    pub check: Option<Check>,
    /// Which requests are retried.
    pub retry: Retry,
    pub retry_budget: RetrySettings,
    /// The Host header for servers.
    pub host: HostHeader,
    /// The protocol spoken with servers.
    pub protocol: Protocol,
    /// The scripts of `fcgi` servers. There are settings with that protocol, and with no other.
    pub fastcgi: Option<Fastcgi>,
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
    /// Extension of the scripts that its servers run, if they do.
    pub fn scripts(&self) -> Option<&str> {
        self.fastcgi.as_ref().map(|scripts| scripts.split.as_str())
    }

    /// An upstream with these servers, and defaults for the rest.
    pub fn from_name(name: &str, servers: Vec<Server>) -> Self {
        Self {
            name: name.to_owned(),
            servers,
            dns: Dns::default(),
            balance: balance::DEFAULT,
            hash_key: SessionSource::ClientAddress(AddressPrefixes::default()),
            settings: Self::default_settings(),
            sticky: None,
            queue: QueueSettings::default(),
            check: None,
            retry: Retry::default(),
            retry_budget: RetrySettings::default(),
            host: HostHeader::default(),
            protocol: Protocol::default(),
            fastcgi: None,
            send_proxy_protocol: None,
            tls: UpstreamTls::default(),
            pool: Pool::default(),
            bandwidths: Bandwidths::default(),
            link: Link::default(),
        }
    }

    /// The default rules: outliers are ejected and return slowly, and circuit breakers are off.
    pub(crate) fn default_settings() -> FleetSettings {
        FleetSettings {
            slow_start: Duration::from_secs(10),
            ejection: Some(EjectionSettings::default()),
            ..FleetSettings::default()
        }
    }
}

/// The treatment of a server name with several addresses.
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
    Set(String),
}

/// The protocol spoken with the servers of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    #[default]
    Http1,
    /// HTTP/2: by ALPN with `https` servers, by prior knowledge with others.
    Http2,
    /// HTTP/3, of `https` servers only.
    Http3,
    /// FastCGI, of `fcgi` servers only: the scheme says so, and no option.
    Fastcgi,
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

/// The way to keep a client on one server.
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
    pub name: String,
    /// How long a session lasts without a request; `None` means until the browser is closed.
    pub ttl: Option<Duration>,
    pub attributes: CookieAttributes,
    /// The secrets for signatures; `None` means a new secret at each start.
    pub secrets: Option<CookieSecrets>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StickyTable {
    /// The session key. For a cookie, the proxy learns it from the Set-Cookie of responses.
    pub source: SessionSource,
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
    pub settings: CheckSettings,
    /// The time after which a check fails.
    pub timeout: Duration,
    /// The port to check; `None` means the server's port.
    pub port: Option<u16>,
    /// The action of a check.
    pub probe: Probe,
}

impl Check {
    pub const TIMEOUT: Duration = Duration::from_secs(1);
}

/// The action of a health check. Through TLS if the server is `https`.
#[derive(Debug, Clone, PartialEq)]
pub enum Probe {
    /// Sends a GET, in the upstream's protocol.
    Http {
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
    Pattern(BytePattern),
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
