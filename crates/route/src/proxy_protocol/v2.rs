//! PROXY protocol version 2: a binary header with a signature, addresses, and TLVs (type, length, value).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::crc32c::crc32c;
use super::{PROXY_HEADER_BYTES_MAX, ProxyHeader, ProxyHeaderError, ProxyIntroduction, ProxyOrigin, client};

pub(super) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Signature, version and command, family and transport, length of the rest.
const FIXED_BYTES: usize = 16;
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;

/// Kinds of additional values (TLV).
pub mod tlv_kind {
    /// The protocol that the client requested by ALPN.
    pub const ALPN: u8 = 0x01;
    /// The host that the client requested.
    pub const AUTHORITY: u8 = 0x02;
    /// A CRC-32C checksum of the header.
    pub const CRC32C: u8 = 0x03;
    pub const NOOP: u8 = 0x04;
    /// An ID of the connection.
    pub const UNIQUE_ID: u8 = 0x05;
    /// Properties of the client's TLS session.
    pub const SSL: u8 = 0x20;
    /// A flag in the first byte of `SSL`: the client uses TLS.
    pub const CLIENT_SSL: u8 = 0x01;
    pub const NETNS: u8 = 0x30;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tlv<'a> {
    /// See [`tlv_kind`].
    pub kind: u8,
    pub value: &'a [u8],
}

impl<'a> ProxyHeader<'a> {
    /// The TLVs of the header. None in version 1, or for the proxy's own connections.
    pub fn tlvs(&self) -> impl Iterator<Item = Tlv<'a>> {
        tlvs(self.tlvs).map_while(Result::ok)
    }
}

/// The address family and transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    /// No addresses, or addresses that are ignored.
    Unknown,
    Four,
    Six,
    Unix,
}

impl Family {
    fn from_byte(byte: u8) -> Result<Self, ProxyHeaderError> {
        match byte {
            0x00 => Ok(Self::Unknown),
            0x11 => Ok(Self::Four),
            0x21 => Ok(Self::Six),
            0x31 => Ok(Self::Unix),
            0x12 | 0x22 | 0x32 => Err(ProxyHeaderError::Datagram),
            _ => Err(ProxyHeaderError::Undefined),
        }
    }

    fn address_bytes(self) -> usize {
        match self {
            Self::Unknown => 0,
            Self::Four => 12,
            Self::Six => 36,
            Self::Unix => 216,
        }
    }
}

pub(super) fn parse(bytes: &[u8]) -> Result<Option<ProxyHeader<'_>>, ProxyHeaderError> {
    let Some(&command) = bytes.get(SIGNATURE.len()) else { return Ok(None) };
    if command != LOCAL && command != PROXY {
        return Err(ProxyHeaderError::Undefined);
    }
    let Some(&family) = bytes.get(SIGNATURE.len() + 1) else { return Ok(None) };
    // For the proxy's own connections, the rest must be skipped, even if it is invalid.
    let family = if command == LOCAL { Family::Unknown } else { Family::from_byte(family)? };
    let Some(&[high, low]) = bytes.get(SIGNATURE.len() + 2..FIXED_BYTES) else { return Ok(None) };
    let len = FIXED_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if len > PROXY_HEADER_BYTES_MAX {
        return Err(ProxyHeaderError::TooLong);
    }
    if len < FIXED_BYTES + family.address_bytes() {
        return Err(ProxyHeaderError::Truncated);
    }
    let Some(header) = bytes.get(..len) else { return Ok(None) };
    if command == LOCAL {
        return Ok(Some(ProxyHeader { origin: ProxyOrigin::Local, len, tlvs: &[] }));
    }
    let (addresses, tlvs) = header[FIXED_BYTES..].split_at(family.address_bytes());
    check_tlvs(header, tlvs)?;
    Ok(Some(ProxyHeader { origin: origin(family, addresses), len, tlvs }))
}

