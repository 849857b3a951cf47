//! Converts the head of a CGI response (RFC 3875 §6) to HTTP/1.1 text.
//!
//! Lines end in CRLF or LF. What the response says about its connection is dropped, because the proxy decides that; a
//! line that two readers could understand differently is refused.

use http1::{Name, is_bodiless, reason_phrase};
use memchr::memchr;

/// Limits on the head of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CgiHeadLimits {
    /// The most bytes, with the empty line. The text may have two bytes more for each field, and 100 for lines that are
    /// added.
    pub bytes: usize,
    /// The most fields.
    pub fields: usize,
}

/// Why a response head is refused. Lines count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CgiHeadError {
    /// The head is larger than [`CgiHeadLimits::bytes`].
    #[error("the response head has more than {0} bytes")]
    TooLarge(usize),
    /// There are more fields than [`CgiHeadLimits::fields`].
    #[error("the response head has more than {0} fields")]
    TooManyFields(usize),
    /// There is no field at all.
    #[error("the response head is empty (RFC 3875 §6.2 requires a field)")]
    Empty,
    /// The response has ended within its head.
    #[error("the response ends within its head, after {0} bytes")]
    Incomplete(usize),
    /// A line is not `name: value`, or continues the line before it.
    #[error("line {0} of the response head is no field (RFC 3875 §6.3)")]
    Field(usize),
    /// A value contains a control byte.
    #[error("line {0} of the response head has a control byte in its value (RFC 9110 §5.5)")]
    Value(usize),
    /// Status is no code from 200 to 599 with an optional reason.
    #[error("line {0} of the response head: Status is no code from 200 to 599 (RFC 3875 §6.3.3)")]
    Status(usize),
    /// Location is empty.
    #[error("line {0} of the response head: Location is empty (RFC 3875 §6.3.2)")]
    Location(usize),
    /// Content-Length is no number, or contradicts another one.
    #[error(
        "line {0} of the response head: Content-Length is no number, or not the one before (RFC 9110 §8.6)"
    )]
    Length(usize),
    /// The field is `Content_Length` or `Transfer_Encoding`, which some readers take for the real ones.
    #[error("line {0} of the response head is a framing field with an underscore (RFC 9112 §6.3)")]
    Disguised(usize),
    /// Status, Location or Content-Type is repeated.
    #[error("line {line} of the response head repeats {name} (RFC 3875 §6.3)")]
    Repeated {
        /// Line of the second field, from 1.
        line: usize,
        /// The name of the field.
        name: &'static str,
    },
}

/// Framing of the body in the HTTP/1.1 text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// The response has no body; what the application sends of one is dropped.
    None,
    /// The body has this length.
    Length(u64),
    /// The length is unknown: the body ends with END_REQUEST, and the text says nothing about it.
    UntilEnd,
}

/// Properties of a head that was converted to text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadOutline {
    /// The status code, from 200 to 599.
    pub status: u16,
    /// Framing of the body in the text.
    pub body: Body,
    /// Whether the application asks the server to process the path in Location itself (RFC 3875 §6.2.2). The text is a
    /// redirect of the client to that path, which has the same result after one more request.
    pub is_local_redirect: bool,
}

/// Finds the end of a head whose bytes arrive in pieces.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HeadEnd {
    line_start: usize,
    searched: usize,
}

impl HeadEnd {
    /// The length of the head with its empty line. `bytes` is all that has arrived.
    pub(crate) fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        while let Some(offset) = memchr(b'\n', &bytes[self.searched..]) {
            let end = self.searched + offset;
            let line = &bytes[self.line_start..end];
            self.line_start = end + 1;
            self.searched = end + 1;
            if line.is_empty() || line == b"\r" {
                return Some(end + 1);
            }
        }
        self.searched = bytes.len();
        None
    }
}

/// A field that is used here, as far as it was seen.
#[derive(Default)]
struct HeadFacts<'a> {
    status: Option<(u16, &'a [u8])>,
    location: Option<&'a [u8]>,
    length: Option<u64>,
    has_type: bool,
    fields: usize,
}

