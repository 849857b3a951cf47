//! Mistakes in entries.

use crate::shape::{KEY_BYTES_MAX, PATTERNS_MAX, VALUE_BYTES_MAX};
use crate::table::ENTRIES_MAX;

/// A mistake in one entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryFault {
    #[error("the key is empty")]
    EmptyKey,
    #[error("the key has {0} bytes; at most {KEY_BYTES_MAX} are allowed")]
    LongKey(usize),
    #[error("{0:?} is not a network; write an address such as 192.0.2.1 or a network such as 192.0.2.0/24")]
    Network(String),
    #[error("{network} has bits beyond its prefix; write {meant}")]
    HostBits { network: String, meant: String },
    #[error("{0:?} is not a host name; write example.com, or *.example.com for its subdomains alone")]
    Host(String),
    #[error("{pattern:?} is not a regular expression: {what}")]
    Pattern { pattern: String, what: String },
    #[error("the value {value:?} is not {expected}")]
    Value { value: String, expected: &'static str },
    #[error("the value has {0} bytes; at most {VALUE_BYTES_MAX} are allowed")]
    LongValue(usize),
    #[error("{0:?} has no place in a value")]
    Character(char),
    #[error("the keys of this map have no values, but {0:?} follows a key")]
    ValueInSet(String),
    #[error("the key {key} has no value")]
    NoValue { key: String },
    #[error("the key {0} appears twice, with different values")]
    Twice(String),
    #[error("there are more than {ENTRIES_MAX} entries")]
    TooMany,
    #[error("there are more than {PATTERNS_MAX} regular expressions")]
    TooManyPatterns,
    #[error("the keys and values have more than 1 GiB together")]
    TooLarge,
}

/// A mistake in a file of entries.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    #[error("line {line}: {fault}")]
    Entry {
        /// The number of the line, from 1.
        line: usize,
        fault: EntryFault,
    },
    #[error("line {0} is not UTF-8 text")]
    NotText(usize),
    #[error("line {line}: it has {count} columns, but column {wanted} is needed")]
    NoColumn { line: usize, count: usize, wanted: usize },
    #[error("the first line has no column named {0:?}; it has {1}")]
    UnknownColumn(String, String),
    #[error("line {0} is longer than 64 KiB")]
    LongLine(usize),
}
