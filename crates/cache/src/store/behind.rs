//! Interface to a persistent store behind the memory, such as a disk. It is notified of all changes; lookups use
//! another interface.

use std::sync::Arc;

use crate::key::CacheKey;
use crate::purge::{Force, PurgeScope};
use crate::store::object::Object;

/// A larger and slower store behind the memory. No method may block.
pub trait Behind: std::fmt::Debug + Send + Sync {
    /// Called after a response was stored, in place of the previous one of its variant.
    fn stored(&self, object: &Arc<Object>);

    /// Called after a key was purged with all its variants. Returns how many responses matched.
    fn purged_key(&self, key: CacheKey) -> usize;

    /// Called before the purge of a scope takes effect. `epoch` is the number of the purge.
    fn purged(&self, scope: &PurgeScope, force: Force, epoch: u64);
}
