//! HTTP/2 (RFC 9113) and HPACK (RFC 7541) without a socket: bytes that have arrived go in, what they mean to each stream
//! comes out, and bytes that are to be sent are gathered.
//!
//! A stream is read and written as the text of HTTP/1.1: a head, then the body, in chunks where its length is not told.
//! Priorities are ignored (RFC 9113 §5.3.2) and nothing is pushed.

#![forbid(unsafe_code)]

/// Frames: heads and kinds.
mod frame;
/// The Huffman code of strings.
mod huffman;
/// Fields that blocks refer to.
mod table;
/// Header blocks to fields.
mod decode;
/// Fields to header blocks.
mod encode;
/// What a WebSocket of HTTP/1.1 begins with.
mod websocket;
/// Fields to text.
mod message;
/// Text to fields.
mod compose;
/// Floods of frames.
mod flood;
/// How much a peer may send ahead.
mod windows;
/// Streams and what is known of each.
mod stream;
/// Where a connection is in what arrives.
mod parser;
/// What ends a connection.
mod rules;
/// A connection.
mod connection;
/// What a peer says.
mod receive;
/// Answers to requests that nobody else is to hear of.
mod refusal;
/// What a peer is told.
mod send;

pub use compose::Scheme;
pub use connection::{Broken, Cause, Connection, Event, Limits, Now, Refused, Role};
pub use decode::{Decoder, Unreadable};
pub use encode::Encoder;
pub use flood::{Flood, FloodLimits};
pub use frame::{PAYLOAD_MAX, Reason};
pub use receive::BLOCK_FRAMES_MAX;
pub use send::WriteError;
pub use stream::{Gone, Key};
pub use websocket::accept_of;
pub use windows::STREAM_WINDOW;
