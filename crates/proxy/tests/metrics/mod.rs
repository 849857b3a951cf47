//! Metrics over a socket, in both formats, while requests run and configurations change.

/// A proxy, its servers, and its metrics.
mod scene;
/// Counters of routes, servers and causes.
mod counted;
/// Held time, and the timing of streams.
mod held;
/// Live data, and the last hour.
mod live;
/// The format of the text, and access to it.
mod told;
/// Counters and the listener across configuration changes.
mod changed;
