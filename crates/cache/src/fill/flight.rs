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
use crate::store::object::{BLOCK_BYTES, Object, Opening};
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
    pub(crate) readers: usize,
    pub(crate) keeping: Keeping,
    /// The parts that are still here.
    parts: VecDeque<Bytes>,
    /// How many were let go before them.
    gone: usize,
    held_bytes: u64,
    /// What all streams hold together.
    all_held_bytes: Arc<AtomicU64>,
    pub(crate) total_bytes: u64,
    block: BytesMut,
}

/// Whether the body is kept from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    Whole,
    /// It is not going to be stored: only what its readers still need, up to so much.
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
            readers: 0,
            keeping: Keeping::Whole,
            parts: VecDeque::new(),
            gone: 0,
            held_bytes: 0,
            all_held_bytes,
            total_bytes: 0,
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
            self.parts.push_back(self.block.split().freeze());
            self.total_bytes += taken as u64;
            self.held_bytes += taken as u64;
            self.all_held_bytes.fetch_add(taken as u64, Relaxed);
            bytes = &bytes[taken..];
        }
        if let Keeping::Window(window_bytes) = self.keeping {
            self.let_go(if self.readers == 0 { 0 } else { window_bytes });
        }
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

    /// From now on the body is not kept.
    pub(crate) fn give_up(&mut self, window_bytes: u64) {
        self.keeping = Keeping::Window(window_bytes);
        self.let_go(if self.readers == 0 { 0 } else { window_bytes });
    }

    fn let_go(&mut self, window_bytes: u64) {
        while self.held_bytes > window_bytes
            && let Some(part) = self.parts.pop_front()
        {
            self.held_bytes -= part.len() as u64;
            self.all_held_bytes.fetch_sub(part.len() as u64, Relaxed);
            self.gone += 1;
        }
    }

    pub(crate) fn next(&self, index: usize) -> Next {
        match index.checked_sub(self.gone) {
            None => Next::Gone,
            Some(index) => match (self.parts.get(index), self.end) {
                (Some(part), _) => Next::Part(part.clone()),
                (None, Some(end)) => Next::Ended(end),
                (None, None) => Next::Wait,
            },
        }
    }

    pub(crate) fn parts(&self) -> Vec<Bytes> {
        self.parts.iter().cloned().collect()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.all_held_bytes.fetch_sub(self.held_bytes, Relaxed);
    }
}

/// The first piece of memory of a body whose length nobody told.
const FIRST_BYTES: usize = 4 << 10;
