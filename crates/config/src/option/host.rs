//! Parses hosts, ports, listening addresses and networks.
//!
//! Nothing is resolved, and nothing ambiguous is repaired (`127.1`, `10.1.2.3/8`).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use ipnet::IpNet;

use crate::document::value_error::{HostProblem, ValueError, ValueFault};
use crate::option::kind::Text;
use crate::option::server::{ServerHost, socket_path};

/// The longest host name (RFC 1035 §2.3.4), without the root's dot.
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

/// Parses the TCP address of a single socket: `127.0.0.1:8080`, `[::1]:8080`. Port 0 lets the kernel choose.
///
/// `:8080` is none: every address of both families needs two sockets, which only listeners have ([`ListenAddress`]).
pub fn listen_address(text: &str) -> Result<SocketAddr, ValueError> {
    let written = text.trim();
    written.parse().map_err(|_| {
        let fault = if written.is_empty() {
            ValueFault::Empty
        } else {
            ValueFault::SocketAddress { written: written.to_owned(), nearest: meant_address(written) }
        };
        ValueError { fault, expected: LISTEN_ADDRESS }
    })
}

/// Parses any listener address: `127.0.0.1:8080`, `[::1]:8080`, `*:8080` or `:8080`, or `unix:/run/vanward.sock`.
impl FromStr for ListenAddress {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let refuse = |error: ValueError| ValueError { expected: ANY_LISTEN_ADDRESS, ..error };
        match text.trim().strip_prefix("unix:") {
            Some(path) => {
                socket_path(path).map(Self::Unix).map_err(|fault| ValueError { fault, expected: "" })
            }
            None => {
                let written = text.trim();
                let port = written.strip_prefix("*:").or_else(|| written.strip_prefix(':'));
                match port.filter(|port| port.bytes().all(|byte| byte.is_ascii_digit())).map(str::parse) {
                    Some(Ok(port)) => Ok(Self::Any(port)),
                    _ => listen_address(text).map(Self::Tcp),
                }
            }
        }
        .map_err(refuse)
    }
}

/// The expected form of any listener address.
pub(crate) const ANY_LISTEN_ADDRESS: &str = "an IP address with a port such as 127.0.0.1:8080 or [::1]:8080, *:8080 or :8080, or unix:/run/vanward.sock";

/// The expected form of a TCP listener address.
pub(crate) const LISTEN_ADDRESS: &str = "an IP address with a port such as 127.0.0.1:8080 or [::]:8080";

/// The address that `:8080`, `8080`, `localhost:8080`, `*:8080` or `::1` probably means.
fn meant_address(written: &str) -> Option<String> {
    if let Ok(address) = written.parse::<IpAddr>() {
        return Some(SocketAddr::new(address, 8080).to_string());
    }
    let (host, port) = written.rsplit_once(':').unwrap_or(("", written));
    let port: u16 = port.parse().ok()?;
    let address: IpAddr = match host {
        "" | "*" => Ipv4Addr::UNSPECIFIED.into(),
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        other => other.parse::<Ipv6Addr>().ok()?.into(),
    };
    Some(SocketAddr::new(address, port).to_string())
}

/// Parses a network: `10.0.0.0/8`, `fd00::/8`, or a single address.
pub fn network(text: &str) -> Result<IpNet, ValueError> {
    let written = text.trim();
    let refuse = |fault| ValueError { fault, expected: NETWORK };
    if written.is_empty() {
        return Err(refuse(ValueFault::Empty));
    }
    if let Ok(address) = written.parse::<IpAddr>() {
        return Ok(IpNet::from(address.to_canonical()));
    }
    let network: IpNet = written.parse().map_err(|_| refuse(ValueFault::Network(written.to_owned())))?;
    let truncated = network.trunc();
    if network != truncated {
        return Err(refuse(ValueFault::HostBits { written: written.to_owned(), truncated }));
    }
    Ok(canonical(network))
}

