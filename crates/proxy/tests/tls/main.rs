//! TLS on either side, over real sockets: the test is the other end, and sees each alert and how a connection ends.
//!
//! One thread does one thing after the other where nothing else is said, and nothing sleeps to be right.

/// A proxy with one worker, and servers that the test plays.
mod scene;
/// Requests over TLS: one after the other, long, slow, and cut.
mod requests;
/// Handshakes with clients: full, resumed, refused, and none at all.
mod handshakes;
/// Versions, ciphers and groups that an operator chooses.
mod negotiated;
/// Names with rules of their own about client certificates; revoked certificates.
mod named;
/// TLS that is passed on by name.
mod passed_on;
/// Clients that break the rules in their first messages.
mod malformed;
/// Early data, which is not accepted.
mod early;
/// Clients that keep to Nagle's rule.
mod nagle;
/// Automatic certificates: challenges.
mod automatic;
/// Certificates by name, of clients, and renewed.
mod certificates;
/// What servers and the log are told of it.
mod variables;
/// Servers with TLS: whom to believe, and how their connections are used.
mod servers;
/// openssl as client and server.
mod openssl;
