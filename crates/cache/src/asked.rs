//! Cache-related properties of a request, read in one pass over its fields.
//!
//! Only the directives are kept. Other values are needed rarely, and then looked up again.

use http1::{Method, Name, RequestHead};

use crate::directives::RequestDirectives;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheRequestFields {
    pub method: Method,
    /// Cache-Control of the request (RFC 9111 §5.2.1), or Pragma if there is none.
    pub directives: RequestDirectives,
    present: u16,
}

/// A request field that matters to a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Present {
    Authorization = 1,
    CacheControl = 2,
    Pragma = 4,
    Range = 8,
    IfRange = 16,
    IfMatch = 32,
    IfNoneMatch = 64,
    IfModifiedSince = 128,
    IfUnmodifiedSince = 256,
    Upgrade = 512,
    Body = 1024,
}

impl Present {
    /// The length and the first letter leave one or two candidates.
    #[inline]
    fn parse(name: &[u8]) -> Option<Present> {
        let first = name.first().map_or(0, |byte| byte | 0x20);
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match (name.len(), first) {
            (5, b'r') if is(b"range") => Some(Present::Range),
            (6, b'p') if is(b"pragma") => Some(Present::Pragma),
            (8, b'i') if is(b"if-match") => Some(Present::IfMatch),
            (8, b'i') if is(b"if-range") => Some(Present::IfRange),
            (13, b'c') if is(b"cache-control") => Some(Present::CacheControl),
            (13, b'i') if is(b"if-none-match") => Some(Present::IfNoneMatch),
            (13, b'a') if is(b"authorization") => Some(Present::Authorization),
            (17, b'i') if is(b"if-modified-since") => Some(Present::IfModifiedSince),
            (19, b'i') if is(b"if-unmodified-since") => Some(Present::IfUnmodifiedSince),
            _ => None,
        }
    }
}

const CONDITIONAL: u16 = Present::IfMatch as u16
    | Present::IfNoneMatch as u16
    | Present::IfModifiedSince as u16
    | Present::IfUnmodifiedSince as u16;

impl CacheRequestFields {
    pub fn new(head: &RequestHead, bytes: &[u8]) -> Self {
        let mut present = 0;
        for field in &head.fields {
            present |= match field.known {
                Name::Other => Present::parse(field.name.for_bytes(bytes)).map_or(0, |field| field as u16),
                Name::Upgrade => Present::Upgrade as u16,
                Name::TransferEncoding => Present::Body as u16,
                // Some clients send a length of 0 with GET.
                Name::ContentLength if field.value.for_bytes(bytes) != b"0" => Present::Body as u16,
                _ => 0,
            };
        }
        let mut asked = Self { method: head.start.method, directives: RequestDirectives::default(), present };
        // Most requests have neither, and pay only for the look at their names.
        if asked.has(Present::CacheControl) || asked.has(Present::Pragma) {
            asked.directives = RequestDirectives::from_head(head, bytes);
        }
        asked
    }

    /// A copy without Authorization, for a server that does not see the field: its response is then not for one user
    /// alone (RFC 9111 §3.5).
    #[must_use]
    pub fn without_authorization(self) -> Self {
        Self { present: self.present & !(Present::Authorization as u16), ..self }
    }

    /// A copy as if it had Authorization, for a server that identifies the user by another field (RFC 9111 §3.5).
    #[must_use]
    pub fn with_authorization(self) -> Self {
        Self { present: self.present | Present::Authorization as u16, ..self }
    }

    /// Whether the request has Authorization, or counts as such.
    pub fn has_authorization(&self) -> bool {
        self.has(Present::Authorization)
    }

    #[inline]
    pub(crate) fn has(&self, field: Present) -> bool {
        self.present & field as u16 != 0
    }

    /// Whether the request has Cache-Control or Pragma.
    #[inline]
    pub fn has_directives(&self) -> bool {
        self.present & (Present::CacheControl as u16 | Present::Pragma as u16) != 0
    }

    /// Whether the request has preconditions, which must be evaluated before a stored response is sent.
    #[inline]
    pub fn is_conditional(&self) -> bool {
        self.present & CONDITIONAL != 0
    }

    /// Whether the request has If-Match or If-Unmodified-Since. If a stored response does not fulfil them, only the
    /// origin can evaluate them (RFC 9110 §13.1.1, §13.1.4).
    #[inline]
    pub fn has_condition_for_origin(&self) -> bool {
        self.has(Present::IfMatch) || self.has(Present::IfUnmodifiedSince)
    }

    /// Whether the request is a GET with Range; other methods ignore Range (RFC 9110 §14.2).
    #[inline]
    pub fn has_range(&self) -> bool {
        self.has(Present::Range) && self.method == Method::Get
    }

    /// Whether a 206 to this request can be stored as a part. Not with If-Range, which leaves out fields (RFC 9110
    /// §15.3.7), and not with preconditions, on which the response depends.
    pub fn brings_part(&self) -> bool {
        self.has_range() && !self.has(Present::IfRange) && !self.is_conditional()
    }

    /// Whether a stored response may be sent: only for GET or HEAD (RFC 9111 §4), without a body and without Upgrade.
    ///
    /// A body of GET has no defined meaning (RFC 9110 §9.3.1), but a server may give it one.
    #[inline]
    pub fn may_be_answered(&self) -> bool {
        matches!(self.method, Method::Get | Method::Head)
            && self.present & (Present::Upgrade as u16 | Present::Body as u16) == 0
    }
}
