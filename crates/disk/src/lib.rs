//! A key-value store on a disk: a log of segments that outlives the process, however it ends.
//!
//! Callers never wait for the disk: two threads do the work, and drop what they cannot keep up with. Data that is
//! damaged, cut off or foreign is detected, ignored and counted. The store knows nothing of HTTP.

#![forbid(unsafe_code)]

/// The on-disk format of records and segments.
mod format;
/// The index: where the records of each key are.
mod index;
/// Queued writes, and outdated records to remove.
mod pending;
/// The log of segments: appends to the newest, deletes the oldest.
mod log;
/// The identity file, whose lock decides which process owns the store.
mod identity;
/// The store's interface.
mod disk;

pub use disk::{Disk, DiskError, DiskSettings, DiskStanding, DiskTally, SIZE_BYTES_MIN};
pub use log::Written;
