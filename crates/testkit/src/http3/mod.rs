//! HTTP/3 client played by a test, with frames written and read by hand.

/// Frames (RFC 9114 §7) and field sections (RFC 9204).
pub mod frame;
/// HTTP/3 client on one connection.
mod client;

pub use client::{Client, Got, Stream, trusting};
