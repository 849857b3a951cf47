//! The path of a request through the reverse proxy, one thread a core.
//!
//! The crate `control` compiles a plan and starts workers with it. The folders are in the order of a request: each may
//! use those below it (`cargo xtask tidy` checks it). Nothing here knows signals, or serves the admin API.

#![forbid(unsafe_code)]

/// What a worker does: listens, ticks, follows changes.
pub mod worker;
/// A client's connection.
mod connection;
/// The path of a request.
mod exchange;
/// The cache.
pub mod cache;
/// Answers with files.
mod files;
/// Sends one request to a server, and its response to the client.
mod forward;
/// Fault injection.
pub mod faults;
/// Servers, and connections to them.
mod upstream;
/// Bodies in transit.
mod body;
/// Configured rates and delays.
mod shaping;
/// The data that travels with a request.
pub mod context;
