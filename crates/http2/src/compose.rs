//! Converts HTTP/1.1 text to HTTP/2 fields (RFC 9113 §8). The proxy has written the text for the next hop: every line
//! is complete and valid.

use crate::encode::Encoder;
use crate::message::RequestKind;

/// The text says something that HTTP/2 cannot express.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Untold;

/// The scheme used towards a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// `http`: in clear text.
    Http,
    /// `https`: with TLS.
    Https,
}

/// The length of the head at the start of `text`.
pub(crate) fn head_len(text: &[u8]) -> Option<usize> {
    let mut lines = Lines { rest: text };
    lines.by_ref().for_each(drop);
    Some(text.len() - lines.rest.strip_prefix(b"\r\n")?.len())
}

/// The head of a request. Errors are found here, before a header block is begun: a block that is begun must be sent,
/// because the encoder counts its entries as known to the peer.
pub(crate) struct Request<'a> {
    method: &'a [u8],
    target: &'a [u8],
    lines: &'a [u8],
}

impl<'a> Request<'a> {
    pub(crate) fn of(head: &'a [u8]) -> Result<Self, Untold> {
        let (start, lines) = start_line(head)?;
        let mut words = start.split(|&byte| byte == b' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if method.is_empty() || target.is_empty() {
            return Err(Untold);
        }
        Ok(Self { method, target, lines })
    }

    /// Appends the header block. Returns what is needed to read the response. `may_upgrade` says whether the server
    /// accepts extended CONNECT; an upgrade is only an offer (RFC 9110 §7.8).
    pub(crate) fn compose(
        &self,
        scheme: Scheme,
        may_upgrade: bool,
        encoder: &mut Encoder,
        block: &mut Vec<u8>,
    ) -> RequestKind {
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
            (Some(_), _) => encoder.field(block, b":method", b"CONNECT"),
            (None, b"GET") => encoder.fixed(block, 2),
            (None, b"POST") => encoder.fixed(block, 3),
            (None, method) => encoder.field(block, b":method", method),
        }
        encoder.fixed(block, if scheme == Scheme::Http { 6 } else { 7 });
        encoder.field(block, b":authority", value_of(b"host").unwrap_or_default());
        if target == b"/" {
            encoder.fixed(block, 4);
        } else {
            // RFC 9113 §8.3.1: `*` is the path of an OPTIONS to a server as a whole.
            encoder.field(block, b":path", target);
        }
        if let Some(protocol) = protocol {
            encoder.field(block, b":protocol", protocol);
        }
        for line in (Lines { rest: lines }) {
            // RFC 8441 §5: it says nothing that CONNECT does not.
            if protocol.is_none() || !is_named(line, b"sec-websocket-key") {
                encoder.line(block, line, |name| name != b"host" && !is_of_connection(name));
            }
        }
        asked
    }
}

/// The head of a response. Errors are found here, before a header block is begun.
pub(crate) struct Response<'a> {
    status: &'a [u8],
    number: u16,
    lines: &'a [u8],
}

impl<'a> Response<'a> {
    pub(crate) fn of(head: &'a [u8]) -> Result<Self, Untold> {
        let (start, lines) = start_line(head)?;
        let status = start.get(9..12).filter(|status| status.iter().all(u8::is_ascii_digit)).ok_or(Untold)?;
        let number = status.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0'));
        Ok(Self { status, number, lines })
    }

    /// Whether the status is a success (RFC 9110 §15.3).
    pub(crate) fn is_success(&self) -> bool {
        matches!(self.number, 200..=299)
    }

    /// Appends the header block, and returns the status code.
    pub(crate) fn compose(&self, encoder: &mut Encoder, block: &mut Vec<u8>) -> u16 {
        let Self { status, number, lines } = *self;
        let switches = number == 101;
        match number {
            // RFC 8441 §5: the stream is the other protocol's from here on.
            101 | 200 => encoder.fixed(block, 8),
            304 => encoder.fixed(block, 11),
            404 => encoder.fixed(block, 13),
            _ => encoder.field(block, b":status", status),
        }
        for line in (Lines { rest: lines }) {
            if !switches || !is_named(line, b"sec-websocket-accept") {
                encoder.line(block, line, |name| !is_of_connection(name));
            }
        }
        number
    }
}

/// Appends the header block of trailers, which are lines with CRLF.
pub(crate) fn trailers(lines: &[u8], encoder: &mut Encoder, block: &mut Vec<u8>) {
    for line in (Lines { rest: lines }) {
        encoder.line(block, line, |name| !is_of_connection(name));
    }
}

fn start_line(head: &[u8]) -> Result<(&[u8], &[u8]), Untold> {
    let end = http1::line_end(head, 0).ok_or(Untold)?;
    Ok((&head[..end], head.get(end + 2..).ok_or(Untold)?))
}

/// Lines without their CRLF, up to the empty one.
struct Lines<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let end = http1::line_end(self.rest, 0).filter(|&end| end > 0)?;
        let line = &self.rest[..end];
        self.rest = self.rest.get(end + 2..)?;
        Some(line)
    }
}

/// Whether a line is a field with this name.
fn is_named(line: &[u8], name: &[u8]) -> bool {
    line.split_at_checked(name.len())
        .is_some_and(|(written, rest)| rest.first() == Some(&b':') && written.eq_ignore_ascii_case(name))
}

/// Whether a field is connection-specific, and thus not allowed in HTTP/2 (RFC 9113 §8.2.2).
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
    use crate::decode::Decoder;

    fn said(block: &[u8]) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut said = String::new();
        let field = |name: &[u8], value: &[u8]| said += &format!("{}: {}\n", text(name), text(value));
        Decoder::default().decode(block, field).expect("is a block");
        said
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
            let (mut encoder, mut block) = (Encoder::default(), Vec::new());
            let request = Request::of(text.as_bytes()).expect("is a head");
            request.compose(Scheme::Http, may_upgrade, &mut encoder, &mut block);
            assert_eq!(said(&block), expected, "{text}");
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
            let mut block = Vec::new();
            let response = Response::of(text.as_bytes()).expect("is a head");
            assert_eq!(response.compose(&mut Encoder::default(), &mut block), status);
            assert_eq!(said(&block), expected, "{text}");
        }
        let mut block = Vec::new();
        trailers(b"X-Sum: 1\r\nConnection: x\r\n", &mut Encoder::default(), &mut block);
        assert_eq!(said(&block), "x-sum: 1\n");
    }

    #[test]
    fn what_belongs_to_a_handshake_is_left_out_even_if_it_was_said_before() {
        let (mut encoder, mut block) = (Encoder::default(), Vec::new());
        let mut decoder = Decoder::default();
        for (status, expected) in
            [("200 OK", 2), ("200 OK", 2), ("200 OK", 2), ("101 Switching Protocols", 1)]
        {
            let text = format!("HTTP/1.1 {status}\r\nSec-WebSocket-Accept: k\r\n\r\n");
            block.clear();
            Response::of(text.as_bytes()).expect("is a head").compose(&mut encoder, &mut block);
            let mut count = 0;
            decoder.decode(&block, |_, _| count += 1).expect("is a block");
            assert_eq!(count, expected, "{text}");
        }
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
