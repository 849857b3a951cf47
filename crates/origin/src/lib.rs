//! Test server (origin): pages of known size, every framing of HTTP/1.1, faults, and counters. It speaks HTTP/1.1 and
//! HTTP/2 with or without TLS, and HTTP/3.
//!
//! Its parser of requests is strict, and shares no code with the proxy's, so that the same mistake in both is unlikely.
//! It is not a file server and has no access control: listen on loopback.

/// Starts and stops an origin: addresses, listeners, threads.
mod server;
/// Worker thread: runtime, connections, buffers, rendered pages, date.
mod worker;
/// TLS configuration and the certificate.
mod tls;
/// Client socket: TCP, with or without TLS.
mod socket;
/// HTTP/1 connection of a client: reads heads, sends fixed pages.
mod connection;
/// Receive buffers, lent by the worker.
mod buffer;
/// Strict parser of request heads.
mod request;
/// Framing of a request's body.
mod body;
/// Request target: path, query, and the options of every page.
mod target;
/// Parses sizes and durations.
mod quantity;
/// HTTP/2 connection of a client.
mod http2;
/// HTTP/3: the connections of a UDP socket.
mod http3;
/// A request over HTTP/2 or HTTP/3.
mod stream;
/// Exchange: a request that is not for a fixed page, and its response.
mod exchange;
/// Response head and its rendering.
mod head;
/// Preconditions (RFC 9110 §13).
mod conditional;
/// Byte ranges (RFC 9110 §14).
mod range;
/// Content of the pages.
mod content;
/// The endpoints, by path.
mod endpoint;
/// Rooms, in which clients get each other's messages.
mod hub;
/// Checks whether an origin serves a target.
mod served;
/// Counters of connections and requests.
mod stats;

pub use content::body_byte;
pub use served::serves;
pub use server::{OriginOptions, RunningOrigin, start};
pub use stats::Stats;
pub use tls::OriginCertificate;
