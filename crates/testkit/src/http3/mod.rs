//! HTTP/3 client and server played by a test, with frames written and read by hand.

/// Frames (RFC 9114 §7) and field sections (RFC 9204).
pub mod frame;
/// Streams and waits of both ends.
mod stream;
/// HTTP/3 client on one connection.
mod client;
/// HTTP/3 server.
mod server;
/// HTTP/3 client whose datagrams the test controls.
mod raw;

pub use client::{H3TestClient, trusting};
pub use raw::RawClient;
pub use server::{H3TestServer, Served};
pub use stream::{Got, H3TestStream};
