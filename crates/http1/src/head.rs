//! A message head: a start line and fields, as byte ranges of one buffer.
//!
//! A `Head` owns no bytes. Every accessor takes the bytes that the head was parsed from; the buffer may have moved, but
//! not changed. The field list is reused for the next message, so parsing does not allocate.

use std::ops::Deref;

use crate::method::Method;
use crate::name::{Name, NameSet};

/// A byte range, counted from the first byte of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByteSpan {
    pub start: u32,
    /// Exclusive.
    pub end: u32,
}

impl ByteSpan {
    #[inline]
    pub fn for_bytes(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..self.end as usize]
    }

    pub(crate) fn new(start: usize, end: usize) -> Self {
        // Heads are limited to far less than 4 GiB (`HeadLimits::bytes`).
        Self { start: start as u32, end: end as u32 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldLine {
    /// The name as received.
    pub name: ByteSpan,
    /// The value without surrounding white space.
    pub value: ByteSpan,
    /// The end of the line, behind its CRLF. The line starts at its name.
    pub line_end: u32,
    /// `Name::Other` for names that are not recognised.
    pub known: Name,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HttpVersion {
    Http10,
    /// HTTP/1.1, and any later 1.x (RFC 9110 §2.5).
    #[default]
    Http11,
    /// HTTP/2. Its heads are converted to HTTP/1.1 text. Set by the caller, never parsed from a head.
    Http2,
    /// HTTP/3. Converted and set like HTTP/2.
    Http3,
}

impl HttpVersion {
    /// The number of the version, as OpenTelemetry and conditions write it.
    pub fn number(self) -> &'static str {
        match self {
            Self::Http10 => "1.0",
            Self::Http11 => "1.1",
            Self::Http2 => "2",
            Self::Http3 => "3",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestLine {
    /// `Other` if the method is not a known one.
    pub method: Method,
    /// The method as received.
    pub method_span: ByteSpan,
    /// The request target, in any of the four forms.
    pub target: ByteSpan,
    /// Where the query starts with its `?`; the end of the target if there is no query.
    pub(crate) path_end: u32,
    pub version: HttpVersion,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatusLine {
    /// From 100 to 599.
    pub status: u16,
    /// May be empty.
    pub reason: ByteSpan,
    pub version: HttpVersion,
}

/// The fields of a head, in the order received.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    list: Vec<FieldLine>,
    /// The known names that occur, so that most lookups need no search.
    pub(crate) names: NameSet,
    // A bit shows what a search would: whether a field that must be single is repeated.
    pub(crate) repeated: NameSet,
    /// The index of the first field of each name in `names`.
    firsts: [u32; Name::COUNT],
}

impl Deref for Fields {
    type Target = [FieldLine];

    #[inline]
    fn deref(&self) -> &[FieldLine] {
        &self.list
    }
}

impl<'a> IntoIterator for &'a Fields {
    type Item = &'a FieldLine;
    type IntoIter = std::slice::Iter<'a, FieldLine>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

impl Fields {
    /// The values of all fields with this name, in order.
    #[inline]
    pub(crate) fn values<'a>(&'a self, bytes: &'a [u8], name: Name) -> impl Iterator<Item = &'a [u8]> {
        let fields = self.with(NameSet::NONE.with(name)).iter();
        fields.filter(move |field| field.known == name).map(move |field| field.value.for_bytes(bytes))
    }

    /// The shortest slice that contains every field with one of these names. Empty if there is none.
    #[inline]
    pub(crate) fn with(&self, names: NameSet) -> &[FieldLine] {
        let present = self.names.intersection(names);
        match present.only() {
            // The usual case: most messages have none of the fields that a stage looks for.
            _ if present == NameSet::NONE => &[],
            // A name that occurs once is found by its index, without a search.
            Some(name) if self.repeated.intersection(present) == NameSet::NONE => {
                let first = self.firsts[name] as usize;
                self.list.get(first..=first).unwrap_or(&[])
            }
            _ => &self.list,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, field: FieldLine) {
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
        // `firsts` keeps its old indices: they are read only for names in this set.
        self.names = NameSet::NONE;
        self.repeated = NameSet::NONE;
    }
}

/// A parsed message head, or one that is being parsed.
#[derive(Debug, Clone, Default)]
pub struct MessageHead<Start> {
    /// Valid once parsing is complete.
    pub start: Start,
    pub fields: Fields,
    /// Length of the head in bytes, empty line included. Valid once parsing is complete.
    pub len: usize,
    pub(crate) progress: crate::parse::ParseProgress,
}

pub type RequestHead = MessageHead<RequestLine>;
pub type ResponseHead = MessageHead<StatusLine>;

impl<Start: Default> MessageHead<Start> {
    /// Resets to an empty head, and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.start = Start::default();
        self.fields.clear();
        self.len = 0;
        self.progress = crate::parse::ParseProgress::default();
    }
}

impl<Start> MessageHead<Start> {
    /// The value of the first field with this name.
    pub fn value<'a>(&self, bytes: &'a [u8], name: Name) -> Option<&'a [u8]> {
        self.field(name).map(|field| field.value.for_bytes(bytes))
    }

    #[inline]
    pub fn field(&self, name: Name) -> Option<&FieldLine> {
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
