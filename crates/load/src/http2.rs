//! HTTP/2 for a client (RFC 9113, RFC 7541), without a socket: bytes in, responses out, and back. No I/O, no clock.

/// Reads header blocks.
mod decode;
/// Renders header blocks.
mod encode;
/// Frame headers and codes.
mod frame;
/// Checks and keeps the head of a response.
mod head;
/// The response of a stream as it arrives.
mod incoming;
/// State of a connection and its streams.
mod connection;

#[cfg(test)]
mod tests;

pub(crate) use connection::{H2LoadConnection, H2LoadRequest, H2StreamFailure};
pub(crate) use decode::Decode;
pub(crate) use encode::{CommonFields, RequestBlock};
pub(crate) use frame::H2Code;
pub(crate) use head::{BlockFault, FIELDS_BYTES_MAX, Heads};
pub(crate) use incoming::{IncomingResponse, ReceivedResponse};
