//! Addresses of clients and servers: Unix sockets, the PROXY protocol on either side, and layer 4.
//!
//! Each test is one thread, and no test depends on sleeping.

/// A proxy with listeners and servers of every kind.
mod scene;
/// Unix sockets on both sides.
mod unix;
/// PROXY headers from proxies in front.
mod headers;
/// PROXY headers to servers.
mod introductions;
/// Layer 4.
mod layer4;
/// Listeners for all addresses.
mod families;
