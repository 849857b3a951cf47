//! One stored response: its key, head and body in as few pieces of memory as can be.
//!
//! It never changes but for two words: up to which purge it was found to be still good, and whether and since when it is
//! stale by a soft one.
//! What it weighs is all the memory that it takes, as the allocator rounds it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use bytes::Bytes;

use crate::key::Key;
use crate::purge::{Force, Label};
use crate::store::shelf::{Held, Shelved, shelved_bytes};
use crate::stored::Stored;
use crate::vary::{VariantKey, Vary};

/// A response up to its body: what may be stored begins with it.
#[derive(Debug, Clone)]
pub struct Opening {
    /// What is known of the response.
    pub stored: Stored,
    /// Which fields of a request it varies by.
    pub vary: Vary,
    /// The values of these in its request.
    pub variant: VariantKey,
    /// The key as text: a URI first, so that a prefix of URIs is one of these.
    pub key_text: Box<[u8]>,
    /// The head as it is sent to clients.
    pub head: Box<[u8]>,
    /// What it can be purged by: its host and its tags.
    pub labels: Box<[Label]>,
    /// How long the body is, if that is told in advance.
    pub body_bytes: Option<u64>,
}

/// A stored response.
#[derive(Debug)]
pub struct Object {
    stored: Stored,
    vary: Vary,
    variant: VariantKey,
    key: Key,
    labels: Box<[Label]>,
    /// The key's text, the head, and the body if it is short.
    text: Box<[u8]>,
    key_end: u32,
    head_end: u32,
    body: Body,
    /// The last purge that was known when its fetch began.
    epoch: u64,
    /// It was compared with all purges up to this one.
    checked: AtomicU64,
    standing: AtomicU8,
    /// Since when a soft purge has made it stale, in seconds since 1970; 0 where that is not known. It fits beside the
    /// standing.
    stale_since_seconds: AtomicU32,
    weight_bytes: u64,
}

#[derive(Debug, Clone)]
enum Body {
    /// Behind the head, in the same piece of memory.
    Short,
    /// Behind one pointer, so that short ones pay for no more.
    Long(Arc<Long>),
}

#[derive(Debug)]
enum Long {
    Parts(Box<[Piece]>),
    /// On the store's shelf.
    Shelved(Arc<dyn Shelved>),
}

/// A part of a body, in memory that is shared with those who send it.
#[derive(Debug, Clone)]
struct Piece {
    bytes: Bytes,
    /// Where it ends in the body.
    end: u64,
}

/// A body up to this lies behind its head, so that one write sends both.
pub const SHORT_BODY_BYTES_MAX: usize = 32 << 10;

/// What an index entry takes: a slot of the policy's lists with its links (40), its place in the table, both with the
/// slack of growing, and a share of the entries for what was evicted of late.
pub(crate) const INDEX_BYTES: u64 = 80;

impl Object {
    /// A response whose body came in these parts.
    pub fn new(key: Key, epoch: u64, opening: Opening, parts: &[Bytes]) -> Self {
        let body_bytes: usize = parts.iter().map(Bytes::len).sum();
        if body_bytes <= SHORT_BODY_BYTES_MAX {
            return Self::assemble(key, epoch, opening, parts, Body::Short);
        }
        Self::assemble(key, epoch, opening, &[], Body::Long(Arc::new(Long::Parts(pieces(parts)))))
    }

    /// A response whose body is on the shelf.
    pub(crate) fn shelved(key: Key, epoch: u64, opening: Opening, body: Arc<dyn Shelved>) -> Self {
        Self::assemble(key, epoch, opening, &[], Body::Long(Arc::new(Long::Shelved(body))))
    }

    /// The same, with its body on the shelf.
    pub(crate) fn moved(&self, body: Arc<dyn Shelved>) -> Self {
        Self::shelved(self.key, self.epoch, self.opening(), body)
    }

    /// What it began with.
    pub(crate) fn opening(&self) -> Opening {
        Opening {
            stored: self.stored,
            vary: self.vary.clone(),
            variant: self.variant,
            key_text: self.key_text().into(),
            head: self.head().into(),
            labels: self.labels.clone(),
            body_bytes: Some(self.body_bytes()),
        }
    }

    /// The same body under another head, as a validation leaves it (RFC 9111 §3.2). A long body is shared, not copied.
    pub(crate) fn renewed(&self, epoch: u64, opening: Opening) -> Self {
        match &self.body {
            Body::Short => {
                let body = Bytes::copy_from_slice(&self.text[self.head_end as usize..]);
                Self::assemble(self.key, epoch, opening, &[body], Body::Short)
            }
            long @ Body::Long(_) => Self::assemble(self.key, epoch, opening, &[], long.clone()),
        }
    }

