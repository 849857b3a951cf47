//! Message framing: where a body ends (RFC 9112 §6.3), decided once from the head.
//!
//! To prevent request smuggling, messages whose length could be read in two ways are rejected.

use crate::head::{HttpVersion, MessageHead, RequestHead, ResponseHead};
use crate::name::{Name, NameSet};

/// Where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyFraming {
    #[default]
    None,
    /// Content-Length: this many bytes, at least one.
    Length(u64),
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

/// Fields that state where a body ends, or that a server may take for such a field.
const DECIDING: NameSet = NameSet::NONE
    .with(Name::ContentLength)
    .with(Name::TransferEncoding)
    .with(Name::DisguisedContentLength)
    .with(Name::DisguisedTransferEncoding);

#[inline]
pub fn request_framing(head: &RequestHead, bytes: &[u8]) -> Result<BodyFraming, FramingError> {
    // Most requests have no such field.
    if head.fields.names.intersection(DECIDING) == NameSet::NONE {
        return Ok(BodyFraming::None);
    }
    request_body_framing(head, bytes)
}

fn request_body_framing(head: &RequestHead, bytes: &[u8]) -> Result<BodyFraming, FramingError> {
    Ok(match declared(head, bytes, head.start.version)? {
        // RFC 9112 §6.3, rule 7: a request with neither field has no body.
        None | Some(BodyFraming::Length(0)) => BodyFraming::None,
        Some(framing) => framing,
    })
}

/// Whether a final response has no body, whatever its fields say (RFC 9112 §6.3, rule 1).
pub fn is_bodiless(status: u16, to_head: bool) -> bool {
    to_head || matches!(status, 204 | 304)
}

/// Determines where the body of a final response ends. `to_head` says whether the request was a HEAD.
///
/// Must not be called for interim responses, which have no body.
pub fn response_framing(
    head: &ResponseHead,
    bytes: &[u8],
    to_head: bool,
) -> Result<BodyFraming, FramingError> {
    // Before the check for responses without a body: contradictory fields are an error there, too.
    let declared = declared(head, bytes, head.start.version)?;
    if is_bodiless(head.start.status, to_head) {
        return Ok(BodyFraming::None);
    }
    Ok(match declared {
        Some(BodyFraming::Length(0)) => BodyFraming::None,
        Some(framing) => framing,
        // RFC 9112 §6.3, rule 8.
        None => BodyFraming::UntilClose,
    })
}

#[inline]
fn declared<Start>(
    head: &MessageHead<Start>,
    bytes: &[u8],
    version: HttpVersion,
) -> Result<Option<BodyFraming>, FramingError> {
    let deciding = head.fields.names.intersection(DECIDING);
    if deciding == NameSet::NONE {
        return Ok(None);
    }
    // Fast path: a single Content-Length, and nothing that could contradict it.
    if deciding == NameSet::NONE.with(Name::ContentLength)
        && !head.fields.repeated.has(Name::ContentLength)
        && let Some(value) = head.value(bytes, Name::ContentLength)
    {
        return length(value).map(|length| Some(BodyFraming::Length(length)));
    }
    let mut framing = None;
    // Looks at every field, not at the first of each name: the second one is the attack.
    for field in &head.fields {
        let value = field.value.for_bytes(bytes);
        let this = match field.known {
            Name::ContentLength => BodyFraming::Length(length(value)?),
            // RFC 9112 §6.1: an HTTP/1.0 message with Transfer-Encoding has faulty framing.
            Name::TransferEncoding if version == HttpVersion::Http10 => {
                return Err(FramingError::CodingInHttp10);
            }
            // RFC 9112 §7: codings are case-insensitive; no other coding is understood here.
            Name::TransferEncoding if value.eq_ignore_ascii_case(b"chunked") => BodyFraming::Chunked,
            Name::TransferEncoding => return Err(FramingError::CodingUnknown),
            Name::DisguisedContentLength | Name::DisguisedTransferEncoding => {
                return Err(FramingError::Disguised);
            }
            _ => continue,
        };
        framing = match (framing, this) {
            (None, this) => Some(this),
            // Equal lengths as well: the next hop may read only the first, or reject both.
            (Some(BodyFraming::Length(_)), BodyFraming::Length(_)) => {
                return Err(FramingError::LengthRepeated);
            }
            (Some(BodyFraming::Chunked), BodyFraming::Chunked) => return Err(FramingError::CodingUnknown),
            // RFC 9112 §6.3, rule 3: both together may be an attempt at request smuggling.
            _ => return Err(FramingError::BothLengthAndCoding),
        };
    }
    Ok(framing)
}

/// RFC 9110 §8.6: only digits. The RFC allows repairing a list of equal lengths; this parser rejects it.
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
