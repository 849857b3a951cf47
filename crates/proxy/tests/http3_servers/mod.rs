//! HTTP/3 to servers. The test writes a server's frames over the QUIC of `quinn`; clients use HTTP/1.1 or HTTP/3.
//!
//! Each test is one thread, and no test depends on sleeping.

/// A proxy between clients and HTTP/3 servers.
mod scene;
/// A relay between the proxy and a server.
mod relay;
/// Requests and responses.
mod exchanges;
/// Connections: number, sharing, and end.
mod connections;
/// Handshakes: certificates, protocols, unreachable servers.
mod handshakes;
/// Hostile servers.
mod hostile;
/// Features of upstreams that are independent of the protocol.
mod policies;
/// Emulated links.
mod links;
/// Active health checks.
mod checks;
