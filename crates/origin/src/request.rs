//! Strict parser of request heads: ambiguous heads are rejected, never repaired.
//!
//! `httparse` splits the bytes. This module rejects what `httparse` accepts beyond RFC 9112. `body` parses the body.

use std::mem::MaybeUninit;
use std::ops::Range;

pub(crate) const FIELDS_MAX: usize = 512;

/// Space for the parsed fields, on the caller's stack.
pub(crate) type Slots<'b> = [MaybeUninit<httparse::Header<'b>>; FIELDS_MAX];

/// The reason for a rejection. Each one ends the HTTP/1 connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestRefusal {
    /// No valid request line or fields.
    Head,
    /// A line ends with LF alone.
    BareLineFeed,
    /// The head is longer than `buffer::HEAD_BYTES_MAX`.
    HeadTooLarge,
    /// The request has more fields than `FIELDS_MAX`.
    TooManyFields,
    /// The target has no form of RFC 9112 §3.2, or a broken percent-encoding.
    Target,
    /// Host is missing, repeated or invalid.
    Host,
    /// Content-Length is repeated or not a number.
    ContentLength,
    /// Transfer-Encoding is anything but a single `chunked`.
    TransferEncoding,
    /// The request has both Content-Length and Transfer-Encoding, or Transfer-Encoding in HTTP/1.0.
    ConflictingFraming,
    Chunk,
    Trailer,
    /// The body is larger than the endpoint accepts.
    BodyTooLarge,
}

impl RequestRefusal {
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::HeadTooLarge | Self::TooManyFields => 431,
            Self::BodyTooLarge => 413,
            _ => 400,
        }
    }

    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Head => "the request line or a header field is malformed",
            Self::BareLineFeed => "a line ends in LF without CR",
            Self::HeadTooLarge => "the head is longer than 128 KiB",
            Self::TooManyFields => "the head has more than 512 fields",
            Self::Target => "the request target is malformed",
            Self::Host => "Host is missing, repeated or malformed",
            Self::ContentLength => "Content-Length is repeated or not a number",
            Self::TransferEncoding => "Transfer-Encoding is not one \"chunked\"",
            Self::ConflictingFraming => "Transfer-Encoding is not allowed here",
            Self::Chunk => "a chunk of the body is malformed",
            Self::Trailer => "the trailer section is malformed or too long",
            Self::BodyTooLarge => "the body is larger than this page takes",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestFraming {
    None,
    Length(u64),
    Chunked,
}

/// A parsed head, borrowed from the connection's buffer.
pub(crate) struct Parsed<'h, 'b> {
    pub(crate) method: &'b str,
    pub(crate) target: &'b str,
    pub(crate) fields: &'h [httparse::Header<'b>],
    pub(crate) facts: MessageFacts,
}

/// Facts about the message itself: version, framing, connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageFacts {
    /// HTTP/1.1, not 1.0.
    pub(crate) http11: bool,
    pub(crate) framing: RequestFraming,
    /// The client keeps the connection open after the response.
    pub(crate) keep_alive: bool,
    /// The client waits for 100 (Continue) before it sends the body.
    pub(crate) expects_continue: bool,
    pub(crate) upgrade: bool,
    /// The request has a field that can change the response (a condition, a range): no page from memory is sent.
    pub(crate) selective: bool,
}

/// Parses `head`, a complete head with its blank line.
pub(crate) fn parse<'h, 'b>(
    head: &'b [u8],
    slots: &'h mut Slots<'b>,
) -> Result<Parsed<'h, 'b>, RequestRefusal> {
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(head, slots) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(RequestRefusal::TooManyFields),
        _ => return Err(RequestRefusal::Head),
    }
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Err(RequestRefusal::Head);
    };
    // RFC 9112 §3.2: a target is visible ASCII, and has no fragment.
    if !target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err(RequestRefusal::Target);
    }
    let facts = MessageFacts::from_fields(request.headers, version == 1)?;
    Ok(Parsed { method, target, fields: request.headers, facts })
}

