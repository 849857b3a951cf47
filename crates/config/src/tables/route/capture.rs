//! The option `capture` of a route.

use std::path::PathBuf;

use crate::document::reader::Reader;
use crate::option::kind::{List, Name, Switch};
use crate::option::path::PathKind;
use crate::option::range::{Count, Unit};
use crate::option::table::{Element, Inline, Table, key, required};
use crate::tables::request_buffering::RequestBuffering;

/// A file for requests of a route, with their secrets masked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteCapture {
    /// Routes with the same file share it.
    pub file: PathBuf,
    /// No more requests are captured.
    pub requests_max: u64,
    /// Names of fields, cookies and parameters whose values are not masked.
    pub keep: Vec<String>,
    /// Whether the file gets buffered bodies of requests as they are.
    pub has_bodies: bool,
}

impl Default for RouteCapture {
    fn default() -> Self {
        Self { file: PathBuf::new(), requests_max: 10_000, keep: Vec::new(), has_bodies: false }
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
            key!(
                "bodies",
                Switch,
                RouteCapture.has_bodies,
                "Writes bodies of requests up to 64 KiB to the file, with their secrets. The route needs \
                 `request_buffering`.",
            ),
        ],
    },
};

/// Rejects `bodies` on a route that does not buffer them.
pub(crate) fn of_route(
    written: Option<&Element<RouteCapture>>,
    buffering: Option<RequestBuffering>,
    reader: &mut Reader<'_>,
) -> Option<RouteCapture> {
    let Element { value, at, .. } = written?;
    if value.has_bodies && buffering.is_none_or(|buffering| buffering.discards) {
        let mistake = reader.mistake(at, "capture: bodies are captured only where they are buffered");
        reader.add(mistake.expecting("request_buffering = true on the same route, or no bodies"));
    }
    Some(value.clone())
}
