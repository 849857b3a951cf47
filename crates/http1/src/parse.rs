//! Strict, incremental parser for message heads (RFC 9112 §2 to §5).
//!
//! No line is read more than twice, however its bytes arrive, and the result does not depend on how the bytes were
//! split. Every line must end in CRLF; a lone CR or LF, a folded line and a space before a colon are rejected.

use memchr::memchr;

use crate::head::{Field, Head, RequestLine, Span, StatusLine, Version};
use crate::method::Method;
use crate::name::Name;
use crate::plain;

/// Limits on the size of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// The most bytes of the whole head.
    pub bytes: usize,
    /// The most fields.
    pub fields: usize,
    /// The most bytes of the request target.
    pub target: usize,
}

/// Whether a head is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// The head is complete; its length is in `Head::len`.
    Complete,
    /// More bytes are needed.
    Partial,
}

/// Why a head is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadError {
    /// A line ends in LF without CR.
    BareLf,
    /// A CR that does not end a line.
    BareCr,
    /// The request line is not `method SP target SP version`.
    RequestLine,
    /// The method is not a token.
    Method,
    /// The method is longer than 64 bytes.
    MethodTooLong,
    /// The target is empty or holds a byte that no URI holds.
    TargetByte,
    /// The status line is not `version SP status [SP reason]`.
    StatusLine,
    /// The version is not HTTP/1.x.
    Version,
    /// A line starts with white space (obs-fold, RFC 9112 §5.2).
    Folded,
    /// A field has no colon, or its name is not a token.
    FieldName,
    /// A field value or reason phrase contains a control byte.
    FieldValue,
    /// The head is larger than `HeadLimits::bytes`.
    TooLarge,
    /// There are more fields than `HeadLimits::fields`.
    TooManyFields,
    /// The target is longer than `HeadLimits::target`.
    TargetTooLong,
}

/// The progress of parsing a head.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    /// The start of the incomplete line.
    line_start: usize,
    /// How far the incomplete line has been searched for its end.
    searched: usize,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    First,
    AfterEmptyLine,
    Fields,
}

/// A request line or a status line.
pub(crate) trait StartLine: Sized {
    /// Whether one empty line before the start line is skipped (RFC 9112 §2.2): a server does so before a request, a
    /// client never.
    const MAY_FOLLOW_EMPTY_LINE: bool;
    /// Parses `line`, which starts at `at` in the head and has no CRLF.
    fn parse(line: &[u8], at: usize, limits: &HeadLimits) -> Result<Self, HeadError>;
    /// The fast path for a line at `at`, which may be incomplete. Also returns where the next line starts; see `plain`.
    fn plain(bytes: &[u8], at: usize, limits: &HeadLimits) -> Option<(Self, usize)>;
}

#[allow(private_bounds, reason = "the two kinds of start line are closed")]
impl<Start: StartLine> Head<Start> {
    /// Continues parsing. `bytes` starts with the first byte of the head, and holds everything that has arrived of it,
    /// perhaps more.
    ///
    /// After an error the head is meaningless, and the connection must not be used any more.
    pub fn parse(&mut self, bytes: &[u8], limits: &HeadLimits) -> Result<Parsed, HeadError> {
        let bytes = &bytes[..bytes.len().min(limits.bytes)];
        if self.plain_lines(bytes, limits) == Parsed::Complete {
            return Ok(Parsed::Complete);
        }
        if let (Stage::First, Some(&first)) = (self.progress.stage, bytes.first())
            && !is_token_byte(first)
            && !(first == b'\r' && Start::MAY_FOLLOW_EMPTY_LINE)
        {
            // What begins like this is no HTTP: do not wait for a line of it.
            return Err(HeadError::RequestLine);
        }
        while let Some(offset) = memchr(b'\n', &bytes[self.progress.searched..]) {
            let end = self.progress.searched + offset;
            let start = self.progress.line_start;
            if end == start || bytes[end - 1] != b'\r' {
                return Err(HeadError::BareLf);
            }
            self.progress.line_start = end + 1;
            self.progress.searched = end + 1;
            if self.line(&bytes[start..end - 1], start, limits)? == Parsed::Complete {
                self.len = end + 1;
                return Ok(Parsed::Complete);
            }
            if self.plain_lines(bytes, limits) == Parsed::Complete {
                return Ok(Parsed::Complete);
            }
        }
        self.progress.searched = bytes.len();
        if bytes.len() == limits.bytes {
            // RFC 9112 §3: a target that alone is too long has a status of its own.
            let in_start_line = self.progress.stage != Stage::Fields;
            return Err(if in_start_line && Start::MAY_FOLLOW_EMPTY_LINE {
                HeadError::TargetTooLong
            } else {
                HeadError::TooLarge
            });
        }
        Ok(Parsed::Partial)
    }