impl MessageFacts {
    fn from_fields(fields: &[httparse::Header<'_>], http11: bool) -> Result<Self, RequestRefusal> {
        let mut facts = Self {
            http11,
            framing: RequestFraming::None,
            keep_alive: http11,
            expects_continue: false,
            upgrade: false,
            selective: false,
        };
        let (mut hosts, mut length, mut chunked) = (0, None, false);
        for field in fields {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            match field.name.len() {
                4 if is("host") => {
                    hosts += 1;
                    host_is_valid(field.value).then_some(()).ok_or(RequestRefusal::Host)?;
                }
                // RFC 9110 §8.6: repeated lengths, even equal ones, may be rejected. They are.
                14 if is("content-length") && length.is_some() => return Err(RequestRefusal::ContentLength),
                14 if is("content-length") => length = Some(content_length(field.value)?),
                17 if is("transfer-encoding") => {
                    let once = !chunked && field.value.eq_ignore_ascii_case(b"chunked");
                    chunked = once.then_some(true).ok_or(RequestRefusal::TransferEncoding)?;
                }
                10 if is("connection") => facts.read_connection(field.value),
                6 if is("expect") => {
                    facts.expects_continue = field.value.eq_ignore_ascii_case(b"100-continue");
                }
                5 if is("range") => facts.selective = true,
                _ => {
                    facts.selective |=
                        field.name.get(..3).is_some_and(|name| name.eq_ignore_ascii_case("if-"));
                }
            }
        }
        // RFC 9112 §3.2: exactly one Host; HTTP/1.0 may lack it.
        if hosts > 1 || (hosts == 0 && http11) {
            return Err(RequestRefusal::Host);
        }
        // RFC 9112 §6.1: both framings together, or chunked from an HTTP/1.0 client, are an attack or a fault.
        facts.framing = match (length, chunked) {
            (Some(_), true) => return Err(RequestRefusal::ConflictingFraming),
            (None, true) if !http11 => return Err(RequestRefusal::ConflictingFraming),
            (None, true) => RequestFraming::Chunked,
            (Some(0) | None, false) => RequestFraming::None,
            (Some(length), false) => RequestFraming::Length(length),
        };
        // RFC 9110 §10.1.1: an HTTP/1.0 client, or a request without a body, gets no 100.
        facts.expects_continue &= http11 && facts.framing != RequestFraming::None;
        Ok(facts)
    }

    fn read_connection(&mut self, value: &[u8]) {
        for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            if option.eq_ignore_ascii_case(b"close") {
                self.keep_alive = false;
            } else if option.eq_ignore_ascii_case(b"keep-alive") && !self.http11 {
                self.keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"upgrade") {
                self.upgrade = true;
            }
        }
    }
}

fn content_length(value: &[u8]) -> Result<u64, RequestRefusal> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| digits);
    text.and_then(|text| text.parse().ok()).ok_or(RequestRefusal::ContentLength)
}

/// Whether a Host value can be valid (RFC 9110 §7.2). Rejects bytes that no host has; an empty value is valid.
fn host_is_valid(value: &[u8]) -> bool {
    value.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=:[]%".contains(byte))
}

/// An owned request, for requests that are not answered at once.
pub(crate) struct OwnedRequest {
    bytes: Box<[u8]>,
    pub(crate) method: String,
    pub(crate) target: String,
    fields: Vec<(Range<usize>, Range<usize>)>,
    pub(crate) facts: MessageFacts,
    pub(crate) version: &'static str,
    /// Protocol of an extended CONNECT (RFC 8441), for HTTP/2.
    pub(crate) protocol: Option<String>,
}

impl OwnedRequest {
    pub(crate) fn new(head: &[u8], parsed: &Parsed<'_, '_>) -> Self {
        let offset = |part: &[u8]| part.as_ptr().addr() - head.as_ptr().addr();
        let span = |part: &[u8]| if part.is_empty() { 0..0 } else { offset(part)..offset(part) + part.len() };
        Self {
            bytes: head.into(),
            method: parsed.method.to_owned(),
            target: parsed.target.to_owned(),
            fields: parsed
                .fields
                .iter()
                .map(|field| (span(field.name.as_bytes()), span(field.value)))
                .collect(),
            facts: parsed.facts,
            version: if parsed.facts.http11 { "HTTP/1.1" } else { "HTTP/1.0" },
            protocol: None,
        }
    }

