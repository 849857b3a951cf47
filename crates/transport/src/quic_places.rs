//! Client handshakes that wait or are in progress. Each takes a place at its endpoint. Places are counted for each
//! network that clients come from, so that the endpoint's host can distinguish one very busy client from many clients.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;

use quinn_proto::ConnectionId;

use crate::quic_desk::Desk;

/// The number of handshakes that wait or are in progress at an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crowd {
    /// From all clients.
    pub all: usize,
    /// From one client's network: its IPv4 address, or the first 64 bits of its IPv6 address, because a host chooses
    /// the rest itself.
    pub of_network: usize,
}

/// The places that are taken at an endpoint.
#[derive(Default)]
pub(crate) struct HandshakePlaces {
    all: Cell<usize>,
    of_networks: RefCell<HashMap<IpAddr, usize>>,
}

/// The place of one handshake, from the client's first datagram until the handshake succeeds or fails.
pub(crate) struct HandshakePlace {
    desk: Rc<Desk>,
    network: IpAddr,
    /// The ID that the client has chosen. `None` after a Retry, which gave it one of ours.
    began: Option<ConnectionId>,
}

impl HandshakePlaces {
    pub(crate) fn crowd(&self, remote: IpAddr) -> Crowd {
        let of_network = self.of_networks.borrow().get(&network(remote)).copied().unwrap_or(0);
        Crowd { all: self.all.get(), of_network }
    }

    fn enter(&self, network: IpAddr) {
        self.all.set(self.all.get() + 1);
        *self.of_networks.borrow_mut().entry(network).or_default() += 1;
    }

    fn leave(&self, network: IpAddr) {
        self.all.set(self.all.get() - 1);
        if let Entry::Occupied(mut entered) = self.of_networks.borrow_mut().entry(network) {
            *entered.get_mut() -= 1;
            // The table must not grow with each network that was ever seen.
            if *entered.get() == 0 {
                entered.remove();
            }
        }
    }
}

impl HandshakePlace {
    /// Takes a place for a client whose handshake begins with this ID. `None` if it has begun elsewhere.
    pub(crate) fn take(desk: &Rc<Desk>, remote: IpAddr, began: Option<ConnectionId>) -> Option<Self> {
        // Another worker was faster with an earlier datagram of this client.
        if began.is_some_and(|id| !desk.claim(id)) {
            return None;
        }
        let network = network(remote);
        desk.places.enter(network);
        Some(Self { desk: Rc::clone(desk), network, began })
    }
}

impl Drop for HandshakePlace {
    fn drop(&mut self) {
        self.desk.places.leave(self.network);
        if let Some(id) = &self.began {
            self.desk.release(id);
        }
    }
}

fn network(remote: IpAddr) -> IpAddr {
    match remote.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_by_network() {
        let places = HandshakePlaces::default();
        let address = |text: &str| text.parse::<IpAddr>().expect("is an address");
        let crowd = |text| {
            let Crowd { all, of_network } = places.crowd(address(text));
            (all, of_network)
        };
        for text in
            ["10.0.0.1", "10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2:0:0:1"]
        {
            places.enter(network(address(text)));
        }
        assert_eq!([crowd("10.0.0.1"), crowd("10.0.0.2"), crowd("10.0.0.3")], [(6, 3), (6, 1), (6, 0)]);
        assert_eq!([crowd("2001:db8::3"), crowd("2001:db8:0:1::1")], [(6, 2), (6, 0)]);
        for text in ["10.0.0.1", "10.0.0.2"] {
            places.leave(network(address(text)));
        }
        assert_eq!([crowd("10.0.0.1"), crowd("10.0.0.2")], [(4, 2), (4, 0)]);
        assert_eq!(places.of_networks.borrow().len(), 2, "what has no place takes no memory");
    }
}
