//! Limits on requests or connections under way per key: their number, and a queue of those that wait for room.
//!
//! Keys are spread over shards, each with a lock that is held for one look-up. A key in use is never forgotten, and a
//! key without requests takes no memory. So there are at most as many keys as requests.

/// Limits over several instances.
mod share;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};

use siphasher::sip::SipHasher13;

use super::key::{RateKey, RateKeyPart};
use super::share::{Alone, ShareStanding};
use crate::request::{FieldLookup, RequestParts};
pub use share::ConcurrencyDemand;
use share::{ConcurrencyShare, KeyShare};

/// The number of locks, and thus of threads that can count at once.
const SHARDS: usize = 32;
/// A map of keys with this capacity or less is not shrunk.
const KEPT_CAPACITY: usize = 64;

/// Counts what is under way per key. `W` notifies one that waits for room.
#[derive(Debug)]
pub struct ConcurrencyLimiter<W> {
    shards: Box<[Shard<W>]>,
    secret: [u64; 2],
    /// Present for a limit over several instances.
    share: Option<Box<ConcurrencyShare>>,
}

/// The hash that identifies a key. Keys with equal hashes would share a count, which is extremely rare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConcurrencyKey(u64);

/// A place in the queue of a key. No other request ever gets the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConcurrencyTicket(u64);

/// The limit of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Concurrency {
    /// How many requests of a key may be under way.
    pub max: NonZeroU32,
    /// How many further ones may wait.
    pub waiting_max: u32,
}

/// The result of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConcurrencyEntry {
    /// Counted as under way.
    UnderWay,
    /// Waits for room, behind all earlier ones. With a shared limit, it may be refused later.
    Waits(ConcurrencyTicket),
    /// Not counted: neither room nor a place in the queue.
    Full,
}

#[derive(Debug)]
#[repr(align(128))]
struct Shard<W>(Mutex<Keys<W>>);

#[derive(Debug)]
struct Keys<W> {
    states: HashMap<u64, KeyState<W>, BuildHasherDefault<KeyHash>>,
    next_ticket: u64,
    /// The keys of a shared limit that the other instances must hear of, each once.
    news: Vec<u64>,
}

/// The state of a key in use. One is under way at least, so that its end calls those that wait. With a shared limit,
/// the answer of the other instances may call them instead.
#[derive(Debug)]
struct KeyState<W> {
    under_way: u32,
    /// `None` if it is empty.
    queue: Option<Box<KeyQueue<W>>>,
    share: KeyShare,
}

/// In the order of arrival, which is that of tickets.
#[derive(Debug)]
struct KeyQueue<W>(VecDeque<Waiter<W>>);

#[derive(Debug)]
struct Waiter<W> {
    ticket: u64,
    /// The limit of its request. After a change of the limit, earlier requests still have the old one.
    limit: Concurrency,
    notifies: W,
}

impl<W> ConcurrencyLimiter<W> {
    /// `secret` must be random: an attacker who knows it can choose keys that collide.
    pub fn new(secret: [u64; 2]) -> Self {
        let keys = || Keys { states: HashMap::default(), next_ticket: 0, news: Vec::new() };
        Self { shards: (0..SHARDS).map(|_| Shard(Mutex::new(keys()))).collect(), secret, share: None }
    }

    /// The key of a request. The user matters only for a key that [has one](RateKey::has_user).
    pub fn key_of<F: FieldLookup + ?Sized>(
        &self,
        key: &RateKey,
        request: &RequestParts<'_, F>,
        user: &str,
    ) -> ConcurrencyKey {
        self.hashed(|hasher| key.hash(request, user, hasher))
    }

    /// The key of a client's connections: its address, or for IPv6 the first 64 bits of it.
    pub fn key_of_client(&self, client: IpAddr) -> ConcurrencyKey {
        self.hashed(|hasher| RateKeyPart::hash_client(client, (32, 64), hasher))
    }

    fn hashed(&self, hash: impl FnOnce(&mut SipHasher13)) -> ConcurrencyKey {
        let mut hasher = SipHasher13::new_with_keys(self.secret[0], self.secret[1]);
        hash(&mut hasher);
        ConcurrencyKey(hasher.finish())
    }

    /// Counts one as under way, unless others wait or there is no room. Then `make` is called for a place in the queue.
    pub fn enter(
        &self,
        key: ConcurrencyKey,
        limit: Concurrency,
        make: impl FnOnce() -> W,
    ) -> ConcurrencyEntry {
        let mut keys = self.keys(key);
        let state = keys.states.entry(key.0).or_default();
        let room = self.room(state, limit.max.get());
        let waiting = state.waiting();
        if waiting == 0 && state.under_way < room {
            state.under_way += 1;
            state.share.max = limit.max.get();
            return ConcurrencyEntry::UnderWay;
        }
        if waiting >= self.waiting_max(state, limit) {
            if state.is_unused() {
                keys.forget(key);
            }
            return ConcurrencyEntry::Full;
        }
        state.share.max = limit.max.get();
        let ticket = keys.next_ticket;
        keys.next_ticket += 1;
        let waiter = Waiter { ticket, limit, notifies: make() };
        if let Some(state) = keys.states.get_mut(&key.0) {
            state.queue.get_or_insert_default().0.push_back(waiter);
        }
        if let Some(share) = &self.share {
            share.note(&mut keys, key, true);
        }
        ConcurrencyEntry::Waits(ConcurrencyTicket(ticket))
    }