fn origin(family: Family, addresses: &[u8]) -> ProxyOrigin {
    let number = |at: usize| u16::from_be_bytes([addresses[at], addresses[at + 1]]);
    let four = |at: usize| addresses[at..].first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets));
    let six = |at: usize| addresses[at..].first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets));
    let pair = match family {
        // A client behind a Unix socket of the proxy's machine has no usable address.
        Family::Unknown | Family::Unix => None,
        Family::Four => four(0).zip(four(4)).map(|(source, destination)| {
            (SocketAddr::new(source.into(), number(8)), SocketAddr::new(destination.into(), number(10)))
        }),
        Family::Six => six(0).zip(six(16)).map(|(source, destination)| {
            (SocketAddr::new(source.into(), number(32)), SocketAddr::new(destination.into(), number(34)))
        }),
    };
    pair.map_or(ProxyOrigin::Unknown, |(source, destination)| client(source, destination))
}

fn tlvs(mut rest: &[u8]) -> impl Iterator<Item = Result<Tlv<'_>, ProxyHeaderError>> {
    std::iter::from_fn(move || match *rest {
        [] => None,
        [kind, high, low, ref after @ ..] => {
            let len = usize::from(u16::from_be_bytes([high, low]));
            let split = after.split_at_checked(len);
            rest = split.map_or(&[][..], |(_, after)| after);
            Some(split.map(|(value, _)| Tlv { kind, value }).ok_or(ProxyHeaderError::Truncated))
        }
        _ => {
            rest = &[];
            Some(Err(ProxyHeaderError::Truncated))
        }
    })
}

/// Checks that all TLVs are complete, that known ones are well-formed, and that the checksum is right, if there is one.
fn check_tlvs(header: &[u8], list: &[u8]) -> Result<(), ProxyHeaderError> {
    const SSL_BYTES_MIN: usize = 5;
    const UNIQUE_ID_BYTES_MAX: usize = 128;
    let mut checksum = None;
    let mut at = header.len() - list.len();
    for tlv in tlvs(list) {
        let Tlv { kind, value } = tlv?;
        let value_at = at + 3;
        at = value_at + value.len();
        match (kind, value.len()) {
            (tlv_kind::CRC32C, 4) if checksum.is_none() => checksum = Some(value_at),
            (tlv_kind::CRC32C, _) => return Err(ProxyHeaderError::Checksum),
            (tlv_kind::UNIQUE_ID, len) if len > UNIQUE_ID_BYTES_MAX => {
                return Err(ProxyHeaderError::Truncated);
            }
            // A byte of flags, four bytes with the result of the verification, then nested TLVs.
            (tlv_kind::SSL, len) => {
                let inner = value.get(SSL_BYTES_MIN..).filter(|_| len >= SSL_BYTES_MIN);
                for tlv in tlvs(inner.ok_or(ProxyHeaderError::Truncated)?) {
                    tlv?;
                }
            }
            _ => {}
        }
    }
    let Some(at) = checksum else { return Ok(()) };
    // Computed with zeros in place of the checksum.
    let found = crc32c([&header[..at], &[0; 4], &header[at + 4..]]);
    if header[at..at + 4] == found.to_be_bytes() { Ok(()) } else { Err(ProxyHeaderError::Checksum) }
}

