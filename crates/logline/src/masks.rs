//! Hidden parts of lines: queries, header fields, and parts of client addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::query::LoggedQuery;

/// Header fields that are never logged unless they are listed as shown.
pub const HIDDEN_HEADERS: [&str; 4] = ["Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie"];

/// Header fields with client addresses. They are hidden if addresses are masked.
const ADDRESS_HEADERS: [&str; 8] = [
    "Forwarded",
    "X-Forwarded-For",
    "X-Real-IP",
    "X-Client-IP",
    "True-Client-IP",
    "CF-Connecting-IP",
    "X-Cluster-Client-IP",
    "Fastly-Client-IP",
];

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Masks {
    pub query: LoggedQuery,
    pub addresses: Addresses,
    /// Further header fields (in any case) whose values are logged as `***`.
    pub hidden_headers: Vec<String>,
    /// Header fields (in any case) that are logged although they are in [`HIDDEN_HEADERS`].
    pub shown_headers: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Addresses {
    #[default]
    Full,
    /// The network: the first 24 bits of an IPv4 address, or 48 of an IPv6 address. The other bits are zero.
    Network,
}

impl Masks {
    pub(crate) fn hides(&self, name: &[u8]) -> bool {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let among = |names: &[String]| names.iter().any(|known| is(known));
        let has_address = self.addresses == Addresses::Network && ADDRESS_HEADERS.into_iter().any(is);
        among(&self.hidden_headers)
            || ((HIDDEN_HEADERS.into_iter().any(is) || has_address) && !among(&self.shown_headers))
    }
}

impl Addresses {
    /// An IPv4-mapped IPv6 address becomes IPv4.
    pub(crate) fn for_address(self, address: IpAddr) -> IpAddr {
        match (self, address.to_canonical()) {
            (Self::Full, address) => address,
            (Self::Network, IpAddr::V4(address)) => {
                let [first, second, third, _] = address.octets();
                Ipv4Addr::new(first, second, third, 0).into()
            }
            (Self::Network, IpAddr::V6(address)) => {
                let [first, second, third, ..] = address.segments();
                Ipv6Addr::new(first, second, third, 0, 0, 0, 0, 0).into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        for (address, network) in [
            ("192.0.2.7", "192.0.2.0"),
            ("::ffff:192.0.2.7", "192.0.2.0"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1::"),
            ("::1", "::"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(Addresses::Network.for_address(address).to_string(), network);
            assert_eq!(Addresses::Full.for_address(address), address.to_canonical());
        }
    }

    #[test]
    fn headers() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let masks = Masks {
            hidden_headers: names(&["X-Api-Key"]),
            shown_headers: names(&["cookie"]),
            ..Masks::default()
        };
        for (name, is_hidden) in [
            ("authorization", true),
            ("SET-COOKIE", true),
            ("Cookie", false),
            ("x-api-key", true),
            ("X-Forwarded-For", false),
            ("User-Agent", false),
        ] {
            assert_eq!(masks.hides(name.as_bytes()), is_hidden, "{name}");
        }
        let masks = Masks { addresses: Addresses::Network, ..masks };
        assert!(masks.hides(b"x-forwarded-for") && !masks.hides(b"User-Agent"));
    }
}
