//! What a chain of proxies says of the client: its address, and the scheme, host and port that it asked for.
//!
//! Proxies say it in X-Forwarded-For, -Proto, -Host and -Port, or in Forwarded (RFC 7239). Where there is any of the first
//! kind Forwarded does not count: a proxy that does not know it passes on what its client made up.

use std::net::{IpAddr, SocketAddr};

use crate::head::RequestHead;
use crate::name::Name;
use crate::target::is_valid_authority;

/// In which fields a chain of proxies says who its client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainKind {
    /// In none: the peer is the client.
    None,
    /// `X-Forwarded-…`.
    XForwarded,
    /// `Forwarded`.
    Forwarded,
}

/// The chain of proxies that a request came through, read as far back as each of them is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// The client: the last address in the list that is not a trusted proxy's, or the first of all if each is. What is
    /// no address ends the search: it is as if the proxy behind it were the client.
    pub address: IpAddr,
    /// Where it says so.
    pub kind: ChainKind,
    /// The place in its list, counted from the end, of the element about the client.
    place: usize,
}

impl Chain {
    /// The chain that a trusted peer tells of.
    pub fn of(head: &RequestHead, bytes: &[u8], peer: IpAddr, is_trusted: impl Fn(IpAddr) -> bool) -> Self {
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

    /// The same, of fields of this kind.
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
            // A trusted proxy wrote this element, whatever it says.
            chain.place = place;
            let Some(address) = read(text) else { break };
            chain.address = address;
            if !is_trusted(address) {
                break;
            }
        }
        chain
    }

    /// `http` or `https`, as the client spoke; `None` where nobody says.
    pub fn scheme(&self, head: &RequestHead, bytes: &[u8]) -> Option<&'static str> {
        let told = match self.kind {
            ChainKind::None => None,
            ChainKind::XForwarded => self.value(head, bytes, Name::XForwardedProto),
            ChainKind::Forwarded => self.parameter(head, bytes, b"proto"),
        }?;
        let is = |known: &[u8]| told.eq_ignore_ascii_case(known);
        // WebSockets are told by some as what they are called in URLs.
        if is(b"https") || is(b"wss") { Some("https") } else { (is(b"http") || is(b"ws")).then_some("http") }
    }

    /// The host that the client asked for, with its port where it named one; `None` where nobody says it validly.
    pub fn host<'a>(&self, head: &RequestHead, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let told = match self.kind {
            ChainKind::None => None,
            ChainKind::XForwarded => self.value(head, bytes, Name::XForwardedHost),
            ChainKind::Forwarded => self.parameter(head, bytes, b"host"),
        };
        told.filter(|host| !host.is_empty() && is_valid_authority(host))
    }

    /// The port that the client asked, where X-Forwarded-Port says it.
    pub fn port(&self, head: &RequestHead, bytes: &[u8]) -> Option<u16> {
        if self.kind != ChainKind::XForwarded {
            return None;
        }
        let is_port = |name: &[u8]| name.eq_ignore_ascii_case(b"x-forwarded-port");
        let mut others = head.fields.iter().filter(|field| field.known == Name::XForwardedOther);
        let value = others.rfind(|field| is_port(field.name.of(bytes)))?.value.of(bytes);
        let text = std::str::from_utf8(self.of_list(value.rsplit(|&byte| byte == b','))?).ok()?;
        text.parse().ok().filter(|&port| port != 0)
    }

    /// What Forwarded says of this client, or of whoever is last in it where it does not know it.
    pub(crate) fn of_forwarded_until(head: &RequestHead, bytes: &[u8], peer: IpAddr, client: IpAddr) -> Self {
        Self::of_kind(ChainKind::Forwarded, head, bytes, peer, |address| address != client)
    }

    /// The element of an X-Forwarded list about the client: a proxy that writes one value for all is taken at that.
    fn value<'a>(&self, head: &RequestHead, bytes: &'a [u8], name: Name) -> Option<&'a [u8]> {
        self.of_list(from_the_end(head, bytes, name))
    }

    fn of_list<'a>(&self, list: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
        list.map(<[u8]>::trim_ascii).take(self.place + 1).last()
    }

    /// A parameter of the element of Forwarded about the client.
    fn parameter<'a>(&self, head: &RequestHead, bytes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
        parameter(from_the_end(head, bytes, Name::Forwarded).nth(self.place)?, name)
    }

    /// Whether Forwarded, which came beside it, says the same.
    pub(crate) fn agrees(&self, other: &Self, head: &RequestHead, bytes: &[u8]) -> bool {
        if !head.fields.names.has(Name::Forwarded) {
            return false;
        }
        self.address == other.address
            && self.scheme(head, bytes) == other.scheme(head, bytes)
            && self.host(head, bytes) == other.host(head, bytes)
    }

    /// The place of the client's element, counted from the end of the list.
    pub(crate) fn place(&self) -> usize {
        self.place
    }
}

/// The elements of a list-valued field, the last first: proxies append.
pub(crate) fn from_the_end<'a>(
    head: &RequestHead,
    bytes: &'a [u8],
    name: Name,
) -> impl Iterator<Item = &'a [u8]> {
    let fields = head.fields.iter().rev().filter(move |field| field.known == name);
    let elements = fields.flat_map(|field| field.value.of(bytes).rsplit(|&byte| byte == b','));
    elements.map(<[u8]>::trim_ascii).filter(|text| !text.is_empty())
}

/// An address, with a port or without: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
pub(crate) fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address: IpAddr =
        bare.parse().or_else(|_| text.parse().map(|socket: SocketAddr| socket.ip())).ok()?;
    Some(address.to_canonical())
}

/// Whom an element of Forwarded is about.
pub(crate) fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    address(parameter(element, b"for")?)
}

/// A parameter in an element of Forwarded (RFC 7239 §4), without its quotes. A quoted comma or semicolon has parted it before:
/// there is none in an address, a scheme or a host.
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
        Chain::of(&head, text.as_bytes(), [10, 0, 0, 1].into(), is_trusted).address.to_string()
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
