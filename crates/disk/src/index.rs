//! Where each key's record is. All of it is in memory, so that a miss costs no access to the disk.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: u64,
    /// Where its header begins.
    pub(crate) offset: u32,
    pub(crate) payload_bytes: u32,
}

/// As many records are known. Each takes some 50 bytes of memory.
const RECORDS_MAX: usize = 4 << 20;

#[derive(Debug, Default)]
pub(crate) struct Index(HashMap<u128, Place>);

impl Index {
    pub(crate) fn find(&self, key: u128) -> Option<Place> {
        self.0.get(&key).copied()
    }

    /// Whether there is room for it.
    pub(crate) fn put(&mut self, key: u128, place: Place) -> bool {
        let has_room = self.0.len() < RECORDS_MAX || self.0.contains_key(&key);
        if has_room {
            self.0.insert(key, place);
        }
        has_room
    }

    pub(crate) fn remove(&mut self, key: u128) -> bool {
        self.0.remove(&key).is_some()
    }

    /// Forgets a record that turned out to be damaged, unless another took its place meanwhile.
    pub(crate) fn remove_at(&mut self, key: u128, place: Place) {
        if self.find(key) == Some(place) {
            self.0.remove(&key);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0 = HashMap::new();
    }

    /// Forgets all that is in a segment.
    pub(crate) fn remove_segment(&mut self, segment: u64) -> usize {
        let before = self.0.len();
        self.0.retain(|_, place| place.segment != segment);
        before - self.0.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

pub(crate) fn lock(index: &Mutex<Index>) -> MutexGuard<'_, Index> {
    index.lock().unwrap_or_else(PoisonError::into_inner)
}
