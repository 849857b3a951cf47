//! A network that is slower than the one there is: what may pass, and how late.

use std::num::{NonZeroU32, NonZeroU64};

use balance::AddressPrefixes;
use shape::{Delay, Jitter, Latency, Limit, Loss};

/// How fast bodies may pass: all of these limits hold at once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bandwidths {
    /// From servers to clients.
    pub down: Vec<Bandwidth>,
    /// From clients to servers.
    pub up: Vec<Bandwidth>,
}

/// A limit, and who has one of it together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bandwidth {
    /// How fast.
    pub limit: Limit,
    /// Together with whom.
    pub scope: Scope,
}

impl Bandwidth {
    /// A link of so many bytes a second that everybody shares.
    pub fn link(rate_bytes_per_second: NonZeroU64) -> Self {
        Self { limit: Limit::link(rate_bytes_per_second), scope: Scope::All }
    }
}

/// What has a limit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Everything that the limit is for.
    All,
    /// What clients of one network have; of one address unless the prefixes say otherwise.
    Client(AddressPrefixes),
    /// What one connection of a client has.
    Connection,
    /// Each message.
    Request,
}

/// How the requests of a route are slowed down.
#[derive(Debug, Clone, PartialEq)]
pub struct Shaping {
    /// How fast their bodies pass.
    pub bandwidths: Bandwidths,
    /// Their share of what they have together with others, relative to theirs.
    pub weight: NonZeroU32,
    /// How late they go on to their server.
    pub delay: Option<Delay>,
    /// How late responses go on to their client.
    pub response_delay: Option<Delay>,
}

impl Default for Shaping {
    fn default() -> Self {
        Self { bandwidths: Bandwidths::default(), weight: NonZeroU32::MIN, delay: None, response_delay: None }
    }
}

/// A long link: how late connections over it begin, and how late their bytes come; by default neither is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Link {
    /// How late a connection begins.
    pub connect_delay: Option<Delay>,
    /// How late each piece comes, either way.
    pub latency: Option<Delay>,
    /// Packets that have to be sent once more.
    pub loss: Option<Loss>,
}

impl Link {
    /// How late bytes come either way; `None` is at once.
    pub fn lateness(&self) -> Option<Latency> {
        let at_once = || Delay { mean_ns: 0, jitter: Jitter::None };
        let is_late = self.latency.is_some() || self.loss.is_some();
        is_late.then(|| Latency { delay: self.latency.clone().unwrap_or_else(at_once), loss: self.loss })
    }
}
