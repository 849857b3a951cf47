//! The cache in the way of requests, between clients of both versions and a server that the test plays.
//!
//! As in the other conversations one thread does one thing after the other, and nothing sleeps to be right.

/// What is answered from the store, and what is not.
mod answered;
/// Conditions of clients and of the store.
mod validated;
/// Parts.
mod ranges;
/// Parts that are stored themselves.
mod parts;
/// What is no longer fresh.
mod stale;
/// What is judged response by response.
mod judged;
/// What requests are asked for all.
mod kept;
/// What goes past it.
mod passed;
/// What is counted.
mod counted;
/// Many who want the same.
mod shared;
/// What a reload leaves.
mod resized;
/// What is purged.
mod purged;
/// What routes have to themselves.
mod routed;
/// What is kept on a disk.
mod disk;
/// What is told of a URL.
mod explained;
