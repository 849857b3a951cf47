//! Reads the client from forwarding fields: its address, and the scheme, host and port that it requested.
//!
//! The fields are X-Forwarded-For, -Proto, -Host and -Port, or Forwarded (RFC 7239). If any X-Forwarded field is
//! present, Forwarded is ignored: a proxy that does not know Forwarded would pass on what its client made up.

use std::net::{IpAddr, SocketAddr};

use crate::head::RequestHead;
use crate::name::Name;
use crate::target::is_valid_authority;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainKind {
    /// The peer is the client.
    None,
    XForwarded,
    /// RFC 7239.
    Forwarded,
}

/// The chain of proxies that a request came through, read backwards as far as the proxies are trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// The client's address: the last address in the list that is not a trusted proxy's, or the first one if all are
    /// trusted. An invalid address ends the search; the address behind it then counts as the client.
    pub address: IpAddr,
    pub kind: ChainKind,
    /// The position of the client's element in the list, counted from the end.
    place: usize,
}

impl Chain {
    /// Reads the chain that a trusted peer reports.
    pub fn new(head: &RequestHead, bytes: &[u8], peer: IpAddr, is_trusted: impl Fn(IpAddr) -> bool) -> Self {
        let names = head.fields.names;
        let is_x = [Name::XForwardedFor, Name::XForwardedProto, Name::XForwardedHost];
        let kind = if is_x.iter().any(|name| names.has(*name)) {
            ChainKind::XForwarded
        } else if names.has(Name::Forwarded) {
            ChainKind::Forwarded
        } else {
            ChainKind::None
        };
        Self::of_kind(kind, head, bytes, peer, is_trusted)
    }

    fn of_kind(
        kind: ChainKind,
        head: &RequestHead,
        bytes: &[u8],
        peer: IpAddr,
        is_trusted: impl Fn(IpAddr) -> bool,
    ) -> Self {
        let mut chain = Self { address: peer, kind, place: 0 };
        let name = match kind {
            ChainKind::None => return chain,
            ChainKind::XForwarded => Name::XForwardedFor,
            ChainKind::Forwarded => Name::Forwarded,
        };
        let read = if kind == ChainKind::XForwarded { address } else { forwarded_for };
        for (place, text) in from_the_end(head, bytes, name).enumerate() {
            // A trusted proxy wrote this element, whether it is valid or not.
            chain.place = place;
            let Some(address) = read(text) else { break };
            chain.address = address;
            // Elements before this one are claims of that client.
            if !is_trusted(address) {
                break;
            }
        }
        chain
    }

    /// The scheme that the client used, `http` or `https`; `None` if it is not reported.
    pub fn scheme(&self, head: &RequestHead, bytes: &[u8]) -> Option<&'static str> {
        let told = match self.kind {
            ChainKind::None => None,
            ChainKind::XForwarded => self.value(head, bytes, Name::XForwardedProto),
            ChainKind::Forwarded => self.parameter(head, bytes, b"proto"),
        }?;
        let is = |known: &[u8]| told.eq_ignore_ascii_case(known);
        // Some proxies report WebSockets with the scheme of their URLs.
        if is(b"https") || is(b"wss") { Some("https") } else { (is(b"http") || is(b"ws")).then_some("http") }
    }

    /// The host that the client requested, with the port if it named one; `None` if no valid one is reported.
    pub fn host<'a>(&self, head: &RequestHead, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let told = match self.kind {
            ChainKind::None => None,
            ChainKind::XForwarded => self.value(head, bytes, Name::XForwardedHost),
            ChainKind::Forwarded => self.parameter(head, bytes, b"host"),
        };
        // The host becomes part of routes, redirects and fields, so it has to pass the check that Host has to pass.
        told.filter(|host| !host.is_empty() && is_valid_authority(host))
    }

    /// The port that the client connected to, if X-Forwarded-Port reports it.
    pub fn port(&self, head: &RequestHead, bytes: &[u8]) -> Option<u16> {
        if self.kind != ChainKind::XForwarded {
            return None;
        }
        let is_port = |name: &[u8]| name.eq_ignore_ascii_case(b"x-forwarded-port");
        let mut others = head.fields.iter().filter(|field| field.known == Name::XForwardedOther);
        let value = others.rfind(|field| is_port(field.name.for_bytes(bytes)))?.value.for_bytes(bytes);
        let text = std::str::from_utf8(self.of_list(value.rsplit(|&byte| byte == b','))?).ok()?;
        text.parse().ok().filter(|&port| port != 0)
    }

    /// Reads Forwarded up to the element of this client, or up to the last element if the client is not in it.
    pub(crate) fn of_forwarded_until(head: &RequestHead, bytes: &[u8], peer: IpAddr, client: IpAddr) -> Self {
        Self::of_kind(ChainKind::Forwarded, head, bytes, peer, |address| address != client)
    }

    /// The element of an X-Forwarded list that is about the client. A proxy that writes a single value reports the
    /// client in it.
    fn value<'a>(&self, head: &RequestHead, bytes: &'a [u8], name: Name) -> Option<&'a [u8]> {
        self.of_list(from_the_end(head, bytes, name))
    }

    fn of_list<'a>(&self, list: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
        list.map(<[u8]>::trim_ascii).take(self.place + 1).last()
    }

    /// Finds a parameter in the element of Forwarded that is about the client.
    fn parameter<'a>(&self, head: &RequestHead, bytes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
        parameter(from_the_end(head, bytes, Name::Forwarded).nth(self.place)?, name)
    }

    /// Whether Forwarded, sent beside other fields, reports equal values.
    pub(crate) fn agrees(&self, other: &Self, head: &RequestHead, bytes: &[u8]) -> bool {
        if !head.fields.names.has(Name::Forwarded) {
            return false;
        }
        self.address == other.address
            && self.scheme(head, bytes) == other.scheme(head, bytes)
            && self.host(head, bytes) == other.host(head, bytes)
    }

    pub(crate) fn place(&self) -> usize {
        self.place
    }
}

