//! Queued writes, and keys with outdated records on the disk.
//!
//! A dropped write leaves older versions behind. They are removed from the queue, the index and the disk, where the
//! next process would find them.

use std::collections::{HashMap, HashSet};

/// Above this number the whole store is cleared instead. Each takes about 20 bytes.
const OUTDATED_MAX: usize = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// The number of the last queued put of each variant.
    puts: HashMap<(u128, u64), u64>,
    last_number: u64,
    /// Keys whose records must be removed from the disk.
    outdated: HashSet<u128>,
}

impl Pending {
    /// Registers a write before it is queued, and returns its number. It supersedes the variant's earlier writes.
    pub(crate) fn queue(&mut self, key: u128, variant: u64) -> u64 {
        self.last_number += 1;
        self.puts.insert((key, variant), self.last_number);
        self.last_number
    }

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

    pub(crate) fn clear(&mut self) {
        self.puts.clear();
        self.outdated = HashSet::new();
    }
}