    fn assemble(key: Key, epoch: u64, opening: Opening, behind_head: &[Bytes], body: Body) -> Self {
        let Opening { stored, vary, variant, key_text, head, labels, .. } = opening;
        let behind_bytes: usize = behind_head.iter().map(Bytes::len).sum();
        let head_end = key_text.len() + head.len();
        let mut text = Vec::with_capacity(head_end + behind_bytes);
        text.extend_from_slice(&key_text);
        text.extend_from_slice(&head);
        for part in behind_head {
            text.extend_from_slice(part);
        }
        let mut object = Self {
            key,
            labels,
            text: text.into_boxed_slice(),
            key_end: key_text.len() as u32,
            head_end: head_end as u32,
            body,
            epoch,
            checked: AtomicU64::new(epoch),
            standing: AtomicU8::new(GOOD),
            stale_since_seconds: AtomicU32::new(0),
            weight_bytes: 0,
            stored,
            vary,
            variant,
        };
        object.weight_bytes = object.weigh();
        object
    }

    fn weigh(&self) -> u64 {
        // Two counts stand before what an `Arc` holds.
        let body = match &self.body {
            Body::Short => 0,
            Body::Long(long) => allocated_bytes(16 + size_of::<Long>() as u64) + long.weigh(),
        };
        allocated_bytes(16 + size_of::<Self>() as u64)
            + allocated_bytes(self.text.len() as u64)
            + allocated_bytes(size_of_val::<[Label]>(&self.labels) as u64)
            + allocated_bytes(self.vary.as_bytes().len() as u64)
            + body
    }
}

impl Long {
    fn len(&self) -> u64 {
        match self {
            Self::Parts(pieces) => pieces.last().map_or(0, |piece| piece.end),
            Self::Shelved(body) => body.bytes().len() as u64,
        }
    }

    fn at(&self, offset: u64) -> &[u8] {
        match self {
            Self::Parts(pieces) => {
                let index = pieces.partition_point(|piece| piece.end <= offset);
                pieces.get(index).map_or(&[], |piece| {
                    let begin = piece.end - piece.bytes.len() as u64;
                    &piece.bytes[(offset - begin) as usize..]
                })
            }
            Self::Shelved(body) => {
                // In pieces as others are: who sends them looks up after each.
                let end = (offset / BLOCK_BYTES as u64 + 1).saturating_mul(BLOCK_BYTES as u64);
                let (body, offset) = (body.bytes(), usize::try_from(offset).unwrap_or(usize::MAX));
                let end = usize::try_from(end).unwrap_or(usize::MAX).min(body.len());
                body.get(offset..end).unwrap_or_default()
            }
        }
    }

    /// The memory behind it.
    fn weigh(&self) -> u64 {
        match self {
            Self::Parts(pieces) => {
                let of_piece = |piece: &Piece| allocated_bytes(piece.bytes.len() as u64) + SHARED_BYTES;
                allocated_bytes(size_of_val::<[Piece]>(pieces) as u64)
                    + pieces.iter().map(of_piece).sum::<u64>()
            }
            Self::Shelved(body) => shelved_bytes(body.bytes().len() as u64),
        }
    }
}

impl Object {
    /// What is known of the response.
    pub fn stored(&self) -> &Stored {
        &self.stored
    }

    /// Which fields of a request it varies by.
    pub fn vary(&self) -> &Vary {
        &self.vary
    }

    /// The values of these in its request.
    pub fn variant(&self) -> VariantKey {
        self.variant
    }

    /// Whether one takes the other's place.
    pub(crate) fn is_same_variant(&self, other: &Self) -> bool {
        self.variant == other.variant && self.vary == other.vary
    }

    /// What it is found by.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Its key as text.
    pub fn key_text(&self) -> &[u8] {
        &self.text[..self.key_end as usize]
    }

    /// Its head as it is sent.
    pub fn head(&self) -> &[u8] {
        &self.text[self.key_end as usize..self.head_end as usize]
    }

    /// Its head and, if it is short, its body.
    pub fn head_and_short_body(&self) -> &[u8] {
        &self.text[self.key_end as usize..]
    }

    /// What it can be purged by.
    pub fn labels(&self) -> &[Label] {
        &self.labels
    }

    /// How long its body is.
    pub fn body_bytes(&self) -> u64 {
        match &self.body {
            Body::Short => (self.text.len() - self.head_end as usize) as u64,
            Body::Long(long) => long.len(),
        }
    }

    /// Its body from an offset on, as far as that lies in one piece; empty at the end.
    pub fn body_at(&self, offset: u64) -> &[u8] {
        match &self.body {
            Body::Short => {
                let body = &self.text[self.head_end as usize..];
                body.get(offset.min(body.len() as u64) as usize..).unwrap_or_default()
            }
            Body::Long(long) => long.at(offset),
        }
    }

