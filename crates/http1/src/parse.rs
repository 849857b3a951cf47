//! Strict, incremental parser for message heads (RFC 9112 §2 to §5).
//!
//! No line is read more than twice, however its bytes arrive, and the result does not depend on how the bytes were
//! split. Every line must end in CRLF; a lone CR or LF, a folded line and a space before a colon are rejected.

use memchr::memchr;

use crate::head::{ByteSpan, FieldLine, HttpVersion, MessageHead, RequestLine, StatusLine};
use crate::method::Method;
use crate::name::Name;
use crate::plain;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    pub bytes: usize,
    pub fields: usize,
    pub target: usize,
}

impl HeadLimits {
    /// Limits that this text does not exceed: for a head that the proxy has written itself.
    pub fn of_own(text: &[u8]) -> Self {
        Self { bytes: text.len(), fields: usize::MAX, target: text.len() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// The length is in `Head::len`.
    Complete,
    Partial,
}

/// Why a head is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadError {
    /// A line that ends in LF without CR.
    BareLf,
    /// A CR that does not end a line.
    BareCr,
    /// Not `method SP target SP version`.
    RequestLine,
    /// The method is not a token.
    Method,
    /// More than `METHOD_BYTES_MAX`.
    MethodTooLong,
    /// The target is empty or contains a byte that no URI contains.
    TargetByte,
    /// Not `version SP status [SP reason]`.
    StatusLine,
    /// Not HTTP/1.x.
    Version,
    /// A line starts with white space (obs-fold, RFC 9112 §5.2).
    Folded,
    /// A field has no colon, or its name is not a token.
    FieldName,
    /// A field value or reason phrase contains a control byte.
    FieldValue,
    /// Larger than `HeadLimits::bytes`.
    TooLarge,
    /// More than `HeadLimits::fields`.
    TooManyFields,
    /// Longer than `HeadLimits::target`.
    TargetTooLong,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ParseProgress {
    /// The start of the incomplete line.
    line_start: usize,
    /// How far the incomplete line has been searched for its end.
    searched: usize,
    stage: ParseStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ParseStage {
    #[default]
    First,
    AfterEmptyLine,
    Fields,
}

pub(crate) trait StartLine: Sized {
    /// Whether one empty line before the start line is skipped (RFC 9112 §2.2): a server does so before a request, a
    /// client never.
    const MAY_FOLLOW_EMPTY_LINE: bool;
    /// Parses `line`, which starts at `at` in the head and has no CRLF.
    fn parse(line: &[u8], at: usize, limits: &HeadLimits) -> Result<Self, HeadError>;
    /// The fast path for a line at `at`, which may be incomplete. Also returns where the next line starts. See `plain`.
    fn plain(bytes: &[u8], at: usize, limits: &HeadLimits) -> Option<(Self, usize)>;
}

#[allow(private_bounds, reason = "the two kinds of start line are closed")]
impl<Start: StartLine> MessageHead<Start> {
    /// Continues parsing. `bytes` starts with the first byte of the head, and holds everything that has arrived of it,
    /// perhaps more.
    ///
    /// After an error the head is meaningless, and the connection must not be used any more.
    pub fn parse(&mut self, bytes: &[u8], limits: &HeadLimits) -> Result<Parsed, HeadError> {
        // The result must not depend on how many bytes arrive at once, so bytes beyond the limit are never looked at.
        let bytes = &bytes[..bytes.len().min(limits.bytes)];
        // Usually every line is plain and the whole head is here: then the strict loop below never runs.
        if self.plain_lines(bytes, limits) == Parsed::Complete {
            return Ok(Parsed::Complete);
        }
        if let (ParseStage::First, Some(&first)) = (self.progress.stage, bytes.first())
            && !is_token_byte(first)
            && !(first == b'\r' && Start::MAY_FOLLOW_EMPTY_LINE)
        {
            // No HTTP message starts with this byte: do not wait for a whole line.
            return Err(HeadError::RequestLine);
        }
        while let Some(offset) = memchr(b'\n', &bytes[self.progress.searched..]) {
            let end = self.progress.searched + offset;
            let start = self.progress.line_start;
            // RFC 9112 §2.2 permits to accept a bare LF. Two parsers that differ here read different messages, so it
            // is rejected.
            if end == start || bytes[end - 1] != b'\r' {
                return Err(HeadError::BareLf);
            }
            self.progress.line_start = end + 1;
            self.progress.searched = end + 1;
            if self.line(&bytes[start..end - 1], start, limits)? == Parsed::Complete {
                self.len = end + 1;
                return Ok(Parsed::Complete);
            }
            // An unusual line must not slow down the lines after it.
            if self.plain_lines(bytes, limits) == Parsed::Complete {
                return Ok(Parsed::Complete);
            }
        }
        // The next call goes on from here: a head that arrives byte by byte is searched once, not once per byte.
        self.progress.searched = bytes.len();
        if bytes.len() == limits.bytes {
            // RFC 9112 §3: a target beyond its limit has its own status.
            let in_start_line = self.progress.stage != ParseStage::Fields;
            return Err(if in_start_line && Start::MAY_FOLLOW_EMPTY_LINE {
                HeadError::TargetTooLong
            } else {
                HeadError::TooLarge
            });
        }
        Ok(Parsed::Partial)
    }

    /// Reads lines in the usual form, and stops at the first other line, which `line` parses.
    #[inline]
    fn plain_lines(&mut self, bytes: &[u8], limits: &HeadLimits) -> Parsed {
        let mut at = self.progress.line_start;
        // A line that arrived in pieces is searched from where the last search stopped, not from its start.
        if self.progress.searched != at || self.progress.stage == ParseStage::AfterEmptyLine {
            return Parsed::Partial;
        }
        if self.progress.stage == ParseStage::First {
            let Some((start, end)) = Start::plain(bytes, at, limits) else { return Parsed::Partial };
            self.start = start;
            self.progress.stage = ParseStage::Fields;
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
            ParseStage::Fields if line.is_empty() => return Ok(Parsed::Complete),
            // Behind the check for the empty line: a head with exactly the allowed number of fields is valid.
            ParseStage::Fields if self.fields.len() == limits.fields => return Err(HeadError::TooManyFields),
            ParseStage::Fields => {
                self.fields.push(field(line, at)?);
            }
            // RFC 9112 §2.2: old user agents send one CRLF behind the body of a POST. A second empty line is an
            // error.
            ParseStage::First if line.is_empty() && Start::MAY_FOLLOW_EMPTY_LINE => {
                self.progress.stage = ParseStage::AfterEmptyLine;
            }
            ParseStage::First | ParseStage::AfterEmptyLine => {
                self.start = Start::parse(line, at, limits)?;
                self.progress.stage = ParseStage::Fields;
            }
        }
        Ok(Parsed::Partial)
    }
}

/// Parses a field line without CRLF, which starts at `at` in its head.
#[inline]
pub(crate) fn field(line: &[u8], at: usize) -> Result<FieldLine, HeadError> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        // RFC 9112 §5.2: a server rejects obs-fold or replaces it; this one rejects it.
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
    // RFC 9110 §5.5: a CR or NUL in a value may end the line for a laxer parser.
    check_text(&line[start..end])?;
    Ok(FieldLine {
        name: ByteSpan::new(at, at + colon),
        value: ByteSpan::new(at + start, at + end),
        // Includes the CRLF: a field is dropped by copying up to its name, and on from here.
        line_end: (at + line.len() + 2) as u32,
        known: Name::from_name(&line[..colon]),
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
            // RFC 9112 §3: a method longer than any known one gets 501, not 400.
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
            method: Method::from_token(&line[..method_end]),
            method_span: ByteSpan::new(at, at + method_end),
            target: ByteSpan::new(target, target + target_end),
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
            // RFC 9110 §15: a status outside 100 to 599 is invalid.
            [b' ', a @ b'1'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9', tail @ ..] => {
                let digit = |byte: u8| u16::from(byte - b'0');
                match tail.first() {
                    // RFC 9112 §4: the SP is required even without a reason, but a line without it is unambiguous.
                    None => (digit(*a) * 100 + digit(*b) * 10 + digit(*c), line.len()),
                    Some(b' ') => (digit(*a) * 100 + digit(*b) * 10 + digit(*c), REASON_START),
                    Some(_) => return Err(HeadError::StatusLine),
                }
            }
            _ => return Err(HeadError::StatusLine),
        };
        check_text(&line[reason_start..])?;
        Ok(StatusLine { status, reason: ByteSpan::new(at + reason_start, at + line.len()), version })
    }

    #[inline]
    fn plain(bytes: &[u8], at: usize, _: &HeadLimits) -> Option<(Self, usize)> {
        plain::status_line(bytes, at)
    }
}

/// Parses the end of a request line. The error is `Version` for an unsupported version, `RequestLine` if it is no
/// version.
#[inline]
fn request_version(text: &[u8]) -> Result<HttpVersion, HeadError> {
    version(text).map_err(|error| match text {
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => error,
        // A line with a third space has text here that is no version. It is a bad request, not an unsupported
        // version.
        _ => HeadError::RequestLine,
    })
}

/// RFC 9112 §2.3: `HTTP/` and two digits, in upper case.
#[inline]
fn version(text: &[u8]) -> Result<HttpVersion, HeadError> {
    match text {
        b"HTTP/1.1" => Ok(HttpVersion::Http11),
        b"HTTP/1.0" => Ok(HttpVersion::Http10),
        // RFC 9110 §2.5: a higher minor version is treated as the highest known one.
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9'] => Ok(HttpVersion::Http11),
        _ => Err(HeadError::Version),
    }
}

/// RFC 9110 §5.5: field values hold visible characters, SP, HTAB and obs-text.
#[inline]
fn check_text(text: &[u8]) -> Result<(), HeadError> {
    // Checks 16 bytes at once; the last piece may overlap the one before.
    let suspicious = if let Some(last) = text.last_chunk::<16>() {
        text.as_chunks().0.iter().chain([last]).any(may_hold_control)
    } else if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        may_hold_control(first) || may_hold_control(last)
    } else {
        // Fewer than eight bytes leave nothing to compare at once.
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

/// Whether any byte is below 0x20 (HTAB included) or 0x7f. Without early exit, so that it compiles to vector
/// instructions.
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

/// Whether a byte may occur in a request target: visible ASCII except `#`, where only some parsers end the URI.
#[inline]
pub(crate) fn is_target_byte(byte: u8) -> bool {
    BYTES[byte as usize] & TARGET != 0
}

/// Whether a byte may occur in a host name or IPv4 address (RFC 3986 §3.2.2). Excludes the comma (see
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