    /// Ends one that was counted. Returns the next one that waits, which is counted from now on.
    #[must_use = "the next one must be notified"]
    pub fn exit(&self, key: ConcurrencyKey) -> Option<W> {
        self.end(key, |state| state.under_way -= 1)
    }

    /// Ends a wait. If its turn has come meanwhile, it was counted, and ends as in [`exit`](Self::exit), unless
    /// `is_refused`: then it never counted.
    #[must_use = "the next one must be notified"]
    pub fn leave(
        &self,
        key: ConcurrencyKey,
        ticket: ConcurrencyTicket,
        is_refused: impl FnOnce() -> bool,
    ) -> Option<W> {
        self.end(key, |state| {
            if !state.leave(ticket) && !is_refused() {
                state.under_way -= 1;
            }
        })
    }

    fn end(&self, key: ConcurrencyKey, ends: impl FnOnce(&mut KeyState<W>)) -> Option<W> {
        let mut keys = self.keys(key);
        let state = keys.states.get_mut(&key.0)?;
        ends(state);
        let next = self.call_next(state);
        let is_unused = state.is_unused();
        if let Some(share) = &self.share {
            share.note(&mut keys, key, false);
        } else if is_unused {
            keys.forget(key);
        }
        next
    }

    /// Returns the next one that waits if there is room for it, which a raised limit makes. It is counted from now on.
    #[must_use = "the next one must be notified"]
    pub fn next(&self, key: ConcurrencyKey) -> Option<W> {
        self.call_next(self.keys(key).states.get_mut(&key.0)?)
    }

    /// Counts the first of the queue, if there is room.
    fn call_next(&self, state: &mut KeyState<W>) -> Option<W> {
        let max = state.queue.as_ref()?.0.front()?.limit.max.get();
        if self.room(state, max) <= state.under_way {
            return None;
        }
        let waiter = state.queue.as_mut()?.0.pop_front()?;
        state.under_way += 1;
        state.settle();
        Some(waiter.notifies)
    }

    /// How many of a key may be under way here.
    #[inline]
    fn room(&self, state: &KeyState<W>, max: u32) -> u32 {
        self.share.as_ref().map_or(max, |share| share.room(&state.share, max))
    }

    /// How many of a key may wait here.
    #[inline]
    fn waiting_max(&self, state: &KeyState<W>, limit: Concurrency) -> usize {
        let waiting_max = limit.waiting_max as usize;
        self.share.as_ref().map_or(waiting_max, |share| share.waiting_max(state.under_way, limit))
    }

    /// A panic in a holder leaves the state complete.
    fn keys(&self, key: ConcurrencyKey) -> MutexGuard<'_, Keys<W>> {
        // The map uses the low bits.
        let shard = (key.0 >> 32) as usize % SHARDS;
        self.shards[shard].lock()
    }
}

impl<W> Shard<W> {
    fn lock(&self) -> MutexGuard<'_, Keys<W>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W> Keys<W> {
    fn forget(&mut self, key: ConcurrencyKey) {
        let Self { states, .. } = self;
        states.remove(&key.0);
        // After a crowd; so rarely that it costs little.
        if states.capacity() > KEPT_CAPACITY && states.len() < states.capacity() / 8 {
            states.shrink_to(states.len() * 2);
        }
    }
}

impl<W> Default for KeyState<W> {
    fn default() -> Self {
        Self { under_way: 0, queue: None, share: KeyShare::default() }
    }
}

impl<W> Default for KeyQueue<W> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<W> KeyState<W> {
    fn waiting(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.0.len())
    }

    /// Without a share, one under way is enough to keep a key.
    fn is_unused(&self) -> bool {
        self.under_way == 0 && self.queue.is_none() && self.share.is_unused()
    }

    /// Removes one from the queue. Returns false if its turn has come.
    fn leave(&mut self, ticket: ConcurrencyTicket) -> bool {
        let Some(queue) = &mut self.queue else { return false };
        let Ok(place) = queue.0.binary_search_by_key(&ticket.0, |waiter| waiter.ticket) else { return false };
        queue.0.remove(place);
        self.settle();
        true
    }

    fn settle(&mut self) {
        if self.queue.as_ref().is_some_and(|queue| queue.0.is_empty()) {
            self.queue = None;
        }
    }
}

/// Hashes keys, which are hashes already.
#[derive(Debug, Default)]
struct KeyHash(u64);

impl Hasher for KeyHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

#[cfg(test)]
mod tests;
