//! Which server of an upstream answers a request. No sockets, no clock, no randomness: picks follow from picks.
//!
//! A new policy is one file, one variant of `Balancer` and one row of `POLICIES`. Each worker has a balancer of its
//! own, so nothing is shared on the request path.

#![forbid(unsafe_code)]

/// Each server in turn, by weight.
mod round_robin;

pub use round_robin::RoundRobin;

/// The policies by the name under which a configuration chooses them; the first is the default.
pub const POLICIES: [Policy; 1] =
    [Policy { name: "round-robin", build: |weights| Balancer::RoundRobin(RoundRobin::new(weights)) }];

/// A way to choose servers.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// Its name in a configuration.
    pub name: &'static str,
    /// Builds a balancer for servers of these weights.
    ///
    /// # Panics
    /// Without a server, or with a weight of 0: a configuration allows neither.
    pub build: fn(weights: &[u32]) -> Balancer,
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_serves_one_server_and_several() {
        for policy in POLICIES {
            let mut one = (policy.build)(&[7]);
            assert_eq!(
                (one.pick(), one.pick_except(&[]), one.pick_except(&[0])),
                (0, Some(0), None),
                "{}",
                policy.name
            );
            let mut three = (policy.build)(&[1, 2, 3]);
            let first = three.pick();
            let second = three.pick_except(&[first]).unwrap();
            let third = three.pick_except(&[first, second]).unwrap();
            assert_eq!(first + second + third, 3, "{}: each server once", policy.name);
            assert_eq!(three.pick_except(&[2, 0, 1]), None, "{}", policy.name);
        }
    }
}
