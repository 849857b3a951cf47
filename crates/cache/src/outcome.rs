//! Remembers the last miss of each key, to explain it later.
//!
//! The number of keys is limited: a new one replaces another. Hits are not recorded, so they cost nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::decide::Forward;
use crate::key::CacheKey;
use crate::refusal::NotStored;

/// A request that no stored response could answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissOutcome {
    /// In milliseconds since 1970.
    pub at_ms: u64,
    pub forward: Forward,
    /// The status of the origin's response, if there was one.
    pub status: Option<u16>,
    pub ending: MissEnding,
}

/// The fate of a response after a miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissEnding {
    /// The response was stored, or is on its way into the store.
    Stored,
    /// The response confirmed the stored one.
    Validated,
    Refused(NotStored),
    /// The response was only for its own request, and was not considered for storing.
    Passed,
    /// There was no response. A stored one may have been sent instead.
    Failed,
}

/// The last outcomes of many keys.
#[derive(Debug)]
pub(crate) struct Outcomes {
    slots: Box<[Mutex<Slot>]>,
}

type Slot = Option<(CacheKey, MissOutcome)>;

const SLOTS_MIN: u64 = 64;
const SLOTS_MAX: u64 = 8192;
/// Memory of the store per slot. A slot takes less than a hundredth of that.
const BYTES_PER_SLOT: u64 = 16 << 10;

impl Outcomes {
    pub(crate) fn new(memory_bytes: u64) -> Self {
        let slots = (memory_bytes / BYTES_PER_SLOT).clamp(SLOTS_MIN, SLOTS_MAX);
        Self { slots: (0..slots).map(|_| Mutex::default()).collect() }
    }

    pub(crate) fn note(&self, key: CacheKey, outcome: MissOutcome) {
        // A lock for each slot: two workers wait for each other only at one key.
        *self.slot(key) = Some((key, outcome));
    }

    /// Completes the last noted outcome of the key.
    pub(crate) fn settle(&self, key: CacheKey, status: u16, ending: MissEnding) {
        if let Some((known, outcome)) = &mut *self.slot(key)
            && *known == key
        {
            (outcome.status, outcome.ending) = (Some(status), ending);
        }
    }

    /// Changes the outcome of a response that was not stored after all.
    pub(crate) fn amend(&self, key: CacheKey, refusal: NotStored) {
        if let Some((known, outcome)) = &mut *self.slot(key)
            && *known == key
            // A later request may have noted another miss meanwhile.
            && outcome.ending == MissEnding::Stored
        {
            outcome.ending = MissEnding::Refused(refusal);
        }
    }

    pub(crate) fn for_key(&self, key: CacheKey) -> Option<MissOutcome> {
        self.slot(key).filter(|(known, _)| *known == key).map(|(_, outcome)| outcome)
    }

    fn slot(&self, key: CacheKey) -> MutexGuard<'_, Slot> {
        let index = (key.as_u128() >> 32) as usize % self.slots.len();
        self.slots[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTCOME: MissOutcome =
        MissOutcome { at_ms: 7, forward: Forward::UriMiss, status: Some(200), ending: MissEnding::Stored };

    #[test]
    fn the_last_outcome_of_a_key_is_known_and_no_other_keys() {
        let outcomes = Outcomes::new(0);
        let key = |number: u128| CacheKey::from_u128(number << 32);
        outcomes.note(key(1), OUTCOME);
        assert_eq!((outcomes.for_key(key(1)), outcomes.for_key(key(2))), (Some(OUTCOME), None));
        // In the same slot.
        let other = key(1 + u128::from(SLOTS_MIN));
        assert_eq!(outcomes.for_key(other), None);
        outcomes.amend(other, NotStored::TooLarge);
        assert_eq!(outcomes.for_key(key(1)), Some(OUTCOME));
        outcomes.note(other, OUTCOME);
        assert_eq!((outcomes.for_key(key(1)), outcomes.for_key(other)), (None, Some(OUTCOME)));
    }

    #[test]
    fn only_responses_to_be_stored_are_amended() {
        let outcomes = Outcomes::new(0);
        let key = CacheKey::from_u128(3);
        for (ending, amended) in [
            (MissEnding::Stored, MissEnding::Refused(NotStored::Incomplete)),
            (MissEnding::Refused(NotStored::Private), MissEnding::Refused(NotStored::Private)),
            (MissEnding::Failed, MissEnding::Failed),
        ] {
            outcomes.note(key, MissOutcome { ending, ..OUTCOME });
            outcomes.amend(key, NotStored::Incomplete);
            outcomes.settle(CacheKey::from_u128(4), 500, MissEnding::Passed);
            assert_eq!(outcomes.for_key(key).map(|outcome| outcome.ending), Some(amended));
            outcomes.settle(key, 304, MissEnding::Validated);
            let settled = MissOutcome { status: Some(304), ending: MissEnding::Validated, ..OUTCOME };
            assert_eq!(outcomes.for_key(key), Some(settled));
        }
    }
}
