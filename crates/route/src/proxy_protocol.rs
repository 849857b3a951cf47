//! Reads and writes PROXY protocol headers, versions 1 and 2 (HAProxy's proxy-protocol.txt, revision of 2020/03/05):
//! the client's address, sent by a proxy at the start of a connection.
//!
//! The caller must decide before whether the peer is trusted, because the header proves nothing.

/// CRC-32C, the optional checksum of version 2.
mod crc32c;
/// The text line of version 1.
mod v1;
/// The binary header of version 2.
mod v2;

pub use v2::{Tlv, tlv_kind};

use std::net::SocketAddr;

/// The longest header that is read. Version 1 has up to 107 bytes, version 2 up to 65,551.
pub const PROXY_HEADER_BYTES_MAX: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyHeader<'a> {
    pub origin: ProxyOrigin,
    /// The length of the header in bytes. The connection's own data follows.
    pub len: usize,
    /// The checked TLVs of version 2.
    tlvs: &'a [u8],
}

/// The origin of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyOrigin {
    /// The proxy itself, for example for a health check: use the peer's address.
    Local,
    /// A client whose address the proxy does not know or report: use the peer's address.
    Unknown,
    /// A client. IPv4 addresses are never written as IPv6.
    Client {
        /// The client's address.
        source: SocketAddr,
        /// The address that the client connected to.
        destination: SocketAddr,
    },
}

/// Why bytes are no valid header. The connection is closed without a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProxyHeaderError {
    /// The bytes start like neither version.
    #[error("the connection does not begin with a PROXY protocol header")]
    Missing,
    /// Version 1: the line has no end within 107 bytes.
    #[error("the PROXY line does not end within 107 bytes")]
    Unending,
    /// Version 1: the line is malformed.
    #[error("the PROXY line is malformed")]
    Line,
    /// Version 2: version, command, family or transport is undefined.
    #[error("the PROXY header has an unknown version, command, family or transport")]
    Undefined,
    /// Version 2: the transport is datagrams, which are not supported.
    #[error("the PROXY header is for datagrams, and this is a stream")]
    Datagram,
    /// Version 2: the header exceeds [`PROXY_HEADER_BYTES_MAX`].
    #[error("the PROXY header has more than {PROXY_HEADER_BYTES_MAX} bytes")]
    TooLong,
    /// Version 2: the header is too short for its addresses, or a TLV exceeds it or is malformed.
    #[error("the PROXY header is shorter than what it says to hold")]
    Truncated,
    /// Version 2: the checksum is wrong.
    #[error("the checksum of the PROXY header is wrong")]
    Checksum,
}

/// Parses a header at the start of a connection. `None` if more bytes are needed.
///
/// The result does not depend on how the bytes arrive. At most [`PROXY_HEADER_BYTES_MAX`] bytes are needed.
///
/// # Errors
/// Why there is no valid header.
pub fn parse_proxy_header(bytes: &[u8]) -> Result<Option<ProxyHeader<'_>>, ProxyHeaderError> {
    let begins = |signature: &[u8]| {
        let len = bytes.len().min(signature.len());
        bytes[..len] == signature[..len]
    };
    if bytes.is_empty() {
        Ok(None)
    } else if begins(v1::SIGNATURE) {
        v1::parse(bytes)
    } else if begins(v2::SIGNATURE) {
        v2::parse(bytes)
    } else {
        Err(ProxyHeaderError::Missing)
    }
}

/// The contents of a PROXY header to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyIntroduction<'a> {
    /// The client's address, and the address that it connected to. `None` for the proxy's own connections, such as
    /// health checks.
    pub client: Option<(SocketAddr, SocketAddr)>,
    /// The requested host; version 2 only.
    pub authority: Option<&'a str>,
    /// An ID of the connection, up to 128 bytes; version 2 only.
    pub unique_id: Option<&'a [u8]>,
    /// Whether to add a checksum; version 2 only.
    pub has_checksum: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// A binary header.
    V2,
}

/// Appends the header for the start of a connection to a server.
pub fn write_proxy_header(version: ProxyVersion, introduction: &ProxyIntroduction<'_>, out: &mut Vec<u8>) {
    let introduction = ProxyIntroduction { client: introduction.client.map(of_one_family), ..*introduction };
    match version {
        ProxyVersion::V1 => v1::write(&introduction, out),
        ProxyVersion::V2 => v2::write(&introduction, out),
    }
}

