//! Connection IDs of QUIC (RFC 9000 §5.1) that tell which endpoint of which worker a connection belongs to: the kernel
//! chooses a worker by addresses, and those change.
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
const TAG: usize = 5;
/// The length of our connection IDs.
pub const LEN: usize = RANDOM + TAG;
/// The last two bytes of a tag before it is hidden.
const CHECK: [u8; 2] = [0x5a, 0xc3];

/// What a connection belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The index of the worker.
    pub worker: u16,
    /// The endpoint, among those of the worker.
    pub endpoint: u8,
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

    /// The owner of the connection that a datagram is for, if it is another one. A client chooses the IDs of its first packets
    /// by itself: those are for whom they reach.
    pub fn other_owner(&self, datagram: &[u8]) -> Option<Owner> {
        let owner = self.owner(destination(datagram)?)?;
        (owner != self.owner).then_some(owner)
    }

    fn owner(&self, id: &[u8; LEN]) -> Option<Owner> {
        let (random, hidden) = id.split_at(RANDOM);
        let mut tag = self.mask(random);
        tag.iter_mut().zip(hidden).for_each(|(byte, hidden)| *byte ^= hidden);
        let [high, low, endpoint, check @ ..] = tag;
        (check == CHECK).then_some(Owner { worker: u16::from_be_bytes([high, low]), endpoint })
    }

    fn mask(&self, random: &[u8]) -> [u8; TAG] {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(random);
        let [mask @ .., _, _, _] = hasher.finish().to_be_bytes();
        mask
    }
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; LEN];
        // Without random bytes no handshake would have come this far.
        let _ = self.random.fill(&mut id[..RANDOM]);
        let [high, low] = self.owner.worker.to_be_bytes();
        let tag = [high, low, self.owner.endpoint, CHECK[0], CHECK[1]];
        let mask = self.mask(&id[..RANDOM]);
        for (byte, (tag, mask)) in id[RANDOM..].iter_mut().zip(tag.into_iter().zip(mask)) {
            *byte = tag ^ mask;
        }
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        let id = <&[u8; LEN]>::try_from(&id[..]).map_err(|_| InvalidCid)?;
        self.owner(id).map(drop).ok_or(InvalidCid)
    }

    fn cid_len(&self) -> usize {
        LEN
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// The destination of a datagram that has one of our IDs: its first packet has a short header, or is of the type Handshake
/// (RFC 9000 §17.2.4, §17.3).
fn destination(datagram: &[u8]) -> Option<&[u8; LEN]> {
    const LONG: u8 = 0x80;
    const TYPE: u8 = 0x30;
    const HANDSHAKE: u8 = 0x20;
    let first = *datagram.first()?;
    let id = match first & LONG {
        0 => datagram.get(1..),
        _ if first & TYPE == HANDSHAKE && usize::from(*datagram.get(5)?) == LEN => datagram.get(6..),
        _ => None,
    };
    id?.first_chunk()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 16] = *b"0123456789abcdef";

    fn ids(worker: u16, endpoint: u8) -> Ids {
        Ids::new(KEY, Owner { worker, endpoint })
    }

    #[test]
    fn an_id_tells_its_owner_to_those_who_have_the_key() {
        let [mut own, other] = [ids(1000, 3), ids(2, 3)];
        for _ in 0..100 {
            let id = own.generate_cid();
            let short = [&[0x40], &id[..], b"rest"].concat();
            let handshake = [&[0xe0, 0, 0, 0, 1, LEN as u8], &id[..], b"rest"].concat();
            for datagram in [&short, &handshake] {
                assert_eq!(own.other_owner(datagram), None);
                assert_eq!(other.other_owner(datagram), Some(Owner { worker: 1000, endpoint: 3 }));
            }
            assert!(own.validate(&id).is_ok() && other.validate(&id).is_ok());
            let stranger = Ids::new([1; 16], Owner { worker: 2, endpoint: 3 });
            assert_eq!(stranger.other_owner(&short), None);
            assert!(stranger.validate(&id).is_err());
        }
    }

    #[test]
    fn what_is_no_id_of_ours_is_for_whom_it_reaches() {
        let id = ids(1, 1).generate_cid();
        let other = ids(2, 2);
        for datagram in [
            &b""[..],
            b"\x40",
            &[&[0x40], &id[..LEN - 1]].concat(),
            // An Initial, whose ID the client may have chosen.
            &[&[0xc0, 0, 0, 0, 1, LEN as u8], &id[..]].concat(),
            &[&[0xe0, 0, 0, 0, 1, 8], &id[..]].concat(),
            &[0xe0, 0, 0, 0, 1],
            &[0x40; 40],
        ] {
            assert_eq!(other.other_owner(datagram), None, "{datagram:x?}");
        }
    }
}
