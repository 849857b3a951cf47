//! Hash of the client address: a client stays on one server as long as it is available, however busy.
//!
//! When a server goes, its clients spread over the others, and only they move; when it returns, they move back.

use std::net::IpAddr;

use crate::hash::HashSecret;
use crate::picker::Candidates;

#[derive(Debug, Clone)]
pub(crate) struct ClientAddress;

impl ClientAddress {
    #[inline]
    pub(crate) fn pick(&self, candidates: &Candidates<'_>) -> Option<usize> {
        let key = candidates.ask.key.unwrap_or(candidates.ask.random);
        candidates.fleet.maglev.as_ref()?.find(candidates, key, |place| candidates.allows(place))
    }
}

/// The address bits that identify a client. One host may change the rest of its IPv6 address (RFC 8981).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressPrefixes {
    /// Up to 32.
    pub v4: u8,
    /// Up to 128.
    pub v6: u8,
}

impl Default for AddressPrefixes {
    fn default() -> Self {
        Self { v4: 32, v6: 64 }
    }
}

impl AddressPrefixes {
    /// The identifying bits of a client's address, as 16 bytes. IPv4 addresses mapped to IPv6 (RFC 4291 §2.5.5.2) count
    /// as IPv4.
    pub fn client(self, address: IpAddr) -> [u8; 16] {
        let leading = |bits: u8| u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
        let masked = match address.to_canonical() {
            // As a mapped IPv6 address, so that both families hash 16 bytes and never meet by chance.
            IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits() & leading(96 + self.v4.min(32)),
            IpAddr::V6(v6) => v6.to_bits() & leading(self.v6),
        };
        masked.to_be_bytes()
    }
}

/// The key of a client, for `Ask::key`.
pub fn client_key(address: IpAddr, prefixes: AddressPrefixes, secret: HashSecret) -> u64 {
    secret.hash(&prefixes.client(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_distinguished_by_address_prefix() {
        let key = |address: &str, v4, v6| {
            client_key(
                address.parse().expect("an address"),
                AddressPrefixes { v4, v6 },
                HashSecret::default(),
            )
        };
        for (one, other, v4, v6, is_same) in [
            ("192.0.2.1", "192.0.2.1", 32, 64, true),
            ("192.0.2.1", "192.0.2.2", 32, 64, false),
            ("192.0.2.1", "192.0.2.2", 24, 64, true),
            ("192.0.2.1", "192.0.3.1", 24, 64, false),
            ("192.0.2.1", "::ffff:192.0.2.1", 32, 64, true),
            ("192.0.2.1", "198.51.100.1", 0, 64, true),
            ("2001:db8::1", "2001:db8::ffff:1", 32, 64, true),
            ("2001:db8::1", "2001:db8::ffff:1", 32, 128, false),
            ("2001:db8:0:1::1", "2001:db8:0:2::1", 32, 64, false),
            ("2001:db8::1", "2002::1", 32, 0, true),
            ("0.0.0.0", "::", 0, 0, false),
        ] {
            assert_eq!(key(one, v4, v6) == key(other, v4, v6), is_same, "{one} {other} /{v4} /{v6}");
        }
    }
}
