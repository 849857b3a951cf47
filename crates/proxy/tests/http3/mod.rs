//! HTTP/3 from clients. The test writes a client's frames over the QUIC of `quinn`; servers use HTTP/1.1.
//!
//! Each test is one thread, and no test depends on sleeping.

/// A proxy with a listener for HTTP/3.
mod scene;
/// Requests and responses.
mod exchanges;
/// gRPC calls, urgency, rates, buffered bodies.
mod services;
/// Path MTU, stateless resets, sessions, versions.
mod quic;
/// Extended CONNECT.
mod tunnels;
/// Rejected messages, and their codes.
mod refusals;
/// The ends of connections: idle, reload, drain.
mod ends;
/// Combination with traces, logs, cache, faults, sessions and reloads.
mod together;
/// Limits on requests under way and on connections.
mod limited;
/// Hostile clients.
mod hostile;
/// Connection faults.
mod faults;
/// Emulated paths: lost, late or duplicate datagrams.
mod paths;
