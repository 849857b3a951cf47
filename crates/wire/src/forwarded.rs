//! What a proxy says of itself and of its client: Via (RFC 9110 §7.6.3), Forwarded (RFC 7239) and its three ancestors.

use std::net::{IpAddr, Ipv4Addr};

use crate::head::{RequestHead, Version};
use crate::name::{Name, NameSet};

/// Who sent a request, for the Forwarded fields.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// Its address.
    pub address: IpAddr,
    /// Whether it may say whom it forwards for.
    pub is_trusted: bool,
    /// `http` or `https`, as the client spoke to this proxy.
    pub scheme: &'static str,
}

/// Fields that are written anew, whoever sent them.
pub(crate) const REWRITTEN: NameSet = NameSet::NONE.with(Name::Forwarded).with(Name::XForwardedFor);

/// Fields that are only passed on from a client that is trusted.
pub(crate) const TRUSTED_ONLY: NameSet = NameSet::NONE
    .with(Name::XForwardedProto)
    .with(Name::XForwardedHost)
    .with(Name::XForwardedOther)
    .with(Name::XClientCert);

/// Appends these fields and the empty line that ends the head. Those of a client that is not trusted have been dropped;
/// what a trusted one says is kept in front.
///
/// What is constant goes in as few pieces as can be: each is a check of the room and a few moves.
#[inline]
pub(crate) fn push_own_fields(
    out: &mut Vec<u8>,
    head: &RequestHead,
    bytes: &[u8],
    client: &Client,
    authority: &[u8],
) {
    let told = |name| client.is_trusted && head.fields.names.has(name);
    // A client of IPv4 on a socket of both families is one of IPv4.
    let address = client.address.to_canonical();
    // RFC 9110 §7.6.3: the version in which the message was received.
    out.extend_from_slice(match head.start.version {
        Version::Http11 => b"Via: 1.1 vanward\r\nX-Forwarded-For: ",
        Version::Http2 => b"Via: 2.0 vanward\r\nX-Forwarded-For: ",
        Version::Http10 => b"Via: 1.0 vanward\r\nX-Forwarded-For: ",
    });
    if told(Name::XForwardedFor) {
        push_list(out, head, bytes, Name::XForwardedFor);
    }
    push_address(out, address);
    if !told(Name::XForwardedProto) {
        out.extend_from_slice(b"\r\nX-Forwarded-Proto: ");
        push_scheme(out, client.scheme);
    }
    if !told(Name::XForwardedHost) && !authority.is_empty() {
        out.extend_from_slice(b"\r\nX-Forwarded-Host: ");
        out.extend_from_slice(authority);
    }
    out.extend_from_slice(b"\r\nForwarded: ");
    if told(Name::Forwarded) {
        push_list(out, head, bytes, Name::Forwarded);
    }
    // RFC 7239 §6: an IPv6 address is bracketed and quoted.
    match address {
        IpAddr::V4(address) => {
            out.extend_from_slice(b"for=");
            push_ipv4(out, address);
            out.extend_from_slice(b";proto=");
        }
        IpAddr::V6(_) => {
            out.extend_from_slice(b"for=\"[");
            push_address(out, address);
            out.extend_from_slice(b"]\";proto=");
        }
    }
    push_scheme(out, client.scheme);
    if authority.is_empty() {
        out.extend_from_slice(b"\r\n\r\n");
    } else {
        // A valid authority holds no quote and no backslash.
        out.extend_from_slice(b";host=\"");
        out.extend_from_slice(authority);
        out.extend_from_slice(b"\"\r\n\r\n");
    }
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
