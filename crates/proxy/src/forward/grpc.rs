//! The proxy's own responses to gRPC calls: a head that is the whole response, with the status of the call.
//!
//! Responses of servers are not changed, nor are configured responses with a success status.

use std::io::Write;

use http1::RequestHead;

use crate::context::seen;

/// The content type of a gRPC call, which the response repeats; `None` if the request is no gRPC call.
#[cold]
pub(crate) fn content_type<'a>(head: &RequestHead, bytes: &'a [u8]) -> Option<&'a [u8]> {
    const GRPC: &[u8] = b"application/grpc";
    let content_type = seen::line(head, bytes, b"content-type")?;
    let (kind, rest) = content_type.split_at_checked(GRPC.len())?;
    let is_call = kind.eq_ignore_ascii_case(GRPC)
        && (matches!(rest.first(), None | Some(b'+' | b';' | b' ')) || rest.starts_with(b"-web"));
    is_call.then_some(content_type)
}

/// What a status of HTTP is to gRPC: its table for clients that get one (doc/http-grpc-status-mapping.md there).
fn status_of(status: u16) -> u8 {
    const UNKNOWN: u8 = 2;
    const PERMISSION_DENIED: u8 = 7;
    const UNIMPLEMENTED: u8 = 12;
    const INTERNAL: u8 = 13;
    const UNAVAILABLE: u8 = 14;
    const UNAUTHENTICATED: u8 = 16;
    match status {
        400 => INTERNAL,
        401 => UNAUTHENTICATED,
        403 => PERMISSION_DENIED,
        404 => UNIMPLEMENTED,
        429 | 502..=504 => UNAVAILABLE,
        _ => UNKNOWN,
    }
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
    let _ = write!(out, "Grpc-Status: {}\r\nGrpc-Message: ", status_of(status));
    for byte in message.trim_end().bytes() {
        match byte {
            b' '..=b'$' | b'&'..=b'~' => out.push(byte),
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_by_their_content() {
        for (value, is_call) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("Application/gRPC; charset=utf-8", true),
            ("application/grpc-web-text", true),
            ("application/grpcs", false),
            ("application/json", false),
            ("app", false),
        ] {
            let text = format!("POST /s/m HTTP/1.1\r\nContent-Type: {value}\r\n\r\n");
            let mut head = RequestHead::default();
            let limits = http1::HeadLimits { bytes: 1024, fields: 9, target: 99 };
            head.parse(text.as_bytes(), &limits).expect("is a head");
            assert_eq!(content_type(&head, text.as_bytes()).is_some(), is_call, "{value}");
        }
    }

    #[test]
    fn a_status_is_told_in_both_words() {
        let mut out = Vec::new();
        write(&mut out, b"application/grpc+proto", 504, "100% late\u{e9}\n", false);
        let expected = "HTTP/1.1 200 OK\r\nContent-Type: application/grpc+proto\r\nContent-Length: 0\r\n\
                        Grpc-Status: 14\r\nGrpc-Message: 100%25 late%C3%A9\r\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
        let rows = [(400, 13), (401, 16), (403, 7), (404, 12), (429, 14), (502, 14), (503, 14), (504, 14)];
        for (status, expected) in rows.into_iter().chain([(308, 2), (408, 2), (413, 2), (500, 2), (501, 2)]) {
            assert_eq!(status_of(status), expected, "{status}");
        }
    }
}
