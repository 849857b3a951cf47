//! HTTP/3 for a client (RFC 9114), over QUIC. Each connection has its own socket, as with other clients, so that a
//! server spreads them over its threads. The QUIC implementation handles packets.

/// TLS within QUIC.
mod session;
/// State of a connection and its streams. No socket.
mod connection;
/// Socket and timer of a connection, and its handshake.
mod wire;

pub(crate) use connection::H3LoadConnection;
pub(crate) use wire::{Quic, QuicWire, open};
