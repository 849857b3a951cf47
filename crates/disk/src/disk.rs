//! The store's interface. Requests go to two threads through bounded queues, so callers never wait for the disk.
//!
//! The first disk error disables the store for good: reads are misses, writes are dropped, and the tally has the
//! reason. Its segments are then deleted, because later removals could not be recorded in them.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::format::{RECORD_HEADER_BYTES, RecordKind, SEGMENT_HEADER_BYTES};
use crate::identity::DiskIdentity;
use crate::index::{Index, RecordLocation, lock, replace};
use crate::log::{self, DiskLog, RecordRead, Records, SegmentFindings, WrittenRecord};
use crate::pending::Pending;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSettings {
    /// The store's folder, created if missing. Files in it that do not belong to the store are left alone.
    pub path: PathBuf,
    /// The maximum size of all segments together.
    pub size_bytes: u64,
    /// 128 random bits for a new store; an existing store keeps its own.
    pub fresh_secret: u128,
}

#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error("the cache's folder {}: {source}; give it one that it may write to", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The identity file is damaged, or belongs to something else.
    #[error("{} is no identity of a cache, or a damaged one; remove the folder to start with an empty one", .0.display())]
    Identity(PathBuf),
    /// The configured size is below [`SIZE_BYTES_MIN`].
    #[error("a cache of {0} bytes on disk is too small; give it {SIZE_BYTES_MIN} or more")]
    TooSmall(u64),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DiskStanding {
    /// The store is reading the segments of an earlier process.
    #[default]
    Opening,
    /// Another process still holds the store's lock.
    InUse,
    On,
    Failed(String),
}

impl fmt::Display for DiskStanding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Opening => "what is there is being read",
            Self::InUse => "another process has it; it is waited for",
            Self::On => "on",
            Self::Failed(why) => return write!(formatter, "off, since the disk has failed: {why}"),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiskTally {
    pub state: DiskStanding,
    pub records: u64,
    /// The current size of all segments.
    pub bytes: u64,
    /// The maximum size of all segments.
    pub size_bytes: u64,
    /// Records written since the start.
    pub written: u64,
    /// Records read since the start.
    pub read: u64,
    /// Reads and writes dropped because the disk could not keep up or a record was too large.
    pub dropped: u64,
    pub damaged: u64,
    /// Files in the folder that do not belong to the store.
    pub foreign: u64,
}

#[derive(Debug)]
pub struct Disk {
    shared: Arc<DiskShared>,
    queues: Mutex<Option<Queues>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    secret: u128,
    size_bytes: u64,
    record_bytes_max: u64,
}

#[derive(Debug)]
struct Queues {
    changes: SyncSender<DiskChange>,
    lookups: SyncSender<Lookup>,
}

#[derive(Debug, Default)]
struct DiskShared {
    /// Lock order: this before the index.
    pending: Mutex<Pending>,
    index: Mutex<Index>,
    state: Mutex<DiskStanding>,
    failure: OnceLock<()>,
    /// Changes that are not in the index yet.
    queued: AtomicU64,
    queued_bytes: AtomicU64,
    bytes: AtomicU64,
    written: AtomicU64,
    read: AtomicU64,
    dropped: AtomicU64,
    damaged: AtomicU64,
    foreign: AtomicU64,
}

#[derive(Debug)]
struct DiskChange {
    kind: RecordKind,
    key: u128,
    variant: u64,
    /// Sequence number of the put, from [`Pending::queue`].
    number: u64,
    parts: Vec<Bytes>,
}

struct Lookup {
    key: u128,
    variant: Option<u64>,
    then: Box<dyn FnOnce(Option<WrittenRecord>) + Send>,
}

/// Gets the notes and the run number, before the first record is read.
type Begin = Box<dyn FnOnce(Vec<WrittenRecord>, u32) + Send>;

