//! The configuration: as written (`raw`), then as meant (`Config`, valid by construction).
//!
//! Whoever holds a `Config` never checks it again. Nothing here opens a socket or resolves a name.

/// What was read means: listeners, routes, upstreams, time-outs and limits.
mod meaning;

pub use ipnet::IpNet;
pub use meaning::{
    AccessLog, Balance, Config, HostHeader, Limits, Listener, LogFormat, LogTarget, Pool, Route, Server,
    ServerHost, Timeouts, Upstream,
};
