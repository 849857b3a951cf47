//! gRPC over HTTP, as a proxy needs it: call statuses, message framing, and gRPC-Web.
//!
//! Bytes in, bytes out: messages are not decoded, and no service is known.

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

pub use content_type::{CallForm, ContentType};
pub use messages::Unary;
pub use status::{CallStatus, Statuses, push_message, status_names};
pub use text::{TextDecoder, TextEncoder, TextError};
pub use web::{WebBody, web_content_type};
