//! Every failure has its log word, status and detail, over each version of HTTP and on both sides.

/// A proxy whose log is read.
mod scene;
/// A client of any HTTP version.
mod caller;
/// A server of any HTTP version.
mod asked;
/// Cells of the matrix, and how they run.
mod cells;

/// The matrix: a row for each failure.
mod table;
/// Failures of clients.
mod clients;
/// Requests that take too long in total.
mod deadlines;
/// Failures of servers.
mod servers;
