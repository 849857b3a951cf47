//! HTTP/2 (RFC 9113) and HPACK (RFC 7541) without a socket: received bytes become events and stream data, and bytes to
//! send are collected.
//!
//! A stream is read and written as HTTP/1.1 text: a head, then the body, chunked if its length is unknown. Priorities
//! are ignored (RFC 9113 §5.3.2), and nothing is pushed.

#![forbid(unsafe_code)]

/// Frame headers and kinds.
mod frame;
/// The static table of HPACK.
mod table;
/// HPACK decoder: header blocks to fields.
mod decode;
/// HPACK encoder: fields to header blocks.
mod encode;
/// Flood protection.
mod flood;
/// Size of flow-control windows.
mod windows;
/// Streams and their state.
mod stream;
/// State of the parser between reads.
mod parser;
/// Connection errors: code and broken rule.
mod rules;
/// The connection: settings, connection-level flow control, closing.
mod connection;
/// Handles received frames.
mod receive;
/// Rejects requests that HTTP/1.1 text cannot express.
mod refusal;
/// Reads from streams and writes to them.
mod send;

pub use connection::{H2Broken, H2ErrorCause, H2Event, H2Limits, H2Refused, H2Role, H2StateMachine, Now};
pub use decode::{HpackDecoder, InvalidBlock};
pub use encode::HpackEncoder;
pub use fields::compose::WireScheme;
pub use fields::websocket::accept_of;
pub use flood::{Flood, FloodLimits};
pub use frame::{PAYLOAD_MAX, Reason};
pub use receive::BLOCK_FRAMES_MAX;
pub use send::WriteError;
pub use stream::{H2StreamGone, Key};
pub use windows::STREAM_WINDOW;
