//! The store as its callers have it: what they ask for goes to two threads, in queues with bounds, and they go on.
//!
//! The first error of the disk turns the store off for good: what is asked for then is a miss, and what is written is
//! dropped. Why is said in the tally.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use crate::format::{Kind, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES};
use crate::index::{Index, Place, lock};
use crate::log::{Log, Read, Records};

/// Where a store is, and how much it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSettings {
    /// A folder of its own. It is made if it is missing; what is in it and is not the store's is left alone.
    pub path: PathBuf,
    /// All segments together.
    pub size_bytes: u64,
    /// 128 random bits, for a store that is new; one that is there keeps its own.
    pub fresh_secret: u128,
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The kernel said no.
    #[error("the cache's folder {}: {source}; give it one that it may write to", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file that names the store is damaged, or belongs to something else.
    #[error("{} is no identity of a cache, or a damaged one; remove the folder to begin anew", .0.display())]
    Identity(PathBuf),
    /// Another process has it.
    #[error("the cache's folder {} is used by another process; give each its own", .0.display())]
    InUse(PathBuf),
    /// There is room for too little.
    #[error("a cache of {0} bytes on disk is too small; give it {SIZE_BYTES_MIN} or more")]
    TooSmall(u64),
}

/// What a store holds, and what became of what was asked of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiskTally {
    /// Records that are there.
    pub records: u64,
    /// What all segments take.
    pub bytes: u64,
    /// Records written.
    pub written: u64,
    /// Records read.
    pub read: u64,
    /// What was dropped since the disk could not keep up.
    pub dropped: u64,
    /// Records and segments that were not as they were written.
    pub damaged: u64,
    /// Files in the folder that are not the store's.
    pub foreign: u64,
    /// Why it is off, if it is.
    pub failure: Option<String>,
}

/// Bytes under keys on a disk.
#[derive(Debug)]
pub struct Disk {
    shared: Arc<Shared>,
    changes: Option<SyncSender<Change>>,
    reads: Option<SyncSender<Lookup>>,
    threads: Vec<JoinHandle<()>>,
    secret: u128,
    record_bytes_max: u64,
    /// Locked for as long as the store is open.
    _identity: File,
}

#[derive(Debug, Default)]
struct Shared {
    index: Mutex<Index>,
    failure: OnceLock<String>,
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
    parts: Vec<Bytes>,
}

struct Lookup {
    key: u128,
    then: Box<dyn FnOnce(Option<Vec<u8>>) + Send>,
}

/// The file that names a store: the secret of its keys, and a checksum.
pub(crate) const IDENTITY: &str = "identity";

/// The least that a store is good for.
const SIZE_BYTES_MIN: u64 = 1 << 20;
/// Space is given up by segments: the smaller they are, the less at once.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
const SEGMENTS: u64 = 16;
/// What is asked for beyond these is dropped.
const QUEUED_WRITES_MAX: usize = 1024;
const QUEUED_BYTES_MAX: u64 = 32 << 20;
const QUEUED_READS_MAX: usize = 256;
/// What a crash may take with it.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

impl Disk {
    /// Opens a store, with what an earlier process left of it.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub fn open(settings: &DiskSettings) -> Result<Self, DiskError> {
        if settings.size_bytes < SIZE_BYTES_MIN {
            return Err(DiskError::TooSmall(settings.size_bytes));
        }
        let io = |source| DiskError::Io { path: settings.path.clone(), source };
        fs::create_dir_all(&settings.path).map_err(io)?;
        let (identity, secret) = identify(&settings.path, settings.fresh_secret)?;
        let shared = Arc::new(Shared::default());
        let segment_bytes = (settings.size_bytes / SEGMENTS).min(SEGMENT_BYTES_MAX);
        let (log, findings) =
            Log::open(&settings.path, secret, settings.size_bytes, segment_bytes, &mut lock(&shared.index))
                .map_err(io)?;
        shared.damaged.store(findings.damaged, Relaxed);
        shared.foreign.store(findings.foreign, Relaxed);
        shared.bytes.store(log.bytes(), Relaxed);
        let (changes, to_write) = sync_channel(QUEUED_WRITES_MAX);
        let (reads, to_read) = sync_channel(QUEUED_READS_MAX);
        let (writer, reader) = (shared.clone(), shared.clone());
        let records = Records::new(&settings.path);
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let threads = vec![
            thread("disk-write").spawn(move || writer.write(log, &to_write)).map_err(io)?,
            thread("disk-read").spawn(move || reader.read(records, &to_read)).map_err(io)?,
        ];
        let record_bytes_max = segment_bytes - (SEGMENT_HEADER_BYTES + RECORD_HEADER_BYTES) as u64;
        let (changes, reads) = (Some(changes), Some(reads));
        Ok(Self { shared, changes, reads, threads, secret, record_bytes_max, _identity: identity })
    }

    /// What the keys of this store are hashed with, the same for as long as its folder lives.
    pub fn secret(&self) -> u128 {
        self.secret
    }

    /// Puts bytes under a key, soon. Dropped if the disk cannot keep up, or if they are too many.
    pub fn put(&self, key: u128, parts: Vec<Bytes>) {
        self.write(Change { kind: Kind::Put, key, parts });
    }

    /// Removes what is under a key: at once for who asks, soon on the disk.
    pub fn remove(&self, key: u128) {
        let was_there = lock(&self.shared.index).remove(key);
        // What is queued may be put there yet.
        if was_there || self.shared.queued.load(Acquire) > 0 {
            self.write(Change { kind: Kind::Remove, key, parts: Vec::new() });
        }
    }

    /// Removes everything: at once for who asks, soon on the disk.
    pub fn clear(&self) {
        lock(&self.shared.index).clear();
        self.write(Change { kind: Kind::Clear, key: 0, parts: Vec::new() });
    }

    /// Whether something is under a key, as far as is known.
    pub fn has(&self, key: u128) -> bool {
        lock(&self.shared.index).find(key).is_some()
    }

    /// Reads what is under a key and hands it over, on a thread of the store; `None` if it is not there or not whole.
    /// Without a record of that key, or when too much is asked for, it is not called: then this says no.
    pub fn read(&self, key: u128, then: impl FnOnce(Option<Vec<u8>>) + Send + 'static) -> bool {
        if !self.has(key) {
            return false;
        }
        let lookup = Lookup { key, then: Box::new(then) };
        let is_queued = self.reads.as_ref().is_some_and(|reads| reads.try_send(lookup).is_ok());
        if !is_queued {
            self.shared.dropped.fetch_add(1, Relaxed);
        }
        is_queued
    }

    fn write(&self, change: Change) {
        let shared = &self.shared;
        let (bytes, kind) = (change.bytes(), change.kind);
        if shared.failure.get().is_some() {
            return;
        }
        let has_room = bytes <= self.record_bytes_max
            && (kind != Kind::Put || shared.queued_bytes.load(Relaxed) + bytes <= QUEUED_BYTES_MAX);
        shared.queued.fetch_add(1, AcqRel);
        shared.queued_bytes.fetch_add(bytes, Relaxed);
        let is_queued =
            has_room && self.changes.as_ref().is_some_and(|changes| changes.try_send(change).is_ok());
        if is_queued {
            return;
        }
        shared.done(bytes);
        shared.dropped.fetch_add(1, Relaxed);
        if kind != Kind::Put {
            // What was purged must not come back with the next process.
            shared.fail("it could not keep up with purges");
        }
    }

    /// What the store holds.
    pub fn tally(&self) -> DiskTally {
        let shared = &self.shared;
        DiskTally {
            records: lock(&shared.index).len() as u64,
            bytes: shared.bytes.load(Relaxed),
            written: shared.written.load(Relaxed),
            read: shared.read.load(Relaxed),
            dropped: shared.dropped.load(Relaxed),
            damaged: shared.damaged.load(Relaxed),
            foreign: shared.foreign.load(Relaxed),
            failure: shared.failure.get().cloned(),
        }
    }
}

