//! Two servers drawn at random by weight, and the less busy of them, over all workers.
//!
//! Mitzenmacher, "The power of two choices in randomized load balancing" (1996). Nearly as even as looking at all
//! servers, at the cost of looking at two; and workers that decide at once do not all choose the same one.

use crate::picker::Candidates;
use crate::policy::draw::Urn;

#[derive(Debug, Clone)]
pub(crate) struct TwoChoices(Urn);

impl TwoChoices {
    pub(crate) fn new(servers: usize) -> Self {
        Self(Urn::among(servers))
    }

    pub(crate) fn arrange(&mut self, weights: &[u32]) {
        self.0.arrange(weights);
    }

    /// The first one drawn, unless the other would have less for its weight even with this request. So what is drawn by
    /// weight is not weighed a second time: with nothing under way, shares are exactly the weights.
    #[inline]
    pub(crate) fn pick(&mut self, candidates: &Candidates<'_>) -> Option<usize> {
        let (first, second) = self.0.draw_two(candidates)?;
        let load = |place| u64::from(candidates.standing(place).in_flight());
        let weight = |place| u64::from(candidates.weight(place));
        let is_busier = load(first) * weight(second) >= (load(second) + 1) * weight(first);
        Some(if is_busier && first != second { second } else { first })
    }
}
