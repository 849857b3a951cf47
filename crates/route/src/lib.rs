//! What a request meets on its way to a server and back, as decisions: which route it takes and what that route does
//! with it. Compiled once, asked for every request.
//!
//! Bytes and `now` in, edits and verdicts out: no sockets, clocks, threads or files. Matching reads a path as a lenient
//! server would (`RouteTable::find`); what two servers could read as two paths is the caller's (`has_dot_segments`).

#![forbid(unsafe_code)]

/// What is seen of a request.
mod request;
/// A path as a lenient server reads it.
mod path;
/// A query's names and values as a form's reader has them.
mod form;
/// Regular expressions over whole texts, with limits.
mod pattern;
/// Networks and what holds for the addresses in them.
mod network;
/// What a request must be like to take a route.
mod rule;
/// Texts to values.
mod text_map;
/// Hosts to values, the most specific first.
mod host;
/// Path prefixes to values, the longest first.
mod prefixes;
/// Requests to routes.
mod table;
/// Why a request takes its route.
mod explain;

pub use explain::{Explanation, Miss, Outcome, Step};
pub use network::{Networks, network_of};
pub use path::has_dot_segments;
pub use pattern::{Captures, PATTERN_BYTES_MAX, Pattern, PatternError};
pub use request::{Fields, NoFields, Request, cookie, parameters};
pub use rule::{Condition, HostRule, PathRule, Rule, ValueRule};
pub use table::RouteTable;
