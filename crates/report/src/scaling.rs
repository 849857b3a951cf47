//! Universal Scalability Law: fits how requests per second grow with workers, with intervals.
//!
//! X(n) = λn / (1 + σ(n−1) + κn(n−1)): λ is the rate of one worker, σ the contention, κ the cost of coherence.

use crate::statistics::median;

/// Minimum number of different worker counts: with fewer, σ and κ cannot be separated.
const POINTS_LEAST: usize = 3;
const RESAMPLES: usize = 500;

/// The three parameters of the law.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Law {
    /// λ: requests per second of one worker.
    pub single_per_second: f64,
    /// σ: share of the work that is serialised (contention).
    pub contention: f64,
    /// κ: cost of each pair of workers that must agree (crosstalk).
    pub crosstalk: f64,
}

/// The law, fitted to measurements.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    pub law: Law,
    /// 95% interval of σ, from resampling.
    pub contention_interval: (f64, f64),
    /// 95% interval of κ, from resampling.
    pub crosstalk_interval: (f64, f64),
    /// Explained share of the variation between the points.
    pub explained: f64,
    /// Highest measured number of workers: beyond it, the law extrapolates.
    pub measured_workers: f64,
}

impl Law {
    /// Predicted requests per second for this number of workers.
    pub fn per_second(&self, workers: f64) -> f64 {
        let Self { single_per_second, contention, crosstalk } = *self;
        let n = workers;
        single_per_second * n / (1.0 + contention * (n - 1.0) + crosstalk * n * (n - 1.0))
    }

    /// Number of workers with the highest rate; `None` if the law has no maximum.
    pub fn peak_workers(&self) -> Option<f64> {
        (self.crosstalk > 0.0 && self.contention < 1.0)
            .then(|| ((1.0 - self.contention) / self.crosstalk).sqrt())
    }
}

impl Fit {
    /// Fits (workers, requests per second) points, several per worker count; `None` for fewer than three counts.
    pub fn new(points: &[(f64, f64)]) -> Option<Self> {
        let groups = by_workers(points);
        if groups.len() < POINTS_LEAST {
            return None;
        }
        let medians: Vec<(f64, f64)> =
            groups.iter().map(|(workers, values)| (*workers, median(values))).collect();
        let law = fitted(&medians);
        let mut random = fastrand::Rng::with_seed(0x7661_6e77_6172_6421);
        let mut contentions = Vec::with_capacity(RESAMPLES);
        let mut crosstalks = Vec::with_capacity(RESAMPLES);
        for _ in 0..RESAMPLES {
            let resampled: Vec<(f64, f64)> = groups
                .iter()
                .map(|(workers, values)| {
                    let mut drawn: Vec<f64> =
                        values.iter().map(|_| values[random.usize(..values.len())]).collect();
                    drawn.sort_by(f64::total_cmp);
                    (*workers, median(&drawn))
                })
                .collect();
            let law = fitted(&resampled);
            contentions.push(law.contention);
            crosstalks.push(law.crosstalk);
        }
        Some(Self {
            law,
            contention_interval: middle(contentions),
            crosstalk_interval: middle(crosstalks),
            explained: explained(&law, &medians),
            measured_workers: medians.last()?.0,
        })
    }
}

/// Sorted measurements for each number of workers.
fn by_workers(points: &[(f64, f64)]) -> Vec<(f64, Vec<f64>)> {
    let mut points: Vec<(f64, f64)> = points
        .iter()
        .copied()
        .filter(|(workers, value)| *workers >= 1.0 && value.is_finite() && *value > 0.0)
        .collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)));
    let mut groups: Vec<(f64, Vec<f64>)> = Vec::new();
    for (workers, value) in points {
        match groups.last_mut() {
            Some((same, values)) if *same == workers => values.push(value),
            _ => groups.push((workers, vec![value])),
        }
    }
    groups
}

/// The law with the least squared relative error. The busy time of a worker per request, n/X(n), is linear in 1/λ, σ/λ
/// and κ/λ, and none is negative. So the best solutions without σ, without κ, or without both are also tried.
fn fitted(points: &[(f64, f64)]) -> Law {
    let candidates =
        [[true, true], [true, false], [false, true], [false, false]].map(|used| solved(points, used));
    candidates
        .into_iter()
        .flatten()
        .filter(|law| law.contention >= 0.0 && law.crosstalk >= 0.0)
        .min_by(|one, other| error(points, one).total_cmp(&error(points, other)))
        .unwrap_or(Law { single_per_second: 0.0, contention: 0.0, crosstalk: 0.0 })
}