/// The most fields that are not passed on, in a head that [`write_plain_head`] reads.
const PLAIN_DROPPED_MAX: usize = 4;

/// As [`write_head`], for a head in the usual form whose end is here, too; `None` for any other, and for one that
/// is refused. Returns the length of the head as well.
///
/// `http1` finds the fields in wide steps, and those that are passed on are copied together.
pub(crate) fn write_plain_head(
    bytes: &[u8],
    to_head: bool,
    limits: CgiHeadLimits,
    out: &mut Vec<u8>,
) -> Option<(usize, HeadOutline)> {
    let mut facts = HeadFacts::default();
    let (mut dropped, mut dropped_count) = ([(0, 0); PLAIN_DROPPED_MAX], 0);
    let mut at = 0;
    while !bytes.get(at..)?.starts_with(b"\r\n") {
        let line = http1::plain_field(bytes, at)?;
        let (name, value) = (line.name.for_bytes(bytes), line.value.for_bytes(bytes));
        let end = line.line_end as usize;
        // The number of the line is for errors, which the strict reading finds again.
        if !facts.note(0, name, value, line.known, limits.fields).ok()? {
            *dropped.get_mut(dropped_count)? = (at, end);
            dropped_count += 1;
        }
        at = end;
    }
    let len = at + b"\r\n".len();
    if facts.fields == 0 || len > limits.bytes {
        return None;
    }
    let outline = facts.begin_text(to_head, out);
    let mut kept = 0;
    for &(start, end) in &dropped[..dropped_count] {
        out.extend_from_slice(&bytes[kept..start]);
        kept = end;
    }
    out.extend_from_slice(&bytes[kept..at]);
    facts.end_text(outline.status, out);
    Some((len, outline))
}

/// Adds Content-Length to the text of a head that does not say where its body ends ([`Body::UntilEnd`]).
pub fn add_length(length: u64, text: &mut Vec<u8>) {
    // Behind the last field, before the empty line.
    text.truncate(text.len() - b"\r\n".len());
    push_length(length, text);
    text.extend_from_slice(b"\r\n");
}

fn push_length(length: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"content-length: ");
    http1::push_number(out, length);
    out.extend_from_slice(b"\r\n");
}

