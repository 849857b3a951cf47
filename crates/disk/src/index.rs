//! The index: the location of each key's records. It is kept in memory, so that a miss costs no disk access.
//!
//! A lock guards it, so each operation is short; long ones are done in batches.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordLocation {
    pub(crate) segment: u64,
    /// Offset of the record's header in the segment.
    pub(crate) offset: u32,
    pub(crate) payload_bytes: u32,
}

/// Maximum number of records; each takes about 100 bytes of memory.
const RECORDS_MAX: usize = 4 << 20;

/// Maximum number of variants of a key; the oldest are forgotten first.
const VARIANTS_MAX: usize = 64;

/// Number of records that one call of [`Index::remove_some`] forgets.
const BATCH_RECORDS: usize = 1024;

#[derive(Debug)]
pub(crate) struct Index {
    keys: HashMap<u128, IndexEntry>,
    /// The keys of each segment's records.
    segments: HashMap<u64, Vec<u128>>,
    records: usize,
    records_max: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self { keys: HashMap::new(), segments: HashMap::new(), records: 0, records_max: RECORDS_MAX }
    }
}

/// The variants of a key, the newest last.
#[derive(Debug)]
enum IndexEntry {
    One(Variant),
    Several(Vec<Variant>),
}

type Variant = (u64, RecordLocation);

impl IndexEntry {
    fn variants(&self) -> &[Variant] {
        match self {
            Self::One(variant) => std::slice::from_ref(variant),
            Self::Several(variants) => variants,
        }
    }
}

impl Index {
    /// Finds a variant of a key; the newest one for `None`.
    pub(crate) fn find(&self, key: u128, variant: Option<u64>) -> Option<Variant> {
        let variants = self.keys.get(&key)?.variants();
        match variant {
            Some(wanted) => variants.iter().find(|(variant, _)| *variant == wanted).copied(),
            None => variants.last().copied(),
        }
    }

    pub(crate) fn has_room(&self, key: u128, variant: u64) -> bool {
        self.records < self.records_max || self.find(key, Some(variant)).is_some()
    }

    /// Adds a record, or replaces the earlier one of its variant. Returns whether there was room.
    pub(crate) fn put(&mut self, key: u128, variant: u64, place: RecordLocation) -> bool {
        if !self.has_room(key, variant) {
            return false;
        }
        let mut variants = self.take(key, |(other, _)| *other == variant);
        if variants.len() >= VARIANTS_MAX {
            variants.remove(0);
        }
        variants.push((variant, place));
        self.segments.entry(place.segment).or_default().push(key);
        self.set(key, variants);
        true
    }

    /// Removes a key. Returns how many variants it had.
    pub(crate) fn remove(&mut self, key: u128) -> usize {
        let variants = self.keys.remove(&key).map_or(0, |entry| entry.variants().len());
        self.records -= variants;
        variants
    }

    /// Removes a record, unless another one has replaced it.
    pub(crate) fn remove_at(&mut self, key: u128, place: RecordLocation) {
        let variants = self.take(key, |(_, other)| *other == place);
        self.set(key, variants);
    }

    /// Removes a batch of a segment's records. Returns whether the segment has none left.
    pub(crate) fn remove_some(&mut self, segment: u64) -> bool {
        let Some(keys) = self.segments.get_mut(&segment) else { return true };
        let batch = keys.split_off(keys.len().saturating_sub(BATCH_RECORDS));
        let is_last = keys.is_empty();
        if is_last {
            self.segments.remove(&segment);
        }
        for key in batch {
            let variants = self.take(key, |(_, place)| place.segment == segment);
            self.set(key, variants);
        }
        is_last
    }

    pub(crate) fn len(&self) -> usize {
        self.records
    }

    /// Takes the variants of a key out of the index, and returns all but the unwanted ones.
    fn take(&mut self, key: u128, is_unwanted: impl Fn(&Variant) -> bool) -> Vec<Variant> {
        let mut variants = match self.keys.remove(&key) {
            None => return Vec::new(),
            Some(IndexEntry::One(variant)) => vec![variant],
            Some(IndexEntry::Several(variants)) => variants,
        };
        self.records -= variants.len();
        variants.retain(|variant| !is_unwanted(variant));
        variants
    }

    fn set(&mut self, key: u128, variants: Vec<Variant>) {
        self.records += variants.len();
        let entry = match variants.as_slice() {
            [] => return,
            [variant] => IndexEntry::One(*variant),
            _ => IndexEntry::Several(variants),
        };
        self.keys.insert(key, entry);
    }
}

pub(crate) fn lock(index: &Mutex<Index>) -> MutexGuard<'_, Index> {
    index.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Replaces the index, and drops the old one after unlocking.
pub(crate) fn replace(index: &Mutex<Index>, by: Index) {
    let old = std::mem::replace(&mut *lock(index), by);
    drop(old);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(segment: u64, offset: u32) -> RecordLocation {
        RecordLocation { segment, offset, payload_bytes: 1 }
    }

    #[test]
    fn variants_are_beside_each_other_and_go_together() {
        let mut index = Index::default();
        for (variant, offset) in [(1, 10), (2, 20), (1, 30)] {
            assert!(index.put(7, variant, place(0, offset)));
        }
        assert_eq!(index.find(7, Some(2)), Some((2, place(0, 20))));
        assert_eq!(index.find(7, Some(3)), None);
        assert_eq!((index.find(7, None), index.len()), (Some((1, place(0, 30))), 2));
        index.remove_at(7, place(0, 10));
        assert_eq!((index.remove(7), index.len(), index.find(7, None)), (2, 0, None));
    }

    #[test]
    fn a_segment_takes_only_its_own_with_it() {
        let mut index = Index::default();
        let count = BATCH_RECORDS as u128 * 2 + 5;
        for key in 0..count {
            assert!(index.put(key, 0, place(key as u64 % 2, 0)));
        }
        // Written again in another segment.
        assert!(index.put(0, 0, place(2, 0)));
        while !index.remove_some(0) {}
        let left = (0..count).filter(|&key| index.find(key, None).is_some()).count();
        assert_eq!((left, index.len()), (count as usize / 2 + 1, count as usize / 2 + 1));
    }

    #[test]
    fn where_there_is_no_room_only_what_is_known_is_put_anew() {
        let mut index = Index { records_max: 2, ..Index::default() };
        assert!(index.put(1, 0, place(0, 10)) && index.put(2, 0, place(0, 20)));
        assert!(!index.put(3, 0, place(0, 30)) && !index.put(1, 7, place(0, 40)));
        assert!(index.put(1, 0, place(0, 50)));
        assert_eq!((index.find(1, None), index.len()), (Some((0, place(0, 50))), 2));
        index.remove(2);
        assert!(index.put(3, 0, place(0, 60)));
    }

    #[test]
    fn the_oldest_variants_make_room() {
        let mut index = Index::default();
        assert!((0..100).all(|variant| index.put(1, variant, place(0, variant as u32))));
        assert_eq!(index.len(), VARIANTS_MAX);
        assert_eq!(
            (index.find(1, Some(0)), index.find(1, None).map(|(variant, _)| variant)),
            (None, Some(99))
        );
    }
}
