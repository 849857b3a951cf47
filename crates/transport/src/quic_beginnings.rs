//! Handshakes in progress, by the IDs that their clients have chosen. The kernel may deliver a client's next datagram
//! to another socket, because an upgrade has changed the number of sockets.
//!
//! All workers of a process share this table. Only handshakes use it.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quinn_proto::ConnectionId;

use crate::quic_ids::IdOwner;

/// Parts with separate locks.
const SHARDS: usize = 16;

/// Handshakes in progress. Each endpoint limits its own.
#[derive(Default)]
pub struct Beginnings {
    // Clients choose the IDs, so the hash needs a secret.
    hasher: RandomState,
    shards: [Mutex<HashMap<ConnectionId, IdOwner>>; SHARDS],
}

impl Beginnings {
    /// The endpoint whose handshake begins with this ID.
    pub(crate) fn owner(&self, id: &ConnectionId) -> Option<IdOwner> {
        self.shard(id).get(id).copied()
    }

    /// Registers a handshake. Returns false if another endpoint has registered it.
    pub(crate) fn claim(&self, id: ConnectionId, owner: IdOwner) -> bool {
        match self.shard(&id).entry(id) {
            Entry::Vacant(vacant) => *vacant.insert(owner) == owner,
            // An endpoint may see the first datagram twice.
            Entry::Occupied(occupied) => *occupied.get() == owner,
        }
    }

    /// Removes a handshake that has ended: its client now uses an ID of ours.
    pub(crate) fn release(&self, id: &ConnectionId) {
        self.shard(id).remove(id);
    }

    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| lock(shard).is_empty())
    }

    fn shard(&self, id: &ConnectionId) -> MutexGuard<'_, HashMap<ConnectionId, IdOwner>> {
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
        let [one, other] = [1, 2].map(|worker| IdOwner { generation: 0, worker, endpoint: 0 });
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
