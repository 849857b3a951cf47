//! Tests of certificates and of sessions.

/// Certificates, in handshakes over sockets.
mod certificates;
/// Sessions and their records, without sockets.
mod sessions;
