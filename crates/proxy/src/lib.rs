//! The product: a reverse proxy, one thread a core.
//!
//! `start` takes a `Config` and returns at once. The folders are in the order of a request: each may use those below it,
//! and `control` all of them (`cargo xtask tidy` checks it). Nothing here reads a file but the access log, and nothing
//! but `control` knows of signals.

#![forbid(unsafe_code)]

/// A client's connection.
mod connection;
/// The path of a request.
mod exchange;
/// Stored responses.
mod cache;
/// One request to one server, and its response to the client.
mod forward;
/// Faults on purpose.
mod faults;
/// Servers and the connections to them.
mod upstream;
/// Bodies on their way.
mod body;
/// Rates and delays on purpose.
mod shaping;
/// The data that travels with a request.
mod context;
/// All that one core owns.
mod worker;
/// Everything beside the path: reloads, probes, admin, metrics.
mod control;
/// The chaos proxy, on its own.
pub mod chaos;

pub use ::transport::resolve::unresolved;
pub use control::handover::Inheritance;
pub use control::signals::run_until_signal;
pub use control::{Reread, Running, Setup, StartError, speak, start, start_with};
