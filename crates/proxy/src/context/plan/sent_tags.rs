//! The kinds of entity tags that a route's servers send. When strong tags leave the proxy as weak ones, a client's tags
//! do not show the kind.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The kinds of tags that a route's servers have sent so far.
#[derive(Debug, Default)]
pub(crate) struct SentTags(AtomicU8);

const STRONG: u8 = 1;
const WEAK: u8 = 2;

/// Kinds of tags (RFC 9110 §8.8.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TagKinds {
    /// Strong tags only, or none yet.
    Strong,
    /// Weak tags only.
    Weak,
    Both,
}

impl SentTags {
    /// Notes the tag of a server's response, if it has one.
    pub(crate) fn note(&self, tag: Option<&[u8]>) {
        let Some(tag) = tag else { return };
        let kind = if tag.starts_with(b"W/") { WEAK } else { STRONG };
        // Writes only if the kind is new, so that the shared cache line stays unmodified.
        if self.0.load(Relaxed) & kind == 0 {
            self.0.fetch_or(kind, Relaxed);
        }
    }

    pub(crate) fn kinds(&self) -> TagKinds {
        match self.0.load(Relaxed) {
            WEAK => TagKinds::Weak,
            0 | STRONG => TagKinds::Strong,
            _ => TagKinds::Both,
        }
    }
}
