//! Parses server URLs: `http://HOST[:PORT]`, `https://HOST[:PORT]`, `tcp://HOST:PORT`, `http+srv://SERVICE`,
//! `http+consul://SERVICE[?tag=TAG&dc=DATACENTER]` (both also with `https+` and `tcp+`) or `http+unix:/PATH`, `fcgi` in place of `http`,
//! and nothing else.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;

use crate::document::value_error::{ValueError, ValueFault};
use crate::option::host::host_and_port;

/// The expected form of a server.
pub(crate) const SERVER: &str = "a server such as http://127.0.0.1:9000";
/// The expected form of a service of Consul.
const CATALOG_SERVER: &str =
    "a service such as http+consul://web?tag=v2&tag=eu&dc=eu-1, with up to 16 tags and a datacenter";

impl Scheme {
    /// The default port (RFC 9110 §4.2.1 and §4.2.2); `None` if there is none.
    pub fn default_port(self) -> Option<u16> {
        match self {
            Self::Http => Some(80),
            Self::Https => Some(443),
            Self::Tcp | Self::Fcgi => None,
        }
    }

    /// The scheme as in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Tcp => "tcp",
            Self::Fcgi => "fcgi",
        }
    }
}

impl Server {
    /// The authority, `HOST[:PORT]` without the default port of the scheme, as in the Host header of a client.
    pub fn authority(&self) -> String {
        let is_default = Some(self.port) == self.scheme.default_port();
        match &self.host {
            ServerHost::Unix(_) => "localhost".to_owned(),
            ServerHost::Service(name) | ServerHost::Catalog(CatalogService { name, .. }) => name.clone(),
            host if is_default => host.to_string(),
            host => format!("{host}:{}", self.port),
        }
    }

    /// The label of the server: its name, or its URL.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.to_string())
    }

    pub(crate) fn at(scheme: Scheme, host: ServerHost, port: u16) -> Self {
        Self { name: None, scheme, host, port, weight: 1, down: false, priority: 0, max_requests: None }
    }
}

/// Parses a URL. The weight is 1, and the other fields have their defaults.
impl FromStr for Server {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        server(text.trim()).map_err(|fault| {
            let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme).to_ascii_lowercase();
            let expected = if scheme.ends_with(CATALOG) { CATALOG_SERVER } else { SERVER };
            ValueError { fault, expected }
        })
    }
}

fn server(text: &str) -> Result<Server, ValueFault> {
    if text.is_empty() {
        return Err(ValueFault::Empty);
    }
    for (start, scheme) in UNIX {
        if let Some(path) = text.strip_prefix(start) {
            return socket_path(path).map(|path| Server::at(scheme, ServerHost::Unix(path), 0));
        }
    }
    let (scheme, rest) = text.split_once("://").ok_or_else(|| ValueFault::NoScheme(text.to_owned()))?;
    let with_end = |end: &str| {
        let (scheme, found) = scheme.split_at_checked(scheme.len().checked_sub(end.len())?)?;
        found.eq_ignore_ascii_case(end).then_some(scheme)
    };
    let (scheme, kind) = match (with_end(SERVICE), with_end(CATALOG)) {
        (Some(scheme), _) => (scheme, Kind::Service),
        (_, Some(scheme)) => (scheme, Kind::Catalog),
        (None, None) => (scheme, Kind::Host),
    };
    // RFC 3986 §3.1: schemes are case-insensitive.
    let scheme = [Scheme::Http, Scheme::Https, Scheme::Tcp, Scheme::Fcgi]
        .into_iter()
        .find(|known| scheme.eq_ignore_ascii_case(known.as_str()))
        .ok_or_else(|| ValueFault::UnknownScheme(scheme.to_owned()))?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    // RFC 3986 §6.2.3: an empty path and `/` are the same.
    let tail = tail.strip_prefix('/').filter(|rest| rest.is_empty() || rest.starts_with('?')).unwrap_or(tail);
    match tail.as_bytes() {
        [] => {}
        [b'?', ..] if kind == Kind::Catalog => {}
        [b'?', ..] => return Err(ValueFault::Query(tail.to_owned())),
        [b'#', ..] => return Err(ValueFault::Fragment(tail.to_owned())),
        _ => return Err(ValueFault::Path(tail.to_owned())),
    }
    if authority.contains('@') {
        return Err(ValueFault::UserInformation);
    }
    let (host, port) = host_and_port(authority)?;
    match kind {
        Kind::Service => {
            return service(host, port).map(|name| Server::at(scheme, ServerHost::Service(name), 0));
        }
        Kind::Catalog => {
            let service = catalog_service(service(host, port)?, tail.strip_prefix('?').unwrap_or_default())?;
            return Ok(Server::at(scheme, ServerHost::Catalog(service), 0));
        }
        Kind::Host => {}
    }
    let port = port.or(scheme.default_port()).ok_or_else(|| ValueFault::NoPort(text.to_owned()))?;
    Ok(Server::at(scheme, host, port))
}

