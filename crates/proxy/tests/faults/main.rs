//! What goes wrong on purpose, as clients of both versions see it, and as operators change it.
//!
//! As in the other conversations one thread does one thing after the other, and nothing sleeps to be right.

/// Each kind of fault, on the wire.
mod injected;
/// With which requests, and when.
mod chosen;
/// Connections as a whole.
mod connections;
/// Each of them, whatever is carried.
mod table;
/// Those of requests, on every way that a response takes.
mod ways;
/// Listeners that take none.
mod refused;
/// Changed while the proxy runs.
mod changed;
