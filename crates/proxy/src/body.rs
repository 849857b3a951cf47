//! Bodies in transit: filters, framing, uploads, tunnels.
//!
//! Moves bytes from one side to the other. Does not know routes or the state of servers.

/// Filters that change a message in transit.
pub(crate) mod filters;
/// Times the pieces of a stream.
pub(crate) mod arrivals;
/// The source and the sink of a body.
pub(crate) mod ends;
/// The body pump, for both directions and for tunnels.
pub(crate) mod pump;
/// Decodes the framing of a body.
pub(crate) mod incoming_body;
/// Coders, and a worker's spare ones.
pub(crate) mod coders;
/// Content coding of bodies.
pub(crate) mod transform;
/// Bodies of several ranges.
pub(crate) mod segments;
/// Fields that are removed from all parts of a message.
pub(crate) mod omitted_fields;
/// Complete bodies, in memory or in a file.
pub(crate) mod kept;
/// Sends a kept body to a server.
pub(crate) mod replay;
/// Copies a request's body in transit.
pub(crate) mod tee;
/// Uploads: sends a request's body, while the response may already arrive.
pub(crate) mod upload;
