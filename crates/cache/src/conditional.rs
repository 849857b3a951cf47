//! Evaluates clients' preconditions for stored responses, and for other representations with validators (RFC 9110 §13,
//! RFC 9111 §4.3.2).

use http1::RequestHead;

use crate::asked::{CacheRequestFields, Present};
use crate::fields::{date_unix_seconds, value, values};
use crate::stored::Stored;

/// The result of evaluating preconditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreconditionResult {
    /// Send the stored response.
    Proceed,
    /// Send 304: the client's copy is current.
    NotModified,
    /// Ask the origin: the stored response does not fulfil the condition, and only the origin can evaluate it.
    AskOrigin,
}

/// The validators of a representation (RFC 9110 §8.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validators<'a> {
    /// The entity tag as sent.
    pub etag: Option<&'a [u8]>,
    /// Last-Modified as sent.
    pub last_modified: Option<&'a [u8]>,
    /// When the representation was modified, as far as known, in seconds since 1970.
    pub modified_unix_seconds: u64,
    /// Whether Last-Modified is a strong validator (RFC 9110 §8.8.2.2).
    pub is_date_strong: bool,
}

/// Evaluates the preconditions of a request for the stored response that would be sent.
pub fn judge_conditions(
    asked: &CacheRequestFields,
    head: &RequestHead,
    bytes: &[u8],
    stored: &Stored,
    stored_head: &[u8],
) -> PreconditionResult {
    // RFC 9110 §13.2.1: they count only if the response would be a success without them.
    if !asked.is_conditional() || !(200..300).contains(&stored.status) {
        return PreconditionResult::Proceed;
    }
    Validators::new(stored, stored_head).judge(asked, head, bytes)
}

impl<'a> Validators<'a> {
    fn new(stored: &Stored, stored_head: &'a [u8]) -> Self {
        Self {
            etag: stored.etag(stored_head),
            last_modified: stored.last_modified(stored_head),
            modified_unix_seconds: modified_unix_seconds(stored),
            // A second or more before Date.
            is_date_strong: stored.last_modified_unix_seconds < stored.date_unix_seconds,
        }
    }

    /// Evaluates the preconditions of a request that would be a success without them (RFC 9110 §13.2.1). For an origin,
    /// `AskOrigin` is 412.
    #[inline]
    pub fn judge(&self, asked: &CacheRequestFields, head: &RequestHead, bytes: &[u8]) -> PreconditionResult {
        if asked.is_conditional() {
            self.judge_conditional(asked, head, bytes)
        } else {
            PreconditionResult::Proceed
        }
    }

    fn judge_conditional(
        &self,
        asked: &CacheRequestFields,
        head: &RequestHead,
        bytes: &[u8],
    ) -> PreconditionResult {
        let Self { etag, modified_unix_seconds, .. } = *self;
        // RFC 9110 §13.1.1, §13.1.4: a cache cannot reject these conditions, because the origin's state may be newer.
        if asked.has(Present::IfMatch) {
            if !any_matches(head, bytes, b"if-match", etag, TagComparison::Strong) {
                // A mismatch says only that the stored response is not the one meant. The origin may have a newer
                // one.
                return PreconditionResult::AskOrigin;
            }
        } else if asked.has(Present::IfUnmodifiedSince) {
            let since = value(head, bytes, b"if-unmodified-since").and_then(date_unix_seconds);
            if since.is_some_and(|since| modified_unix_seconds > since) {
                return PreconditionResult::AskOrigin;
            }
        }
        if asked.has(Present::IfNoneMatch) {
            // RFC 9110 §13.1.3: If-Modified-Since is ignored beside If-None-Match.
            let has_it = any_matches(head, bytes, b"if-none-match", etag, TagComparison::Weak);
            return if has_it { PreconditionResult::NotModified } else { PreconditionResult::Proceed };
        }
        // RFC 9110 §13.1.3: an invalid date is ignored.
        let since = value(head, bytes, b"if-modified-since").and_then(date_unix_seconds);
        if since.is_some_and(|since| modified_unix_seconds <= since) {
            return PreconditionResult::NotModified;
        }
        PreconditionResult::Proceed
    }

    /// Whether Range applies, according to If-Range (RFC 9110 §13.1.5).
    pub fn range_applies(&self, asked: &CacheRequestFields, head: &RequestHead, bytes: &[u8]) -> bool {
        if !asked.has(Present::IfRange) {
            return true;
        }
        let Some(condition) = value(head, bytes, b"if-range") else { return true };
        if condition.starts_with(b"\"") || condition.starts_with(b"W/") {
            return self.etag.is_some_and(|etag| matches(condition, etag, TagComparison::Strong));
        }
        // RFC 9110 §13.1.5: a date must be strong, and match exactly.
        self.is_date_strong && date_unix_seconds(condition).is_some() && self.last_modified == Some(condition)
    }
}

/// RFC 9111 §4.3.2: Last-Modified, or Date if there is none.
fn modified_unix_seconds(stored: &Stored) -> u64 {
    if stored.last_modified.end > 0 { stored.last_modified_unix_seconds } else { stored.date_unix_seconds }
}

/// Whether Range applies, according to If-Range (RFC 9110 §13.1.5).
pub fn range_applies(
    asked: &CacheRequestFields,
    head: &RequestHead,
    bytes: &[u8],
    stored: &Stored,
    stored_head: &[u8],
) -> bool {
    Validators::new(stored, stored_head).range_applies(asked, head, bytes)
}

/// RFC 9110 §8.8.3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TagComparison {
    Strong,
    Weak,
}

pub(crate) fn matches(one: &[u8], other: &[u8], comparison: TagComparison) -> bool {
    match comparison {
        TagComparison::Strong => one == other && !one.starts_with(b"W/"),
        TagComparison::Weak => without_weakness(one) == without_weakness(other),
    }
}

fn without_weakness(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Whether a list of entity tags contains a match, or is `*`, which every stored response matches.
fn any_matches(
    head: &RequestHead,
    bytes: &[u8],
    name: &[u8],
    etag: Option<&[u8]>,
    comparison: TagComparison,
) -> bool {
    values(head, bytes, name).any(|list| {
        list == b"*" || etag.is_some_and(|etag| Tags { rest: list }.any(|tag| matches(tag, etag, comparison)))
    })
}

/// The members of a list of entity tags, which may contain commas. A tag without quotes, as some origins send it, ends
/// at a comma.
struct Tags<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Tags<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|byte| !b" \t,".contains(byte))?;
        self.rest = &self.rest[start..];
        let opening = if self.rest.starts_with(b"W/") { 2 } else { 0 };
        // RFC 9110 §8.8.3: a comma is allowed within the quotes, so the list cannot be split at commas.
        let quoted = self.rest[opening..].strip_prefix(b"\"");
        let closing = quoted.and_then(|inside| inside.iter().position(|&byte| byte == b'"'));
        let end = match closing {
            Some(closing) => opening + closing + 2,
            None => self.rest.iter().position(|&byte| byte == b',').unwrap_or(self.rest.len()),
        };
        let (tag, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(tag.trim_ascii_end())
    }
}
