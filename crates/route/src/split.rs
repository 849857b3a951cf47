//! Splits a route's requests between upstreams by weight, at random or by a key.

use std::sync::Arc;

use expression::Expression;

/// The most upstreams of a split that has conditions: a bit each.
pub const CONDITIONAL_BRANCHES_MAX: usize = 64;

/// Upstreams and their shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    branches: Vec<Branch>,
    has_conditions: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Branch {
    upstream: usize,
    weight: u32,
    /// A hash of the upstream's name, so that neither a new position in the file nor a restart moves clients.
    seed: u64,
    /// The condition under which a request may go to this upstream; `None` means all.
    when: Option<Arc<Expression>>,
}

#[derive(Debug, Clone)]
pub struct SplitShare<'a> {
    /// Index of the upstream.
    pub upstream: usize,
    /// The name of the upstream.
    pub name: &'a str,
    pub weight: u32,
    /// The condition under which a request may go to this upstream; `None` means all.
    pub when: Option<Arc<Expression>>,
}

impl Split {
    /// Shares by weight, for upstreams given as index, name and weight. Upstreams with weight 0 get nothing. `None` if
    /// no weight is above 0.
    pub fn new<'a>(shares: impl IntoIterator<Item = (usize, &'a str, u32)>) -> Option<Self> {
        let share = |(upstream, name, weight)| SplitShare { upstream, name, weight, when: None };
        Self::with_conditions(shares.into_iter().map(share))
    }

    /// Shares by weight, among the upstreams whose conditions hold. `None` if no weight without a condition is above 0, or
    /// if there are conditions and more than [`CONDITIONAL_BRANCHES_MAX`] upstreams.
    pub fn with_conditions<'a>(shares: impl IntoIterator<Item = SplitShare<'a>>) -> Option<Self> {
        let branch = |SplitShare { upstream, name, weight, when }: SplitShare<'a>| Branch {
            upstream,
            weight,
            seed: stable_hash(0, name.as_bytes()),
            when,
        };
        let branches = shares.into_iter().filter(|share| share.weight > 0);
        let branches: Vec<Branch> = branches.map(branch).collect();
        let has_conditions = branches.iter().any(|branch| branch.when.is_some());
        let is_usable = branches.iter().any(|branch| branch.when.is_none())
            && (!has_conditions || branches.len() <= CONDITIONAL_BRANCHES_MAX);
        is_usable.then_some(Self { branches, has_conditions })
    }

    /// The upstreams that get requests, and their weights.
    pub fn shares(&self) -> impl Iterator<Item = (usize, u32)> {
        self.branches.iter().map(|branch| (branch.upstream, branch.weight))
    }

    /// The conditions of upstreams.
    pub fn conditions(&self) -> impl Iterator<Item = (usize, &Arc<Expression>)> {
        self.branches.iter().filter_map(|branch| Some((branch.upstream, branch.when.as_ref()?)))
    }

    /// The upstreams that a request may go to, where `holds` evaluates their conditions.
    #[inline]
    pub fn among(&self, holds: impl FnMut(&Expression) -> bool) -> SplitChoice<'_> {
        let taking = if self.has_conditions { self.taking(holds) } else { u64::MAX };
        SplitChoice { split: self, taking }
    }

    fn taking(&self, mut holds: impl FnMut(&Expression) -> bool) -> u64 {
        let bits = self.branches.iter().enumerate().map(|(place, branch)| {
            let takes = branch.when.as_deref().is_none_or(&mut holds);
            u64::from(takes) << place
        });
        bits.fold(0, |all, bit| all | bit)
    }
}

/// The upstreams of a split that one request may go to.
#[derive(Debug, Clone, Copy)]
pub struct SplitChoice<'a> {
    split: &'a Split,
    /// The branches that take part, as bits; only counts if the split has conditions.
    taking: u64,
}

