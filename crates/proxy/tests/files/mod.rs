//! Files that a route serves, to clients of HTTP/1 and HTTP/2.

/// A proxy with files, and requests for them.
mod scene;
/// Look-up of files, and their responses.
mod answered;
/// Path traversal and hidden files.
mod hidden;
/// Preconditions and ranges.
mod parts;
/// Precompressed siblings.
mod coded;
/// Rates, faults, delays and limits.
mod limited;
/// Files that change, even while they are sent.
mod changed;
