//! The path of a request through the reverse proxy, on one thread per core.
//!
//! The crate `control` compiles a plan and starts workers with it. The folders are in the order of a request: each may
//! use those below it (`cargo xtask tidy` checks it). Signals and the admin API are not handled here.

#![forbid(unsafe_code)]

/// A worker: listens, ticks, follows changes of the plan.
pub mod worker;
/// A client's connection.
mod connection;
/// The path of a request.
mod path;
/// Decides whether a request may go on, and where.
mod gate;
/// The cache.
pub mod cache;
/// Answers with files.
mod files;
/// Requests that the proxy itself sends.
mod subrequest;
/// Sends one request to a server, and its response to the client.
mod forward;
/// Responses without a server.
mod answer;
/// Messages on their way out: heads, framing, writes.
mod outgoing;
/// The state of one exchange.
mod exchange;
/// Notes on an exchange, for log, metrics and traces.
pub mod record;
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
/// A worker's clock, log and memory state.
pub mod owned;
/// A worker's open files.
mod open_files;
/// Listeners, across reloads.
pub mod listening;
/// Stored responses: memory, disk, dictionaries, purges.
mod store;
/// State that outlives a plan, and small shared types.
pub mod shared;
/// Table of failures: status, log word, text for the client.
pub mod failure;
