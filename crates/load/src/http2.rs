//! HTTP/2 as a client speaks it (RFC 9113, RFC 7541), without a socket: bytes in, responses out, and back. No I/O, no clock.

/// Huffman code of header strings.
mod huffman;
/// Reads header blocks.
mod decode;
/// Renders header blocks.
mod encode;
/// Frames and their numbers.
mod frame;
/// Checks and keeps the head of a response.
mod head;
/// State of a connection and its streams.
mod connection;

#[cfg(test)]
mod tests;

pub(crate) use connection::{Asked, Connection, Ended, Received};
pub(crate) use encode::{Block, Common};
pub(crate) use frame::Code;
