//! The request target in its four forms (RFC 9112 §3.2), and Host.
//!
//! Path and query are separated and forwarded byte for byte: nothing is decoded or normalised here.

use crate::head::{ByteSpan, HttpVersion, RequestHead};
use crate::method::Method;
use crate::name::Name;
use crate::parse::is_host_byte;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TargetForm {
    /// `/path?query`.
    #[default]
    Origin,
    /// `http://host/path?query`; forwarded in origin-form with that host.
    Absolute,
    /// `host:port`, used with CONNECT.
    Authority,
    /// `*`, used with OPTIONS.
    Asterisk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestTarget {
    pub form: TargetForm,
    /// Host and port of the request. Empty if an HTTP/1.0 client sent no Host.
    pub authority: ByteSpan,
    /// Path and query to forward. Empty means `/`, or `*` in the asterisk form.
    pub path_and_query: ByteSpan,
    pub path: ByteSpan,
}

/// Why a target or Host is rejected, always with 400 (RFC 9112 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetError {
    HostMissing,
    HostRepeated,
    /// Not `host[:port]`.
    HostInvalid,
    /// The target has none of the four forms, or one that the method does not allow.
    Form,
    /// An absolute-form target is not http or https, or has user information.
    Absolute,
}

impl RequestTarget {
    // Always inlined, so that each part is written directly to its destination. A copy of the whole struct right after
    // these writes would read bytes that are still in the store buffer, and stall.
    #[inline(always)]
    pub fn from_head(head: &RequestHead, bytes: &[u8]) -> Result<RequestTarget, TargetError> {
        let host = host(head, bytes)?;
        let span = head.start.target;
        let target = span.for_bytes(bytes);
        let (form, authority, path_and_query) = match (target[0], head.start.method) {
            // By the method first: only CONNECT uses the authority form, and its first byte does not identify it.
            (_, Method::Connect) => {
                // RFC 9112 §3.2.3: CONNECT requires a port, because it has no default.
                let has_port = host_without_port(target).len() + 1 < target.len();
                if !has_port || !is_valid_authority(target) {
                    return Err(TargetError::Form);
                }
                (TargetForm::Authority, span, ByteSpan::new(span.end as usize, span.end as usize))
            }
            (b'/', _) => (TargetForm::Origin, host, span),
            (b'*', Method::Options) if target.len() == 1 => (TargetForm::Asterisk, host, span),
            _ => {
                let (authority, rest) = split_absolute(target, span)?;
                // RFC 9112 §3.2.2: the host of the target replaces the Host field.
                (TargetForm::Absolute, authority, rest)
            }
        };
        let path = ByteSpan { end: head.start.path_end, ..path_and_query };
        Ok(RequestTarget { form, authority, path_and_query, path })
    }
}

/// RFC 9112 §3.2: exactly one valid Host. HTTP/1.0 may omit it.
fn host(head: &RequestHead, bytes: &[u8]) -> Result<ByteSpan, TargetError> {
    let Some(host) = head.field(Name::Host) else {
        return match head.start.version {
            HttpVersion::Http10 => Ok(ByteSpan::default()),
            HttpVersion::Http11 | HttpVersion::Http2 | HttpVersion::Http3 => Err(TargetError::HostMissing),
        };
    };
    // RFC 9112 §3.2: 400 even for equal values. The route could be chosen by one, the server's site by the other.
    if head.fields.repeated.has(Name::Host) {
        return Err(TargetError::HostRepeated);
    }
    if !is_valid_authority(host.value.for_bytes(bytes)) {
        return Err(TargetError::HostInvalid);
    }
    Ok(host.value)
}

fn split_absolute(target: &[u8], span: ByteSpan) -> Result<(ByteSpan, ByteSpan), TargetError> {
    let colon = target.iter().position(|&byte| byte == b':').ok_or(TargetError::Form)?;
    let (scheme, rest) = target.split_at(colon);
    let Some(rest) = rest.strip_prefix(b"://") else { return Err(TargetError::Form) };
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return Err(TargetError::Absolute);
    }
    // The path may be empty, so that a query follows at once: `http://host?query`.
    let authority_len = rest.iter().position(|&byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    // RFC 9110 §4.2.4: user information in a target is rejected, because `@` is not allowed in a host.
    if !is_valid_authority(&rest[..authority_len]) {
        return Err(TargetError::Absolute);
    }
    let start = span.start as usize + colon + 3;
    let path = start + authority_len;
    Ok((ByteSpan::new(start, path), ByteSpan::new(path, span.end as usize)))
}

/// Whether a text is `host[:port]` (RFC 3986 §3.2.2 and §3.2.3) with a non-empty host.
///
/// Escapes and commas, which the RFC allows, are rejected: only some readers decode a host, and in a list such as
/// X-Forwarded-Host a comma turns one host into two.
#[inline]
pub fn is_valid_authority(authority: &[u8]) -> bool {
    let host = host_without_port(authority);
    let is_valid_port = match &authority[host.len()..] {
        [] => true,
        [b':', digits @ ..] => is_valid_port(digits),
        _ => false,
    };
    is_valid_port && !host.is_empty() && host.len() <= HOST_BYTES_MAX && (host[0] != b'[' || is_ipv6(host))
}

/// The longest host (RFC 1035 §2.3.4).
pub(crate) const HOST_BYTES_MAX: usize = 255;

/// The host of `host[:port]`, with brackets if it is an IPv6 address.
#[inline]
pub fn host_without_port(authority: &[u8]) -> &[u8] {
    let len = match authority.first() {
        Some(b'[') => authority.iter().position(|&byte| byte == b']').map_or(authority.len(), |at| at + 1),
        _ => authority.iter().position(|&byte| !is_host_byte(byte)).unwrap_or(authority.len()),
    };
    &authority[..len]
}

/// RFC 3986 §3.2.3: digits, possibly none.
#[inline]
fn is_valid_port(digits: &[u8]) -> bool {
    // Four digits are always in range.
    digits.iter().all(u8::is_ascii_digit) && (digits.len() <= 4 || is_in_range(digits))
}

fn is_in_range(digits: &[u8]) -> bool {
    // Capped at each digit: a long run of digits must not overflow.
    digits.iter().fold(0u32, |sum, byte| (sum * 10 + u32::from(byte - b'0')).min(65_536)) <= 65_535
}

/// RFC 3986 §3.2.2, without zones and future address formats.
fn is_ipv6(host: &[u8]) -> bool {
    let inside = host.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
    let text = inside.and_then(|inside| std::str::from_utf8(inside).ok());
    // The parser of the standard library rejects zones, which mean nothing on another machine.
    text.is_some_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}
