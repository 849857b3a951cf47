//! gRPC over HTTP as a proxy meets it: the statuses of calls, the messages of a body, and gRPC-Web.
//!
//! Bytes in, bytes out. It does not look into messages, and knows no service.

#![forbid(unsafe_code)]

/// Content types of calls.
mod content_type;
/// Statuses of calls.
mod status;
/// Length-prefixed messages.
mod messages;
/// Bodies of gRPC-Web.
mod web;
/// Base64 of gRPC-Web.
mod text;

pub use content_type::{ContentType, Form};
pub use messages::Unary;
pub use status::{Status, Statuses, push_message, status_names};
pub use text::{TextDecoder, TextEncoder, TextError};
pub use web::{WebBody, web_content_type};
