//! Test support for the proxy: clients and servers that a test plays byte for byte, certificates, ports, and waits.
//!
//! Only a dev-dependency. The test decides what happens and when; nothing sleeps to be correct. HTTP/2 frames and
//! HTTP/1 heads are written and read by hand, never with the proxy's parsers.

/// Waits with a timeout.
pub mod wait;
/// Listening sockets on loopback, with ports that the kernel chooses.
pub mod ports;
/// Expected messages, with placeholders for what the proxy adds.
pub mod text;
/// HTTP/1 client or server, played by a test.
pub mod http1;
/// HTTP/2 client or server, played by a test.
pub mod http2;
/// Certificates, and TLS client or server played by a test.
pub mod tls;
/// Issuer of tokens.
pub mod tokens;
/// Client of the admin API.
pub mod admin;
/// Running proxy with a configuration, its servers, and clients of both HTTP versions.
pub mod scene;
