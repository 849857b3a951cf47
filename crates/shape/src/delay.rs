//! Delays and their variation (jitter).

use std::sync::Arc;

#[derive(Debug, Clone, PartialEq)]
pub enum Jitter {
    None,
    /// A uniform distribution around the mean.
    Uniform {
        /// Maximum difference from the mean.
        spread_ns: u64,
    },
    Normal {
        deviation_ns: u64,
    },
    /// A Pareto distribution above the delay: usually a little later, occasionally much later, never earlier.
    Pareto {
        mean_ns: u64,
    },
    /// Measured values, used one after the other and repeated from the start.
    Trace {
        /// Where the values come from, for output.
        source: Arc<str>,
        /// Nanoseconds to add to the delay; never empty.
        added_ns: Arc<[i64]>,
    },
}

/// Shape of the Pareto distribution: heavy-tailed, but with a finite mean and variance.
const PARETO_SHAPE: f64 = 2.5;
/// Limit of a Pareto draw, as a multiple of the mean.
const PARETO_MAX: f64 = 50.0;

#[derive(Debug, Clone, PartialEq)]
pub struct Delay {
    pub mean_ns: u64,
    pub jitter: Jitter,
}

impl Delay {
    /// Returns the delay of piece number `index`. `random` must be 64 random bits that nothing else uses.
    pub fn draw_ns(&self, index: u64, random: u64) -> u64 {
        let added = match &self.jitter {
            Jitter::None => 0.0,
            Jitter::Uniform { spread_ns } => (2.0 * unit(random) - 1.0) * *spread_ns as f64,
            Jitter::Normal { deviation_ns } => normal(random) * *deviation_ns as f64,
            Jitter::Pareto { mean_ns } => pareto(random) * *mean_ns as f64,
            Jitter::Trace { added_ns, .. } => match added_ns.len() as u64 {
                0 => 0.0,
                len => added_ns[(index % len) as usize] as f64,
            },
        };
        // A cast of a negative number is 0.
        (self.mean_ns as f64 + added).round() as u64
    }
}

/// Maps random bits to a number above 0 and at most 1.
pub(crate) fn unit(random: u64) -> f64 {
    ((random >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// Draws a standard normal value by the Box-Muller method, from two halves of the random bits.
fn normal(random: u64) -> f64 {
    let half = |bits: u64| ((bits & 0xffff_ffff) + 1) as f64 / (1u64 << 32) as f64;
    (-2.0 * half(random).ln()).sqrt() * (std::f64::consts::TAU * half(random >> 32)).cos()
}

/// Draws a Pareto value above 0, with a mean of 1.
fn pareto(random: u64) -> f64 {
    let lomax = unit(random).powf(-1.0 / PARETO_SHAPE) - 1.0;
    (lomax * (PARETO_SHAPE - 1.0)).min(PARETO_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Random bits that are the same in every run.
    fn bits(index: u64) -> u64 {
        let mut bits = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn drawn(jitter: Jitter) -> Vec<f64> {
        let delay = Delay { mean_ns: 2_000 * MS, jitter };
        (0..100_000).map(|index| delay.draw_ns(index, bits(index)) as f64 / MS as f64).collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    fn deviation(values: &[f64]) -> f64 {
        let mean = mean(values);
        (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
    }

    #[test]
    fn delays_are_distributed_as_they_are_meant() {
        assert!(drawn(Jitter::None).iter().all(|&delay| delay == 2000.0));
        let uniform = drawn(Jitter::Uniform { spread_ns: 100 * MS });
        assert!(uniform.iter().all(|delay| (1900.0..=2100.0).contains(delay)));
        assert!((mean(&uniform) - 2000.0).abs() < 1.0 && (deviation(&uniform) - 57.7).abs() < 1.0);
        let normal = drawn(Jitter::Normal { deviation_ns: 100 * MS });
        assert!((mean(&normal) - 2000.0).abs() < 2.0 && (deviation(&normal) - 100.0).abs() < 2.0);
        let pareto = drawn(Jitter::Pareto { mean_ns: 100 * MS });
        assert!(pareto.iter().all(|&delay| delay >= 2000.0));
        assert!((mean(&pareto) - 2100.0).abs() < 5.0);
        let trace =
            Jitter::Trace { source: "test".into(), added_ns: Arc::new([5 * MS as i64, -3000 * MS as i64]) };
        assert_eq!(drawn(trace)[..4], [2005.0, 0.0, 2005.0, 0.0]);
    }
}
