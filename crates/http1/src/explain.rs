//! Explains in words why a message was rejected: the line or field, the rule, the limit.
//!
//! Rejections are rare, so a rejected message is parsed a second time, and normal parsing keeps nothing for this. Field
//! values may be secrets: only values of framing and routing fields are quoted.

use memchr::memchr;

use crate::chunked::{self, ChunkError};
use crate::framing::FramingError;
use crate::head::{HttpVersion, MessageHead, RequestHead, RequestLine, StatusLine};
use crate::hop::{NEVER_NAMED, OPTIONS_BYTES_MAX, tokens};
use crate::name::Name;
use crate::parse::{
    HeadError, HeadLimits, METHOD_BYTES_MAX, StartLine, field, is_target_byte, is_token_byte,
};
use crate::target::{HOST_BYTES_MAX, TargetError};

/// Longest quotation of any part of a message.
const QUOTE_BYTES: usize = 64;

/// Quotes bytes of a message for printing. Bytes other than visible ASCII are escaped, and long text is cut.
pub fn quote(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(QUOTE_BYTES)];
    let more = if shown.len() < bytes.len() { "..." } else { "" };
    format!("'{}{more}'", shown.escape_ascii().to_string().replace("\\'", "'").replace("\\\"", "\""))
}

/// Describes a byte: visible ASCII is quoted, others are named or hexadecimal.
fn named(byte: u8) -> String {
    match byte {
        b' ' => "a space".to_owned(),
        b'\t' => "a tab".to_owned(),
        b'!'..=b'~' => format!("'{}'", char::from(byte)),
        _ => format!("the byte 0x{byte:02x}"),
    }
}

/// Explains why the request head at the start of `bytes` is rejected; `None` if it is not.
#[cold]
pub fn request_refusal(bytes: &[u8], limits: &HeadLimits) -> Option<String> {
    let error = MessageHead::<RequestLine>::default().parse(bytes, limits).err()?;
    Some(head_refusal::<RequestLine>(error, bytes, limits, "request"))
}

/// Explains why the response head at the start of `bytes` is rejected; `None` if it is not.
#[cold]
pub fn response_refusal(bytes: &[u8], limits: &HeadLimits) -> Option<String> {
    let error = MessageHead::<StatusLine>::default().parse(bytes, limits).err()?;
    Some(head_refusal::<StatusLine>(error, bytes, limits, "status"))
}

enum FaultyLine<'a> {
    Start(&'a [u8]),
    Field {
        line: &'a [u8],
        /// The previous line, if it is a field too.
        before: Option<&'a [u8]>,
    },
}

/// Finds the first invalid line, or the incomplete one.
fn line_at_fault<'a, Start: StartLine>(bytes: &'a [u8], limits: &HeadLimits) -> FaultyLine<'a> {
    let mut at = 0;
    let mut is_start = true;
    let mut before = None;
    loop {
        let rest = &bytes[at..];
        let len = memchr(b'\n', rest);
        let raw = &rest[..len.unwrap_or(rest.len())];
        let line = raw.strip_suffix(b"\r").unwrap_or(raw);
        let is_skipped = is_start && at == 0 && line.is_empty() && Start::MAY_FOLLOW_EMPTY_LINE;
        // A line that ends in LF alone is at fault, whatever it contains.
        let is_whole = len.is_some() && line.len() < raw.len();
        let is_right = is_whole
            && (is_skipped
                || if is_start { Start::parse(line, at, limits).is_ok() } else { field(line, at).is_ok() });
        if !is_right {
            return if is_start { FaultyLine::Start(line) } else { FaultyLine::Field { line, before } };
        }
        before = (!is_start).then_some(line);
        is_start = is_skipped;
        at += raw.len() + 1;
    }
}

