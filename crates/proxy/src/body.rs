//! Responses and bodies on their way: the plan of a response, filters, framing, upload beside the response, tunnels.
//!
//! Bytes of one side enter, bytes for the other side leave. Nothing here knows a route or a server's state.

/// What is decided about a response before its first byte leaves.
pub(crate) mod response_plan;
/// What changes a message on its way.
pub(crate) mod filters;
/// The one body pump.
pub(crate) mod pump;
/// The writer of bodies that the proxy has itself.
pub(crate) mod sink;
/// Sends bytes to a client in time.
pub(crate) mod send;
/// Bytes both ways, after an upgrade or CONNECT.
pub(crate) mod tunnel;
/// Fields that are removed from every part of a message.
pub(crate) mod omitted_fields;
/// Sends the body of a request while the response may already come.
pub(crate) mod upload;
