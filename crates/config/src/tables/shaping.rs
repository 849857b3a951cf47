//! Settings of shaping: bandwidth limits and delays.

use std::num::NonZeroU32;

use shape::{Bottleneck, Delay, Jitter, LinkLatency, LinkLoss};

use crate::option::bandwidth::Bandwidths;

/// Shaping of a route.
#[derive(Debug, Clone, PartialEq)]
pub struct Shaping {
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
    pub down: Option<Bottleneck>,
    pub up: Option<Bottleneck>,
}

/// An emulated network link; by default without delay and loss.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Link {
    /// The delay of new connections.
    pub connect_delay: Option<Delay>,
    /// The latency of each piece of data, in each direction.
    pub latency: Option<Delay>,
    pub loss: Option<LinkLoss>,
}

impl Link {
    /// Latency and loss of the data in each direction; `None` if there is neither.
    pub fn lateness(&self) -> Option<LinkLatency> {
        let at_once = || Delay { mean_ns: 0, jitter: Jitter::None };
        let is_late = self.latency.is_some() || self.loss.is_some();
        is_late.then(|| LinkLatency { delay: self.latency.clone().unwrap_or_else(at_once), loss: self.loss })
    }
}
