//! Network emulation: rate limits, delays and faults, as on a slower or worse network.
//!
//! No sockets, no clock: the caller passes the time in nanoseconds, and learns how much to send now, or when to ask.

#![forbid(unsafe_code)]

/// Rate limits and bursts.
mod limit;
/// Token bucket of one rate limit.
mod bucket;
/// A rate limit that all workers share.
mod total;
/// Fair division of a shared limit among one worker's streams.
mod line;
/// A link of datagrams with a queue.
mod bottleneck;
/// Delays and jitter.
mod delay;
/// Delayed bytes in order.
mod delay_line;
/// Seeded random numbers.
mod draw;
/// Kinds of faults.
mod fault;
/// Conditions under which faults happen.
mod occasion;
/// Kinds of toxics, which change the bytes of a connection.
mod toxic;
/// A single toxic in one direction of a connection.
mod toxic_stage;
/// All toxics in one direction of a connection.
mod toxic_chain;

pub use bottleneck::{Bottleneck, Queue};
pub use bucket::Bucket;
pub use delay::{Delay, Jitter};
pub use delay_line::{DelayLine, LinkLatency, LinkLoss};
pub use draw::{Draws, number_of};
pub use fault::{ConnectionFault, DatagramEffect, Directions, Fault};
pub use limit::{Limit, Model};
pub use line::{Grant, SharedLine, StreamId};
pub use occasion::{Dice, Millionths, Occasion};
pub use total::Total;
pub use toxic::{ATTRIBUTES_MAX, Attribute, DirectionEnding, Effect, KINDS, ToxicKind, ToxicUnit};
pub use toxic_chain::{Chain, ChainLink};
