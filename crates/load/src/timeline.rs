//! Figures of a run in short slots of time, each with the requests that were due in it. Recorded only on request.
//!
//! A hanging request counts in the slot in which it was due, not in that of its timeout. So events on a server can be
//! compared with the results of its clients at that time.

use std::time::{Duration, Instant};

use crate::outcome::{ErrorClass, Errors};
use crate::record::TimeHistogram;

/// Maximum number of slots. Later requests share the last one.
pub(crate) const SLOTS_MAX: usize = 10_000;

/// Figures of the requests that were due in one slot.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TimelineSlot {
    pub requests: u64,
    /// Failed requests. A connect that failed before a request was chosen counts when it failed.
    pub errors: Errors,
    /// Requests without a result when the run ended, in the slot of their sending. Those never sent are in no slot.
    pub unanswered: u64,
    /// Latencies of `requests`, with a precision of 1%.
    times: Option<Box<TimeHistogram>>,
}

impl TimelineSlot {
    pub fn succeeded(&mut self, latency: Duration) {
        self.requests += 1;
        self.times.get_or_insert_with(|| Box::new(TimeHistogram::coarse())).record_growing(latency);
    }

    pub fn failed(&mut self, class: ErrorClass) {
        self.errors.count(class);
    }

    pub fn merged<'s>(slots: impl IntoIterator<Item = &'s Self>) -> Self {
        slots.into_iter().fold(Self::default(), |mut merged, slot| {
            merged.merge(slot);
            merged
        })
    }

    pub fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors.add(&other.errors);
        self.unanswered += other.unanswered;
        match (&mut self.times, &other.times) {
            (Some(times), Some(more)) => times.merge(more),
            (times @ None, Some(more)) => *times = Some(more.clone()),
            (_, None) => {}
        }
    }

    /// Share of the requests that failed; `None` without requests.
    pub fn failed_share(&self) -> Option<f64> {
        let failed = self.errors.total();
        (failed + self.requests > 0).then(|| failed as f64 / (failed + self.requests) as f64)
    }

    /// Latency at a quantile from 0 to 1, in microseconds; `None` without a success.
    pub fn quantile_us(&self, quantile: f64) -> Option<u64> {
        let times = self.times.as_ref()?;
        Some(times.histogram.value_at_quantile(quantile).min(times.histogram.max()))
    }

    /// Mean latency in microseconds; `None` without a success.
    pub fn mean_us(&self) -> Option<f64> {
        self.times.as_ref().map(|times| times.histogram.mean())
    }
}

/// The slots of one thread.
#[derive(Debug)]
pub(crate) struct Timeline {
    start: Instant,
    slot: Duration,
    slots: Vec<TimelineSlot>,
}

impl Timeline {
    /// Begins with the measured window.
    pub(crate) fn new(start: Instant, slot: Duration) -> Self {
        Self { start, slot, slots: Vec::new() }
    }

    /// The slot of a request that was due at this time.
    pub(crate) fn at(&mut self, due: Instant) -> &mut TimelineSlot {
        let since = due.saturating_duration_since(self.start).as_micros();
        let index =
            usize::try_from(since / self.slot.as_micros().max(1)).unwrap_or(usize::MAX).min(SLOTS_MAX - 1);
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, TimelineSlot::default);
        }
        &mut self.slots[index]
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        if self.slots.len() < other.slots.len() {
            self.slots.resize_with(other.slots.len(), TimelineSlot::default);
        }
        for (slot, more) in self.slots.iter_mut().zip(&other.slots) {
            slot.merge(more);
        }
    }

    pub(crate) fn into_slots(self) -> Vec<TimelineSlot> {
        self.slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_where_they_were_due() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut one = Timeline::new(start, Duration::from_millis(100));
        one.at(after(0)).succeeded(Duration::from_millis(1));
        one.at(after(99)).succeeded(Duration::from_millis(3));
        // The timeout is known a second later.
        one.at(after(100)).failed(ErrorClass::Timeout);
        let mut other = Timeline::new(start, Duration::from_millis(100));
        other.at(after(350)).succeeded(Duration::from_secs(2));
        other.at(after(150)).failed(ErrorClass::Status);
        one.merge(&other);
        let slots = one.into_slots();
        let told: Vec<_> = slots.iter().map(|slot| (slot.requests, slot.errors.total())).collect();
        assert_eq!(told, [(2, 0), (0, 2), (0, 0), (1, 0)]);
        assert_eq!((slots[1].errors.timeout, slots[1].errors.status), (1, 1));
        assert_eq!((slots[1].failed_share(), slots[2].failed_share()), (Some(1.0), None));
        assert_eq!((slots[1].quantile_us(0.5), slots[1].mean_us()), (None, None));
        let all = TimelineSlot::merged(&slots);
        assert_eq!((all.requests, all.failed_share()), (3, Some(0.4)));
        let max_us = all.quantile_us(1.0).expect("successes");
        assert!((1_980_000..=2_020_000).contains(&max_us), "{max_us}");
        assert!(all.quantile_us(0.5).is_some_and(|us| (2_970..=3_030).contains(&us)));
    }

    #[test]
    fn a_run_without_end_has_an_end_of_slots() {
        let start = Instant::now();
        let mut timeline = Timeline::new(start, Duration::from_millis(1));
        timeline.at(start + Duration::from_secs(1_000_000)).failed(ErrorClass::Read);
        assert_eq!(timeline.into_slots().len(), SLOTS_MAX);
    }
}
