//! Handshakes under way, by the IDs that their clients have chosen: the kernel may give the next datagram of one to another
//! socket, where an upgrade has changed how many there are.
//!
//! It is shared by all workers of a process, and looked at by handshakes alone.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quinn_proto::ConnectionId;

use crate::quic_ids::Owner;

/// Parts that are locked each by itself.
const SHARDS: usize = 16;

/// Handshakes under way. Each endpoint bounds its own.
#[derive(Default)]
pub struct Beginnings {
    hasher: RandomState,
    shards: [Mutex<HashMap<ConnectionId, Owner>>; SHARDS],
}

impl Beginnings {
    /// Whose handshake begins with this ID.
    pub(crate) fn owner(&self, id: &ConnectionId) -> Option<Owner> {
        self.shard(id).get(id).copied()
    }

    /// Notes a handshake that begins; false if it is another's already.
    pub(crate) fn claim(&self, id: ConnectionId, owner: Owner) -> bool {
        match self.shard(&id).entry(id) {
            Entry::Vacant(vacant) => *vacant.insert(owner) == owner,
            Entry::Occupied(occupied) => *occupied.get() == owner,
        }
    }

    /// A handshake has ended: its client knows an ID of ours.
    pub(crate) fn release(&self, id: &ConnectionId) {
        self.shard(id).remove(id);
    }

    /// Whether no handshake is under way.
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| lock(shard).is_empty())
    }

    fn shard(&self, id: &ConnectionId) -> MutexGuard<'_, HashMap<ConnectionId, Owner>> {
        lock(&self.shards[self.hasher.hash_one(id) as usize % SHARDS])
    }
}

fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_is_its_first_owners_until_it_ends() {
        let beginnings = Beginnings::default();
        let [one, other] = [1, 2].map(|worker| Owner { generation: 0, worker, endpoint: 0 });
        let ids = [1, 2, 3].map(|byte| ConnectionId::new(&[byte; 8]));
        assert!(beginnings.is_empty() && ids.iter().all(|id| beginnings.claim(*id, one)));
        assert!(!beginnings.claim(ids[0], other) && beginnings.claim(ids[0], one));
        beginnings.release(&ids[0]);
        assert_eq!(ids.map(|id| beginnings.owner(&id)), [None, Some(one), Some(one)]);
        assert!(beginnings.claim(ids[0], other));
        ids.iter().for_each(|id| beginnings.release(id));
        assert!(beginnings.is_empty());
    }
}
