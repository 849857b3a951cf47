//! Byte streams (TCP, Unix sockets, TLS, delayed connections, HTTP/2, HTTP/3, FastCGI), buffers, timers and name resolution.
//!
//! Knows nothing of routes, plans or the cache.

#![forbid(unsafe_code)]

/// Precise timers.
pub mod alarm;
/// Read buffers with room in front for a head.
pub mod buffer;
/// Keeps rare code out of the request path.
pub mod cold;
/// Time-outs, in a timer wheel.
pub mod deadline;
/// Configured delays.
pub mod delay;
/// Connects to servers, for pools and health checks.
pub mod dial;
/// Shortage of file descriptors.
pub mod descriptors;
/// Tasks that wait for streams of a connection.
pub(crate) mod waits;
/// An HTTP/2 connection, shared by its streams.
pub mod h2_connection;
/// An HTTP/2 stream that reads and writes like a connection.
pub mod h2_stream;
/// QUIC connection IDs that encode their endpoint.
pub mod quic_ids;
/// QUIC handshakes in progress, by the IDs that their clients have chosen.
pub mod quic_beginnings;
/// A UDP socket for QUIC.
pub mod quic_socket;
/// An emulated network path for datagrams.
pub mod quic_path;
/// Connections that wait for the start of their handshake.
mod quic_accept;
/// New clients that the previous process was asked about.
mod quic_asked;
/// Client handshakes that wait or are in progress, counted by network.
pub mod quic_places;
/// The state that an endpoint shares with its connections.
mod quic_desk;
/// A QUIC endpoint: a UDP socket and its connections.
pub mod quic_endpoint;
/// QUIC connections to servers, each with its own socket.
pub mod quic_client;
/// Estimates the unread data that QUIC holds for a peer.
mod quic_held;
/// QUIC datagrams between the processes of an upgrade.
pub mod quic_strays;
/// Memory budget of an HTTP/3 connection.
mod h3_budget;
/// Sends HTTP/3 on QUIC streams.
mod h3_sending;
/// An HTTP/3 connection, shared by its streams.
pub mod h3_connection;
/// Classifies the ends of QUIC connections.
mod h3_lost;
/// Connections to HTTP/3 servers: opening streams, and reachability.
mod h3_client;
/// An HTTP/3 stream that reads and writes like a connection.
pub mod h3_stream;
/// Latency emulation: connections whose bytes are delayed.
pub mod latency_emulation;
/// Pipes for splice(2), kept for reuse.
pub mod pipes;
/// Relays bytes between two sockets, through toxics.
pub mod relay;
/// DNS resolution of server names.
pub mod resolve;
/// A connection: TCP or TLS, with or without emulated latency.
pub mod connection;
/// A connection to a FastCGI application that reads and writes like an HTTP/1.1 connection.
pub mod fastcgi_connection;
/// The client's or the server's side of an exchange: a connection, a stream, or no peer.
pub mod endpoint;
/// TCP connections and pipes.
pub mod tcp;
/// TLS on a TCP connection.
pub mod tls;
/// Unix sockets.
pub mod unix;