    /// Builds an HTTP/2 or HTTP/3 request from its fields in order, pseudo-header fields first, shown as lines.
    pub(crate) fn of_stream(
        version: &'static str,
        method: &str,
        target: &str,
        protocol: Option<&str>,
        named: &[(&str, &[u8])],
        has_body: bool,
    ) -> Result<Self, RequestRefusal> {
        let (mut bytes, mut fields) = (Vec::new(), Vec::new());
        let mut put = |part: &[u8], end: &[u8]| {
            let span = bytes.len()..bytes.len() + part.len();
            bytes.extend_from_slice(part);
            bytes.extend_from_slice(end);
            span
        };
        for (name, value) in named {
            fields.push((put(name.as_bytes(), b": "), put(value, b"\r\n")));
        }
        put(b"\r\n", b"");
        let value = |wanted: &str| named.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
        let framing = match value("content-length") {
            _ if !has_body => RequestFraming::None,
            Some(length) => RequestFraming::Length(content_length(length)?),
            None => RequestFraming::Chunked,
        };
        let facts = MessageFacts {
            http11: true,
            framing,
            keep_alive: true,
            expects_continue: has_body && value("expect").is_some_and(|value| value == b"100-continue"),
            upgrade: protocol.is_some(),
            selective: true,
        };
        Ok(Self {
            bytes: bytes.into(),
            method: method.to_owned(),
            target: target.to_owned(),
            fields,
            facts,
            version,
            protocol: protocol.map(str::to_owned),
        })
    }