/// The end of the scheme of a service in DNS, and of one of Consul.
const SERVICE: &str = "+srv";
const CATALOG: &str = "+consul";

/// The kind of authority in a URL.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Host,
    Service,
    Catalog,
}

/// The name of a service.
fn service(host: ServerHost, port: Option<u16>) -> Result<String, ValueFault> {
    match (host, port) {
        (ServerHost::Name(name), None) => Ok(name),
        (_, Some(port)) => Err(ValueFault::ServicePort(port)),
        (host, None) => Err(ValueFault::ServiceAddress(host.to_string())),
    }
}

/// Tags of one service.
const TAGS_MAX: usize = 16;

/// A service with the options of a query.
fn catalog_service(name: String, query: &str) -> Result<CatalogService, ValueFault> {
    let refuse =
        |written: &str, why| Err(ValueFault::Unknown { written: written.to_owned(), why, nearest: None });
    let mut service = CatalogService { name, tags: Vec::new(), datacenter: None };
    for option in query.split('&').filter(|_| !query.is_empty()) {
        match option.split_once('=') {
            Some(("tag" | "dc", value)) if !is_query_value(value) => {
                return refuse(option, "has no value, or one with characters that are written as %XX");
            }
            Some(("tag", _)) if service.tags.len() == TAGS_MAX => return refuse(option, "is a tag too many"),
            Some(("tag", tag)) => service.tags.push(tag.to_owned()),
            Some(("dc", _)) if service.datacenter.is_some() => {
                return refuse(option, "is a second datacenter");
            }
            Some(("dc", datacenter)) => service.datacenter = Some(datacenter.to_owned()),
            _ => return refuse(option, "is neither tag=TAG nor dc=DATACENTER"),
        }
    }
    Ok(service)
}

/// Characters that mean the same wherever they are in a query, and escapes (RFC 3986 §2.1 and §3.4).
fn is_query_value(value: &str) -> bool {
    let mut pieces = value.split('%');
    let is_plain =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~:/,".contains(&byte));
    let is_escape = |piece: &str| {
        let digits = piece.as_bytes().first_chunk::<2>();
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) && is_plain(piece)
    };
    !value.is_empty() && pieces.next().is_none_or(is_plain) && pieces.all(is_escape)
}

/// The beginnings of server URLs with a Unix socket. No slashes follow, because there is no authority.
const UNIX: [(&str, Scheme); 2] = [("http+unix:", Scheme::Http), ("fcgi+unix:", Scheme::Fcgi)];

/// Parses the path of a Unix socket. It must be absolute, and no longer than the system allows.
pub(crate) fn socket_path(path: &str) -> Result<PathBuf, ValueFault> {
    /// sun_path of Linux has 108 bytes, and a zero at its end.
    const LONGEST: usize = 107;
    if !path.starts_with('/') || path.starts_with("//") || path.ends_with('/') || path.contains('\0') {
        return Err(ValueFault::SocketPath(path.to_owned()));
    }
    if path.len() > LONGEST {
        Err(ValueFault::LongSocketPath(path.to_owned()))
    } else {
        Ok(PathBuf::from(path))
    }
}

/// Writes the URL, always with its port.
impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            ServerHost::Unix(path) => {
                write!(formatter, "{}+unix:{}", self.scheme.as_str(), path.display())
            }
            ServerHost::Service(name) => write!(formatter, "{}{SERVICE}://{name}", self.scheme.as_str()),
            ServerHost::Catalog(service) => {
                write!(formatter, "{}{CATALOG}://{service}", self.scheme.as_str())
            }
            host => write!(formatter, "{}://{host}:{}", self.scheme.as_str(), self.port),
        }
    }
}

