//! The configuration: as written, then as meant (`Config`, valid by construction).
//!
//! Whoever holds a `Config` never checks it again. Nothing here opens a socket or resolves a name.

/// What can be wrong with one value, and how that is said.
mod fault;
/// Durations, sizes and rates.
mod quantity;
/// Hosts, ports, listening addresses and networks.
mod host;
/// Servers as URLs.
mod server;
/// A mistake and its place in the file.
mod mistake;
/// From text to meaning, or to every mistake.
mod read;
/// What was read means: listeners, routes, upstreams, time-outs and limits.
mod meaning;

pub use fault::{Fault, HostProblem, ValueError};
pub use host::{listen_address, network};
pub use ipnet::IpNet;
pub use meaning::{
    AccessLog, Balance, Config, HostHeader, Limits, Listener, LogFormat, LogTarget, Pool, Route, Server,
    ServerHost, Timeouts, Upstream,
};
pub use mistake::Mistake;
pub use quantity::{duration, rate, size};
pub use read::{load, parse};
