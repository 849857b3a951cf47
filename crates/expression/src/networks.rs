//! A set of networks, searched by halves.

use std::net::IpAddr;

use ipnet::IpNet;

/// Networks as ranges of addresses that neither overlap nor touch, in order.
///
/// IPv4 addresses written as IPv6 (`::ffff:192.0.2.1`, RFC 4291 §2.5.5.2) count as IPv4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetworkSet {
    four: Box<[(u32, u32)]>,
    six: Box<[(u128, u128)]>,
}

impl NetworkSet {
    pub(crate) fn new(networks: &[IpNet]) -> Self {
        let (mut four, mut six) = (Vec::new(), Vec::new());
        for network in networks {
            let (first, last) = (network.network(), network.broadcast());
            match (canonical(first, network.prefix_len()), last.to_canonical()) {
                (IpAddr::V4(first), IpAddr::V4(last)) => four.push((u32::from(first), u32::from(last))),
                _ => six.push((bits(first), bits(last))),
            }
        }
        Self { four: joined(four, |last| last.checked_add(1)), six: joined(six, |last| last.checked_add(1)) }
    }

    /// Whether any network contains the address.
    #[inline]
    pub(crate) fn hold(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => holds(&self.four, u32::from(address)),
            IpAddr::V6(address) => holds(&self.six, u128::from(address)),
        }
    }

    /// Whether these networks contain all addresses of the others.
    pub(crate) fn contain(&self, others: &Self) -> bool {
        let four = |(first, last): &(u32, u32)| within(&self.four, *first, *last);
        let six = |(first, last): &(u128, u128)| within(&self.six, *first, *last);
        others.four.iter().all(four) && others.six.iter().all(six)
    }

    /// The number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.four.len() + self.six.len()
    }
}

/// The first address of a network: an IPv4 address if the whole network is of IPv4 addresses.
fn canonical(first: IpAddr, prefix_bits: u8) -> IpAddr {
    const MAPPED_BITS: u8 = 96;
    if first.is_ipv6() && prefix_bits < MAPPED_BITS { first } else { first.to_canonical() }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
        IpAddr::V6(address) => u128::from(address),
    }
}

fn joined<A: Ord + Copy>(mut ranges: Vec<(A, A)>, next: impl Fn(A) -> Option<A>) -> Box<[(A, A)]> {
    ranges.sort_unstable();
    let mut list: Vec<(A, A)> = Vec::new();
    for (first, last) in ranges {
        match list.last_mut() {
            Some((_, end)) if next(*end).is_none_or(|next| first <= next) => *end = last.max(*end),
            _ => list.push((first, last)),
        }
    }
    list.into()
}

fn holds<A: Ord + Copy>(ranges: &[(A, A)], address: A) -> bool {
    within(ranges, address, address)
}

#[inline]
fn within<A: Ord + Copy>(ranges: &[(A, A)], first: A, last: A) -> bool {
    let after = ranges.partition_point(|(start, _)| *start <= first);
    after.checked_sub(1).is_some_and(|index| last <= ranges[index].1)
}

/// Parses a network, or an address as a network with one address.
pub(crate) fn parse(text: &str) -> Result<IpNet, NetworkFault> {
    let Some((_, _)) = text.split_once('/') else {
        return text.parse::<IpAddr>().map(IpNet::from).map_err(|_| NetworkFault::Syntax);
    };
    let network: IpNet = text.parse().map_err(|_| NetworkFault::Syntax)?;
    if network.addr() == network.network() {
        Ok(network)
    } else {
        Err(NetworkFault::HostBits(network.trunc()))
    }
}

/// Why a text is not a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NetworkFault {
    /// The text is neither an address nor a network.
    Syntax,
    /// The address is within the network, which is this one.
    HostBits(IpNet),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn networks(texts: &[&str]) -> NetworkSet {
        NetworkSet::new(&texts.iter().map(|text| parse(text).unwrap()).collect::<Vec<_>>())
    }

    #[test]
    fn addresses_in_networks() {
        let set = networks(&[
            "10.0.0.0/8",
            "10.1.0.0/16",
            "11.0.0.0/8",
            "255.255.255.255",
            "::ffff:192.0.2.0/120",
            "2001:db8::/32",
            "::1",
        ]);
        assert_eq!(set.len(), 5);
        for (address, is_in) in [
            ("10.0.0.0", true),
            ("11.255.255.255", true),
            ("12.0.0.0", false),
            ("9.255.255.255", false),
            ("255.255.255.255", true),
            ("::ffff:10.1.2.3", true),
            ("192.0.2.9", true),
            ("2001:db8::9", true),
            ("2001:db9::", false),
            ("::1", true),
            ("::2", false),
        ] {
            assert_eq!(set.hold(address.parse().unwrap()), is_in, "{address}");
        }
        assert!(networks(&["0.0.0.0/0"]).hold("1.2.3.4".parse().unwrap()));
        assert!(networks(&["0.0.0.0/0"]).contain(&networks(&["10.0.0.0/8", "127.0.0.1"])));
        assert!(!networks(&["10.0.0.0/8"]).contain(&networks(&["::1"])));
    }

    #[test]
    fn what_is_no_network() {
        assert_eq!(parse("10.0.0.1/8"), Err(NetworkFault::HostBits("10.0.0.0/8".parse().unwrap())));
        for text in ["", "10", "10.0.0.0/33", "example.com", "10.0.0.0/", "/8"] {
            assert_eq!(parse(text), Err(NetworkFault::Syntax), "{text}");
        }
    }

    proptest! {
        #[test]
        fn ranges_agree_with_a_search_through_all(
            list in prop::collection::vec((0_u32..64, 26_u8..=32), 0..12),
            address in 0_u32..80,
        ) {
            let list: Vec<IpNet> = list
                .iter()
                .map(|(address, bits)| IpNet::new(std::net::Ipv4Addr::from(*address).into(), *bits).unwrap().trunc())
                .collect();
            let address = IpAddr::from(std::net::Ipv4Addr::from(address));
            prop_assert_eq!(NetworkSet::new(&list).hold(address), list.iter().any(|network| network.contains(&address)));
        }
    }
}
