//! Injected faults, as clients of HTTP/1 and HTTP/2 see them, and changes by operators.
//!
//! Each test is one thread, and no test depends on sleeping.

/// Each kind of message fault, on the wire.
mod injected;
/// Choice of requests.
mod chosen;
/// Connection faults.
mod connections;
/// Each fault on each protocol.
mod table;
/// Message faults, with every source of a response.
mod ways;
/// Listeners that refuse connections.
mod refused;
/// Changes while the proxy runs.
mod changed;
