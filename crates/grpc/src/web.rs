//! gRPC-Web (PROTOCOL-WEB.md): bodies of responses to browsers. They cannot read trailers, so the last frame has them.

use crate::content_type::CallForm;
use crate::messages::PREFIX_BYTES;
use crate::status::CallStatus;
use crate::text::TextEncoder;

/// First byte of the frame with the trailers.
const TRAILERS: u8 = 0x80;
const STATUS: &[u8] = b"grpc-status";

/// Converts a gRPC response body to gRPC-Web.
#[derive(Debug, Clone)]
pub struct WebBody {
    /// Encoder, only for `grpc-web-text`.
    text: Option<TextEncoder>,
    place: MessagePosition,
    /// Whether the response head has the call's status.
    has_status: bool,
}

impl WebBody {
    /// `has_status`: whether the response head has the call's status.
    pub fn new(form: CallForm, has_status: bool) -> Self {
        let text = (form == CallForm::WebText).then(TextEncoder::default);
        Self { text, place: MessagePosition::default(), has_status }
    }

    /// Converts the next bytes of the body and appends them to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.place.pass(bytes);
        self.write(bytes, out);
    }

    pub fn flush(&mut self, out: &mut Vec<u8>) {
        if let Some(text) = &mut self.text {
            text.flush(out);
        }
    }

    /// Whether no message is incomplete, so that a frame may follow.
    pub fn is_between_messages(&self) -> bool {
        self.place.left == 0 && self.place.prefix_len == 0
    }

    /// Ends the body with trailers, given as lines. A missing status is added: some clients take it for success.
    pub fn end(&mut self, trailers: &[u8], out: &mut Vec<u8>) {
        let mut lines = Vec::new();
        let mut has_status = self.has_status;
        for line in trailers.split(|byte| *byte == b'\n') {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            // PROTOCOL-WEB.md: "Use lower-case header/trailer names."
            let name = line[..colon].to_ascii_lowercase();
            has_status |= name == STATUS;
            lines.extend_from_slice(&name);
            lines.extend_from_slice(line[colon..].trim_ascii_end());
            lines.extend_from_slice(b"\r\n");
        }
        if !has_status {
            push_status(&mut lines, CallStatus::UNKNOWN);
        }
        if lines.is_empty() { self.flush(out) } else { self.write_frame(&lines, out) }
    }

    /// Ends the body with a status made by the proxy.
    pub fn fail(&mut self, status: CallStatus, message: &str, out: &mut Vec<u8>) {
        let mut lines = Vec::new();
        push_status(&mut lines, status);
        lines.extend_from_slice(b"grpc-message: ");
        crate::push_message(&mut lines, message);
        lines.extend_from_slice(b"\r\n");
        self.write_frame(&lines, out);
    }

    fn write_frame(&mut self, lines: &[u8], out: &mut Vec<u8>) {
        // The limit on trailers is far below `u32::MAX`.
        let length = u32::try_from(lines.len()).unwrap_or(u32::MAX).to_be_bytes();
        self.write(&[TRAILERS], out);
        self.write(&length, out);
        self.write(lines, out);
        self.flush(out);
    }

    fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        match &mut self.text {
            Some(text) => text.push(bytes, out),
            None => out.extend_from_slice(bytes),
        }
    }
}

fn push_status(lines: &mut Vec<u8>, status: CallStatus) {
    lines.extend_from_slice(format!("grpc-status: {}\r\n", status.code()).as_bytes());
}

/// Position of the body within its messages.
#[derive(Debug, Clone, Default)]
struct MessagePosition {
    prefix: [u8; PREFIX_BYTES],
    prefix_len: usize,
    /// Bytes of the current message that are still missing.
    left: u64,
}

