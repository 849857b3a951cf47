//! HTTP/3 to servers: a server writes its frames by hand over the QUIC of `quinn`, and clients speak HTTP/1.1 or HTTP/3.
//!
//! As in the other conversations one thing is done after the other, and nothing sleeps to be right.

/// A proxy between clients and servers of HTTP/3.
mod scene;
/// What stands between the proxy and a server.
mod relay;
/// Requests and responses.
mod exchanges;
/// Connections: how many there are, which requests share one, and how they end.
mod connections;
/// Handshakes: certificates, protocols, servers that cannot be reached.
mod handshakes;
/// Servers that mean harm.
mod hostile;
/// What an upstream does whatever its protocol.
mod policies;
/// Emulated links.
mod links;
/// Active health checks.
mod checks;
