//! Smooth weighted round robin: servers take turns, heavier ones more often but not in bursts.
//!
//! Servers of one weight form a class. Classes take turns by total weight, as in nginx, and so do the servers within a
//! class. A pick costs as much as there are different weights, and shares are exact.

use crate::hash::{below, mix};
use crate::picker::Candidates;

#[derive(Debug, Clone)]
pub struct RoundRobin {
    /// Server indices, class by class.
    servers: Vec<u32>,
    /// Heaviest first.
    classes: Vec<Class>,
    /// Determines the start of the turns.
    seed: u64,
}

/// Servers with one weight.
#[derive(Debug, Clone, Copy)]
struct Class {
    /// The weight of each server in the class.
    weight: u32,
    /// The range of the class among the servers.
    start: u32,
    end: u32,
    next: u32,
    /// The credit of the class: it gains its total weight per pick, and loses the weight of all servers per pick that
    /// it wins. The sum over all classes is 0.
    credit: i64,
}

impl RoundRobin {
    /// # Panics
    /// Without servers, or with a weight of 0: a configuration allows neither.
    pub fn new(weights: &[u32]) -> Self {
        assert!(!weights.is_empty() && !weights.contains(&0), "an upstream has servers of positive weight");
        let mut policy = Self::among(weights.len(), 0);
        policy.arrange(weights);
        policy
    }

    /// Round robin over up to `servers` servers, whose weights `arrange` sets. Workers with different seeds start with
    /// different servers; with 0, turns start with the first.
    pub(crate) fn among(servers: usize, seed: u64) -> Self {
        Self { servers: Vec::with_capacity(servers), classes: Vec::with_capacity(servers), seed }
    }

    pub(crate) fn arrange(&mut self, weights: &[u32]) {
        self.servers.clear();
        self.servers.extend((0..).take(weights.len()));
        // By index within a class, so that an unchanged configuration gives an unchanged order.
        self.servers.sort_unstable_by_key(|&server| (u32::MAX - weights[server as usize], server));
        self.classes.clear();
        let mut start = 0;
        for class in self.servers.chunk_by(|&a, &b| weights[a as usize] == weights[b as usize]) {
            let end = start + class.len() as u32;
            let next = start + below(self.seed, class.len() as u64) as u32;
            self.classes.push(Class { weight: weights[class[0] as usize], start, end, next, credit: 0 });
            start = end;
        }
        if self.seed != 0 {
            // Starts as if earlier requests existed, and elsewhere after each change of servers. Otherwise the first
            // servers would get more than their share.
            self.seed = mix(self.seed);
            for _ in 0..below(self.seed, TURNS_SKIPPED_MAX) {
                self.pick_free();
            }
        }
    }

    #[inline]
    pub fn pick(&mut self) -> usize {
        self.pick_free().unwrap_or(0)
    }

    /// The next server that is not in `tried`; `None` if there is none. A skipped class neither gains nor loses its
    /// turn; within a class, a skipped server loses its turn.
    pub fn pick_except(&mut self, tried: &[usize]) -> Option<usize> {
        self.pick_where(|server| !tried.contains(&server))
    }

    #[inline]
    pub(crate) fn pick_from(&mut self, candidates: &Candidates<'_>) -> Option<usize> {
        if candidates.is_free { self.pick_free() } else { self.pick_where(|place| candidates.allows(place)) }
    }

    #[inline]
    fn pick_free(&mut self) -> Option<usize> {
        let class = next_class(&mut self.classes, |class| class.end - class.start)?;
        let picked = class.next;
        class.next = if picked + 1 == class.end { class.start } else { picked + 1 };
        Some(self.servers[picked as usize] as usize)
    }

    fn pick_where(&mut self, is_allowed: impl Fn(usize) -> bool) -> Option<usize> {
        let servers = &self.servers;
        let is_allowed = |&place: &u32| is_allowed(servers[place as usize] as usize);
        let allowed = |class: &Class| (class.start..class.end).filter(is_allowed).count() as u32;
        let class = next_class(&mut self.classes, allowed)?;
        let picked = (class.next..class.end).chain(class.start..class.next).find(is_allowed)?;
        class.next = if picked + 1 == class.end { class.start } else { picked + 1 };
        Some(servers[picked as usize] as usize)
    }
}

const TURNS_SKIPPED_MAX: u64 = 64;

/// Credits each class with the weight of its allowed servers, and lets the one with the highest credit pay for the
/// turn. A single class needs no credits.
#[inline]
fn next_class(classes: &mut [Class], servers: impl Fn(&Class) -> u32) -> Option<&mut Class> {
    // Equal weights are the usual case.
    if let [only] = classes {
        return Some(only);
    }
    let mut total = 0;
    let mut best: Option<(usize, i64)> = None;
    for (index, class) in classes.iter_mut().enumerate() {
        let due = i64::from(class.weight) * i64::from(servers(class));
        // A class without an allowed server must not gain credit that it would spend in a burst.
        if due == 0 {
            continue;
        }
        total += due;
        class.credit += due;
        // The heavier class wins a tie, because it comes first.
        if best.is_none_or(|(_, credit)| class.credit > credit) {
            best = Some((index, class.credit));
        }
    }
    let class = &mut classes[best?.0];
    class.credit -= total;
    Some(class)
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
            (&[5, 1, 1][..], &[0, 1, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 2, 0][..]),
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
        fn tried_servers_are_never_picked(
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
