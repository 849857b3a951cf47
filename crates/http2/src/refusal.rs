//! Responses to requests that HTTP/1.1 text cannot express. The proxy's other parts do not see such requests.

use crate::connection::Connection;

/// A fixed response to a rejected request.
pub(crate) struct Answer {
    status: &'static str,
    /// Status and message for gRPC calls (`doc/http-grpc-status-mapping.md` in gRPC's repository).
    grpc_status: &'static str,
    message: &'static str,
}

/// 431: the head is too large (RFC 6585 §5).
pub(crate) static TOO_LARGE: Answer =
    Answer { status: "431", grpc_status: "2", message: "The request header fields are too large." };
/// 400: HTTP/1.1 text cannot express the request.
pub(crate) static UNTOLD: Answer =
    Answer { status: "400", grpc_status: "13", message: "The request is not valid HTTP." };

impl Connection {
    /// Sends a fixed response, in gRPC's form if `call` is the content type of a gRPC call. Returns the status code.
    pub(crate) fn refuse(&mut self, id: u32, answer: &Answer, call: Option<&[u8]>, has_ended: bool) -> u16 {
        let Answer { status, grpc_status, message } = answer;
        match call {
            // The call has failed, not the exchange of HTTP: clients look at what gRPC says only then.
            Some(content_type) => self.answer(
                id,
                "200",
                &[
                    (b"content-type", content_type),
                    (b"grpc-status", grpc_status.as_bytes()),
                    (b"grpc-message", message.as_bytes()),
                ],
                has_ended,
            ),
            None => self.answer(id, status, &[(b"content-length", b"0")], has_ended),
        }
        if call.is_some() { 200 } else { status.parse().unwrap_or(0) }
    }
}
