//! HTTP/3 from clients: a client writes its frames by hand over the QUIC of `quinn`, and servers speak HTTP/1.1.
//!
//! As in the other conversations one thing is done after the other, and nothing sleeps to be right.

/// A proxy with a listener for HTTP/3.
mod scene;
/// Requests and responses.
mod exchanges;
/// Calls, urgency, rates, buffered bodies.
mod services;
/// Path MTU, stateless resets, sessions, versions.
mod quic;
/// Extended CONNECT.
mod tunnels;
/// What is refused, and with which code.
mod refusals;
/// The ends of connections: idle, reload, drain.
mod ends;
/// Together with traces, logs, cache, faults, sessions and reloads.
mod together;
/// Clients that mean harm.
mod hostile;
/// Emulated paths: datagrams that are lost, late or twice.
mod paths;
