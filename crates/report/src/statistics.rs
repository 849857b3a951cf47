//! Medians with intervals, and differences between two of them.
//!
//! There are usually few repeats, so no distribution is assumed.

/// Minimum number of values for a bootstrap interval; with fewer, the interval is the range.
const BOOTSTRAP_MINIMUM: usize = 6;
/// Factor that widens the range of three values, which is too narrow. Two such ranges of the same quantity are disjoint
/// in 10 of 100 cases, widened ones in 4 or 5.
const STRETCH_OF_THREE: f64 = 1.5;
/// Minimum number of values on each side for a verdict.
const JUDGED_MINIMUM: usize = 3;
const RESAMPLES: usize = 2000;

/// A median with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub median: f64,
    /// Lower end of the interval: from the range for three to five values, otherwise of the 95% bootstrap interval. Two
    /// estimates of the same quantity overlap in at least 95 of 100 cases.
    pub low: f64,
    /// Upper end of the interval, computed like [`Estimate::low`].
    pub high: f64,
    pub count: usize,
}

impl Estimate {
    /// Estimate from all finite values; `None` if there are none.
    pub fn from_values(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (&least, &most) = (sorted.first()?, sorted.last()?);
        let median = median(&sorted);
        let (low, high) = match sorted.len() {
            // If no value is negative, the interval has no negative part.
            3 => {
                let low = median - STRETCH_OF_THREE * (median - least);
                (if least >= 0.0 { low.max(0.0) } else { low }, median + STRETCH_OF_THREE * (most - median))
            }
            few if few < BOOTSTRAP_MINIMUM => (least, most),
            _ => bootstrap_interval(&sorted),
        };
        Some(Self { median, low, high, count: sorted.len() })
    }

    /// Distance of the farther end of the interval from the median, as a share of the median; 0 for a median of 0.
    pub fn spread(&self) -> f64 {
        if self.median == 0.0 {
            return 0.0;
        }
        (self.high - self.median).max(self.median - self.low) / self.median.abs()
    }
}

/// Position of one estimate relative to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// The interval lies completely below the other.
    Lower,
    /// The intervals overlap.
    Within,
    /// The interval lies completely above the other.
    Higher,
    /// Too few repeats for a verdict.
    Unjudged,
}

/// Whether two estimates differ by more than their spread.
pub fn difference(value: &Estimate, other: &Estimate) -> Difference {
    if value.count < JUDGED_MINIMUM || other.count < JUDGED_MINIMUM {
        Difference::Unjudged
    } else if value.high < other.low {
        Difference::Lower
    } else if value.low > other.high {
        Difference::Higher
    } else {
        Difference::Within
    }
}

