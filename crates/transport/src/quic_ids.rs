//! QUIC connection IDs (RFC 9000 §5.1) that encode the process, worker and endpoint of a connection. The kernel chooses
//! a worker by addresses, which may change, and an upgraded process keeps its connections.
//!
//! Third parties cannot read the IDs, or tell which ones belong to the same connection.

use std::hash::Hasher;
use std::time::Duration;

use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};
use rustls::crypto::SecureRandom;
use rustls::crypto::aws_lc_rs::default_provider;
use siphasher::sip::SipHasher24;

/// Random bytes of a connection ID, which come first.
// RFC 9000 §5.1: observers must not be able to link the IDs of a connection, so each begins with new random bytes.
const RANDOM: usize = 8;
/// The encrypted owner, and a check that the ID is ours.
const TAG: usize = 6;
pub const LEN: usize = RANDOM + TAG;
/// Longest connection ID of QUIC version 1.
const ID_MAX: usize = 20;
/// The last two bytes of a tag before encryption.
// An ID that a client has chosen passes by chance once in 65,536 times.
const CHECK: [u8; 2] = [0x5a, 0xc3];

/// The owner of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdOwner {
    /// The process, counted from the first one over upgrades.
    pub generation: u8,
    pub worker: u16,
    /// The index of the endpoint in its worker.
    pub endpoint: u8,
}

/// The endpoint that a datagram belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// The endpoint that received it, as far as known.
    Here,
    Other(IdOwner),
    /// A client has chosen this ID: it begins, or has begun and not yet received ours.
    Beginning(ConnectionId),
}

/// Creates connection IDs, and reads their owners.
#[derive(Clone, Copy)]
pub struct Ids {
    key: [u8; 16],
    owner: IdOwner,
    random: &'static dyn SecureRandom,
}

impl Ids {
    /// Creates IDs for this owner. All endpoints that pass datagrams on to each other need the same key.
    pub fn new(key: [u8; 16], owner: IdOwner) -> Self {
        Self { key, owner, random: default_provider().secure_random }
    }

    /// The owner of the created IDs.
    pub fn owner(&self) -> IdOwner {
        self.owner
    }

    /// The endpoint that a datagram belongs to.
    pub fn destination(&self, datagram: &[u8]) -> Destination {
        let Some((id, is_first)) = destination(datagram) else { return Destination::Here };
        match <&[u8; LEN]>::try_from(id).ok().and_then(|id| self.owner_of(id)) {
            Some(owner) if owner == self.owner => Destination::Here,
            Some(owner) => Destination::Other(owner),
            // RFC 9000 §17.2: a longer ID belongs to an unsupported version.
            None if is_first && id.len() <= ID_MAX => Destination::Beginning(ConnectionId::new(id)),
            None => Destination::Here,
        }
    }

    fn owner_of(&self, id: &[u8; LEN]) -> Option<IdOwner> {
        let (random, hidden) = id.split_at(RANDOM);
        let mut tag = self.mask(random);
        tag.iter_mut().zip(hidden).for_each(|(byte, hidden)| *byte ^= hidden);
        let [generation, high, low, endpoint, check @ ..] = tag;
        (check == CHECK).then_some(IdOwner { generation, worker: u16::from_be_bytes([high, low]), endpoint })
    }

