//! The PROXY protocol, versions 1 and 2: who a connection is from, said before its first byte by the proxy in front
//! (HAProxy's proxy-protocol.txt, revision of 2020/03/05).
//!
//! Whether a peer may say so is for the caller to decide before it reads: nothing else vouches for what is said.

/// CRC-32C, which version 2 may carry.
mod crc32c;
/// The line of version 1.
mod v1;
/// The binary header of version 2.
mod v2;

pub use v2::{Tlv, tlv_kind};

use std::net::SocketAddr;

/// Length of the longest header that is read: the line of version 1 has 107 bytes at most, version 2 could have 65,551.
pub const PROXY_HEADER_BYTES_MAX: usize = 4096;

/// A header that has been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyHeader<'a> {
    /// Who the connection is from.
    pub origin: ProxyOrigin,
    /// Bytes of the header; what follows is the connection's own.
    pub len: usize,
    /// What else version 2 says, checked to be whole.
    tlvs: &'a [u8],
}

/// Who a connection is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyOrigin {
    /// The proxy itself, to see whether we are there: its own address counts.
    Local,
    /// Somebody whose address the proxy does not know or say: its own address counts.
    Unknown,
    /// This client. Addresses are plain: IPv4 ones are not written as IPv6.
    Client {
        /// Its address.
        source: SocketAddr,
        /// The address that it connected to.
        destination: SocketAddr,
    },
}

/// Why bytes are no header: the connection is closed without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProxyHeaderError {
    /// They begin like neither version.
    #[error("the connection does not begin with a PROXY protocol header")]
    Missing,
    /// Version 1: no end within 107 bytes.
    #[error("the PROXY line does not end within 107 bytes")]
    Unending,
    /// Version 1: not what a line may be.
    #[error("the PROXY line is malformed")]
    Line,
    /// Version 2: a version, command, family or transport that is not defined.
    #[error("the PROXY header has an unknown version, command, family or transport")]
    Undefined,
    /// Version 2: a connection of datagrams, here.
    #[error("the PROXY header is for datagrams, and this is a stream")]
    Datagram,
    /// Version 2: see [`PROXY_HEADER_BYTES_MAX`].
    #[error("the PROXY header has more than {PROXY_HEADER_BYTES_MAX} bytes")]
    TooLong,
    /// Version 2: shorter than its addresses, or a TLV that goes beyond its end or is not of its kind's form.
    #[error("the PROXY header is shorter than what it says to hold")]
    Truncated,
    /// Version 2: the checksum is of other bytes.
    #[error("the checksum of the PROXY header is wrong")]
    Checksum,
}

/// Reads a header from the first bytes of a connection: `None` while there are too few to tell.
///
/// However the bytes arrive, the outcome is the same. At most [`PROXY_HEADER_BYTES_MAX`] bytes are asked for.
///
/// # Errors
/// Why there is none.
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

/// What is said to a server about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyIntroduction<'a> {
    /// The client's address and the one it connected to; `None` for a connection of our own, such as a check.
    pub client: Option<(SocketAddr, SocketAddr)>,
    /// The host that the client asked for; only version 2 says it.
    pub authority: Option<&'a str>,
    /// Names the connection, in up to 128 bytes; only version 2 says it.
    pub unique_id: Option<&'a [u8]>,
    /// Whether a checksum is sent; only version 2 does.
    pub has_checksum: bool,
}

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// A binary header.
    V2,
}

/// Appends the header with which a connection to a server begins.
pub fn write_proxy_header(version: ProxyVersion, introduction: &ProxyIntroduction<'_>, out: &mut Vec<u8>) {
    let introduction = ProxyIntroduction { client: introduction.client.map(of_one_family), ..*introduction };
    match version {
        ProxyVersion::V1 => v1::write(&introduction, out),
        ProxyVersion::V2 => v2::write(&introduction, out),
    }
}

/// Both of IPv4 or both of IPv6, as a header has one family.
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

    /// A client of either family, as a header can tell it.
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
        fn what_is_written_is_read(
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
            // A TLV of another kind or length is another header, whose checksum may be elsewhere or gone.
            prop_assume!((16..28).contains(&at) || bytes[at..].starts_with(b"a") || at >= bytes.len() - 4);
            bytes[at] ^= flip;
            prop_assert_eq!(parse_proxy_header(&bytes), Err(ProxyHeaderError::Checksum));
        }
    }

    #[test]
    fn what_begins_otherwise_is_no_header() {
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
