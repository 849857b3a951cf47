//! The request target in its four forms (RFC 9112 §3.2), and the Host that goes with it.
//!
//! Paths are split from queries and passed on byte for byte: nothing is decoded or normalised here.

use crate::head::{RequestHead, Span, Version};
use crate::method::Method;
use crate::name::Name;
use crate::parse::is_host_byte;

/// Which of the four forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TargetForm {
    /// `/path?query`.
    #[default]
    Origin,
    /// `http://host/path?query`, sent on as origin-form with that host.
    Absolute,
    /// `host:port`, of CONNECT.
    Authority,
    /// `*`, of OPTIONS.
    Asterisk,
}

/// Where a request wants to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Target {
    /// Which form was sent.
    pub form: TargetForm,
    /// Host and port as the client means them; empty where an HTTP/1.0 client named none.
    pub authority: Span,
    /// Path and query to send on; empty means `/`, or `*` for the asterisk form.
    pub path_and_query: Span,
    /// The path alone.
    pub path: Span,
}

/// Why a target or Host is refused: 400, all of them (RFC 9112 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetError {
    /// HTTP/1.1 without Host.
    HostMissing,
    /// More than one Host.
    HostRepeated,
    /// Host is not `host[:port]`.
    HostInvalid,
    /// A target in none of the four forms, or in one that the method does not take.
    Form,
    /// An absolute-form target that is not http or https, or with user information.
    Absolute,
}

impl Target {
    /// Reads target and Host of a complete head.
    // Always inlined, so that its parts are written where they stay: read as a whole just after they were written one by
    // one, they would have to leave the processor first.
    #[inline(always)]
    pub fn of(head: &RequestHead, bytes: &[u8]) -> Result<Target, TargetError> {
        let host = host(head, bytes)?;
        let span = head.start.target;
        let target = span.of(bytes);
        let (form, authority, path_and_query) = match (target[0], head.start.method) {
            (_, Method::Connect) => {
                // RFC 9112 §3.2.3: with a port, which has no default here.
                let has_port = host_without_port(target).len() + 1 < target.len();
                if !has_port || !is_valid_authority(target) {
                    return Err(TargetError::Form);
                }
                (TargetForm::Authority, span, Span::new(span.end as usize, span.end as usize))
            }
            (b'/', _) => (TargetForm::Origin, host, span),
            (b'*', Method::Options) if target.len() == 1 => (TargetForm::Asterisk, host, span),
            _ => {
                let (authority, rest) = split_absolute(target, span)?;
                // RFC 9112 §3.2.2: the host of the target replaces what Host says.
                (TargetForm::Absolute, authority, rest)
            }
        };
        let path = Span { end: head.start.path_end, ..path_and_query };
        Ok(Target { form, authority, path_and_query, path })
    }
}

/// RFC 9112 §3.2: one Host, and a valid one; HTTP/1.0 may leave it out.
fn host(head: &RequestHead, bytes: &[u8]) -> Result<Span, TargetError> {
    let Some(host) = head.field(Name::Host) else {
        return match head.start.version {
            Version::Http10 => Ok(Span::default()),
            Version::Http11 | Version::Http2 => Err(TargetError::HostMissing),
        };
    };
    if head.fields.repeated.has(Name::Host) {
        return Err(TargetError::HostRepeated);
    }
    if !is_valid_authority(host.value.of(bytes)) {
        return Err(TargetError::HostInvalid);
    }
    Ok(host.value)
}

fn split_absolute(target: &[u8], span: Span) -> Result<(Span, Span), TargetError> {
    let colon = target.iter().position(|&byte| byte == b':').ok_or(TargetError::Form)?;
    let (scheme, rest) = target.split_at(colon);
    let Some(rest) = rest.strip_prefix(b"://") else { return Err(TargetError::Form) };
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return Err(TargetError::Absolute);
    }
    let authority_len = rest.iter().position(|&byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    // RFC 9110 §4.2.4: user information in a target is refused; `@` is no byte of a host.
    if !is_valid_authority(&rest[..authority_len]) {
        return Err(TargetError::Absolute);
    }
    let start = span.start as usize + colon + 3;
    let path = start + authority_len;
    Ok((Span::new(start, path), Span::new(path, span.end as usize)))
}

/// Whether this is `host[:port]` (RFC 3986 §3.2.2 and §3.2.3) with a host that is not empty.
///
/// Escapes and commas, which that grammar has, are refused: some readers decode a host and some do not, and a comma
/// makes two hosts of one in a list such as X-Forwarded-Host.
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

/// RFC 1035 §2.3.4.
pub(crate) const HOST_BYTES_MAX: usize = 255;

/// The host of `host[:port]`, an IPv6 address with its brackets.
#[inline]
pub fn host_without_port(authority: &[u8]) -> &[u8] {
    let len = match authority.first() {
        Some(b'[') => authority.iter().position(|&byte| byte == b']').map_or(authority.len(), |at| at + 1),
        _ => authority.iter().position(|&byte| !is_host_byte(byte)).unwrap_or(authority.len()),
    };
    &authority[..len]
}

/// RFC 3986 §3.2.3: digits, or none.
#[inline]
fn is_valid_port(digits: &[u8]) -> bool {
    // Four digits are always in range.
    digits.iter().all(u8::is_ascii_digit) && (digits.len() <= 4 || is_in_range(digits))
}

fn is_in_range(digits: &[u8]) -> bool {
    digits.iter().fold(0u32, |sum, byte| (sum * 10 + u32::from(byte - b'0')).min(65_536)) <= 65_535
}

/// RFC 3986 §3.2.2, without zones and addresses of the future.
fn is_ipv6(host: &[u8]) -> bool {
    let inside = host.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
    let text = inside.and_then(|inside| std::str::from_utf8(inside).ok());
    text.is_some_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}
