//! What HTTP/2 and HTTP/3 share above their frames: messages as lists of fields, converted to HTTP/1.1 text and back, and
//! how the strings and tables of HPACK (RFC 7541) and QPACK (RFC 9204) work.
//!
//! Frames, streams and the encoding of field sections are those of `http2` and `http3`.

#![forbid(unsafe_code)]

/// The protocol that fields are of.
pub mod protocol;
/// The Huffman code of header strings.
pub mod huffman;
/// The dynamic table.
pub mod table;
/// Opening handshake of WebSockets, between HTTP/1.1 and extended CONNECT.
pub mod websocket;
/// Converts fields to HTTP/1.1 text.
pub mod message;
/// Fixed responses to requests that are not passed on.
pub mod answer;
/// Field lines of HTTP/1.1 text.
pub mod lines;
/// Converts HTTP/1.1 text to fields.
pub mod compose;
/// Bytes that have arrived and are unread.
pub mod unread;
