//! Converts HTTP/1.1 text to the fields of HTTP/2 and HTTP/3 (RFC 9113 §8, RFC 9114 §4). The input is a message that
//! the proxy wrote for the next hop: every line is complete and valid.

use crate::lines::{HeadLines, is_named};
use crate::message::RequestKind;

/// Encodes the fields of one message.
pub trait Encode {
    fn common(&mut self, field: CommonField);
    /// `name` is in lower case.
    fn field(&mut self, name: &[u8], value: &[u8]);
    /// Adds the field from an HTTP/1.1 line without CRLF, unless `is_wanted` rejects its lower-case name. The encoder
    /// can recognize a line that it sent before without parsing it.
    fn line(&mut self, line: &[u8], is_wanted: impl FnOnce(&[u8]) -> bool);
}

/// Fields of nearly every message, which are entries of both static tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommonField {
    /// `:method: GET`
    Get,
    /// `:method: POST`
    Post,
    /// `:scheme: http`
    Http,
    /// `:scheme: https`
    Https,
    /// `:path: /`
    Root,
    /// `:status: 200`
    Ok,
    /// `:status: 304`
    NotModified,
    /// `:status: 404`
    NotFound,
}

/// The text contains something that fields cannot express.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Untold;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireScheme {
    Http,
    Https,
}

/// The length of the head at the start of `text`, with its empty line; `None` if the head is incomplete.
pub fn head_len(text: &[u8]) -> Option<usize> {
    let mut lines = HeadLines { rest: text };
    lines.by_ref().for_each(drop);
    Some(text.len() - lines.rest.strip_prefix(b"\r\n")?.len())
}

/// The head of a request. Errors are found before a header block is begun: a block that is begun must be sent, because
/// the encoder has counted its entries as known to the peer.
pub struct ComposedRequest<'a> {
    method: &'a [u8],
    target: &'a [u8],
    lines: &'a [u8],
}

impl<'a> ComposedRequest<'a> {
    /// # Errors
    /// If the head has no method or no target.
    pub fn new(head: &'a [u8]) -> Result<Self, Untold> {
        let (start, lines) = start_line(head)?;
        let mut words = start.split(|&byte| byte == b' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if method.is_empty() || target.is_empty() {
            return Err(Untold);
        }
        Ok(Self { method, target, lines })
    }

    /// Encodes the fields, and returns the properties of the request that are needed to read the response.
    ///
    /// If the server does not accept extended CONNECT (`may_upgrade`), an upgrade is left out: it is only an offer (RFC
    /// 9110 §7.8).
    pub fn compose(&self, scheme: WireScheme, may_upgrade: bool, encoder: &mut impl Encode) -> RequestKind {
        let Self { method, target, lines } = *self;
        let value_of = |name: &[u8]| {
            let line = HeadLines { rest: lines }.find(|line| is_named(line, name))?;
            Some(line[name.len() + 1..].trim_ascii())
        };
        let protocol = if may_upgrade { value_of(b"upgrade") } else { None };
        let asked = match protocol {
            Some(protocol) => RequestKind::Upgrade {
                protocol: protocol.to_vec(),
                key: value_of(b"sec-websocket-key").map(<[u8]>::to_vec),
            },
            None if method == b"HEAD" => RequestKind::Head,
            None => RequestKind::Other,
        };
        match (protocol, method) {
            // RFC 8441 §4.
            (Some(_), _) => encoder.field(b":method", b"CONNECT"),
            (None, b"GET") => encoder.common(CommonField::Get),
            (None, b"POST") => encoder.common(CommonField::Post),
            (None, method) => encoder.field(b":method", method),
        }
        encoder.common(if scheme == WireScheme::Http { CommonField::Http } else { CommonField::Https });
        encoder.field(b":authority", value_of(b"host").unwrap_or_default());
        if target == b"/" {
            encoder.common(CommonField::Root);
        } else {
            // RFC 9113 §8.3.1: the path of an OPTIONS request for the whole server is `*`.
            encoder.field(b":path", target);
        }
        if let Some(protocol) = protocol {
            encoder.field(b":protocol", protocol);
        }
        for line in (HeadLines { rest: lines }) {
            // RFC 8441 §5: extended CONNECT has no Sec-WebSocket-Key.
            if protocol.is_none() || !is_named(line, b"sec-websocket-key") {
                encoder.line(line, |name| name != b"host" && !is_of_connection(name));
            }
        }
        asked
    }
}

/// The head of a response. Errors are found before a header block is begun.
pub struct ComposedResponse<'a> {
    status: &'a [u8],
    number: u16,
    lines: &'a [u8],
}

impl<'a> ComposedResponse<'a> {
    /// # Errors
    /// If the head has no status code.
    pub fn new(head: &'a [u8]) -> Result<Self, Untold> {
        let (start, lines) = start_line(head)?;
        let status = start.get(9..12).filter(|status| status.iter().all(u8::is_ascii_digit)).ok_or(Untold)?;
        let number = status.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0'));
        Ok(Self { status, number, lines })
    }

    /// RFC 9110 §15.3.
    pub fn is_success(&self) -> bool {
        matches!(self.number, 200..=299)
    }

