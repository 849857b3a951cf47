//! Writes the fields about the proxy and its client: Via (RFC 9110 §7.6.3), Forwarded (RFC 7239) and X-Forwarded-For,
//! -Proto and -Host.

use std::net::{IpAddr, Ipv4Addr};

use crate::head::{RequestHead, Version};
use crate::name::{Name, NameSet};
use crate::named::{self, Chain, ChainKind};

/// The sender of a request, for Forwarded and the `X-Forwarded-` fields.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// The address of the peer.
    pub address: IpAddr,
    /// The scheme that the peer used: `http` or `https`.
    pub scheme: &'static str,
    /// The chain of proxies that a trusted peer reports; `None` if the peer is not trusted.
    pub chain: Option<Chain>,
}

impl Client {
    /// The reported chain, if the peer forwards for another client.
    #[inline]
    pub(crate) fn told(&self) -> Option<&Chain> {
        self.chain.as_ref().filter(|chain| chain.kind != ChainKind::None)
    }
}

/// What Via says about the proxy (RFC 9110 §7.6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Via<'a> {
    /// The default name, `vanward`.
    #[default]
    Own,
    /// A configured name, which is a token.
    Named(&'a str),
    /// No Via field.
    Off,
}

impl Via<'_> {
    /// Appends the Via line. `version` is the version of the received message.
    pub fn push(self, out: &mut Vec<u8>, version: Version) {
        let name = match self {
            Via::Own => "vanward",
            Via::Named(name) => name,
            Via::Off => return,
        };
        out.extend_from_slice(match version {
            Version::Http11 => b"Via: 1.1 ",
            Version::Http2 => b"Via: 2.0 ",
            Version::Http3 => b"Via: 3.0 ",
            Version::Http10 => b"Via: 1.0 ",
        });
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// Fields that the proxy always writes itself, and names that a server could mistake for one of them.
pub(crate) const REWRITTEN: NameSet = NameSet::NONE
    .with(Name::Forwarded)
    .with(Name::XForwardedFor)
    .with(Name::XForwardedProto)
    .with(Name::XForwardedHost)
    .with(Name::DisguisedForwarded);

/// Fields that are forwarded only if the client is trusted.
pub(crate) const TRUSTED_ONLY: NameSet = NameSet::NONE.with(Name::XForwardedOther).with(Name::XClientCert);

/// Appends the forwarding fields and the empty line that ends the head. The client's own ones were dropped before;
/// values from a trusted client come first.
///
/// Constant text is appended in as few pieces as possible, since each one costs a capacity check and a copy.
#[inline]
pub(crate) fn push_own_fields(
    out: &mut Vec<u8>,
    head: &RequestHead,
    bytes: &[u8],
    client: &Client,
    via: Via<'_>,
    authority: &[u8],
) {
    if let Some(chain) = client.told() {
        return push_chain(out, head, bytes, client, chain, via, authority);
    }
    // A client of IPv4 on a socket of both families is one of IPv4.
    let address = client.address.to_canonical();
    // RFC 9110 §7.6.3: the version in which the message was received.
    if via == Via::Own {
        out.extend_from_slice(match head.start.version {
            Version::Http11 => b"Via: 1.1 vanward\r\nX-Forwarded-For: ",
            Version::Http2 => b"Via: 2.0 vanward\r\nX-Forwarded-For: ",
            Version::Http3 => b"Via: 3.0 vanward\r\nX-Forwarded-For: ",
            Version::Http10 => b"Via: 1.0 vanward\r\nX-Forwarded-For: ",
        });
    } else {
        via.push(out, head.start.version);
        out.extend_from_slice(b"X-Forwarded-For: ");
    }
    push_address(out, address);
    out.extend_from_slice(b"\r\nX-Forwarded-Proto: ");
    push_scheme(out, client.scheme);
    if !authority.is_empty() {
        out.extend_from_slice(b"\r\nX-Forwarded-Host: ");
        out.extend_from_slice(authority);
    }
    out.extend_from_slice(b"\r\nForwarded: for=");
    push_node(out, address);
    out.extend_from_slice(b";proto=");
    push_scheme(out, client.scheme);
    push_host(out, authority);
    out.extend_from_slice(b"\r\n\r\n");
}

/// Appends the forwarding fields if a trusted proxy reports the client. It does so in fields of one kind; the other
/// kind is derived from them (RFC 7239 §7.4), so that a server reads equal values in both.
#[cold]
fn push_chain(
    out: &mut Vec<u8>,
    head: &RequestHead,
    bytes: &[u8],
    client: &Client,
    chain: &Chain,
    via: Via<'_>,
    authority: &[u8],
) {
    let scheme = chain.scheme(head, bytes).unwrap_or(client.scheme);
    let host = chain.host(head, bytes).unwrap_or(authority);
    let peer = client.address.to_canonical();
    via.push(out, head.start.version);
    out.extend_from_slice(b"X-Forwarded-For: ");
    if chain.kind == ChainKind::XForwarded {
        push_list(out, head, bytes, Name::XForwardedFor);
    } else {
        for element in in_order(head, bytes, Name::Forwarded) {
            match named::forwarded_for(element) {
                Some(address) => push_address(out, address),
                None => out.extend_from_slice(b"unknown"),
            }
            out.extend_from_slice(b", ");
        }
    }
    push_address(out, peer);
    out.extend_from_slice(b"\r\nX-Forwarded-Proto: ");
    push_scheme(out, scheme);
    if !host.is_empty() {
        out.extend_from_slice(b"\r\nX-Forwarded-Host: ");
        out.extend_from_slice(host);
    }
    out.extend_from_slice(b"\r\nForwarded: ");
    let of_forwarded = || Chain::of_forwarded_until(head, bytes, client.address, chain.address);
    if chain.kind == ChainKind::Forwarded || chain.agrees(&of_forwarded(), head, bytes) {
        push_list(out, head, bytes, Name::Forwarded);
        out.extend_from_slice(b"for=");
        push_node(out, peer);
        // Said once, with the first proxy that knows it.
        if chain.scheme(head, bytes).is_none() {
            out.extend_from_slice(b";proto=");
            push_scheme(out, scheme);
        }
        if chain.host(head, bytes).is_none() {
            push_host(out, host);
        }
    } else {
        push_forwarded(out, head, bytes, chain, peer, (scheme, host));
    }
    out.extend_from_slice(b"\r\n\r\n");
}

/// Appends Forwarded as X-Forwarded-For tells of it: scheme and host stand with the client.
fn push_forwarded(
    out: &mut Vec<u8>,
    head: &RequestHead,
    bytes: &[u8],
    chain: &Chain,
    peer: IpAddr,
    (scheme, host): (&str, &[u8]),
) {
    let push_said = |out: &mut Vec<u8>| {
        out.extend_from_slice(b";proto=");
        push_scheme(out, scheme);
        push_host(out, host);
    };
    let count = in_order(head, bytes, Name::XForwardedFor).count();
    for (index, element) in in_order(head, bytes, Name::XForwardedFor).enumerate() {
        out.extend_from_slice(b"for=");
        match named::address(element) {
            Some(address) => push_node(out, address),
            None => out.extend_from_slice(b"unknown"),
        }
        if count - 1 - index == chain.place() {
            push_said(out);
        }
        out.extend_from_slice(b", ");
    }
    out.extend_from_slice(b"for=");
    push_node(out, peer);
    if count == 0 {
        push_said(out);
    }
}

/// Appends an address as Forwarded has it. RFC 7239 §6: one of IPv6 is bracketed and quoted.
#[inline]
fn push_node(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => push_ipv4(out, address),
        IpAddr::V6(_) => {
            out.extend_from_slice(b"\"[");
            push_address(out, address);
            out.extend_from_slice(b"]\"");
        }
    }
}

