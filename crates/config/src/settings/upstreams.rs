//! Servers that answer for the same routes: how one is chosen, watched, spared, and how often a request is repeated.

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

use super::shaping::{Bandwidths, Link};
use crate::tls::UpstreamTls;

/// Servers that answer for the same routes.
#[derive(Debug, Clone, PartialEq)]
pub struct Upstream {
    /// The name in the file.
    pub name: String,
    /// At least one.
    pub servers: Vec<Server>,
    /// What a server's name that has several addresses stands for.
    pub dns: Dns,
    /// How one of the servers is picked.
    pub balance: &'static PolicyRow,
    /// What requests are spread by, for policies that hash.
    pub hash_key: Source,
    /// The rules of its fleet: slow start, priorities, ejection, circuits.
    pub settings: Settings,
    /// What keeps a client on one server.
    pub sticky: Option<StickySessions>,
    /// Requests that wait while all servers have as many as they may have.
    pub queue: QueueSettings,
    /// How servers are checked; `None` is not at all.
    pub check: Option<Check>,
    /// Which requests are tried once more.
    pub retry: Retry,
    /// How many of them, as a share of requests.
    pub retry_budget: RetrySettings,
    /// Which Host header the servers see.
    pub host: HostHeader,
    /// What is spoken with the servers.
    pub protocol: Protocol,
    /// A PROXY header of this version begins each connection to a server, which then serves one client only.
    pub send_proxy_protocol: Option<ProxyVersion>,
    /// How `https` servers are verified, and what is shown to them.
    pub tls: UpstreamTls,
    /// Connections kept to each server.
    pub pool: Pool,
    /// How fast bodies pass, to and from all of the servers together.
    pub bandwidths: Bandwidths,
    /// What its servers are behind.
    pub link: Link,
}

impl Upstream {
    /// These servers, with everything at its default.
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

    /// Outliers are ejected and return slowly; circuits are for those who ask for them.
    pub(crate) fn default_settings() -> Settings {
        Settings {
            slow_start: Duration::from_secs(10),
            ejection: Some(EjectionSettings::default()),
            ..Settings::default()
        }
    }
}

/// One server of an upstream: `http://HOST[:PORT]`, `https://HOST[:PORT]`, `tcp://HOST:PORT` or `http+unix:/PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// What it is called in logs, metrics and sessions; `None` is its URL. Unique in its upstream.
    pub name: Option<String>,
    /// How it is spoken to.
    pub scheme: Scheme,
    /// Address or name.
    pub host: ServerHost,
    /// The scheme's unless written; 0 for a Unix socket.
    pub port: u16,
    /// Share of requests relative to the other servers, 1 to 1000.
    pub weight: u32,
    /// Servers of the lowest number are used first; the others where too few of these are up.
    pub priority: u16,
    /// The most requests that may be under way with it, over all workers; where its name stands for several servers, with
    /// each of them. `None` is no limit.
    pub max_requests: Option<NonZeroU32>,
}

/// How a server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheme {
    /// HTTP without TLS.
    #[default]
    Http,
    /// HTTP through TLS.
    Https,
    /// Bytes, of listeners with `tcp` alone. Those may use servers of the other schemes as well.
    Tcp,
}

/// A server's address, or a name to resolve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerHost {
    /// Connected to as it is.
    Address(IpAddr),
    /// Resolved, and resolved again when its records expire.
    Name(String),
    /// A socket in the file system. Its Host is `localhost`.
    Unix(PathBuf),
}

/// What a name that has several addresses stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dns {
    /// As many servers, which come and go with its records. Of a name with addresses of both families those of IPv4
    /// count: a machine that has one of each is one server.
    #[default]
    All,
    /// One server: its addresses are tried in turn, IPv4 first.
    One,
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
    /// Idle connections kept for reuse, at most: how many there are follows from how many were in use lately.
    pub idle: usize,
    /// Connections in all, busy ones included; beyond it requests get 503.
    pub connections: usize,
    /// An idle connection is closed after this long.
    pub idle_timeout: Duration,
}

impl Default for Pool {
    fn default() -> Self {
        Self { idle: 16_384, connections: 16_384, idle_timeout: Duration::from_secs(60) }
    }
}

/// Requests that wait for a server with room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSettings {
    /// How many may wait with each worker; those beyond get 503. 0 is no queue.
    pub length: usize,
    /// How long; then 503.
    pub timeout: Duration,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self { length: 1024, timeout: Duration::from_secs(1) }
    }
}

/// What keeps a client on one server.
#[derive(Debug, Clone, PartialEq)]
pub enum StickySessions {
    /// A signed cookie that the proxy inserts, which names the server.
    Cookie(StickyCookie),
    /// A table from what requests show to servers.
    Table(StickyTable),
}

