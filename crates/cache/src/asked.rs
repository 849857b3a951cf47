//! What a request asks of a cache, read in one pass over its fields.
//!
//! Nothing is kept of the values but directives: what is needed in rare cases is looked for again then.

use http1::{Method, Name, RequestHead};

use crate::directives::RequestDirectives;

/// What a request asks of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asked {
    /// Its method.
    pub method: Method,
    /// Its Cache-Control (RFC 9111 §5.2.1), and Pragma where that is missing.
    pub directives: RequestDirectives,
    present: u16,
}

/// A field that a cache has to know of in a request.
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
    fn of(name: &[u8]) -> Option<Present> {
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

impl Asked {
    /// Reads a request.
    pub fn of(head: &RequestHead, bytes: &[u8]) -> Self {
        let mut present = 0;
        for field in &head.fields {
            present |= match field.known {
                Name::Other => Present::of(field.name.of(bytes)).map_or(0, |field| field as u16),
                Name::Upgrade => Present::Upgrade as u16,
                Name::TransferEncoding => Present::Body as u16,
                Name::ContentLength if field.value.of(bytes) != b"0" => Present::Body as u16,
                _ => 0,
            };
        }
        let mut asked = Self { method: head.start.method, directives: RequestDirectives::default(), present };
        if asked.has(Present::CacheControl) || asked.has(Present::Pragma) {
            asked.directives = RequestDirectives::of(head, bytes);
        }
        asked
    }

    /// The same where the server does not see who asks: what it answers is for nobody alone (RFC 9111 §3.5).
    #[must_use]
    pub fn without_authorization(self) -> Self {
        Self { present: self.present & !(Present::Authorization as u16), ..self }
    }

    #[inline]
    pub(crate) fn has(&self, field: Present) -> bool {
        self.present & field as u16 != 0
    }

    /// Whether the request says how fresh a response is to be.
    #[inline]
    pub fn has_directives(&self) -> bool {
        self.present & (Present::CacheControl as u16 | Present::Pragma as u16) != 0
    }

    /// Whether the request has preconditions, which have to be judged before a stored response answers it.
    #[inline]
    pub fn is_conditional(&self) -> bool {
        self.present & CONDITIONAL != 0
    }

    /// Whether it has a precondition that only the origin can judge, where what is stored does not fulfil it (RFC 9110
    /// §13.1.1, §13.1.4).
    #[inline]
    pub fn has_condition_for_origin(&self) -> bool {
        self.has(Present::IfMatch) || self.has(Present::IfUnmodifiedSince)
    }

    /// Whether the request asks for ranges of its target. RFC 9110 §14.2: only GET does.
    #[inline]
    pub fn has_range(&self) -> bool {
        self.has(Present::Range) && self.method == Method::Get
    }

    /// Whether what comes in answer to its range is as a range of the whole would be, with all that is said of that: with
    /// If-Range much of it is left out (RFC 9110 §15.3.7), and with preconditions it depends on these.
    pub fn brings_part(&self) -> bool {
        self.has_range() && !self.has(Present::IfRange) && !self.is_conditional()
    }

    /// Whether a stored response may answer: a GET or HEAD without a body that asks for no other protocol.
    ///
    /// RFC 9111 §4: the method must allow it. RFC 9110 §9.3.1: a body of GET has no meaning, but a server may give it one.
    #[inline]
    pub fn may_be_answered(&self) -> bool {
        matches!(self.method, Method::Get | Method::Head)
            && self.present & (Present::Upgrade as u16 | Present::Body as u16) == 0
    }
}
