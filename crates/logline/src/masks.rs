//! What is hidden in lines: queries, header fields, and parts of clients' addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::query::Query;

/// Header fields that are never logged unless they are listed as shown.
pub const HIDDEN_HEADERS: [&str; 4] = ["Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie"];

/// Header fields with addresses of clients, which are hidden where addresses are.
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

/// What is hidden in lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Masks {
    /// How queries of targets and of Referer are logged.
    pub query: Query,
    /// How addresses of clients are logged.
    pub addresses: Addresses,
    /// Header fields whose values are `***`, besides [`HIDDEN_HEADERS`]. Case does not matter.
    pub hidden_headers: Vec<String>,
    /// Header fields that are logged although they are among [`HIDDEN_HEADERS`]. Case does not matter.
    pub shown_headers: Vec<String>,
}

/// How addresses of clients are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Addresses {
    /// The whole address.
    #[default]
    Full,
    /// The network: the first 24 bits of an IPv4 address, the first 48 of an IPv6 address; the rest is zero.
    Network,
}

impl Masks {
    /// Whether the value of a header field is hidden.
    pub(crate) fn hides(&self, name: &[u8]) -> bool {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let among = |names: &[String]| names.iter().any(|known| is(known));
        let has_address = self.addresses == Addresses::Network && ADDRESS_HEADERS.into_iter().any(is);
        among(&self.hidden_headers)
            || ((HIDDEN_HEADERS.into_iter().any(is) || has_address) && !among(&self.shown_headers))
    }
}

impl Addresses {
    /// What is logged of an address. An IPv4 client that came through an IPv6 socket is one of IPv4.
    pub(crate) fn of(self, address: IpAddr) -> IpAddr {
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
            assert_eq!(Addresses::Network.of(address).to_string(), network);
            assert_eq!(Addresses::Full.of(address), address.to_canonical());
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
