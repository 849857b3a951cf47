//! Fixed responses to requests that HTTP/1.1 text cannot express.

pub struct FixedAnswer {
    status: &'static str,
    /// For gRPC calls, from `doc/http-grpc-status-mapping.md` in gRPC's repository.
    grpc_status: &'static str,
    message: &'static str,
}

/// Head too large (RFC 6585 §5).
pub static TOO_LARGE: FixedAnswer =
    FixedAnswer { status: "431", grpc_status: "2", message: "The request header fields are too large." };
/// HTTP/1.1 text cannot express the request.
pub static UNTOLD: FixedAnswer =
    FixedAnswer { status: "400", grpc_status: "13", message: "The request is not valid HTTP." };

/// Name and value.
pub type AnswerField<'a> = (&'static [u8], &'a [u8]);

impl FixedAnswer {
    /// The status and the fields. A gRPC call, whose content type is in `call`, gets status 200 and the failure in
    /// `grpc-status`.
    #[cold]
    pub fn form<'a>(&self, call: Option<&'a [u8]>) -> (&'static str, Vec<AnswerField<'a>>) {
        match call {
            // gRPC clients read `grpc-status` only if the HTTP status is 200.
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
