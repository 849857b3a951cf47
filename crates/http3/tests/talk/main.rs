//! Two HTTP/3 ends exchange messages over streams in memory, and each meets a peer that breaks the rules.

/// Both ends of a connection, in memory.
mod ends;
/// Requests and responses, split in every way.
mod exchanges;
/// Connection errors.
mod breaches;
/// Stream errors, and rejected requests.
mod refusals;
/// Limits on the memory and work that a peer can cause.
mod limits;
/// Graceful shutdown.
mod farewells;
