//! Test support for the proxy: clients and servers that a test plays byte for byte, certificates, ports, and waits.
//!
//! A dev-dependency only. A test decides what happens and in which order; nothing here does anything unasked, and nothing
//! sleeps to be right. HTTP/2 frames and HTTP/1 heads are written and read by hand, never with the proxy's parsers.

/// How long a test waits, and for what.
pub mod wait;
/// Listening sockets on loopback, with ports that the kernel chooses.
pub mod ports;
/// Expected messages, with placeholders for what the proxy adds.
pub mod text;
/// One end of an HTTP/1 connection.
pub mod http1;
/// One end of an HTTP/2 connection.
pub mod http2;
/// Certificates, and one end of a TLS connection.
pub mod tls;
/// Client of the admin API.
pub mod admin;
/// A proxy with the configuration of a file, its servers, and clients of both HTTP versions.
pub mod scene;
