//! Which keys are asked for so often that this instance keeps what another one owns, and how much of it is kept.
//!
//! Counts are approximate: a slot is for one key at a time, and keys that are asked for rarely make room. What is kept is bounded by
//! bytes and by number, and for a short time only.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::key::Key;
use crate::vary::VariantKey;

/// How long requests count together, and how long what is kept stays fresh at most, in seconds.
pub const HOT_SECONDS: u64 = 10;
/// How long nothing is kept after a purge: until all instances have done it.
const HELD_OFF_SECONDS: u64 = 2;
/// Keys that are counted at once.
const SLOTS: usize = 4096;
/// Responses that are kept at once.
const KEPT_MAX: usize = 4096;

/// The keys that are asked for often.
#[derive(Debug)]
pub struct Hot {
    slots: Box<[Mutex<Slot>]>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    key: u128,
    window: u64,
    count: u32,
    /// It is not hot before.
    held_off_until: u64,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: u64,
    responses: HashMap<(Key, VariantKey), KeptResponse>,
    /// Nothing is kept before.
    held_off_until: u64,
}

/// A response that is kept.
#[derive(Debug, Clone, Copy)]
struct KeptResponse {
    bytes: u64,
    until: u64,
}

impl Default for Hot {
    fn default() -> Self {
        let slots = (0..SLOTS).map(|_| Mutex::default()).collect();
        Self { slots, kept: Mutex::default() }
    }
}

impl Hot {
    /// Counts a request for a key. Returns whether it is hot: from so many requests on in [`HOT_SECONDS`].
    pub fn note(&self, key: Key, now_seconds: u64, requests: u32) -> bool {
        let mut slot = lock(&self.slots[index(key)]);
        let key = key.as_u128();
        let window = now_seconds / HOT_SECONDS;
        if slot.window != window {
            // What was asked for in the window before is likely to be so in this one.
            slot.count = if slot.window + 1 == window { slot.count / 2 } else { 0 };
            slot.window = window;
        }
        if slot.key == key {
            slot.count = slot.count.saturating_add(1);
            return slot.count >= requests && now_seconds >= slot.held_off_until;
        }
        // Misra and Gries, "Finding repeated elements" (1982), for each slot.
        slot.count = slot.count.saturating_sub(1);
        if slot.count == 0 {
            (slot.key, slot.count) = (key, 1);
        }
        slot.key == key && slot.count >= requests && now_seconds >= slot.held_off_until
    }

    /// Keeps nothing under a key for a while, since it is invalid, and others may still have it.
    pub fn hold_off_key(&self, key: Key, now_seconds: u64) {
        lock(&self.slots[index(key)]).held_off_until = now_seconds + HELD_OFF_SECONDS;
    }

    /// Keeps a response of this size for a while, if all that is kept then takes no more than `bytes_max`.
    pub fn keep(
        &self,
        (key, variant): (Key, VariantKey),
        (bytes, bytes_max): (u64, u64),
        now_seconds: u64,
    ) -> bool {
        let mut kept = lock(&self.kept);
        if now_seconds < kept.held_off_until {
            return false;
        }
        if let Some(before) = kept.responses.remove(&(key, variant)) {
            kept.bytes -= before.bytes;
        }
        let has_room =
            |kept: &Kept| kept.bytes.saturating_add(bytes) <= bytes_max && kept.responses.len() < KEPT_MAX;
        if !has_room(&kept) {
            kept.forget_old(now_seconds);
        }
        let is_kept = has_room(&kept);
        if is_kept {
            kept.bytes += bytes;
            kept.responses.insert((key, variant), KeptResponse { bytes, until: now_seconds + HOT_SECONDS });
        }
        is_kept
    }

    /// Keeps nothing for a while, since something is purged that others may still have. Returns the keys of what was kept.
    pub fn hold_off(&self, now_seconds: u64) -> Vec<Key> {
        let mut kept = lock(&self.kept);
        kept.held_off_until = now_seconds + HELD_OFF_SECONDS;
        kept.bytes = 0;
        kept.responses.drain().map(|((key, _), _)| key).collect()
    }

    /// What is kept now: responses and their bytes.
    pub fn tally(&self, now_seconds: u64) -> (usize, u64) {
        let mut kept = lock(&self.kept);
        kept.forget_old(now_seconds);
        (kept.responses.len(), kept.bytes)
    }
}

fn index(key: Key) -> usize {
    (key.as_u128() >> 64) as usize % SLOTS
}

impl Kept {
    fn forget_old(&mut self, now_seconds: u64) {
        self.responses.retain(|_, copy| now_seconds < copy.until);
        self.bytes = self.responses.values().map(|copy| copy.bytes).sum();
    }
}

/// Nothing that holds it can panic halfway through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u128) -> Key {
        // One slot for each.
        Key::from_u128(number << 64 | 1)
    }

    #[test]
    fn a_key_is_hot_from_so_many_requests_on_and_for_a_while() {
        let hot = Hot::default();
        assert_eq!([0, 1, 9].map(|now| hot.note(key(1), now, 3)), [false, false, true]);
        // Half of them count in the next window.
        assert_eq!([10, 11].map(|now| hot.note(key(1), now, 3)), [false, true]);
        assert!(!hot.note(key(1), 40, 3), "and nothing after a while");
        assert!(!hot.note(key(2), 9, 3));
    }

    #[test]
    fn a_key_that_is_asked_for_often_keeps_its_slot() {
        let hot = Hot::default();
        let rivals = [key(7), Key::from_u128(7 << 64 | 2)];
        let mut is_hot = [false; 2];
        for round in 0..12 {
            let which = usize::from(round % 4 == 3);
            is_hot[which] |= hot.note(rivals[which], 0, 4);
        }
        assert_eq!(is_hot, [true, false]);
    }

    #[test]
    fn what_is_kept_is_bounded_and_makes_room_with_time() {
        let hot = Hot::default();
        let variant = VariantKey::from_u128(0);
        assert!(hot.keep((key(1), variant), (60, 100), 0));
        assert!(!hot.keep((key(2), variant), (60, 100), 1));
        assert!(hot.keep((key(1), variant), (90, 100), 5), "it is another form of the same");
        assert_eq!(hot.tally(6), (1, 90));
        assert!(hot.keep((key(2), variant), (60, 100), 15), "the first one is old");
        assert!(!hot.keep((key(3), variant), (101, 100), 100));
    }

    #[test]
    fn a_key_that_was_invalid_is_not_hot_for_a_while() {
        let hot = Hot::default();
        assert!(hot.note(key(1), 0, 1));
        hot.hold_off_key(key(1), 1);
        assert_eq!([1, 2, 3].map(|now| hot.note(key(1), now, 1)), [false, false, true]);
    }

    #[test]
    fn after_a_purge_nothing_is_kept_for_a_while() {
        let hot = Hot::default();
        let variant = VariantKey::from_u128(0);
        assert!(hot.keep((key(1), variant), (10, 100), 5));
        assert_eq!(hot.hold_off(6), [key(1)]);
        assert_eq!(hot.tally(6), (0, 0));
        assert_eq!([6, 7, 8].map(|now| hot.keep((key(1), variant), (10, 100), now)), [false, false, true]);
    }
}
