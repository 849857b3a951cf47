//! The store's interface: requests go to two threads through bounded queues, so callers never wait for the disk.
//!
//! The first disk error disables the store for good: reads are misses, writes are dropped, the tally has the reason.
//! The segments are deleted then, since later removals could no longer be recorded in them.

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

use crate::format::{Kind, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES};
use crate::identity::Identity;
use crate::index::{Index, Place, lock, replace};
use crate::log::{self, Findings, Log, Read, Records, Written};
use crate::pending::Pending;

/// The location and size of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSettings {
    /// The store's folder. It is created if it is missing; files in it that do not belong to the store are left alone.
    pub path: PathBuf,
    /// The maximum size of all segments together.
    pub size_bytes: u64,
    /// 128 random bits for a new store; an existing store keeps its own.
    pub fresh_secret: u128,
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The kernel reports an error.
    #[error("the cache's folder {}: {source}; give it one that it may write to", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The identity file of the store is damaged, or belongs to something else.
    #[error("{} is no identity of a cache, or a damaged one; remove the folder to begin anew", .0.display())]
    Identity(PathBuf),
    /// The configured size is below [`SIZE_BYTES_MIN`].
    #[error("a cache of {0} bytes on disk is too small; give it {SIZE_BYTES_MIN} or more")]
    TooSmall(u64),
}

/// The state of a store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DiskStanding {
    /// The store reads the segments of an earlier process.
    #[default]
    Opening,
    /// Another process still has the store locked.
    InUse,
    /// The store is in use: it reads and writes.
    On,
    /// The disk failed; with the error.
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

/// Statistics of a store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiskTally {
    /// The state of the store.
    pub state: DiskStanding,
    /// The number of records in the store.
    pub records: u64,
    /// The current size of all segments.
    pub bytes: u64,
    /// The maximum size of all segments.
    pub size_bytes: u64,
    /// The number of records written.
    pub written: u64,
    /// The number of records read.
    pub read: u64,
    /// The number of reads and writes that were dropped because the disk could not keep up or a record was too large.
    pub dropped: u64,
    /// The number of damaged records and segments.
    pub damaged: u64,
    /// The number of files in the folder that do not belong to the store.
    pub foreign: u64,
}

/// A key-value store on a disk.
#[derive(Debug)]
pub struct Disk {
    shared: Arc<Shared>,
    queues: Mutex<Option<Queues>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    secret: u128,
    size_bytes: u64,
    record_bytes_max: u64,
}

