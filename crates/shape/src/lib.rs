//! Network emulation: rate limits, delays and faults, to emulate a slower or worse network.
//!
//! No sockets, no clock: the caller passes the time in nanoseconds, and learns how much it may send now, or when to ask
//! again.

#![forbid(unsafe_code)]

/// Rate limits and bursts.
mod limit;
/// The credit of one rate limit (token bucket).
mod bucket;
/// A rate limit that all workers share.
mod total;
/// Fair division of a shared limit among the streams of one worker.
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
/// When faults happen.
mod occasion;
/// Kinds of toxics, which act on the bytes of a connection.
mod toxic;
/// One toxic in one direction of a connection.
mod toxic_stage;
/// All toxics in one direction of a connection.
mod toxic_chain;

pub use bottleneck::{Bottleneck, Queue};
pub use bucket::Bucket;
pub use delay::{Delay, Jitter};
pub use delay_line::{DelayLine, Latency, Loss};
pub use draw::{Draws, number_of};
pub use fault::{ConnectionFault, DatagramEffect, Directions, Fault};
pub use limit::{Limit, Model};
pub use line::{Grant, Line, StreamId};
pub use occasion::{Dice, Occasion, Share};
pub use total::Total;
pub use toxic::{ATTRIBUTES_MAX, Attribute, Effect, Ending, KINDS, Kind, Unit};
pub use toxic_chain::{Chain, Link};
