//! HTTP messages as bytes: heads, framing, bodies and what a proxy rewrites.
//!
//! Bytes in, decisions out: no sockets, no clocks, no allocation in the steady state. Parsing is strict: what
//! two parsers could read differently is an error, never repaired.

#![forbid(unsafe_code)]

/// A message head: start line and fields as spans of the bytes that it was parsed from.
mod head;
/// The names of fields that a proxy has to know.
mod name;
/// Request methods and what they promise.
mod method;
/// The first byte of a kind, found in wide steps.
mod scan;
/// Lines as nearly every sender writes them, read quickly.
mod plain;
/// Start lines and field lines, read strictly and line by line.
mod parse;
/// What statuses are called.
mod reason;
/// The four forms of a request target, and Host.
mod target;
/// Where a body ends.
mod framing;
/// The chunked transfer coding, both ways.
mod chunked;
/// The Connection field and what it takes away.
mod hop;
/// Via and the Forwarded fields.
mod forwarded;
/// Who a chain of proxies says its client is.
mod named;
/// What an operator wants of a head.
mod edit;
/// Why a message is refused, in words.
mod explain;
/// Heads as they are sent on: hop-by-hop fields removed, the proxy's own added.
mod write;

pub use chunked::{CHUNK_FRAME_BYTES, ChunkError, ChunkLimits, ChunkRefusal, Chunked, Decoded, chunk_prefix};
pub use edit::{Edits, edit_lines};
pub use explain::{
    Glimpse, connection_refusal, framing_refusal, is_connection_too_long, quote, request_refusal,
    response_refusal, target_refusal,
};
pub use forwarded::{Client, Via};
pub use framing::{Framing, FramingError, request_framing, response_framing};
pub use head::{Field, Fields, Head, RequestHead, RequestLine, ResponseHead, Span, StatusLine, Version};
pub use hop::{ConnectionError, ConnectionOptions, is_switch_asked_for, wants_upgrade};
pub use method::Method;
pub use name::Name;
pub use named::{Chain, ChainKind};
pub use parse::{HeadError, HeadLimits, Parsed};
pub use reason::reason_phrase;
pub use scan::{has_controls, line_end};
pub use target::{Target, TargetError, TargetForm, host_without_port, is_valid_authority};
pub use write::{
    ClientConnection, RequestRewrite, ResponseRewrite, max_forwards, write_request, write_response,
};
