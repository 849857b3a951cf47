//! Latencies as counted buckets, which merge without loss.
//!
//! The load generator records latencies; this module only reads them.

use serde::{Deserialize, Serialize};

/// Latencies and how often each was observed. Buckets ascend, and none is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "WrittenHistogram", into = "WrittenHistogram")]
pub struct LatencyHistogram {
    buckets: Vec<Bucket>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bucket {
    /// Highest latency of the bucket.
    latency_us: u64,
    count: u64,
}

impl LatencyHistogram {
    /// From pairs of latency in microseconds and count, in any order.
    pub fn from_counts(counts: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut buckets: Vec<Bucket> = counts
            .into_iter()
            .filter(|&(_, count)| count > 0)
            .map(|(latency_us, count)| Bucket { latency_us, count })
            .collect();
        buckets.sort_by_key(|bucket| bucket.latency_us);
        buckets.dedup_by(|next, kept| {
            let same = next.latency_us == kept.latency_us;
            if same {
                kept.count = kept.count.saturating_add(next.count);
            }
            same
        });
        Self { buckets }
    }

    pub fn merged<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        Self::from_counts(parts.into_iter().flat_map(Self::pairs))
    }

    pub fn count(&self) -> u64 {
        // Saturating, because a file may contain any numbers.
        self.buckets.iter().fold(0, |sum, bucket| sum.saturating_add(bucket.count))
    }

    /// Smallest latency that a share `quantile` (0 to 1) of the observations does not exceed; `None` without any.
    pub fn at_quantile_us(&self, quantile: f64) -> Option<u64> {
        self.at_quantiles_us(&[quantile]).pop()
    }

    /// [`LatencyHistogram::at_quantile_us`] for several ascending quantiles in one pass; empty without observations.
    pub fn at_quantiles_us(&self, quantiles: &[f64]) -> Vec<u64> {
        debug_assert!(quantiles.is_sorted());
        let count = self.count();
        let mut buckets = self.buckets.iter();
        let Some(mut bucket) = buckets.next() else { return Vec::new() };
        let mut seen = bucket.count;
        quantiles
            .iter()
            .map(|quantile| {
                let wanted = ((quantile * count as f64).ceil() as u64).clamp(1, count);
                while seen < wanted
                    && let Some(next) = buckets.next()
                {
                    bucket = next;
                    seen = seen.saturating_add(bucket.count);
                }
                bucket.latency_us
            })
            .collect()
    }

    pub fn max_us(&self) -> Option<u64> {
        self.buckets.last().map(|bucket| bucket.latency_us)
    }

    /// Mean latency, from the highest of each bucket; `None` without observations.
    pub fn mean_us(&self) -> Option<f64> {
        let count = self.count();
        let sum: f64 = self.pairs().map(|(latency_us, count)| latency_us as f64 * count as f64).sum();
        (count > 0).then(|| sum / count as f64)
    }

    fn pairs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buckets.iter().map(|bucket| (bucket.latency_us, bucket.count))
    }
}

/// Representations in a file.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WrittenHistogram {
    /// Since schema 4: `[gap, count, count, …]` for each run of equidistant buckets. The first bucket of a run is `gap`
    /// microseconds above the last bucket of the previous run (above 0 for the first run), and each further bucket
    /// another `gap`. A third of the size of pairs, still plain numbers.
    Runs { runs: Vec<Vec<u64>> },
    /// Until schema 3: pairs of latency in microseconds and count.
    Pairs(Vec<(u64, u64)>),
}

impl TryFrom<WrittenHistogram> for LatencyHistogram {
    type Error = &'static str;

