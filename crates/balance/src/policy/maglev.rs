//! Maglev hash table (Eisenbud et al., "Maglev: a fast and reliable software network load balancer", 2016, §3.4), with
//! weights.
//!
//! Built once for the configured servers, not for the available ones. A key of an unavailable server tries other places
//! of the table, so keys of other servers stay where they are.

use crate::hash::{ServerId, below, mix};
use crate::picker::Candidates;
use crate::view::WARM;

/// The fewest places per server. The more, the fewer keys move between remaining servers when one leaves.
const PLACES_PER_SERVER: usize = 400;
/// Primes, so that any step visits every place.
const SIZES: [usize; 5] = [16_381, 65_537, 262_147, 1_048_573, 8_388_593];
/// Places of the table that are tried before rendezvous hashing takes over.
// With half of the servers gone, 32 probes fail for one key in four billion.
const PROBES_MAX: u64 = 32;

/// The server of each place in the table, in 2 bytes each.
#[derive(Debug)]
pub(crate) struct Maglev {
    servers: Box<[u16]>,
    /// The ID of each server, as it is mixed with keys.
    ids: Box<[u64]>,
}

impl Maglev {
    pub(crate) fn new(servers: impl Iterator<Item = (ServerId, u32)>) -> Self {
        let shares: Vec<(ServerId, u32)> = servers.collect();
        // By the number of servers alone: a table that grew with the weights would move keys when a weight changes.
        let wanted = shares.len() * PLACES_PER_SERVER;
        let largest = SIZES[SIZES.len() - 1];
        let size = SIZES.into_iter().find(|&size| size >= wanted).unwrap_or(largest);
        Self {
            servers: fill(&shares, size).into_boxed_slice(),
            ids: shares.iter().map(|(id, _)| mix(id.as_u64())).collect(),
        }
    }

    /// The place, in the view, of the server for a key: the first one found that is in the view and that `fits`. A
    /// server in slow start gets a fixed part of its keys.
    #[inline]
    pub(crate) fn find(
        &self,
        candidates: &Candidates<'_>,
        key: u64,
        fits: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        for probe in 0..PROBES_MAX {
            // A random jump, not the next place: the keys of a full server must not all go to its neighbour.
            let hash = mix(key.wrapping_add(probe << 32));
            let server = usize::from(self.servers[below(hash, self.servers.len() as u64) as usize]);
            if let Some(place) = candidates.view.place(server)
                && self.is_warm_for(candidates, place, server, key)
                && fits(place)
            {
                return Some(place);
            }
        }
        let fitting = self.best(candidates, key, |place| candidates.allows(place) && fits(place));
        // The bound on load yields last: a busy server is better than none.
        fitting.or_else(|| self.best(candidates, key, |place| candidates.allows(place)))
    }

    #[inline]
    fn is_warm_for(&self, candidates: &Candidates<'_>, place: usize, server: usize, key: u64) -> bool {
        let warmth = candidates.view.warmth[place];
        // 6 bits, for the 64 steps of warmth.
        // By key and not by chance, so that a key that has moved to the server stays there as it warms up.
        warmth == WARM || (mix(key ^ self.ids[server]) >> 58) < u64::from(warmth)
    }

    /// The server for a key among all, if the table finds none: rendezvous hashing (Thaler and Ravishankar, "Using
    /// name-based mappings to increase hit rates", 1998).
    #[cold]
    fn best(&self, candidates: &Candidates<'_>, key: u64, fits: impl Fn(usize) -> bool) -> Option<usize> {
        let score = |place: &usize| mix(key ^ self.ids[candidates.view.servers[*place] as usize]);
        (0..candidates.len()).filter(|&place| fits(place)).max_by_key(score)
    }
}

