//! What lies behind the store, and outlives it: it is told of all that changes, and is asked elsewhere.

use std::sync::Arc;

use crate::key::Key;
use crate::purge::{Force, Scope};
use crate::store::object::Object;

/// A larger and slower store behind this one. Nothing here may wait.
pub trait Behind: std::fmt::Debug + Send + Sync {
    /// A response was stored, in the place of that of its variant.
    fn stored(&self, object: &Arc<Object>);

    /// A key was purged, with all its variants; says how many responses that met.
    fn purged_key(&self, key: Key) -> usize;

    /// What is in a scope was purged, and this is the number of that purge: said before it is in force.
    fn purged(&self, scope: &Scope, force: Force, epoch: u64);
}
