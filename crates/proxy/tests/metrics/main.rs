//! Metrics as they are asked for: over a socket, in both syntaxes, while requests run and configurations change.

/// A proxy, its servers, and what it tells.
mod scene;
/// What is counted for which route, server and cause.
mod counted;
/// How long requests were held, and when streams came.
mod held;
/// What happens now, and happened in the last hour.
mod live;
/// What the text looks like, and who gets it.
mod told;
/// Counters and the listener over changes of the configuration.
mod changed;
