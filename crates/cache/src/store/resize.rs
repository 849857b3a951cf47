//! Changes a store's memory limit while it is in use. Responses that fit are kept.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::store::shard::{Left, StoreShard};
use crate::store::{MemoryStore, StoreLayout, StoreSettings, lock, shard_of};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resized {
    /// Responses that were kept.
    pub kept: usize,
    /// Responses that were evicted, least used first.
    pub dropped: usize,
}

impl MemoryStore {
    /// The number of stored responses, with all variants.
    pub fn responses(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).responses()).sum()
    }

    /// Applies new limits. If the number of shards changes, lookups wait until all responses have moved; otherwise each
    /// shard is locked only while it evicts.
    pub fn resize(&self, settings: StoreSettings) -> Resized {
        let _round = self.round();
        let StoreLayout { shards, shard_bytes, object_bytes_max } = StoreLayout::from_settings(settings);
        let before = self.responses();
        let in_use = self.mask.load(Relaxed) + 1;
        self.object_bytes_max.store(object_bytes_max, Relaxed);
        self.memory_bytes.store(settings.memory_bytes, Relaxed);
        self.survey.set_memory_bytes(settings.memory_bytes);
        // Each shard evicts by its own policy, which knows the use of its responses.
        let all_bytes = shard_bytes * shards as u64;
        // First the old shards shrink by their policy. Moving comes after, and keeps what is left.
        for shard in &self.shards[..in_use] {
            lock(shard).set_capacity(all_bytes / in_use as u64);
        }
        let left = if shards == in_use { Left::default() } else { self.reshape(shards, shard_bytes) };
        drop(left);
        let kept = self.responses();
        let dropped = before.saturating_sub(kept);
        self.counts.evicted.fetch_add(dropped as u64, Relaxed);
        Resized { kept, dropped }
    }

    fn reshape(&self, shards: usize, shard_bytes: u64) -> Left {
        // Always in the order of the list, and only under `round`, so that two resizes cannot block each other.
        let mut locked: Vec<MutexGuard<'_, StoreShard>> = self.shards.iter().map(lock).collect();
        let taken: Vec<_> = locked.iter_mut().map(|shard| shard.take_all()).collect();
        let requests = locked.iter().map(|shard| shard.requests).sum();
        let displaced = locked.iter().map(|shard| shard.displaced).sum();
        for (index, shard) in locked.iter_mut().enumerate() {
            **shard = if index < shards { StoreShard::new(shard_bytes) } else { StoreShard::unused() };
        }
        let (mask, mut left) = (shards - 1, Left::default());
        (locked[0].requests, locked[0].displaced) = (requests, displaced);
        for (entries, flights) in taken {
            for entry in entries {
                if let Some(key) = entry.key() {
                    locked[shard_of(key, mask)].take_in(entry, &mut left);
                }
            }
            for flight in flights {
                locked[shard_of(flight.key, mask)].take_up(flight);
            }
        }
        // While all shards are locked: a lookup that waits for one compares the mask again.
        self.mask.store(mask, Release);
        left
    }
}
