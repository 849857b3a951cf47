//! The proxy's own responses to gRPC calls: a head that is the whole response, with the status of the call.
//!
//! Responses of servers are not changed, nor are configured responses with a success status.

use std::io::Write;

use grpc::{ContentType, Form, Status};
use http1::RequestHead;

use crate::context::seen;

/// The content type of a gRPC call, which the response repeats; `None` if the request is no gRPC call.
#[cold]
pub(crate) fn content_type<'a>(head: &RequestHead, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let value = seen::line(head, bytes, b"content-type")?;
    ContentType::of(value).map(|_| value)
}

/// Whether a request or a response is of a gRPC call, rather than of gRPC-Web.
pub(crate) fn is_call<Start>(head: &http1::Head<Start>, bytes: &[u8]) -> bool {
    let content_type = seen::line(head, bytes, b"content-type").and_then(ContentType::of);
    content_type.is_some_and(|content_type| content_type.form == Form::Grpc)
}

/// Appends the response to a gRPC call for an HTTP status, without the fields that every response has. `frames_itself`
/// tells whether the end of the head ends the response.
pub(crate) fn write(out: &mut Vec<u8>, content_type: &[u8], status: u16, message: &str, frames_itself: bool) {
    out.clear();
    // The call has failed, not the exchange of HTTP: clients look at what gRPC says only then.
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Type: ");
    out.extend_from_slice(content_type);
    out.extend_from_slice(b"\r\n");
    if !frames_itself {
        out.extend_from_slice(b"Content-Length: 0\r\n");
    }
    let _ = write!(out, "Grpc-Status: {}\r\nGrpc-Message: ", Status::of_http(status).code());
    grpc::push_message(out, message.trim_end());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_in_both_words() {
        let mut out = Vec::new();
        write(&mut out, b"application/grpc+proto", 504, "100% late\u{e9}\n", false);
        let expected = "HTTP/1.1 200 OK\r\nContent-Type: application/grpc+proto\r\nContent-Length: 0\r\n\
                        Grpc-Status: 14\r\nGrpc-Message: 100%25 late%C3%A9\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
