//! A client's connection: PROXY protocol, TLS, HTTP/1, HTTP/2 and layer 4.
//!
//! Accepted sockets enter; requests leave for `path`, one by one. This folder does not know servers.

/// HTTP/1, from the first byte of a connection to its end.
pub(crate) mod client;
/// Connections whose ClientHello decides where they go, or how they are secured.
pub(crate) mod client_hello;
/// HTTP/2.
pub(crate) mod http2;
/// HTTP/3.
pub(crate) mod http3;
/// Layer 4: forwards connections as bytes.
pub(crate) mod layer4;
/// The PROXY protocol: reads the headers of clients.
pub(crate) mod proxy_protocol;
/// Failed TLS handshakes.
pub(crate) mod refused_handshake;
