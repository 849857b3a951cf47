//! A stored response: key, head and body, in as few allocations as possible.
//!
//! Immutable except for the last purge that it was checked against, and when a soft purge made it stale. Its weight is
//! all the memory that it takes, as rounded by the allocator.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use arc_swap::ArcSwapOption;
use bytes::Bytes;

use crate::coded::Forms;
use crate::key::CacheKey;
use crate::purge::{Force, Label};
use crate::store::shelf::{HeldBody, Shelved, shelved_bytes};
use crate::stored::Stored;
use crate::vary::{VariantKey, Vary};

/// A response up to its body, from which a stored response is created.
#[derive(Debug, Clone)]
pub struct Opening {
    /// The metadata for cache decisions.
    pub stored: Stored,
    /// The request fields that the response varies by.
    pub vary: Vary,
    /// The values of the `vary` fields in the request.
    pub variant: VariantKey,
    /// The text of the key, which starts with the URI.
    pub key_text: Box<[u8]>,
    /// The head as clients get it.
    pub head: Box<[u8]>,
    /// Lines with the fields that clients do not get.
    pub hidden: Box<[u8]>,
    /// The labels that the response can be purged by: host and tags.
    pub labels: Box<[Label]>,
    /// The length of the body, if it is known in advance.
    pub body_bytes: Option<u64>,
    /// Other codings of the body, if it may have any.
    pub forms: Option<Arc<Forms>>,
}

#[derive(Debug)]
pub struct Object {
    stored: Stored,
    vary: Vary,
    variant: VariantKey,
    key: CacheKey,
    labels: Box<[Label]>,
    /// The key text, the hidden fields, the head, and the body if it is short.
    text: Box<[u8]>,
    key_end: u32,
    head_end: u32,
    /// Takes no additional memory; nor does `standing`.
    hidden_bytes: u16,
    body: ObjectBody,
    /// The epoch in which the fetch began.
    epoch: u64,
    /// The last purge that the response was checked against.
    checked: AtomicU64,
    standing: AtomicU8,
    /// When a soft purge made the response stale, in seconds since 1970; 0 if unknown. Takes no additional memory
    /// beside `standing`.
    stale_since_seconds: AtomicU32,
    /// Grows with other codings of the body.
    weight_bytes: AtomicU64,
    /// Other codings of the body. Takes no additional memory: without them the struct would be padded.
    forms: ArcSwapOption<Forms>,
}

#[derive(Debug, Clone)]
enum ObjectBody {
    /// The body follows the head in one allocation.
    Short,
    /// The body is behind one pointer, so that short responses need no more memory.
    Long(Arc<Long>),
}

#[derive(Debug)]
enum Long {
    Parts(Box<[ObjectPiece]>),
    /// The body is on the store's shelf.
    Shelved(Arc<dyn Shelved>),
}

/// A piece of a body, in memory shared with its readers.
#[derive(Debug, Clone)]
struct ObjectPiece {
    bytes: Bytes,
    /// The end of the piece, as an offset in the body.
    end: u64,
}

/// The longest body that is kept behind its head, so that one write sends both.
// From here on a file in memory and sendfile cost less than a write; below, both are even.
pub const SHORT_BODY_BYTES_MAX: usize = 32 << 10;

/// The memory of an index entry: a slot of the eviction policy with its links (40), and the entry in the table. It also
/// covers spare room of both, and a share of the entries for recently evicted keys.
pub(crate) const INDEX_BYTES: u64 = 80;

impl Object {
    /// A response whose body arrived in these parts.
    pub fn new(key: CacheKey, epoch: u64, opening: Opening, parts: &[Bytes]) -> Self {
        let body_bytes: usize = parts.iter().map(Bytes::len).sum();
        if body_bytes <= SHORT_BODY_BYTES_MAX {
            // Head and body in one allocation, which one write sends.
            return Self::assemble(key, epoch, opening, parts, ObjectBody::Short);
        }
        Self::assemble(key, epoch, opening, &[], ObjectBody::Long(Arc::new(Long::Parts(pieces(parts)))))
    }

    /// A response whose body is on the shelf.
    pub(crate) fn shelved(key: CacheKey, epoch: u64, opening: Opening, body: Arc<dyn Shelved>) -> Self {
        Self::assemble(key, epoch, opening, &[], ObjectBody::Long(Arc::new(Long::Shelved(body))))
    }

    /// A copy with its body on the shelf.
    pub(crate) fn moved(&self, body: Arc<dyn Shelved>) -> Self {
        Self::shelved(self.key, self.epoch, self.opening(), body)
    }