#[derive(Debug)]
struct Queues {
    changes: SyncSender<Change>,
    lookups: SyncSender<Lookup>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Locked before the index, where both are.
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
struct Change {
    kind: Kind,
    key: u128,
    variant: u64,
    /// Which put it is.
    number: u64,
    parts: Vec<Bytes>,
}

struct Lookup {
    key: u128,
    variant: Option<u64>,
    then: Box<dyn FnOnce(Option<Written>) + Send>,
}

/// What is done with what was noted, before the first record is read.
type Begin = Box<dyn FnOnce(Vec<Written>, u32) + Send>;

/// The minimum size of a store.
pub const SIZE_BYTES_MIN: u64 = 1 << 20;
/// Space is given up by segments: the smaller they are, the less at once.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
const SEGMENTS: u64 = 16;
/// What is put beyond these is dropped.
const QUEUED_PUTS_MAX: u64 = 1024;
const QUEUED_BYTES_MAX: u64 = 32 << 20;
/// What is removed or noted must not be dropped: when these are too many, the store is.
const QUEUED_CHANGES_MAX: usize = 16 << 10;
const QUEUED_READS_MAX: usize = 256;
/// What a crash may take with it.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// How often it is looked whether the process that has the store has ended.
const LOCK_INTERVAL: Duration = Duration::from_millis(200);

impl Disk {
    /// Opens a store, and reads the segments of an earlier process in the background. Before any record can be read,
    /// `begin` is called with the notes in their order, and with this process's run number.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub fn open(
        settings: &DiskSettings,
        begin: impl FnOnce(Vec<Written>, u32) + Send + 'static,
    ) -> Result<Self, DiskError> {
        let &DiskSettings { ref path, size_bytes, fresh_secret } = settings;
        if size_bytes < SIZE_BYTES_MIN {
            return Err(DiskError::TooSmall(size_bytes));
        }
        let io = |source| DiskError::Io { path: path.clone(), source };
        fs::create_dir_all(path).map_err(io)?;
        let identity = Identity::open(path, fresh_secret)?;
        let secret = identity.secret();
        let segment_bytes = (size_bytes / SEGMENTS).min(SEGMENT_BYTES_MAX);
        let (changes, to_write) = sync_channel(QUEUED_CHANGES_MAX);
        let (lookups, to_read) = sync_channel(QUEUED_READS_MAX);
        let shared = Arc::new(Shared::default());
        let writer = Writer { shared: shared.clone(), path: path.clone(), size_bytes, segment_bytes };
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

    /// The secret with which the store's keys are hashed. It stays the same for as long as the folder exists.
    pub fn secret(&self) -> u128 {
        self.secret
    }

    /// Writes a variant of a key, soon. Dropped if the disk cannot keep up, or if the bytes exceed the size of a
    /// record.
    pub fn put(&self, key: u128, variant: u64, parts: Vec<Bytes>) {
        let bytes = parts.iter().map(|part| part.len() as u64).sum::<u64>();
        let shared = &self.shared;
        let has_room = bytes <= self.record_bytes_max
            && shared.queued.load(Relaxed) < QUEUED_PUTS_MAX
            && shared.queued_bytes.load(Relaxed) + bytes <= QUEUED_BYTES_MAX;
        let is_queued = has_room && {
            let number = shared.pending().queue(key, variant);
            self.write(Change { kind: Kind::Put, key, variant, number, parts })
        };
        if !is_queued {
            shared.dropped.fetch_add(1, Relaxed);
            if shared.outdate(key, variant) {
                self.clear();
            }
        }
    }

    /// Removes all variants of a key: at once for callers, soon on the disk. Returns how many there were.
    pub fn remove(&self, key: u128) -> usize {
        self.shared.pending().remove(key);
        let removed = lock(&self.shared.index).remove(key);
        // What is queued may be put there yet, and what is not read yet may be there.
        if removed > 0 || self.shared.queued.load(Acquire) > 0 || self.state() != DiskStanding::On {
            self.write_surely(Change::new(Kind::Remove, key, Vec::new()));
        }
        removed
    }

    /// Removes all records and notes: at once for callers, soon on the disk.
    pub fn clear(&self) {
        self.shared.pending().clear();
        replace(&self.shared.index, Index::default());
        self.write_surely(Change::new(Kind::Clear, 0, Vec::new()));
    }

    /// Writes a note about all earlier records. Processes that open the store later get the note, for as long as any of
    /// those records may exist.
    pub fn note(&self, payload: Vec<u8>) {
        self.write_surely(Change::new(Kind::Note, 0, vec![Bytes::from(payload)]));
    }

    /// Whether the index has a record for a key.
    pub fn has(&self, key: u128) -> bool {
        lock(&self.shared.index).find(key, None).is_some()
    }

    /// Reads a variant of a key, or the newest, and calls `then` on a thread of the store: with `None` if the record is
    /// damaged. Returns `false`, without a call, if there is no record or the queue is full.
    pub fn read(
        &self,
        key: u128,
        variant: Option<u64>,
        then: impl FnOnce(Option<Written>) + Send + 'static,
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

    fn write_surely(&self, change: Change) {
        let is_over = self.queues().is_none();
        if !is_over && !self.write(change) && self.shared.failure.get().is_none() {
            self.shared.fail("it could not keep up with what was removed");
        }
    }

    fn write(&self, change: Change) -> bool {
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

    /// The state of the store.
    pub fn state(&self) -> DiskStanding {
        self.shared.state().clone()
    }

    /// The statistics of the store.
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

    /// Accepts no further requests. When the queued ones are done, another process can lock the store.
    pub fn close(&self) {
        drop(self.queues().take());
    }

    /// Closes the store, and waits until the queued requests are done.
    pub fn finish(&self) {
        self.close();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // One that panicked has nothing left to do.
            let _ = thread.join();
        }
    }

    fn queues(&self) -> MutexGuard<'_, Option<Queues>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Change {
    /// One that must not be lost.
    fn new(kind: Kind, key: u128, parts: Vec<Bytes>) -> Self {
        Self { kind, key, variant: 0, number: 0, parts }
    }

    fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }
}

/// What the thread that writes needs.
struct Writer {
    shared: Arc<Shared>,
    path: PathBuf,
    size_bytes: u64,
    segment_bytes: u64,
}

impl Writer {
    /// The store is locked for as long as this runs.
    fn run(&self, mut identity: Identity, begin: Begin, changes: &Receiver<Change>) {
        match self.begin(&mut identity, begin, changes) {
            Ok(Some((log, first))) => self.write(log, first, changes),
            Ok(None) => {}
            Err(error) => self.shared.fail(&error.to_string()),
        }
        if self.shared.failure.get().is_some() {
            self.give_up(&mut identity, changes);
        }
    }