/// RFC 4291 §2.5.5.2: a network of IPv4 addresses as those of IPv6 is one of IPv4, as which addresses are looked at.
fn canonical(network: IpNet) -> IpNet {
    const MAPPED_BITS: u8 = 96;
    let mapped = match (network.addr(), network.prefix_len().checked_sub(MAPPED_BITS)) {
        (IpAddr::V6(address), Some(bits)) => address.to_ipv4_mapped().map(|address| (address, bits)),
        _ => None,
    };
    mapped.and_then(|(address, bits)| IpNet::new(address.into(), bits).ok()).unwrap_or(network)
}

/// The expected form of a network.
pub(crate) const NETWORK: &str = "a network such as 10.0.0.0/8 or fd00::/8, or one address";

/// Parses the host of a route: a name or an address in lower case, in the form of a Host header without port.
pub(crate) fn route_host(text: &str) -> Result<String, ValueError> {
    let refuse = |fault| ValueError { fault, expected: ROUTE_HOST };
    // A request that names the root's dot is for the same host; here one spelling is enough.
    if text.ends_with('.') {
        return Err(refuse(host_fault(text, HostProblem::EmptyLabel)));
    }
    match host_and_port(text).map_err(refuse)? {
        (host, None) => Ok(host.to_string()),
        (_, Some(port)) => Err(refuse(ValueFault::HostPort(port))),
    }
}

/// The expected form of a route's exact host.
pub(crate) const ROUTE_HOST: &str = "a host name such as www.example.com, without port";

/// Parses the Host header for servers: `HOST[:PORT]`.
pub(crate) fn host_header(text: &str) -> Result<String, ValueError> {
    match host_and_port(text) {
        Ok((host, None)) => Ok(host.to_string()),
        Ok((host, Some(port))) => Ok(format!("{host}:{port}")),
        Err(fault) => Err(ValueError { fault, expected: HOST_HEADER }),
    }
}

/// The expected form of a Host header.
pub(crate) const HOST_HEADER: &str = "a host such as www.example.com or www.example.com:8080";

/// Parses the name that a server's certificate must have: a host name in lower case.
pub(crate) fn tls_name(text: &str) -> Result<String, ValueError> {
    let refuse = |fault| ValueError { fault, expected: TLS_NAME };
    match host_and_port(text).map_err(refuse)? {
        (ServerHost::Name(name), None) if !name.ends_with('.') => Ok(name),
        (ServerHost::Name(_), None) => Err(refuse(host_fault(text, HostProblem::EmptyLabel))),
        (
            ServerHost::Address(_) | ServerHost::Service(_) | ServerHost::Catalog(_) | ServerHost::Unix(_),
            None,
        ) => Err(refuse(host_fault(text, HostProblem::Address))),
        (_, Some(port)) => Err(refuse(ValueFault::HostPort(port))),
    }
}

/// Parses the name that clients ask for (SNI), or a wildcard for one label of it.
pub(crate) fn tls_pattern(text: &str) -> Result<String, ValueError> {
    let (start, name) = match text.strip_prefix("*.") {
        Some(name) => ("*.", name),
        None => ("", text),
    };
    let name = tls_name(name).map_err(|error| ValueError { expected: TLS_PATTERN, ..error })?;
    Ok(format!("{start}{}", name.to_ascii_lowercase()))
}

/// Parses which names clients ask for (SNI): one, `*.example.com` for one label more, or `**.example.com` for any number of
/// labels more.
pub(crate) fn deep_pattern(text: &str) -> Result<String, ValueError> {
    let (mark, pattern) = match text.strip_prefix("**.") {
        Some(name) => ("**.", tls_name(name).map(|name| name.to_ascii_lowercase())),
        None => ("", tls_pattern(text)),
    };
    let pattern = pattern.map_err(|error| ValueError { expected: DEEP_PATTERN, ..error })?;
    Ok(format!("{mark}{pattern}"))
}

/// Parses names like [`deep_pattern`], or `*` for all names and none.
pub(crate) fn names_pattern(text: &str) -> Result<String, ValueError> {
    match text {
        "*" => Ok(text.to_owned()),
        _ => deep_pattern(text).map_err(|error| ValueError { expected: NAMES_PATTERN, ..error }),
    }
}

