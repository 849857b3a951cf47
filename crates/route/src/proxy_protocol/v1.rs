//! PROXY protocol version 1: `PROXY TCP4 192.0.2.1 192.0.2.2 56324 443` and CRLF.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{ProxyHeader, ProxyHeaderError, ProxyIntroduction, ProxyOrigin, client};

pub(super) const SIGNATURE: &[u8] = b"PROXY ";

/// CRLF included.
const LINE_BYTES_MAX: usize = 107;

pub(super) fn parse(bytes: &[u8]) -> Result<Option<ProxyHeader<'_>>, ProxyHeaderError> {
    let seen = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    // Byte by byte, so that the result does not depend on how many bytes have arrived.
    let Some(end) = seen.iter().position(|byte| !(b' '..=b'~').contains(byte)) else {
        return if seen.len() < LINE_BYTES_MAX { Ok(None) } else { Err(ProxyHeaderError::Unending) };
    };
    match seen[end..] {
        [b'\r', b'\n', ..] => {
            let line = std::str::from_utf8(&seen[SIGNATURE.len().min(end)..end]);
            let origin = origin(line.map_err(|_| ProxyHeaderError::Line)?)?;
            Ok(Some(ProxyHeader { origin, len: end + 2, tlvs: &[] }))
        }
        [b'\r'] if seen.len() < LINE_BYTES_MAX => Ok(None),
        [b'\r'] => Err(ProxyHeaderError::Unending),
        _ => Err(ProxyHeaderError::Line),
    }
}

/// Parses the part after `PROXY `.
fn origin(line: &str) -> Result<ProxyOrigin, ProxyHeaderError> {
    let parts: Vec<&str> = line.splitn(6, ' ').collect();
    let (source, destination) = match parts[..] {
        // The rest of the line is ignored.
        ["UNKNOWN", ..] => return Ok(ProxyOrigin::Unknown),
        ["TCP4", source, destination, source_port, destination_port] => {
            let address = |text: &str| text.parse::<Ipv4Addr>().ok().map(IpAddr::from);
            (socket(address(source), source_port), socket(address(destination), destination_port))
        }
        ["TCP6", source, destination, source_port, destination_port] => {
            let address = |text: &str| text.parse::<Ipv6Addr>().ok().map(IpAddr::from);
            (socket(address(source), source_port), socket(address(destination), destination_port))
        }
        _ => return Err(ProxyHeaderError::Line),
    };
    match (source, destination) {
        (Some(source), Some(destination)) => Ok(client(source, destination)),
        _ => Err(ProxyHeaderError::Line),
    }
}

fn socket(address: Option<IpAddr>, port: &str) -> Option<SocketAddr> {
    // Digits without a leading zero or a sign.
    let is_plain =
        port.bytes().all(|byte| byte.is_ascii_digit()) && (port.len() == 1 || !port.starts_with('0'));
    Some(SocketAddr::new(address?, port.parse().ok().filter(|_| is_plain)?))
}

pub(super) fn write(introduction: &ProxyIntroduction<'_>, out: &mut Vec<u8>) {
    let written = match introduction.client {
        None => out.write_all(b"PROXY UNKNOWN\r\n"),
        Some((source, destination)) => {
            let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
            let (from, to) = (source.ip(), destination.ip());
            write!(out, "PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port())
        }
    };
    debug_assert!(written.is_ok(), "writing to memory does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<(ProxyOrigin, usize)>, ProxyHeaderError> {
        super::super::parse_proxy_header(line.as_bytes())
            .map(|header| header.map(|header| (header.origin, header.len)))
    }

    #[test]
    fn lines() {
        let from_to = |source: &str, destination: &str, len| {
            let [source, destination] = [source, destination].map(|text| text.parse().unwrap());
            Ok(Some((ProxyOrigin::Client { source, destination }, len)))
        };
        for (line, expected) in [
            (
                "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\nGET",
                from_to("192.0.2.1:56324", "192.0.2.2:443", 42),
            ),
            (
                "PROXY TCP4 0.0.0.0 255.255.255.255 0 65535\r\n",
                from_to("0.0.0.0:0", "255.255.255.255:65535", 44),
            ),
            ("PROXY TCP6 2001:db8::1 ::1 1 2\r\n", from_to("[2001:db8::1]:1", "[::1]:2", 32)),
            (
                "PROXY TCP6 ::ffff:192.0.2.1 ::ffff:192.0.2.2 1 2\r\n",
                from_to("192.0.2.1:1", "192.0.2.2:2", 50),
            ),
            ("PROXY UNKNOWN\r\n", Ok(Some((ProxyOrigin::Unknown, 15)))),
            ("PROXY UNKNOWN ::1 ::1 1 2 x\r\nrest", Ok(Some((ProxyOrigin::Unknown, 29)))),
            ("PROXY TCP4 192.0.2.1 192.0.2.2 56324 443", Ok(None)),
            ("PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r", Ok(None)),
        ] {
            assert_eq!(parsed(line), expected, "{line:?}");
        }
        let longest = format!("PROXY UNKNOWN {}\r\n", "f".repeat(91));
        assert_eq!(parsed(&longest), Ok(Some((ProxyOrigin::Unknown, 107))));
    }

    #[test]
    fn invalid_lines() {
        for line in [
            "PROXY \r\n",
            "PROXY TCP4\r\n",
            "PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY tcp4 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY UNKNOWNX\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
            "PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 \r\n",
            "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
            "PROXY TCP4 192.0.2 192.0.2.2 1 2\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
            "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
            "PROXY TCP6 [::1] ::1 1 2\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\rx",
            "PROXY UNKNOWN \0\r\n",
            "PROXY UNKNOWN caf\u{e9}\r\n",
            "PROXY TCP4\t192.0.2.1 192.0.2.2 1 2\r\n",
        ] {
            assert_eq!(parsed(line), Err(ProxyHeaderError::Line), "{line:?}");
        }
        assert_eq!(parsed(&format!("PROXY UNKNOWN {}", "f".repeat(93))), Err(ProxyHeaderError::Unending));
        assert_eq!(parsed(&format!("PROXY UNKNOWN {}\r\n", "f".repeat(92))), Err(ProxyHeaderError::Unending));
        assert_eq!(parsed(&format!("PROXY UNKNOWN {}", "f".repeat(92))), Ok(None));
    }
}
