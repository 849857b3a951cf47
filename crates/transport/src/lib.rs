//! Byte streams: TCP, Unix sockets, TLS, delayed connections, connections and streams of HTTP/2; buffers and timers.
//!
//! Bytes and addresses enter; bytes, ends and time-outs leave. Nothing here knows a route, a plan or the cache.

#![forbid(unsafe_code)]

/// Timers of a millisecond.
pub mod alarm;
/// Buffers with room in front for a head.
pub mod buffer;
/// Code that is rare, kept out of the request path.
pub mod cold;
/// Time-outs, by a wheel of ticks.
pub mod deadline;
/// Delays on purpose.
pub mod delay;
/// Connections to servers, for pools and health checks.
pub mod dial;
/// Too few file descriptors.
pub mod descriptors;
/// An HTTP/2 connection, as its streams share it.
pub mod h2_connection;
/// An HTTP/2 stream, read and written like a connection.
pub mod h2_stream;
/// Connections whose bytes are delayed.
pub mod latency_emulation;
/// Pipes for splice(2), kept for reuse.
pub mod pipes;
/// Bytes between two sockets, through toxics.
pub mod relay;
/// Name resolution of servers.
pub mod resolve;
/// A connection: TCP or TLS, with or without emulated latency.
pub mod connection;
/// One side of an exchange: a connection, an HTTP/2 stream, or nobody.
pub mod endpoint;
/// TCP connections and pipes.
pub mod tcp;
/// TLS on a TCP connection.
pub mod tls;
/// Unix sockets.
pub mod unix;
