//! Tests of the load generator over sockets.

/// Servers that follow a script.
mod scripted;
/// Certificates, and programs that are installed.
mod made;
/// HTTP/1.1.
mod conversations;
/// HTTP/2.
mod http2;
/// TLS.
mod https;
/// Streams.
mod streams;
/// Comparison with curl.
mod curl;
/// Against nginx.
mod nginx;
/// Against openssl.
mod openssl;
