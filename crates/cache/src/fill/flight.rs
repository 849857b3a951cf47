//! State of a fetch, shared by all its clients: asked, streaming, ended. Bytes are appended in shared blocks. Each
//! reader has its own position, and waits only for the fetch.
//!
//! The shard of the key lists its fetches.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use bytes::{Bytes, BytesMut};

use crate::fill::ReadError;
use crate::key::CacheKey;
use crate::store::object::{BLOCK_BYTES, Object, Opening, SHORT_BODY_BYTES_MAX};
use crate::vary::VariantKey;

#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) key: CacheKey,
    /// The variant that the request asks for, as far as stored variants show it.
    pub(crate) hint: Option<VariantKey>,
    /// The epoch in which the fetch began: the number of the last purge.
    pub(crate) epoch: u64,
    /// Whether the key was purged since. Then no client may join the fetch, and its response is not stored.
    is_doomed: AtomicBool,
    progress: Mutex<FlightProgress>,
}

#[derive(Debug)]
pub(crate) struct FlightProgress {
    pub(crate) stage: FlightStage,
    /// The number of clients that wait for the head.
    pub(crate) waiting: usize,
    wakers: Vec<Option<Waker>>,
    /// How many times all clients were woken. A place among the wakers is valid for one round.
    round: u64,
}

#[derive(Debug)]
pub(crate) enum FlightStage {
    /// The leader has asked the origin; there is no head yet.
    Asked,
    /// The leader was dropped without a result; the next waiting client takes over.
    Vacant,
    /// The head is known, and the body is arriving, or has arrived.
    Streaming(Box<FlightStream>),
    /// The response must not be stored; each client sends a separate request.
    Refused,
    /// There was no response.
    Failed,
    /// The stored response was validated.
    Renewed(Arc<Object>),
}

#[derive(Debug)]
pub(crate) struct FlightStream {
    pub(crate) opening: Arc<Opening>,
    pub(crate) end: Option<FlightEnd>,
    /// The stored response, once the body is complete.
    stored: Option<Arc<Object>>,
    pub(crate) readers: usize,
    pub(crate) keeping: Keeping,
    /// The parts of the body that are still held.
    parts: VecDeque<FlightPart>,
    /// The number of parts that were released before.
    gone: usize,
    held_bytes: u64,
    /// The bytes that all streams hold together.
    all_held_bytes: Arc<AtomicU64>,
    pub(crate) total_bytes: u64,
    /// The position of the fastest reader.
    taken_bytes: u64,
    /// The writer of the body, while it waits for readers.
    filler: Option<Waker>,
    block: BytesMut,
}

#[derive(Debug)]
struct FlightPart {
    bytes: Bytes,
    /// How many readers have read the part.
    passed: usize,
}

/// Whether the body is kept from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    Whole,
    /// The body will not be stored. Only the bytes that readers still need are kept, and at most this many behind the
    /// fastest reader.
    Window(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlightEnd {
    Whole,
    Broken(ReadError),
}

/// A place among the tasks to wake.
#[derive(Debug, Default)]
pub(crate) struct WakerSlot(Option<(u64, usize)>);

impl Flight {
    pub(crate) fn new(key: CacheKey, hint: Option<VariantKey>, epoch: u64) -> Self {
        let progress = FlightProgress { stage: FlightStage::Asked, waiting: 0, wakers: Vec::new(), round: 0 };
        Self { key, hint, epoch, is_doomed: AtomicBool::new(false), progress: Mutex::new(progress) }
    }

    pub(crate) fn progress(&self) -> MutexGuard<'_, FlightProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn doom(&self) {
        // Relaxed: purging and storing both happen under the lock of the shard, which orders them.
        self.is_doomed.store(true, Relaxed);
    }

    pub(crate) fn is_doomed(&self) -> bool {
        self.is_doomed.load(Relaxed)
    }

    /// Whether a response is on its way into the store.
    pub(crate) fn is_streaming(&self) -> bool {
        matches!(&self.progress().stage, FlightStage::Streaming(stream) if stream.end.is_none())
    }

    /// Changes the stage of the fetch, and wakes all its clients.
    pub(crate) fn advance(&self, change: impl FnOnce(&mut FlightProgress)) {
        let mut progress = self.progress();
        change(&mut progress);
        // Wakes without the lock, or each woken client would wait for it at once.
        let wakers = progress.take_wakers();
        drop(progress);
        wake(wakers);
    }
}

