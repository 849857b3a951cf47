//! Looks up values by network; the longest matching prefix decides.
//!
//! Networks are compiled into ranges that do not overlap. A lookup is one binary search and allocates nothing, so that
//! even ten thousand networks are fast.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Values by network. An address has the value of the longest network that contains it.
///
/// IPv4 addresses written as IPv6 (`::ffff:192.0.2.1`, RFC 4291 §2.5.5.2) count as IPv4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Networks<T> {
    four: Ranges<u32, T>,
    six: Ranges<u128, T>,
}

/// Starts of ranges; each range ends where the next one starts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ranges<A, T> {
    starts: Vec<A>,
    /// The values of the ranges; `None` between networks.
    values: Vec<Option<T>>,
}

impl<T: Copy> Networks<T> {
    /// Compiles networks. Of two values for one network, the later is used.
    pub fn new(networks: impl IntoIterator<Item = (IpNet, T)>) -> Self {
        let (mut four, mut six) = (Vec::new(), Vec::new());
        for (network, value) in networks {
            match canonical_network(network) {
                IpNet::V4(network) => four.push(NetworkSpan {
                    first: u32::from(network.network()),
                    last: u32::from(network.broadcast()),
                    value,
                }),
                IpNet::V6(network) => six.push(NetworkSpan {
                    first: u128::from(network.network()),
                    last: u128::from(network.broadcast()),
                    value,
                }),
            }
        }
        Self { four: flatten(four), six: flatten(six) }
    }

    /// The value for an address; `None` outside of all networks.
    #[inline]
    pub fn for_address(&self, address: IpAddr) -> Option<T> {
        match address.to_canonical() {
            IpAddr::V4(address) => self.four.at(u32::from(address)),
            IpAddr::V6(address) => self.six.at(u128::from(address)),
        }
    }

    /// Whether any network contains the address.
    #[inline]
    pub fn hold(&self, address: IpAddr) -> bool {
        self.for_address(address).is_some()
    }
}

impl<A: Ord + Copy, T: Copy> Ranges<A, T> {
    #[inline]
    fn at(&self, address: A) -> Option<T> {
        let after = self.starts.partition_point(|start| *start <= address);
        self.values.get(after.checked_sub(1)?).copied().flatten()
    }
}

/// The first address of the client's network, which has `bits_v4` bits for IPv4 and `bits_v6` for IPv6.
#[inline]
pub fn network_of(address: IpAddr, bits_v4: u8, bits_v6: u8) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits_v4.min(32))).unwrap_or(0);
            Ipv4Addr::from(u32::from(address) & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits_v6.min(128))).unwrap_or(0);
            Ipv6Addr::from(u128::from(address) & mask).into()
        }
    }
}

/// The number of host bits of a network; the fewer, the narrower it is.
pub(crate) fn host_bits(network: IpNet) -> u8 {
    let network = canonical_network(network);
    network.max_prefix_len() - network.prefix_len()
}

/// Converts a network of IPv4 addresses written as IPv6 to IPv4.
fn canonical_network(network: IpNet) -> IpNet {
    const MAPPED_BITS: u8 = 96;
    if let IpNet::V6(mapped) = network
        && let Some(address) = mapped.network().to_ipv4_mapped()
        && let Some(bits) = mapped.prefix_len().checked_sub(MAPPED_BITS)
        && let Ok(four) = IpNet::new(address.into(), bits)
    {
        return four;
    }
    network
}

#[derive(Debug, Clone, Copy)]
struct NetworkSpan<A, T> {
    first: A,
    last: A,
    value: T,
}

trait ClientIp: Ord + Copy {
    /// `None` behind the last address of all.
    fn next(self) -> Option<Self>;
}

impl ClientIp for u32 {
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
}

impl ClientIp for u128 {
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
}

