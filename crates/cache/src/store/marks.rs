//! Keys of which is remembered that what came for them last could not be stored: who wants them does not wait for others.
//!
//! Such a mark ends collapsing, not storing: each response is judged for itself, and the first that is stored ends the mark.

use crate::key::Key;
use crate::store::shard::slot;

/// As many keys are remembered; a newer one may displace another.
const MARKS: usize = 2048;

/// Why nobody waits for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mark {
    /// What came last may not be stored.
    #[default]
    Unstorable,
    /// Its body turned out to be too large, which its head does not always tell.
    TooLarge,
}

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    key: u64,
    until_seconds: u64,
    mark: Mark,
    /// How many keys of this place were purged.
    purges: u32,
}

/// A shard's marks.
#[derive(Debug)]
pub(crate) struct Marks(Box<[Place]>);

impl Default for Marks {
    fn default() -> Self {
        Self(vec![Place::default(); MARKS].into())
    }
}

impl Marks {
    /// Of a shard that is not in use.
    pub(crate) fn none() -> Self {
        Self(Box::new([]))
    }

    pub(crate) fn set(&mut self, key: Key, mark: Mark, until_seconds: u64) {
        let place = &mut self.0[index(key)];
        (place.key, place.mark, place.until_seconds) = (slot(key), mark, until_seconds);
    }

    /// The mark that a key has now.
    pub(crate) fn of(&self, key: Key, now_seconds: u64) -> Option<Mark> {
        let place = &self.0[index(key)];
        (place.key == slot(key) && now_seconds < place.until_seconds).then_some(place.mark)
    }

    pub(crate) fn purged(&mut self, key: Key) {
        let purges = &mut self.0[index(key)].purges;
        *purges = purges.wrapping_add(1);
    }

    /// A number that a purge of this key changes; a purge of another one seldom.
    pub(crate) fn purges(&self, key: Key) -> u32 {
        self.0[index(key)].purges
    }
}

fn index(key: Key) -> usize {
    (slot(key) >> 20) as usize % MARKS
}
