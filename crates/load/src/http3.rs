//! HTTP/3 as a client speaks it (RFC 9114), over QUIC: each connection has a socket of its own, as other clients have, so
//! that a server spreads them over its threads. Packets are for the QUIC implementation.

/// TLS within QUIC.
mod session;
/// State of a connection and its streams. No socket.
mod connection;
/// Socket and timer of a connection, and its handshake.
mod wire;

pub(crate) use connection::Connection;
pub(crate) use wire::{Quic, Wire, open};