/// Appends a response head as HTTP/1.1 text. `head` ends with its empty line. After an error `out` is unchanged.
pub(crate) fn write_head(
    head: &[u8],
    to_head: bool,
    fields_max: usize,
    out: &mut Vec<u8>,
) -> Result<HeadOutline, CgiHeadError> {
    let facts = read(head, fields_max)?;
    let outline = facts.begin_text(to_head, out);
    for line in lines(head) {
        let Some((name, value)) = field(line) else { continue };
        if is_kept(name, Name::from_name(name)) {
            for part in [name, b": ", value, b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
    }
    facts.end_text(outline.status, out);
    Ok(outline)
}

/// Checks every line, and collects what decides the status line and the framing.
fn read(head: &[u8], fields_max: usize) -> Result<HeadFacts<'_>, CgiHeadError> {
    let mut facts = HeadFacts::default();
    for (number, line) in (1..).zip(lines(head)) {
        let (name, value) = field(line).ok_or(CgiHeadError::Field(number))?;
        if !value.iter().all(|&byte| (byte >= b' ' && byte != 0x7f) || byte == b'\t') {
            return Err(CgiHeadError::Value(number));
        }
        facts.note(number, name, value, Name::from_name(name), fields_max)?;
    }
    if facts.fields == 0 {
        return Err(CgiHeadError::Empty);
    }
    Ok(facts)
}

impl<'a> HeadFacts<'a> {
    /// Notes a field. Returns whether it is passed on as it is.
    #[inline]
    fn note(
        &mut self,
        number: usize,
        name: &[u8],
        value: &'a [u8],
        known: Name,
        fields_max: usize,
    ) -> Result<bool, CgiHeadError> {
        if self.fields == fields_max {
            return Err(CgiHeadError::TooManyFields(fields_max));
        }
        self.fields += 1;
        if matches!(known, Name::DisguisedContentLength | Name::DisguisedTransferEncoding) {
            return Err(CgiHeadError::Disguised(number));
        }
        // RFC 3875 §6.3: none of the CGI fields may be repeated.
        let once = |is_first: bool, name| {
            if is_first { Ok(()) } else { Err(CgiHeadError::Repeated { line: number, name }) }
        };
        if name.eq_ignore_ascii_case(b"status") {
            once(self.status.is_none(), "Status")?;
            self.status = Some(status(value).ok_or(CgiHeadError::Status(number))?);
        } else if name.eq_ignore_ascii_case(b"location") {
            once(self.location.is_none(), "Location")?;
            if value.is_empty() {
                return Err(CgiHeadError::Location(number));
            }
            self.location = Some(value);
        } else if name.eq_ignore_ascii_case(b"content-type") {
            once(!self.has_type, "Content-Type")?;
            self.has_type = true;
        } else if known == Name::ContentLength {
            let length = length(value).ok_or(CgiHeadError::Length(number))?;
            if self.length.replace(length).is_some_and(|before| before != length) {
                return Err(CgiHeadError::Length(number));
            }
        }
        Ok(is_kept(name, known))
    }

    /// Appends the status line.
    #[inline]
    fn begin_text(&self, to_head: bool, out: &mut Vec<u8>) -> HeadOutline {
        let is_redirect = self.status.is_none() && self.location.is_some();
        // RFC 3875 §6.2.3, §6.3.3: a redirect without Status is a 302, every other response a 200.
        let (status, reason) = self.status.unwrap_or((if is_redirect { 302 } else { 200 }, b""));
        let reason = if reason.is_empty() { reason_phrase(status).as_bytes() } else { reason };
        let body = match self.length {
            _ if is_bodiless(status, to_head) => Body::None,
            Some(length) => Body::Length(length),
            None => Body::UntilEnd,
        };
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(&[
            b'0' + (status / 100) as u8,
            b'0' + (status / 10 % 10) as u8,
            b'0' + (status % 10) as u8,
            b' ',
        ]);
        for part in [reason, b"\r\n"] {
            out.extend_from_slice(part);
        }
        let is_local = self.fields == 1 && self.location.is_some_and(|location| location.starts_with(b"/"));
        HeadOutline { status, body, is_local_redirect: is_redirect && is_local }
    }

    /// Appends what follows the fields.
    #[inline]
    fn end_text(&self, status: u16, out: &mut Vec<u8>) {
        // RFC 9110 §8.6: a 204 has no Content-Length.
        if let Some(length) = self.length.filter(|_| status != 204) {
            push_length(length, out);
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// The lines without their ends, up to the empty one.
fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    head.split(|&byte| byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .take_while(|line| !line.is_empty())
}

/// RFC 3875 §6.3: a name, a colon right behind it, the value without the white space around it.
fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|&byte| !is_token_byte(byte))?;
    let (name, rest) = line.split_at(colon);
    let value = rest.strip_prefix(b":")?;
    (!name.is_empty()).then_some((name, trim(value)))
}

/// RFC 9110 §5.5: a value has no space or tab around it. Any other white space is a control byte.
fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// RFC 9110 §5.6.2.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// RFC 3875 §6.3.3: three digits, and perhaps a reason. Interim responses are no responses of a CGI program, so a code
/// below 200 would make the client wait for another one.
fn status(value: &[u8]) -> Option<(u16, &[u8])> {
    let (code, rest) = value.split_at_checked(3)?;
    let is_code = matches!(code[0], b'2'..=b'5') && code.iter().all(u8::is_ascii_digit);
    let is_end = matches!(rest.first(), None | Some(b' ' | b'\t'));
    let number = code.iter().fold(0, |sum, byte| sum * 10 + u16::from(byte.wrapping_sub(b'0')));
    (is_code && is_end).then(|| (number, trim(rest)))
}

fn length(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let number: u64 = is_number.then(|| std::str::from_utf8(value).ok()?.parse().ok()).flatten()?;
    // As in requests: beyond 2^63 - 1 programs differ.
    (number <= i64::MAX as u64).then_some(number)
}

/// Whether a field is passed on as it is. RFC 3875 §6.3.4: a script says nothing about the connection to the client, so
/// fields of one hop are dropped; FastCGI frames the body, so a transfer coding of the script is none.
fn is_kept(name: &[u8], known: Name) -> bool {
    !known.is_hop_by_hop()
        && !matches!(known, Name::ContentLength | Name::TransferEncoding)
        && !name.eq_ignore_ascii_case(b"status")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(head: &str, to_head: bool) -> Result<(String, HeadOutline), CgiHeadError> {
        let mut out = Vec::new();
        let outline = write_head(head.as_bytes(), to_head, 8, &mut out)?;
        Ok((String::from_utf8(out).unwrap(), outline))
    }

    #[test]
    fn status_and_location_make_the_status_line() {
        for (head, status, expected) in [
            ("Content-Type: text/html\r\n\r\n", 200, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"),
            ("Content-type:text/html\n\n", 200, "HTTP/1.1 200 OK\r\nContent-type: text/html\r\n"),
            ("Status: 404 Not Found\r\nA: b\r\n\r\n", 404, "HTTP/1.1 404 Not Found\r\nA: b\r\n"),
            ("A: b\r\nstatus: 503\r\n\r\n", 503, "HTTP/1.1 503 Service Unavailable\r\nA: b\r\n"),
            ("Status: 299  Own  words \r\n\r\n", 299, "HTTP/1.1 299 Own  words\r\n"),
            ("Status: 599\n\n", 599, "HTTP/1.1 599 \r\n"),
            (
                "Location: https://b.example/\r\n\r\n",
                302,
                "HTTP/1.1 302 Found\r\nLocation: https://b.example/\r\n",
            ),
            ("Location: /a?b\n\n", 302, "HTTP/1.1 302 Found\r\nLocation: /a?b\r\n"),
            ("Status: 201 Created\nLocation: /a\n\n", 201, "HTTP/1.1 201 Created\r\nLocation: /a\r\n"),
            (
                "Set-Cookie: a=1\nSet-Cookie: b=2\n\n",
                200,
                "HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n",
            ),
            (
                "Connection: close\nTransfer-Encoding: chunked\nTE: x\nA: \t b \n\n",
                200,
                "HTTP/1.1 200 OK\r\nA: b\r\n",
            ),
        ] {
            let (text, outline) = text(head, false).unwrap();
            assert_eq!(text, format!("{expected}\r\n"), "{head}");
            assert_eq!((outline.status, outline.body), (status, Body::UntilEnd), "{head}");
        }
    }

    #[test]
    fn a_local_redirect_is_a_path_and_nothing_else() {
        for (head, expected) in [
            ("Location: /a\n\n", true),
            ("Location: a\n\n", false),
            ("Location: http://a/\n\n", false),
            ("Location: /a\nContent-Type: text/html\n\n", false),
            ("Status: 302\nLocation: /a\n\n", false),
            ("Content-Type: text/html\n\n", false),
        ] {
            assert_eq!(text(head, false).unwrap().1.is_local_redirect, expected, "{head}");
        }
    }

    #[test]
    fn the_body_is_framed_by_status_method_and_length() {
        for (head, to_head, body, framing) in [
            ("Content-Length: 5\n\n", false, Body::Length(5), "content-length: 5\r\n"),
            ("Content-Length: 007\ncontent-length: 7\n\n", false, Body::Length(7), "content-length: 7\r\n"),
            ("Content-Length: 0\n\n", false, Body::Length(0), "content-length: 0\r\n"),
            ("Content-Length: 5\n\n", true, Body::None, "content-length: 5\r\n"),
            ("A: b\n\n", true, Body::None, ""),
            ("Status: 304\nContent-Length: 5\n\n", false, Body::None, "content-length: 5\r\n"),
            ("Status: 204\nContent-Length: 5\n\n", false, Body::None, ""),
            ("A: b\n\n", false, Body::UntilEnd, ""),
        ] {
            let (text, outline) = text(head, to_head).unwrap();
            assert_eq!(outline.body, body, "{head}");
            assert!(text.ends_with(&format!("\r\n{framing}\r\n")), "{head}: {text}");
            assert_eq!(text.matches("content-length").count(), usize::from(!framing.is_empty()));
        }
    }

    #[test]
    fn heads_that_could_be_misread_are_refused() {
        use CgiHeadError::{
            Disguised, Empty, Field, Length, Location, Repeated, Status, TooManyFields, Value,
        };
        for (head, error) in [
            ("\r\n", Empty),
            ("\n", Empty),
            ("HTTP/1.1 200 OK\r\n\r\n", Field(1)),
            ("A\n\n", Field(1)),
            ("A: b\nC : d\n\n", Field(2)),
            (": b\n\n", Field(1)),
            ("A: b\n folded\n\n", Field(2)),
            ("A: b\rC: d\n\n", Value(1)),
            ("A: b\0\n\n", Value(1)),
            ("A: b\r\r\n\r\n", Value(1)),
            ("A:\x0cb\n\n", Value(1)),
            ("Status: \n\n", Status(1)),
            ("Status: 99\n\n", Status(1)),
            ("Status: 100 Continue\n\n", Status(1)),
            ("Status: 103\n\n", Status(1)),
            ("Status: 600\n\n", Status(1)),
            ("Status: 2000\n\n", Status(1)),
            ("Status: 20x\n\n", Status(1)),
            ("Status: OK\n\n", Status(1)),
            ("Location:\n\n", Location(1)),
            ("Content-Length: -1\n\n", Length(1)),
            ("Content-Length: +1\n\n", Length(1)),
            ("Content-Length: 1, 1\n\n", Length(1)),
            ("Content-Length: 9223372036854775808\n\n", Length(1)),
            ("Content-Length: 1\nContent-Length: 2\n\n", Length(2)),
            ("A: b\nContent_Length: 1\n\n", Disguised(2)),
            ("transfer_encoding: chunked\n\n", Disguised(1)),
            ("Status: 200\nStatus: 200\n\n", Repeated { line: 2, name: "Status" }),
            ("Location: /\nA: b\nlocation: /\n\n", Repeated { line: 3, name: "Location" }),
            ("Content-Type: a\ncontent-type: a\n\n", Repeated { line: 2, name: "Content-Type" }),
            ("A: 1\nA: 2\nA: 3\nA: 4\nA: 5\nA: 6\nA: 7\nA: 8\nA: 9\n\n", TooManyFields(8)),
        ] {
            let mut out = b"kept".to_vec();
            assert_eq!(write_head(head.as_bytes(), false, 8, &mut out), Err(error), "{head:?}");
            assert_eq!(out, b"kept");
        }
    }

    #[test]
    fn a_head_ends_with_an_empty_line_of_either_kind() {
        for (bytes, end) in [
            (&b"A: b\r\n\r\nbody"[..], Some(8)),
            (b"A: b\n\nbody", Some(6)),
            (b"A: b\r\n\nbody", Some(7)),
            (b"A: b\n\r\nbody", Some(7)),
            (b"\nbody", Some(1)),
            (b"\r\nbody", Some(2)),
            (b"A: b\r\n\rC", None),
            (b"A: b\r\n", None),
            (b"", None),
        ] {
            assert_eq!(HeadEnd::default().find(bytes), end, "{bytes:?}");
            let mut piecewise = HeadEnd::default();
            let found = (0..=bytes.len()).find_map(|len| piecewise.find(&bytes[..len]));
            assert_eq!(found, end, "{bytes:?}");
        }
    }
}
