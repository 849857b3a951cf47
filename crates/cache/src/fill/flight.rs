//! A fetch under way, as all who share it see it: asked, streaming, over. Bytes are appended in shared blocks; who reads
//! them keeps a place of their own, and waits for nobody but the fetch.
//!
//! Which flights there are is known by the shard of their key.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use bytes::{Bytes, BytesMut};

use crate::key::Key;
use crate::store::object::{BLOCK_BYTES, Object, Opening, SHORT_BODY_BYTES_MAX};
use crate::vary::VariantKey;

/// A fetch under way.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) key: Key,
    /// Which variant it asks for, as far as what is stored already tells how variants differ.
    pub(crate) hint: Option<VariantKey>,
    /// The last purge when it began.
    pub(crate) epoch: u64,
    /// Its key was purged meanwhile: nobody may join it any more, and it is not stored.
    is_doomed: AtomicBool,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) stage: Stage,
    /// How many wait for the head.
    pub(crate) waiting: usize,
    wakers: Vec<Option<Waker>>,
    /// How often all were woken: a place among the wakers is one of its round.
    round: u64,
}

#[derive(Debug)]
pub(crate) enum Stage {
    /// The leader has asked; no head yet.
    Asked,
    /// The leader went away without a result: the next who waits takes its place.
    Vacant,
    /// The head is known, and the body comes, or has come.
    Streaming(Box<Stream>),
    /// What came may not be stored: each for themselves.
    Refused,
    /// There was no response.
    Failed,
    /// The stored response was found to be still good.
    Renewed(Arc<Object>),
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) opening: Arc<Opening>,
    pub(crate) end: Option<End>,
    /// What is stored of it, once it is whole.
    stored: Option<Arc<Object>>,
    pub(crate) readers: usize,
    pub(crate) keeping: Keeping,
    /// The parts that are still here.
    parts: VecDeque<Part>,
    /// How many were let go before them.
    gone: usize,
    held_bytes: u64,
    /// What all streams hold together.
    all_held_bytes: Arc<AtomicU64>,
    pub(crate) total_bytes: u64,
    /// How far the foremost reader has come.
    taken_bytes: u64,
    /// Who receives the body, while it waits for its readers.
    filler: Option<Waker>,
    block: BytesMut,
}

#[derive(Debug)]
struct Part {
    bytes: Bytes,
    /// How many of the readers have it behind them.
    passed: usize,
}

/// Whether the body is kept from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    Whole,
    /// It is not going to be stored: only what its readers still need, and the foremost is never further behind than
    /// this.
    Window(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    Broken,
}

/// A place among those who are woken.
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

    /// Changes its stage, and wakes all.
    pub(crate) fn advance(&self, change: impl FnOnce(&mut Progress)) {
        let mut progress = self.progress();
        change(&mut progress);
        let wakers = progress.take_wakers();
        drop(progress);
        wake(wakers);
    }
}

/// Wakes all of them, with no lock held.
pub(crate) fn wake(wakers: Vec<Option<Waker>>) {
    wakers.into_iter().flatten().for_each(Waker::wake);
}

impl Progress {
    /// Takes all who wait, to be woken once the lock is free.
    pub(crate) fn take_wakers(&mut self) -> Vec<Option<Waker>> {
        self.round += 1;
        std::mem::take(&mut self.wakers)
    }

    /// Takes one who waits.
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

/// What a reader finds at its place.
pub(crate) enum Next {
    Part(Bytes),
    /// Nothing yet.
    Wait,
    Ended(End),
    /// It was too slow for a body that is not kept.
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

    /// Appends bytes.
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

    /// The body comes to its end. Nothing is held for readers of what is stored: they go on from that, and it is counted
    /// there. A short one is not looked for again where its parts are at hand.
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

    /// Whether one who begins to read it now finds all of it.
    pub(crate) fn has_beginning(&self) -> bool {
        self.gone == 0
    }

    /// What is stored of it, unless it was purged since.
    pub(crate) fn stored(&self) -> Option<&Arc<Object>> {
        self.stored.as_ref().filter(|object| !object.is_gone())
    }

    /// From now on the body is not kept.
    pub(crate) fn give_up(&mut self, window_bytes: u64) {
        self.keeping = Keeping::Window(window_bytes);
        self.let_go();
    }

    /// Lets go of what all readers have, and of what only those still need who are far behind.
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

    /// What it holds in memory for its readers.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Whether more of a body that is not kept is to be received; if not, the filler is woken when that changes. While
    /// memory for bodies is full there is room for little.
    pub(crate) fn has_room(&mut self, is_full: bool, context: &Context<'_>) -> bool {
        let Keeping::Window(window_bytes) = self.keeping else { return true };
        let room_bytes = if is_full { BLOCK_BYTES as u64 } else { window_bytes };
        let has_room = self.readers == 0 || self.total_bytes - self.taken_bytes < room_bytes;
        if !has_room {
            self.filler = Some(context.waker().clone());
        }
        has_room
    }

    /// What a reader finds that has so many parts, and so many bytes, behind it.
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

    /// A reader has come so far.
    pub(crate) fn taken(&mut self, read_bytes: u64) -> Option<Waker> {
        self.taken_bytes = self.taken_bytes.max(read_bytes);
        self.let_go();
        self.filler.take()
    }

    /// A reader with so many parts behind it reads no more.
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

/// The first piece of memory of a body whose length nobody told.
const FIRST_BYTES: usize = 4 << 10;

/// A reader may be this much further behind than it has to be: as much as comes in one piece.
const SLACK_BYTES: u64 = 256 << 10;