/// The expected form of names without `*`.
pub(crate) const DEEP_PATTERN: &str =
    "a host name such as www.example.com, *.example.com or **.example.com, without port";

/// The expected form of names that clients ask for.
pub(crate) const NAMES_PATTERN: &str =
    "a host name such as www.example.com, *.example.com or **.example.com, or \"*\"";

/// The expected form of a name that clients ask for.
pub(crate) const TLS_PATTERN: &str = "a host name such as www.example.com or *.example.com, without port";

/// The expected form of the name in a server's certificate.
pub(crate) const TLS_NAME: &str = "a host name such as www.example.com, without port";

/// Parses `HOST[:PORT]`: a name, an IPv4 address, or an IPv6 address in brackets.
pub(crate) fn host_and_port(text: &str) -> Result<(ServerHost, Option<u16>), ValueFault> {
    if let Some(rest) = text.strip_prefix('[') {
        let not_an_address = || host_fault(text, HostProblem::NotAnIpv6Address);
        let (inside, rest) = rest.split_once(']').ok_or_else(not_an_address)?;
        let address: Ipv6Addr = inside.parse().map_err(|_| not_an_address())?;
        let port = match rest.strip_prefix(':') {
            Some(written) => Some(port(written)?),
            None if rest.is_empty() => None,
            None => return Err(not_an_address()),
        };
        return Ok((ServerHost::Address(address.into()), port));
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Err(ValueFault::Unbracketed(text.to_owned()));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, written)) => (host, Some(port(written)?)),
        None => (text, None),
    };
    Ok((name_or_ipv4(host)?, port))
}

/// Digits only: `parse` alone would take `+80`.
fn port(text: &str) -> Result<u16, ValueFault> {
    let number: Option<u16> =
        if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None };
    number.filter(|number| *number != 0).ok_or_else(|| ValueFault::Port(text.to_owned()))
}

fn name_or_ipv4(host: &str) -> Result<ServerHost, ValueFault> {
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return Ok(ServerHost::Address(address.into()));
    }
    // One dot at the end is the root: it keeps a resolver from trying its search list.
    let labels = host.strip_suffix('.').unwrap_or(host);
    match name_problem(labels) {
        Some(problem) => Err(host_fault(host, problem)),
        None => Ok(ServerHost::Name(host.to_ascii_lowercase())),
    }
}

fn name_problem(name: &str) -> Option<HostProblem> {
    if name.is_empty() {
        return Some(HostProblem::Empty);
    }
    if name.len() > LONGEST_NAME {
        return Some(HostProblem::TooLong);
    }
    if let Some(problem) = name.split('.').find_map(label_problem) {
        return Some(problem);
    }
    // WHATWG URL §3.5 and RFC 3986 §3.2.2: what ends in a number is read as an address by some and as a name by others.
    let last = name.rsplit('.').next().unwrap_or(name);
    last.bytes().all(|byte| byte.is_ascii_digit()).then_some(HostProblem::NotAnAddress)
}

fn label_problem(label: &str) -> Option<HostProblem> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if label.is_empty() {
        Some(HostProblem::EmptyLabel)
    } else if !label.is_ascii() {
        Some(HostProblem::International)
    } else if label.contains('*') {
        Some(HostProblem::Wildcard)
    } else if !label.bytes().all(allowed) {
        Some(HostProblem::Character)
    } else if label.len() > LONGEST_LABEL {
        Some(HostProblem::LongLabel)
    } else if label.starts_with('-') || label.ends_with('-') {
        Some(HostProblem::Hyphen)
    } else {
        None
    }
}

