//! A call of gRPC-Web that goes on as gRPC: what is to be known of it when its response comes.

use grpc::Form;
use http1::Framing;

/// A call of gRPC-Web.
pub(crate) struct WebCall {
    /// How its response is written.
    pub(crate) form: Form,
    /// The content type of the request.
    pub(crate) content_type: Vec<u8>,
    /// How the body of the request comes.
    pub(crate) framing: Framing,
    /// Whether it comes as base64.
    pub(crate) is_text: bool,
}
