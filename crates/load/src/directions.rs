//! Targets of connections: the addresses of a URL's host, unless `--resolve`, `--connect-to` or `--unix-socket`
//! override them, with the same meaning as in curl.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use crate::error::Error;
use crate::plan;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DialAddress {
    Ip(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for DialAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(formatter),
            Self::Unix(path) => path.display().fmt(formatter),
        }
    }
}

/// The directions of a plan, parsed.
#[derive(Debug, Default)]
pub(crate) struct DialDirections {
    resolve: Vec<Resolve>,
    connect_to: Vec<ConnectTo>,
    unix_socket: Option<PathBuf>,
}

/// `HOST:PORT:ADDRESS[,ADDRESS]`: the addresses of a host at a port.
#[derive(Debug, PartialEq, Eq)]
struct Resolve {
    /// `*` for every host.
    host: String,
    port: u16,
    addresses: Vec<IpAddr>,
}

/// `HOST:PORT:OTHER:OTHER`: another host and port. Empty HOST or PORT match any; empty OTHER keeps the original.
#[derive(Debug, PartialEq, Eq)]
struct ConnectTo {
    host: String,
    port: Option<u16>,
    to_host: String,
    to_port: Option<u16>,
}

impl DialDirections {
    pub(crate) fn new(plan: &plan::ConnectTargets) -> Result<Self, Error> {
        let wrong = |what, value: &str, reason| Error::Direction { what, value: value.to_owned(), reason };
        let mut directions = Self { unix_socket: plan.unix_socket.clone(), ..Self::default() };
        for text in &plan.resolve {
            let read = Resolve::parse(text).map_err(|reason| wrong("--resolve", text, reason))?;
            directions.resolve.push(read);
        }
        for text in &plan.connect_to {
            let read = ConnectTo::parse(text).map_err(|reason| wrong("--connect-to", text, reason))?;
            directions.connect_to.push(read);
        }
        Ok(directions)
    }

    /// Whether the addresses of a host and port come from a name server.
    pub(crate) fn is_name(&self, host: &str, port: u16) -> bool {
        let (host, port) = self.connected(host, port);
        self.unix_socket.is_none() && self.fixed(host, port).is_none() && host.parse::<IpAddr>().is_err()
    }

    /// The host and port to connect to.
    fn connected<'h>(&'h self, host: &'h str, port: u16) -> (&'h str, u16) {
        let is_meant = |to: &&ConnectTo| {
            (to.host.is_empty() || to.host.eq_ignore_ascii_case(host))
                && to.port.is_none_or(|meant| meant == port)
        };
        match self.connect_to.iter().find(is_meant) {
            None => (host, port),
            Some(to) => (if to.to_host.is_empty() { host } else { &to.to_host }, to.to_port.unwrap_or(port)),
        }
    }

    /// The entry of `--resolve` for a host and port.
    fn fixed(&self, host: &str, port: u16) -> Option<&Resolve> {
        let named = |to: &&Resolve| to.port == port && to.host.eq_ignore_ascii_case(host);
        let any = |to: &&Resolve| to.port == port && to.host == "*";
        self.resolve.iter().rfind(named).or_else(|| self.resolve.iter().rfind(any))
    }

    /// Addresses of a host and port, at least one.
    pub(crate) fn addresses(&self, host: &str, port: u16) -> Result<Vec<DialAddress>, Error> {
        if let Some(path) = &self.unix_socket {
            return Ok(vec![DialAddress::Unix(path.clone())]);
        }
        let (host, port) = self.connected(host, port);
        if let Some(to) = self.fixed(host, port) {
            return Ok(to.addresses.iter().map(|ip| DialAddress::Ip(SocketAddr::new(*ip, port))).collect());
        }
        let told = || format!("{host}:{port}");
        let found = (host, port).to_socket_addrs();
        let found: Vec<DialAddress> =
            found.map_err(|source| Error::Resolve { host: told(), source })?.map(DialAddress::Ip).collect();
        if found.is_empty() {
            return Err(Error::Resolve { host: told(), source: std::io::ErrorKind::NotFound.into() });
        }
        Ok(found)
    }
}

impl Resolve {
    fn parse(text: &str) -> Result<Self, &'static str> {
        // curl's + limits how long it keeps the address; a run always keeps it.
        let text = text.strip_prefix('+').unwrap_or(text);
        let (host, rest) = host(text).ok_or(EXPECTED_RESOLVE)?;
        let (port, addresses) = rest.split_once(':').ok_or(EXPECTED_RESOLVE)?;
        let port = number(port).ok_or("the port is not a number from 1 to 65535")?;
        let ip = |text: &str| bare(text.trim()).parse::<IpAddr>();
        let addresses = addresses.split(',').map(ip).collect::<Result<Vec<_>, _>>();
        let addresses =
            addresses.map_err(|_| "the text after the port is not an IP address; names need --connect-to")?;
        Ok(Self { host: host.to_owned(), port, addresses })
    }
}

