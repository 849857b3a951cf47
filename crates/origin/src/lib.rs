//! The test backend: pages of known size, every framing HTTP/1.1 allows, faults, and counts of what arrived; the same
//! over HTTP/2 and TLS.
//!
//! It reads requests with a parser of its own and strictly, so that a proxy in front of it cannot share its
//! mistakes. It is no file server and trusts nobody's network: listen on loopback.

/// Starting and stopping: addresses, listeners, threads.
mod server;
/// All that one thread owns: its runtime, connections, buffers, rendered pages, the date.
mod worker;
/// The certificate, and what TLS is spoken.
mod tls;
/// What a connection reads from and writes to: TCP, or TLS on it.
mod socket;
/// One client's connection: head after head, and the way a fixed page goes out.
mod connection;
/// Bytes received and not yet used, lent by the worker while a connection has any.
mod buffer;
/// A request's head, parsed strictly.
mod request;
/// The framing of a request's body.
mod body;
/// A request's target: path, query, the options that every page takes.
mod target;
/// Sizes and durations as people write them.
mod quantity;
/// A connection of HTTP/2, and the requests on it.
mod http2;
/// One request beyond the fixed pages: its body in, its response out.
mod exchange;
/// A response's head, rendered.
mod head;
/// Preconditions (RFC 9110 §13).
mod conditional;
/// Byte ranges (RFC 9110 §14).
mod range;
/// The bytes that pages consist of.
mod content;
/// What each path does.
mod endpoint;
/// Whether there is such a page.
mod served;
/// Counts of what arrived.
mod stats;

pub use content::body_byte;
pub use served::serves;
pub use server::{Options, Running, start};
pub use stats::Stats;
pub use tls::Certificate;
