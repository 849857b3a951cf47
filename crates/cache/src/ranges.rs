//! Byte ranges (RFC 9110 §14): requested ranges, stored parts, and multipart responses.

use std::ops::Range;

use http1::{RequestHead, ResponseHead};

use crate::fields::{members, push_number, value};
use crate::stored::Stored;

/// A stored part of a representation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredPart {
    pub start: u64,
    /// Exclusive.
    pub end: u64,
    /// The length of the whole representation, if it is known.
    pub whole_bytes: Option<u64>,
}

/// The ranges that a request selects from a complete stored representation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All of it, with 200: there is no Range, or one that is ignored.
    Whole,
    /// A single range, with 206.
    One(Range<u64>),
    /// Several ranges, as multipart/byteranges.
    Several(Vec<Range<u64>>),
    /// No range can be satisfied: 416.
    Unsatisfiable,
}

/// RFC 9110 §17.15: more ranges than this count as an attack, and the whole representation is sent.
const RANGES_MAX: usize = 16;

/// Evaluates Range of a request against a representation of this length.
pub fn select(head: &RequestHead, bytes: &[u8], whole_bytes: u64) -> Selection {
    let Some(range) = value(head, bytes, b"range") else { return Selection::Whole };
    let mut selected: Vec<Range<u64>> = Vec::new();
    let mut total_bytes = 0u64;
    // RFC 9110 §14.2: an unknown unit or a malformed value is ignored.
    let Some(specs) = byte_ranges(range) else { return Selection::Whole };
    for (count, spec) in members(specs).enumerate() {
        let Some(spec) = Spec::parse(spec).filter(|_| count < RANGES_MAX) else { return Selection::Whole };
        if let Some(range) = spec.within(whole_bytes) {
            total_bytes = total_bytes.saturating_add(range.end - range.start);
            // Ranges that cannot be satisfied are skipped: one that can be is enough for a 206 (RFC 9110 §14.1.2).
            selected.push(range);
        }
    }
    match selected.len() {
        // `bytes=` without a range is malformed, not unsatisfiable.
        0 if members(specs).next().is_none() => Selection::Whole,
        0 => Selection::Unsatisfiable,
        1 => Selection::One(selected.swap_remove(0)),
        // RFC 9110 §14.2: overlapping ranges that add up to more than the whole are useless.
        _ if total_bytes > whole_bytes => Selection::Whole,
        _ => Selection::Several(selected),
    }
}

/// The text behind `bytes=`, in any case (RFC 9110 §14.1).
fn byte_ranges(range: &[u8]) -> Option<&[u8]> {
    let (unit, specs) = range.split_at_checked(6)?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(specs)
}

/// RFC 9110 §14.1.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spec {
    From(u64),
    Between(u64, u64),
    Last(u64),
}

impl Spec {
    fn parse(text: &[u8]) -> Option<Spec> {
        let dash = text.iter().position(|&byte| byte == b'-')?;
        let (first, last) = (&text[..dash], &text[dash + 1..]);
        match (first.is_empty(), last.is_empty()) {
            // RFC 9110 §14.1.2: `-5` is the last five bytes.
            (true, _) => Some(Spec::Last(number(last)?)),
            (false, true) => Some(Spec::From(number(first)?)),
            (false, false) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Spec::Between(first, last))
            }
        }
    }

    /// `None` if the range is not satisfiable.
    fn within(self, whole_bytes: u64) -> Option<Range<u64>> {
        let range = match self {
            Spec::From(first) => first..whole_bytes,
            Spec::Between(first, last) => first..last.saturating_add(1).min(whole_bytes),
            Spec::Last(count) => whole_bytes.saturating_sub(count)..whole_bytes,
        };
        (range.start < range.end).then_some(range)
    }
}

/// Parses digits. A number that does not fit counts as the maximum.
fn number(text: &[u8]) -> Option<u64> {
    // The parser of the standard library would accept a plus sign.
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0u64, |sum, byte| sum.saturating_mul(10).saturating_add(u64::from(byte - b'0'))))
}

impl StoredPart {
    /// Parses Content-Range (RFC 9110 §14.4). `None` if it is malformed, has another unit, or is of the form
    /// `*/length`.
    pub fn parse(content_range: &[u8]) -> Option<StoredPart> {
        let (unit, rest) = content_range.split_at_checked(6)?;
        if !unit.eq_ignore_ascii_case(b"bytes ") {
            return None;
        }
        let slash = rest.iter().position(|&byte| byte == b'/')?;
        let Spec::Between(first, last) = Spec::parse(&rest[..slash])? else { return None };
        let whole_bytes = match &rest[slash + 1..] {
            b"*" => None,
            digits => Some(number(digits)?),
        };
        let end = last.checked_add(1)?;
        // RFC 9110 §14.4: a length that ends before the part is invalid.
        whole_bytes.is_none_or(|whole| end <= whole).then_some(StoredPart { start: first, end, whole_bytes })
    }

    /// The part in a 206 response. `None` unless it is a single one.
    pub fn of_response(head: &ResponseHead, bytes: &[u8]) -> Option<StoredPart> {
        Self::parse(value(head, bytes, b"content-range")?).filter(|_| head.start.status == 206)
    }