impl ConnectTo {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (host_of, rest) = host(text).ok_or(EXPECTED_CONNECT_TO)?;
        let (port, rest) = rest.split_once(':').ok_or(EXPECTED_CONNECT_TO)?;
        let (to_host, to_port) = host(rest).ok_or(EXPECTED_CONNECT_TO)?;
        let optional = |digits: &str| match digits {
            "" => Ok(None),
            digits => number(digits).map(Some).ok_or("a port is not a number from 1 to 65535"),
        };
        Ok(Self {
            host: host_of.to_owned(),
            port: optional(port)?,
            to_host: to_host.to_owned(),
            to_port: optional(to_port)?,
        })
    }
}

const EXPECTED_RESOLVE: &str = "write HOST:PORT:ADDRESS[,ADDRESS], such as example.com:443:127.0.0.1";
const EXPECTED_CONNECT_TO: &str =
    "write HOST:PORT:OTHER:PORT, such as example.com:443:localhost:8443; any part may be empty";

/// The host before the next colon, without the brackets of an IPv6 address, and the rest.
fn host(text: &str) -> Option<(&str, &str)> {
    match text.strip_prefix('[') {
        Some(bracketed) => {
            let (host, rest) = bracketed.split_once(']')?;
            Some((host, rest.strip_prefix(':')?))
        }
        None => text.split_once(':'),
    }
}

fn bare(address: &str) -> &str {
    address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address)
}

fn number(digits: &str) -> Option<u16> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|port| is_number && *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(
        resolve: &[&str],
        connect_to: &[&str],
        host: &str,
        port: u16,
    ) -> Result<Vec<String>, String> {
        let owned = |texts: &[&str]| texts.iter().copied().map(str::to_owned).collect();
        let plan = plan::ConnectTargets {
            resolve: owned(resolve),
            connect_to: owned(connect_to),
            unix_socket: None,
            resolve_every_seconds: None,
        };
        let directions = DialDirections::new(&plan).map_err(|error| error.to_string())?;
        let found = directions.addresses(host, port).map_err(|error| error.to_string())?;
        Ok(found.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn hosts_are_led_elsewhere_as_by_curl() {
        type Case =
            (&'static [&'static str], &'static [&'static str], (&'static str, u16), &'static [&'static str]);
        let cases: [Case; 10] = [
            (&[], &[], ("127.0.0.1", 80), &["127.0.0.1:80"]),
            (&["a:80:127.0.0.2"], &[], ("A", 80), &["127.0.0.2:80"]),
            (&["a:80:127.0.0.2,[::1], ::2"], &[], ("a", 80), &["127.0.0.2:80", "[::1]:80", "[::2]:80"]),
            (&["*:80:127.0.0.2", "a:80:127.0.0.3"], &[], ("a", 80), &["127.0.0.3:80"]),
            (&["*:80:127.0.0.2"], &[], ("b", 80), &["127.0.0.2:80"]),
            (&["+a:80:127.0.0.2"], &["b::a:"], ("b", 80), &["127.0.0.2:80"]),
            (&[], &["a:443:127.0.0.1:8443"], ("a", 443), &["127.0.0.1:8443"]),
            (&[], &["::127.0.0.5:"], ("a", 9), &["127.0.0.5:9"]),
            (&[], &["127.0.0.1:80::81"], ("127.0.0.1", 80), &["127.0.0.1:81"]),
            (&[], &["[::1]:1:[::2]:2"], ("::1", 1), &["[::2]:2"]),
        ];
        for (resolve, connect_to, (host, port), expected) in cases {
            let found = addresses(resolve, connect_to, host, port);
            assert_eq!(
                found,
                Ok(expected.iter().copied().map(str::to_owned).collect()),
                "{resolve:?} {connect_to:?}"
            );
        }
    }

    #[test]
    fn mistakes_are_named_with_the_flag() {
        for resolve in
            ["a", "a:80", "a:x:127.0.0.1", "a:0:127.0.0.1", "a:80:b", "a:80:", "-a:80", "[::1:80:1"]
        {
            let error = addresses(&[resolve], &[], "a", 80).expect_err(resolve);
            assert!(error.contains("--resolve"), "{error}");
        }
        for connect_to in ["a", "a:80", "a:80:b", "a:x:b:80", "a:80:b:0", "[::1:80:b:80"] {
            let error = addresses(&[], &[connect_to], "a", 80).expect_err(connect_to);
            assert!(error.contains("--connect-to"), "{error}");
        }
    }
}
