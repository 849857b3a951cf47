//! Files that a route serves, to clients of HTTP/1 and HTTP/2.

/// A proxy with files, and requests for them.
mod scene;
/// Look-up of files, and their responses.
mod answered;
/// Folders that a value names.
mod folders;
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
/// Files first, else a server.
mod otherwise;
/// Files that a server names.
mod ordered;
