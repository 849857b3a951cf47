//! The option `capture` of a route.

use std::path::PathBuf;

use crate::option::kind::{List, Name};
use crate::option::path::PathKind;
use crate::option::range::{Count, Unit};
use crate::option::table::{Inline, Table, key, required};

/// A file for requests of a route, with their secrets masked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteCapture {
    /// Routes with the same file share it.
    pub file: PathBuf,
    /// No more requests are captured.
    pub requests_max: u64,
    /// Names of fields, cookies and parameters whose values are not masked.
    pub keep: Vec<String>,
}

impl Default for RouteCapture {
    fn default() -> Self {
        Self { file: PathBuf::new(), requests_max: 10_000, keep: Vec::new() }
    }
}

pub(crate) const CAPTURE: Inline<RouteCapture> = Inline {
    title: "capture",
    example: "{ file = \"/var/lib/vanward/shop.capture\" }",
    table: &Table {
        options: &[
            required!(
                "file",
                PathKind,
                RouteCapture.file,
                "File of the capture, which only its owner can read. Routes with the same file share it. An older file \
                 of this name becomes `FILE.1`.",
            ),
            key!(
                "requests",
                Count { range: 1..=1_000_000, unit: Unit::Things },
                RouteCapture.requests_max,
                "The capture ends after this many requests, until the next start or another `capture`.",
            ),
            key!(
                "keep",
                List {
                    kind: Name { expected: "the name of a field, cookie or parameter" },
                    may_be_empty: true,
                },
                RouteCapture.keep,
                "Names of fields, cookies and parameters whose values are not masked.",
            ),
        ],
    },
};
