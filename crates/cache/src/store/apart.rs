//! Responses to requests that go to a server by themselves: each is stored if it may be, though nobody waits for it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use crate::fill::Lead;
use crate::fill::flight::Flight;
use crate::key::Key;
use crate::store::Store;
use crate::store::marks::Mark;

/// What is noted before a server is asked, so that a purge which comes meanwhile meets the response.
#[derive(Debug, Clone, Copy)]
pub struct Apart {
    epoch: u64,
    purges: u32,
    is_too_large: bool,
}

impl Store {
    /// Notes that a server is about to be asked by one request for itself.
    pub fn apart(&self, key: Key, now_seconds: u64) -> Apart {
        let epoch = self.epoch.load(Acquire);
        let shard = self.shard(key);
        let is_too_large = shard.marks.of(key, now_seconds) == Some(Mark::TooLarge);
        Apart { epoch, purges: shard.marks.purges(key), is_too_large }
    }

    /// To store what came, as for all who come from now on; `None` where it was purged meanwhile, where another response
    /// for this key is just being stored, or where it may be too large: its length is known only if that is told.
    pub fn lead_apart(self: &Arc<Self>, key: Key, apart: Apart, body_bytes: Option<u64>) -> Option<Lead> {
        if apart.is_too_large && body_bytes.is_none() {
            return None;
        }
        let mut shard = self.shard(key);
        let is_purged = shard.marks.purges(key) != apart.purges;
        if is_purged || shard.flights(key).iter().any(|flight| flight.is_streaming()) {
            return None;
        }
        shard.marks.set(key, Mark::Unstorable, 0);
        let flight = Arc::new(Flight::new(key, None, apart.epoch));
        shard.depart(&flight).then(|| Lead::new(self.clone(), flight))
    }
}
