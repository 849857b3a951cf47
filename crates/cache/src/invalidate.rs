//! Invalidation by unsafe requests (RFC 9111 §4.4): of the target URI, and of same-origin URIs in Location and
//! Content-Location.

use http1::{Method, ResponseHead};

use crate::fields::value;
use crate::key::Uri;

/// Whether the response to a request with this method invalidates stored responses of the target.
pub fn invalidates(method: Method, status: u16) -> bool {
    // RFC 9111 §4.4: a non-error response is 2xx or 3xx.
    is_unsafe(method) && (200..400).contains(&status)
}

/// Whether a method is unsafe (RFC 9110 §9.2.1), so that success invalidates stored responses of the target. Unknown
/// methods count as unsafe (RFC 9111 §4.4).
#[inline]
pub fn is_unsafe(method: Method) -> bool {
    !matches!(method, Method::Get | Method::Head | Method::Options | Method::Trace | Method::Connect)
}

/// Further paths with queries that the response invalidates, all of the target's origin.
pub fn also_invalid(head: &ResponseHead, bytes: &[u8], target: &Uri<'_>) -> impl Iterator<Item = Vec<u8>> {
    let named = [b"location".as_slice(), b"content-location"];
    named.into_iter().filter_map(move |name| resolve(value(head, bytes, name)?, target))
}

/// Resolves a reference against its base (RFC 3986 §5.2). `None` if the result has another origin, which must not be
/// able to invalidate this one's responses.
fn resolve(reference: &[u8], base: &Uri<'_>) -> Option<Vec<u8>> {
    let reference = reference.split(|&byte| byte == b'#').next().unwrap_or_default();
    if let Some(rest) = after_scheme(reference) {
        let (scheme, rest) = rest;
        let is_https = scheme.eq_ignore_ascii_case(b"https");
        if !is_https && !scheme.eq_ignore_ascii_case(b"http") {
            return None;
        }
        return path_of_same_origin(is_https, rest.strip_prefix(b"//")?, base);
    }
    if let Some(rest) = reference.strip_prefix(b"//") {
        return path_of_same_origin(base.is_https, rest, base);
    }
    Some(match reference.first() {
        Some(b'/') => without_dot_segments(reference),
        Some(b'?') => [base.path, reference].concat(),
        None => match base.query {
            Some(query) => [base.path, b"?", query].concat(),
            None => base.path.to_vec(),
        },
        Some(_) => {
            let folder = base.path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
            without_dot_segments(&[&base.path[..folder], reference].concat())
        }
    })
}

/// RFC 3986 §3.1.
fn after_scheme(reference: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = reference.iter().position(|byte| b":/?".contains(byte))?;
    let (scheme, rest) = reference.split_at(end);
    let is_scheme = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    is_scheme.then(|| rest.strip_prefix(b":")).flatten().map(|rest| (scheme, rest))
}

fn path_of_same_origin(is_https: bool, rest: &[u8], base: &Uri<'_>) -> Option<Vec<u8>> {
    let end = rest.iter().position(|byte| b"/?".contains(byte)).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let other = Uri::new(is_https, authority, path);
    // RFC 9111 §4.4: only the origin that answered may invalidate, or one site could empty the cache of another.
    let is_same =
        is_https == base.is_https && other.plain_authority().eq_ignore_ascii_case(base.plain_authority());
    is_same.then(|| match path.first() {
        Some(b'/') => without_dot_segments(path),
        _ => [b"/", path].concat(),
    })
}

/// RFC 3986 §5.2.4, for a path that begins with a slash; the query stays.
fn without_dot_segments(path_and_query: &[u8]) -> Vec<u8> {
    let query_start = path_and_query.iter().position(|&byte| byte == b'?').unwrap_or(path_and_query.len());
    let (path, query) = path_and_query.split_at(query_start);
    let mut segments: Vec<&[u8]> = Vec::new();
    let mut parts = path.split(|&byte| byte == b'/').skip(1).peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        match part {
            b"." => {}
            b".." => {
                // RFC 3986 §5.2.4: above the root, `..` has no effect.
                segments.pop();
            }
            part => segments.push(part),
        }
        if is_last && matches!(part, b"." | b"..") {
            segments.push(b"");
        }
    }
    let mut resolved = Vec::with_capacity(path_and_query.len());
    for segment in segments {
        resolved.push(b'/');
        resolved.extend_from_slice(segment);
    }
    resolved.extend_from_slice(query);
    resolved
}
