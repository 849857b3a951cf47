//! Latencies as counted buckets, so that repeats merge without loss and a file needs no decoder.
//!
//! Not a recorder: the load generator records, this reads.

use serde::{Deserialize, Serialize};

/// How often each latency was seen. Buckets ascend and none is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Latency {
    buckets: Vec<Bucket>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bucket {
    /// The highest latency that the bucket stands for.
    latency_us: u64,
    count: u64,
}

impl Latency {
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

    /// All the observations of several as one.
    pub fn merged<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        Self::from_counts(parts.into_iter().flat_map(Self::pairs))
    }

    /// How many were observed.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.count).sum()
    }

    /// The smallest latency that a share `quantile` (0 to 1) of the observations does not exceed; `None` without any.
    pub fn at_quantile_us(&self, quantile: f64) -> Option<u64> {
        self.at_quantiles_us(&[quantile]).pop()
    }

    /// [`Latency::at_quantile_us`] for several ascending quantiles in one pass; empty without observations.
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
                    seen += bucket.count;
                }
                bucket.latency_us
            })
            .collect()
    }

    /// The highest observed.
    pub fn max_us(&self) -> Option<u64> {
        self.buckets.last().map(|bucket| bucket.latency_us)
    }

    fn pairs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buckets.iter().map(|bucket| (bucket.latency_us, bucket.count))
    }
}

impl From<Vec<(u64, u64)>> for Latency {
    fn from(counts: Vec<(u64, u64)>) -> Self {
        Self::from_counts(counts)
    }
}

impl From<Latency> for Vec<(u64, u64)> {
    fn from(latency: Latency) -> Self {
        latency.pairs().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_observations() {
        let latency = Latency::from_counts([(300, 1), (100, 50), (200, 49)]);
        let cases = [(0.0, 100), (0.5, 100), (0.51, 200), (0.99, 200), (0.991, 300), (1.0, 300)];
        for (quantile, expected_us) in cases {
            assert_eq!(latency.at_quantile_us(quantile), Some(expected_us), "quantile {quantile}");
        }
        assert_eq!(latency.at_quantiles_us(&[0.5, 0.5, 0.99, 1.0]), [100, 100, 200, 300]);
        assert_eq!(latency.max_us(), Some(300));
    }

    #[test]
    fn nothing_observed_has_no_quantiles() {
        assert_eq!(Latency::default().at_quantile_us(0.5), None);
        assert_eq!(Latency::from_counts([(5, 0)]), Latency::default());
    }

    #[test]
    fn merging_adds_the_counts() {
        let one = Latency::from_counts([(1, 2), (3, 4)]);
        let two = Latency::from_counts([(3, 1), (9, 1)]);
        assert_eq!(Latency::merged([&one, &two]), Latency::from_counts([(1, 2), (3, 5), (9, 1)]));
        assert_eq!(Latency::merged([&one, &two]).count(), 8);
    }

    #[test]
    fn json_is_a_list_of_pairs() {
        let latency = Latency::from_counts([(2, 1), (1, 7)]);
        let text = serde_json::to_string(&latency).expect("plain numbers");
        assert_eq!(text, "[[1,7],[2,1]]");
        assert_eq!(serde_json::from_str::<Latency>(&text).expect("what was written"), latency);
    }
}