    /// Reads plain lines, up to the first that is not: that one is for `line`.
    #[inline]
    fn plain_lines(&mut self, bytes: &[u8], limits: &HeadLimits) -> Parsed {
        let mut at = self.progress.line_start;
        // A line that came in pieces is searched on from where it was, not again from its start.
        if self.progress.searched != at || self.progress.stage == Stage::AfterEmptyLine {
            return Parsed::Partial;
        }
        if self.progress.stage == Stage::First {
            let Some((start, end)) = Start::plain(bytes, at, limits) else { return Parsed::Partial };
            self.start = start;
            self.progress.stage = Stage::Fields;
            at = end;
        }
        let (parsed, at) = plain::fields(&mut self.fields, bytes, at, limits);
        if parsed == Parsed::Complete {
            self.len = at + b"\r\n".len();
        }
        self.progress.line_start = at;
        self.progress.searched = at;
        parsed
    }

    #[inline]
    fn line(&mut self, line: &[u8], at: usize, limits: &HeadLimits) -> Result<Parsed, HeadError> {
        match self.progress.stage {
            Stage::Fields if line.is_empty() => return Ok(Parsed::Complete),
            Stage::Fields if self.fields.len() == limits.fields => return Err(HeadError::TooManyFields),
            Stage::Fields => {
                self.fields.push(field(line, at)?);
            }
            Stage::First if line.is_empty() && Start::MAY_FOLLOW_EMPTY_LINE => {
                self.progress.stage = Stage::AfterEmptyLine;
            }
            Stage::First | Stage::AfterEmptyLine => {
                self.start = Start::parse(line, at, limits)?;
                self.progress.stage = Stage::Fields;
            }
        }
        Ok(Parsed::Partial)
    }
}

/// Parses a field line without CRLF, which starts at `at` in its head.
#[inline]
pub(crate) fn field(line: &[u8], at: usize) -> Result<Field, HeadError> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        // RFC 9112 §5.2: a server refuses obs-fold or replaces it; we refuse.
        return Err(HeadError::Folded);
    }
    let colon = line.iter().position(|&byte| !is_token_byte(byte)).unwrap_or(line.len());
    // RFC 9112 §5.1: no white space between name and colon.
    if colon == 0 || line.get(colon) != Some(&b':') {
        return Err(HeadError::FieldName);
    }
    let mut start = colon + 1;
    let mut end = line.len();
    while start < end && is_white(line[start]) {
        start += 1;
    }
    while end > start && is_white(line[end - 1]) {
        end -= 1;
    }
    check_text(&line[start..end])?;
    Ok(Field {
        name: Span::new(at, at + colon),
        value: Span::new(at + start, at + end),
        line_end: (at + line.len() + 2) as u32,
        known: Name::of(&line[..colon]),
    })
}

/// The longest method, far longer than any registered one.
pub(crate) const METHOD_BYTES_MAX: usize = 64;

impl StartLine for RequestLine {
    const MAY_FOLLOW_EMPTY_LINE: bool = true;

    #[inline]
    fn parse(line: &[u8], at: usize, limits: &HeadLimits) -> Result<Self, HeadError> {
        // RFC 9112 §3: exactly one SP between the three parts, and none within them.
        let method_end = line.iter().position(|&byte| !is_token_byte(byte)).ok_or(HeadError::RequestLine)?;
        match line[method_end] {
            b' ' if method_end == 0 => return Err(HeadError::Method),
            b' ' if method_end > METHOD_BYTES_MAX => return Err(HeadError::MethodTooLong),
            b' ' => {}
            b'\t' if method_end > 0 => return Err(HeadError::RequestLine),
            _ => return Err(HeadError::Method),
        }
        let rest = &line[method_end + 1..];
        let target_end = rest.iter().position(|&byte| !is_target_byte(byte)).unwrap_or(rest.len());
        if target_end > limits.target {
            return Err(HeadError::TargetTooLong);
        }
        match rest.get(target_end) {
            Some(b' ') if target_end > 0 => {}
            Some(b' ' | b'\t') | None => return Err(HeadError::RequestLine),
            Some(b'\r') => return Err(HeadError::BareCr),
            Some(_) => return Err(HeadError::TargetByte),
        }
        let target = at + method_end + 1;
        Ok(RequestLine {
            method: Method::of(&line[..method_end]),
            method_span: Span::new(at, at + method_end),
            target: Span::new(target, target + target_end),
            path_end: (target + memchr(b'?', &rest[..target_end]).unwrap_or(target_end)) as u32,
            version: request_version(&rest[target_end + 1..])?,
        })
    }

    #[inline]
    fn plain(bytes: &[u8], at: usize, limits: &HeadLimits) -> Option<(Self, usize)> {
        plain::request_line(bytes, at, limits)
    }
}

/// The position of the SP before the status code in a status line.
pub(crate) const STATUS_START: usize = b"HTTP/1.1".len();
/// The position of the reason phrase, in a status line with the SP before it.
pub(crate) const REASON_START: usize = b"HTTP/1.1 200 ".len();

impl StartLine for StatusLine {
    const MAY_FOLLOW_EMPTY_LINE: bool = false;

