//! HTTP/2 on either side, byte for byte. The test writes the frames at one end of each connection, so that two ends of
//! one library cannot agree on a mistake.
//!
//! Each test is one thread, and no test depends on sleeping.

/// A proxy between clients and servers.
mod scene;
/// From an HTTP/2 client to an HTTP/1.1 server.
mod down;
/// From an HTTP/1 client to an HTTP/2 server.
mod up;
/// HTTP/2 on both sides.
mod through;
/// Upgraded connections over streams.
mod tunnels;
/// Connections to servers, and retries.
mod servers;
/// Servers that are instances in a catalog.
mod catalog;
/// Each option of retries.
mod retried;
/// gRPC calls that end with a status.
mod calls;
/// gRPC-Web calls.
mod web;
/// Hostile clients.
mod hostile;
/// Limits on floods.
mod floods;
/// The end of connections.
mod drain;
/// Flow control windows.
mod windows;
/// The access log.
mod log;