impl Drop for Disk {
    /// What was asked for is done first.
    fn drop(&mut self) {
        (self.changes, self.reads) = (None, None);
        for thread in self.threads.drain(..) {
            // One that panicked has nothing left to do.
            let _ = thread.join();
        }
    }
}

impl Change {
    fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }
}

impl Shared {
    /// Does what is asked until nobody is left to ask, and has the kernel write it down each second.
    fn write(&self, mut log: Log, changes: &Receiver<Change>) {
        let mut sync_at = Instant::now() + SYNC_INTERVAL;
        loop {
            let change = changes.recv_timeout(sync_at.saturating_duration_since(Instant::now()));
            let is_last = matches!(change, Err(RecvTimeoutError::Disconnected));
            let mut done = Ok(());
            if let Ok(change) = change {
                if self.failure.get().is_none() {
                    done = self.apply(&mut log, &change);
                }
                self.done(change.bytes());
            }
            if is_last || Instant::now() >= sync_at {
                done = done.and_then(|()| log.sync());
                sync_at = Instant::now() + SYNC_INTERVAL;
            }
            if let Err(error) = done {
                self.fail(&error.to_string());
            }
            if is_last {
                return;
            }
        }
    }

    fn apply(&self, log: &mut Log, change: &Change) -> io::Result<()> {
        let place = log.append(change.kind, change.key, &change.parts, &self.index)?;
        let mut index = lock(&self.index);
        match change.kind {
            Kind::Put => {
                index.put(change.key, place);
            }
            Kind::Remove => {
                index.remove(change.key);
            }
            Kind::Clear => index.clear(),
        }
        self.written.fetch_add(1, Relaxed);
        self.bytes.store(log.bytes(), Relaxed);
        Ok(())
    }

    fn read(&self, mut records: Records, lookups: &Receiver<Lookup>) {
        while let Ok(Lookup { key, then }) = lookups.recv() {
            let place = lock(&self.index).find(key);
            then(place.and_then(|place| self.read_at(&mut records, key, place)));
        }
    }

    fn read_at(&self, records: &mut Records, key: u128, place: Place) -> Option<Vec<u8>> {
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

    /// Turns the store off.
    fn fail(&self, why: &str) {
        let _ = self.failure.set(why.to_owned());
        lock(&self.index).clear();
    }
}

/// The store's identity, locked, and its secret.
fn identify(folder: &Path, fresh_secret: u128) -> Result<(File, u128), DiskError> {
    let path = folder.join(IDENTITY);
    let io = |source| DiskError::Io { path: folder.to_owned(), source };
    let mut file =
        File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(DiskError::InUse(folder.to_owned())),
        Err(TryLockError::Error(error)) => return Err(io(error)),
    }
    let mut found = Vec::new();
    file.read_to_end(&mut found).map_err(io)?;
    let written =
        |secret: u128| [&secret.to_le_bytes()[..], &xxh3_64(&secret.to_le_bytes()).to_le_bytes()].concat();
    if found.is_empty() {
        file.write_all(&written(fresh_secret)).and_then(|()| file.sync_all()).map_err(io)?;
        return Ok((file, fresh_secret));
    }
    let secret = found.first_chunk().map(|bytes| u128::from_le_bytes(*bytes));
    secret
        .filter(|&secret| written(secret) == found)
        .map(|secret| (file, secret))
        .ok_or(DiskError::Identity(path))
}