    #[inline]
    fn parse(line: &[u8], at: usize, _: &HeadLimits) -> Result<Self, HeadError> {
        let Some((protocol, rest)) = line.split_at_checked(STATUS_START) else {
            return Err(HeadError::StatusLine);
        };
        let version = version(protocol)?;
        let (status, reason_start) = match rest {
            [b' ', a @ b'1'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9', tail @ ..] => {
                let digit = |byte: u8| u16::from(byte - b'0');
                match tail.first() {
                    // RFC 9112 §4: the SP belongs there even without a reason; what leaves it out is still clear.
                    None => (digit(*a) * 100 + digit(*b) * 10 + digit(*c), line.len()),
                    Some(b' ') => (digit(*a) * 100 + digit(*b) * 10 + digit(*c), REASON_START),
                    Some(_) => return Err(HeadError::StatusLine),
                }
            }
            _ => return Err(HeadError::StatusLine),
        };
        check_text(&line[reason_start..])?;
        Ok(StatusLine { status, reason: Span::new(at + reason_start, at + line.len()), version })
    }

    #[inline]
    fn plain(bytes: &[u8], at: usize, _: &HeadLimits) -> Option<(Self, usize)> {
        plain::status_line(bytes, at)
    }
}

/// What ends a request line: a version that is not spoken here, or, where it is no version, no request line.
#[inline]
fn request_version(text: &[u8]) -> Result<Version, HeadError> {
    version(text).map_err(|error| match text {
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => error,
        _ => HeadError::RequestLine,
    })
}

/// RFC 9112 §2.3: `HTTP/` and two digits, in upper case.
#[inline]
fn version(text: &[u8]) -> Result<Version, HeadError> {
    match text {
        b"HTTP/1.1" => Ok(Version::Http11),
        b"HTTP/1.0" => Ok(Version::Http10),
        // RFC 9110 §2.5: a higher minor version is read as the highest that we know.
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9'] => Ok(Version::Http11),
        _ => Err(HeadError::Version),
    }
}

/// RFC 9110 §5.5: field values hold visible characters, SP, HTAB and obs-text.
#[inline]
fn check_text(text: &[u8]) -> Result<(), HeadError> {
    // A vector's width at once; the last piece may overlap the one before.
    let suspicious = if let Some(last) = text.last_chunk::<16>() {
        text.as_chunks().0.iter().chain([last]).any(may_hold_control)
    } else if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        may_hold_control(first) || may_hold_control(last)
    } else {
        true
    };
    if suspicious { check_each(text) } else { Ok(()) }
}

fn check_each(text: &[u8]) -> Result<(), HeadError> {
    if text.iter().all(|&byte| (byte >= 0x20 && byte != 0x7f) || byte == b'\t') {
        return Ok(());
    }
    Err(if text.contains(&b'\r') { HeadError::BareCr } else { HeadError::FieldValue })
}

/// Whether any byte is below 0x20, HTAB included, or 0x7f; without early exit, so that it compiles to vector instructions.
#[inline]
fn may_hold_control<const LEN: usize>(bytes: &[u8; LEN]) -> bool {
    bytes.iter().fold(false, |found, &byte| found | (byte < 0x20) | (byte == 0x7f))
}

fn is_white(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Whether a byte may occur in a token (RFC 9110 §5.6.2).
#[inline]
pub(crate) fn is_token_byte(byte: u8) -> bool {
    BYTES[byte as usize] & TOKEN != 0
}

/// Whether a byte may occur in a request target: visible ASCII except `#`, at which only some readers end the URI.
#[inline]
pub(crate) fn is_target_byte(byte: u8) -> bool {
    BYTES[byte as usize] & TARGET != 0
}

/// Whether a byte may occur in a host name or IPv4 address (RFC 3986 §3.2.2), comma excepted (see
/// `is_valid_authority`).
#[inline]
pub(crate) fn is_host_byte(byte: u8) -> bool {
    BYTES[byte as usize] & HOST != 0
}

const TOKEN: u8 = 1;
const TARGET: u8 = 2;
const HOST: u8 = 4;

static BYTES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0x21;
    while byte < 0x7f {
        let is_delimiter = matches!(
            byte as u8,
            b'"' | b'('
                | b')'
                | b','
                | b'/'
                | b':'
                | b';'
                | b'<'
                | b'='
                | b'>'
                | b'?'
                | b'@'
                | b'['
                | b'\\'
                | b']'
                | b'{'
                | b'}'
        );
        let is_host = (byte as u8).is_ascii_alphanumeric()
            || matches!(
                byte as u8,
                b'-' | b'.'
                    | b'_'
                    | b'~'
                    | b'!'
                    | b'$'
                    | b'&'
                    | b'\''
                    | b'('
                    | b')'
                    | b'*'
                    | b'+'
                    | b';'
                    | b'='
            );
        table[byte] = if is_delimiter { 0 } else { TOKEN }
            | if byte as u8 == b'#' { 0 } else { TARGET }
            | if is_host { HOST } else { 0 };
        byte += 1;
    }
    table
};
