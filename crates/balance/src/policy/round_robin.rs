//! Smooth weighted round robin: each server in turn, a heavier one more often but not in a burst.
//!
//! Servers of weights 5, 1, 1 are picked as A A B A C A A and again. Equal weights need only a cursor.

use crate::hash::below;
use crate::picker::Candidates;

/// Servers in turn, by weight.
#[derive(Debug, Clone)]
pub struct RoundRobin {
    credits: Credits,
    /// Which is next, while all weigh the same.
    next: usize,
    /// Where the turns begin.
    seed: u64,
}

impl RoundRobin {
    /// Servers by their weights.
    ///
    /// # Panics
    /// Without a server, or with a weight of 0: a configuration allows neither.
    pub fn new(weights: &[u32]) -> Self {
        assert!(!weights.is_empty() && !weights.contains(&0), "an upstream has servers of positive weight");
        let mut policy = Self::among(weights.len(), 0);
        policy.arrange(weights, true);
        policy
    }

    /// Up to so many servers, which `arrange` tells.
    pub(crate) fn among(servers: usize, seed: u64) -> Self {
        Self { credits: Credits::among(servers), next: 0, seed }
    }

    pub(crate) fn arrange(&mut self, weights: &[u32], are_others: bool) {
        self.credits.arrange(weights, are_others);
        if are_others {
            self.next = below(self.seed, weights.len() as u64) as usize;
            if !self.credits.are_equal {
                self.credits.skip(self.seed);
            }
        }
    }

    /// The next server.
    #[inline]
    pub fn pick(&mut self) -> usize {
        self.pick_free().unwrap_or(0)
    }

    /// The next server besides those in `tried`, or `None` if there is no other. A server that is passed over
    /// neither gains nor loses its turn with weights; without, its turn is over.
    pub fn pick_except(&mut self, tried: &[usize]) -> Option<usize> {
        self.pick_where(|server| !tried.contains(&server))
    }

    #[inline]
    pub(crate) fn pick_from(&mut self, candidates: &Candidates<'_>) -> Option<usize> {
        if candidates.is_free { self.pick_free() } else { self.pick_where(|place| candidates.allows(place)) }
    }

    #[inline]
    fn pick_free(&mut self) -> Option<usize> {
        let servers = self.credits.servers.len();
        if !self.credits.are_equal {
            return self.credits.next(0..servers);
        }
        let picked = self.next;
        self.next = if picked + 1 >= servers { 0 } else { picked + 1 };
        (picked < servers).then_some(picked)
    }

    fn pick_where(&mut self, is_allowed: impl Fn(usize) -> bool) -> Option<usize> {
        let servers = self.credits.servers.len();
        if !self.credits.are_equal {
            return self.credits.next((0..servers).filter(|&server| is_allowed(server)));
        }
        let picked = (self.next..servers).chain(0..self.next).find(|&server| is_allowed(server))?;
        self.next = (picked + 1) % servers;
        Some(picked)
    }
}

/// What each server is owed.
#[derive(Debug, Clone)]
pub(crate) struct Credits {
    servers: Vec<Server>,
    are_equal: bool,
}

#[derive(Debug, Clone, Copy)]
struct Server {
    weight: i64,
    /// What the server is owed: its weight for each pick, less the weight of all for each pick that it won. Sums to 0
    /// over all servers.
    credit: i64,
}

/// Turns that a worker may skip at its start, and the steps that they may cost.
const SKIPPED_MAX: u64 = 64;
const SKIPPED_STEPS_MAX: u64 = 16_384;

impl Credits {
    pub(crate) fn among(servers: usize) -> Self {
        Self { servers: Vec::with_capacity(servers), are_equal: true }
    }

    /// The servers weigh this now. Those that stay are still owed what they were.
    pub(crate) fn arrange(&mut self, weights: &[u32], are_others: bool) {
        if are_others {
            self.servers.clear();
            self.servers
                .extend(weights.iter().map(|&weight| Server { weight: i64::from(weight), credit: 0 }));
        } else {
            for (server, &weight) in self.servers.iter_mut().zip(weights) {
                server.weight = i64::from(weight);
            }
        }
        self.are_equal = weights.windows(2).all(|pair| pair[0] == pair[1]);
    }