fn head_refusal<Start: StartLine>(
    error: HeadError,
    bytes: &[u8],
    limits: &HeadLimits,
    start: &str,
) -> String {
    let bytes = &bytes[..bytes.len().min(limits.bytes)];
    match error {
        HeadError::TooLarge => {
            return format!("the head is larger than limits.header_bytes, {} bytes", limits.bytes);
        }
        HeadError::TooManyFields => {
            return format!("there are more header fields than limits.header_count, {}", limits.fields);
        }
        // Two limits lead here. Without the end of a line, the one for the whole head was reached.
        HeadError::TargetTooLong if memchr(b'\n', bytes).is_none() => {
            return format!(
                "the request line does not end within limits.header_bytes, {} bytes",
                limits.bytes
            );
        }
        HeadError::TargetTooLong => {
            return format!("the target is longer than limits.target_bytes, {} bytes", limits.target);
        }
        _ => {}
    }
    let line = line_at_fault::<Start>(bytes, limits);
    let subject = match line {
        // The target stays out of the message: a query may contain secrets.
        FaultyLine::Start(_) => format!("the {start} line"),
        FaultyLine::Field { line, .. } => field_line(line),
    };
    match (error, line) {
        (HeadError::BareLf, _) => format!("{subject} ends in LF without CR (RFC 9112 §2.2)"),
        (HeadError::BareCr, _) => format!("{subject} contains a CR that no LF follows (RFC 9112 §2.2)"),
        // Behind the errors of line ends, which concern any line.
        (_, FaultyLine::Start(line)) => start_line(error, line, start),
        (HeadError::Folded, FaultyLine::Field { before, .. }) => {
            let before = before.map_or_else(|| format!("the {start} line"), field_line);
            format!("the line after {before} begins with white space: folded (RFC 9112 §5.2)")
        }
        (HeadError::FieldValue, FaultyLine::Field { line, .. }) => {
            // Only the position and the byte: the value may be a secret.
            let at = line.iter().position(|byte| byte.is_ascii_control() && *byte != b'\t').unwrap_or(0);
            let byte = line.get(at).map_or_else(String::new, |&byte| named(byte));
            format!("{subject} contains {byte} at {at}, which a value must not contain (RFC 9110 §5.5)")
        }
        (_, FaultyLine::Field { line, .. }) => field_name(line, &subject),
    }
}

/// Explains why the name of a field is invalid.
fn field_name(line: &[u8], subject: &str) -> String {
    let end = line.iter().position(|&byte| !is_token_byte(byte));
    match (end, end.and_then(|end| line.get(end))) {
        (Some(0), Some(b':')) => "a field has no name (RFC 9112 §5)".to_owned(),
        (Some(end), Some(&byte)) if memchr(b':', line).is_some() => {
            // A space before the colon is the frequent case, and RFC 9112 §5.1 is about it.
            let is_before_colon = line[end..].trim_ascii_start().starts_with(b":");
            let rule = if is_before_colon {
                "before its colon (RFC 9112 §5.1)"
            } else {
                "in its name (RFC 9110 §5.1)"
            };
            format!("{subject} has {} {rule}", named(byte))
        }
        _ => format!("{subject} has no colon (RFC 9112 §5)"),
    }
}

/// Quotes only the name of a field line. Without a colon the end of the name is unknown, so nothing is quoted.
fn field_line(line: &[u8]) -> String {
    match memchr(b':', line) {
        Some(colon) => format!("the field {}", quote(&line[..colon])),
        None => {
            let end = line.iter().position(|&byte| !is_token_byte(byte)).unwrap_or(line.len());
            format!("the line that begins with {}", quote(&line[..end]))
        }
    }
}

/// Explains why a start line is invalid. Does not quote its target: a query may contain secrets.
fn start_line(error: HeadError, line: &[u8], start: &str) -> String {
    let method_end = line.iter().position(|&byte| !is_token_byte(byte)).unwrap_or(line.len());
    let (method, behind) = line.split_at(method_end);
    match error {
        HeadError::StatusLine => {
            format!("the status line {} is not version, status and reason (RFC 9112 §4)", quote(line))
        }
        HeadError::FieldValue => "the reason phrase contains a control byte (RFC 9112 §4)".to_owned(),
        HeadError::MethodTooLong => {
            format!("the method {} is longer than {METHOD_BYTES_MAX} bytes", quote(method))
        }
        HeadError::Method => {
            let byte = behind.first().map_or_else(|| "nothing".to_owned(), |&byte| named(byte));
            format!("the method {} is followed by {byte} (RFC 9110 §9.1)", quote(method))
        }
        HeadError::TargetByte => {
            let target = behind.get(1..).unwrap_or_default();
            let at = target.iter().position(|&byte| !is_target_byte(byte)).unwrap_or(0);
            let byte = target.get(at).map_or_else(String::new, |&byte| named(byte));
            format!("the target contains {byte} at {at}, which a target must not contain (RFC 9112 §3.2)")
        }
        HeadError::Version if start == "status" && !line.starts_with(b"HTTP/") => {
            format!("the status line {} does not begin with HTTP/1 (RFC 9112 §4)", quote(line))
        }
        HeadError::Version => {
            let version = line.rsplit(|&byte| byte == b' ').next().unwrap_or_default();
            let version = if line.starts_with(b"HTTP/") { &line[..line.len().min(8)] } else { version };
            format!("the version {} is not HTTP/1.0 or HTTP/1.1 (RFC 9112 §2.3)", quote(version))
        }
        // RFC 8446 §5.1: a handshake record.
        _ if line.starts_with(b"\x16\x03") => {
            "the client began a TLS handshake, but this port has no TLS".to_owned()
        }
        _ if method.is_empty() => {
            format!("the {start} line begins with {} (RFC 9112 §2.1)", quote(&line[..line.len().min(8)]))
        }
        _ => format!(
            "the request line that begins with {} is not method, target and version with single spaces (RFC 9112 §3)",
            quote(method)
        ),
    }
}