/// Each server in turn takes the next free place in its own order. A lighter one skips some of its turns.
fn fill(shares: &[(ServerId, u32)], size: usize) -> Vec<u16> {
    const FREE: u16 = u16::MAX;
    struct MaglevTurn {
        server: u16,
        weight: u32,
        credit: u32,
        next: usize,
        step: usize,
    }
    let turn = |(server, &(id, weight)): (u16, &(ServerId, u32))| MaglevTurn {
        server,
        weight,
        credit: 0,
        next: below(mix(id.as_u64()), size as u64) as usize,
        // A separate hash, so that servers with near starts do not follow each other through the table.
        step: 1 + below(mix(!id.as_u64()), size as u64 - 1) as usize,
    };
    let heaviest = shares.iter().map(|(_, weight)| *weight).max().unwrap_or(1);
    let mut turns: Vec<MaglevTurn> = (0..).zip(shares).map(turn).collect();
    // The result must not depend on the order of the list, which may differ on another proxy.
    turns.sort_unstable_by_key(|turn| shares[usize::from(turn.server)].0);
    let mut places = vec![FREE; size];
    let mut left = size;
    loop {
        for turn in &mut turns {
            turn.credit += turn.weight;
            // A server of half the heaviest weight takes every second turn.
            if turn.credit < heaviest {
                continue;
            }
            turn.credit -= heaviest;
            while places[turn.next] != FREE {
                turn.next += turn.step;
                if turn.next >= size {
                    turn.next -= size;
                }
            }
            places[turn.next] = turn.server;
            left -= 1;
            if left == 0 {
                return places;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(servers: std::ops::Range<u64>) -> Vec<(ServerId, u32)> {
        servers.map(|server| (ServerId::from_name(&format!("http://10.0.0.{server}:80")), 1)).collect()
    }

    fn size(servers: usize) -> usize {
        Maglev::new((0..servers as u64).map(|id| (ServerId::from_u64(id), 1))).servers.len()
    }

    #[test]
    fn sizes_are_primes_that_grow_with_the_servers() {
        for prime in SIZES {
            assert!(
                (2..).take_while(|divisor| divisor * divisor <= prime).all(|divisor| prime % divisor != 0)
            );
        }
        assert_eq!((size(1), size(41), size(1000), size(16_384)), (16_381, 65_537, 1_048_573, 8_388_593));
    }

    #[test]
    fn places_follow_the_weights() {
        for weights in [&[1, 1, 1][..], &[1, 2, 3, 4], &[1000, 1, 1], &[7; 41]] {
            let shares: Vec<_> = ids(0..weights.len() as u64).into_iter().zip(weights).collect();
            let maglev = Maglev::new(shares.iter().map(|((id, _), weight)| (*id, **weight)));
            let total: u32 = weights.iter().sum();
            for (server, &weight) in (0u16..).zip(weights) {
                let places = maglev.servers.iter().filter(|owner| **owner == server).count() as f64;
                let due = maglev.servers.len() as f64 * f64::from(weight) / f64::from(total);
                assert!((places - due).abs() <= 2.0, "{weights:?}: {places} places of {due}");
            }
        }
    }

    #[test]
    fn the_order_of_the_list_does_not_matter() {
        let shares = ids(0..9);
        let one = fill(&shares, SIZES[0]);
        let reversed: Vec<_> = shares.iter().rev().copied().collect();
        let other = fill(&reversed, SIZES[0]);
        assert!(one.iter().zip(other).all(|(one, other)| *one == 8 - other));
    }

    #[test]
    fn few_places_change_hands_between_servers_that_stay() {
        for servers in [2, 3, 5, 10, 40, 41, 163, 164, 300] {
            let before = fill(&ids(0..servers), size(servers as usize));
            // The first server leaves, so that every other one has another index.
            let after = fill(&ids(1..servers), size(servers as usize));
            let moved = before.iter().zip(&after).filter(|(before, after)| **before != **after + 1).count();
            let share = moved as f64 / before.len() as f64;
            let allowed = 1.0 / servers as f64 + 0.02;
            assert!(share <= allowed, "{servers} servers: {share:.4} moved, {allowed:.4} allowed");
        }
    }
}
