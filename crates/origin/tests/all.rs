//! Tests of the test server over sockets.

/// HTTP/1.1.
mod conversations;
/// HTTP/2.
mod http2;
/// TLS.
mod tls;
