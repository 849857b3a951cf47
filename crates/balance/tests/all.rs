//! Simulations of balancing, and a test that it does not allocate.

/// Keys that move when servers change.
mod disruption;
/// Servers that return.
mod returns;
/// Healthy servers.
mod steady;
/// A server that gets slower.
mod slowed;
/// Quick and slow servers behind several workers.
mod simulated_fleet;
/// The adaptive concurrency limit.
mod overload;
/// No allocations in the steady state.
mod allocations;
