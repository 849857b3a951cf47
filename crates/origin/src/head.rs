//! Response head: status, fields and framing, and how it is rendered.

use std::borrow::Cow;
use std::io::Write;

use http::StatusCode;

pub(crate) const SERVER: &str = "vanward-origin";

/// The framing of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    Known(u64),
    /// Chunked transfer coding; for an HTTP/1.0 client, the end of the connection.
    Chunked,
    /// The body ends with the connection.
    Close,
    /// No framing field: 1xx, 204 and 304.
    None,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OriginHead {
    pub(crate) status: u16,
    pub(crate) length: Length,
    fields: Vec<(Cow<'static, str>, Cow<'static, str>)>,
}

impl OriginHead {
    pub(crate) fn new(status: u16, length: Length) -> Self {
        Self { status, length, fields: Vec::new() }
    }

    /// Adds a field at the end, even if there is one with the same name.
    pub(crate) fn field(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Cow<'static, str>>,
    ) -> Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// Adds a field in place of all fields with its name.
    pub(crate) fn replace(mut self, name: &'static str, value: String) -> Self {
        self.fields.retain(|(found, _)| !found.eq_ignore_ascii_case(name));
        self.field(name, value)
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(found, _)| found.eq_ignore_ascii_case(name))
    }

    /// Appends the head with its blank line to `out`. `connection` is the value of the Connection field, if any.
    pub(crate) fn render(&self, date: &[u8], connection: Option<&str>, out: &mut Vec<u8>) {
        let mut line = |parts: &[&[u8]]| {
            parts.iter().for_each(|part| out.extend_from_slice(part));
            out.extend_from_slice(b"\r\n");
        };
        let [hundreds, tens, ones] =
            [self.status / 100, self.status / 10 % 10, self.status % 10].map(|n| b'0' + n as u8);
        line(&[b"HTTP/1.1 ", &[hundreds, tens, ones], b" ", reason(self.status).as_bytes()]);
        if self.status >= 200 {
            if !self.has("server") {
                line(&[b"Server: ", SERVER.as_bytes()]);
            }
            // RFC 9110 §6.6.1: an origin with a clock sends Date.
            if !self.has("date") {
                line(&[b"Date: ", date]);
            }
        }
        for (name, value) in &self.fields {
            line(&[name.as_bytes(), b": ", value.as_bytes()]);
        }
        if let Some(connection) = connection {
            line(&[b"Connection: ", connection.as_bytes()]);
        }
        match self.length {
            Length::Known(length) => write!(out, "Content-Length: {length}\r\n").expect("a vector takes all"),
            Length::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            Length::Close | Length::None => {}
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Reason phrase of a status; empty if the status has none.
pub(crate) fn reason(status: u16) -> &'static str {
    StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(head: &OriginHead, connection: Option<&str>) -> String {
        let mut out = Vec::new();
        head.render(b"Thu, 01 Jan 1970 00:00:00 GMT", connection, &mut out);
        String::from_utf8(out).expect("is ASCII")
    }

    #[test]
    fn heads() {
        let head =
            OriginHead::new(200, Length::Known(5)).field("ETag", "\"a\"").field("X", "1").field("X", "2");
        assert_eq!(
            render(&head, Some("close")),
            "HTTP/1.1 200 OK\r\nServer: vanward-origin\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nETag: \"a\"\r\n\
             X: 1\r\nX: 2\r\nConnection: close\r\nContent-Length: 5\r\n\r\n"
        );
        let head = OriginHead::new(599, Length::Chunked).field("date", "now").field("Server", "s");
        assert_eq!(
            render(&head, None),
            "HTTP/1.1 599 \r\ndate: now\r\nServer: s\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        let head = OriginHead::new(103, Length::None).field("Link", "a").replace("link", "b".to_owned());
        assert_eq!(render(&head, None), "HTTP/1.1 103 Early Hints\r\nlink: b\r\n\r\n");
    }
}