pub const SIZE_BYTES_MIN: u64 = 1 << 20;
/// Space is freed by whole segments: the smaller they are, the less is lost at once.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
const SEGMENTS: u64 = 16;
/// Puts beyond these limits are dropped.
const QUEUED_PUTS_MAX: u64 = 1024;
const QUEUED_BYTES_MAX: u64 = 32 << 20;
/// Removals and notes must not be dropped: if this many are queued, the store is disabled.
const QUEUED_CHANGES_MAX: usize = 16 << 10;
const QUEUED_READS_MAX: usize = 256;
/// A crash loses at most the writes of this time.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between attempts to lock a store that another process holds.
const LOCK_INTERVAL: Duration = Duration::from_millis(200);

impl Disk {
    /// Opens a store, and reads the segments of an earlier process in the background. Before any record can be read,
    /// `begin` gets the notes in their order, and this process's run number.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub fn open(
        settings: &DiskSettings,
        begin: impl FnOnce(Vec<WrittenRecord>, u32) + Send + 'static,
    ) -> Result<Self, DiskError> {
        let &DiskSettings { ref path, size_bytes, fresh_secret } = settings;
        if size_bytes < SIZE_BYTES_MIN {
            return Err(DiskError::TooSmall(size_bytes));
        }
        let io = |source| DiskError::Io { path: path.clone(), source };
        fs::create_dir_all(path).map_err(io)?;
        let identity = DiskIdentity::open(path, fresh_secret)?;
        let secret = identity.secret();
        let segment_bytes = (size_bytes / SEGMENTS).min(SEGMENT_BYTES_MAX);
        let (changes, to_write) = sync_channel(QUEUED_CHANGES_MAX);
        let (lookups, to_read) = sync_channel(QUEUED_READS_MAX);
        let shared = Arc::new(DiskShared::default());
        let writer = DiskWriter { shared: shared.clone(), path: path.clone(), size_bytes, segment_bytes };
        let begin: Begin = Box::new(begin);
        let (reader, records) = (shared.clone(), Records::new(path));
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let threads = vec![
            thread("disk-write").spawn(move || writer.run(identity, begin, &to_write)).map_err(io)?,
            thread("disk-read").spawn(move || reader.read(records, &to_read)).map_err(io)?,
        ];
        Ok(Self {
            shared,
            queues: Mutex::new(Some(Queues { changes, lookups })),
            threads: Mutex::new(threads),
            secret,
            size_bytes,
            record_bytes_max: segment_bytes - (SEGMENT_HEADER_BYTES + RECORD_HEADER_BYTES) as u64,
        })
    }

    /// The secret for hashing the store's keys. It stays the same for as long as the folder exists.
    pub fn secret(&self) -> u128 {
        self.secret
    }

    /// Queues a write of a key's variant. It is dropped if the disk cannot keep up, or if it is too long.
    pub fn put(&self, key: u128, variant: u64, parts: Vec<Bytes>) {
        let bytes = parts.iter().map(|part| part.len() as u64).sum::<u64>();
        let shared = &self.shared;
        let has_room = bytes <= self.record_bytes_max
            && shared.queued.load(Relaxed) < QUEUED_PUTS_MAX
            && shared.queued_bytes.load(Relaxed) + bytes <= QUEUED_BYTES_MAX;
        let is_queued = has_room && {
            let number = shared.pending().queue(key, variant);
            self.write(DiskChange { kind: RecordKind::Put, key, variant, number, parts })
        };
        if !is_queued {
            shared.dropped.fetch_add(1, Relaxed);
            if shared.outdate(key, variant) {
                self.clear();
            }
        }
    }

    /// Removes all variants of a key: for callers at once, on the disk with a delay. Returns how many there were.
    pub fn remove(&self, key: u128) -> usize {
        self.shared.pending().remove(key);
        let removed = lock(&self.shared.index).remove(key);
        // A queued put may still write the key, and segments that were not read yet may contain it.
        if removed > 0 || self.shared.queued.load(Acquire) > 0 || self.state() != DiskStanding::On {
            self.write_surely(DiskChange::new(RecordKind::Remove, key, Vec::new()));
        }
        removed
    }

    /// Removes all records and notes: for callers at once, on the disk with a delay.
    pub fn clear(&self) {
        self.shared.pending().clear();
        replace(&self.shared.index, Index::default());
        self.write_surely(DiskChange::new(RecordKind::Clear, 0, Vec::new()));
    }

    /// Writes a note about all earlier records. Later processes get the note for as long as one of them may exist.
    pub fn note(&self, payload: Vec<u8>) {
        self.write_surely(DiskChange::new(RecordKind::Note, 0, vec![Bytes::from(payload)]));
    }

    pub fn has(&self, key: u128) -> bool {
        lock(&self.shared.index).find(key, None).is_some()
    }

    /// Reads a variant of a key, or the newest one, and calls `then` on a thread of the store, with `None` if the
    /// record is damaged. Returns `false`, without a call, if there is no record or the queue is full.
    pub fn read(
        &self,
        key: u128,
        variant: Option<u64>,
        then: impl FnOnce(Option<WrittenRecord>) + Send + 'static,
    ) -> bool {
        if lock(&self.shared.index).find(key, variant).is_none() {
            return false;
        }
        let lookup = Lookup { key, variant, then: Box::new(then) };
        let queues = self.queues();
        let is_queued = queues.as_ref().is_some_and(|queues| queues.lookups.try_send(lookup).is_ok());
        if !is_queued {
            self.shared.dropped.fetch_add(1, Relaxed);
        }
        is_queued
    }

    fn write_surely(&self, change: DiskChange) {
        let is_over = self.queues().is_none();
        if !is_over && !self.write(change) && self.shared.failure.get().is_none() {
            self.shared.fail("it could not keep up with what was removed");
        }
    }

    fn write(&self, change: DiskChange) -> bool {
        let shared = &self.shared;
        if shared.failure.get().is_some() {
            return false;
        }
        let bytes = change.bytes();
        shared.queued.fetch_add(1, AcqRel);
        shared.queued_bytes.fetch_add(bytes, Relaxed);
        let is_queued = self.queues().as_ref().is_some_and(|queues| queues.changes.try_send(change).is_ok());
        if !is_queued {
            shared.done(bytes);
        }
        is_queued
    }

    pub fn state(&self) -> DiskStanding {
        self.shared.state().clone()
    }

    pub fn tally(&self) -> DiskTally {
        let shared = &self.shared;
        DiskTally {
            state: self.state(),
            records: lock(&shared.index).len() as u64,
            bytes: shared.bytes.load(Relaxed),
            size_bytes: self.size_bytes,
            written: shared.written.load(Relaxed),
            read: shared.read.load(Relaxed),
            dropped: shared.dropped.load(Relaxed),
            damaged: shared.damaged.load(Relaxed),
            foreign: shared.foreign.load(Relaxed),
        }
    }

    /// Rejects further requests. Once the queued ones are done, another process can lock the store.
    pub fn close(&self) {
        drop(self.queues().take());
    }

    /// Closes the store, and waits until the queued requests are done.
    pub fn finish(&self) {
        self.close();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // An error means that the thread panicked, and has nothing left to do.
            let _ = thread.join();
        }
    }

    fn queues(&self) -> MutexGuard<'_, Option<Queues>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskChange {
    /// A change that must not be lost, so anything but a put.
    fn new(kind: RecordKind, key: u128, parts: Vec<Bytes>) -> Self {
        Self { kind, key, variant: 0, number: 0, parts }
    }

    fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }
}