    /// Encodes the fields, and returns the status code.
    pub fn compose(&self, encoder: &mut impl Encode) -> u16 {
        let Self { status, number, lines } = *self;
        let switches = number == 101;
        match number {
            // RFC 8441 §5: success is 200; from here on the stream carries the other protocol.
            101 | 200 => encoder.common(CommonField::Ok),
            304 => encoder.common(CommonField::NotModified),
            404 => encoder.common(CommonField::NotFound),
            _ => encoder.field(b":status", status),
        }
        for line in (HeadLines { rest: lines }) {
            if !switches || !is_named(line, b"sec-websocket-accept") {
                encoder.line(line, |name| !is_of_connection(name));
            }
        }
        number
    }
}

/// `lines` are trailer lines with CRLF.
pub fn trailers(lines: &[u8], encoder: &mut impl Encode) {
    for line in (HeadLines { rest: lines }) {
        encoder.line(line, |name| !is_of_connection(name));
    }
}

fn start_line(head: &[u8]) -> Result<(&[u8], &[u8]), Untold> {
    let end = http1::line_end(head, 0).ok_or(Untold)?;
    Ok((&head[..end], head.get(end + 2..).ok_or(Untold)?))
}

/// Whether a field is connection-specific, and thus not allowed in HTTP/2 (RFC 9113 §8.2.2) and HTTP/3 (RFC 9114 §4.2).
fn is_of_connection(name: &[u8]) -> bool {
    matches!(
        name,
        b"connection"
            | b"keep-alive"
            | b"proxy-connection"
            | b"transfer-encoding"
            | b"upgrade"
            | b"http2-settings"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Said(String);

    impl Encode for Said {
        fn common(&mut self, field: CommonField) {
            let (name, value) = match field {
                CommonField::Get => (":method", "GET"),
                CommonField::Post => (":method", "POST"),
                CommonField::Http => (":scheme", "http"),
                CommonField::Https => (":scheme", "https"),
                CommonField::Root => (":path", "/"),
                CommonField::Ok => (":status", "200"),
                CommonField::NotModified => (":status", "304"),
                CommonField::NotFound => (":status", "404"),
            };
            self.field(name.as_bytes(), value.as_bytes());
        }

        fn field(&mut self, name: &[u8], value: &[u8]) {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            self.0 += &format!("{}: {}\n", text(name), text(value));
        }

        fn line(&mut self, line: &[u8], is_wanted: impl FnOnce(&[u8]) -> bool) {
            let colon = line.iter().position(|&byte| byte == b':').expect("is a line");
            let name = line[..colon].to_ascii_lowercase();
            if is_wanted(&name) {
                self.field(&name, line[colon + 1..].trim_ascii());
            }
        }
    }

    #[test]
    fn requests() {
        let upgrade = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Key: k\r\nX: y\r\n\r\n";
        let rows = [
            (
                "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                false,
                ":method: GET\n:scheme: http\n:authority: a\n:path: /\n",
            ),
            (
                "PUT /x?y HTTP/1.1\r\nX-Long:   b \r\nhost:a\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\n\r\n",
                false,
                ":method: PUT\n:scheme: http\n:authority: a\n:path: /x?y\nx-long: b\nte: trailers\n",
            ),
            (
                upgrade,
                false,
                ":method: GET\n:scheme: http\n:authority: a\n:path: /chat\nsec-websocket-key: k\nx: y\n",
            ),
            (
                upgrade,
                true,
                ":method: CONNECT\n:scheme: http\n:authority: a\n:path: /chat\n:protocol: websocket\nx: y\n",
            ),
        ];
        for (text, may_upgrade, expected) in rows {
            let mut said = Said::default();
            let request = ComposedRequest::new(text.as_bytes()).expect("is a head");
            request.compose(WireScheme::Http, may_upgrade, &mut said);
            assert_eq!(said.0, expected, "{text}");
        }
    }

    #[test]
    fn responses_and_trailers() {
        let rows = [
            ("HTTP/1.1 200 OK\r\nServer: x\r\nConnection: close\r\n\r\n", 200, ":status: 200\nserver: x\n"),
            ("HTTP/1.1 418 \r\n\r\n", 418, ":status: 418\n"),
            (
                "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: k\r\nX: y\r\n\r\n",
                101,
                ":status: 200\nx: y\n",
            ),
        ];
        for (text, status, expected) in rows {
            let mut said = Said::default();
            let response = ComposedResponse::new(text.as_bytes()).expect("is a head");
            assert_eq!(response.compose(&mut said), status);
            assert_eq!(said.0, expected, "{text}");
        }
        let mut said = Said::default();
        trailers(b"X-Sum: 1\r\nConnection: x\r\n", &mut said);
        assert_eq!(said.0, "x-sum: 1\n");
    }

    #[test]
    fn where_a_head_ends() {
        for (text, len) in
            [("GET / HTTP/1.1\r\n\r\nx", Some(18)), ("a\r\nb: c\r\n\r\n", Some(11)), ("a\r\n\r", None)]
        {
            assert_eq!(head_len(text.as_bytes()), len);
        }
    }
}
