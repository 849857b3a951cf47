//! Parsing and writing, message by message: tables named after sections of the RFCs, then properties.

/// Start lines, field lines and their limits.
mod head;
/// Target forms and Host.
mod target;
/// Where bodies end, and which framings are rejected.
mod framing;
/// The chunked coding.
mod chunked;
/// Connection and Upgrade.
mod hop;
/// Requests written for servers.
mod write_request;
/// Responses written for clients.
mod write_response;
/// Properties of every input.
mod properties;
/// A slow, simple parser.
mod oracle;
/// Compares the fast parser with the oracle.
mod differences;

use http1::{HeadError, HeadLimits, Parsed, RequestHead, ResponseHead};

pub(crate) const LIMITS: HeadLimits = HeadLimits { bytes: 64 * 1024, fields: 256, target: 16 * 1024 };

pub(crate) fn parse_request(bytes: &[u8]) -> Result<RequestHead, HeadError> {
    let mut head = RequestHead::default();
    match head.parse(bytes, &LIMITS)? {
        Parsed::Complete => Ok(head),
        Parsed::Partial => panic!("not a whole head: {}", text(bytes)),
    }
}

pub(crate) fn parse_response(bytes: &[u8]) -> Result<ResponseHead, HeadError> {
    let mut head = ResponseHead::default();
    match head.parse(bytes, &LIMITS)? {
        Parsed::Complete => Ok(head),
        Parsed::Partial => panic!("not a whole head: {}", text(bytes)),
    }
}

/// A valid request with these field lines, each with its CRLF.
pub(crate) fn request_with(fields: &str) -> Vec<u8> {
    format!("POST /path HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n").into_bytes()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
