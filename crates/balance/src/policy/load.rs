//! Exact comparison of requests in progress relative to weight.

use crate::picker::Candidates;

#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerLoad {
    pub(crate) place: usize,
    count: u64,
    weight: u64,
}

/// The load of a server that may not be picked: more than any real load.
pub(crate) const NOT_ALLOWED: u64 = u32::MAX as u64 + 1;

/// Requests in progress on the server, over all workers, or `NOT_ALLOWED`.
#[inline]
pub(crate) fn count(candidates: &Candidates<'_>, place: usize) -> u64 {
    let allowed = candidates.allows(place);
    if allowed { u64::from(candidates.health(place).in_flight()) } else { NOT_ALLOWED }
}

impl ServerLoad {
    #[inline]
    pub(crate) fn new(candidates: &Candidates<'_>, place: usize) -> Self {
        Self { place, count: count(candidates, place), weight: u64::from(candidates.weight(place)) }
    }

    #[inline]
    pub(crate) fn is_allowed(self) -> bool {
        self.count < NOT_ALLOWED
    }

    #[inline]
    pub(crate) fn weight(self) -> u64 {
        self.weight
    }

    #[inline]
    pub(crate) fn with_one(self) -> Self {
        Self { count: self.count + 1, ..self }
    }

    /// Whether the load is less, relative to weight.
    #[inline]
    pub(crate) fn is_less_than(self, other: Self) -> bool {
        // Both products fit: 33 bits times 16.
        // Multiplied across instead of divided: exact, so that equal servers are equal.
        self.count * other.weight < other.count * self.weight
    }

    /// The lesser load relative to weight; `self` if both are equal.
    #[inline]
    pub(crate) fn or_less(self, other: Self) -> Self {
        if other.is_less_than(self) { other } else { self }
    }
}