/// Wakes all these tasks. Must be called without a lock held.
pub(crate) fn wake(wakers: Vec<Option<Waker>>) {
    wakers.into_iter().flatten().for_each(Waker::wake);
}

impl FlightProgress {
    /// Takes all waiting tasks, to be woken once the lock is released.
    pub(crate) fn take_wakers(&mut self) -> Vec<Option<Waker>> {
        self.round += 1;
        std::mem::take(&mut self.wakers)
    }

    pub(crate) fn take_waker(&mut self) -> Option<Waker> {
        // Any waiting client can lead; the last one costs the least to find.
        self.wakers.iter_mut().rev().find_map(Option::take)
    }

    pub(crate) fn wait(&mut self, place: &mut WakerSlot, context: &Context<'_>) {
        if let Some((round, index)) = place.0
            && round == self.round
        {
            match &mut self.wakers[index] {
                // `clone_from` keeps the old waker if it would wake the same task.
                Some(waker) => waker.clone_from(context.waker()),
                empty => *empty = Some(context.waker().clone()),
            }
            return;
        }
        place.0 = Some((self.round, self.wakers.len()));
        self.wakers.push(Some(context.waker().clone()));
    }

    pub(crate) fn leave(&mut self, place: &WakerSlot) {
        if let Some((round, index)) = place.0
            && round == self.round
        {
            self.wakers[index] = None;
        }
    }

    pub(crate) fn stream(&mut self) -> Option<&mut FlightStream> {
        match &mut self.stage {
            FlightStage::Streaming(stream) => Some(stream),
            _ => None,
        }
    }
}

/// The bytes at a reader's position.
pub(crate) enum NextPiece {
    Part(Bytes),
    /// Nothing has arrived yet.
    Wait,
    Ended(FlightEnd),
    /// The bytes are released: the reader was too slow for a body that is not kept.
    Gone,
}

