//! Byte streams: TCP, Unix sockets, TLS, delayed connections, connections and streams of HTTP/2; buffers and timers.
//!
//! Bytes and addresses enter; bytes, ends and time-outs leave. Nothing here knows a route, a plan or the cache.

/// Timers of a millisecond.
pub(crate) mod alarm;
/// Buffers with room in front for a head.
pub(crate) mod buffer;
/// Code that is rare, kept out of the request path.
pub(crate) mod cold;
/// Time-outs, by a wheel of ticks.
pub(crate) mod deadline;
/// Delays on purpose.
pub(crate) mod delay;
/// Too few file descriptors.
pub(crate) mod descriptors;
/// An HTTP/2 connection, as its streams share it.
pub(crate) mod h2_connection;
/// An HTTP/2 stream, read and written like a connection.
pub(crate) mod h2_stream;
/// Connections whose bytes are delayed.
pub(crate) mod latency_emulation;
/// Pipes for splice(2), kept for reuse.
pub(crate) mod pipes;
/// Name resolution of servers.
pub(crate) mod resolve;
/// What a message is read from and written to.
pub(crate) mod socket;
/// TCP connections and pipes.
pub(crate) mod tcp;
/// TLS on a TCP connection.
pub(crate) mod tls;
/// Unix sockets.
pub(crate) mod unix;
