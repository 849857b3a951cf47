//! A server as a URL: `http://HOST[:PORT]` or `https://HOST[:PORT]`, and nothing else.

use std::fmt;
use std::str::FromStr;

use crate::fault::{Fault, ValueError};
use crate::host::host_and_port;
use crate::meaning::{Scheme, Server, ServerHost};

/// What a server may be.
pub(crate) const SERVER: &str = "a server such as http://127.0.0.1:9000";

impl Scheme {
    /// RFC 9110 §4.2.1 and §4.2.2.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// As in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

impl Server {
    /// `HOST[:PORT]`, without the default port of its scheme: what a client of it would send as Host.
    pub fn authority(&self) -> String {
        if self.port == self.scheme.default_port() {
            return self.host.to_string();
        }
        format!("{}:{}", self.host, self.port)
    }
}

/// Reads `http://HOST[:PORT]` or `https://HOST[:PORT]`; the weight is 1.
impl FromStr for Server {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        server(text.trim()).map_err(|fault| ValueError { fault, expected: SERVER })
    }
}

fn server(text: &str) -> Result<Server, Fault> {
    if text.is_empty() {
        return Err(Fault::Empty);
    }
    let (scheme, rest) = text.split_once("://").ok_or_else(|| Fault::NoScheme(text.to_owned()))?;
    // RFC 3986 §3.1: schemes are case-insensitive.
    let scheme = [Scheme::Http, Scheme::Https]
        .into_iter()
        .find(|known| scheme.eq_ignore_ascii_case(known.as_str()))
        .ok_or_else(|| Fault::UnknownScheme(scheme.to_owned()))?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    // RFC 3986 §6.2.3: an empty path and `/` are the same.
    match tail.as_bytes() {
        [] | b"/" => {}
        [b'?', ..] => return Err(Fault::Query(tail.to_owned())),
        [b'#', ..] => return Err(Fault::Fragment(tail.to_owned())),
        _ => return Err(Fault::Path(tail.to_owned())),
    }
    if authority.contains('@') {
        return Err(Fault::UserInformation);
    }
    let (host, port) = host_and_port(authority)?;
    Ok(Server { scheme, host, port: port.unwrap_or(scheme.default_port()), weight: 1 })
}

/// The URL, with the port always written; the weight is not part of it.
impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://{}:{}", self.scheme.as_str(), self.host, self.port)
    }
}

/// As in a URL: an IPv6 address is in brackets.
impl fmt::Display for ServerHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerHost::Address(std::net::IpAddr::V6(address)) => write!(formatter, "[{address}]"),
            ServerHost::Address(address) => write!(formatter, "{address}"),
            ServerHost::Name(name) => formatter.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::HostProblem;

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
        ] {
            let server: Server = text.parse().unwrap();
            assert_eq!((server.to_string().as_str(), server.weight), (url, 1), "{text}");
            assert_eq!(url.parse(), Ok(server), "{url}");
        }
    }

    #[test]
    fn servers_that_are_refused() {
        let owned = str::to_owned;
        let host = |host: &str, problem| Fault::Host { host: owned(host), problem };
        for (text, fault) in [
            ("", Fault::Empty),
            ("127.0.0.1:9000", Fault::NoScheme(owned("127.0.0.1:9000"))),
            ("httpss://127.0.0.1", Fault::UnknownScheme(owned("httpss"))),
            ("ftp://127.0.0.1", Fault::UnknownScheme(owned("ftp"))),
            ("http://a/b", Fault::Path(owned("/b"))),
            ("http://a//", Fault::Path(owned("//"))),
            ("http://a?b", Fault::Query(owned("?b"))),
            ("http://a#b", Fault::Fragment(owned("#b"))),
            ("http://user:secret@a", Fault::UserInformation),
            ("http://a:", Fault::Port(owned(""))),
            ("http://a:0", Fault::Port(owned("0"))),
            ("http://a:+80", Fault::Port(owned("+80"))),
            ("http://a:65536", Fault::Port(owned("65536"))),
            ("http://::1", Fault::Unbracketed(owned("::1"))),
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
        ] {
            assert_eq!(url.parse::<Server>().map(|server| server.authority()).as_deref(), Ok(authority));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(https?://)?[a-z0-9.:\\[\\]/?#@*\\PC-]{0,40}") {
            // What is read is written in a form that is read alike.
            if let Ok(server) = text.parse::<Server>() {
                proptest::prop_assert_eq!(server.to_string().parse(), Ok(server));
            }
        }
    }
}