    fn mask(&self, random: &[u8]) -> [u8; TAG] {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(random);
        let [mask @ .., _, _] = hasher.finish().to_be_bytes();
        mask
    }
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; LEN];
        // Cannot fail here: the handshake needed random bytes before.
        let _ = self.random.fill(&mut id[..RANDOM]);
        let IdOwner { generation, worker, endpoint } = self.owner;
        let [high, low] = worker.to_be_bytes();
        let tag = [generation, high, low, endpoint, CHECK[0], CHECK[1]];
        let mask = self.mask(&id[..RANDOM]);
        for (byte, (tag, mask)) in id[RANDOM..].iter_mut().zip(tag.into_iter().zip(mask)) {
            // A keyed hash as a mask: without the key, neither owner nor check is readable.
            *byte = tag ^ mask;
        }
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        let id = <&[u8; LEN]>::try_from(&id[..]).map_err(|_| InvalidCid)?;
        self.owner_of(id).map(drop).ok_or(InvalidCid)
    }

    fn cid_len(&self) -> usize {
        LEN
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// The destination ID of a datagram's first packet, and whether the client may have chosen that ID, which the packet's
/// type shows (RFC 9000 §7.2, §17.2, §17.3).
fn destination(datagram: &[u8]) -> Option<(&[u8], bool)> {
    const LONG: u8 = 0x80;
    const TYPE: u8 = 0x30;
    const INITIAL: u8 = 0x00;
    let first = *datagram.first()?;
    if first & LONG == 0 {
        // RFC 9000 §17.3: a short header has no length, so all IDs of a server have one length.
        return Some((datagram.get(1..=LEN)?, false));
    }
    let len = usize::from(*datagram.get(5)?);
    Some((datagram.get(6..6 + len)?, first & TYPE == INITIAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 16] = *b"0123456789abcdef";

    fn ids(generation: u8, worker: u16, endpoint: u8) -> Ids {
        Ids::new(KEY, IdOwner { generation, worker, endpoint })
    }

    #[test]
    fn an_id_has_its_owner_for_holders_of_the_key() {
        let owner = IdOwner { generation: 255, worker: 1000, endpoint: 3 };
        let [mut own, other] = [ids(255, 1000, 3), ids(0, 1000, 3)];
        for _ in 0..100 {
            let id = own.generate_cid();
            let short = [&[0x40], &id[..], b"rest"].concat();
            let handshake = [&[0xe0, 0, 0, 0, 1, LEN as u8], &id[..], b"rest"].concat();
            let initial = [&[0xc0, 0, 0, 0, 1, LEN as u8], &id[..], b"rest"].concat();
            for datagram in [&short, &handshake, &initial] {
                assert_eq!(own.destination(datagram), Destination::Here);
                assert_eq!(other.destination(datagram), Destination::Other(owner));
            }
            assert!(own.validate(&id).is_ok() && other.validate(&id).is_ok());
            let stranger = Ids::new([1; 16], IdOwner { generation: 0, worker: 2, endpoint: 3 });
            assert_eq!(stranger.destination(&short), Destination::Here);
            assert!(stranger.validate(&id).is_err());
        }
    }

    #[test]
    fn datagrams_with_foreign_ids_stay_here() {
        let id = ids(1, 1, 1).generate_cid();
        let other = ids(1, 2, 2);
        let begins = |id: &[u8]| Destination::Beginning(ConnectionId::new(id));
        for (datagram, expected) in [
            (&b""[..], Destination::Here),
            (b"\x40", Destination::Here),
            (&[&[0x40], &id[..LEN - 1]].concat(), Destination::Here),
            (&[0x40; 40], Destination::Here),
            (&[&[0xe0, 0, 0, 0, 1, 8], &id[..]].concat(), Destination::Here),
            (&[0xe0, 0, 0, 0, 1], Destination::Here),
            (&[0xc0, 0, 0, 0, 1], Destination::Here),
            (&[0xc0, 0, 0, 0, 1, 20, 1], Destination::Here),
            (&[&[0xc0, 0, 0, 0, 1, 21], &[7; 21][..]].concat(), Destination::Here),
            (&[0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8], begins(&[1, 2, 3, 4, 5, 6, 7, 8])),
            (&[0xc0, 0, 0, 0, 1, 0], begins(&[])),
            (&[&[0xc0, 0, 0, 0, 1, LEN as u8], &[7; LEN][..]].concat(), begins(&[7; LEN])),
        ] {
            assert_eq!(other.destination(datagram), expected, "{datagram:x?}");
        }
    }
}