/// Networks nest or are disjoint, and never overlap partially: an outer network fills the gaps between inner ones.
fn flatten<A: ClientIp, T: Copy>(mut spans: Vec<NetworkSpan<A, T>>) -> Ranges<A, T> {
    // Of networks with one start, the wider first. A stable sort: of two equal networks, the later is the inner one.
    spans.sort_by(|one, other| (one.first, other.last).cmp(&(other.first, one.last)));
    let mut ranges = Ranges { starts: Vec::new(), values: Vec::new() };
    let mut around: Vec<NetworkSpan<A, T>> = Vec::new();
    for span in spans {
        while let Some(inner) = around.pop_if(|inner| inner.last < span.first) {
            ranges.leave(inner.last, around.last());
        }
        ranges.begin(span.first, Some(span.value));
        around.push(span);
    }
    while let Some(inner) = around.pop() {
        ranges.leave(inner.last, around.last());
    }
    ranges
}

impl<A: ClientIp, T: Copy> Ranges<A, T> {
    fn begin(&mut self, start: A, value: Option<T>) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.values.pop();
        }
        self.starts.push(start);
        self.values.push(value);
    }

    fn leave(&mut self, last: A, around: Option<&NetworkSpan<A, T>>) {
        if let Some(next) = last.next() {
            // A network that ends with its outer one is left together with it.
            self.begin(next, around.filter(|around| last < around.last).map(|around| around.value));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn networks(texts: &[&str]) -> Networks<usize> {
        Networks::new(texts.iter().enumerate().map(|(index, text)| (text.parse().unwrap(), index)))
    }

    #[test]
    fn the_longest_prefix_decides() {
        let table = networks(&[
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.2.3/32",
            "0.0.0.0/0",
            "255.255.255.255/32",
            "2001:db8::/32",
            "2001:db8:ffff::/48",
            "::1/128",
            "::ffff:192.0.2.0/120",
        ]);
        for (address, value) in [
            ("10.0.0.0", Some(0)),
            ("10.255.255.255", Some(0)),
            ("10.1.0.0", Some(1)),
            ("10.1.2.2", Some(1)),
            ("10.1.2.3", Some(2)),
            ("10.1.2.4", Some(1)),
            ("10.2.0.0", Some(0)),
            ("11.0.0.0", Some(3)),
            ("0.0.0.0", Some(3)),
            ("255.255.255.255", Some(4)),
            ("255.255.255.254", Some(3)),
            ("192.0.2.7", Some(8)),
            ("::ffff:10.1.2.3", Some(2)),
            ("2001:db8::1", Some(5)),
            ("2001:db8:ffff::1", Some(6)),
            ("2001:db9::", None),
            ("::1", Some(7)),
            ("::", None),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None),
        ] {
            assert_eq!(table.for_address(address.parse().unwrap()), value, "{address}");
        }
        assert!(!networks(&[]).hold("10.0.0.1".parse().unwrap()));
        assert_eq!(networks(&["10.0.0.0/8", "10.0.0.0/8"]).for_address("10.0.0.1".parse().unwrap()), Some(1));
    }

    #[test]
    fn networks_of_clients() {
        for (address, network) in [
            ("192.0.2.77", "192.0.2.0"),
            ("::ffff:192.0.2.77", "192.0.2.0"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            assert_eq!(network_of(address.parse().unwrap(), 24, 64), network.parse::<IpAddr>().unwrap());
        }
        let all: IpAddr = "192.0.2.77".parse().unwrap();
        assert_eq!((network_of(all, 32, 128), network_of(all, 0, 0)), (all, "0.0.0.0".parse().unwrap()));
        let six: IpAddr = "2001:db8::1".parse().unwrap();
        assert_eq!((network_of(six, 200, 200), network_of(six, 0, 0)), (six, "::".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn ranges_agree_with_a_search_through_all(
            texts in prop::collection::vec((0u32..64, 26u8..=32), 0..20),
            address in 0u32..80,
        ) {
            let list: Vec<IpNet> = texts
                .iter()
                .map(|(address, bits)| IpNet::new(Ipv4Addr::from(*address).into(), *bits).unwrap().trunc())
                .collect();
            let address = IpAddr::from(Ipv4Addr::from(address));
            let holding = list.iter().enumerate().filter(|(_, network)| network.contains(&address));
            let longest = holding.max_by_key(|(index, network)| (network.prefix_len(), *index));
            let table = Networks::new(list.iter().copied().zip(0..));
            prop_assert_eq!(table.for_address(address), longest.map(|(index, _)| index));
        }
    }
}