impl MessagePosition {
    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let count = self.left.min(bytes.len() as u64);
                self.left -= count;
                bytes = &bytes[count as usize..];
                continue;
            }
            let count = bytes.len().min(PREFIX_BYTES - self.prefix_len);
            self.prefix[self.prefix_len..self.prefix_len + count].copy_from_slice(&bytes[..count]);
            self.prefix_len += count;
            bytes = &bytes[count..];
            if self.prefix_len == PREFIX_BYTES {
                let [_, length @ ..] = self.prefix;
                self.left = u64::from(u32::from_be_bytes(length));
                self.prefix_len = 0;
            }
        }
    }
}

/// Returns the Content-Type of a gRPC-Web response, from the parts of the gRPC one.
pub fn web_content_type(form: CallForm, suffix: &[u8]) -> Vec<u8> {
    let name: &[u8] = match form {
        CallForm::Grpc => b"application/grpc",
        CallForm::Web => b"application/grpc-web",
        CallForm::WebText => b"application/grpc-web-text",
    };
    [name, suffix].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(form: CallForm, body: &[u8], piece: usize, trailers: &[u8]) -> Vec<u8> {
        let (mut web, mut out) = (WebBody::new(form, false), Vec::new());
        body.chunks(piece).for_each(|piece| web.push(piece, &mut out));
        web.end(trailers, &mut out);
        out
    }

    #[test]
    fn trailers_are_the_last_frame_however_the_body_comes() {
        let body = b"\0\0\0\0\x02hi\0\0\0\0\0";
        let rows: &[(&[u8], &[u8])] = &[
            (b"grpc-status: 0\r\n", b"\x80\0\0\0\x10grpc-status: 0\r\n"),
            (
                b"Grpc-Status: 5\r\nGrpc-Message:  no \r\n",
                b"\x80\0\0\0\x23grpc-status: 5\r\ngrpc-message:  no\r\n",
            ),
            (b"", b"\x80\0\0\0\x10grpc-status: 2\r\n"),
            (b"x-bin: AA\r\n", b"\x80\0\0\0\x1bx-bin: AA\r\ngrpc-status: 2\r\n"),
        ];
        for (trailers, frame) in rows {
            for piece in 1..=body.len() {
                let binary = whole(CallForm::Web, body, piece, trailers);
                assert_eq!(binary, [body, *frame].concat(), "{frame:?}");
                let mut text = whole(CallForm::WebText, body, piece, trailers);
                let len = crate::TextDecoder::default().decode(&mut text).expect("is base64");
                assert_eq!(&text[..len], binary, "{frame:?}");
            }
        }
    }

    #[test]
    fn a_status_of_the_head_is_told_once() {
        for (trailers, expected) in [(&b""[..], &b""[..]), (b"x-a: 1\r\n", b"\x80\0\0\0\x08x-a: 1\r\n")] {
            let (mut web, mut out) = (WebBody::new(CallForm::Web, true), Vec::new());
            web.end(trailers, &mut out);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn a_failure_is_told_between_messages() {
        let mut web = WebBody::new(CallForm::Web, false);
        let mut out = Vec::new();
        for (bytes, expected) in [
            (&b""[..], true),
            (b"\0\0", false),
            (b"\0\0\x03", false),
            (b"ab", false),
            (b"c", true),
            (b"\0\0\0\0\0", true),
            (b"\0\0\0\0\x01a\0", false),
            (b"\0\0\0\0", true),
        ] {
            web.push(bytes, &mut out);
            assert_eq!(web.is_between_messages(), expected, "{bytes:?}");
        }
        out.clear();
        web.fail(CallStatus::UNAVAILABLE, "gone\u{e9}", &mut out);
        assert_eq!(out, b"\x80\0\0\0\x2bgrpc-status: 14\r\ngrpc-message: gone%C3%A9\r\n");
    }

    #[test]
    fn content_types_keep_the_format_of_messages() {
        for (form, suffix, expected) in [
            (CallForm::Web, "+proto", "application/grpc-web+proto"),
            (CallForm::WebText, "", "application/grpc-web-text"),
            (CallForm::Grpc, "+json", "application/grpc+json"),
        ] {
            assert_eq!(web_content_type(form, suffix.as_bytes()), expected.as_bytes());
        }
    }
}
