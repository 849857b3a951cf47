//! What the proxy tells about itself: an access log that never makes a request wait, and counters.
//!
//! Not here: what is a failure and which word it has in the log (the proxy decides), and any network: the exposition
//! of the counters takes a `Snapshot`, whoever serves it.

/// One finished request, as the log sees it.
mod entry;
/// The time of a line, rendered once a second.
mod timestamp;
/// Bytes from outside made safe to stand in a line.
mod escape;
/// An entry as a line: combined or JSON.
mod line;
/// From the workers' buffers to the thread that writes.
mod log;
/// The thread that writes, and what it says when it can't.
mod writer;
/// Integers that one worker owns and anyone may read.
mod counters;

pub use counters::{CAUSES_MAX, Counter, Counters, Fields, Gauge, Kind, Reader, Snapshot};
pub use entry::{Entry, Version};
pub use line::Format;
pub use log::{AccessLog, Target, WorkerLog};