    /// Empties the store once it has failed, for who opens it next would find what was removed and not written down, or what
    /// is older than what was put and not written.
    fn give_up(&self, identity: &mut Identity, changes: &Receiver<Change>) {
        let shared = &self.shared;
        let emptied = loop {
            match identity.is_locked() {
                Ok(true) => break log::empty(&self.path, identity.secret()),
                // Another process has it still.
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

    /// Waits for the store, and reads what is there. `None` if it was closed meanwhile; else with what was to be written
    /// while it was waited for.
    fn begin(
        &self,
        identity: &mut Identity,
        begin: Begin,
        changes: &Receiver<Change>,
    ) -> io::Result<Option<(Log, Vec<Change>)>> {
        let mut first = Vec::new();
        while !identity.is_locked()? {
            self.shared.stand(DiskStanding::InUse);
            match changes.recv_timeout(LOCK_INTERVAL) {
                // The process that has it puts things of its own meanwhile; what was purged counts all the same, and
                // what is there under a key that was put here is older.
                Ok(change) if change.kind == Kind::Put => {
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
        let (log, findings) = Log::open(&self.path, identity.secret(), self.size_bytes, self.segment_bytes)?;
        let Findings { index, notes, outdated, damaged, foreign } = findings;
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

    /// Does what is asked until nobody is left to ask or the disk fails, and has the kernel write it down each second.
    fn write(&self, mut log: Log, first: Vec<Change>, changes: &Receiver<Change>) {
        let shared = &self.shared;
        for change in first {
            self.take(&mut log, &change);
        }
        // What was removed meanwhile waits in the queue.
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

    fn take(&self, log: &mut Log, change: &Change) {
        self.remove_outdated(log);
        let is_wanted = change.kind != Kind::Put || self.shared.is_wanted(change);
        if is_wanted {
            self.apply(log, change);
        }
        self.shared.done(change.bytes());
    }

    /// What is on the disk under these keys must not be found by who scans it next.
    fn remove_outdated(&self, log: &mut Log) {
        let outdated = self.shared.pending().take_outdated();
        for key in outdated {
            self.apply(log, &Change::new(Kind::Remove, key, Vec::new()));
        }
    }

    fn apply(&self, log: &mut Log, change: &Change) {
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

impl Shared {
    /// What is under a key is older than what could not be put there. Says whether there is too much of that to be
    /// remembered.
    fn outdate(&self, key: u128, variant: u64) -> bool {
        let mut pending = self.pending();
        let was_queued = pending.drop_put(key, variant);
        let mut index = lock(&self.index);
        let known = index.find(key, Some(variant));
        if let Some((_, place)) = known {
            index.remove_at(key, place);
        }
        drop(index);
        // What is not read yet may be there.
        let is_unread = matches!(*self.state(), DiskStanding::Opening | DiskStanding::InUse);
        if was_queued || known.is_some() || is_unread {
            pending.outdate(key);
        }
        pending.is_full()
    }

    /// Whether a put is to be written: nothing of the same was put since, nor was it removed, and it can be known where
    /// it is.
    fn is_wanted(&self, change: &Change) -> bool {
        let &Change { key, variant, number, .. } = change;
        let mut pending = self.pending();
        let is_current = pending.is_current(key, variant, number);
        let has_room = lock(&self.index).has_room(key, variant);
        if is_current && !has_room {
            // Then nothing older of the same is there either.
            pending.drop_put(key, variant);
            self.dropped.fetch_add(1, Relaxed);
        }
        is_current && has_room
    }

    fn index(&self, change: &Change, place: Place) {
        let &Change { kind, key, variant, number, .. } = change;
        match kind {
            // One that was removed while it was written is removed from the disk behind it.
            Kind::Put => {
                let mut pending = self.pending();
                if pending.settle(key, variant, number) && !lock(&self.index).put(key, variant, place) {
                    pending.outdate(key);
                }
            }
            Kind::Remove => {
                lock(&self.index).remove(key);
            }
            Kind::Clear => replace(&self.index, Index::default()),
            Kind::Note => {}
        }
        self.written.fetch_add(1, Relaxed);
    }

    fn read(&self, mut records: Records, lookups: &Receiver<Lookup>) {
        while let Ok(Lookup { key, variant, then }) = lookups.recv() {
            let found = lock(&self.index).find(key, variant);
            then(found.and_then(|(_, place)| self.read_at(&mut records, key, place)));
        }
    }

    fn read_at(&self, records: &mut Records, key: u128, place: Place) -> Option<Written> {
        match records.read(key, place) {
            Ok(Read::Payload(payload)) => {
                self.read.fetch_add(1, Relaxed);
                Some(payload)
            }
            Ok(Read::Damaged) => {
                lock(&self.index).remove_at(key, place);
                self.damaged.fetch_add(1, Relaxed);
                None
            }
            // Its segment was given up a moment ago.
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

    /// Turns the store off.
    fn fail(&self, why: &str) {
        self.stand(DiskStanding::Failed(why.to_owned()));
        let _ = self.failure.set(());
        self.pending().clear();
        replace(&self.index, Index::default());
    }

    /// Nor can its segments be removed.
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
