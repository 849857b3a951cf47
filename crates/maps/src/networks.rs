//! Keys that are networks: 13 bytes per IPv4 network, 25 per IPv6 network, besides values.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::fault::EntryFault;
use crate::nested::Links;

/// Networks of both versions, each with its entry.
#[derive(Debug, Clone, Default)]
pub(crate) struct Networks {
    v4: Family<u32>,
    v6: Family<u128>,
}

/// Networks while entries are added.
#[derive(Debug, Default)]
pub(crate) struct NetworksBuilder {
    v4: Vec<(u32, u8, u32)>,
    v6: Vec<(u128, u8, u32)>,
}

/// The networks of one version, by address and then by length.
#[derive(Debug, Clone)]
struct Family<A> {
    bases: Box<[A]>,
    lengths: Box<[u8]>,
    entries: Box<[u32]>,
    links: Links,
}

impl<A> Default for Family<A> {
    fn default() -> Self {
        Self { bases: [].into(), lengths: [].into(), entries: [].into(), links: Links::default() }
    }
}

/// An address as a number.
trait AddressBits: Copy + Ord {
    /// Whether the first bits of two addresses are equal.
    fn shares(self, other: Self, bits: u8) -> bool;
}

impl AddressBits for u32 {
    fn shares(self, other: Self, bits: u8) -> bool {
        (self ^ other).checked_shr(Self::BITS - u32::from(bits)).unwrap_or(0) == 0
    }
}

impl AddressBits for u128 {
    fn shares(self, other: Self, bits: u8) -> bool {
        (self ^ other).checked_shr(Self::BITS - u32::from(bits)).unwrap_or(0) == 0
    }
}

/// Parses a network, or an address as the network of this address alone. An IPv4-mapped address is an IPv4 address.
pub(crate) fn parse(text: &str) -> Result<IpNet, EntryFault> {
    let fault = || EntryFault::Network(text.to_owned());
    let network = match text.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address.to_canonical()),
        Err(_) => text.parse::<IpNet>().map_err(|_| fault())?,
    };
    let meant = network.trunc();
    if meant.addr() == network.addr() {
        Ok(network)
    } else {
        Err(EntryFault::HostBits { network: text.to_owned(), meant: meant.to_string() })
    }
}

impl NetworksBuilder {
    pub(crate) fn push(&mut self, network: IpNet, entry: u32) {
        let length = network.prefix_len();
        match network.addr() {
            IpAddr::V4(base) => self.v4.push((base.to_bits(), length, entry)),
            IpAddr::V6(base) => self.v6.push((base.to_bits(), length, entry)),
        }
    }

    /// Sorts the networks and drops repeated ones.
    ///
    /// # Errors
    /// A network with two entries that differ.
    pub(crate) fn build(self, differ: impl Fn(u32, u32) -> bool) -> Result<Networks, String> {
        let v4 = Family::new(self.v4, &differ);
        let v4 = v4.map_err(|(base, length)| format!("{}/{length}", Ipv4Addr::from(base)))?;
        let v6 = Family::new(self.v6, &differ);
        let v6 = v6.map_err(|(base, length)| format!("{}/{length}", Ipv6Addr::from(base)))?;
        Ok(Networks { v4, v6 })
    }
}

impl<A: AddressBits> Family<A> {
    fn new(mut networks: Vec<(A, u8, u32)>, differ: &impl Fn(u32, u32) -> bool) -> Result<Self, (A, u8)> {
        networks.sort_unstable();
        let mut conflict = None;
        networks.dedup_by(|second, first| {
            let is_same = (first.0, first.1) == (second.0, second.1);
            if is_same && differ(first.2, second.2) {
                conflict = Some((second.0, second.1));
            }
            is_same
        });
        if let Some(network) = conflict {
            return Err(network);
        }
        let contains = |outer: u32, inner: u32| {
            let (outer, inner) = (networks[outer as usize], networks[inner as usize]);
            outer.0.shares(inner.0, outer.1)
        };
        let links = Links::new(networks.len() as u32, contains);
        Ok(Self {
            bases: networks.iter().map(|network| network.0).collect(),
            lengths: networks.iter().map(|network| network.1).collect(),
            entries: networks.iter().map(|network| network.2).collect(),
            links,
        })
    }

    /// The places of the networks that contain an address, the smallest first.
    fn matches(&self, address: A) -> impl Iterator<Item = (u8, u32)> {
        let before = self.bases.partition_point(|base| *base <= address);
        self.links.outwards(before).filter_map(move |place| {
            let place = place as usize;
            let (base, length) = (*self.bases.get(place)?, *self.lengths.get(place)?);
            if base.shares(address, length) { Some((length, *self.entries.get(place)?)) } else { None }
        })
    }

    fn entry(&self, base: A, length: u8) -> Option<u32> {
        let first = self.bases.partition_point(|known| *known < base);
        let same = self.bases.get(first..)?.iter().zip(self.lengths.get(first..)?);
        let same = same.take_while(|(known, _)| **known == base);
        let (offset, _) = same.enumerate().find(|(_, (_, known))| **known == length)?;
        self.entries.get(first + offset).copied()
    }

    fn all(&self) -> impl Iterator<Item = (A, u8, u32)> {
        let parts = self.bases.iter().zip(&self.lengths).zip(&self.entries);
        parts.map(|((base, length), entry)| (*base, *length, *entry))
    }
}

impl Networks {
    /// The smallest network that contains an address and whose entry is accepted: its length and its entry.
    pub(crate) fn first(
        &self,
        address: IpAddr,
        mut accepts: impl FnMut(u32) -> bool,
    ) -> Option<(usize, u32)> {
        let found = match address.to_canonical() {
            IpAddr::V4(address) => self.v4.matches(address.to_bits()).find(|(_, entry)| accepts(*entry)),
            IpAddr::V6(address) => self.v6.matches(address.to_bits()).find(|(_, entry)| accepts(*entry)),
        };
        found.map(|(length, entry)| (usize::from(length), entry))
    }

    /// The entry of exactly this network.
    pub(crate) fn entry(&self, network: IpNet) -> Option<u32> {
        match network.addr() {
            IpAddr::V4(base) => self.v4.entry(base.to_bits(), network.prefix_len()),
            IpAddr::V6(base) => self.v6.entry(base.to_bits(), network.prefix_len()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.v4.bases.len() + self.v6.bases.len()
    }

    /// All networks and their entries, in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (IpNet, u32)> {
        let v4 = self.v4.all().map(|(base, length, entry)| (IpAddr::V4(Ipv4Addr::from(base)), length, entry));
        let v6 = self.v6.all().map(|(base, length, entry)| (IpAddr::V6(Ipv6Addr::from(base)), length, entry));
        v4.chain(v6).filter_map(|(base, length, entry)| Some((IpNet::new(base, length).ok()?, entry)))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let [v4, v6] = [self.v4.bases.len(), self.v6.bases.len()];
        v4 * 9 + v6 * 21 + self.v4.links.memory_bytes() + self.v6.links.memory_bytes()
    }
}
