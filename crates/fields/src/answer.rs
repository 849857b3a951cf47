//! Fixed responses to requests that HTTP/1.1 text cannot express.

/// A fixed response to a rejected request.
pub struct Answer {
    status: &'static str,
    /// Status and message for gRPC calls (`doc/http-grpc-status-mapping.md` in gRPC's repository).
    grpc_status: &'static str,
    message: &'static str,
}

/// 431: the head is too large (RFC 6585 §5).
pub static TOO_LARGE: Answer =
    Answer { status: "431", grpc_status: "2", message: "The request header fields are too large." };
/// 400: HTTP/1.1 text cannot express the request.
pub static UNTOLD: Answer =
    Answer { status: "400", grpc_status: "13", message: "The request is not valid HTTP." };

/// A field of a fixed response: name and value.
pub type AnswerField<'a> = (&'static [u8], &'a [u8]);

impl Answer {
    /// The status, and the fields; in gRPC's form if `call` is the content type of a gRPC call.
    #[cold]
    pub fn form<'a>(&self, call: Option<&'a [u8]>) -> (&'static str, Vec<AnswerField<'a>>) {
        match call {
            // The call has failed, not the exchange of HTTP: clients look at what gRPC says only then.
            Some(content_type) => (
                "200",
                vec![
                    (b"content-type", content_type),
                    (b"grpc-status", self.grpc_status.as_bytes()),
                    (b"grpc-message", self.message.as_bytes()),
                ],
            ),
            None => (self.status, vec![(b"content-length", b"0")]),
        }
    }
}
