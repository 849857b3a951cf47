//! The parts that HTTP/2 and HTTP/3 share above their frames. Converts messages between lists of fields and HTTP/1.1
//! text, and implements the strings and tables of HPACK (RFC 7541) and QPACK (RFC 9204).
//!
//! The crates `http2` and `http3` have the frames, the streams and the encoding of field sections.

#![forbid(unsafe_code)]

/// HTTP/2 or HTTP/3.
pub mod protocol;
/// The Huffman code of header strings.
pub mod huffman;
/// The dynamic table of HPACK and QPACK.
pub mod table;
/// The opening handshake of WebSockets, between HTTP/1.1 and extended CONNECT.
pub mod websocket;
/// Converts fields to HTTP/1.1 text.
pub mod message;
/// Fixed responses to rejected requests.
pub mod answer;
/// Field lines of HTTP/1.1 text.
pub mod lines;
/// Converts HTTP/1.1 text to fields.
pub mod compose;
/// Received bytes that are not read yet.
pub mod unread;