/// State of the thread that writes.
struct DiskWriter {
    shared: Arc<DiskShared>,
    path: PathBuf,
    size_bytes: u64,
    segment_bytes: u64,
}

impl DiskWriter {
    /// The store is locked for as long as this runs.
    fn run(&self, mut identity: DiskIdentity, begin: Begin, changes: &Receiver<DiskChange>) {
        match self.begin(&mut identity, begin, changes) {
            Ok(Some((log, first))) => self.write(log, first, changes),
            Ok(None) => {}
            Err(error) => self.shared.fail(&error.to_string()),
        }
        if self.shared.failure.get().is_some() {
            self.give_up(&mut identity, changes);
        }
    }

    /// Empties the store after a failure, because the next process would miss removals and replacements.
    fn give_up(&self, identity: &mut DiskIdentity, changes: &Receiver<DiskChange>) {
        let shared = &self.shared;
        let emptied = loop {
            match identity.is_locked() {
                Ok(true) => break log::empty(&self.path, identity.secret()),
                // Another process still holds the store.
                Ok(false) => {}
                Err(error) => break Err(error),
            }
            match changes.recv_timeout(LOCK_INTERVAL) {
                Ok(change) => shared.done(change.bytes()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        };
        match emptied {
            Ok(()) => shared.bytes.store(0, Relaxed),
            Err(error) => shared.cannot_be_emptied(&error, &self.path),
        }
        while let Ok(change) = changes.recv() {
            shared.done(change.bytes());
        }
    }

    /// Waits for the lock, and reads the store. Returns `None` if it was closed meanwhile; otherwise the log, and the
    /// changes that arrived during the wait.
    fn begin(
        &self,
        identity: &mut DiskIdentity,
        begin: Begin,
        changes: &Receiver<DiskChange>,
    ) -> io::Result<Option<(DiskLog, Vec<DiskChange>)>> {
        let mut first = Vec::new();
        while !identity.is_locked()? {
            self.shared.stand(DiskStanding::InUse);
            match changes.recv_timeout(LOCK_INTERVAL) {
                // The other process puts its own records meanwhile, so ours are dropped. Purges are kept. Records under
                // a key that was put here are outdated.
                Ok(change) if change.kind == RecordKind::Put => {
                    if self.shared.outdate(change.key, change.variant) {
                        return Err(io::Error::other("it was in use for too long to remember what was put"));
                    }
                    self.shared.done(change.bytes());
                }
                Ok(change) if first.len() < QUEUED_CHANGES_MAX => first.push(change),
                Ok(_) => {
                    return Err(io::Error::other("it was in use for too long to remember what was purged"));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
        self.shared.stand(DiskStanding::Opening);
        let (log, findings) =
            DiskLog::open(&self.path, identity.secret(), self.size_bytes, self.segment_bytes)?;
        let SegmentFindings { index, notes, outdated, damaged, foreign } = findings;
        self.shared.damaged.store(damaged, Relaxed);
        self.shared.foreign.store(foreign, Relaxed);
        self.shared.bytes.store(log.bytes(), Relaxed);
        begin(notes, log.run());
        {
            let mut pending = self.shared.pending();
            pending.retain_outdated(|key| index.find(key, None).is_some());
            outdated.into_iter().for_each(|key| pending.outdate(key));
            replace(&self.shared.index, index);
        }
        Ok(Some((log, first)))
    }

    /// Applies changes until the channel closes or the disk fails, and syncs the log each second.
    fn write(&self, mut log: DiskLog, first: Vec<DiskChange>, changes: &Receiver<DiskChange>) {
        let shared = &self.shared;
        for change in first {
            self.take(&mut log, &change);
        }
        // Removals that arrived meanwhile are in the queue.
        while let Ok(change) = changes.try_recv() {
            self.take(&mut log, &change);
        }
        self.remove_outdated(&mut log);
        shared.stand(DiskStanding::On);
        let mut sync_at = Instant::now() + SYNC_INTERVAL;
        loop {
            let change = changes.recv_timeout(sync_at.saturating_duration_since(Instant::now()));
            let is_last = matches!(change, Err(RecvTimeoutError::Disconnected));
            match change {
                Ok(change) => self.take(&mut log, &change),
                Err(_) => self.remove_outdated(&mut log),
            }
            if is_last || Instant::now() >= sync_at {
                if shared.failure.get().is_none()
                    && let Err(error) = log.sync()
                {
                    shared.fail(&error.to_string());
                }
                sync_at = Instant::now() + SYNC_INTERVAL;
            }
            if is_last || shared.failure.get().is_some() {
                return;
            }
        }
    }

    fn take(&self, log: &mut DiskLog, change: &DiskChange) {
        self.remove_outdated(log);
        let is_wanted = change.kind != RecordKind::Put || self.shared.is_wanted(change);
        if is_wanted {
            self.apply(log, change);
        }
        self.shared.done(change.bytes());
    }

    /// Removes the records of these keys from the disk, because the next process would find them when it scans.
    fn remove_outdated(&self, log: &mut DiskLog) {
        let outdated = self.shared.pending().take_outdated();
        for key in outdated {
            self.apply(log, &DiskChange::new(RecordKind::Remove, key, Vec::new()));
        }
    }

    fn apply(&self, log: &mut DiskLog, change: &DiskChange) {
        let shared = &self.shared;
        if shared.failure.get().is_none() {
            match log.append(change.kind, (change.key, change.variant), &change.parts, &shared.index) {
                Ok(place) => shared.index(change, place),
                Err(error) => shared.fail(&error.to_string()),
            }
            shared.bytes.store(log.bytes(), Relaxed);
        }
    }
}

impl DiskShared {
    /// Marks the records of a key as outdated after a put was dropped. Returns whether too many keys are marked.
    fn outdate(&self, key: u128, variant: u64) -> bool {
        let mut pending = self.pending();
        let was_queued = pending.drop_put(key, variant);
        let mut index = lock(&self.index);
        let known = index.find(key, Some(variant));
        if let Some((_, place)) = known {
            index.remove_at(key, place);
        }
        drop(index);
        // Segments that were not read yet may contain the key.
        let is_unread = matches!(*self.state(), DiskStanding::Opening | DiskStanding::InUse);
        if was_queued || known.is_some() || is_unread {
            pending.outdate(key);
        }
        pending.is_full()
    }

    /// Whether a put is still to be written: no later put or removal has replaced it, and the index has room for it.
    fn is_wanted(&self, change: &DiskChange) -> bool {
        let &DiskChange { key, variant, number, .. } = change;
        let mut pending = self.pending();
        let is_current = pending.is_current(key, variant, number);
        let has_room = lock(&self.index).has_room(key, variant);
        if is_current && !has_room {
            // A full index has no older record of this variant either.
            pending.drop_put(key, variant);
            self.dropped.fetch_add(1, Relaxed);
        }
        is_current && has_room
    }

    fn index(&self, change: &DiskChange, place: RecordLocation) {
        let &DiskChange { kind, key, variant, number, .. } = change;
        match kind {
            // If the key was removed during the write, its record is removed from the disk afterwards.
            RecordKind::Put => {
                let mut pending = self.pending();
                if pending.settle(key, variant, number) && !lock(&self.index).put(key, variant, place) {
                    pending.outdate(key);
                }
            }
            RecordKind::Remove => {
                lock(&self.index).remove(key);
            }
            RecordKind::Clear => replace(&self.index, Index::default()),
            RecordKind::Note => {}
        }
        self.written.fetch_add(1, Relaxed);
    }

    fn read(&self, mut records: Records, lookups: &Receiver<Lookup>) {
        while let Ok(Lookup { key, variant, then }) = lookups.recv() {
            let found = lock(&self.index).find(key, variant);
            then(found.and_then(|(_, place)| self.read_at(&mut records, key, place)));
        }
    }

    fn read_at(&self, records: &mut Records, key: u128, place: RecordLocation) -> Option<WrittenRecord> {
        match records.read(key, place) {
            Ok(RecordRead::Payload(payload)) => {
                self.read.fetch_add(1, Relaxed);
                Some(payload)
            }
            Ok(RecordRead::Damaged) => {
                lock(&self.index).remove_at(key, place);
                self.damaged.fetch_add(1, Relaxed);
                None
            }
            // Its segment was freed a moment ago.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                self.fail(&error.to_string());
                None
            }
        }
    }

    fn done(&self, bytes: u64) {
        self.queued.fetch_sub(1, AcqRel);
        self.queued_bytes.fetch_sub(bytes, Relaxed);
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, DiskStanding> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stand(&self, state: DiskStanding) {
        let mut current = self.state();
        if !matches!(*current, DiskStanding::Failed(_)) {
            *current = state;
        }
    }

    fn fail(&self, why: &str) {
        self.stand(DiskStanding::Failed(why.to_owned()));
        let _ = self.failure.set(());
        self.pending().clear();
        replace(&self.index, Index::default());
    }

    /// Adds to the failure's reason that the segments could not be removed either.
    #[cold]
    fn cannot_be_emptied(&self, error: &io::Error, path: &Path) {
        if let DiskStanding::Failed(why) = &mut *self.state() {
            *why += &format!(
                "; what it holds could not be removed either ({error}): remove {} before the next start, or what was purged \
                 since may come back",
                path.display()
            );
        }
    }
}
