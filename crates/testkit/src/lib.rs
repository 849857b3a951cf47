//! Test support for the proxy: clients and servers that a test plays byte for byte, certificates, ports, and waits.
//!
//! Only a dev-dependency. The test decides what happens and when; no test relies on sleeping. HTTP/1 heads and frames
//! of HTTP/2 and HTTP/3 are written and read by hand, never with the proxy's parsers, except QPACK.

/// Waits with a timeout.
pub mod wait;
/// Listening sockets on loopback, with ports that the kernel chooses.
pub mod ports;
/// Expected messages, with placeholders for fields of the proxy.
pub mod text;
/// HTTP/1 client or server, played by a test.
pub mod http1;
/// Integers and strings of HPACK and QPACK.
pub mod prefixed;
/// HTTP/2 client or server, played by a test.
pub mod http2;
/// HTTP/3 client and server, played by a test.
pub mod http3;
/// Certificates, and TLS client or server played by a test.
pub mod tls;
/// Issuer of tokens (JWT).
pub mod tokens;
/// Client of the admin API.
pub mod admin;
/// Running proxy with a configuration, its servers, and clients of both HTTP versions.
pub mod scene;
/// Look-up of installed programs.
pub mod installed;
/// php-fpm with the scripts of a test.
pub mod php_fpm;
