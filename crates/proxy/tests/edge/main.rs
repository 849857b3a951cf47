//! Where connections come from and go to: Unix sockets, the PROXY protocol on either side, and connections that are
//! passed on as they are.
//!
//! As in the other conversations one thread does one thing after the other, and nothing sleeps to be right.

/// A proxy with listeners and servers of every kind.
mod scene;
/// Unix sockets on both sides.
mod unix;
/// PROXY headers from those in front.
mod headers;
/// PROXY headers to servers.
mod introductions;
/// Connections that are passed on as they are.
mod layer4;
/// Listeners for all addresses.
mod families;