/// Appends the host to an element of Forwarded.
#[inline]
fn push_host(out: &mut Vec<u8>, authority: &[u8]) {
    if !authority.is_empty() {
        // A valid authority holds no quote and no backslash.
        out.extend_from_slice(b";host=\"");
        out.extend_from_slice(authority);
        out.extend_from_slice(b"\"");
    }
}

/// The elements of a list-valued field.
fn in_order<'a>(head: &'a RequestHead, bytes: &'a [u8], name: Name) -> impl Iterator<Item = &'a [u8]> {
    let elements = head.values(bytes, name).flat_map(|value| value.split(|&byte| byte == b','));
    elements.map(<[u8]>::trim_ascii).filter(|text| !text.is_empty())
}

fn push_list(out: &mut Vec<u8>, head: &RequestHead, bytes: &[u8], name: Name) {
    for value in head.values(bytes, name).filter(|value| !value.is_empty()) {
        out.extend_from_slice(value);
        out.extend_from_slice(b", ");
    }
}

/// The two schemes are copied as constants, which is a move and no call.
#[inline(always)]
fn push_scheme(out: &mut Vec<u8>, scheme: &str) {
    match scheme {
        "http" => out.extend_from_slice(b"http"),
        "https" => out.extend_from_slice(b"https"),
        other => out.extend_from_slice(other.as_bytes()),
    }
}

#[inline]
fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => push_ipv4(out, address),
        IpAddr::V6(_) => push_text(out, address),
    }
}

#[cold]
fn push_text(out: &mut Vec<u8>, address: IpAddr) {
    // A vector takes all.
    let _ = std::io::Write::write_fmt(out, format_args!("{address}"));
}

/// Each octet is written where it is to be: as one text they would have to be read again before they have left the
/// processor, which makes it wait.
#[inline]
fn push_ipv4(out: &mut Vec<u8>, address: Ipv4Addr) {
    // One check of the room for all.
    let start = out.len();
    out.extend_from_slice(&[0; 16]);
    let Some(text) = out[start..].first_chunk_mut::<16>() else { return };
    let mut at = 0;
    for octet in address.octets() {
        text[at..at + 4].copy_from_slice(&OCTETS[usize::from(octet)]);
        at += 2 + usize::from(octet >= 10) + usize::from(octet >= 100);
    }
    // The last dot is none of it.
    out.truncate(start + at - 1);
}

/// The text of each octet with a dot behind it.
static OCTETS: [[u8; 4]; 256] = {
    let mut table = [[0; 4]; 256];
    let mut octet = 0;
    while octet < 256 {
        let digits = [b'0' + (octet / 100) as u8, b'0' + (octet / 10 % 10) as u8, b'0' + (octet % 10) as u8];
        table[octet] = match octet {
            100.. => [digits[0], digits[1], digits[2], b'.'],
            10.. => [digits[1], digits[2], b'.', 0],
            _ => [digits[2], b'.', 0, 0],
        };
        octet += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_the_standard_library_does() {
        let numbers = (0..=255u8).map(|octet| [octet, 255 - octet, octet / 2, octet / 26]);
        let fours = numbers.map(|octets| IpAddr::from(Ipv4Addr::from(octets)));
        let sixes =
            ["::", "::1", "2001:db8::7", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "64:ff9b::1.2.3.4"];
        for address in fours.chain(sixes.map(|text| text.parse().unwrap())) {
            let mut out = b"kept ".to_vec();
            push_address(&mut out, address);
            assert_eq!(String::from_utf8(out).unwrap(), format!("kept {address}"));
        }
    }
}