    /// The opening that the response was created from.
    pub fn opening(&self) -> Opening {
        Opening {
            stored: self.stored,
            vary: self.vary.clone(),
            variant: self.variant,
            key_text: self.key_text().into(),
            head: self.head().into(),
            hidden: self.hidden().into(),
            labels: self.labels.clone(),
            body_bytes: Some(self.body_bytes()),
            forms: self.forms_if_any(),
        }
    }

    /// A copy with a new head, after a validation (RFC 9111 §3.2). A long body is shared, not copied.
    pub(crate) fn renewed(&self, epoch: u64, opening: Opening) -> Self {
        match &self.body {
            ObjectBody::Short => {
                // A short body lies behind the old head, so it is copied with the new one.
                let body = Bytes::copy_from_slice(&self.text[self.head_end as usize..]);
                Self::assemble(self.key, epoch, opening, &[body], ObjectBody::Short)
            }
            long @ ObjectBody::Long(_) => Self::assemble(self.key, epoch, opening, &[], long.clone()),
        }
    }

    fn assemble(
        key: CacheKey,
        epoch: u64,
        opening: Opening,
        behind_head: &[Bytes],
        body: ObjectBody,
    ) -> Self {
        let Opening { stored, vary, variant, key_text, head, hidden, labels, forms, .. } = opening;
        let behind_bytes: usize = behind_head.iter().map(Bytes::len).sum();
        // Longer ones are never made.
        let hidden_bytes = u16::try_from(hidden.len()).unwrap_or(0);
        let hidden = &hidden[..hidden_bytes.into()];
        let head_end = key_text.len() + hidden.len() + head.len();
        let mut text = Vec::with_capacity(head_end + behind_bytes);
        text.extend_from_slice(&key_text);
        text.extend_from_slice(hidden);
        text.extend_from_slice(&head);
        for part in behind_head {
            text.extend_from_slice(part);
        }
        let object = Self {
            key,
            labels,
            text: text.into_boxed_slice(),
            key_end: key_text.len() as u32,
            head_end: head_end as u32,
            hidden_bytes,
            body,
            epoch,
            // Purges up to the start of the fetch cannot concern the response.
            checked: AtomicU64::new(epoch),
            standing: AtomicU8::new(GOOD),
            stale_since_seconds: AtomicU32::new(0),
            weight_bytes: AtomicU64::new(0),
            forms: ArcSwapOption::new(forms),
            stored,
            vary,
            variant,
        };
        object.weight_bytes.store(object.weigh(), Relaxed);
        object
    }

    fn weigh(&self) -> u64 {
        // An `Arc` stores two counts before its value.
        let body = match &self.body {
            ObjectBody::Short => 0,
            ObjectBody::Long(long) => allocated_bytes(16 + size_of::<Long>() as u64) + long.weigh(),
        };
        allocated_bytes(16 + size_of::<Self>() as u64)
            + allocated_bytes(self.text.len() as u64)
            + allocated_bytes(size_of_val::<[Label]>(&self.labels) as u64)
            + allocated_bytes(self.vary.as_bytes().len() as u64)
            + self.forms_if_any().map_or(0, |forms| forms.weigh())
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
                // Pieces may differ in length, so the offset is searched, in logarithmic time.
                let index = pieces.partition_point(|piece| piece.end <= offset);
                pieces.get(index).map_or(&[], |piece| {
                    let begin = piece.end - piece.bytes.len() as u64;
                    &piece.bytes[(offset - begin) as usize..]
                })
            }
            Self::Shelved(body) => {
                // In pieces like other bodies, because senders check the response after each piece.
                let end = (offset / BLOCK_BYTES as u64 + 1).saturating_mul(BLOCK_BYTES as u64);
                let (body, offset) = (body.bytes(), usize::try_from(offset).unwrap_or(usize::MAX));
                let end = usize::try_from(end).unwrap_or(usize::MAX).min(body.len());
                body.get(offset..end).unwrap_or_default()
            }
        }
    }

    /// The memory behind the pointer.
    fn weigh(&self) -> u64 {
        match self {
            Self::Parts(pieces) => {
                let of_piece = |piece: &ObjectPiece| allocated_bytes(piece.bytes.len() as u64) + SHARED_BYTES;
                allocated_bytes(size_of_val::<[ObjectPiece]>(pieces) as u64)
                    + pieces.iter().map(of_piece).sum::<u64>()
            }
            Self::Shelved(body) => shelved_bytes(body.bytes().len() as u64),
        }
    }
}

