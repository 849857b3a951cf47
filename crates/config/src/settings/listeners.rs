//! Settings of listeners: addresses and protocols.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use route::Split;

use super::shaping::{Bandwidths, DatagramRates, Link};
use crate::tls::{Hsts, ListenerTls};

/// A listener: an address that clients connect to.
#[derive(Debug, Clone, PartialEq)]
pub struct Listener {
    /// The name in routes, logs and metrics; by default the address. Unique.
    pub name: String,
    /// The address.
    pub address: ListenAddress,
    /// Networks whose connections must start with a PROXY header, of version 1 or 2. Connections from others never have
    /// one. Empty turns it off. Peers of a Unix socket count as 127.0.0.1.
    pub proxy_protocol: Vec<IpNet>,
    /// Passes on all bytes without HTTP to this upstream, an index into `Settings::upstreams`. Routes are then ignored,
    /// `http2` is meaningless, and `redirect_to_https` and `hsts` are not allowed.
    pub tcp: Option<usize>,
    /// TLS that is passed on as it is, by the name that the client asks for; all other connections are for `tls`, or else
    /// for `tcp`.
    pub passthrough: Vec<Passthrough>,
    /// TLS with these certificates: HTTPS, or around what `tcp` passes on; `None` means no TLS.
    pub tls: Option<ListenerTls>,
    /// Redirects every request to its `https` URL with 308; never together with `tls`.
    pub redirect_to_https: bool,
    /// Strict-Transport-Security in every response; only together with `tls`.
    pub hsts: Option<Hsts>,
    /// Whether HTTP/2 is spoken besides HTTP/1.1: by ALPN with `tls`, otherwise by prior knowledge.
    pub http2: bool,
    /// Whether HTTP/3 is spoken at the same port of UDP; only together with `tls`.
    pub http3: bool,
    /// Bandwidth limits on bodies, or on what `tcp` passes on.
    pub bandwidths: Bandwidths,
    /// The emulated network link of the clients.
    pub link: Link,
    /// Rates of datagrams; only together with `http3`.
    pub datagram_rates: DatagramRates,
    /// Whether its clients are other instances (`CachePeers`). It is in no file.
    pub is_for_peers: bool,
}

/// TLS that is passed on as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passthrough {
    /// The server names (SNI) in lower case, with wildcards such as `*.example.com`, or `*` for all.
    pub names: Vec<String>,
    /// Only clients that offer one of these protocols (ALPN); empty means all.
    pub protocols: Vec<String>,
    /// Where to, shares of `Settings::upstreams`.
    pub to: Split,
}

impl Passthrough {
    /// The upstreams that get connections, as indices into `Settings::upstreams`.
    pub fn upstreams(&self) -> impl Iterator<Item = usize> {
        self.to.shares().map(|(upstream, _)| upstream)
    }
}

impl Listener {
    /// An HTTP listener at a TCP address, with defaults.
    pub fn plain(address: SocketAddr) -> Self {
        Self::at(ListenAddress::Tcp(address))
    }

    /// An HTTP listener at any kind of address, with defaults.
    pub fn at(address: ListenAddress) -> Self {
        Self {
            name: address.to_string(),
            address,
            proxy_protocol: Vec::new(),
            tcp: None,
            passthrough: Vec::new(),
            tls: None,
            redirect_to_https: false,
            hsts: None,
            http2: true,
            http3: false,
            bandwidths: Bandwidths::default(),
            link: Link::default(),
            datagram_rates: DatagramRates::default(),
            is_for_peers: false,
        }
    }
}

/// The address of a listener.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// A TCP address; port 0 lets the kernel choose. `[::]` takes IPv6 only.
    Tcp(SocketAddr),
    /// All addresses of the machine, IPv4 and IPv6, at this port.
    Any(u16),
    /// A Unix socket in the file system.
    Unix(PathBuf),
}

impl ListenAddress {
    /// The TCP address, if there is one; `[::]` for all addresses of both families.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Any(port) => Some(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), *port)),
            Self::Unix(_) => None,
        }
    }

    /// The IP address; for a Unix socket, the loopback address.
    pub fn ip(&self) -> IpAddr {
        self.tcp().map_or(Ipv4Addr::LOCALHOST.into(), |address| address.ip())
    }

    /// The port, if there is one.
    pub fn port(&self) -> Option<u16> {
        self.tcp().map(|address| address.port())
    }
}

impl ListenAddress {
    /// Whether the listener is for all addresses, but takes only IPv6.
    pub fn is_ipv6_alone(&self) -> bool {
        matches!(self, Self::Tcp(SocketAddr::V6(address)) if address.ip().is_unspecified())
    }

    /// Which address families the listener takes: IPv4, IPv6.
    pub fn families(&self) -> [bool; 2] {
        match self {
            Self::Tcp(address) => [address.is_ipv4(), address.is_ipv6()],
            Self::Any(_) => [true, true],
            Self::Unix(_) => [false, false],
        }
    }
}

/// Writes the address as in a file.
impl fmt::Display for ListenAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(formatter, "{address}"),
            Self::Any(port) => write!(formatter, "*:{port}"),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}
