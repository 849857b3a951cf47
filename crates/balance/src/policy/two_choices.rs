//! Two random choices by weight and one remembered server, of which the least busy is taken, over all workers.
//!
//! Mitzenmacher, "The power of two choices in randomized load balancing" (1996). The remembered server keeps slow
//! servers from getting more than they can handle: Shah and Prabhakar, "The use of memory in randomized load balancing"
//! (2002).

use crate::picker::Candidates;
use crate::policy::draw::Urn;
use crate::policy::load::ServerLoad;

#[derive(Debug, Clone)]
pub(crate) struct TwoChoices {
    urn: Urn,
    /// The least busy server of the last pick. Without it, if half of the servers are slow, a quarter of the draws
    /// would choose between two slow ones.
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

    /// Picks the first server drawn, unless another would have less load for its weight even with this request. So
    /// weights count only once: without load, shares are exactly the weights.
    #[inline]
    pub(crate) fn pick(&mut self, candidates: &Candidates<'_>) -> Option<usize> {
        let (first, second) = self.urn.draw_two(candidates)?;
        let third = self.remembered.filter(|&place| candidates.allows(place)).unwrap_or(second);
        let loads = [first, second, third].map(|place| ServerLoad::new(candidates, place));
        let picked = of_drawn(&loads)?;
        // With this request, since the next pick will find it there.
        let after = |load: ServerLoad| if load.place == picked { load.with_one() } else { load };
        self.remembered = loads.into_iter().map(after).reduce(ServerLoad::or_less).map(|load| load.place);
        Some(picked)
    }
}

/// The first load that is less than any would be with this request. All loads must be allowed.
#[inline]
pub(crate) fn of_drawn(loads: &[ServerLoad]) -> Option<usize> {
    let best = loads.iter().map(|load| load.with_one()).reduce(ServerLoad::or_less)?;
    loads.iter().find(|load| load.is_less_than(best)).map(|load| load.place)
}