    fn try_from(written: WrittenHistogram) -> Result<Self, Self::Error> {
        let runs = match written {
            WrittenHistogram::Pairs(pairs) => return Ok(Self::from_counts(pairs)),
            WrittenHistogram::Runs { runs } => runs,
        };
        let mut pairs = Vec::with_capacity(runs.iter().map(Vec::len).sum());
        let mut latency_us = 0_u64;
        for run in &runs {
            let Some((&gap_us, counts)) = run.split_first() else {
                return Err("a run of latencies without a gap");
            };
            for &count in counts {
                latency_us = latency_us.checked_add(gap_us).ok_or("a latency beyond 64 bits")?;
                pairs.push((latency_us, count));
            }
        }
        Ok(Self::from_counts(pairs))
    }
}

impl From<LatencyHistogram> for WrittenHistogram {
    fn from(latency: LatencyHistogram) -> Self {
        let mut runs: Vec<Vec<u64>> = Vec::new();
        let mut last_us = 0;
        for (latency_us, count) in latency.pairs() {
            let gap_us = latency_us - last_us;
            last_us = latency_us;
            match runs.last_mut() {
                Some(run) if run.first() == Some(&gap_us) => run.push(count),
                _ => runs.push(vec![gap_us, count]),
            }
        }
        Self::Runs { runs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_observations() {
        let latency = LatencyHistogram::from_counts([(300, 1), (100, 50), (200, 49)]);
        let cases = [(0.0, 100), (0.5, 100), (0.51, 200), (0.99, 200), (0.991, 300), (1.0, 300)];
        for (quantile, expected_us) in cases {
            assert_eq!(latency.at_quantile_us(quantile), Some(expected_us), "quantile {quantile}");
        }
        assert_eq!(latency.at_quantiles_us(&[0.5, 0.5, 0.99, 1.0]), [100, 100, 200, 300]);
        assert_eq!(latency.max_us(), Some(300));
        assert_eq!((latency.mean_us(), LatencyHistogram::default().mean_us()), (Some(151.0), None));
    }

    #[test]
    fn nothing_observed_has_no_quantiles() {
        assert_eq!(LatencyHistogram::default().at_quantile_us(0.5), None);
        assert_eq!(LatencyHistogram::from_counts([(5, 0)]), LatencyHistogram::default());
    }

    #[test]
    fn merging_adds_the_counts() {
        let one = LatencyHistogram::from_counts([(1, 2), (3, 4)]);
        let two = LatencyHistogram::from_counts([(3, 1), (9, 1)]);
        assert_eq!(
            LatencyHistogram::merged([&one, &two]),
            LatencyHistogram::from_counts([(1, 2), (3, 5), (9, 1)])
        );
        assert_eq!(LatencyHistogram::merged([&one, &two]).count(), 8);
    }

    #[test]
    fn json_has_runs_of_equal_gaps() {
        let latency =
            LatencyHistogram::from_counts([(0, 3), (100, 7), (101, 1), (102, 5), (104, 2), (106, 1)]);
        let text = serde_json::to_string(&latency).expect("plain numbers");
        assert_eq!(text, r#"{"runs":[[0,3],[100,7],[1,1,5],[2,2,1]]}"#);
        assert_eq!(serde_json::from_str::<LatencyHistogram>(&text).expect("what was written"), latency);
        let none = serde_json::to_string(&LatencyHistogram::default()).expect("plain numbers");
        assert_eq!(
            serde_json::from_str::<LatencyHistogram>(&none).expect("what was written"),
            LatencyHistogram::default()
        );
    }

    #[test]
    fn pairs_of_older_files_are_read() {
        let latency = serde_json::from_str::<LatencyHistogram>("[[1,7],[2,1]]").expect("an older file");
        assert_eq!(latency, LatencyHistogram::from_counts([(1, 7), (2, 1)]));
        assert_eq!(
            serde_json::from_str::<LatencyHistogram>("[]").expect("an older file"),
            LatencyHistogram::default()
        );
    }

    #[test]
    fn broken_runs_are_refused() {
        for text in
            [r#"{"runs":[[]]}"#, r#"{"runs":[[18446744073709551615,1,1]]}"#, r#"{"runs":[[1,-1]]}"#, "{}"]
        {
            assert!(serde_json::from_str::<LatencyHistogram>(text).is_err(), "{text}");
        }
    }
}
