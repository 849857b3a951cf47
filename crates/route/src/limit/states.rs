//! State for very many keys, shared by all workers, in memory that is allocated once.
//!
//! Sets of eight entries, like a CPU cache. A state is one atomic number, updated by compare and exchange; only adding
//! a key takes a lock.

use std::convert::Infallible;
use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use siphasher::sip::SipHasher13;

/// The memory per key: tag and state.
pub const KEY_BYTES: usize = size_of::<StateSet>() / PLACES;

/// The entries of a set. Keys whose hashes start alike share them.
pub(super) const PLACES: usize = 8;
/// The number of locks, and thus of threads that can add keys at once.
const LOCKS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct States {
    sets: Box<[StateSet]>,
    /// Each lock guards the sets whose index modulo the number of locks is its own.
    locks: Box<[Mutex<()>]>,
    secret: [u64; 2],
}

/// A set of entries, in two cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct StateSet {
    /// Hashes of keys; 0 is a free place. Written only under the set's lock.
    tags: [AtomicU64; PLACES],
    states: [AtomicU64; PLACES],
}

/// The non-zero hash that identifies a key. Keys with equal hashes would share a state, which is extremely rare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag(u64);

impl States {
    pub(super) fn new(keys_max: usize, secret: [u64; 2]) -> Self {
        let sets = keys_max.div_ceil(PLACES).next_power_of_two();
        Self {
            sets: (0..sets).map(|_| StateSet::default()).collect(),
            locks: (0..sets.min(LOCKS_MAX)).map(|_| Mutex::default()).collect(),
            secret,
        }
    }

    pub(super) fn secret(&self) -> [u64; 2] {
        self.secret
    }

    /// The hashes and states of all keys.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        let of_set = |set: &StateSet| -> [(u64, u64); PLACES] {
            let at = |places: &[AtomicU64; PLACES], place: usize| places[place].load(Ordering::Relaxed);
            std::array::from_fn(|place| (at(&set.tags, place), at(&set.states, place)))
        };
        self.sets.iter().flat_map(of_set).filter(|(tag, _)| *tag != 0)
    }

    /// Stores a state for the key with this hash.
    pub(super) fn put(&self, tag: u64, state: u64) {
        let Ok(_) = self.update(Tag(tag.max(1)), |_| Ok::<u64, Infallible>(state));
    }

    pub(super) fn sets(&self) -> usize {
        self.sets.len()
    }

    /// The hash of the key at a place; 0 if there is none.
    pub(super) fn key_at(&self, place: usize) -> u64 {
        self.sets[place / PLACES].tags[place % PLACES].load(Ordering::Relaxed)
    }

    /// Replaces the state at a place with the result of `make`, unless another key has the place now.
    pub(super) fn replace(&self, place: usize, key: u64, make: impl Fn() -> u64) {
        let state = &self.sets[place / PLACES].states[place % PLACES];
        let mut known = state.load(Ordering::Relaxed);
        while self.key_at(place) == key {
            match state.compare_exchange_weak(known, make(), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => known = other,
            }
        }
    }

    pub(super) fn tag(&self, hash: impl FnOnce(&mut SipHasher13)) -> Tag {
        let mut hasher = SipHasher13::new_with_keys(self.secret[0], self.secret[1]);
        hash(&mut hasher);
        Tag(hasher.finish().max(1))
    }

    /// Replaces a key's state with the result of `decide`, unless it is an error. A new key starts with the state of
    /// its place: 0, or the state of a forgotten key. Returns the place and the new state.
    pub(super) fn update<E>(
        &self,
        tag: Tag,
        decide: impl Fn(u64) -> Result<u64, E>,
    ) -> Result<(usize, u64), E> {
        let index = tag.0 as usize & (self.sets.len() - 1);
        let set = &self.sets[index];
        let place = set.find(tag).unwrap_or_else(|| {
            let lock = &self.locks[index % self.locks.len()];
            // A poisoned lock is harmless, because changes under it are atomic.
            let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
            set.give_place(tag)
        });
        // Relaxed: the state is self-contained, and orders no other memory.
        let state = &set.states[place];
        let mut known = state.load(Ordering::Relaxed);
        loop {
            let next = decide(known)?;
            match state.compare_exchange_weak(known, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok((index * PLACES + place, next)),
                Err(other) => known = other,
            }
        }
    }
}

impl StateSet {
    fn find(&self, tag: Tag) -> Option<usize> {
        self.tags.iter().position(|known| known.load(Ordering::Relaxed) == tag.0)
    }

    /// A place for a key, under the set's lock: a second thread with the same new key finds it here.
    ///
    /// The state at the place stays. The place is that of the longest unused key, or of the key that is nearest to a
    /// whole burst. Its state is usually in the past, which is as good as new; otherwise the new key pays the old one's
    /// debt.
    fn give_place(&self, tag: Tag) -> usize {
        self.find(tag).unwrap_or_else(|| {
            let state = |place: &usize| self.states[*place].load(Ordering::Relaxed);
            let is_taken = |place: usize| self.tags[place].load(Ordering::Relaxed) != 0;
            let place = (0..PLACES).min_by_key(|place| (is_taken(*place), state(place))).unwrap_or(0);
            self.tags[place].store(tag.0, Ordering::Relaxed);
            place
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(states: &States, key: u64) -> Tag {
        states.tag(|hasher| hasher.write_u64(key))
    }

    /// Returns the previous state.
    fn add(states: &States, key: u64, amount: u64) -> u64 {
        let before = std::cell::Cell::new(0);
        let done: Result<_, ()> = states.update(tag(states, key), |known| {
            before.set(known);
            Ok(known + amount)
        });
        done.unwrap();
        before.get()
    }

    #[test]
    fn a_key_costs_sixteen_bytes() {
        assert_eq!(KEY_BYTES, 16);
        assert_eq!(States::new(1000, [0, 0]).sets.len(), 128);
        assert_eq!(States::new(0, [0, 0]).sets.len(), 1);
    }

    #[test]
    fn keys_keep_their_states() {
        let states = States::new(4096, [1, 2]);
        for key in 0..1000 {
            assert_eq!(add(&states, key, key + 1), 0, "{key}");
        }
        for key in 0..1000 {
            assert_eq!(add(&states, key, 0), key + 1, "{key}");
        }
        let kept: Result<_, u64> = states.update(tag(&states, 5), Err);
        assert_eq!(kept, Err(6), "a state that is not to change stays");
        assert_ne!(tag(&states, 1), tag(&States::new(4096, [1, 3]), 1), "the hash is keyed");
    }

    #[test]
    fn the_key_with_the_oldest_state_loses_its_place() {
        let states = States::new(8, [1, 2]);
        for key in 0..8 {
            add(&states, key, 100 + key);
        }
        assert_eq!(add(&states, 50, 1000), 100, "in the place of 0, whose state is the oldest");
        for key in 1..8 {
            assert_eq!(add(&states, key, 0), 100 + key);
        }
        assert_eq!(add(&states, 0, 0), 101, "in the place of 1");
    }

    #[test]
    fn a_new_key_gets_one_place_in_any_order() {
        for round in 0..200 {
            let states = States::new(16, [round, 2]);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for key in 0..100 {
                            add(&states, key % 3, 1);
                        }
                    });
                }
            });
            let total: u64 = (0..3).map(|key| add(&states, key, 0)).sum();
            assert_eq!(total, 400, "no state is lost or doubled");
        }
    }
}
