//! Marks: keys whose last response could not be stored, so that requests for them are not collapsed.
//!
//! A mark ends collapsing, not storing: each response is still considered, and the first one that is stored removes the
//! mark.

use crate::key::CacheKey;
use crate::store::shard::slot;

/// The number of marks in a shard; a new one may replace another.
// A lost mark costs one request that waits in vain.
const MARKS: usize = 2048;

/// Why requests for a key are not collapsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mark {
    /// The last response must not be stored.
    #[default]
    Unstorable,
    /// The last body was too large, which its head does not always show.
    TooLarge,
}

#[derive(Debug, Clone, Copy, Default)]
struct MarkPlace {
    key: u64,
    until_seconds: u64,
    mark: Mark,
    /// How many times keys with this place were purged.
    purges: u32,
}

#[derive(Debug)]
pub(crate) struct Marks(Box<[MarkPlace]>);

impl Default for Marks {
    fn default() -> Self {
        Self(vec![MarkPlace::default(); MARKS].into())
    }
}

impl Marks {
    /// The marks of a shard that is not in use.
    pub(crate) fn none() -> Self {
        Self(Box::new([]))
    }

    pub(crate) fn set(&mut self, key: CacheKey, mark: Mark, until_seconds: u64) {
        let place = &mut self.0[index(key)];
        (place.key, place.mark, place.until_seconds) = (slot(key), mark, until_seconds);
    }

    /// The mark of a key, unless it has expired.
    pub(crate) fn for_key(&self, key: CacheKey, now_seconds: u64) -> Option<Mark> {
        let place = &self.0[index(key)];
        (place.key == slot(key) && now_seconds < place.until_seconds).then_some(place.mark)
    }

    pub(crate) fn purged(&mut self, key: CacheKey) {
        let purges = &mut self.0[index(key)].purges;
        *purges = purges.wrapping_add(1);
    }

    /// A number that changes when the key is purged, and rarely when another one is.
    pub(crate) fn purges(&self, key: CacheKey) -> u32 {
        self.0[index(key)].purges
    }
}

fn index(key: CacheKey) -> usize {
    (slot(key) >> 20) as usize % MARKS
}
