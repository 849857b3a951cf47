//! The servers of an upstream by weight alone: for who keeps no `Fleet`.

use crate::policy::round_robin::RoundRobin;

/// The servers of one upstream, under one policy. Servers are named by their place in the list of weights.
#[derive(Debug, Clone)]
pub enum Balancer {
    /// Each server in turn, by weight.
    RoundRobin(RoundRobin),
}

impl Balancer {
    /// The server for a new request.
    #[inline]
    pub fn pick(&mut self) -> usize {
        match self {
            Balancer::RoundRobin(policy) => policy.pick(),
        }
    }

    /// A server besides those that were tried for this request, or `None` if all were.
    pub fn pick_except(&mut self, tried: &[usize]) -> Option<usize> {
        match self {
            Balancer::RoundRobin(policy) => policy.pick_except(tried),
        }
    }
}