fn host_fault(host: &str, problem: HostProblem) -> ValueFault {
    ValueFault::Host { host: host.to_owned(), problem }
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

pub(crate) const NETWORK_KIND: Text<IpNet> =
    Text { expected: NETWORK, read: network, print: IpNet::to_string };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_addresses() {
        for text in ["127.0.0.1:8080", "[::1]:0", "0.0.0.0:65535"] {
            assert_eq!(listen_address(text).map(|address| address.to_string()), Ok(text.to_owned()));
        }
        for (text, nearest) in [
            (":8080", Some("0.0.0.0:8080")),
            ("8080", Some("0.0.0.0:8080")),
            ("*:80", Some("0.0.0.0:80")),
            ("localhost:80", Some("127.0.0.1:80")),
            ("127.0.0.1", Some("127.0.0.1:8080")),
            ("::1", Some("[::1]:8080")),
            ("example.com:80", None),
            ("127.0.0.1:80800", None),
        ] {
            let error = listen_address(text).unwrap_err();
            let nearest = nearest.map(str::to_owned);
            assert_eq!(
                error.fault,
                ValueFault::SocketAddress { written: text.to_owned(), nearest },
                "{text}"
            );
        }
    }

    #[test]
    fn a_listener_may_have_a_port_alone() {
        for (text, port) in [(":443", 443), ("*:443", 443), (" :8080 ", 8080), (":0", 0), (":00443", 443)] {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!(
                (address.to_string(), address.families()),
                (format!("*:{port}"), [true, true]),
                "{text}"
            );
            assert_eq!(address, ListenAddress::Any(port));
        }
        for text in [":", "*", "*:", ":+80", ": 80", ":80800", "::80", ":80:", ":http"] {
            let error = text.parse::<ListenAddress>().unwrap_err();
            assert_eq!(error.expected, ANY_LISTEN_ADDRESS, "{text}");
        }
    }

    #[test]
    fn networks() {
        for (text, read) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("fd00::/8", "fd00::/8"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("::1", "::1/128"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:192.0.2.7", "192.0.2.7/32"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(network(text).map(|network| network.to_string()), Ok(read.to_owned()));
        }
        for text in ["10.0.0.0/33", "10.0.0/8", "private", "10.0.0.0/"] {
            assert_eq!(network(text).unwrap_err().fault, ValueFault::Network(text.to_owned()));
        }
        assert_eq!(
            network("10.1.2.3/8").unwrap_err().to_string(),
            "10.1.2.3/8 has address bits beyond its prefix length; did you mean \"10.0.0.0/8\"? Expected a \
             network such as 10.0.0.0/8 or fd00::/8, or one address"
        );
    }

    #[test]
    fn hosts_of_routes_and_headers() {
        for (text, host) in [
            ("WWW.Example.com", "www.example.com"),
            ("192.0.2.1", "192.0.2.1"),
            ("[2001:DB8::1]", "[2001:db8::1]"),
        ] {
            assert_eq!(route_host(text), Ok(host.to_owned()));
            assert_eq!(host_header(&format!("{text}:8080")), Ok(format!("{host}:8080")));
        }
        assert_eq!(route_host("a.example:80").unwrap_err().fault, ValueFault::HostPort(80));
        assert_eq!(
            route_host("a.example.").unwrap_err().fault,
            host_fault("a.example.", HostProblem::EmptyLabel)
        );
    }

    #[test]
    fn names_that_are_refused() {
        let long_label = "a".repeat(64);
        let long_name = "abc.".repeat(64);
        for (host, problem) in [
            ("", HostProblem::Empty),
            (".", HostProblem::Empty),
            ("a..b", HostProblem::EmptyLabel),
            (".a", HostProblem::EmptyLabel),
            ("a..", HostProblem::EmptyLabel),
            ("-a", HostProblem::Hyphen),
            ("a-.b", HostProblem::Hyphen),
            ("a b", HostProblem::Character),
            ("a%b", HostProblem::Character),
            ("*.example.com", HostProblem::Wildcard),
            ("b\u{fc}cher.example", HostProblem::International),
            ("127.1", HostProblem::NotAnAddress),
            ("300.0.0.1", HostProblem::NotAnAddress),
            ("8080", HostProblem::NotAnAddress),
            (&long_label, HostProblem::LongLabel),
            (&long_name, HostProblem::TooLong),
            ("[::1", HostProblem::NotAnIpv6Address),
            ("[::1]x", HostProblem::NotAnIpv6Address),
            ("[fe80::1%eth0]", HostProblem::NotAnIpv6Address),
        ] {
            assert_eq!(host_and_port(host), Err(host_fault(host, problem)), "{host}");
        }
    }
}