impl FlightStream {
    pub(crate) fn new(opening: Arc<Opening>, all_held_bytes: Arc<AtomicU64>) -> Self {
        Self {
            opening,
            end: None,
            stored: None,
            readers: 0,
            keeping: Keeping::Whole,
            parts: VecDeque::new(),
            gone: 0,
            held_bytes: 0,
            all_held_bytes,
            total_bytes: 0,
            taken_bytes: 0,
            filler: None,
            block: BytesMut::new(),
        }
    }

    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        // Parts are slices of shared blocks: readers and the stored response take them without a copy.
        while !bytes.is_empty() {
            if self.block.capacity() == 0 {
                self.block = BytesMut::with_capacity(self.block_bytes(bytes.len()));
            }
            let taken = bytes.len().min(self.block.capacity());
            self.block.extend_from_slice(&bytes[..taken]);
            self.parts.push_back(FlightPart { bytes: self.block.split().freeze(), passed: 0 });
            self.total_bytes += taken as u64;
            self.held_bytes += taken as u64;
            self.all_held_bytes.fetch_add(taken as u64, Relaxed);
            bytes = &bytes[taken..];
        }
        self.let_go();
    }

    /// The size of the next piece of memory: as large as all before, within its block.
    fn block_bytes(&self, wanted_bytes: usize) -> usize {
        let in_block = self.total_bytes as usize % BLOCK_BYTES;
        let rest = match self.opening.body_bytes {
            // With a known length, the last block is no larger than the rest.
            Some(body_bytes) => body_bytes.saturating_sub(self.total_bytes).max(wanted_bytes as u64),
            // Doubles, so that a short body takes little memory and a long one few allocations.
            None => in_block.max(wanted_bytes).max(FIRST_BYTES) as u64,
        };
        rest.min((BLOCK_BYTES - in_block) as u64) as usize
    }

    /// Ends the body. Parts are not kept for readers of a stored response: they continue from the store, which accounts
    /// for its memory.
    pub(crate) fn finish(&mut self, end: FlightEnd, stored: Option<Arc<Object>>) {
        self.end = Some(end);
        self.block = BytesMut::new();
        if stored.as_ref().is_some_and(|object| object.body_bytes() > SHORT_BODY_BYTES_MAX as u64) {
            // Otherwise a slow reader would have the body counted twice, as stored and as arriving.
            self.release(self.parts.len());
        } else if end == FlightEnd::Whole && self.keeping == Keeping::Whole {
            self.give_up(self.total_bytes);
        }
        self.stored = stored;
    }

    /// Whether a reader that starts now gets the whole body.
    pub(crate) fn has_beginning(&self) -> bool {
        self.gone == 0
    }

    /// The stored response, unless it was purged since.
    pub(crate) fn stored(&self) -> Option<&Arc<Object>> {
        self.stored.as_ref().filter(|object| !object.is_gone())
    }

    /// Stops keeping the body from its beginning.
    pub(crate) fn give_up(&mut self, window_bytes: u64) {
        self.keeping = Keeping::Window(window_bytes);
        self.let_go();
    }

    /// Releases parts that all readers have read, and parts that only very slow readers still need.
    fn let_go(&mut self) {
        let Keeping::Window(window_bytes) = self.keeping else { return };
        while let Some(part) = self.parts.front()
            // Very slow readers lose the body rather than make it take memory without limit.
            && (part.passed >= self.readers || self.held_bytes > window_bytes + SLACK_BYTES)
        {
            self.release(1);
        }
    }

    fn release(&mut self, parts: usize) {
        let bytes = self.parts.drain(..parts).map(|part| part.bytes.len() as u64).sum();
        self.held_bytes -= bytes;
        self.all_held_bytes.fetch_sub(bytes, Relaxed);
        self.gone += parts;
    }

    /// The memory held for readers.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Whether more of a body that is not kept should be received. If not, the writer is woken later. While memory for
    /// bodies is full, there is little room.
    pub(crate) fn has_room(&mut self, is_full: bool, context: &Context<'_>) -> bool {
        let Keeping::Window(window_bytes) = self.keeping else { return true };
        // Not zero, or all fetches would stand still at once while memory is full.
        let room_bytes = if is_full { BLOCK_BYTES as u64 } else { window_bytes };
        let has_room = self.readers == 0 || self.total_bytes - self.taken_bytes < room_bytes;
        if !has_room {
            self.filler = Some(context.waker().clone());
        }
        has_room
    }

    /// The bytes at the position of a reader that has read `index` parts and `read_bytes` bytes.
    pub(crate) fn next(&mut self, index: usize, read_bytes: u64) -> NextPiece {
        // The parts were given up when the body was stored, so readers that are behind go on from the store.
        if let (Some(object), true) = (&self.stored, self.parts.is_empty()) {
            let bytes = object.piece_at(read_bytes);
            return if bytes.is_empty() {
                NextPiece::Ended(FlightEnd::Whole)
            } else {
                NextPiece::Part(bytes)
            };
        }
        let Some(at) = index.checked_sub(self.gone) else { return NextPiece::Gone };
        let Some(part) = self.parts.get_mut(at) else {
            return self.end.map_or(NextPiece::Wait, NextPiece::Ended);
        };
        part.passed += 1;
        let bytes = part.bytes.clone();
        NextPiece::Part(bytes)
    }

    /// Records the position of a reader. May return the writer, to be woken.
    pub(crate) fn taken(&mut self, read_bytes: u64) -> Option<Waker> {
        // The fastest reader sets the pace: a slow one must not hold up the others.
        self.taken_bytes = self.taken_bytes.max(read_bytes);
        self.let_go();
        self.filler.take()
    }

    /// Removes a reader that had read `index` parts. May return the writer, to be woken.
    pub(crate) fn leave(&mut self, index: usize) -> Option<Waker> {
        self.readers -= 1;
        // Even if the body is kept or has ended, it may be given up later: the counts must then include only the
        // remaining readers.
        let behind = index.saturating_sub(self.gone);
        self.parts.iter_mut().take(behind).for_each(|part| part.passed -= 1);
        // It may have been the fastest reader. Parts that the next fastest has read are followed only by unread ones.
        let unread = self.parts.iter().rev().take_while(|part| part.passed == 0);
        self.taken_bytes = self.total_bytes - unread.map(|part| part.bytes.len() as u64).sum::<u64>();
        self.let_go();
        self.filler.take()
    }

    pub(crate) fn parts(&self) -> Vec<Bytes> {
        self.parts.iter().map(|part| part.bytes.clone()).collect()
    }
}

impl Drop for FlightStream {
    fn drop(&mut self) {
        self.all_held_bytes.fetch_sub(self.held_bytes, Relaxed);
    }
}

/// The size of the first block for a body of unknown length.
const FIRST_BYTES: usize = 4 << 10;

/// How far a reader may additionally fall behind: as much as arrives in one piece.
const SLACK_BYTES: u64 = 256 << 10;