    /// Whether the part is the whole representation.
    pub fn is_whole(&self) -> bool {
        self.start == 0 && self.whole_bytes == Some(self.end)
    }

    /// The requested range, counted from the first byte of the whole. `None` if the part does not hold all of it.
    pub fn select(&self, head: &RequestHead, bytes: &[u8]) -> Option<Range<u64>> {
        let range = value(head, bytes, b"range")?;
        let mut specs = members(byte_ranges(range)?);
        let spec = Spec::parse(specs.next()?).filter(|_| specs.next().is_none())?;
        let wanted = match (self.whole_bytes, spec) {
            // With a known length, a range that ends behind the representation is cut to it, as for a whole one.
            (Some(whole), spec) => spec.within(whole)?,
            (None, Spec::Between(first, last)) => first..last.saturating_add(1),
            // The length of the whole is unknown.
            (None, Spec::From(_) | Spec::Last(_)) => return None,
        };
        (self.start <= wanted.start && wanted.end <= self.end).then_some(wanted)
    }

    /// The missing range of the representation, if the part lies at its start or end (RFC 9111 §3.4).
    pub fn missing(&self) -> Option<Range<u64>> {
        match (self.start, self.whole_bytes) {
            // Only a part at an edge leaves one gap, which one request can fill.
            (0, Some(whole)) if self.end < whole => Some(self.end..whole),
            (start @ 1.., Some(whole)) if self.end == whole => Some(0..start),
            _ => None,
        }
    }

    /// Joins two parts that touch or overlap (RFC 9111 §3.4). `may_combine` checks that they belong to one
    /// representation.
    pub fn joined(&self, other: &StoredPart) -> Option<StoredPart> {
        let touches = self.start <= other.end && other.start <= self.end;
        let agree = self.whole_bytes == other.whole_bytes
            || self.whole_bytes.is_none()
            || other.whole_bytes.is_none();
        (touches && agree).then(|| StoredPart {
            start: self.start.min(other.start),
            end: self.end.max(other.end),
            whole_bytes: self.whole_bytes.or(other.whole_bytes),
        })
    }
}

/// Whether a response and a stored one belong to one representation, so that their parts may be joined: both have an
/// equal strong validator (RFC 9110 §15.3.7.3, RFC 9111 §3.4).
pub fn may_combine(stored: &Stored, stored_head: &[u8], head: &ResponseHead, bytes: &[u8]) -> bool {
    let name: &[u8] = if stored.etag(stored_head).is_some() { b"etag" } else { b"last-modified" };
    // A response with a tag that the stored one lacks may be of another representation of the same second.
    let has_other = name == b"last-modified" && value(head, bytes, b"etag").is_some();
    let ours = stored.strong_validator(stored_head);
    ours.is_some() && ours == value(head, bytes, name) && !has_other
}

/// Appends Content-Range with CRLF (RFC 9110 §14.4).
pub fn write_content_range(out: &mut Vec<u8>, range: &Range<u64>, whole_bytes: Option<u64>) {
    out.extend_from_slice(b"Content-Range: bytes ");
    push_number(out, range.start);
    out.push(b'-');
    push_number(out, range.end.saturating_sub(1));
    out.push(b'/');
    match whole_bytes {
        Some(whole) => push_number(out, whole),
        None => out.push(b'*'),
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the Content-Range of a 416 with CRLF (RFC 9110 §15.5.17).
pub fn write_unsatisfied_range(out: &mut Vec<u8>, whole_bytes: u64) {
    out.extend_from_slice(b"Content-Range: bytes */");
    push_number(out, whole_bytes);
    out.extend_from_slice(b"\r\n");
}

/// The boundary between the parts of a multipart/byteranges response (RFC 9110 §14.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boundary([u8; 16]);

impl Boundary {
    /// A boundary from random bits, which occurs in a part only by chance.
    pub fn new(random: u64) -> Self {
        let digit = |at: usize| b"0123456789abcdef"[(random >> (4 * at) & 15) as usize];
        Self(std::array::from_fn(digit))
    }

    /// Appends Content-Type of the message, with CRLF.
    pub fn write_content_type(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"Content-Type: multipart/byteranges; boundary=");
        out.extend_from_slice(&self.0);
        out.extend_from_slice(b"\r\n");
    }

    /// Appends the boundary and head before a part.
    pub fn write_part_head(
        &self,
        out: &mut Vec<u8>,
        content_type: Option<&[u8]>,
        range: &Range<u64>,
        whole_bytes: u64,
    ) {
        out.extend_from_slice(b"\r\n--");
        out.extend_from_slice(&self.0);
        out.extend_from_slice(b"\r\n");
        if let Some(content_type) = content_type {
            out.extend_from_slice(b"Content-Type: ");
            out.extend_from_slice(content_type);
            out.extend_from_slice(b"\r\n");
        }
        write_content_range(out, range, Some(whole_bytes));
        out.extend_from_slice(b"\r\n");
    }

    /// Appends the boundary after the last part.
    pub fn write_end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\r\n--");
        out.extend_from_slice(&self.0);
        out.extend_from_slice(b"--\r\n");
    }
}
