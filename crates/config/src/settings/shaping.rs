//! Settings of shaping: bandwidth limits and delays.

use std::num::{NonZeroU32, NonZeroU64};

use balance::AddressPrefixes;
use shape::{Bottleneck, Delay, Jitter, Latency, Limit, Loss};

/// Bandwidth limits on bodies. All of them apply together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bandwidths {
    /// From servers to clients.
    pub down: Vec<Bandwidth>,
    /// From clients to servers.
    pub up: Vec<Bandwidth>,
}

/// A bandwidth limit and its scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bandwidth {
    /// The rate and burst.
    pub limit: Limit,
    /// What shares the limit.
    pub scope: Scope,
}

impl Bandwidth {
    /// A link of this rate, shared by everything.
    pub fn link(rate_bytes_per_second: NonZeroU64) -> Self {
        Self { limit: Limit::link(rate_bytes_per_second), scope: Scope::All }
    }
}

/// What shares a bandwidth limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Everything that the limit applies to.
    All,
    /// All clients of one network; of one address unless the prefixes say otherwise.
    Client(AddressPrefixes),
    /// One client connection.
    Connection,
    /// One message.
    Request,
}

/// Shaping of a route.
#[derive(Debug, Clone, PartialEq)]
pub struct Shaping {
    /// Bandwidth limits on bodies.
    pub bandwidths: Bandwidths,
    /// The weight of the route where it shares a limit with others.
    pub weight: NonZeroU32,
    /// The delay of requests before they go to a server.
    pub delay: Option<Delay>,
    /// The delay of responses before they go to the client.
    pub response_delay: Option<Delay>,
}

impl Default for Shaping {
    fn default() -> Self {
        Self { bandwidths: Bandwidths::default(), weight: NonZeroU32::MIN, delay: None, response_delay: None }
    }
}

/// Rates of the datagrams of HTTP/3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatagramRates {
    /// To clients.
    pub down: Option<Bottleneck>,
    /// From clients.
    pub up: Option<Bottleneck>,
}

/// An emulated network link; by default without delay and loss.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Link {
    /// The delay of new connections.
    pub connect_delay: Option<Delay>,
    /// The latency of each piece of data, in each direction.
    pub latency: Option<Delay>,
    /// Packet loss.
    pub loss: Option<Loss>,
}

impl Link {
    /// Latency and loss of the data in each direction; `None` if there is neither.
    pub fn lateness(&self) -> Option<Latency> {
        let at_once = || Delay { mean_ns: 0, jitter: Jitter::None };
        let is_late = self.latency.is_some() || self.loss.is_some();
        is_late.then(|| Latency { delay: self.latency.clone().unwrap_or_else(at_once), loss: self.loss })
    }
}
