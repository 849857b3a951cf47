//! Fast path for lines in the usual form, read in wide steps.
//!
//! Rejects nothing: for an unusual or incomplete line the result is `None`, and `parse` reads it strictly. For usual
//! lines both give equal results.

use crate::head::{ByteSpan, FieldLine, Fields, HttpVersion, RequestLine, StatusLine};
use crate::method::Method;
use crate::name::Name;
use crate::parse::{HeadLimits, METHOD_BYTES_MAX, Parsed, REASON_START};
use crate::scan;

/// Adds the field lines from `at` up to the empty line, or to the first line in an unusual form. Returns where that
/// line starts.
pub(crate) fn fields(
    fields: &mut Fields,
    bytes: &[u8],
    mut at: usize,
    limits: &HeadLimits,
) -> (Parsed, usize) {
    loop {
        // Before the limit: a head with exactly the allowed number of fields is complete here.
        if bytes.get(at) == Some(&b'\r') && bytes.get(at + 1) == Some(&b'\n') {
            return (Parsed::Complete, at);
        }
        if fields.len() >= limits.fields {
            // The strict parser reads this line again and reports the error.
            return (Parsed::Partial, at);
        }
        let Some(field) = field(bytes, at) else { return (Parsed::Partial, at) };
        at = field.line_end as usize;
        fields.push(field);
    }
}

/// Reads a field line at `at`: a name of letters and hyphens, a colon, one SP, a value that is not empty and has no
/// surrounding white space, CRLF.
#[inline]
pub fn field(bytes: &[u8], at: usize) -> Option<FieldLine> {
    let colon = scan::first(bytes, at, scan::beyond_name)?;
    if colon == at || !bytes.get(colon..)?.starts_with(b": ") {
        return None;
    }
    let start = colon + 2;
    // Finding the end also checks the value: a plain value contains no control byte.
    let end = scan::first(bytes, start, scan::controls)?;
    // The scan stops at HTAB, so the only possible white space here is SP. An empty value starts with the CR.
    let [last, b'\r', b'\n', ..] = *bytes.get(end - 1..)? else { return None };
    if *bytes.get(start)? <= b' ' || last == b' ' {
        return None;
    }
    Some(FieldLine {
        name: ByteSpan::new(at, colon),
        value: ByteSpan::new(start, end),
        line_end: (end + 2) as u32,
        known: Name::from_name(&bytes[at..colon]),
    })
}

/// Reads a request line at `at`, and returns where the next line starts. The usual form: a method of letters and
/// hyphens, HTTP/1.1.
#[inline]
pub(crate) fn request_line(bytes: &[u8], at: usize, limits: &HeadLimits) -> Option<(RequestLine, usize)> {
    // A single comparison covers the space, the version and the end of the line.
    const END: &[u8] = b" HTTP/1.1\r\n";
    // Fast path: most requests are GET.
    let method_end = if bytes.get(at..)?.starts_with(b"GET ") {
        at + b"GET".len()
    } else {
        scan::first(bytes, at, scan::beyond_name)?
    };
    let method = &bytes[at..method_end];
    let target = method_end + 1;
    // The path ends at the first `?`; only then is there a query to scan.
    let path_end = scan::first(bytes, target, scan::beyond_path)?;
    let target_end =
        if bytes[path_end] == b'?' { scan::first(bytes, path_end, scan::beyond_target)? } else { path_end };
    let rest = bytes.get(target_end..)?;
    let is_plain = !method.is_empty()
        && method.len() <= METHOD_BYTES_MAX
        && bytes[method_end] == b' '
        && (1..=limits.target).contains(&(target_end - target))
        && rest.starts_with(END);
    let line = RequestLine {
        method: Method::from_token(method),
        method_span: ByteSpan::new(at, method_end),
        target: ByteSpan::new(target, target_end),
        path_end: path_end as u32,
        version: HttpVersion::Http11,
    };
    is_plain.then_some((line, target_end + END.len()))
}

/// Reads a status line at `at`, and returns where the next line starts. The usual form: HTTP/1.1, and a SP after the
/// status code.
#[inline]
pub(crate) fn status_line(bytes: &[u8], at: usize) -> Option<(StatusLine, usize)> {
    let line = bytes.get(at..)?;
    let [a @ b'1'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9', b' ', ..] = *line.strip_prefix(b"HTTP/1.1 ")?
    else {
        return None;
    };
    let start = at + REASON_START;
    // A reason phrase may be empty, so it needs no check for surrounding spaces.
    let end = scan::first(bytes, start, scan::controls)?;
    if !bytes[end..].starts_with(b"\r\n") {
        return None;
    }
    let digit = |byte: u8| u16::from(byte - b'0');
    let status = digit(a) * 100 + digit(b) * 10 + digit(c);
    Some((StatusLine { status, reason: ByteSpan::new(start, end), version: HttpVersion::Http11 }, end + 2))
}
