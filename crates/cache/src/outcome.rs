//! What became of the last request for a key that nothing stored answered, for whoever asks why.
//!
//! Of so many keys as there is room for: a newer one displaces another. Hits leave no trace, so that they cost nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::decide::Forward;
use crate::key::Key;
use crate::refusal::Refusal;

/// A request that nothing stored answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// When it was asked.
    pub at_ms: u64,
    /// Why nothing stored answered it.
    pub forward: Forward,
    /// What the origin answered, if it did.
    pub status: Option<u16>,
    /// What became of that.
    pub ending: Ending,
}

/// What became of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It was stored, or is on its way into the store.
    Stored,
    /// It said that what is stored is still good.
    Validated,
    /// It was not stored.
    Refused(Refusal),
    /// It was for its own request alone, and not looked at.
    Passed,
    /// There was none; what is stored may have answered in its place.
    Failed,
}

/// The outcomes of many keys.
#[derive(Debug)]
pub(crate) struct Outcomes {
    slots: Box<[Mutex<Slot>]>,
}

type Slot = Option<(Key, Outcome)>;

const SLOTS_MIN: u64 = 64;
const SLOTS_MAX: u64 = 8192;
/// One for so much memory of the store: a slot takes less than a hundredth of that.
const BYTES_PER_SLOT: u64 = 16 << 10;

impl Outcomes {
    /// For a store of so much memory.
    pub(crate) fn new(memory_bytes: u64) -> Self {
        let slots = (memory_bytes / BYTES_PER_SLOT).clamp(SLOTS_MIN, SLOTS_MAX);
        Self { slots: (0..slots).map(|_| Mutex::default()).collect() }
    }

    pub(crate) fn note(&self, key: Key, outcome: Outcome) {
        *self.slot(key) = Some((key, outcome));
    }

    /// What has become of what was noted last.
    pub(crate) fn settle(&self, key: Key, status: u16, ending: Ending) {
        if let Some((known, outcome)) = &mut *self.slot(key)
            && *known == key
        {
            (outcome.status, outcome.ending) = (Some(status), ending);
        }
    }

    /// What was going to be stored turned out not to be.
    pub(crate) fn amend(&self, key: Key, refusal: Refusal) {
        if let Some((known, outcome)) = &mut *self.slot(key)
            && *known == key
            && outcome.ending == Ending::Stored
        {
            outcome.ending = Ending::Refused(refusal);
        }
    }

    pub(crate) fn of(&self, key: Key) -> Option<Outcome> {
        self.slot(key).filter(|(known, _)| *known == key).map(|(_, outcome)| outcome)
    }

    fn slot(&self, key: Key) -> MutexGuard<'_, Slot> {
        let index = (key.as_u128() >> 32) as usize % self.slots.len();
        self.slots[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTCOME: Outcome =
        Outcome { at_ms: 7, forward: Forward::UriMiss, status: Some(200), ending: Ending::Stored };

    #[test]
    fn the_last_outcome_of_a_key_is_known_and_no_other_keys() {
        let outcomes = Outcomes::new(0);
        let key = |number: u128| Key::from_u128(number << 32);
        outcomes.note(key(1), OUTCOME);
        assert_eq!((outcomes.of(key(1)), outcomes.of(key(2))), (Some(OUTCOME), None));
        // In the same slot.
        let other = key(1 + u128::from(SLOTS_MIN));
        assert_eq!(outcomes.of(other), None);
        outcomes.amend(other, Refusal::TooLarge);
        assert_eq!(outcomes.of(key(1)), Some(OUTCOME));
        outcomes.note(other, OUTCOME);
        assert_eq!((outcomes.of(key(1)), outcomes.of(other)), (None, Some(OUTCOME)));
    }

    #[test]
    fn only_what_was_to_be_stored_is_amended() {
        let outcomes = Outcomes::new(0);
        let key = Key::from_u128(3);
        for (ending, amended) in [
            (Ending::Stored, Ending::Refused(Refusal::Incomplete)),
            (Ending::Refused(Refusal::Private), Ending::Refused(Refusal::Private)),
            (Ending::Failed, Ending::Failed),
        ] {
            outcomes.note(key, Outcome { ending, ..OUTCOME });
            outcomes.amend(key, Refusal::Incomplete);
            outcomes.settle(Key::from_u128(4), 500, Ending::Passed);
            assert_eq!(outcomes.of(key).map(|outcome| outcome.ending), Some(amended));
            outcomes.settle(key, 304, Ending::Validated);
            let settled = Outcome { status: Some(304), ending: Ending::Validated, ..OUTCOME };
            assert_eq!(outcomes.of(key), Some(settled));
        }
    }
}