    /// Lets some turns pass, as if other requests had come before: not all workers begin with the same server.
    pub(crate) fn skip(&mut self, seed: u64) {
        let turns_max = SKIPPED_MAX.min(SKIPPED_STEPS_MAX / self.servers.len().max(1) as u64);
        for _ in 0..below(seed, turns_max) {
            self.next(0..self.servers.len());
        }
    }

    /// Pays each of these servers its weight, and lets the one that is owed most pay for the turn.
    #[inline]
    pub(crate) fn next(&mut self, among: impl Iterator<Item = usize>) -> Option<usize> {
        let mut total = 0;
        let mut best: Option<(usize, i64)> = None;
        for place in among {
            let server = &mut self.servers[place];
            total += server.weight;
            server.credit += server.weight;
            if best.is_none_or(|(_, credit)| server.credit > credit) {
                best = Some((place, server.credit));
            }
        }
        let (picked, _) = best?;
        self.servers[picked].credit -= total;
        Some(picked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn picks(weights: &[u32], count: usize) -> Vec<usize> {
        let mut policy = RoundRobin::new(weights);
        (0..count).map(|_| policy.pick()).collect()
    }

    #[test]
    fn servers_in_turn() {
        for (weights, order) in [
            (&[1][..], &[0, 0, 0][..]),
            (&[3, 3, 3][..], &[0, 1, 2, 0, 1, 2, 0][..]),
            (&[5, 1, 1][..], &[0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 2, 0, 0][..]),
            (&[1, 2][..], &[1, 0, 1, 1, 0, 1][..]),
            (&[2, 1, 2][..], &[0, 2, 1, 0, 2, 0, 2, 1, 0, 2][..]),
        ] {
            assert_eq!(picks(weights, order.len()), order, "{weights:?}");
        }
    }

    #[test]
    fn a_server_that_was_tried_is_passed_over() {
        let mut equal = RoundRobin::new(&[1, 1, 1]);
        assert_eq!(equal.pick(), 0);
        assert_eq!(equal.pick_except(&[0]), Some(1));
        assert_eq!(equal.pick_except(&[2]), Some(0));
        assert_eq!(equal.pick(), 1);
        assert_eq!(equal.pick_except(&[0, 1, 2]), None);
        assert_eq!(equal.pick(), 2, "a pick that found none takes nobody's turn");

        let mut weighted = RoundRobin::new(&[3, 1]);
        assert_eq!(weighted.pick(), 0);
        assert_eq!(weighted.pick_except(&[0]), Some(1));
        assert_eq!(weighted.pick_except(&[0, 1]), None);
        // The retry did not cost the second server its turn.
        let rest: Vec<usize> = (0..7).map(|_| weighted.pick()).collect();
        assert_eq!(rest, [0, 1, 0, 0, 0, 1, 0]);
    }

    #[test]
    #[should_panic(expected = "an upstream has servers of positive weight")]
    fn an_upstream_without_servers_is_our_own_mistake() {
        RoundRobin::new(&[]);
    }

    proptest! {
        #[test]
        fn shares_are_exact_over_a_round_and_near_within_it(weights in prop::collection::vec(1u32..50, 1..8)) {
            let total: u32 = weights.iter().sum();
            let mut counts = vec![0u32; weights.len()];
            for (turn, picked) in picks(&weights, 2 * total as usize).into_iter().enumerate() {
                counts[picked] += 1;
                for (count, weight) in counts.iter().zip(&weights) {
                    let due = f64::from(*weight) * (turn + 1) as f64 / f64::from(total);
                    prop_assert!((f64::from(*count) - due).abs() <= weights.len() as f64, "not in a burst");
                }
            }
            let twice: Vec<u32> = weights.iter().map(|weight| 2 * weight).collect();
            prop_assert_eq!(counts, twice);
        }

        #[test]
        fn what_was_tried_is_never_picked(
            weights in prop::collection::vec(1u32..5, 1..8),
            tries in prop::collection::vec(prop::collection::vec(0usize..9, 0..9), 0..40),
        ) {
            let mut policy = RoundRobin::new(&weights);
            for tried in tries {
                match policy.pick_except(&tried) {
                    Some(picked) => prop_assert!(picked < weights.len() && !tried.contains(&picked)),
                    None => prop_assert!((0..weights.len()).all(|server| tried.contains(&server))),
                }
                prop_assert!(policy.pick() < weights.len());
            }
        }
    }
}
