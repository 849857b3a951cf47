//! Splits a route's requests between upstreams by weight, at random or by a key.

/// Upstreams and their shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    branches: Vec<Branch>,
    total: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Branch {
    upstream: usize,
    weight: u32,
    /// A hash of the upstream's name, so that neither a new position in the file nor a restart moves clients.
    seed: u64,
}

impl Split {
    /// Shares by weight, for upstreams given as index, name and weight. Upstreams with weight 0 get nothing. `None` if
    /// no weight is above 0.
    pub fn new<'a>(shares: impl IntoIterator<Item = (usize, &'a str, u32)>) -> Option<Self> {
        let branches = shares.into_iter().filter(|(_, _, weight)| *weight > 0);
        let branches: Vec<Branch> = branches
            .map(|(upstream, name, weight)| Branch {
                upstream,
                weight,
                seed: stable_hash(0, name.as_bytes()),
            })
            .collect();
        let total = branches.iter().map(|branch| u64::from(branch.weight)).sum();
        (total > 0).then_some(Self { branches, total })
    }

    /// The upstreams that get requests, and their weights.
    pub fn shares(&self) -> impl Iterator<Item = (usize, u32)> {
        self.branches.iter().map(|branch| (branch.upstream, branch.weight))
    }

    /// The upstream for a random number.
    #[inline]
    pub fn draw(&self, random: u64) -> usize {
        // The upper word of the product is uniform over 0..total, to within total / 2⁶⁴.
        let mut point = ((u128::from(random) * u128::from(self.total)) >> 64) as u64;
        for branch in &self.branches {
            match point.checked_sub(u64::from(branch.weight)) {
                Some(rest) => point = rest,
                None => return branch.upstream,
            }
        }
        unreachable!("the point is below the sum of all weights")
    }

    /// The upstream for a key, always the same one. Weighted rendezvous hashing: a change of weights or upstreams moves
    /// as few keys as possible. Costs one hash and one logarithm per upstream.
    ///
    /// The hash is not keyed: a client that chooses the key can choose the upstream.
    pub fn of_key(&self, key: &[u8]) -> usize {
        let score = |branch: &Branch| {
            // Above 0 and below 1, in steps of 2⁻⁵³.
            let uniform = ((stable_hash(branch.seed, key) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
            f64::from(branch.weight) / -uniform.ln()
        };
        let best = self.branches.iter().map(|branch| (score(branch), branch.upstream));
        best.max_by(|one, other| one.0.total_cmp(&other.0)).map_or(0, |(_, upstream)| upstream)
    }
}

/// FNV-1a, with the bits mixed at the end: the same in every process and version.
fn stable_hash(seed: u64, bytes: &[u8]) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let hash = bytes.iter().fold(BASIS ^ seed, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    let hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_weight_is_no_split() {
        assert_eq!(Split::new([]), None);
        assert_eq!(Split::new([(0, "a", 0), (1, "b", 0)]), None);
        let one = Split::new([(0, "a", 0), (7, "b", 1)]).unwrap();
        assert_eq!((one.draw(0), one.draw(u64::MAX), one.of_key(b""), one.of_key(b"x")), (7, 7, 7, 7));
    }

    #[test]
    fn draws_are_by_weight() {
        let split = Split::new([(0, "a", 90), (1, "b", 9), (2, "c", 1), (3, "d", 0)]).unwrap();
        let mut counts = [0_u32; 4];
        for point in 0..100_000_u64 {
            counts[split.draw(point * (u64::MAX / 100_000))] += 1;
        }
        for (count, share) in counts.iter().zip([90_000, 9000, 1000, 0]) {
            assert!(count.abs_diff(share) <= 2, "{counts:?}");
        }
        let heavy = Split::new([(0, "a", u32::MAX), (1, "b", u32::MAX)]).unwrap();
        assert_eq!((heavy.draw(0), heavy.draw(u64::MAX / 2 - 1), heavy.draw(u64::MAX)), (0, 0, 1));
    }

    #[test]
    fn keys_are_by_weight_and_stay() {
        let of = |split: &Split| {
            (0..100_000).map(|key| split.of_key(format!("key-{key}").as_bytes())).collect::<Vec<_>>()
        };
        let split = Split::new([(0, "a", 80), (1, "b", 15), (2, "c", 5)]).unwrap();
        let before = of(&split);
        for (upstream, share) in [(0, 0.80), (1, 0.15), (2, 0.05)] {
            let count = before.iter().filter(|found| **found == upstream).count();
            assert!((count as f64 / 100_000.0 - share).abs() < 0.01, "{upstream}: {count}");
        }
        // The order does not matter.
        assert_eq!(before, of(&Split::new([(2, "c", 5), (0, "a", 80), (1, "b", 15)]).unwrap()));
        // When `b` is removed, only its keys move.
        let without = of(&Split::new([(0, "a", 80), (2, "c", 5)]).unwrap());
        assert!(before.iter().zip(&without).all(|(before, after)| *before == 1 || before == after));
        // From 80 to 90 of 110: a part of the other keys moves, and none of these.
        let more = of(&Split::new([(0, "a", 90), (1, "b", 15), (2, "c", 5)]).unwrap());
        assert!(before.iter().zip(&more).all(|(before, after)| before == after || *after == 0));
    }
}
