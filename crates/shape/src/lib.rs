//! A network that is slower than the one there is: how fast bytes may go, and how late they come.
//!
//! No sockets, no clock: time comes in as nanoseconds, and what comes out is how much may be sent now, or when to ask
//! again.

#![forbid(unsafe_code)]

/// How fast, and how much at once.
mod limit;
/// What may be sent by now.
mod bucket;

pub use bucket::Bucket;
pub use limit::{Limit, Model};
