//! HTTP/2 on either side, byte for byte: one end of each connection writes its frames by hand, so that two ends of one
//! library cannot agree on a mistake.
//!
//! As in the other conversations one thread does one thing after the other, and nothing sleeps to be right.

/// A proxy between clients and servers.
mod scene;
/// From a client of HTTP/2 to a server of HTTP/1.1.
mod down;
/// From a client of HTTP/1 to a server of HTTP/2.
mod up;
/// HTTP/2 on both sides.
mod through;
/// Upgraded connections over streams.
mod tunnels;
/// Connections to servers, and what is sent once more.
mod servers;
/// Servers that are instances in a catalog.
mod catalog;
/// When a request is tried once more: each option of retries.
mod retried;
/// Calls of gRPC that end with a status.
mod calls;
/// Calls of gRPC-Web.
mod web;
/// Clients that mean harm.
mod hostile;
/// How much of what costs its sender nothing is borne, and from whom.
mod floods;
/// The end of a connection.
mod drain;
/// How much may be under way.
mod windows;
/// Lines of the access log.
mod log;