/// Converts both to IPv4 or both to IPv6, because a header has one family.
fn of_one_family((source, destination): (SocketAddr, SocketAddr)) -> (SocketAddr, SocketAddr) {
    let (source, destination) = (canonical(source), canonical(destination));
    let in_six = |address: SocketAddr| match address {
        SocketAddr::V4(four) => SocketAddr::new(four.ip().to_ipv6_mapped().into(), four.port()),
        SocketAddr::V6(_) => address,
    };
    if source.is_ipv4() == destination.is_ipv4() {
        (source, destination)
    } else {
        (in_six(source), in_six(destination))
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn client(source: SocketAddr, destination: SocketAddr) -> ProxyOrigin {
    ProxyOrigin::Client { source: canonical(source), destination: canonical(destination) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A client of either family, as in a header.
    fn clients() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
        let address = prop_oneof![
            any::<[u8; 4]>().prop_map(std::net::IpAddr::from),
            any::<[u8; 16]>().prop_map(|octets| std::net::IpAddr::from(octets).to_canonical()),
        ];
        let socket = (address, any::<u16>()).prop_map(|(address, port)| SocketAddr::new(address, port));
        (socket.clone(), socket)
    }

    fn split_alike(bytes: &[u8]) -> Result<(), TestCaseError> {
        let whole = parse_proxy_header(bytes);
        for len in 0..bytes.len() {
            let part = parse_proxy_header(&bytes[..len]);
            prop_assert!(
                part == Ok(None) || part == whole,
                "{} of {}: {:?} {:?}",
                len,
                bytes.len(),
                part,
                whole
            );
        }
        if let Ok(Some(header)) = whole {
            prop_assert!(header.len <= bytes.len() && header.len <= PROXY_HEADER_BYTES_MAX);
            let more = [bytes, b"GET / HTTP/1.1"].concat();
            prop_assert_eq!(parse_proxy_header(&more), Ok(Some(header)));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn reading_inverts_writing(
            client in prop::option::of(clients()),
            authority in prop::option::of("[a-z.]{0,30}"),
            unique_id in prop::option::of(prop::collection::vec(any::<u8>(), 0..128)),
            has_checksum in any::<bool>(),
        ) {
            for version in [ProxyVersion::V1, ProxyVersion::V2] {
                let introduction = ProxyIntroduction {
                    client,
                    authority: authority.as_deref(),
                    unique_id: unique_id.as_deref(),
                    has_checksum,
                };
                let mut bytes = Vec::new();
                write_proxy_header(version, &introduction, &mut bytes);
                let header = parse_proxy_header(&bytes).unwrap().unwrap();
                prop_assert_eq!(header.len, bytes.len());
                let expected = match (client, version) {
                    (Some((source, destination)), _) => ProxyOrigin::Client { source, destination },
                    (None, ProxyVersion::V1) => ProxyOrigin::Unknown,
                    (None, ProxyVersion::V2) => ProxyOrigin::Local,
                };
                prop_assert_eq!(header.origin, expected);
                if version == ProxyVersion::V2 && client.is_some() {
                    let said = |kind| header.tlvs().find(|tlv| tlv.kind == kind).map(|tlv| tlv.value);
                    prop_assert_eq!(said(tlv_kind::AUTHORITY), authority.as_deref().map(str::as_bytes));
                    prop_assert_eq!(said(tlv_kind::UNIQUE_ID), unique_id.as_deref());
                    prop_assert_eq!(said(tlv_kind::CRC32C).is_some(), has_checksum);
                }
                split_alike(&bytes)?;
            }
        }

        #[test]
        fn any_split_of_any_bytes_parses_alike(
            mut bytes in prop_oneof![
                "PROXY (TCP4|TCP6|UNKNOWN)?[ 0-9a-f:.]{0,100}\r?\n?".prop_map(String::into_bytes),
                prop::collection::vec(any::<u8>(), 0..64),
                prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(3), 0..=40_u8], 0..80)
                    .prop_map(|rest| [v2::SIGNATURE, &rest].concat()),
                (0..4_u8, 0..4_u8, 0..64_u8, prop::collection::vec(prop_oneof![Just(0_u8), 0..6_u8], 0..64))
                    .prop_map(|(command, transport, len, rest)| {
                        [v2::SIGNATURE, &[0x20 | command, 0x10 | transport, 0, len], &rest].concat()
                    }),
            ],
            flipped in any::<prop::sample::Index>(),
            flip in prop_oneof![3 => Just(0_u8), 1 => any::<u8>()],
        ) {
            if !bytes.is_empty() {
                let at = flipped.index(bytes.len());
                bytes[at] ^= flip;
            }
            split_alike(&bytes)?;
        }

        #[test]
        fn a_checksum_finds_any_byte_that_changed(at in any::<prop::sample::Index>(), flip in 1..=255_u8) {
            let client = Some(("192.0.2.1:5".parse().unwrap(), "192.0.2.2:443".parse().unwrap()));
            let introduction = ProxyIntroduction { client, authority: Some("a.example"), unique_id: None, has_checksum: true };
            let mut bytes = Vec::new();
            write_proxy_header(ProxyVersion::V2, &introduction, &mut bytes);
            let at = 16 + at.index(bytes.len() - 16);
            // A changed type or length makes another header, whose checksum may be elsewhere or missing.
            prop_assume!((16..28).contains(&at) || bytes[at..].starts_with(b"a") || at >= bytes.len() - 4);
            bytes[at] ^= flip;
            prop_assert_eq!(parse_proxy_header(&bytes), Err(ProxyHeaderError::Checksum));
        }
    }

    #[test]
    fn other_beginnings_are_no_header() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"\x16\x03\x01",
            b"PROXX",
            b"PROXYTCP4",
            b"proxy ",
            b"\r\n\r\nx",
            b" PROXY ",
        ] {
            assert_eq!(parse_proxy_header(bytes), Err(ProxyHeaderError::Missing), "{}", bytes.escape_ascii());
        }
        for bytes in [&b""[..], b"P", b"PROXY", b"\r\n\r\n"] {
            assert_eq!(parse_proxy_header(bytes), Ok(None));
        }
    }

    #[test]
    fn two_families_become_one() {
        let client = Some(("192.0.2.1:5".parse().unwrap(), "[2001:db8::1]:443".parse().unwrap()));
        let introduction =
            ProxyIntroduction { client, authority: None, unique_id: None, has_checksum: false };
        let mut bytes = Vec::new();
        write_proxy_header(ProxyVersion::V1, &introduction, &mut bytes);
        assert_eq!(bytes, b"PROXY TCP6 ::ffff:192.0.2.1 2001:db8::1 5 443\r\n");
    }
}