impl Object {
    /// The metadata for cache decisions.
    pub fn stored(&self) -> &Stored {
        &self.stored
    }

    /// The request fields that the response varies by.
    pub fn vary(&self) -> &Vary {
        &self.vary
    }

    /// The values of the `vary` fields in the request.
    pub fn variant(&self) -> VariantKey {
        self.variant
    }

    /// Whether both responses are of one variant, so that one replaces the other.
    pub(crate) fn is_same_variant(&self, other: &Self) -> bool {
        self.variant == other.variant && self.vary == other.vary
    }

    /// Whether a response with this opening is of the same variant.
    pub(crate) fn is_variant(&self, opening: &Opening) -> bool {
        self.variant == opening.variant && self.vary == opening.vary
    }

    pub fn key(&self) -> CacheKey {
        self.key
    }

    pub fn key_text(&self) -> &[u8] {
        &self.text[..self.key_end as usize]
    }

    /// The head as clients get it.
    pub fn head(&self) -> &[u8] {
        &self.text[self.hidden_end()..self.head_end as usize]
    }

    fn hidden_end(&self) -> usize {
        self.key_end as usize + usize::from(self.hidden_bytes)
    }

    /// Lines with the fields that clients do not get.
    pub fn hidden(&self) -> &[u8] {
        &self.text[self.key_end as usize..self.hidden_end()]
    }

    /// The head, followed by the body if it is short.
    pub fn head_and_short_body(&self) -> &[u8] {
        &self.text[self.hidden_end()..]
    }

    /// The labels that the response can be purged by.
    pub fn labels(&self) -> &[Label] {
        &self.labels
    }

    pub fn body_bytes(&self) -> u64 {
        match &self.body {
            ObjectBody::Short => (self.text.len() - self.head_end as usize) as u64,
            ObjectBody::Long(long) => long.len(),
        }
    }

    /// The body from an offset to the end of its piece; empty at the end of the body.
    pub fn body_at(&self, offset: u64) -> &[u8] {
        match &self.body {
            ObjectBody::Short => {
                let body = &self.text[self.head_end as usize..];
                body.get(offset.min(body.len() as u64) as usize..).unwrap_or_default()
            }
            ObjectBody::Long(long) => long.at(offset),
        }
    }