/// The cookie that the proxy inserts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StickyCookie {
    /// Its name.
    pub name: String,
    /// How long a session lasts without a request; `None` for as long as the browser is open.
    pub ttl: Option<Duration>,
    /// What browsers are told about it.
    pub attributes: CookieAttributes,
    /// What signs it; `None` is a secret made at each start.
    pub secrets: Option<CookieSecrets>,
}

/// What signs cookies. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct CookieSecrets {
    /// The file that they were read from.
    pub file: PathBuf,
    /// The first one signs; all are accepted. At least one, each of 32 bytes or more.
    pub secrets: Arc<[Box<[u8]>]>,
}

impl fmt::Debug for CookieSecrets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CookieSecrets({:?}, {} of them)", self.file, self.secrets.len())
    }
}

/// Sessions that the proxy remembers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StickyTable {
    /// What names a session. With a cookie, servers set it and it is learnt from their responses.
    pub source: Source,
    /// How long a session lasts without a request.
    pub ttl: Duration,
    /// How many are remembered; the one used least recently makes room.
    pub sessions_max: usize,
}

/// How servers are checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// How checks follow each other.
    pub settings: CheckSettings,
    /// From the beginning of one to its end; then it has failed.
    pub timeout: Duration,
    /// The port that is asked; `None` is that of the server.
    pub port: Option<u16>,
    /// What is asked.
    pub probe: Probe,
}

impl Check {
    /// How long a check takes at most, unless written.
    pub const TIMEOUT: Duration = Duration::from_secs(1);
}

/// What a check does. Through TLS where the server is `https`.
#[derive(Debug, Clone, PartialEq)]
pub enum Probe {
    /// A GET, in the upstream's protocol.
    Http {
        /// Path and query.
        path: String,
        /// The Host header; `None` is that of the server.
        host: Option<String>,
        /// The statuses of a server that is well.
        status: Statuses,
        /// Fields that its answer has; each name with at least one field line whose value passes.
        headers: Vec<(String, ValueRule)>,
        /// What its answer's body is like, of which the first 64 KiB are looked at.
        body: Option<BodyRule>,
    },
    /// A connection.
    Tcp,
    /// A connection and a handshake, with a server of any scheme.
    Tls,
    /// grpc.health.v1.Health/Check.
    Grpc {
        /// The service that is asked about; empty is the server as a whole.
        service: String,
    },
    /// A program that ends with 0. It is told about the server by VANWARD_SERVER, VANWARD_HOST, VANWARD_ADDRESS and
    /// VANWARD_PORT.
    Command {
        /// The program and its arguments. At least one.
        command: Vec<String>,
    },
}

/// What a body has to be like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyRule {
    /// These bytes are in it.
    Contains(String),
    /// The pattern matches all of it.
    Pattern(Pattern),
}

impl BodyRule {
    /// Whether a body is like that.
    pub fn passes(&self, body: &[u8]) -> bool {
        match self {
            Self::Contains(text) => {
                text.is_empty() || body.windows(text.len()).any(|window| window == text.as_bytes())
            }
            Self::Pattern(pattern) => pattern.matches(body),
        }
    }
}

/// Statuses of responses, in ranges within 100 to 599.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statuses(pub(crate) Vec<RangeInclusive<u16>>);

impl Statuses {
    /// 200 to 299.
    pub fn successful() -> Self {
        Self(vec![200..=299])
    }

    /// These.
    pub fn of(statuses: impl IntoIterator<Item = u16>) -> Self {
        Self(statuses.into_iter().map(|status| status..=status).collect())
    }

    /// Whether a status is one of them.
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Which requests are tried once more, with another server where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// After what.
    pub on: RetryOn,
    /// How often a request is tried in all; 1 is once.
    pub attempts: u32,
    /// No attempt begins later than this after the first one.
    pub within: Duration,
    /// Whether what may be done twice by this is repeated too: methods that are not idempotent (RFC 9110 §9.2.2), after a
    /// server may have seen them.
    pub non_idempotent: bool,
}

impl Default for Retry {
    fn default() -> Self {
        Self { on: RetryOn::default(), attempts: 3, within: Duration::from_secs(10), non_idempotent: false }
    }
}

/// After what a request is tried once more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryOn {
    /// No connection, or none in time: no server has seen the request.
    pub connect: bool,
    /// A connection that was closed or reset before there was a response.
    pub reset: bool,
    /// No response in time.
    pub timeout: bool,
    /// These statuses.
    pub status: Statuses,
}

impl Default for RetryOn {
    fn default() -> Self {
        Self { connect: true, reset: true, timeout: false, status: Statuses::default() }
    }
}
