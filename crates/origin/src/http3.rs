//! HTTP/3 of an origin: one UDP socket for each worker and address, and one task that drives all its connections.
//!
//! Fixed pages are answered by that task. Any other request is a task, answered by the same endpoints as over HTTP/1.

/// The socket and its connections.
mod endpoint;
/// A connection: its streams, and which of them are answered here.
mod connection;
/// Heads of requests: checks and converts them.
mod head;
/// A request that is answered by a task.
mod stream;

pub(crate) use endpoint::{config, serve};
pub(crate) use stream::{Stream, page_front};
