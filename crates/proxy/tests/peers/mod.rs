//! Instances that share a cache, in one process. The test's server counts requests.

/// Instances, and their server.
mod fleet;
/// A single request to the server for all instances.
mod shared;
/// Requests that go to the server directly.
mod straight;
/// Instances that are down or silent, or disagree.
mod lost;
/// Hot responses.
mod hot;
/// Admission of instances.
mod refused;
/// Traces and metrics of a request that two instances handle.
mod told;
