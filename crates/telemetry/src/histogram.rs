//! Histograms of durations. An array of cells has the counts of two views: buckets of 1, 2 and 5 times a power of ten,
//! and Prometheus' native histograms, which grow by 19%. An observation costs two additions.
//!
//! The cells are allocated with the first observation. The reader computes quantiles.

use std::sync::OnceLock;
use std::time::Duration;

use crate::counters::{Counter, Merge};

/// The number of buckets, including the one for durations above all bounds.
pub const BUCKETS: usize = BOUNDS.len() + 1;

/// The inclusive upper bounds of all buckets but the last, in nanoseconds, and in seconds as the exposition writes
/// them.
pub(crate) const BOUNDS: [(u64, &str); 21] = [
    (10_000, "1e-05"),
    (20_000, "2e-05"),
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

/// The native buckets' schema: 2^2 buckets for each factor of two.
pub(crate) const SCHEMA: i32 = 2;
/// Durations up to 2^-17 seconds, 7.6 microseconds, count as zero.
pub(crate) const ZERO_THRESHOLD: f64 = 1.0 / 131_072.0;
/// The native bucket with this index ends at `ZERO_THRESHOLD`: 2^(index / 4) seconds.
const ZERO_INDEX: i32 = -(17 << SCHEMA);
/// The number of native bounds, from `ZERO_THRESHOLD` to 2^7 seconds. Longer durations count in the bucket behind the
/// last one.
const NATIVES: usize = ((7 + 17) << SCHEMA) + 1;

/// The inclusive upper bounds of the native buckets in nanoseconds.
const NATIVE_BOUNDS: [u64; NATIVES] = {
    // 2^0, 2^(1/4), 2^(2/4) and 2^(3/4) seconds.
    const STEPS: [f64; 1 << SCHEMA] =
        [1e9, 1.189_207_115_002_721e9, 1.414_213_562_373_095e9, 1.681_792_830_507_429e9];
    let mut bounds = [0; NATIVES];
    let mut at = 0;
    while at < NATIVES {
        // The index starts at a whole power of two.
        bounds[at] = (STEPS[at % STEPS.len()] / 131_072.0 * (1_u64 << (at / STEPS.len())) as f64) as u64;
        at += 1;
    }
    bounds
};

/// The number of cells: one up to each bound of either view, and one beyond all.
const CELLS: usize = BOUNDS.len() + NATIVES - shared_bounds() + 1;

const fn shared_bounds() -> usize {
    let (mut shared, mut at) = (0, 0);
    while at < BOUNDS.len() {
        let mut native = 0;
        while native < NATIVES {
            shared += (NATIVE_BOUNDS[native] == BOUNDS[at].0) as usize;
            native += 1;
        }
        at += 1;
    }
    shared
}

/// The inclusive upper bound of each cell, and its bucket in each view.
const CELL_BOUNDS: [u64; CELLS] = {
    let mut bounds = [u64::MAX; CELLS];
    let (mut cell, mut at, mut native) = (0, 0, 0);
    while cell < CELLS - 1 {
        let of_bucket = if at < BOUNDS.len() { BOUNDS[at].0 } else { u64::MAX };
        let of_native = if native < NATIVES { NATIVE_BOUNDS[native] } else { u64::MAX };
        bounds[cell] = if of_bucket < of_native { of_bucket } else { of_native };
        at += (of_bucket == bounds[cell]) as usize;
        native += (of_native == bounds[cell]) as usize;
        cell += 1;
    }
    bounds
};

/// For each binary order of magnitude the first cell whose bound is not below it. An order has at most six bounds.
const ORDERS: [u8; 64] = {
    let mut orders = [0; 64];
    let mut order = 0;
    while order < orders.len() {
        let mut cell = 0;
        while CELL_BOUNDS[cell] < 1 << order {
            cell += 1;
        }
        orders[order] = cell as u8;
        order += 1;
    }
    orders
};

/// A histogram of durations that one worker observed.
#[derive(Default)]
pub struct Histogram {
    cells: OnceLock<Box<[Counter; CELLS]>>,
    nanoseconds: Counter,
}

/// The native view of a histogram.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Native {
    /// Observations up to `ZERO_THRESHOLD`.
    pub(crate) zero_count: u64,
    /// The index of each non-empty bucket, in order, and its observations.
    pub(crate) buckets: Vec<(i32, u64)>,
}

impl Histogram {
    #[inline]
    pub fn observe(&self, duration: Duration) {
        let nanoseconds = nanoseconds(duration);
        self.cells()[cell(nanoseconds)].increment();
        self.nanoseconds.add(nanoseconds);
    }

    #[inline]
    fn cells(&self) -> &[Counter; CELLS] {
        self.cells.get_or_init(|| Box::new(std::array::from_fn(|_| Counter::default())))
    }

    pub(crate) fn is_used(&self) -> bool {
        self.cells.get().is_some_and(|cells| cells.iter().any(|count| count.value() > 0))
    }

    /// The number of observations in each bucket, not cumulative.
    #[must_use]
    pub fn buckets(&self) -> [u64; BUCKETS] {
        let mut buckets = [0; BUCKETS];
        let Some(cells) = self.cells.get() else { return buckets };
        let mut at = 0;
        for (bound, count) in CELL_BOUNDS.iter().zip(cells.iter()) {
            at += usize::from(BOUNDS.get(at).is_some_and(|(last, _)| bound > last));
            buckets[at] += count.value();
        }
        buckets
    }

