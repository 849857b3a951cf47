//! Queued writes, and keys with outdated records on the disk.
//!
//! A write that is dropped leaves older versions behind, which must go: in the queue, in the index, and on the disk,
//! where the next process would find them.

use std::collections::{HashMap, HashSet};

/// Beyond these the whole store is cleared instead. It takes some 20 bytes for each.
const OUTDATED_MAX: usize = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// The number of the last put of each variant that is queued.
    puts: HashMap<(u128, u64), u64>,
    last_number: u64,
    /// Keys whose records are to be removed from the disk.
    outdated: HashSet<u128>,
}

impl Pending {
    /// Registers a write that is about to be queued, and returns its number. It supersedes earlier writes of the
    /// variant.
    pub(crate) fn queue(&mut self, key: u128, variant: u64) -> u64 {
        self.last_number += 1;
        self.puts.insert((key, variant), self.last_number);
        self.last_number
    }

    /// Whether a queued write is still wanted.
    pub(crate) fn is_current(&self, key: u128, variant: u64, number: u64) -> bool {
        self.puts.get(&(key, variant)) == Some(&number)
    }

    /// Marks a queued write as done. Returns whether it was still wanted.
    pub(crate) fn settle(&mut self, key: u128, variant: u64, number: u64) -> bool {
        let is_current = self.is_current(key, variant, number);
        if is_current {
            self.puts.remove(&(key, variant));
        }
        is_current
    }

    /// Cancels the queued write of a variant. Returns whether there was one.
    pub(crate) fn drop_put(&mut self, key: u128, variant: u64) -> bool {
        self.puts.remove(&(key, variant)).is_some()
    }

    /// Cancels all queued writes of a key. Takes time proportional to the queue.
    pub(crate) fn remove(&mut self, key: u128) {
        self.puts.retain(|(other, _), _| *other != key);
    }

    /// Marks the records of a key for removal from the disk.
    pub(crate) fn outdate(&mut self, key: u128) {
        self.outdated.insert(key);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.outdated.len() > OUTDATED_MAX
    }

    pub(crate) fn retain_outdated(&mut self, is_there: impl Fn(u128) -> bool) {
        self.outdated.retain(|&key| is_there(key));
    }

    pub(crate) fn take_outdated(&mut self) -> HashSet<u128> {
        std::mem::take(&mut self.outdated)
    }

    /// Cancels all queued writes and marked removals.
    pub(crate) fn clear(&mut self) {
        self.puts.clear();
        self.outdated = HashSet::new();
    }
}
