//! HTTP/3 (RFC 9114) and QPACK (RFC 9204) without a socket and without QUIC. Bytes of streams come in, events and the
//! text of messages go out, and a [`Transport`] gets the bytes to send.
//!
//! A stream is read and written as HTTP/1.1 text: a head, then the body, chunked if its length is unknown. Nothing is
//! pushed. Flow control, loss and encryption are those of QUIC.

#![forbid(unsafe_code)]

/// Variable-length integers.
mod varint;
/// Error codes.
mod code;
/// Frame headers and kinds.
mod frame;
/// Connection errors: code and broken rule.
mod rules;
/// Settings of both ends.
mod settings;
/// Integers and strings of QPACK.
mod strings;
/// The static table of QPACK.
mod table;
/// QPACK decoder: field sections to fields.
mod decode;
/// QPACK encoder: fields to field sections.
mod encode;
/// Priorities of responses.
mod priority;
/// Flood protection.
mod flood;
/// Streams of requests and their state.
mod stream;
/// The connection: setup, critical streams, closing.
mod connection;
/// Handles unidirectional streams of the peer.
mod control;
/// Handles bytes received on request streams.
mod receive;
/// Reads from streams and writes to them.
mod send;

pub use code::H3Code;
pub use connection::{
    H3Broken, H3ErrorCause, H3Event, H3Limits, H3Refused, H3Role, H3StateMachine, Now, StreamId, Transport,
};
pub use decode::{InvalidSection, QpackDecoder, SectionOutcome};
pub use encode::QpackEncoder;
pub use fields::compose::WireScheme;
pub use flood::{Flood, FloodLimits};
pub use priority::Priority;
pub use send::WriteError;
pub use stream::{H3StreamGone, Key};
