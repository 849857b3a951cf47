//! Files that a route answers with, to clients of both versions.

/// A proxy with files, and what it is asked for.
mod scene;
/// What is found, and what its response says.
mod answered;
/// What no path leads to.
mod hidden;
/// Conditions and ranges.
mod parts;
/// Precompressed siblings.
mod coded;
/// Rates, faults, delays and limits.
mod limited;
/// Files that change, also while they are sent.
mod changed;
