//! Keys that are requested so often that this instance keeps copies of another instance's responses, and the memory of
//! these copies.
//!
//! Counts are approximate: a slot counts one key at a time, and rarely requested keys make room. Copies are limited in
//! bytes and number, and kept only briefly.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::key::CacheKey;
use crate::vary::VariantKey;

/// The window in which requests are counted, and the longest freshness of a copy, in seconds.
pub const HOT_SECONDS: u64 = 10;
/// How long no copy is kept after a purge, until all instances have done it.
const HELD_OFF_SECONDS: u64 = 2;
/// Keys that are counted at once.
const SLOTS: usize = 4096;
/// Copies that are kept at once.
const KEPT_MAX: usize = 4096;

#[derive(Debug)]
pub struct Hot {
    // A lock for each slot, so that workers meet only at one key.
    slots: Box<[Mutex<HotSlot>]>,
    kept: Mutex<HotObject>,
}

#[derive(Debug, Clone, Copy, Default)]
struct HotSlot {
    key: u128,
    window: u64,
    count: u32,
    /// The key is not hot before this time, in seconds.
    held_off_until: u64,
}

#[derive(Debug, Default)]
struct HotObject {
    bytes: u64,
    responses: HashMap<(CacheKey, VariantKey), KeptResponse>,
    /// No copy is kept before this time, in seconds.
    held_off_until: u64,
}

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
    /// Counts a request for a key. Returns whether the key is hot: it has at least `requests` in [`HOT_SECONDS`].
    pub fn note(&self, key: CacheKey, now_seconds: u64, requests: u32) -> bool {
        let mut slot = lock(&self.slots[index(key)]);
        let key = key.as_u128();
        let window = now_seconds / HOT_SECONDS;
        if slot.window != window {
            // A key that was requested in the previous window is likely to be requested again.
            // Without the half, each window would begin with requests to the owner again.
            slot.count = if slot.window + 1 == window { slot.count / 2 } else { 0 };
            slot.window = window;
        }
        if slot.key == key {
            slot.count = slot.count.saturating_add(1);
            // After an invalidation the owner may not know of it yet: a copy taken now could be the old response.
            return slot.count >= requests && now_seconds >= slot.held_off_until;
        }
        // Misra and Gries, "Finding repeated elements" (1982), for each slot.
        slot.count = slot.count.saturating_sub(1);
        if slot.count == 0 {
            (slot.key, slot.count) = (key, 1);
        }
        slot.key == key && slot.count >= requests && now_seconds >= slot.held_off_until
    }

    /// Keeps no copy under a key for a while: it was invalidated, and other instances may still have it.
    pub fn hold_off_key(&self, key: CacheKey, now_seconds: u64) {
        lock(&self.slots[index(key)]).held_off_until = now_seconds + HELD_OFF_SECONDS;
    }

    /// Keeps a copy of this size for a while, if all copies together take at most `bytes_max`. Returns whether it is
    /// kept.
    pub fn keep(
        &self,
        (key, variant): (CacheKey, VariantKey),
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
        let has_room = |kept: &HotObject| {
            kept.bytes.saturating_add(bytes) <= bytes_max && kept.responses.len() < KEPT_MAX
        };
        // Looks at all copies only when one does not fit.
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

    /// Keeps no copy for a while after a purge, because other instances may still have purged responses. Returns the
    /// keys of the dropped copies.
    pub fn hold_off(&self, now_seconds: u64) -> Vec<CacheKey> {
        let mut kept = lock(&self.kept);
        kept.held_off_until = now_seconds + HELD_OFF_SECONDS;
        // A purge may match any copy, and which ones is not known here. Copies are few and soon fetched again.
        kept.bytes = 0;
        kept.responses.drain().map(|((key, _), _)| key).collect()
    }

    /// The number of copies, and their bytes.
    pub fn tally(&self, now_seconds: u64) -> (usize, u64) {
        let mut kept = lock(&self.kept);
        kept.forget_old(now_seconds);
        (kept.responses.len(), kept.bytes)
    }
}

fn index(key: CacheKey) -> usize {
    (key.as_u128() >> 64) as usize % SLOTS
}

impl HotObject {
    fn forget_old(&mut self, now_seconds: u64) {
        self.responses.retain(|_, copy| now_seconds < copy.until);
        self.bytes = self.responses.values().map(|copy| copy.bytes).sum();
    }
}

/// No code can panic in the middle of a change while it holds the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u128) -> CacheKey {
        // A separate slot for each.
        CacheKey::from_u128(number << 64 | 1)
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
        let rivals = [key(7), CacheKey::from_u128(7 << 64 | 2)];
        let mut is_hot = [false; 2];
        for round in 0..12 {
            let which = usize::from(round % 4 == 3);
            is_hot[which] |= hot.note(rivals[which], 0, 4);
        }
        assert_eq!(is_hot, [true, false]);
    }

    #[test]
    fn kept_bytes_are_bounded_and_expire() {
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
