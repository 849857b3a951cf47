//! HTTP/1 messages as bytes: parsing, framing, bodies, and rewriting for the next hop.
//!
//! No sockets, no clocks, no allocation in the steady state. Parsing is strict: ambiguous messages are rejected, never
//! repaired.

#![forbid(unsafe_code)]

/// Message heads: start line and fields, as byte ranges of the buffer.
mod head;
/// Names of the fields that a proxy treats specially.
mod name;
/// Request methods and their properties.
mod method;
/// Fast search for bytes of a kind.
mod scan;
/// Vectors of bytes.
mod window;
/// Fast path for lines in the usual form.
mod plain;
/// Strict parser for start lines and field lines.
mod parse;
/// Reason phrases of status codes.
mod reason;
/// Request targets in their four forms, and Host.
mod target;
/// Message framing: where a body ends.
mod framing;
/// The chunked transfer coding, encoding and decoding.
mod chunked;
/// The Connection field and other hop-by-hop fields.
mod hop;
/// Writes Via, Forwarded and the `X-Forwarded-` fields.
mod forwarded;
/// Reads the client from Forwarded or the `X-Forwarded-` fields.
mod named;
/// Edits of header fields that an operator has configured.
mod edit;
/// Explains in words why a message was rejected.
mod explain;
/// Writes heads for the next hop: drops hop-by-hop fields, adds the proxy's own.
mod write;

pub use chunked::{
    CHUNK_FRAME_BYTES, ChunkError, ChunkLimits, ChunkRefusal, ChunkStep, ChunkedDecoder, chunk_prefix,
};
pub use edit::{Edits, edit_lines};
pub use explain::{
    Glimpse, connection_refusal, framing_refusal, is_connection_too_long, quote, request_refusal,
    response_refusal, target_refusal,
};
pub use forwarded::{ForwardedSender, Via, push_address};
pub use framing::{BodyFraming, FramingError, is_bodiless, request_framing, response_framing};
pub use head::{
    ByteSpan, FieldLine, Fields, HttpVersion, MessageHead, RequestHead, RequestLine, ResponseHead, StatusLine,
};
pub use hop::{ConnectionError, ConnectionOptions, is_switch_asked_for, wants_upgrade};
pub use method::Method;
pub use name::Name;
pub use named::{Chain, ChainKind};
pub use parse::{HeadError, HeadLimits, Parsed};
pub use plain::field as plain_field;
pub use reason::reason_phrase;
pub use scan::{has_controls, line_end};
pub use target::{RequestTarget, TargetError, TargetForm, host_without_port, is_valid_authority};
pub use write::{
    ClientConnection, RequestRewrite, ResponseRewrite, TRACEPARENT_LINE, TraceContext, max_forwards,
    push_number, write_request, write_response,
};
