//! TLS on either side, over real sockets: the test is the other end, and sees each alert and how a connection ends.
//!
//! Each test is one thread unless noted, and none depends on sleeping.

/// A proxy with one worker, and servers that the test plays.
mod scene;
/// Requests over TLS: sequential, long, slow, and cut.
mod requests;
/// Handshakes with clients: full, resumed, failed, and no TLS at all.
mod handshakes;
/// Configured versions, ciphers and groups.
mod negotiated;
/// Names with separate rules for client certificates; revoked certificates.
mod named;
/// TLS that is passed on by name.
mod passed_on;
/// Clients that violate the protocol in their first messages.
mod malformed;
/// Early data, which is not accepted.
mod early;
/// Clients with Nagle's algorithm.
mod nagle;
/// Automatic certificates: challenges.
mod automatic;
/// Certificates by name, client certificates, and renewal.
mod certificates;
/// Facts about a client's TLS, for servers and the log.
mod variables;
/// Servers with TLS: trust, and use of their connections.
mod servers;
/// OpenSSL as client and server.
mod openssl;
