//! Message framing: where a body ends (RFC 9112 §6.3), decided once from the head.
//!
//! To prevent request smuggling, messages whose length could be read in two ways are rejected.

use crate::head::{Head, RequestHead, ResponseHead, Version};
use crate::name::{Name, NameSet};

/// How a body is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// There is no body.
    #[default]
    None,
    /// Content-Length: this many bytes, at least one.
    Length(u64),
    /// The chunked transfer coding.
    Chunked,
    /// The body ends when the connection closes (responses only).
    UntilClose,
}

/// Why the framing of a message is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FramingError {
    /// Transfer-Encoding and Content-Length in one message.
    BothLengthAndCoding,
    /// More than one Content-Length, equal or not.
    LengthRepeated,
    /// A Content-Length that is not only digits, or beyond 2^63 - 1.
    LengthInvalid,
    /// A Transfer-Encoding that is not exactly `chunked`, or more than one.
    CodingUnknown,
    /// Transfer-Encoding in a message of HTTP/1.0.
    CodingInHttp10,
    /// `Content_Length` or `Transfer_Encoding`, which CGI-like servers read as the real ones.
    Disguised,
}

/// Fields that say, or seem to say, where a body ends.
const DECIDING: NameSet = NameSet::NONE
    .with(Name::ContentLength)
    .with(Name::TransferEncoding)
    .with(Name::DisguisedContentLength)
    .with(Name::DisguisedTransferEncoding);

/// Determines where the body of a request ends.
#[inline]
pub fn request_framing(head: &RequestHead, bytes: &[u8]) -> Result<Framing, FramingError> {
    // Most requests say nothing of a body.
    if head.fields.names.intersection(DECIDING) == NameSet::NONE {
        return Ok(Framing::None);
    }
    request_body_framing(head, bytes)
}

fn request_body_framing(head: &RequestHead, bytes: &[u8]) -> Result<Framing, FramingError> {
    Ok(match declared(head, bytes, head.start.version)? {
        // RFC 9112 §6.3, rule 7: a request without either has no body.
        None | Some(Framing::Length(0)) => Framing::None,
        Some(framing) => framing,
    })
}

/// Determines where the body of a final response ends. `to_head` says whether the request was a HEAD.
///
/// Must not be called for interim responses, which have no body.
pub fn response_framing(head: &ResponseHead, bytes: &[u8], to_head: bool) -> Result<Framing, FramingError> {
    let declared = declared(head, bytes, head.start.version)?;
    // RFC 9112 §6.3, rule 1.
    if to_head || matches!(head.start.status, 204 | 304) {
        return Ok(Framing::None);
    }
    Ok(match declared {
        Some(Framing::Length(0)) => Framing::None,
        Some(framing) => framing,
        // Rule 8.
        None => Framing::UntilClose,
    })
}

#[inline]
fn declared<Start>(
    head: &Head<Start>,
    bytes: &[u8],
    version: Version,
) -> Result<Option<Framing>, FramingError> {
    let deciding = head.fields.names.intersection(DECIDING);
    if deciding == NameSet::NONE {
        return Ok(None);
    }
    // One length, and nothing to compare it with.
    if deciding == NameSet::NONE.with(Name::ContentLength)
        && !head.fields.repeated.has(Name::ContentLength)
        && let Some(value) = head.value(bytes, Name::ContentLength)
    {
        return length(value).map(|length| Some(Framing::Length(length)));
    }
    let mut framing = None;
    for field in &head.fields {
        let value = field.value.of(bytes);
        let this = match field.known {
            Name::ContentLength => Framing::Length(length(value)?),
            // RFC 9112 §6.1: an HTTP/1.0 message with Transfer-Encoding has faulty framing.
            Name::TransferEncoding if version == Version::Http10 => return Err(FramingError::CodingInHttp10),
            // RFC 9112 §7: codings are case-insensitive; no other coding is understood here.
            Name::TransferEncoding if value.eq_ignore_ascii_case(b"chunked") => Framing::Chunked,
            Name::TransferEncoding => return Err(FramingError::CodingUnknown),
            Name::DisguisedContentLength | Name::DisguisedTransferEncoding => {
                return Err(FramingError::Disguised);
            }
            _ => continue,
        };
        framing = match (framing, this) {
            (None, this) => Some(this),
            (Some(Framing::Length(_)), Framing::Length(_)) => return Err(FramingError::LengthRepeated),
            (Some(Framing::Chunked), Framing::Chunked) => return Err(FramingError::CodingUnknown),
            _ => return Err(FramingError::BothLengthAndCoding),
        };
    }
    Ok(framing)
}

/// RFC 9110 §8.6: only digits. A list of equal lengths is allowed to be repaired there; it is refused here.
fn length(value: &[u8]) -> Result<u64, FramingError> {
    if value.is_empty() || value.len() > 19 {
        return Err(FramingError::LengthInvalid);
    }
    let length = value.iter().try_fold(0u64, |sum, byte| {
        // 19 digits stay below 2^64.
        byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0'))
    });
    length.filter(|&length| length <= i64::MAX as u64).ok_or(FramingError::LengthInvalid)
}