impl<'a> SplitChoice<'a> {
    fn branches(self) -> impl Iterator<Item = &'a Branch> {
        let takes = move |place: usize| !self.split.has_conditions || self.taking & (1 << place) != 0;
        let all = self.split.branches.iter().enumerate();
        all.filter_map(move |(place, branch)| takes(place).then_some(branch))
    }

    /// The upstream for a random number.
    #[inline]
    pub fn draw(self, random: u64) -> usize {
        let total: u64 = self.branches().map(|branch| u64::from(branch.weight)).sum();
        // The upper word of the product is uniform over 0..total, to within total / 2⁶⁴.
        let mut point = ((u128::from(random) * u128::from(total)) >> 64) as u64;
        for branch in self.branches() {
            match point.checked_sub(u64::from(branch.weight)) {
                Some(rest) => point = rest,
                None => return branch.upstream,
            }
        }
        unreachable!("the point is below the sum of all weights, one of which has no condition")
    }

    /// The upstream for a key, always the same one. Weighted rendezvous hashing: a change of weights or upstreams moves
    /// as few keys as possible. Costs one hash and one logarithm per upstream.
    ///
    /// The hash is not keyed: a client that chooses the key can choose the upstream.
    pub fn of_key(self, key: &[u8]) -> usize {
        let score = |branch: &Branch| {
            // Above 0 and below 1, in steps of 2⁻⁵³.
            let uniform = ((stable_hash(branch.seed, key) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
            f64::from(branch.weight) / -uniform.ln()
        };
        let best = self.branches().map(|branch| (score(branch), branch.upstream));
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
    use expression::{ExchangeStage, ExpressionLimits, Schema};

    use super::*;

    fn all(split: &Split) -> SplitChoice<'_> {
        split.among(|_| true)
    }

    #[test]
    fn no_weight_is_no_split() {
        assert_eq!(Split::new([]), None);
        assert_eq!(Split::new([(0, "a", 0), (1, "b", 0)]), None);
        let one = Split::new([(0, "a", 0), (7, "b", 1)]).unwrap();
        assert_eq!(
            (all(&one).draw(0), all(&one).draw(u64::MAX), all(&one).of_key(b""), all(&one).of_key(b"x")),
            (7, 7, 7, 7)
        );
    }

    #[test]
    fn draws_are_by_weight() {
        let split = Split::new([(0, "a", 90), (1, "b", 9), (2, "c", 1), (3, "d", 0)]).unwrap();
        let mut counts = [0_u32; 4];
        for point in 0..100_000_u64 {
            counts[all(&split).draw(point * (u64::MAX / 100_000))] += 1;
        }
        for (count, share) in counts.iter().zip([90_000, 9000, 1000, 0]) {
            assert!(count.abs_diff(share) <= 2, "{counts:?}");
        }
        let heavy = Split::new([(0, "a", u32::MAX), (1, "b", u32::MAX)]).unwrap();
        assert_eq!(
            (all(&heavy).draw(0), all(&heavy).draw(u64::MAX / 2 - 1), all(&heavy).draw(u64::MAX)),
            (0, 0, 1)
        );
    }

    #[test]
    fn keys_are_by_weight_and_stay() {
        let of = |split: &Split| {
            (0..100_000).map(|key| all(split).of_key(format!("key-{key}").as_bytes())).collect::<Vec<_>>()
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

    /// The others share what an upstream outside its condition does not get, and keys of the others do not move.
    #[test]
    fn a_request_goes_to_an_upstream_only_within_its_condition() {
        let schema = Schema::new(ExchangeStage::Request);
        let when = |text: &str| {
            Some(Arc::new(Expression::new(text, &schema, &ExpressionLimits::default()).unwrap()))
        };
        let share = |upstream, name, weight, when| SplitShare { upstream, name, weight, when };
        let split = Split::with_conditions([
            share(0, "a", 3, None),
            share(1, "b", 5, when("\"1\" in request.cookies[\"b\"]")),
            share(2, "c", 1, None),
            share(3, "d", 0, when("true")),
        ])
        .unwrap();
        assert_eq!(split.conditions().map(|(upstream, _)| upstream).collect::<Vec<_>>(), [1]);
        let count = |choice: SplitChoice<'_>| {
            let mut counts = [0; 4];
            (0..9000).for_each(|point| counts[choice.draw(point * (u64::MAX / 9000))] += 1);
            counts
        };
        let is_near = |counts: [i32; 4], shares: [i32; 4]| {
            counts.iter().zip(shares).all(|(count, share)| (count - share).abs() <= 2)
        };
        assert!(is_near(count(all(&split)), [3000, 5000, 1000, 0]));
        let without = split.among(|_| false);
        assert!(is_near(count(without), [6750, 0, 2250, 0]));
        for key in 0..1000_u32 {
            let key = key.to_be_bytes();
            let (with, without) = (all(&split).of_key(&key), without.of_key(&key));
            assert!(with == 1 || with == without);
            assert_ne!(without, 1);
        }
        // A request must have somewhere to go.
        assert_eq!(Split::with_conditions([share(0, "a", 1, when("true"))]), None);
        let many = (0..65).map(|upstream| share(upstream, "x", 1, when("true").filter(|_| upstream > 0)));
        assert_eq!(Split::with_conditions(many), None);
    }
}
