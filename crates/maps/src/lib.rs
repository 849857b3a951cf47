//! Maps from keys of requests to values, for expressions: `map.NAME`.
//!
//! A [`MapTable`] is immutable and compact: about 30 bytes per entry besides keys and values. A [`MapSnapshot`] is a table
//! with the changes since it was built. No sockets, clocks, threads or files.

#![forbid(unsafe_code)]

/// Kinds of keys and types of values.
mod shape;
/// Mistakes in entries.
mod fault;
/// Many texts in one buffer.
mod texts;
/// Values of entries, each kept once.
mod values;
/// The longest of nested entries.
mod nested;
/// Keys that are networks.
mod networks;
/// Finds the entries for a key.
mod index;
/// Immutable tables.
mod table;
/// Tables with later changes.
mod snapshot;
/// Files of entries.
mod file;

pub use fault::{EntryFault, FileFault};
pub use file::{Column, Columns, FileFormat, entry_of_line};
pub use shape::{KEY_BYTES_MAX, MapKind, MapShape, MapValue, PATTERNS_MAX, VALUE_BYTES_MAX};
pub use snapshot::{MapChange, MapSnapshot};
pub use table::{ENTRIES_MAX, MapEntry, MapTable, TableBuilder};
