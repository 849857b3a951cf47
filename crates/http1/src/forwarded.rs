//! Writes the fields about the proxy and its client: Via (RFC 9110 §7.6.3), Forwarded (RFC 7239) and X-Forwarded-For,
//! -Proto and -Host.

use std::net::{IpAddr, Ipv4Addr};

use crate::head::{HttpVersion, RequestHead};
use crate::name::{Name, NameSet};
use crate::named::{self, Chain, ChainKind};

/// The sender of a request, for Forwarded and the `X-Forwarded-` fields.
#[derive(Debug, Clone, Copy)]
pub struct ForwardedSender {
    pub address: IpAddr,
    pub scheme: &'static str,
    /// The chain of proxies that a trusted peer reports; `None` if the peer is not trusted.
    pub chain: Option<Chain>,
}

impl ForwardedSender {
    /// The reported chain, if the peer forwards a request of another client.
    #[inline]
    pub(crate) fn told(&self) -> Option<&Chain> {
        self.chain.as_ref().filter(|chain| chain.kind != ChainKind::None)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Via<'a> {
    /// The name `vanward`.
    #[default]
    Own,
    /// A configured name; a valid token.
    Named(&'a str),
    Off,
}

impl Via<'_> {
    /// Appends the Via line. `version` is the version of the received message.
    pub fn push(self, out: &mut Vec<u8>, version: HttpVersion) {
        let name = match self {
            Via::Own => "vanward",
            Via::Named(name) => name,
            Via::Off => return,
        };
        out.extend_from_slice(match version {
            HttpVersion::Http11 => b"Via: 1.1 ",
            HttpVersion::Http2 => b"Via: 2.0 ",
            HttpVersion::Http3 => b"Via: 3.0 ",
            HttpVersion::Http10 => b"Via: 1.0 ",
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

/// Appends the forwarding fields and the empty line that ends the head. The client's own fields were dropped before;
/// values from a trusted client come first.
///
/// Constant text is appended in as few pieces as possible, because each piece costs a capacity check and a copy.
#[inline]
pub(crate) fn push_own_fields(
    out: &mut Vec<u8>,
    head: &RequestHead,
    bytes: &[u8],
    client: &ForwardedSender,
    via: Via<'_>,
    authority: &[u8],
) {
    if let Some(chain) = client.told() {
        return push_chain(out, head, bytes, client, chain, via, authority);
    }
    // On a dual-stack socket, an IPv4 client has a mapped IPv6 address.
    let address = client.address.to_canonical();
    // RFC 9110 §7.6.3: the version in which the message was received.
    if via == Via::Own {
        out.extend_from_slice(match head.start.version {
            HttpVersion::Http11 => b"Via: 1.1 vanward\r\nX-Forwarded-For: ",
            HttpVersion::Http2 => b"Via: 2.0 vanward\r\nX-Forwarded-For: ",
            HttpVersion::Http3 => b"Via: 3.0 vanward\r\nX-Forwarded-For: ",
            HttpVersion::Http10 => b"Via: 1.0 vanward\r\nX-Forwarded-For: ",
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
    client: &ForwardedSender,
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
                // RFC 7239 §6.2: `unknown` keeps the place of the element, so that both fields have the same length.
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
    // A Forwarded field that disagrees with the trusted X-Forwarded fields is not passed on, since its client may
    // have made it up.
    if chain.kind == ChainKind::Forwarded || chain.agrees(&of_forwarded(), head, bytes) {
        push_list(out, head, bytes, Name::Forwarded);
        out.extend_from_slice(b"for=");
        push_node(out, peer);
        // Reported once, by the first proxy that knows it.
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

/// Appends a Forwarded field that is derived from X-Forwarded-For. The client's element gets scheme and host.
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

/// Appends an address in the form that Forwarded requires. RFC 7239 §6: IPv6 addresses are bracketed and quoted.
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

#[inline]
fn push_host(out: &mut Vec<u8>, authority: &[u8]) {
    if !authority.is_empty() {
        // A valid authority contains no quote and no backslash.
        out.extend_from_slice(b";host=\"");
        out.extend_from_slice(authority);
        out.extend_from_slice(b"\"");
    }
}

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

/// Copies the two schemes as constants, which compiles to moves instead of a call.
#[inline(always)]
fn push_scheme(out: &mut Vec<u8>, scheme: &str) {
    match scheme {
        "http" => out.extend_from_slice(b"http"),
        "https" => out.extend_from_slice(b"https"),
        other => out.extend_from_slice(other.as_bytes()),
    }
}

/// Appends the text of an address.
#[inline]
pub fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => push_ipv4(out, address),
        IpAddr::V6(_) => push_text(out, address),
    }
}

#[cold]
fn push_text(out: &mut Vec<u8>, address: IpAddr) {
    // Writing to a vector cannot fail.
    let _ = std::io::Write::write_fmt(out, format_args!("{address}"));
}

/// Writes each octet directly into place. Copying the finished text would read bytes that are still in the store
/// buffer, and stall.
#[inline]
fn push_ipv4(out: &mut Vec<u8>, address: Ipv4Addr) {
    // One capacity check for all octets.
    let start = out.len();
    out.extend_from_slice(&[0; 16]);
    let Some(text) = out[start..].first_chunk_mut::<16>() else { return };
    let mut at = 0;
    for octet in address.octets() {
        // Always four bytes, a constant length. The next octet overwrites what is too much.
        text[at..at + 4].copy_from_slice(&OCTETS[usize::from(octet)]);
        at += 2 + usize::from(octet >= 10) + usize::from(octet >= 100);
    }
    // Removes the last dot.
    out.truncate(start + at - 1);
}

/// The text of each octet, with a dot behind it.
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
