//! Responses of the proxy to gRPC calls: a head without a body, with the call's status.
//!
//! Responses of servers are not changed, nor are configured responses with a success status.

use std::io::Write;

use grpc::{CallForm, CallStatus, ContentType};
use http1::RequestHead;

use crate::context::seen;

/// Returns the Content-Type of a gRPC call, which the response repeats; `None` for other requests.
#[cold]
pub(crate) fn content_type<'a>(head: &RequestHead, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let value = seen::line(head, bytes, b"content-type")?;
    ContentType::parse(value).map(|_| value)
}

/// Whether a message belongs to gRPC, rather than gRPC-Web.
pub(crate) fn is_call<Start>(head: &http1::MessageHead<Start>, bytes: &[u8]) -> bool {
    let content_type = seen::line(head, bytes, b"content-type").and_then(ContentType::parse);
    content_type.is_some_and(|content_type| content_type.form == CallForm::Grpc)
}

/// Writes the response to a gRPC call for an HTTP status, without the fields that every response has. With
/// `frames_itself`, the end of the head ends the response.
pub(crate) fn write(out: &mut Vec<u8>, content_type: &[u8], status: u16, message: &str, frames_itself: bool) {
    write_status(out, content_type, CallStatus::of_http(status).code(), message, frames_itself);
}

/// Writes the response for a gRPC status code.
pub(crate) fn write_status(
    out: &mut Vec<u8>,
    content_type: &[u8],
    code: u8,
    message: &str,
    frames_itself: bool,
) {
    out.clear();
    // Clients read the gRPC status only if the HTTP status is 200.
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Type: ");
    out.extend_from_slice(content_type);
    out.extend_from_slice(b"\r\n");
    // Over HTTP/2 and HTTP/3 the head itself ends the stream: gRPC's clients expect such a response without a
    // length.
    if !frames_itself {
        out.extend_from_slice(b"Content-Length: 0\r\n");
    }
    let _ = write!(out, "Grpc-Status: {code}\r\nGrpc-Message: ");
    // The texts of failures end with a line end, which would be shown percent-encoded.
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
