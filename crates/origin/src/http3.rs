//! HTTP/3 of an origin: one UDP socket for each worker and address, and one task that drives all its connections.
//!
//! That task answers fixed pages. Any other request is a task, answered by the same endpoints as over HTTP/1.

/// The socket and its connections.
mod endpoint;
/// A connection, its streams, and the responses with fixed pages.
mod connection;
/// Heads of requests: checks and converts them.
mod head;
/// A request that is answered by a task.
mod stream;

pub(crate) use endpoint::{config, serve};
pub(crate) use stream::{OriginH3Stream, page_front};
