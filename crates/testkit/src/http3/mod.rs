//! HTTP/3 client played by a test, with frames written and read by hand.

/// Frames (RFC 9114 §7) and field sections (RFC 9204).
pub mod frame;
/// HTTP/3 client on one connection.
mod client;
/// HTTP/3 client of whose datagrams the test decides about each.
mod raw;

pub use client::{Client, Got, Stream, trusting};
pub use raw::RawClient;