/// The elements of a list-valued field in reverse order, since proxies append.
pub(crate) fn from_the_end<'a>(
    head: &RequestHead,
    bytes: &'a [u8],
    name: Name,
) -> impl Iterator<Item = &'a [u8]> {
    let fields = head.fields.iter().rev().filter(move |field| field.known == name);
    let elements = fields.flat_map(|field| field.value.for_bytes(bytes).rsplit(|&byte| byte == b','));
    // RFC 9110 §5.6.1: empty elements of a list do not count.
    elements.map(<[u8]>::trim_ascii).filter(|text| !text.is_empty())
}

/// Parses an address with or without a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
pub(crate) fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address: IpAddr =
        bare.parse().or_else(|_| text.parse().map(|socket: SocketAddr| socket.ip())).ok()?;
    // A mapped IPv6 address has to match networks that are written as IPv4.
    Some(address.to_canonical())
}

pub(crate) fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    address(parameter(element, b"for")?)
}

/// Finds a parameter in an element of Forwarded (RFC 7239 §4) and strips its quotes. The caller has split at quoted
/// commas and semicolons too: no address, scheme or host contains one.
fn parameter<'a>(element: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    element.split(|&byte| byte == b';').map(<[u8]>::trim_ascii).find_map(|pair| {
        let (known, value) = pair.split_at_checked(name.len())?;
        let value = value.strip_prefix(b"=").filter(|_| known.eq_ignore_ascii_case(name))?;
        Some(value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::HeadLimits;

    fn named(fields: &[&str]) -> String {
        let limits = HeadLimits { bytes: 4096, fields: 16, target: 16 };
        let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n\r\n", fields.join("\r\n"));
        let mut head = RequestHead::default();
        head.parse(text.as_bytes(), &limits).unwrap();
        let is_trusted =
            |address: IpAddr| address.to_string().starts_with("10.") || address.to_string() == "fd00::1";
        Chain::new(&head, text.as_bytes(), [10, 0, 0, 1].into(), is_trusted).address.to_string()
    }

    #[test]
    fn the_last_that_is_not_trusted_is_the_client() {
        for (fields, client) in [
            (&["A: b"][..], "10.0.0.1"),
            (&["X-Forwarded-For: 192.0.2.1"], "192.0.2.1"),
            (&["X-Forwarded-For: 203.0.113.9, 192.0.2.1"], "192.0.2.1"),
            (&["X-Forwarded-For: 203.0.113.9, 192.0.2.1 ,10.0.0.2,"], "192.0.2.1"),
            (&["X-Forwarded-For: 192.0.2.1", "x-forwarded-for: 10.0.0.2, fd00::1"], "192.0.2.1"),
            (&["X-Forwarded-For: 10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            (&["X-Forwarded-For: 192.0.2.1, unknown, 10.0.0.2"], "10.0.0.2"),
            (&["X-Forwarded-For: 192.0.2.1, unknown"], "10.0.0.1"),
            (&["X-Forwarded-For: 192.0.2.1:4000"], "192.0.2.1"),
            (&["X-Forwarded-For: [2001:db8::1]:4000"], "2001:db8::1"),
            (&["X-Forwarded-For: [2001:db8::1]"], "2001:db8::1"),
            (&["X-Forwarded-For: 2001:db8::1"], "2001:db8::1"),
            (&["X-Forwarded-For: ::ffff:192.0.2.1"], "192.0.2.1"),
            (&["X-Forwarded-For: 192.0.2.1\u{fc}"], "10.0.0.1"),
        ] {
            assert_eq!(named(fields), client, "{fields:?}");
        }
    }

    /// RFC 7239 §4 and §6.
    #[test]
    fn forwarded_counts_where_nothing_else_is_there() {
        for (fields, client) in [
            (&["Forwarded: for=192.0.2.1"][..], "192.0.2.1"),
            (&["Forwarded: For=\"[2001:db8::1]:4711\""], "2001:db8::1"),
            (
                &[
                    "Forwarded: for=203.0.113.9, proto=http;for=192.0.2.1;by=10.0.0.2",
                    "Forwarded: for=10.0.0.2",
                ],
                "192.0.2.1",
            ),
            (&["Forwarded: for=192.0.2.1, for=_hidden"], "10.0.0.1"),
            (&["Forwarded: for=192.0.2.1, by=10.0.0.2"], "10.0.0.1"),
            (&["Forwarded: for=192.0.2.1", "X-Forwarded-For: 192.0.2.2"], "192.0.2.2"),
        ] {
            assert_eq!(named(fields), client, "{fields:?}");
        }
    }
}