/// Median of sorted values, at least one.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// Middle 95% of the medians of resampled values. The seed is fixed, so the same results give the same report.
fn bootstrap_interval(sorted: &[f64]) -> (f64, f64) {
    let mut random = fastrand::Rng::with_seed(0x7661_6e77_6172_6421);
    let mut resample = vec![0.0; sorted.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            resample.fill_with(|| sorted[random.usize(..sorted.len())]);
            resample.sort_by(f64::total_cmp);
            median(&resample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    (medians[RESAMPLES / 40], medians[RESAMPLES - 1 - RESAMPLES / 40])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_span_their_range() {
        let cases: [(&[f64], f64, f64, f64); 6] = [
            (&[3.0], 3.0, 3.0, 3.0),
            (&[4.0, 1.0], 2.5, 1.0, 4.0),
            (&[9.0, 1.0, 2.0], 2.0, 0.5, 12.5),
            (&[9.0, 0.1, 2.0], 2.0, 0.0, 12.5),
            (&[9.0, 1.0, 2.0, 3.0], 2.5, 1.0, 9.0),
            (&[f64::NAN, 5.0, f64::INFINITY], 5.0, 5.0, 5.0),
        ];
        for (values, median, low, high) in cases {
            let estimate = Estimate::from_values(values.iter().copied()).expect("a finite value");
            assert_eq!((estimate.median, estimate.low, estimate.high), (median, low, high), "{values:?}");
        }
        assert_eq!(Estimate::from_values([]), None);
        assert_eq!(Estimate::from_values([f64::NAN]), None);
    }

    #[test]
    fn many_values_have_an_interval_that_one_outlier_does_not_stretch() {
        let values = (0..20).map(|step| 100.0 + f64::from(step % 5)).chain([1000.0]);
        let estimate = Estimate::from_values(values).expect("values");
        assert!((100.0..=104.0).contains(&estimate.low), "{estimate:?}");
        assert!((estimate.median..=104.0).contains(&estimate.high), "{estimate:?}");
    }

    #[test]
    fn the_interval_covers_the_true_median_about_as_often_as_it_says() {
        let mut random = fastrand::Rng::with_seed(1);
        let trials = 400;
        let covered = (0..trials)
            .filter(|_| {
                let estimate = Estimate::from_values((0..15).map(|_| random.f64())).expect("values");
                estimate.low <= 0.5 && 0.5 <= estimate.high
            })
            .count();
        let share = covered as f64 / f64::from(trials);
        assert!((0.88..=0.99).contains(&share), "the interval covered the median in {share} of the trials");
    }

    /// Noise of 2%, and every tenth value up to a fifth lower, as with a busy neighbour.
    fn noisy(random: &mut fastrand::Rng, count: usize) -> Estimate {
        let value = || {
            let noise: f64 = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
            let disturbed = if random.f64() < 0.1 { 1.0 - 0.2 * random.f64() } else { 1.0 };
            100.0 * (1.0 + 0.02 * noise) * disturbed
        };
        Estimate::from_values(std::iter::repeat_with(value).take(count)).expect("values")
    }

    #[test]
    fn two_estimates_of_the_same_thing_overlap_in_95_of_100_cases() {
        let mut random = fastrand::Rng::with_seed(7);
        for (count, trials) in [(3, 2000), (4, 2000), (5, 2000), (7, 300), (9, 300), (15, 300)] {
            let apart = (0..trials)
                .filter(|_| {
                    let (one, another) = (noisy(&mut random, count), noisy(&mut random, count));
                    difference(&one, &another) != Difference::Within
                })
                .count();
            let share = apart as f64 / f64::from(trials);
            assert!(share <= 0.055, "of {count} values, {share} were apart");
        }
    }

    #[test]
    fn a_difference_has_to_exceed_the_spread() {
        let estimate = |low: f64, high: f64, count| Estimate { median: (low + high) / 2.0, low, high, count };
        let cases = [
            (estimate(1.0, 2.0, 3), estimate(3.0, 4.0, 3), Difference::Lower),
            (estimate(3.0, 4.0, 3), estimate(1.0, 2.0, 3), Difference::Higher),
            (estimate(1.0, 3.0, 3), estimate(2.0, 4.0, 3), Difference::Within),
            (estimate(1.0, 2.0, 3), estimate(2.0, 4.0, 3), Difference::Within),
            (estimate(1.0, 2.0, 2), estimate(3.0, 4.0, 3), Difference::Unjudged),
            (estimate(1.0, 2.0, 3), estimate(3.0, 4.0, 2), Difference::Unjudged),
        ];
        for (value, other, expected) in cases {
            assert_eq!(difference(&value, &other), expected, "{value:?} and {other:?}");
        }
    }

    #[test]
    fn spread_is_the_farther_end() {
        let estimate = Estimate { median: 10.0, low: 9.0, high: 12.0, count: 3 };
        assert!((estimate.spread() - 0.2).abs() < 1e-9);
        assert_eq!(Estimate { median: 0.0, low: 0.0, high: 0.0, count: 1 }.spread(), 0.0);
    }
}