/// Lists the name and the values of all fields with this name.
fn values<Start>(head: &MessageHead<Start>, bytes: &[u8], name: Name) -> String {
    format!("{} {}", name.text(), listed(head, bytes, name))
}

fn listed<Start>(head: &MessageHead<Start>, bytes: &[u8], name: Name) -> String {
    // A few values show the contradiction; a message with hundreds must not fill the log.
    let values: Vec<String> = head.values(bytes, name).take(3).map(quote).collect();
    values.join(" and ")
}

/// Explains why the target or Host of a complete request head is rejected.
#[cold]
pub fn target_refusal(error: TargetError, head: &RequestHead, bytes: &[u8]) -> String {
    let method = quote(head.start.method_span.for_bytes(bytes));
    match error {
        TargetError::HostMissing => "there is no Host (RFC 9112 §3.2)".to_owned(),
        TargetError::HostRepeated => {
            format!("there is more than one Host: {} (RFC 9112 §3.2)", listed(head, bytes, Name::Host))
        }
        TargetError::HostInvalid
            if head.value(bytes, Name::Host).is_some_and(|host| host.len() > HOST_BYTES_MAX) =>
        {
            format!("{} is longer than {HOST_BYTES_MAX} bytes", values(head, bytes, Name::Host))
        }
        TargetError::HostInvalid => {
            format!("{} is not host[:port] (RFC 3986 §3.2.2)", values(head, bytes, Name::Host))
        }
        TargetError::Form => format!("the form of the target is not valid for {method} (RFC 9112 §3.2)"),
        TargetError::Absolute => {
            "the target is not an http or https URL with a host and without a user (RFC 9112 §3.2.2)"
                .to_owned()
        }
    }
}

/// Explains why the framing of a message with a complete head is rejected.
#[cold]
pub fn framing_refusal<Start>(error: FramingError, head: &MessageHead<Start>, bytes: &[u8]) -> String {
    let length = || values(head, bytes, Name::ContentLength);
    let coding = || values(head, bytes, Name::TransferEncoding);
    match error {
        FramingError::BothLengthAndCoding => {
            format!("there are both {} and {} (RFC 9112 §6.1)", length(), coding())
        }
        FramingError::LengthRepeated => {
            format!(
                "there is more than one Content-Length: {} (RFC 9112 §6.3)",
                listed(head, bytes, Name::ContentLength)
            )
        }
        FramingError::LengthInvalid => {
            format!("{} is not a number of bytes below 2^63 (RFC 9110 §8.6)", length())
        }
        FramingError::CodingUnknown if head.values(bytes, Name::TransferEncoding).count() > 1 => {
            format!(
                "there is more than one Transfer-Encoding: {} (RFC 9112 §6.1)",
                listed(head, bytes, Name::TransferEncoding)
            )
        }
        FramingError::CodingUnknown => format!("{} is not 'chunked' (RFC 9112 §7)", coding()),
        FramingError::CodingInHttp10 => format!("{} is in a message of HTTP/1.0 (RFC 9112 §6.1)", coding()),
        FramingError::Disguised => {
            let is_disguised =
                |name| matches!(name, Name::DisguisedContentLength | Name::DisguisedTransferEncoding);
            let field = head.fields.iter().find(|field| is_disguised(field.known));
            let name = field.map_or_else(String::new, |field| quote(field.name.for_bytes(bytes)));
            format!("some servers take the field {name} for a framing field")
        }
    }
}

