//! A message head: a start line and fields, as byte ranges of one buffer.
//!
//! A `Head` owns no bytes. Every accessor takes the bytes that the head was parsed from: their place in memory may have
//! changed, their content not. The field list is reused from message to message, so nothing is allocated.

use std::ops::Deref;

use crate::method::Method;
use crate::name::{Name, NameSet};

/// A byte range, counted from the first byte of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The bytes that the span covers.
    #[inline]
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..self.end as usize]
    }

    pub(crate) fn new(start: usize, end: usize) -> Self {
        // Heads are limited to far less than 4 GiB (`HeadLimits::bytes`).
        Self { start: start as u32, end: end as u32 }
    }
}

/// A field line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The name, as it was sent.
    pub name: Span,
    /// The value without the white space around it.
    pub value: Span,
    /// One past the CRLF of the line. The line starts where its name does.
    pub line_end: u32,
    /// The recognised name, or `Name::Other`.
    pub known: Name,
}

/// The HTTP version of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1, and any later 1.x (RFC 9110 §2.5).
    #[default]
    Http11,
    /// HTTP/2. Its heads are converted to HTTP/1.1 text. Set by the caller, never parsed from a head.
    Http2,
    /// HTTP/3, in the same way.
    Http3,
}

/// The request line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestLine {
    /// The method; `Other` if it is not a known one.
    pub method: Method,
    /// The method, as it was sent.
    pub method_span: Span,
    /// The request target, in any of the four forms.
    pub target: Span,
    /// Where the query starts with its `?`; the end of the target if there is no query.
    pub(crate) path_end: u32,
    /// The HTTP version of the client.
    pub version: Version,
}

/// The status line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatusLine {
    /// The status code, from 100 to 599.
    pub status: u16,
    /// The reason phrase; may be empty.
    pub reason: Span,
    /// The HTTP version of the server.
    pub version: Version,
}

/// The fields of a head, in the order in which they were sent.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    list: Vec<Field>,
    /// The known names that occur, so that most look-ups need no search.
    pub(crate) names: NameSet,
    /// The known names that occur more than once.
    pub(crate) repeated: NameSet,
    /// The index of the first field of each name in `names`.
    firsts: [u32; Name::COUNT],
}

impl Deref for Fields {
    type Target = [Field];

    #[inline]
    fn deref(&self) -> &[Field] {
        &self.list
    }
}

impl<'a> IntoIterator for &'a Fields {
    type Item = &'a Field;
    type IntoIter = std::slice::Iter<'a, Field>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

impl Fields {
    /// The values of all fields with this name, in order.
    #[inline]
    pub(crate) fn values<'a>(&'a self, bytes: &'a [u8], name: Name) -> impl Iterator<Item = &'a [u8]> {
        let fields = self.with(NameSet::NONE.with(name)).iter();
        fields.filter(move |field| field.known == name).map(move |field| field.value.of(bytes))
    }

    /// A slice that contains every field with one of these names: empty if there is none, one field if there is one.
    #[inline]
    pub(crate) fn with(&self, names: NameSet) -> &[Field] {
        let present = self.names.intersection(names);
        match present.only() {
            _ if present == NameSet::NONE => &[],
            Some(name) if self.repeated.intersection(present) == NameSet::NONE => {
                let first = self.firsts[name] as usize;
                self.list.get(first..=first).unwrap_or(&[])
            }
            _ => &self.list,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, field: Field) {
        let name = field.known;
        if name != Name::Other {
            if self.names.has(name) {
                self.repeated = self.repeated.with(name);
            } else {
                self.names = self.names.with(name);
                self.firsts[name as usize] = self.list.len() as u32;
            }
        }
        self.list.push(field);
    }

    fn clear(&mut self) {
        self.list.clear();
        self.names = NameSet::NONE;
        self.repeated = NameSet::NONE;
    }
}

/// A parsed message head, or one that is being parsed.
#[derive(Debug, Clone, Default)]
pub struct Head<Start> {
    /// The start line; valid once parsing is complete.
    pub start: Start,
    /// The fields.
    pub fields: Fields,
    /// The length of the head in bytes, empty line included, once parsing is complete.
    pub len: usize,
    /// The progress of parsing.
    pub(crate) progress: crate::parse::Progress,
}

/// The head of a request.
pub type RequestHead = Head<RequestLine>;
/// The head of a response.
pub type ResponseHead = Head<StatusLine>;

impl<Start: Default> Head<Start> {
    /// Resets to an empty head, and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.start = Start::default();
        self.fields.clear();
        self.len = 0;
        self.progress = crate::parse::Progress::default();
    }
}

impl<Start> Head<Start> {
    /// The value of the first field with this name.
    pub fn value<'a>(&self, bytes: &'a [u8], name: Name) -> Option<&'a [u8]> {
        self.field(name).map(|field| field.value.of(bytes))
    }

    /// The first field with this name.
    #[inline]
    pub fn field(&self, name: Name) -> Option<&Field> {
        if !self.fields.names.has(name) {
            return None;
        }
        self.fields.get(self.fields.firsts[name as usize] as usize)
    }

    /// The values of all fields with this name, in order.
    #[inline]
    pub fn values<'a>(&'a self, bytes: &'a [u8], name: Name) -> impl Iterator<Item = &'a [u8]> {
        self.fields.values(bytes, name)
    }
}
