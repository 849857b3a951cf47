//! Host and path of a request -> the route that it takes. Compiled once, asked for every request.
//!
//! Nothing is rewritten: a table decides where a request goes, and its bytes go there as they came. Matching reads a
//! path as a lenient server would (`RouteTable::find`); what two servers could read as two paths is for the caller to
//! refuse (`has_dot_segments`).

#![forbid(unsafe_code)]

/// Hosts, and the path prefixes of each.
mod table;
/// A path as a lenient server reads it.
mod path;

pub use path::has_dot_segments;
pub use table::RouteTable;