/// Writes the host as in a URL: an IPv6 address is in brackets.
impl fmt::Display for ServerHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerHost::Address(std::net::IpAddr::V6(address)) => write!(formatter, "[{address}]"),
            ServerHost::Address(address) => write!(formatter, "{address}"),
            ServerHost::Name(name) | ServerHost::Service(name) => formatter.write_str(name),
            ServerHost::Catalog(service) => write!(formatter, "{service}"),
            ServerHost::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// A server of an upstream: `http://HOST[:PORT]`, `https://HOST[:PORT]`, `tcp://HOST:PORT`, `fcgi://HOST:PORT`,
/// `http+unix:/PATH` or `fcgi+unix:/PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The name in logs, metrics and sessions; `None` means the URL. Unique in its upstream.
    pub name: Option<String>,
    pub scheme: Scheme,
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
    #[default]
    Http,
    Https,
    /// Bytes, only for listeners with `tcp`, which may use servers of the other schemes as well.
    Tcp,
    /// FastCGI. An upstream has servers of this scheme alone, or none.
    Fcgi,
}

/// Address of a server, or the source that its addresses are resolved from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerHost {
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

/// A service of the catalog: which of its instances are servers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CatalogService {
    /// The name, in lower case: Consul makes no difference.
    pub name: String,
    /// Tags that an instance has all of, as they are written in a query of a URL.
    pub tags: Vec<String>,
    /// The datacenter; `None` means that of the agent.
    pub datacenter: Option<String>,
}

