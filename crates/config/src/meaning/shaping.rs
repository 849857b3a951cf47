//! A network that is slower than the one there is: what may pass, and how late.

use std::num::{NonZeroU32, NonZeroU64};

use balance::AddressPrefixes;
use shape::{Delay, Limit};

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
}

impl Default for Shaping {
    fn default() -> Self {
        Self { bandwidths: Bandwidths::default(), weight: NonZeroU32::MIN, delay: None }
    }
}
