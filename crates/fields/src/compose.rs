//! Converts HTTP/1.1 text to the fields of HTTP/2 and HTTP/3 (RFC 9113 §8, RFC 9114 §4). The proxy has written the text
//! for the next hop: every line is complete and valid.

use crate::lines::{Lines, is_named};
use crate::message::RequestKind;

/// Encodes the fields of one message.
pub trait Encode {
    /// Adds a field that nearly every message has.
    fn common(&mut self, field: Common);
    /// Adds a field; its name is in lower case.
    fn field(&mut self, name: &[u8], value: &[u8]);
    /// Adds the field of an HTTP/1.1 line without CRLF, unless `is_wanted` rejects its lower-case name. A line that was sent
    /// before need not be parsed again.
    fn line(&mut self, line: &[u8], is_wanted: impl FnOnce(&[u8]) -> bool);
}

/// A field that nearly every message has; both static tables contain them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Common {
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

/// The text says something that fields cannot express.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Untold;

/// The scheme used towards a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// `http`: in clear text.
    Http,
    /// `https`: with TLS.
    Https,
}

/// The length of the head at the start of `text`.
pub fn head_len(text: &[u8]) -> Option<usize> {
    let mut lines = Lines { rest: text };
    lines.by_ref().for_each(drop);
    Some(text.len() - lines.rest.strip_prefix(b"\r\n")?.len())
}

/// The head of a request. Errors are found here, before a header block is begun: a block that is begun must be sent,
/// because the encoder counts its entries as known to the peer.
pub struct Request<'a> {
    method: &'a [u8],
    target: &'a [u8],
    lines: &'a [u8],
}

impl<'a> Request<'a> {
    /// Reads the head of a request.
    ///
    /// # Errors
    /// If it has no method or no target.
    pub fn of(head: &'a [u8]) -> Result<Self, Untold> {
        let (start, lines) = start_line(head)?;
        let mut words = start.split(|&byte| byte == b' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if method.is_empty() || target.is_empty() {
            return Err(Untold);
        }
        Ok(Self { method, target, lines })
    }

    /// Encodes the fields. Returns what is needed to read the response. `may_upgrade` says whether the server accepts
    /// extended CONNECT; an upgrade is only an offer (RFC 9110 §7.8).
    pub fn compose(&self, scheme: Scheme, may_upgrade: bool, encoder: &mut impl Encode) -> RequestKind {
        let Self { method, target, lines } = *self;
        let value_of = |name: &[u8]| {
            let line = Lines { rest: lines }.find(|line| is_named(line, name))?;
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
            (None, b"GET") => encoder.common(Common::Get),
            (None, b"POST") => encoder.common(Common::Post),
            (None, method) => encoder.field(b":method", method),
        }
        encoder.common(if scheme == Scheme::Http { Common::Http } else { Common::Https });
        encoder.field(b":authority", value_of(b"host").unwrap_or_default());
        if target == b"/" {
            encoder.common(Common::Root);
        } else {
            // RFC 9113 §8.3.1: `*` is the path of an OPTIONS to a server as a whole.
            encoder.field(b":path", target);
        }
        if let Some(protocol) = protocol {
            encoder.field(b":protocol", protocol);
        }
        for line in (Lines { rest: lines }) {
            // RFC 8441 §5: it says nothing that CONNECT does not.
            if protocol.is_none() || !is_named(line, b"sec-websocket-key") {
                encoder.line(line, |name| name != b"host" && !is_of_connection(name));
            }
        }
        asked
    }
}

/// The head of a response. Errors are found here, before a header block is begun.
pub struct Response<'a> {
    status: &'a [u8],
    number: u16,
    lines: &'a [u8],
}

impl<'a> Response<'a> {
    /// Reads the head of a response.
    ///
    /// # Errors
    /// If it has no status code.
    pub fn of(head: &'a [u8]) -> Result<Self, Untold> {
        let (start, lines) = start_line(head)?;
        let status = start.get(9..12).filter(|status| status.iter().all(u8::is_ascii_digit)).ok_or(Untold)?;
        let number = status.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0'));
        Ok(Self { status, number, lines })
    }

    /// Whether the status is a success (RFC 9110 §15.3).
    pub fn is_success(&self) -> bool {
        matches!(self.number, 200..=299)
    }

    /// Encodes the fields, and returns the status code.
    pub fn compose(&self, encoder: &mut impl Encode) -> u16 {
        let Self { status, number, lines } = *self;
        let switches = number == 101;
        match number {
            // RFC 8441 §5: the stream is the other protocol's from here on.
            101 | 200 => encoder.common(Common::Ok),
            304 => encoder.common(Common::NotModified),
            404 => encoder.common(Common::NotFound),
            _ => encoder.field(b":status", status),
        }
        for line in (Lines { rest: lines }) {
            if !switches || !is_named(line, b"sec-websocket-accept") {
                encoder.line(line, |name| !is_of_connection(name));
            }
        }
        number
    }
}

/// Encodes trailers, which are lines with CRLF.
pub fn trailers(lines: &[u8], encoder: &mut impl Encode) {
    for line in (Lines { rest: lines }) {
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

    /// Encodes fields as lines.
    #[derive(Default)]
    struct Said(String);

    impl Encode for Said {
        fn common(&mut self, field: Common) {
            let (name, value) = match field {
                Common::Get => (":method", "GET"),
                Common::Post => (":method", "POST"),
                Common::Http => (":scheme", "http"),
                Common::Https => (":scheme", "https"),
                Common::Root => (":path", "/"),
                Common::Ok => (":status", "200"),
                Common::NotModified => (":status", "304"),
                Common::NotFound => (":status", "404"),
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
            let request = Request::of(text.as_bytes()).expect("is a head");
            request.compose(Scheme::Http, may_upgrade, &mut said);
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
            let response = Response::of(text.as_bytes()).expect("is a head");
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
