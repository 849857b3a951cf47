//! Bytes under keys on a disk: a log in segments that outlives the process, however it ends.
//!
//! Nobody who calls it ever waits for the disk: two threads of its own do what is asked, and what they cannot keep up with
//! is dropped. What is damaged, cut off or not its own is noticed, dropped and counted. It knows nothing of HTTP.

#![forbid(unsafe_code)]

/// How records and segments are written down.
mod format;
/// Where each key's record is.
mod index;
/// What is not written yet, and what must go.
mod pending;
/// The segments of the log: written at one end, given up at the other.
mod log;
/// Whose a folder is.
mod identity;
/// The store as its callers have it.
mod disk;

pub use disk::{Disk, DiskError, DiskSettings, DiskStanding, DiskTally, SIZE_BYTES_MIN};
pub use log::Written;
