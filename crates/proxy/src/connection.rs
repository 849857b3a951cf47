//! A client's connection: PROXY protocol, TLS, HTTP/1, HTTP/2 and layer 4.
//!
//! Accepted sockets enter; requests leave for `exchange`, one by one. Nothing here knows a server.

/// A client's connection over HTTP/1, from its first byte to its end.
pub(crate) mod client;
/// Connections whose first message decides where they go, or how they are secured.
pub(crate) mod client_hello;
/// A client's HTTP/2 connection.
pub(crate) mod http2;
/// A client's HTTP/3 connection.
pub(crate) mod http3;
/// A client's connection that is forwarded as bytes (layer 4).
pub(crate) mod layer4;
/// The PROXY protocol, in both directions.
pub(crate) mod proxy_protocol;
/// Failed TLS handshakes of clients.
pub(crate) mod refused_handshake;