    /// The head as it was received, with its blank line.
    pub(crate) fn head(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    pub(crate) fn is_get_or_head(&self) -> bool {
        self.method == "GET" || self.is_head()
    }

    /// The fields in order, with names as they were written and values without surrounding white space.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().map(|(name, value)| {
            (std::str::from_utf8(&self.bytes[name.clone()]).unwrap_or_default(), &self.bytes[value.clone()])
        })
    }

    /// Values of all fields with this name, in order.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.fields().filter(move |(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Values of all fields with this name as one list (RFC 9110 §5.3); `None` if there is no such field.
    pub(crate) fn list(&self, name: &str) -> Option<String> {
        let values: Vec<_> = self.values(name).map(String::from_utf8_lossy).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(head: &str) -> Result<MessageFacts, RequestRefusal> {
        let mut slots = [const { MaybeUninit::uninit() }; FIELDS_MAX];
        parse(head.as_bytes(), &mut slots).map(|parsed| parsed.facts)
    }

    fn fields(fields: &str) -> Result<MessageFacts, RequestRefusal> {
        facts(&format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
    }

    #[test]
    fn request_lines() {
        for line in [
            "GET / HTTP/1.1",
            "GET /a?b=c HTTP/1.1",
            "OPTIONS * HTTP/1.1",
            "GET http://a/b HTTP/1.1",
            "M-SEARCH / HTTP/1.1",
        ] {
            assert!(facts(&format!("{line}\r\nHost: a\r\n\r\n")).is_ok(), "{line}");
        }
        for line in [
            "GET  / HTTP/1.1",
            "GET /  HTTP/1.1",
            "GET\t/ HTTP/1.1",
            " GET / HTTP/1.1",
            "GET / HTTP/1.1 ",
            "GET / HTTP/2.0",
            "GET / http/1.1",
            "GET / HTTP/1.10",
            "GET /",
            "GET",
            "G@T / HTTP/1.1",
            "GET /a b HTTP/1.1",
            "GET /\u{e9} HTTP/1.1",
            "GET /a#b HTTP/1.1",
            "GET /\0 HTTP/1.1",
        ] {
            assert!(facts(&format!("{line}\r\nHost: a\r\n\r\n")).is_err(), "{line}");
        }
    }

    #[test]
    fn malformed_fields() {
        for field in [
            "a : b\r\n",
            "a\r\n",
            ": b\r\n",
            "a: b\r\n c\r\n",
            " a: b\r\n",
            "a: b\0c\r\n",
            "a: b\rc\r\n",
            "a b: c\r\n",
            "a\u{e9}: c\r\n",
            "a: b\x7f\r\n",
            "(a): b\r\n",
        ] {
            assert_eq!(fields(field), Err(RequestRefusal::Head), "{field:?}");
        }
        assert!(fields("a:\r\nb: \t x\t \r\nc: \u{e9}\tx\r\n").is_ok());
        assert_eq!(fields(&"a: b\r\n".repeat(FIELDS_MAX)), Err(RequestRefusal::TooManyFields));
    }

    #[test]
    fn rfc9112_3_2_host() {
        for (head, expected) in [
            ("GET / HTTP/1.1\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", false),
            ("GET / HTTP/1.0\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nHost:\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nHost: example.com:80\r\n\r\n", true),
        ] {
            assert_eq!(facts(head).is_ok(), expected, "{head:?}");
        }
    }

    #[test]
    fn rfc9112_6_framing() {
        for (text, expected) in [
            ("", Ok(RequestFraming::None)),
            ("Content-Length: 0\r\n", Ok(RequestFraming::None)),
            ("Content-Length: 5\r\n", Ok(RequestFraming::Length(5))),
            ("content-length:5\r\n", Ok(RequestFraming::Length(5))),
            ("Transfer-Encoding: chunked\r\n", Ok(RequestFraming::Chunked)),
            ("Transfer-Encoding: Chunked\r\n", Ok(RequestFraming::Chunked)),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", Err(RequestRefusal::ContentLength)),
            ("Content-Length: 5, 5\r\n", Err(RequestRefusal::ContentLength)),
            ("Content-Length: +5\r\n", Err(RequestRefusal::ContentLength)),
            ("Content-Length: -5\r\n", Err(RequestRefusal::ContentLength)),
            ("Content-Length: 0x5\r\n", Err(RequestRefusal::ContentLength)),
            ("Content-Length: 5 5\r\n", Err(RequestRefusal::ContentLength)),
            ("Content-Length:\r\n", Err(RequestRefusal::ContentLength)),
            ("Content-Length: 18446744073709551616\r\n", Err(RequestRefusal::ContentLength)),
            ("Transfer-Encoding: xchunked\r\n", Err(RequestRefusal::TransferEncoding)),
            ("Transfer-Encoding: gzip, chunked\r\n", Err(RequestRefusal::TransferEncoding)),
            ("Transfer-Encoding: chunked, chunked\r\n", Err(RequestRefusal::TransferEncoding)),
            ("Transfer-Encoding: identity\r\n", Err(RequestRefusal::TransferEncoding)),
            ("Transfer-Encoding:\r\n", Err(RequestRefusal::TransferEncoding)),
            ("Transfer-Encoding: \x0bchunked\r\n", Err(RequestRefusal::Head)),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                Err(RequestRefusal::TransferEncoding),
            ),
            ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Err(RequestRefusal::ConflictingFraming)),
            ("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", Err(RequestRefusal::ConflictingFraming)),
        ] {
            assert_eq!(fields(text).map(|facts| facts.framing), expected, "{text:?}");
        }
        let http10 = facts("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(http10, Err(RequestRefusal::ConflictingFraming));
    }

    #[test]
    fn rfc9112_9_3_persistence() {
        for (head, expected) in [
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nHost: a\r\nConnection: foo, Close\r\n\r\n", false),
            ("GET / HTTP/1.0\r\n\r\n", false),
            ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true),
        ] {
            assert_eq!(facts(head).map(|facts| facts.keep_alive), Ok(expected), "{head:?}");
        }
    }

    #[test]
    fn a_copied_head_reads_like_the_parsed_one() {
        let head = b"GET /x HTTP/1.1\r\nHost: a\r\nX-One:  1 \r\nEmpty:\r\nx-one: 2\r\n\r\n";
        let mut slots = [const { MaybeUninit::uninit() }; FIELDS_MAX];
        let parsed = parse(head, &mut slots).expect("is well-formed");
        let request = OwnedRequest::new(head, &parsed);
        let fields: Vec<_> = request.fields().collect();
        let expected: [(&str, &[u8]); 4] = [("Host", b"a"), ("X-One", b"1"), ("Empty", b""), ("x-one", b"2")];
        assert_eq!(fields, expected);
        assert_eq!(request.list("X-ONE").as_deref(), Some("1, 2"));
        assert_eq!(request.list("missing"), None);
        assert_eq!(request.head(), head);
    }
}