/// Solution of the normal equations with σ, κ or both.
fn solved(points: &[(f64, f64)], [contention, crosstalk]: [bool; 2]) -> Option<Law> {
    let mut equations = [[0.0; 4]; 3];
    for &(n, per_second) in points {
        let busy = n / per_second;
        let terms =
            [1.0, if contention { n - 1.0 } else { 0.0 }, if crosstalk { n * (n - 1.0) } else { 0.0 }];
        // Divided by the measured value, because errors are relative.
        let terms = terms.map(|term| term / busy);
        for (row, &left) in equations.iter_mut().zip(&terms) {
            for (cell, right) in row.iter_mut().zip(terms.iter().chain(&[1.0])) {
                *cell += left * right;
            }
        }
    }
    for (index, is_used) in [(1, contention), (2, crosstalk)] {
        if !is_used {
            equations[index][index] = 1.0;
        }
    }
    let [inverse, contention, crosstalk] = eliminated(equations)?;
    (inverse > 0.0).then(|| Law {
        single_per_second: 1.0 / inverse,
        contention: contention / inverse,
        crosstalk: crosstalk / inverse,
    })
}

/// Solves three linear equations by Gauss-Jordan elimination; `None` if they are singular.
fn eliminated(mut rows: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let pivot = (column..3)
            .max_by(|&one, &other| rows[one][column].abs().total_cmp(&rows[other][column].abs()))?;
        rows.swap(column, pivot);
        let lead = rows[column];
        if lead[column].abs() < f64::MIN_POSITIVE {
            return None;
        }
        for (_, row) in rows.iter_mut().enumerate().filter(|(index, _)| *index != column) {
            let factor = row[column] / lead[column];
            for (cell, lead) in row.iter_mut().zip(lead) {
                *cell -= factor * lead;
            }
        }
    }
    Some([0, 1, 2].map(|index| rows[index][3] / rows[index][index]))
}

fn error(points: &[(f64, f64)], law: &Law) -> f64 {
    points.iter().map(|(workers, value)| (law.per_second(*workers) / value - 1.0).powi(2)).sum()
}

fn explained(law: &Law, points: &[(f64, f64)]) -> f64 {
    let mean = points.iter().map(|point| point.1).sum::<f64>() / points.len() as f64;
    let left: f64 = points.iter().map(|(workers, value)| (value - law.per_second(*workers)).powi(2)).sum();
    let all: f64 = points.iter().map(|(_, value)| (value - mean).powi(2)).sum();
    if all > 0.0 { 1.0 - left / all } else { 0.0 }
}

/// Ends of the middle 95% of the values.
fn middle(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[RESAMPLES / 40], values[RESAMPLES - 1 - RESAMPLES / 40])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(law: &Law, noise: f64, random: &mut fastrand::Rng) -> Vec<(f64, f64)> {
        let workers = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
        let repeats = workers.into_iter().flat_map(|workers| [workers; 5]);
        repeats
            .map(|workers| (workers, law.per_second(workers) * (1.0 + noise * (random.f64() - 0.5))))
            .collect()
    }

    #[test]
    fn the_law_that_made_the_points_is_found() {
        let mut random = fastrand::Rng::with_seed(3);
        let laws = [(0.0, 0.0), (0.05, 0.0), (0.02, 0.001), (0.3, 0.01), (0.0, 0.005)];
        for (contention, crosstalk) in laws {
            let law = Law { single_per_second: 20_000.0, contention, crosstalk };
            let fit = Fit::new(&measured(&law, 0.0, &mut random)).expect("six counts");
            assert!((fit.law.contention - contention).abs() < 0.002, "{fit:?} for {law:?}");
            assert!((fit.law.crosstalk - crosstalk).abs() < 0.0002, "{fit:?} for {law:?}");
            assert!((fit.law.single_per_second / 20_000.0 - 1.0).abs() < 0.01, "{fit:?} for {law:?}");
            assert!(fit.explained > 0.999, "{fit:?}");
        }
    }

    #[test]
    fn the_interval_holds_the_truth_under_noise() {
        let mut random = fastrand::Rng::with_seed(4);
        let law = Law { single_per_second: 20_000.0, contention: 0.05, crosstalk: 0.001 };
        let trials = 20;
        let held = (0..trials)
            .filter(|_| {
                let fit = Fit::new(&measured(&law, 0.06, &mut random)).expect("six counts");
                fit.contention_interval.0 <= 0.05 && 0.05 <= fit.contention_interval.1
            })
            .count();
        assert!(held >= 15, "the interval held the truth in {held} of {trials}");
    }

    #[test]
    fn more_workers_than_the_peak_do_less() {
        let law = Law { single_per_second: 100.0, contention: 0.04, crosstalk: 0.006 };
        let peak = law.peak_workers().expect("crosstalk ends it");
        assert!(
            law.per_second(peak) > law.per_second(peak * 1.3)
                && law.per_second(peak) > law.per_second(peak / 1.3)
        );
        assert_eq!(Law { crosstalk: 0.0, ..law }.peak_workers(), None);
    }

    #[test]
    fn two_counts_of_workers_are_no_law() {
        assert_eq!(Fit::new(&[(1.0, 10.0), (2.0, 19.0), (2.0, 20.0)]), None);
        assert_eq!(Fit::new(&[(1.0, 10.0), (2.0, 0.0), (4.0, f64::NAN)]), None);
        assert_eq!(Fit::new(&[]), None);
    }
}
