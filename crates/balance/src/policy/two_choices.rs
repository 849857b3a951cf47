//! Two servers drawn at random by weight, the best of those drawn before, and the least busy of the three, over all
//! workers.
//!
//! Mitzenmacher, "The power of two choices in randomized load balancing" (1996). The third is what keeps slow servers
//! from more than they can do: Shah and Prabhakar, "The use of memory in randomized load balancing" (2002).

use crate::picker::Candidates;
use crate::policy::draw::Urn;
use crate::policy::load::Load;

#[derive(Debug, Clone)]
pub(crate) struct TwoChoices {
    urn: Urn,
    /// The place of the least busy server of the last pick. Without it, a quarter of the draws would be of two slow
    /// servers where half of the servers are slow, however busy these are.
    remembered: Option<usize>,
}

impl TwoChoices {
    pub(crate) fn new(servers: usize) -> Self {
        Self { urn: Urn::among(servers), remembered: None }
    }

    pub(crate) fn arrange(&mut self, weights: &[u32]) {
        self.urn.arrange(weights);
        self.remembered = None;
    }

    /// The first one drawn, unless another would have less for its weight even with this request. So what is drawn by
    /// weight is not weighed a second time: with nothing under way, shares are exactly the weights.
    #[inline]
    pub(crate) fn pick(&mut self, candidates: &Candidates<'_>) -> Option<usize> {
        let (first, second) = self.urn.draw_two(candidates)?;
        let third = self.remembered.filter(|&place| candidates.allows(place)).unwrap_or(second);
        let loads = [first, second, third].map(|place| Load::of(candidates, place));
        let picked = of_drawn(&loads)?;
        let after = |load: Load| if load.place == picked { load.with_one() } else { load };
        self.remembered = loads.into_iter().map(after).reduce(Load::or_less).map(|load| load.place);
        Some(picked)
    }
}

/// The first of the loads that is less than any would be with this request; they are allowed all.
#[inline]
pub(crate) fn of_drawn(loads: &[Load]) -> Option<usize> {
    let best = loads.iter().map(|load| load.with_one()).reduce(Load::or_less)?;
    loads.iter().find(|load| load.is_less_than(best)).map(|load| load.place)
}
