//! Exemplars: for each bucket of a histogram the last request whose trace is recorded.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::counters::Merge;
use crate::histogram::{BUCKETS, bucket};

/// A request in a histogram, whose trace is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exemplar {
    pub trace_id: u128,
    /// The request's duration.
    pub value: Duration,
    /// When it ended.
    pub at: SystemTime,
}

impl Exemplar {
    /// The trace ID in the form of tracing systems: 32 hexadecimal digits.
    pub(crate) fn trace_id(&self) -> String {
        format!("{:032x}", self.trace_id)
    }

    pub(crate) fn since_epoch(&self) -> Duration {
        self.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }
}

/// The exemplars of one histogram. Only recorded requests are noted, so a lock costs next to nothing.
#[derive(Default)]
pub struct Exemplars(Mutex<[Option<Exemplar>; BUCKETS]>);

impl Exemplars {
    pub fn note(&self, exemplar: Exemplar) {
        self.lock()[bucket(exemplar.value)] = Some(exemplar);
    }

    pub(crate) fn values(&self) -> [Option<Exemplar>; BUCKETS] {
        *self.lock()
    }

    /// No code that holds the lock can panic.
    fn lock(&self) -> MutexGuard<'_, [Option<Exemplar>; BUCKETS]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Merge for Exemplars {
    /// Keeps the later of two exemplars.
    fn add_all(&self, other: &Self) {
        let others = other.values();
        for (own, other) in self.lock().iter_mut().zip(others) {
            if other.map(|other| other.at) > own.map(|own| own.at) {
                *own = other;
            }
        }
    }

    fn take_off(&self, _: &Self) {}
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn the_last_one_of_each_bucket_is_kept() {
        let exemplar = |trace_id, milliseconds, at| Exemplar {
            trace_id,
            value: Duration::from_millis(milliseconds),
            at: UNIX_EPOCH + Duration::from_secs(at),
        };
        let (one, other) = (Exemplars::default(), Exemplars::default());
        one.note(exemplar(1, 1, 1));
        one.note(exemplar(2, 900, 2));
        one.note(exemplar(3, 901, 3));
        other.note(exemplar(4, 1, 2));
        other.note(exemplar(5, 900, 1));
        other.note(exemplar(6, 60_000, 1));
        one.add_all(&other);
        let kept: Vec<_> = one.values().into_iter().flatten().map(|kept| kept.trace_id).collect();
        assert_eq!(kept, [4, 3, 6]);
    }
}
