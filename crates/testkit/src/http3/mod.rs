//! HTTP/3 client and server played by a test, with frames written and read by hand.

/// Frames (RFC 9114 §7) and field sections (RFC 9204).
pub mod frame;
/// Streams and waits of both ends.
mod stream;
/// HTTP/3 client on one connection.
mod client;
/// HTTP/3 server.
mod server;
/// HTTP/3 client of whose datagrams the test decides about each.
mod raw;

pub use client::{Client, trusting};
pub use raw::RawClient;
pub use server::{Served, Server};
pub use stream::{Got, Stream};
