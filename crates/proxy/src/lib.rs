//! The path of a request through the reverse proxy, one thread a core.
//!
//! The crate `control` compiles a plan and starts workers with it. The folders are in the order of a request: each may
//! use those below it (`cargo xtask tidy` checks it). Nothing here reads a file but the access log, knows signals, or
//! serves the admin API.

#![forbid(unsafe_code)]

/// What a worker does: listens, ticks, follows changes.
pub mod worker;
/// A client's connection.
mod connection;
/// The path of a request.
mod exchange;
/// Stored responses.
pub mod cache;
/// One request to one server, and its response to the client.
mod forward;
/// Faults on purpose.
pub mod faults;
/// Servers and the connections to them.
mod upstream;
/// Bodies on their way.
mod body;
/// Rates and delays on purpose.
mod shaping;
/// The data that travels with a request.
pub mod context;