    pub(crate) fn native(&self) -> Native {
        let mut native = Native::default();
        let Some(cells) = self.cells.get() else { return native };
        let mut at = 0;
        for (bound, count) in CELL_BOUNDS.iter().zip(cells.iter()) {
            at += usize::from(NATIVE_BOUNDS.get(at).is_some_and(|last| bound > last));
            let (index, count) = (ZERO_INDEX + at as i32, count.value());
            match native.buckets.last_mut() {
                _ if count == 0 => {}
                _ if at == 0 => native.zero_count += count,
                Some((last, counted)) if *last == index => *counted += count,
                _ => native.buckets.push((index, count)),
            }
        }
        native
    }

    /// The sum of all durations.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.value())
    }
}

impl Merge for Histogram {
    fn add_all(&self, other: &Self) {
        if let Some(cells) = other.cells.get() {
            self.cells().add_all(cells);
        }
        self.nanoseconds.add_all(&other.nanoseconds);
    }

    fn take_off(&self, other: &Self) {
        if let Some(cells) = other.cells.get() {
            self.cells().take_off(cells);
        }
        self.nanoseconds.take_off(&other.nanoseconds);
    }
}

pub(crate) fn bucket(duration: Duration) -> usize {
    let nanoseconds = nanoseconds(duration);
    BOUNDS.iter().take_while(|(bound, _)| *bound < nanoseconds).count()
}

/// 2^64 nanoseconds are 584 years.
#[inline]
fn nanoseconds(duration: Duration) -> u64 {
    duration.as_secs().wrapping_mul(1_000_000_000).wrapping_add(u64::from(duration.subsec_nanos()))
}

#[inline]
fn cell(nanoseconds: u64) -> usize {
    let mut cell = usize::from(ORDERS[(nanoseconds | 1).ilog2() as usize]);
    // The last cell has no bound.
    while nanoseconds > CELL_BOUNDS[cell] {
        cell += 1;
    }
    cell
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn from_nanoseconds(nanoseconds: &[u64]) -> Histogram {
        let histogram = Histogram::default();
        nanoseconds.iter().for_each(|nanoseconds| histogram.observe(Duration::from_nanos(*nanoseconds)));
        histogram
    }

    #[test]
    fn a_bound_belongs_to_the_bucket_below_it() {
        for (at, (bound, seconds)) in BOUNDS.into_iter().enumerate() {
            let mut expected = [0; BUCKETS];
            (expected[at], expected[at + 1]) = (2, 1);
            assert_eq!(from_nanoseconds(&[bound - 1, bound, bound + 1]).buckets(), expected, "{seconds}");
            assert_eq!(seconds.parse::<f64>().map(|seconds| (seconds * 1e9).round() as u64), Ok(bound));
        }
        assert_eq!((cell(0), cell(u64::MAX)), (0, CELLS - 1));
    }

    #[test]
    fn native_bounds_are_powers_of_the_fourth_root_of_two_seconds() {
        for (at, bound) in NATIVE_BOUNDS.into_iter().enumerate() {
            let index = ZERO_INDEX + at as i32;
            let exact = 2_f64.powf(f64::from(index) / 4.0) * 1e9;
            assert!(
                (0.0..1.0).contains(&(exact - bound as f64)) || (exact / bound as f64 - 1.0).abs() < 1e-12
            );
            let native = from_nanoseconds(&[bound, bound + 1]).native();
            match at {
                0 => assert_eq!((native.zero_count, native.buckets), (1, vec![(index + 1, 1)])),
                _ => assert_eq!((native.zero_count, native.buckets), (0, vec![(index, 1), (index + 1, 1)])),
            }
        }
        assert!(CELL_BOUNDS.is_sorted());
        assert_eq!((NATIVE_BOUNDS[68], NATIVE_BOUNDS[NATIVES - 1]), (1_000_000_000, 128_000_000_000));
        assert_eq!(from_nanoseconds(&[u64::MAX, 200_000_000_000]).native().buckets, [(29, 2)]);
    }

    #[test]
    fn observations_add_up() {
        let histogram = Histogram::default();
        assert!(!histogram.is_used());
        let durations = [0, 50, 51, 900_000, 60_000_000].map(Duration::from_micros);
        for duration in durations {
            histogram.observe(duration);
        }
        let mut expected = [0; BUCKETS];
        (expected[0], expected[2], expected[3], expected[15], expected[BUCKETS - 1]) = (1, 1, 1, 1, 1);
        assert_eq!((histogram.buckets(), histogram.sum()), (expected, durations.iter().sum()));
        assert!(histogram.is_used());
        let sum = Histogram::default();
        sum.add_all(&histogram);
        sum.add_all(&histogram);
        sum.take_off(&histogram);
        assert_eq!((sum.buckets(), sum.native(), sum.sum()), (expected, histogram.native(), histogram.sum()));
    }

    proptest! {
        #[test]
        fn both_views_have_each_duration_once_below_the_first_bound_that_it_does_not_exceed(
            nanoseconds in (0_u32..64).prop_flat_map(|bits| 0..=u64::MAX >> bits),
        ) {
            let histogram = from_nanoseconds(&[nanoseconds]);
            let mut expected = [0; BUCKETS];
            expected[bucket(Duration::from_nanos(nanoseconds))] = 1;
            prop_assert_eq!(histogram.buckets(), expected);
            let native = NATIVE_BOUNDS.iter().take_while(|bound| **bound < nanoseconds).count() as i32;
            let expected = match native {
                0 => Native { zero_count: 1, buckets: Vec::new() },
                native => Native { zero_count: 0, buckets: vec![(ZERO_INDEX + native, 1)] },
            };
            prop_assert_eq!(histogram.native(), expected);
        }
    }
}
