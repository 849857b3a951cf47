//! Byte streams (TCP, Unix sockets, TLS, delayed connections, HTTP/2), buffers, timers and name resolution.
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
/// Which tasks wait for what of the streams of a connection.
pub(crate) mod waits;
/// An HTTP/2 connection, shared by its streams.
pub mod h2_connection;
/// An HTTP/2 stream that reads and writes like a connection.
pub mod h2_stream;
/// QUIC connection IDs that tell which endpoint they are of.
pub mod quic_ids;
/// Handshakes of QUIC under way, by the IDs that their clients have chosen.
pub mod quic_beginnings;
/// A UDP socket for QUIC.
pub mod quic_socket;
/// An emulated path of datagrams.
pub mod quic_path;
/// Connections that wait until their handshake has its turn.
mod quic_accept;
/// Clients of whom the process before this one was asked.
mod quic_asked;
/// Handshakes of clients that wait or are under way, counted for each network that clients come from.
pub mod quic_places;
/// What connections of QUIC tell their endpoint, and need of it.
mod quic_desk;
/// A QUIC endpoint: a UDP socket and its connections.
pub mod quic_endpoint;
/// QUIC connections to servers, each with a socket of its own.
pub mod quic_client;
/// What QUIC holds of a peer that nobody has read.
mod quic_held;
/// Datagrams of QUIC between the processes of an upgrade.
pub mod quic_strays;
/// What a connection of HTTP/3 may hold for its peer.
mod h3_budget;
/// How HTTP/3 sends on the streams of QUIC.
mod h3_sending;
/// An HTTP/3 connection, shared by its streams.
pub mod h3_connection;
/// What only an HTTP/3 connection to a server has: streams that are opened, and doubts about the server.
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
/// One side of an exchange: a connection, an HTTP/2 stream, or no peer.
pub mod endpoint;
/// TCP connections and pipes.
pub mod tcp;
/// TLS on a TCP connection.
pub mod tls;
/// Unix sockets.
pub mod unix;