/// Explains why the Connection field of a complete head is rejected.
#[cold]
pub fn connection_refusal<Start>(head: &MessageHead<Start>, bytes: &[u8]) -> String {
    let mut named = head.values(bytes, Name::Connection).flat_map(tokens);
    match named.find(|token| NEVER_NAMED.has(Name::from_name(token))) {
        _ if is_connection_too_long(head, bytes) => {
            format!("the options of Connection are longer than {OPTIONS_BYTES_MAX} bytes")
        }
        Some(token) => {
            format!("Connection names {}, which no proxy may remove (RFC 9110 §7.6.1)", quote(token))
        }
        None => "the field Connection is not valid".to_owned(),
    }
}

/// Whether the Connection field is rejected because of its length.
#[cold]
pub fn is_connection_too_long<Start>(head: &MessageHead<Start>, bytes: &[u8]) -> bool {
    head.values(bytes, Name::Connection).map(<[u8]>::len).sum::<usize>() > OPTIONS_BYTES_MAX
}

impl ChunkError {
    pub fn rule(self) -> String {
        let limits = chunked::LIMITS;
        match self {
            Self::Size => "a chunk size that is missing or not hexadecimal (RFC 9112 §7.1)".to_owned(),
            Self::SizeTooLarge => "a chunk size of more than 15 digits".to_owned(),
            Self::Terminator => "no CRLF at the end of a chunk or a line (RFC 9112 §7.1)".to_owned(),
            Self::Extension => "a control byte in a chunk extension (RFC 9112 §7.1.1)".to_owned(),
            Self::ExtensionsTooLarge => {
                format!("chunk extensions of more than {} bytes", limits.extension_bytes)
            }
            Self::Trailer => "a trailer line that is not a field (RFC 9112 §7.1.2)".to_owned(),
            Self::TrailersTooLarge => format!("trailers of more than {} bytes", limits.trailer_bytes),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Glimpse<'a> {
    /// Empty if the method is missing.
    pub method: &'a [u8],
    pub target: &'a [u8],
    /// `None` if the request line is incomplete.
    pub version: Option<HttpVersion>,
}

impl<'a> Glimpse<'a> {
    #[cold]
    pub fn from_bytes(bytes: &'a [u8]) -> Self {
        let bytes = bytes.strip_prefix(b"\r\n").unwrap_or(bytes);
        let line = &bytes[..memchr(b'\n', bytes).unwrap_or(bytes.len())];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let end = line.iter().position(|&byte| !is_token_byte(byte)).unwrap_or(line.len());
        if end == 0 || end > METHOD_BYTES_MAX || line.get(end) != Some(&b' ') {
            return Self::default();
        }
        let (target, version) = match line[end + 1..].iter().rposition(|&byte| byte == b' ') {
            Some(space) => (&line[end + 1..end + 1 + space], &line[end + 2 + space..]),
            None => (&line[end + 1..], b"".as_slice()),
        };
        let version = match version {
            b"HTTP/1.1" => Some(HttpVersion::Http11),
            b"HTTP/1.0" => Some(HttpVersion::Http10),
            _ => None,
        };
        Self { method: &line[..end], target, version }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::{request_framing, response_framing};
    use crate::head::ResponseHead;
    use crate::hop::ConnectionOptions;
    use crate::parse::Parsed;
    use crate::target::RequestTarget;

    const LIMITS: HeadLimits = HeadLimits { bytes: 256, fields: 4, target: 32 };

    #[test]
    fn the_line_and_the_rule_are_named() {
        let long = "x".repeat(300);
        let rows: &[(&str, &str)] = &[
            (
                "GET / HTTP/1.1\r\nHost: a\r\nX-Trace(id): 1\r\n\r\n",
                "the field 'X-Trace(id)' has '(' in its name (RFC 9110 §5.1)",
            ),
            (
                "GET / HTTP/1.1\r\nAuthorization : Basic c2VjcmV0\r\n\r\n",
                "the field 'Authorization ' has a space before its colon (RFC 9112 §5.1)",
            ),
            (
                "GET / HTTP/1.1\r\nCookie: a=secret\u{1}\r\n\r\n",
                "the field 'Cookie' contains the byte 0x01 at 16, which a value must not contain (RFC 9110 §5.5)",
            ),
            (
                "GET / HTTP/1.1\r\nCookie: a\r\n secret\r\n\r\n",
                "the line after the field 'Cookie' begins with white space: folded (RFC 9112 §5.2)",
            ),
            (
                "GET / HTTP/1.1\r\nCookie secret\r\n\r\n",
                "the line that begins with 'Cookie' has no colon (RFC 9112 §5)",
            ),
            ("GET / HTTP/1.1\r\n: a\r\n\r\n", "a field has no name (RFC 9112 §5)"),
            (
                "GET / HTTP/1.1\r\nHost: a\nB: c\r\n\r\n",
                "the field 'Host' ends in LF without CR (RFC 9112 §2.2)",
            ),
            ("GET / HTTP/1.1\nHost: a\r\n\r\n", "the request line ends in LF without CR (RFC 9112 §2.2)"),
            (
                "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
                "the field 'A' contains a CR that no LF follows (RFC 9112 §2.2)",
            ),
            (
                "\r\nGET /a#b HTTP/1.1\r\n",
                "the target contains '#' at 2, which a target must not contain (RFC 9112 §3.2)",
            ),
            (
                "GET  / HTTP/1.1\r\n",
                "the request line that begins with 'GET' is not method, target and version with single spaces (RFC \
                 9112 §3)",
            ),
            ("GET / HTTP/2.5\r\n", "the version 'HTTP/2.5' is not HTTP/1.0 or HTTP/1.1 (RFC 9112 §2.3)"),
            ("G(T / HTTP/1.1\r\n", "the method 'G' is followed by '(' (RFC 9110 §9.1)"),
            ("\u{16}\u{3}\u{1}\u{2}", "the client began a TLS handshake, but this port has no TLS"),
            ("{\"a\":1}\r\n", "the request line begins with '{\"a\":1}' (RFC 9112 §2.1)"),
            (
                "GET / HTTP/1.1\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\n\r\n",
                "there are more header fields than limits.header_count, 4",
            ),
            (
                "GET /0123456789012345678901234567890123456789 HTTP/1.1\r\n",
                "the target is longer than limits.target_bytes, 32 bytes",
            ),
        ];
        for (head, expected) in rows {
            assert_eq!(request_refusal(head.as_bytes(), &LIMITS).as_deref(), Some(*expected), "{head:?}");
        }
        for (head, expected) in [
            (
                format!("GET / HTTP/1.1\r\nA: {long}\r\n\r\n"),
                "the head is larger than limits.header_bytes, 256 bytes".to_owned(),
            ),
            (
                format!("GET /{long}"),
                "the request line does not end within limits.header_bytes, 256 bytes".to_owned(),
            ),
            (
                format!("{long} / HTTP/1.1\r\n")[234..].to_owned(),
                format!("the method '{}...' is longer than 64 bytes", "x".repeat(64)),
            ),
        ] {
            assert_eq!(request_refusal(head.as_bytes(), &LIMITS), Some(expected), "{head:?}");
        }
        for (head, expected) in [
            (
                "HTTP/1.1 200 OK\r\nX Trace: 1\r\n\r\n",
                "the field 'X Trace' has a space in its name (RFC 9110 §5.1)",
            ),
            (
                "HTTP/1.1 999 No\r\n\r\n",
                "the status line 'HTTP/1.1 999 No' is not version, status and reason (RFC 9112 §4)",
            ),
            ("HTTP/1.1 200 O\u{1}K\r\n\r\n", "the reason phrase contains a control byte (RFC 9112 §4)"),
            ("\0\0\0HTTP/1.1", "the status line begins with '\\x00\\x00\\x00HTTP/' (RFC 9112 §2.1)"),
            ("HTTP/3.0 200 OK\r\n\r\n", "the version 'HTTP/3.0' is not HTTP/1.0 or HTTP/1.1 (RFC 9112 §2.3)"),
        ] {
            assert_eq!(response_refusal(head.as_bytes(), &LIMITS).as_deref(), Some(expected), "{head:?}");
        }
        assert_eq!(request_refusal(b"GET / HTTP/1.1\r\n\r\n", &LIMITS), None);
    }

    #[test]
    fn fields_that_frame_and_route_are_quoted() {
        let rows: &[(&str, &str)] = &[
            ("A: b", "there is no Host (RFC 9112 §3.2)"),
            ("Host: a b", "Host 'a b' is not host[:port] (RFC 3986 §3.2.2)"),
            ("Host: a\r\nHost: b", "there is more than one Host: 'a' and 'b' (RFC 9112 §3.2)"),
            (
                "Host: a\r\nContent-Length: +5",
                "Content-Length '+5' is not a number of bytes below 2^63 (RFC 9110 §8.6)",
            ),
            (
                "Host: a\r\nContent-Length: 5\r\nContent-Length: 5",
                "there is more than one Content-Length: '5' and '5' (RFC 9112 §6.3)",
            ),
            (
                "Host: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
                "there are both Content-Length '5' and Transfer-Encoding 'chunked' (RFC 9112 §6.1)",
            ),
            ("Host: a\r\nTransfer-Encoding: gzip", "Transfer-Encoding 'gzip' is not 'chunked' (RFC 9112 §7)"),
            (
                "Host: a\r\nTransfer_Encoding: chunked",
                "some servers take the field 'Transfer_Encoding' for a framing field",
            ),
            (
                "Host: a\r\nConnection: close, host",
                "Connection names 'host', which no proxy may remove (RFC 9110 §7.6.1)",
            ),
        ];
        for (fields, expected) in rows {
            let text = format!("GET / HTTP/1.1\r\n{fields}\r\n\r\n");
            let bytes = text.as_bytes();
            let mut head = RequestHead::default();
            assert_eq!(head.parse(bytes, &LIMITS), Ok(Parsed::Complete), "{fields}");
            let told = match (RequestTarget::from_head(&head, bytes), request_framing(&head, bytes)) {
                (Err(error), _) => target_refusal(error, &head, bytes),
                (_, Err(error)) => framing_refusal(error, &head, bytes),
                _ if ConnectionOptions::from_head(&head, bytes).is_err() => connection_refusal(&head, bytes),
                _ => String::new(),
            };
            assert_eq!(told, *expected, "{fields}");
        }
        let bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut head = ResponseHead::default();
        assert_eq!(head.parse(bytes, &LIMITS), Ok(Parsed::Complete));
        let error = response_framing(&head, bytes, false).expect_err("it is said twice");
        let expected = "there is more than one Transfer-Encoding: 'chunked' and 'chunked' (RFC 9112 §6.1)";
        assert_eq!(framing_refusal(error, &head, bytes), expected);
    }

    #[test]
    fn a_request_line_is_seen_as_far_as_it_was_read() {
        let glimpse = |bytes: &'static [u8]| {
            let Glimpse { method, target, version } = Glimpse::from_bytes(bytes);
            (method, target, version)
        };
        let none = (&b""[..], &b""[..], None);
        assert_eq!(glimpse(b"GET /a HTTP/1.1\r\nHo"), (&b"GET"[..], &b"/a"[..], Some(HttpVersion::Http11)));
        assert_eq!(
            glimpse(b"\r\nGET /a b HTTP/1.0\n"),
            (&b"GET"[..], &b"/a b"[..], Some(HttpVersion::Http10))
        );
        assert_eq!(glimpse(b"GET /a"), (&b"GET"[..], &b"/a"[..], None));
        assert_eq!(glimpse(b"GET "), (&b"GET"[..], &b""[..], None));
        assert_eq!([glimpse(b""), glimpse(b"GE"), glimpse(b"\x16\x03\x01")], [none; 3]);
    }

    proptest::proptest! {
        #[test]
        fn explanations_are_printable(bytes: Vec<u8>, head in "[A-Z/ :\r\n\t\u{1}a(\"]{0,80}") {
            for bytes in [&bytes[..], head.as_bytes(), &[b"GET / HTTP/1.1\r\n", head.as_bytes()].concat()] {
                let refused = RequestHead::default().parse(bytes, &LIMITS).is_err();
                let told = request_refusal(bytes, &LIMITS);
                proptest::prop_assert_eq!(told.is_some(), refused);
                let told = told.unwrap_or_default() + &response_refusal(bytes, &LIMITS).unwrap_or_default();
                proptest::prop_assert!(!told.chars().any(char::is_control), "{}", told);
                proptest::prop_assert!(told.len() < 600, "{}", told);
                let _ = Glimpse::from_bytes(bytes);
            }
        }
    }
}
