//! A key-value store on a disk: a log of segments that outlives the process, however it ends.
//!
//! Callers never wait for the disk: two threads do the work, and drop requests when they cannot keep up. Damaged,
//! truncated or foreign data is detected, ignored and counted. The store knows nothing about HTTP.

#![forbid(unsafe_code)]

/// The on-disk format of records and segments.
mod format;
/// The index: the location of each key's records.
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
pub use log::WrittenRecord;
