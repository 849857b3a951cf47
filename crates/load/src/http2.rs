//! HTTP/2 as a client speaks it (RFC 9113, RFC 7541), without a socket: bytes in, responses out, and back. No I/O, no clock.

/// Reads header blocks.
mod decode;
/// Renders header blocks.
mod encode;
/// Frames and their numbers.
mod frame;
/// Checks and keeps the head of a response.
mod head;
/// The response of a stream as it arrives.
mod incoming;
/// State of a connection and its streams.
mod connection;

#[cfg(test)]
mod tests;

pub(crate) use connection::{Asked, Connection, Ended};
pub(crate) use decode::Decode;
pub(crate) use encode::{Block, Common};
pub(crate) use frame::Code;
pub(crate) use head::{FIELDS_BYTES_MAX, Fault, Heads};
pub(crate) use incoming::{Incoming, Received};
