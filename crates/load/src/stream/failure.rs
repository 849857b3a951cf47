//! Failures that only streams have.

use super::grpc::{self, GrpcViolation};
use super::websocket::Violation;
use crate::outcome::ErrorClass;

#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamFailure {
    #[error("status {status}, and no stream")]
    Status { status: u16 },
    #[error("the response is not an event stream: its type is not text/event-stream")]
    NoEvents,
    #[error("an event is larger than 16 MiB")]
    EventTooLarge,
    #[error("the response does not open a WebSocket: {0}")]
    NoWebSocket(&'static str),
    #[error("the server does not take WebSockets over HTTP/2 (RFC 8441, SETTINGS_ENABLE_CONNECT_PROTOCOL)")]
    NoConnect,
    #[error("{0}")]
    WebSocket(Violation),
    #[error("the server closed the WebSocket with code {0}")]
    Closed(u16),
    #[error("the response is not gRPC: its type is not application/grpc")]
    NoGrpc,
    #[error("{0}")]
    Grpc(GrpcViolation),
    #[error("the gRPC call ended without a status")]
    NoStatus,
    #[error("the gRPC call ended with OK and without a response")]
    NoResponse,
    #[error("the gRPC call ended with OK and with {0} responses, expected one")]
    SeveralResponses(u64),
    #[error("grpc-status {status} {}{}", grpc::name(*.status), told(.message))]
    GrpcStatus { status: u16, message: String },
}

fn told(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

impl StreamFailure {
    pub(crate) fn class(&self) -> ErrorClass {
        match self {
            Self::Status { .. } | Self::GrpcStatus { .. } => ErrorClass::Status,
            Self::Closed(_) => ErrorClass::Read,
            _ => ErrorClass::Malformed,
        }
    }
}