/// Writes the header. Omits values that are too long: host names longer than DNS allows, IDs beyond 128 bytes.
pub(super) fn write(introduction: &ProxyIntroduction<'_>, out: &mut Vec<u8>) {
    const AUTHORITY_BYTES_MAX: usize = 255;
    const UNIQUE_ID_BYTES_MAX: usize = 128;
    let start = out.len();
    out.extend_from_slice(SIGNATURE);
    let Some((source, destination)) = introduction.client else {
        out.extend_from_slice(&[LOCAL, 0, 0, 0]);
        return;
    };
    out.extend_from_slice(&[PROXY, if source.is_ipv4() { 0x11 } else { 0x21 }, 0, 0]);
    for address in [source, destination] {
        match address {
            SocketAddr::V4(four) => out.extend_from_slice(&four.ip().octets()),
            SocketAddr::V6(six) => out.extend_from_slice(&six.ip().octets()),
        }
    }
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
    let mut say = |kind: u8, value: &[u8]| {
        out.push(kind);
        out.extend_from_slice(&(value.len() as u16).to_be_bytes());
        out.extend_from_slice(value);
    };
    if let Some(authority) = introduction.authority.filter(|name| name.len() <= AUTHORITY_BYTES_MAX) {
        say(tlv_kind::AUTHORITY, authority.as_bytes());
    }
    if let Some(id) = introduction.unique_id.filter(|id| id.len() <= UNIQUE_ID_BYTES_MAX) {
        say(tlv_kind::UNIQUE_ID, id);
    }
    if introduction.has_checksum {
        say(tlv_kind::CRC32C, &[0; 4]);
    }
    let header = &mut out[start..];
    let len = (header.len() - FIXED_BYTES) as u16;
    header[FIXED_BYTES - 2..FIXED_BYTES].copy_from_slice(&len.to_be_bytes());
    if introduction.has_checksum {
        let checksum = crc32c([&*header]).to_be_bytes();
        let at = header.len() - checksum.len();
        header[at..].copy_from_slice(&checksum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        [SIGNATURE, &[command, family], &(rest.len() as u16).to_be_bytes(), rest].concat()
    }

    const FOUR: [u8; 12] = [192, 0, 2, 1, 192, 0, 2, 2, 0xdc, 4, 1, 0xbb];

    fn with_tlvs(tlvs: &[u8]) -> Vec<u8> {
        header(PROXY, 0x11, &[&FOUR, tlvs].concat())
    }

    fn parsed(bytes: &[u8]) -> Result<Option<ProxyOrigin>, ProxyHeaderError> {
        super::super::parse_proxy_header(bytes).map(|header| header.map(|header| header.origin))
    }

    #[test]
    fn headers() {
        let from_to = |source: &str, destination: &str| {
            let [source, destination] = [source, destination].map(|text| text.parse().unwrap());
            Ok(Some(ProxyOrigin::Client { source, destination }))
        };
        let six =
            [&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], &[0; 16][..], &[0, 1, 0, 2]].concat();
        let mapped =
            [&[0; 10][..], &[0xff, 0xff, 10, 0, 0, 1], &[0; 10], &[0xff, 0xff, 10, 0, 0, 2], &[0, 1, 0, 2]]
                .concat();
        for (bytes, expected) in [
            (header(PROXY, 0x11, &FOUR), from_to("192.0.2.1:56324", "192.0.2.2:443")),
            (header(PROXY, 0x21, &six), from_to("[2001:db8::1]:1", "[::]:2")),
            (header(PROXY, 0x21, &mapped), from_to("10.0.0.1:1", "10.0.0.2:2")),
            (header(PROXY, 0x31, &[0; 216]), Ok(Some(ProxyOrigin::Unknown))),
            (header(PROXY, 0x00, b""), Ok(Some(ProxyOrigin::Unknown))),
            (header(PROXY, 0x00, &[4, 0, 0]), Ok(Some(ProxyOrigin::Unknown))),
            (header(LOCAL, 0x00, b""), Ok(Some(ProxyOrigin::Local))),
            (header(LOCAL, 0xff, b"whatever"), Ok(Some(ProxyOrigin::Local))),
            (header(PROXY, 0x12, &FOUR), Err(ProxyHeaderError::Datagram)),
            (header(PROXY, 0x41, &FOUR), Err(ProxyHeaderError::Undefined)),
            (header(PROXY, 0x13, &FOUR), Err(ProxyHeaderError::Undefined)),
            (header(PROXY, 0x10, &FOUR), Err(ProxyHeaderError::Undefined)),
            (header(0x22, 0x11, &FOUR), Err(ProxyHeaderError::Undefined)),
            (header(0x11, 0x11, &FOUR), Err(ProxyHeaderError::Undefined)),
            (header(PROXY, 0x11, &FOUR[..11]), Err(ProxyHeaderError::Truncated)),
            (header(PROXY, 0x21, &six[..35]), Err(ProxyHeaderError::Truncated)),
            (header(PROXY, 0x11, &[0; 5000]), Err(ProxyHeaderError::TooLong)),
            (header(LOCAL, 0x11, &[0; 5000]), Err(ProxyHeaderError::TooLong)),
        ] {
            assert_eq!(parsed(&bytes), expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn tlvs_are_checked() {
        let client = parsed(&with_tlvs(b""));
        for (list, expected) in [
            (&[4, 0, 0, 4, 0, 2, 0, 0][..], client),
            (&[0xee, 0, 1, 7], client),
            (&[0x20, 0, 5, 1, 0, 0, 0, 0], client),
            (&[0x20, 0, 9, 1, 0, 0, 0, 0, 0x21, 0, 1, b'x'], client),
            (&[4], Err(ProxyHeaderError::Truncated)),
            (&[4, 0], Err(ProxyHeaderError::Truncated)),
            (&[4, 0, 1], Err(ProxyHeaderError::Truncated)),
            (&[4, 0, 0, 4, 1, 0, 0], Err(ProxyHeaderError::Truncated)),
            (&[0x20, 0, 4, 1, 0, 0, 0], Err(ProxyHeaderError::Truncated)),
            (&[0x20, 0, 8, 1, 0, 0, 0, 0, 0x21, 0, 1], Err(ProxyHeaderError::Truncated)),
            (&[3, 0, 4, 0, 0, 0, 0], Err(ProxyHeaderError::Checksum)),
            (&[3, 0, 3, 0, 0, 0], Err(ProxyHeaderError::Checksum)),
        ] {
            assert_eq!(parsed(&with_tlvs(list)), expected, "{list:?}");
        }
        let long_id = [&[5, 0, 129][..], &[0; 129]].concat();
        assert_eq!(parsed(&with_tlvs(&long_id)), Err(ProxyHeaderError::Truncated));
        let bytes = with_tlvs(&[2, 0, 3, b'a', b'.', b'b', 4, 0, 0]);
        let header = super::super::parse_proxy_header(&bytes).unwrap().unwrap();
        let list: Vec<_> = header.tlvs().collect();
        assert_eq!(list, [Tlv { kind: 2, value: b"a.b" }, Tlv { kind: 4, value: b"" }]);
    }

    #[test]
    fn a_checksum_in_the_midst_of_others_and_only_one() {
        let mut bytes = with_tlvs(&[4, 0, 0, 3, 0, 4, 0, 0, 0, 0, 2, 0, 1, b'a']);
        let checksum = crc32c([bytes.as_slice()]).to_be_bytes();
        bytes[FIXED_BYTES + 12 + 6..][..4].copy_from_slice(&checksum);
        assert!(matches!(parsed(&bytes), Ok(Some(ProxyOrigin::Client { .. }))));
        let twice = with_tlvs(&[3, 0, 4, 0, 0, 0, 0, 3, 0, 4, 0, 0, 0, 0]);
        assert_eq!(parsed(&twice), Err(ProxyHeaderError::Checksum));
    }

    #[test]
    fn too_long_values_are_left_out() {
        let long = "a".repeat(300);
        let client = Some(("192.0.2.1:56324".parse().unwrap(), "192.0.2.2:443".parse().unwrap()));
        let mut bytes = Vec::new();
        let unique_id = Some(&[0; 129][..]);
        write(
            &ProxyIntroduction { client, authority: Some(&long), unique_id, has_checksum: false },
            &mut bytes,
        );
        assert_eq!(bytes, with_tlvs(b""));
    }
}
