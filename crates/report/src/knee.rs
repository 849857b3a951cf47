//! Knee of latency against rate: below it a proxy answers without queues, above it requests queue.
//!
//! The knee is the greatest distance below the chord, with both axes scaled to 1; without a bend there is none.

/// Minimum growth of the latency over all rates for a knee.
const GROWTH_LEAST: f64 = 2.0;
/// Minimum distance of the curve below its chord, as a share of the axis.
const SAG_LEAST: f64 = 0.2;
const POINTS_LEAST: usize = 4;

/// The last rate before the bend, and the next one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Knee {
    /// Rate at the bend, in requests per second.
    pub rate_per_second: f64,
    pub latency_us: f64,
    /// The next measured rate: the bend lies before it.
    pub next_rate_per_second: f64,
}

/// Finds the knee of (rate, latency) points, in any order; `None` if latency does not bend within the measured rates.
pub fn knee(points: &[(f64, f64)]) -> Option<Knee> {
    let curve = rising(points);
    let (first, last) = (*curve.first()?, *curve.last()?);
    if curve.len() < POINTS_LEAST || last.1 < GROWTH_LEAST * first.1 || last.0 <= first.0 {
        return None;
    }
    let sag = |&(rate, latency): &(f64, f64)| {
        (rate - first.0) / (last.0 - first.0) - (latency - first.1) / (last.1 - first.1)
    };
    let (index, deepest) =
        curve.iter().map(sag).enumerate().max_by(|one, other| one.1.total_cmp(&other.1))?;
    (deepest >= SAG_LEAST).then(|| Knee {
        rate_per_second: curve[index].0,
        latency_us: curve[index].1,
        next_rate_per_second: curve[(index + 1).min(curve.len() - 1)].0,
    })
}

/// Sorts by rate, and makes latencies non-decreasing, so that one disturbed measurement makes no bend.
fn rising(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut sorted = finite(points);
    sorted.sort_by(|one, other| one.0.total_cmp(&other.0));
    // From the right, so that a single high latency is lowered to that of higher rates.
    let mut least = f64::INFINITY;
    for (_, latency) in sorted.iter_mut().rev() {
        least = least.min(*latency);
        *latency = least;
    }
    sorted
}

fn finite(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    points.iter().copied().filter(|(rate, latency)| rate.is_finite() && latency.is_finite()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Latency against rate of a queue with one server, up to these shares of its capacity.
    fn queue(capacity: f64, shares: &[f64]) -> Vec<(f64, f64)> {
        shares.iter().map(|share| (share * capacity, 100.0 / (1.0 - share))).collect()
    }

    #[test]
    fn the_knee_of_a_queue_lies_before_it_is_full() {
        let shares = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];
        let knee = knee(&queue(10_000.0, &shares)).expect("a queue bends");
        assert_eq!((knee.rate_per_second, knee.next_rate_per_second), (8_000.0, 9_000.0));
    }

    #[test]
    fn one_disturbed_reading_is_no_knee() {
        let mut points = queue(10_000.0, &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95]);
        points[1].1 *= 15.0;
        assert_eq!(knee(&points).expect("a queue bends").rate_per_second, 8_000.0);
    }

    #[test]
    fn what_does_not_bend_has_no_knee() {
        let cases: [&[(f64, f64)]; 5] = [
            &[],
            &[(1.0, 10.0), (2.0, 10.0), (3.0, 11.0), (4.0, 12.0)],
            // A straight line.
            &[(1.0, 10.0), (2.0, 20.0), (3.0, 30.0), (4.0, 40.0)],
            // Too few points.
            &[(1.0, 10.0), (2.0, 10.0), (3.0, 100.0)],
            &[(1.0, f64::NAN), (2.0, 1.0), (3.0, 1.0), (4.0, 100.0)],
        ];
        for points in cases {
            assert_eq!(knee(points), None, "{points:?}");
        }
    }
}
