//! Who a chain of proxies says its client is: as far back as each of them is trusted.
//!
//! X-Forwarded-For is what proxies write; Forwarded (RFC 7239) counts only where there is none, since one that does not
//! know it passes on what its client made up.

use std::net::{IpAddr, SocketAddr};

use crate::head::RequestHead;
use crate::name::Name;

/// The client of a trusted peer: the last address in the list of those that were forwarded for which is not trusted itself,
/// or the first of all if each is. What is no address ends the search: it is as if the proxy behind it were the client.
pub fn named_client(
    head: &RequestHead,
    bytes: &[u8],
    peer: IpAddr,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> IpAddr {
    let is_listed = head.fields.names.has(Name::XForwardedFor);
    let name = if is_listed { Name::XForwardedFor } else { Name::Forwarded };
    let read = if is_listed { address } else { element };
    let mut named = peer;
    // From the last line's end: proxies append.
    let fields = head.fields.iter().rev().filter(|field| field.known == name);
    let elements = fields.flat_map(|field| field.value.of(bytes).rsplit(|&byte| byte == b','));
    for text in elements.map(<[u8]>::trim_ascii).filter(|text| !text.is_empty()) {
        let Some(address) = read(text) else { break };
        named = address;
        if !is_trusted(address) {
            break;
        }
    }
    named
}

/// An address, with a port or without: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address: IpAddr =
        bare.parse().or_else(|_| text.parse().map(|socket: SocketAddr| socket.ip())).ok()?;
    Some(address.to_canonical())
}

/// What follows `for=` in an element of Forwarded (RFC 7239 §4). A quoted comma has parted it before: there is none in an
/// address.
fn element(text: &[u8]) -> Option<IpAddr> {
    let pairs = text.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    let mut values = pairs.filter_map(|pair| {
        let (name, value) = pair.split_at_checked(4)?;
        name.eq_ignore_ascii_case(b"for=").then_some(value)
    });
    let value = values.next()?;
    address(value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value))
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
        named_client(&head, text.as_bytes(), [10, 0, 0, 1].into(), is_trusted).to_string()
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
