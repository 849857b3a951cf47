//! Stores responses to separate requests, which do not lead a fetch.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use crate::fill::Lead;
use crate::fill::flight::Flight;
use crate::key::CacheKey;
use crate::store::MemoryStore;
use crate::store::marks::Mark;

/// State recorded before a request is sent, so that a purge in the meantime affects its response.
#[derive(Debug, Clone, Copy)]
pub struct Apart {
    epoch: u64,
    purges: u32,
    is_too_large: bool,
}

impl MemoryStore {
    /// Called before a separate request is sent.
    pub fn apart(&self, key: CacheKey, now_seconds: u64) -> Apart {
        // Before the request leaves: any later purge must match its response.
        let epoch = self.epoch.load(Acquire);
        let shard = self.shard(key);
        let is_too_large = shard.marks.for_key(key, now_seconds) == Some(Mark::TooLarge);
        Apart { epoch, purges: shard.marks.purges(key), is_too_large }
    }

    /// Starts storing the response to a separate request. `None` if it was purged meanwhile, if another
    /// response for the key is being stored, or if it may be too large and has no known length.
    pub fn lead_apart(
        self: &Arc<Self>,
        key: CacheKey,
        apart: Apart,
        body_bytes: Option<u64>,
    ) -> Option<Lead> {
        // Otherwise each such request would fill memory up to the limit, in vain.
        if apart.is_too_large && body_bytes.is_none() {
            return None;
        }
        let mut shard = self.shard(key);
        let is_purged = shard.marks.purges(key) != apart.purges;
        if is_purged || shard.flights(key).iter().any(|flight| flight.is_streaming()) {
            return None;
        }
        // A mark that has expired already: this response is being stored, so requests are collapsed again.
        shard.marks.set(key, Mark::Unstorable, 0);
        let flight = Arc::new(Flight::new(key, None, apart.epoch));
        shard.depart(&flight).then(|| Lead::new(self.clone(), flight))
    }
}