/// Writes `NAME?tag=TAG&dc=DATACENTER`.
impl fmt::Display for CatalogService {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)?;
        let tags = self.tags.iter().map(|tag| ("tag", tag));
        let options = tags.chain(self.datacenter.iter().map(|datacenter| ("dc", datacenter)));
        for (number, (option, value)) in options.enumerate() {
            let mark = if number == 0 { '?' } else { '&' };
            write!(formatter, "{mark}{option}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::value_error::HostProblem;

    #[test]
    fn servers() {
        for (text, url) in [
            ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
            ("http://127.0.0.1:9000/", "http://127.0.0.1:9000"),
            ("http://127.0.0.1", "http://127.0.0.1:80"),
            ("HTTP://App.Example", "http://app.example:80"),
            ("http://app_1:8080", "http://app_1:8080"),
            ("http://app.example.:8080", "http://app.example.:8080"),
            ("http://[::1]:9000", "http://[::1]:9000"),
            ("http://[2001:DB8::1]", "http://[2001:db8::1]:80"),
            ("HTTPS://App.Example", "https://app.example:443"),
            ("https://127.0.0.1:80/", "https://127.0.0.1:80"),
            ("tcp://db.example:5432", "tcp://db.example:5432"),
            ("http+srv://_http._tcp.App.example", "http+srv://_http._tcp.app.example"),
            ("HTTPS+SRV://_https._tcp.app.example./", "https+srv://_https._tcp.app.example."),
            ("tcp+srv://db.service.consul", "tcp+srv://db.service.consul"),
            ("http+consul://Web", "http+consul://web"),
            ("HTTPS+CONSUL://web/?tag=v2&dc=eu-1", "https+consul://web?tag=v2&dc=eu-1"),
            ("tcp+consul://db?dc=eu&tag=a%20b&tag=c", "tcp+consul://db?tag=a%20b&tag=c&dc=eu"),
            ("http+unix:/run/app.sock", "http+unix:/run/app.sock"),
            ("fcgi://127.0.0.1:9000", "fcgi://127.0.0.1:9000"),
            ("FCGI://[::1]:9000/", "fcgi://[::1]:9000"),
            ("fcgi+srv://_php._tcp.app.example", "fcgi+srv://_php._tcp.app.example"),
            ("fcgi+unix:/run/php/php-fpm.sock", "fcgi+unix:/run/php/php-fpm.sock"),
        ] {
            let server: Server = text.parse().unwrap();
            assert_eq!((server.to_string().as_str(), server.weight), (url, 1), "{text}");
            assert_eq!(url.parse(), Ok(server), "{url}");
        }
    }

    #[test]
    fn servers_that_are_refused() {
        const NO_VALUE: &str = "has no value, or one with characters that are written as %XX";
        let owned = str::to_owned;
        let option = |written: &str, why| ValueFault::Unknown { written: owned(written), why, nearest: None };
        let host = |host: &str, problem| ValueFault::Host { host: owned(host), problem };
        for (text, fault) in [
            ("", ValueFault::Empty),
            ("127.0.0.1:9000", ValueFault::NoScheme(owned("127.0.0.1:9000"))),
            ("httpss://127.0.0.1", ValueFault::UnknownScheme(owned("httpss"))),
            ("ftp://127.0.0.1", ValueFault::UnknownScheme(owned("ftp"))),
            ("tcp://127.0.0.1", ValueFault::NoPort(owned("tcp://127.0.0.1"))),
            ("fcgi://127.0.0.1", ValueFault::NoPort(owned("fcgi://127.0.0.1"))),
            ("fcgi+unix:app.sock", ValueFault::SocketPath(owned("app.sock"))),
            ("https+unix:/app.sock", ValueFault::NoScheme(owned("https+unix:/app.sock"))),
            ("srv://a", ValueFault::UnknownScheme(owned("srv"))),
            ("+srv://a", ValueFault::UnknownScheme(owned(""))),
            ("http+srv://a:80", ValueFault::ServicePort(80)),
            ("http+srv://[::1]", ValueFault::ServiceAddress(owned("[::1]"))),
            ("http+srv://127.0.0.1", ValueFault::ServiceAddress(owned("127.0.0.1"))),
            ("http+srv://a?dc=eu", ValueFault::Query(owned("?dc=eu"))),
            ("http+consul://a:80", ValueFault::ServicePort(80)),
            ("http+consul://a/b", ValueFault::Path(owned("/b"))),
            ("http+consul://a?near=b", option("near=b", "is neither tag=TAG nor dc=DATACENTER")),
            ("http+consul://a?dc=b&", option("", "is neither tag=TAG nor dc=DATACENTER")),
            ("http+consul://a?dc=b&dc=c", option("dc=c", "is a second datacenter")),
            ("http+consul://a?tag=", option("tag=", NO_VALUE)),
            ("http+consul://a?tag=a+b", option("tag=a+b", NO_VALUE)),
            ("http+consul://a?tag=%2", option("tag=%2", NO_VALUE)),
            ("http+consul://a?tag=%g0", option("tag=%g0", NO_VALUE)),
            ("http+unix:", ValueFault::SocketPath(owned(""))),
            ("http+unix:run/app.sock", ValueFault::SocketPath(owned("run/app.sock"))),
            ("http+unix:///run/app.sock", ValueFault::SocketPath(owned("///run/app.sock"))),
            ("http+unix:/run/", ValueFault::SocketPath(owned("/run/"))),
            ("http://a/b", ValueFault::Path(owned("/b"))),
            ("http://a//", ValueFault::Path(owned("//"))),
            ("http://a?b", ValueFault::Query(owned("?b"))),
            ("http://a#b", ValueFault::Fragment(owned("#b"))),
            ("http://user:secret@a", ValueFault::UserInformation),
            ("http://a:", ValueFault::Port(owned(""))),
            ("http://a:0", ValueFault::Port(owned("0"))),
            ("http://a:+80", ValueFault::Port(owned("+80"))),
            ("http://a:65536", ValueFault::Port(owned("65536"))),
            ("http://::1", ValueFault::Unbracketed(owned("::1"))),
            ("http://", host("", HostProblem::Empty)),
            ("http://:80", host("", HostProblem::Empty)),
            ("http://127.0.0.256", host("127.0.0.256", HostProblem::NotAnAddress)),
        ] {
            assert_eq!(text.parse::<Server>().map_err(|error| error.fault), Err(fault), "{text}");
        }
    }

    #[test]
    fn an_authority_leaves_out_the_default_port_of_its_scheme() {
        for (url, authority) in [
            ("http://a.example", "a.example"),
            ("http://a.example:443", "a.example:443"),
            ("https://a.example:443", "a.example"),
            ("https://a.example:80", "a.example:80"),
            ("https://[::1]:8443", "[::1]:8443"),
            ("tcp://a.example:80", "a.example:80"),
            ("http+unix:/run/app.sock", "localhost"),
            ("fcgi+unix:/run/app.sock", "localhost"),
            ("fcgi://a.example:9000", "a.example:9000"),
            ("http+srv://_http._tcp.a.example", "_http._tcp.a.example"),
        ] {
            assert_eq!(url.parse::<Server>().map(|server| server.authority()).as_deref(), Ok(authority));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "((https?|fcgi)(\\+srv|\\+consul)?://|tcp://|(http|fcgi)\\+unix:/)?[a-z0-9.:\\[\\]/?#@*\\PC-]{0,40}") {
            // What is read is written in a form that is read alike.
            if let Ok(server) = text.parse::<Server>() {
                proptest::prop_assert_eq!(server.to_string().parse(), Ok(server));
            }
        }
    }
}
