//! Answers to requests whose heads are no text of HTTP/1.1, which nobody else is to hear of.

use crate::connection::Connection;

/// What such a request is answered.
pub(crate) struct Answer {
    status: &'static str,
    /// The same to a call of gRPC, and in words (doc/http-grpc-status-mapping.md there).
    grpc_status: &'static str,
    message: &'static str,
}

/// Its head is larger than it may be (RFC 6585 §5).
pub(crate) static TOO_LARGE: Answer =
    Answer { status: "431", grpc_status: "2", message: "The request header fields are too large." };
/// It says what no text of HTTP/1.1 could say.
pub(crate) static UNTOLD: Answer =
    Answer { status: "400", grpc_status: "13", message: "The request is not valid HTTP." };

impl Connection {
    /// Answers it, in gRPC's words where it is a call with this type of content; says with which status.
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