    /// A range of its body, piece by piece.
    pub fn body(&self, range: Range<u64>) -> impl Iterator<Item = &[u8]> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let piece = self.body_at(at);
            let taken = (piece.len() as u64).min(range.end.saturating_sub(at));
            at += taken;
            (taken > 0).then(|| &piece[..taken as usize])
        })
    }

    /// The pieces of a body that does not lie behind its head.
    pub(crate) fn long_body(&self) -> Vec<Bytes> {
        match self.long() {
            None => Vec::new(),
            Some(Long::Parts(pieces)) => pieces.iter().map(|piece| piece.bytes.clone()).collect(),
            Some(Long::Shelved(body)) => vec![Bytes::from_owner(Held(Arc::clone(body)))],
        }
    }

    /// Its body from an offset on, as far as that lies in one piece, to be held without it; empty at the end. Only a short
    /// one is copied.
    pub(crate) fn piece_at(&self, offset: u64) -> Bytes {
        let piece = self.body_at(offset);
        match self.long() {
            _ if piece.is_empty() => Bytes::new(),
            None => Bytes::copy_from_slice(piece),
            Some(Long::Parts(pieces)) => {
                let index = pieces.partition_point(|piece| piece.end <= offset);
                pieces[index].bytes.slice_ref(piece)
            }
            Some(Long::Shelved(body)) => Bytes::from_owner(Held(Arc::clone(body))).slice_ref(piece),
        }
    }

    /// Its body, where that is on a shelf.
    pub fn on_shelf(&self) -> Option<&dyn Shelved> {
        match self.long()? {
            Long::Shelved(body) => Some(&**body),
            Long::Parts(_) => None,
        }
    }

    /// Whether its body is long, and not on a shelf.
    pub(crate) fn is_in_parts(&self) -> bool {
        matches!(self.long(), Some(Long::Parts(_)))
    }

    fn long(&self) -> Option<&Long> {
        match &self.body {
            Body::Short => None,
            Body::Long(long) => Some(long),
        }
    }

    /// All memory that it takes.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    /// Whether a soft purge met it: it counts as stale, however fresh it was.
    pub fn is_softly_purged(&self) -> bool {
        self.standing.load(Relaxed) == STALE
    }

    /// What is known of it once a soft purge has met it: it is stale since then, and what may be used stale is so for no longer
    /// (RFC 5861 §3, §4). Where nobody has said when that was, it is from now on.
    pub fn made_stale(&self, now_ms: u64) -> Stored {
        let known_seconds = self.note_stale(seconds(now_ms));
        let mut stored = self.stored;
        stored.make_stale(now_ms.min(u64::from(known_seconds) * 1000));
        stored
    }

    /// Has it stale since then, unless it is so already, and says since when it is.
    pub(crate) fn note_stale(&self, at_seconds: u32) -> u32 {
        let known = self.stale_since_seconds.compare_exchange(0, at_seconds, Relaxed, Relaxed);
        known.map_or_else(|known| known, |_| at_seconds)
    }

    /// Whether a hard purge met it: it answers nobody any more.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.standing.load(Relaxed) == GONE
    }

    /// The last purge that was known when its fetch began.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Up to which purge it was judged.
    #[inline]
    pub(crate) fn checked(&self) -> u64 {
        self.checked.load(Acquire)
    }

    /// It was judged by all purges up to this one.
    pub(crate) fn judge(&self, verdict: Option<Force>, epoch: u64) {
        if let Some(force) = verdict {
            self.purge(force);
        }
        self.checked.fetch_max(epoch, Release);
    }

    /// A purge met it.
    pub fn purge(&self, force: Force) {
        let standing = match force {
            Force::Hard => GONE,
            Force::Soft => STALE,
        };
        self.standing.fetch_max(standing, Relaxed);
    }
}

/// A time that fits into few bytes.
pub(crate) fn seconds(at_ms: u64) -> u32 {
    u32::try_from(at_ms / 1000).unwrap_or(u32::MAX)
}

const GOOD: u8 = 0;
const STALE: u8 = 1;
const GONE: u8 = 2;

/// What a piece of shared memory takes beside its bytes.
const SHARED_BYTES: u64 = 48;

/// Bodies are received in blocks of this, as long as more comes.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;

/// A block that came in more parts than this is copied into one.
const BLOCK_PARTS_MAX: usize = 4;

/// The parts as they are kept. A full block stays where it is, unless it came in crumbs; the last one is copied, so that
/// what is not filled of it is given back.
fn pieces(parts: &[Bytes]) -> Box<[Piece]> {
    let mut end = 0;
    let mut pieces = Vec::new();
    let mut push = |bytes: Bytes| {
        end += bytes.len() as u64;
        pieces.push(Piece { bytes, end });
    };
    let mut rest = parts;
    while !rest.is_empty() {
        let mut block_bytes = 0;
        let count = rest.iter().position(|part| {
            block_bytes += part.len();
            block_bytes >= BLOCK_BYTES
        });
        let (block, behind) = rest.split_at(count.map_or(rest.len(), |last| last + 1));
        if block_bytes == BLOCK_BYTES && block.len() <= BLOCK_PARTS_MAX {
            block.iter().cloned().for_each(&mut push);
        } else {
            push(exact(block.concat()));
        }
        rest = behind;
    }
    pieces.into()
}

fn exact(bytes: Vec<u8>) -> Bytes {
    Bytes::from(bytes.into_boxed_slice())
}

/// What an allocation takes: the allocator has four sizes to each doubling (mimalloc, `mi_bin`).
pub(crate) fn allocated_bytes(bytes: u64) -> u64 {
    let words = bytes.div_ceil(8);
    match words {
        0..=8 => words.next_multiple_of(2) * 8,
        _ => {
            let shift = (words - 1).ilog2() - 2;
            ((((words - 1) >> shift) + 1) << shift) * 8
        }
    }
}
