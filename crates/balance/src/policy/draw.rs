//! Weighted random choice of servers by binary search, in logarithmic time.

use crate::hash::{below, mix};
use crate::picker::Candidates;

/// Cumulative weights of the servers.
#[derive(Debug, Clone)]
pub(crate) struct Urn {
    sums: Vec<u64>,
    /// The common weight, if all are equal; no search is needed then.
    equal: Option<u64>,
}

impl Urn {
    pub(crate) fn among(servers: usize) -> Self {
        Self { sums: Vec::with_capacity(servers), equal: None }
    }

    pub(crate) fn arrange(&mut self, weights: &[u32]) {
        self.sums.clear();
        let mut sum = 0;
        self.sums.extend(weights.iter().map(|&weight| {
            sum += u64::from(weight);
            sum
        }));
        let first = weights.first().copied().unwrap_or(0);
        self.equal = weights.iter().all(|&weight| weight == first).then_some(u64::from(first));
    }

    /// Draws a server, allowed or not. There must be one.
    #[inline]
    pub(crate) fn draw(&self, random: u64) -> usize {
        self.at(below(random, self.sums.last().copied().unwrap_or(0)))
    }

    /// Draws two different servers; the first one twice if there is only one, `None` if there is none.
    #[inline]
    pub(crate) fn draw_two(&self, candidates: &Candidates<'_>) -> Option<(usize, usize)> {
        let random = candidates.ask.random;
        if !candidates.is_free {
            return self.draw_two_allowed(candidates);
        }
        let total = *self.sums.last()?;
        let first = self.at(below(random, total));
        let (before, weight) = self.span(first);
        if weight == total {
            return Some((first, first));
        }
        // A ticket among those that remain without the first server's.
        let ticket = below(mix(random), total - weight);
        Some((first, self.at(if ticket < before { ticket } else { ticket + weight })))
    }

    #[inline]
    fn at(&self, ticket: u64) -> usize {
        match self.equal {
            // The usual case; a division instead of a search through several cache lines.
            Some(weight) => (ticket / weight) as usize,
            None => self.sums.partition_point(|&sum| sum <= ticket),
        }
    }

    /// The number of tickets before those of a server, and the number of its tickets.
    #[inline]
    fn span(&self, server: usize) -> (u64, u64) {
        let before = if server == 0 { 0 } else { self.sums[server - 1] };
        (before, self.sums[server] - before)
    }

    fn draw_two_allowed(&self, candidates: &Candidates<'_>) -> Option<(usize, usize)> {
        let random = candidates.ask.random;
        // Leaving out the tickets of servers that are not allowed would need a look at all of them.
        let first = self.draw_allowed(random, |place| candidates.allows(place))?;
        let second = self.draw_allowed(mix(random), |place| place != first && candidates.allows(place));
        Some((first, second.unwrap_or(first)))
    }

    /// Draws an allowed server: draws again if necessary, and finally searches the allowed ones.
    pub(crate) fn draw_allowed(&self, random: u64, is_allowed: impl Fn(usize) -> bool) -> Option<usize> {
        if self.sums.is_empty() {
            return None;
        }
        // Usually few servers are excluded, so a second draw hits and the search is not needed.
        let draws = std::iter::successors(Some(mix(random)), |&random| Some(mix(random))).take(DRAWS_MAX);
        draws.map(|random| self.draw(random)).find(|&place| is_allowed(place)).or_else(|| {
            let allowed = || (0..self.sums.len()).filter(|&place| is_allowed(place));
            let total: u64 = allowed().map(|place| self.span(place).1).sum();
            let mut ticket = below(random, total);
            // `None` if another worker took the last place between the two searches.
            allowed().find(|&place| {
                let weight = self.span(place).1;
                let is_it = ticket < weight;
                ticket = ticket.saturating_sub(weight);
                is_it
            })
        })
    }
}

/// Draws before the allowed servers are searched.
const DRAWS_MAX: usize = 8;
