//! gRPC over HTTP as a proxy meets it: the statuses of calls, and the messages of a body.
//!
//! Bytes in, decisions out. It does not look into messages, and knows no service.

#![forbid(unsafe_code)]

/// Content types of calls.
mod content_type;
/// Statuses of calls.
mod status;
/// Length-prefixed messages.
mod messages;

pub use content_type::{ContentType, Form};
pub use messages::Unary;
pub use status::{Status, Statuses, push_message, status_names};
