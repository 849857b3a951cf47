//! Where clients connect: addresses, and what is spoken there.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;

use super::shaping::{Bandwidths, Link};
use crate::tls::{Hsts, ListenerTls};

/// One address that clients connect to.
#[derive(Debug, Clone, PartialEq)]
pub struct Listener {
    /// What it is called in routes, logs and metrics: its address unless written. Unique.
    pub name: String,
    /// Where it is.
    pub address: ListenAddress,
    /// Networks whose connections begin with a PROXY header, of version 1 or 2, and are refused without one; those of
    /// others never do. None is off. Peers of a Unix socket count as 127.0.0.1.
    pub proxy_protocol: Vec<IpNet>,
    /// What arrives is passed on as it is, without a look at it, to this upstream: an index into `Settings::upstreams`. Then
    /// it has no `redirect_to_https` and no `hsts`, no route counts, and `http2` is meaningless.
    pub tcp: Option<usize>,
    /// HTTPS, or TLS around what `tcp` passes on, with these certificates; `None` is none.
    pub tls: Option<ListenerTls>,
    /// Every request is answered 308 to its `https` URL; never together with `tls`.
    pub redirect_to_https: bool,
    /// Strict-Transport-Security of every response; only together with `tls`.
    pub hsts: Option<Hsts>,
    /// Whether HTTP/2 is spoken beside HTTP/1.1: by ALPN with `tls`, else by prior knowledge.
    pub http2: bool,
    /// How fast bodies pass, or what `tcp` passes on.
    pub bandwidths: Bandwidths,
    /// What its clients are behind.
    pub link: Link,
}

impl Listener {
    /// HTTP, without anything that has to be asked for.
    pub fn plain(address: SocketAddr) -> Self {
        Self::at(ListenAddress::Tcp(address))
    }

    /// The same, at any kind of address.
    pub fn at(address: ListenAddress) -> Self {
        Self {
            name: address.to_string(),
            address,
            proxy_protocol: Vec::new(),
            tcp: None,
            tls: None,
            redirect_to_https: false,
            hsts: None,
            http2: true,
            bandwidths: Bandwidths::default(),
            link: Link::default(),
        }
    }
}

/// What a listener listens on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// An address of the machine; port 0 lets the kernel choose. `[::]` takes IPv6 alone.
    Tcp(SocketAddr),
    /// All addresses of the machine, of IPv4 and of IPv6, at this port.
    Any(u16),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl ListenAddress {
    /// The address, if it is one of TCP; that of both families is `[::]`.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Any(port) => Some(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), *port)),
            Self::Unix(_) => None,
        }
    }

    /// The address of the machine that it is; that of a Unix socket is the loopback's.
    pub fn ip(&self) -> IpAddr {
        self.tcp().map_or(Ipv4Addr::LOCALHOST.into(), |address| address.ip())
    }

    /// The port, if it has one.
    pub fn port(&self) -> Option<u16> {
        self.tcp().map(|address| address.port())
    }
}

impl ListenAddress {
    /// Whether it takes what comes by IPv6 alone, though it is for all addresses.
    pub fn is_ipv6_alone(&self) -> bool {
        matches!(self, Self::Tcp(SocketAddr::V6(address)) if address.ip().is_unspecified())
    }

    /// The families of addresses that it takes: IPv4, IPv6.
    pub fn families(&self) -> [bool; 2] {
        match self {
            Self::Tcp(address) => [address.is_ipv4(), address.is_ipv6()],
            Self::Any(_) => [true, true],
            Self::Unix(_) => [false, false],
        }
    }
}

/// As in the file.
impl fmt::Display for ListenAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(formatter, "{address}"),
            Self::Any(port) => write!(formatter, "*:{port}"),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}
