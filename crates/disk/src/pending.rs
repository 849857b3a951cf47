//! What was put and is not written yet, and what is written and must go since something newer is not.
//!
//! A put that is dropped leaves an older one behind: in the queue, in the index, and on the disk, where the next process
//! would find it.

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
    /// The number of a put that is about to be queued. An older one of the same is not wanted any more.
    pub(crate) fn queue(&mut self, key: u128, variant: u64) -> u64 {
        self.last_number += 1;
        self.puts.insert((key, variant), self.last_number);
        self.last_number
    }

    /// Whether a put is still wanted.
    pub(crate) fn is_current(&self, key: u128, variant: u64, number: u64) -> bool {
        self.puts.get(&(key, variant)) == Some(&number)
    }

    /// A put is written; says whether it is still wanted.
    pub(crate) fn settle(&mut self, key: u128, variant: u64, number: u64) -> bool {
        let is_current = self.is_current(key, variant, number);
        if is_current {
            self.puts.remove(&(key, variant));
        }
        is_current
    }

    /// What is queued of a variant is not wanted any more; says whether there was any.
    pub(crate) fn drop_put(&mut self, key: u128, variant: u64) -> bool {
        self.puts.remove(&(key, variant)).is_some()
    }

    /// What is queued of a key is not wanted any more. It takes a look at all that is queued.
    pub(crate) fn remove(&mut self, key: u128) {
        self.puts.retain(|(other, _), _| *other != key);
    }

    /// What is on the disk under a key is to be removed.
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

    /// Nothing that was put before is wanted.
    pub(crate) fn clear(&mut self) {
        self.puts.clear();
        self.outdated = HashSet::new();
    }
}
