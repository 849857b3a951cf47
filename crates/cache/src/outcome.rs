//! Remembers the last miss of each key, to explain it later.
//!
//! The number of keys is limited: a new one replaces another. Hits are not recorded, so they cost nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::decide::Forward;
use crate::key::Key;
use crate::refusal::Refusal;

/// A request that no stored response could answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The time of the request, in milliseconds since 1970.
    pub at_ms: u64,
    /// Why the request was forwarded.
    pub forward: Forward,
    /// The status of the origin's response, if there was one.
    pub status: Option<u16>,
    /// What happened to the response.
    pub ending: Ending,
}

/// What happened to a response after a miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The response was stored, or is on its way into the store.
    Stored,
    /// The response confirmed the stored one.
    Validated,
    /// The response was not stored.
    Refused(Refusal),
    /// The response was for its own request alone, and was not considered for storing.
    Passed,
    /// There was no response. A stored one may have been sent instead.
    Failed,
}

/// The last outcomes of many keys.
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
    /// Outcomes for a store with this much memory.
    pub(crate) fn new(memory_bytes: u64) -> Self {
        let slots = (memory_bytes / BYTES_PER_SLOT).clamp(SLOTS_MIN, SLOTS_MAX);
        Self { slots: (0..slots).map(|_| Mutex::default()).collect() }
    }

    pub(crate) fn note(&self, key: Key, outcome: Outcome) {
        *self.slot(key) = Some((key, outcome));
    }

    /// Completes the last noted outcome of the key.
    pub(crate) fn settle(&self, key: Key, status: u16, ending: Ending) {
        if let Some((known, outcome)) = &mut *self.slot(key)
            && *known == key
        {
            (outcome.status, outcome.ending) = (Some(status), ending);
        }
    }

    /// Changes the outcome of a response that was not stored after all.
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
