//! Fields for clients with a stored response: Age (RFC 9111 §5.1), Cache-Status (RFC 9211) and Content-Length.

use crate::decide::Forward;
use crate::fields::push_number;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handling {
    Hit,
    Forwarded {
        forward: Forward,
        /// The origin's status, if the client gets another one: 304 for a stored response that was validated.
        status: Option<u16>,
        is_stored: bool,
        /// Whether the request waited for another one's response (request collapsing).
        is_collapsed: bool,
    },
}

/// This cache's member of Cache-Status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheStatus<'a> {
    pub handling: Handling,
    /// The remaining freshness lifetime; negative if the response is stale (RFC 9211 §2.5).
    pub ttl_seconds: Option<i64>,
    /// The cache key, if clients may see it.
    pub key: Option<&'a [u8]>,
    /// Why the response was not stored, as one word.
    pub detail: Option<&'a str>,
}

#[inline]
pub fn write_age(out: &mut Vec<u8>, age_seconds: u64) {
    out.extend_from_slice(b"Age: ");
    // RFC 9111 §1.2.2.
    push_number(out, age_seconds.min(1 << 31));
    out.extend_from_slice(b"\r\n");
}

#[inline]
pub fn write_content_length(out: &mut Vec<u8>, bytes: u64) {
    out.extend_from_slice(b"Content-Length: ");
    push_number(out, bytes);
    out.extend_from_slice(b"\r\n");
}

impl CacheStatus<'_> {
    /// Appends the field with CRLF. Write it after the origin's fields: this cache's member then comes last (RFC 9211
    /// §2).
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"Cache-Status: vanward");
        match self.handling {
            Handling::Hit => out.extend_from_slice(b"; hit"),
            Handling::Forwarded { forward, status, is_stored, is_collapsed } => {
                out.extend_from_slice(b"; fwd=");
                out.extend_from_slice(forward.word().as_bytes());
                if let Some(status) = status {
                    out.extend_from_slice(b"; fwd-status=");
                    push_number(out, status.into());
                }
                if is_stored {
                    out.extend_from_slice(b"; stored");
                }
                if is_collapsed {
                    out.extend_from_slice(b"; collapsed");
                }
            }
        }
        if let Some(ttl_seconds) = self.ttl_seconds {
            out.extend_from_slice(if ttl_seconds < 0 { b"; ttl=-" } else { b"; ttl=" });
            push_number(out, ttl_seconds.unsigned_abs());
        }
        if let Some(key) = self.key {
            out.extend_from_slice(b"; key=");
            push_string(out, key);
        }
        if let Some(detail) = self.detail {
            out.extend_from_slice(b"; detail=");
            out.extend_from_slice(detail.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// RFC 9651 §4.1.6: appends a String. Bytes that a String cannot contain become `?`.
fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            // A key has one line for each further part.
            b'\n' => out.push(b' '),
            0x20..=0x7e => out.push(byte),
            _ => out.push(b'?'),
        }
    }
    out.push(b'"');
}
