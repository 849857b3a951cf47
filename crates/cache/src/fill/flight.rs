//! State of a fetch, shared by all its clients: asked, streaming, ended. Bytes are appended in shared blocks. Each
//! reader has its own position, and waits for nobody but the fetch.
//!
//! The shard of the key lists its fetches.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use bytes::{Bytes, BytesMut};

use crate::key::Key;
use crate::store::object::{BLOCK_BYTES, Object, Opening, SHORT_BODY_BYTES_MAX};
use crate::vary::VariantKey;

/// A fetch in progress.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) key: Key,
    /// The variant that the request asks for, as far as stored variants tell.
    pub(crate) hint: Option<VariantKey>,
    /// The epoch in which the fetch began: the number of the last purge.
    pub(crate) epoch: u64,
    /// Whether the key was purged since: then nobody may join the fetch, and its response is not stored.
    is_doomed: AtomicBool,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) stage: Stage,
    /// The number of clients that wait for the head.
    pub(crate) waiting: usize,
    wakers: Vec<Option<Waker>>,
    /// How many times all clients were woken. A place among the wakers is valid for one round.
    round: u64,
}

#[derive(Debug)]
pub(crate) enum Stage {
    /// The leader has asked the origin; there is no head yet.
    Asked,
    /// The leader went away without a result; the next waiting client takes over.
    Vacant,
    /// The head is known, and the body is arriving, or has arrived.
    Streaming(Box<Stream>),
    /// The response must not be stored; each client sends a request of its own.
    Refused,
    /// There was no response.
    Failed,
    /// The stored response was validated.
    Renewed(Arc<Object>),
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) opening: Arc<Opening>,
    pub(crate) end: Option<End>,
    /// The stored response, once the body is complete.
    stored: Option<Arc<Object>>,
    pub(crate) readers: usize,
    pub(crate) keeping: Keeping,
    /// The parts of the body that are still held.
    parts: VecDeque<Part>,
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
struct Part {
    bytes: Bytes,
    /// How many readers have read the part.
    passed: usize,
}

/// Whether the body is kept from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    Whole,
    /// The body will not be stored. Only what readers still need is kept, and at most this many bytes behind the
    /// fastest reader.
    Window(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    Broken,
}

/// A place among the tasks to wake.
#[derive(Debug, Default)]
pub(crate) struct Place(Option<(u64, usize)>);

impl Flight {
    pub(crate) fn new(key: Key, hint: Option<VariantKey>, epoch: u64) -> Self {
        let progress = Progress { stage: Stage::Asked, waiting: 0, wakers: Vec::new(), round: 0 };
        Self { key, hint, epoch, is_doomed: AtomicBool::new(false), progress: Mutex::new(progress) }
    }

    pub(crate) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn doom(&self) {
        self.is_doomed.store(true, Relaxed);
    }

    pub(crate) fn is_doomed(&self) -> bool {
        self.is_doomed.load(Relaxed)
    }

    /// Whether a response is on its way into the store.
    pub(crate) fn is_streaming(&self) -> bool {
        matches!(&self.progress().stage, Stage::Streaming(stream) if stream.end.is_none())
    }

    /// Changes the stage of the fetch, and wakes all its clients.
    pub(crate) fn advance(&self, change: impl FnOnce(&mut Progress)) {
        let mut progress = self.progress();
        change(&mut progress);
        let wakers = progress.take_wakers();
        drop(progress);
        wake(wakers);
    }
}

/// Wakes all these tasks. Must be called without a lock held.
pub(crate) fn wake(wakers: Vec<Option<Waker>>) {
    wakers.into_iter().flatten().for_each(Waker::wake);
}

impl Progress {
    /// Takes all waiting tasks, to be woken once the lock is released.
    pub(crate) fn take_wakers(&mut self) -> Vec<Option<Waker>> {
        self.round += 1;
        std::mem::take(&mut self.wakers)
    }

    /// Takes one waiting task.
    pub(crate) fn take_waker(&mut self) -> Option<Waker> {
        self.wakers.iter_mut().rev().find_map(Option::take)
    }

    pub(crate) fn wait(&mut self, place: &mut Place, context: &Context<'_>) {
        if let Some((round, index)) = place.0
            && round == self.round
        {
            match &mut self.wakers[index] {
                Some(waker) => waker.clone_from(context.waker()),
                empty => *empty = Some(context.waker().clone()),
            }
            return;
        }
        place.0 = Some((self.round, self.wakers.len()));
        self.wakers.push(Some(context.waker().clone()));
    }

