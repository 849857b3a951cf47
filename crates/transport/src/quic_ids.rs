//! Connection IDs of QUIC (RFC 9000 §5.1) that tell which endpoint of which worker of which process a connection belongs to:
//! the kernel chooses a worker by addresses, and those change; and an upgrade leaves a process its connections.
//!
//! Nobody else can read them, or tell which of them are of the same connection.

use std::hash::Hasher;
use std::time::Duration;

use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};
use rustls::crypto::SecureRandom;
use rustls::crypto::aws_lc_rs::default_provider;
use siphasher::sip::SipHasher24;

/// Random bytes of a connection ID, which come first.
const RANDOM: usize = 8;
/// The owner, hidden, and as much again that tells whether the ID is ours.
const TAG: usize = 6;
/// The length of our connection IDs.
pub const LEN: usize = RANDOM + TAG;
/// The longest connection ID of QUIC's version 1.
const ID_MAX: usize = 20;
/// The last two bytes of a tag before it is hidden.
const CHECK: [u8; 2] = [0x5a, 0xc3];

/// What a connection belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The process, counted from the first one over upgrades.
    pub generation: u8,
    /// The index of the worker.
    pub worker: u16,
    /// The endpoint, among those of the worker.
    pub endpoint: u8,
}

/// Whom a datagram is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// Whoever has received it, as far as can be told.
    Here,
    /// Another endpoint.
    Other(Owner),
    /// A client has chosen this ID: it begins, or has begun and not yet heard of ours.
    Beginning(ConnectionId),
}

/// Makes connection IDs, and reads whose they are.
#[derive(Clone, Copy)]
pub struct Ids {
    key: [u8; 16],
    owner: Owner,
    random: &'static dyn SecureRandom,
}

impl Ids {
    /// Makes IDs for this owner. All endpoints that pass on datagrams to each other need the same key.
    pub fn new(key: [u8; 16], owner: Owner) -> Self {
        Self { key, owner, random: default_provider().secure_random }
    }

    /// Whose connections have these IDs.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Whom a datagram is for.
    pub fn destination(&self, datagram: &[u8]) -> Destination {
        let Some((id, is_first)) = destination(datagram) else { return Destination::Here };
        match <&[u8; LEN]>::try_from(id).ok().and_then(|id| self.owner_of(id)) {
            Some(owner) if owner == self.owner => Destination::Here,
            Some(owner) => Destination::Other(owner),
            // RFC 9000 §17.2: a longer one is of no version that is spoken here.
            None if is_first && id.len() <= ID_MAX => Destination::Beginning(ConnectionId::new(id)),
            None => Destination::Here,
        }
    }

    fn owner_of(&self, id: &[u8; LEN]) -> Option<Owner> {
        let (random, hidden) = id.split_at(RANDOM);
        let mut tag = self.mask(random);
        tag.iter_mut().zip(hidden).for_each(|(byte, hidden)| *byte ^= hidden);
        let [generation, high, low, endpoint, check @ ..] = tag;
        (check == CHECK).then_some(Owner { generation, worker: u16::from_be_bytes([high, low]), endpoint })
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
        // Without random bytes no handshake would have come this far.
        let _ = self.random.fill(&mut id[..RANDOM]);
        let Owner { generation, worker, endpoint } = self.owner;
        let [high, low] = worker.to_be_bytes();
        let tag = [generation, high, low, endpoint, CHECK[0], CHECK[1]];
        let mask = self.mask(&id[..RANDOM]);
        for (byte, (tag, mask)) in id[RANDOM..].iter_mut().zip(tag.into_iter().zip(mask)) {
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

/// The destination of a datagram's first packet, and whether it is one of those that have an ID which the client has chosen,
/// until it hears of ours (RFC 9000 §7.2, §17.2, §17.3).
fn destination(datagram: &[u8]) -> Option<(&[u8], bool)> {
    const LONG: u8 = 0x80;
    const TYPE: u8 = 0x30;
    const INITIAL: u8 = 0x00;
    let first = *datagram.first()?;
    if first & LONG == 0 {
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
        Ids::new(KEY, Owner { generation, worker, endpoint })
    }

    #[test]
    fn an_id_tells_its_owner_to_those_who_have_the_key() {
        let owner = Owner { generation: 255, worker: 1000, endpoint: 3 };
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
            let stranger = Ids::new([1; 16], Owner { generation: 0, worker: 2, endpoint: 3 });
            assert_eq!(stranger.destination(&short), Destination::Here);
            assert!(stranger.validate(&id).is_err());
        }
    }

    #[test]
    fn what_has_no_id_of_ours_is_for_whom_it_reaches() {
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