    /// A range of the body, piece by piece.
    pub fn body(&self, range: Range<u64>) -> impl Iterator<Item = &[u8]> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let piece = self.body_at(at);
            let taken = (piece.len() as u64).min(range.end.saturating_sub(at));
            at += taken;
            (taken > 0).then(|| &piece[..taken as usize])
        })
    }

    /// The pieces of a body that does not follow its head.
    pub(crate) fn long_body(&self) -> Vec<Bytes> {
        match self.long() {
            None => Vec::new(),
            Some(Long::Parts(pieces)) => pieces.iter().map(|piece| piece.bytes.clone()).collect(),
            Some(Long::Shelved(body)) => vec![Bytes::from_owner(HeldBody(Arc::clone(body)))],
        }
    }

    /// The body from an offset to the end of its piece, as shared bytes; empty at the end of the body. Only a short
    /// body is copied.
    pub(crate) fn piece_at(&self, offset: u64) -> Bytes {
        let piece = self.body_at(offset);
        match self.long() {
            _ if piece.is_empty() => Bytes::new(),
            None => Bytes::copy_from_slice(piece),
            Some(Long::Parts(pieces)) => {
                let index = pieces.partition_point(|piece| piece.end <= offset);
                pieces[index].bytes.slice_ref(piece)
            }
            Some(Long::Shelved(body)) => Bytes::from_owner(HeldBody(Arc::clone(body))).slice_ref(piece),
        }
    }

    /// The body, if it is on a shelf.
    pub fn on_shelf(&self) -> Option<&dyn Shelved> {
        match self.long()? {
            Long::Shelved(body) => Some(&**body),
            Long::Parts(_) => None,
        }
    }

    /// Whether the body is long, and not on a shelf.
    pub(crate) fn is_in_parts(&self) -> bool {
        matches!(self.long(), Some(Long::Parts(_)))
    }

    fn long(&self) -> Option<&Long> {
        match &self.body {
            ObjectBody::Short => None,
            ObjectBody::Long(long) => Some(long),
        }
    }

    /// All the memory that the response takes.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes.load(Relaxed)
    }

    /// Counts memory that is kept beside the body. Only for the shard that has the response, which counts it as well.
    pub(crate) fn add_weight(&self, bytes: u64) {
        self.weight_bytes.fetch_add(bytes, Relaxed);
    }

    /// Other codings of the body. Creates the list if there is none.
    pub fn forms(&self) -> Arc<Forms> {
        self.forms_if_any().unwrap_or_else(|| self.make_forms())
    }

    #[cold]
    fn make_forms(&self) -> Arc<Forms> {
        let forms = Arc::<Forms>::default();
        forms.weigh();
        // Another thread may have been faster: all use the same list.
        self.forms.rcu(|known| Some(known.clone().unwrap_or_else(|| Arc::clone(&forms))));
        self.forms_if_any().unwrap_or(forms)
    }

    /// Other codings of the body, if the list exists.
    pub(crate) fn forms_if_any(&self) -> Option<Arc<Forms>> {
        self.forms.load_full()
    }

    /// Whether these are the other codings of the body.
    pub(crate) fn has_forms(&self, forms: &Arc<Forms>) -> bool {
        self.forms_if_any().is_some_and(|own| Arc::ptr_eq(&own, forms))
    }

    /// Whether a soft purge matched the response, so that it is stale.
    pub fn is_softly_purged(&self) -> bool {
        self.standing.load(Relaxed) == STALE
    }

    /// The metadata after a soft purge: stale since then, and usable as stale no longer than allowed (RFC 5861 §3, §4).
    /// If the time of the purge is unknown, `now_ms` is used.
    pub fn made_stale(&self, now_ms: u64) -> Stored {
        let known_seconds = self.note_stale(seconds(now_ms));
        let mut stored = self.stored;
        stored.make_stale(now_ms.min(u64::from(known_seconds) * 1000));
        stored
    }

    /// Records since when the response is stale, unless that is known already. Returns the time in force.
    pub(crate) fn note_stale(&self, at_seconds: u32) -> u32 {
        // The first time counts, or each later look would extend the time of stale use.
        let known = self.stale_since_seconds.compare_exchange(0, at_seconds, Relaxed, Relaxed);
        known.map_or_else(|known| known, |_| at_seconds)
    }

    /// Whether a hard purge matched the response, so that it must not be used.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.standing.load(Relaxed) == GONE
    }

    /// The epoch in which the fetch began.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The last purge that the response was checked against.
    #[inline]
    pub(crate) fn checked(&self) -> u64 {
        self.checked.load(Acquire)
    }

    /// Records the result of checking all purges up to `epoch`.
    pub(crate) fn judge(&self, verdict: Option<Force>, epoch: u64) {
        if let Some(force) = verdict {
            self.purge(force);
        }
        // Behind the verdict: a worker that sees the new number must also see that the response is gone.
        self.checked.fetch_max(epoch, Release);
    }

    pub fn purge(&self, force: Force) {
        let standing = match force {
            Force::Hard => GONE,
            Force::Soft => STALE,
        };
        // Only ever worse: a soft purge must not undo a hard one.
        self.standing.fetch_max(standing, Relaxed);
    }
}

/// Seconds since 1970 from milliseconds, in 32 bits.
pub(crate) fn seconds(at_ms: u64) -> u32 {
    u32::try_from(at_ms / 1000).unwrap_or(u32::MAX)
}

const GOOD: u8 = 0;
const STALE: u8 = 1;
const GONE: u8 = 2;

/// The memory of a shared piece besides its bytes.
const SHARED_BYTES: u64 = 48;

/// The size of the blocks in which bodies are received.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;

/// A block that arrived in more parts than this is copied into one.
// Each part costs a counter and a place in the list, and readers take one part at a time.
const BLOCK_PARTS_MAX: usize = 4;

/// Converts received parts into stored pieces. A full block stays in place, unless it arrived in many small parts. The
/// last block is copied, so that its unused rest is freed.
fn pieces(parts: &[Bytes]) -> Box<[ObjectPiece]> {
    let mut end = 0;
    let mut pieces = Vec::new();
    let mut push = |bytes: Bytes| {
        end += bytes.len() as u64;
        pieces.push(ObjectPiece { bytes, end });
    };
    let mut rest = parts;
    while !rest.is_empty() {
        let mut block_bytes = 0;
        let count = rest.iter().position(|part| {
            block_bytes += part.len();
            block_bytes >= BLOCK_BYTES
        });
        let (block, behind) = rest.split_at(count.map_or(rest.len(), |last| last + 1));
        // A full block has no unused rest, so nothing is gained by copying it.
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

/// The memory of an allocation: the allocator has four sizes per doubling (mimalloc, `mi_bin`).
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
