//! A network that is slower than the one there is: how fast bytes may go, and how late they come.
//!
//! No sockets, no clock: time comes in as nanoseconds, and what comes out is how much may be sent now, or when to ask
//! again.

#![forbid(unsafe_code)]

/// How fast, and how much at once.
mod limit;
/// What may be sent by now.
mod bucket;
/// A limit that all workers keep together.
mod total;
/// The streams of one worker that share it.
mod line;
/// How late something comes.
mod delay;
/// Bytes that come late.
mod delay_line;
/// Draws that a seed decides.
mod draw;
/// What goes wrong on purpose.
mod fault;
/// When it does.
mod occasion;
/// What can be done to the bytes of a connection.
mod toxic;
/// One such thing at work.
mod toxic_stage;
/// All that are at work on one way.
mod toxic_chain;

pub use bucket::Bucket;
pub use delay::{Delay, Jitter};
pub use delay_line::{DelayLine, Latency, Loss};
pub use draw::{Draws, number_of};
pub use fault::{ConnectionFault, Directions, Fault};
pub use limit::{Limit, Model};
pub use line::{Grant, Line, StreamId};
pub use occasion::{Dice, Occasion, Share};
pub use total::Total;
pub use toxic::{ATTRIBUTES_MAX, Attribute, Effect, Ending, KINDS, Kind, Unit};
pub use toxic_chain::{Chain, Link};