    pub(crate) fn leave(&mut self, place: &Place) {
        if let Some((round, index)) = place.0
            && round == self.round
        {
            self.wakers[index] = None;
        }
    }

    pub(crate) fn stream(&mut self) -> Option<&mut Stream> {
        match &mut self.stage {
            Stage::Streaming(stream) => Some(stream),
            _ => None,
        }
    }
}

/// What a reader finds at its position.
pub(crate) enum Next {
    Part(Bytes),
    /// Nothing has arrived yet.
    Wait,
    Ended(End),
    /// The bytes are gone: the reader was too slow for a body that is not kept.
    Gone,
}

impl Stream {
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

    /// Appends bytes to the body.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.block.capacity() == 0 {
                self.block = BytesMut::with_capacity(self.block_bytes(bytes.len()));
            }
            let taken = bytes.len().min(self.block.capacity());
            self.block.extend_from_slice(&bytes[..taken]);
            self.parts.push_back(Part { bytes: self.block.split().freeze(), passed: 0 });
            self.total_bytes += taken as u64;
            self.held_bytes += taken as u64;
            self.all_held_bytes.fetch_add(taken as u64, Relaxed);
            bytes = &bytes[taken..];
        }
        self.let_go();
    }

    /// How large the next piece of memory is: as large as all before, within its block.
    fn block_bytes(&self, wanted_bytes: usize) -> usize {
        let in_block = self.total_bytes as usize % BLOCK_BYTES;
        let rest = match self.opening.body_bytes {
            Some(body_bytes) => body_bytes.saturating_sub(self.total_bytes).max(wanted_bytes as u64),
            None => in_block.max(wanted_bytes).max(FIRST_BYTES) as u64,
        };
        rest.min((BLOCK_BYTES - in_block) as u64) as usize
    }

    /// Ends the body. Parts are not kept for readers of a stored response: they continue from the store, which accounts
    /// for its memory.
    pub(crate) fn finish(&mut self, end: End, stored: Option<Arc<Object>>) {
        self.end = Some(end);
        self.block = BytesMut::new();
        if stored.as_ref().is_some_and(|object| object.body_bytes() > SHORT_BODY_BYTES_MAX as u64) {
            self.release(self.parts.len());
        } else if end == End::Whole && self.keeping == Keeping::Whole {
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
        let room_bytes = if is_full { BLOCK_BYTES as u64 } else { window_bytes };
        let has_room = self.readers == 0 || self.total_bytes - self.taken_bytes < room_bytes;
        if !has_room {
            self.filler = Some(context.waker().clone());
        }
        has_room
    }

    /// What a reader finds after `index` parts and `read_bytes` bytes.
    pub(crate) fn next(&mut self, index: usize, read_bytes: u64) -> Next {
        if let (Some(object), true) = (&self.stored, self.parts.is_empty()) {
            let bytes = object.piece_at(read_bytes);
            return if bytes.is_empty() { Next::Ended(End::Whole) } else { Next::Part(bytes) };
        }
        let Some(at) = index.checked_sub(self.gone) else { return Next::Gone };
        let Some(part) = self.parts.get_mut(at) else {
            return self.end.map_or(Next::Wait, Next::Ended);
        };
        part.passed += 1;
        let bytes = part.bytes.clone();
        Next::Part(bytes)
    }

    /// Notes the position of a reader. May return the writer, to be woken.
    pub(crate) fn taken(&mut self, read_bytes: u64) -> Option<Waker> {
        self.taken_bytes = self.taken_bytes.max(read_bytes);
        self.let_go();
        self.filler.take()
    }

    /// Removes a reader that had read `index` parts. May return the writer, to be woken.
    pub(crate) fn leave(&mut self, index: usize) -> Option<Waker> {
        self.readers -= 1;
        // Kept or over, it may still be let go of by those who are left: they must not be taken for this one.
        let behind = index.saturating_sub(self.gone);
        self.parts.iter_mut().take(behind).for_each(|part| part.passed -= 1);
        // It may have been the foremost: nothing is known of the others until they read on.
        self.taken_bytes = self.total_bytes - self.held_bytes;
        self.let_go();
        self.filler.take()
    }

    pub(crate) fn parts(&self) -> Vec<Bytes> {
        self.parts.iter().map(|part| part.bytes.clone()).collect()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.all_held_bytes.fetch_sub(self.held_bytes, Relaxed);
    }
}

/// The size of the first block for a body of unknown length.
const FIRST_BYTES: usize = 4 << 10;

/// How far a reader may additionally fall behind: as much as arrives in one piece.
const SLACK_BYTES: u64 = 256 << 10;
