//! Histograms of durations, all with the same buckets: from 50 microseconds to 50 seconds in steps of 1, 2 and 5. An
//! observation costs two additions. Quantiles are left to the reader.

use std::time::Duration;

use crate::counters::{Counter, Merge};

/// The number of buckets, including the one for durations above all bounds.
pub const BUCKETS: usize = BOUNDS.len() + 1;

/// The inclusive upper bounds of all buckets but the last, in nanoseconds, and in seconds as the exposition writes
/// them.
pub(crate) const BOUNDS: [(u64, &str); 19] = [
    (50_000, "5e-05"),
    (100_000, "0.0001"),
    (200_000, "0.0002"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_000_000, "0.002"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (20_000_000, "0.02"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (200_000_000, "0.2"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1.0"),
    (2_000_000_000, "2.0"),
    (5_000_000_000, "5.0"),
    (10_000_000_000, "10.0"),
    (20_000_000_000, "20.0"),
    (50_000_000_000, "50.0"),
];

/// For each binary order of magnitude the first bound that is not below it, and that bound. Bounds are at least a factor
/// of two apart, so one comparison settles the rest.
const ORDERS: [(u8, u64); 64] = {
    let mut orders = [(BOUNDS.len() as u8, u64::MAX); 64];
    let mut order = 0;
    while order < orders.len() {
        let mut at = 0;
        while at < BOUNDS.len() && BOUNDS[at].0 < 1 << order {
            at += 1;
        }
        if at < BOUNDS.len() {
            orders[order] = (at as u8, BOUNDS[at].0);
        }
        order += 1;
    }
    orders
};

/// A histogram of durations that one worker observed.
#[derive(Default)]
pub struct Histogram {
    buckets: [Counter; BUCKETS],
    nanoseconds: Counter,
}

impl Histogram {
    /// Adds an observation.
    #[inline]
    pub fn observe(&self, duration: Duration) {
        let nanoseconds = nanoseconds(duration);
        self.buckets[bucket(nanoseconds)].increment();
        self.nanoseconds.add(nanoseconds);
    }

    /// The number of observations in each bucket, not cumulative.
    #[must_use]
    pub fn buckets(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|at| self.buckets[at].value())
    }

    /// The sum of all durations.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.value())
    }
}

impl Merge for Histogram {
    fn add_all(&self, other: &Self) {
        self.buckets.add_all(&other.buckets);
        self.nanoseconds.add_all(&other.nanoseconds);
    }

    fn take_off(&self, other: &Self) {
        self.buckets.take_off(&other.buckets);
        self.nanoseconds.take_off(&other.nanoseconds);
    }
}

/// 2^64 nanoseconds are 584 years.
#[inline]
fn nanoseconds(duration: Duration) -> u64 {
    duration.as_secs().wrapping_mul(1_000_000_000).wrapping_add(u64::from(duration.subsec_nanos()))
}

#[inline]
fn bucket(nanoseconds: u64) -> usize {
    let (first, bound) = ORDERS[(nanoseconds | 1).ilog2() as usize];
    usize::from(first) + usize::from(nanoseconds > bound)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bound_belongs_to_the_bucket_below_it() {
        for (at, (bound, seconds)) in BOUNDS.into_iter().enumerate() {
            assert_eq!((bucket(bound - 1), bucket(bound), bucket(bound + 1)), (at, at, at + 1));
            assert_eq!(seconds.parse::<f64>().map(|seconds| (seconds * 1e9).round() as u64), Ok(bound));
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn what_is_observed_adds_up() {
        let histogram = Histogram::default();
        let durations = [0, 50, 51, 900_000, 60_000_000].map(Duration::from_micros);
        for duration in durations {
            histogram.observe(duration);
        }
        let mut expected = [0; BUCKETS];
        (expected[0], expected[1], expected[13], expected[BUCKETS - 1]) = (2, 1, 1, 1);
        assert_eq!((histogram.buckets(), histogram.sum()), (expected, durations.iter().sum()));
    }

    proptest! {
        #[test]
        fn a_duration_is_counted_below_the_first_bound_that_it_does_not_exceed(
            nanoseconds in (0_u32..64).prop_flat_map(|bits| 0..=u64::MAX >> bits),
        ) {
            let expected = BOUNDS.iter().take_while(|(bound, _)| *bound < nanoseconds).count();
            prop_assert_eq!(bucket(nanoseconds), expected);
        }
    }
}
