//! Responses and bodies in transit: the plan of a response, filters, framing, uploads, tunnels.
//!
//! Moves bytes from one side to the other. Knows nothing of routes or of a server's state.

/// Decides how a response is sent, before its first byte leaves.
pub(crate) mod response_plan;
/// Filters that change a message in transit.
pub(crate) mod filters;
/// When the pieces of a stream come.
pub(crate) mod arrivals;
/// The two sides of a body on its way.
pub(crate) mod ends;
/// The body pump, for both directions and for tunnels.
pub(crate) mod pump;
/// Takes a body out of its framing.
pub(crate) mod incoming_body;
/// Content coding of bodies.
pub(crate) mod transform;
/// Bodies of several ranges.
pub(crate) mod segments;
/// Writes bodies that the proxy has itself.
pub(crate) mod sink;
/// Sends bytes to a client within its time-out.
pub(crate) mod send;
/// Tunnels: bytes both ways, after an upgrade or CONNECT.
pub(crate) mod tunnel;
/// Fields that are removed from every part of a message.
pub(crate) mod omitted_fields;
/// Bodies that are kept as a whole.
pub(crate) mod kept;
/// Sends a kept body to a server.
pub(crate) mod replay;
/// Copies a request's body as it passes.
pub(crate) mod tee;
/// Uploads: sends a request's body, while the response may already arrive.
pub(crate) mod upload;
