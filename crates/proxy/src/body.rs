//! Bodies on their way, in both directions: framing, upload beside the response, tunnels.
//!
//! Bytes of one side enter, bytes for the other side leave. Nothing here knows a route or a server's state.

/// The one body pump.
pub(crate) mod pump;
/// Bytes both ways, after an upgrade or CONNECT.
pub(crate) mod tunnel;
/// Fields that are removed from every part of a message.
pub(crate) mod omitted_fields;
/// Sends the body of a request while the response may already come.
pub(crate) mod upload;
