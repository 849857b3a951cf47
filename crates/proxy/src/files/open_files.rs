//! The open files of a worker: found once, and again after a second. Bounded, without a lock.
//!
//! A worker never waits for a disk: what the kernel has not in memory is opened by another thread.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use ::files::{Form, Found, OpenError, Places, Root, Waits, find};
use quick_cache::{Equivalent, UnitWeighter, unsync};
use tokio::sync::Semaphore;

use super::RouteFiles;
use super::representation::ServedFile;
use crate::context::worker::Worker;
use transport::deadline::Ticks;

/// How long what was found counts without a look: a second.
const VALID: Ticks = Ticks(10);
/// How long a file stays open that nobody asks for: what was removed keeps its place on the disk meanwhile.
const UNUSED: Ticks = Ticks(100);
/// The most entries of a worker. Each takes a descriptor, with siblings up to four, and up to 16 KiB of memory.
const ENTRIES_MAX: usize = 1024;
/// The share of the descriptors of a worker that its entries may take, as a divisor.
const DESCRIPTOR_SHARE: u64 = 8;
/// How many threads open and read for a worker at once.
const THREADS_MAX: usize = 16;

/// The path of a request to the files of a route.
#[derive(PartialEq, Eq)]
struct Key {
    files: u64,
    path: Box<[u8]>,
}

/// The same, borrowed.
struct KeyRef<'a> {
    files: u64,
    path: &'a [u8],
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        KeyRef { files: self.files, path: &self.path }.hash(state);
    }
}

impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.files);
        state.write(self.path);
    }
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.files == key.files && *self.path == *key.path
    }
}

/// A file that is open.
struct Entry {
    file: Rc<ServedFile>,
    found_at: Cell<u32>,
    used_at: Cell<u32>,
}

/// The open files of a worker.
pub(crate) struct OpenFiles {
    entries: RefCell<unsync::Cache<Key, Entry, UnitWeighter, RandomState>>,
    /// The directories beneath which files are opened, and when they were.
    roots: RefCell<HashMap<PathBuf, (Arc<Root>, u32)>>,
    turns: Semaphore,
}

/// What a path leads to.
pub(super) enum Lookup {
    File(Rc<ServedFile>),
    /// A directory, whose path lacks the slash at its end.
    WithoutSlash,
    /// A directory to list, beneath this root.
    Directory(Arc<Root>),
}

impl OpenFiles {
    /// None yet, for one of so many workers.
    pub(crate) fn new(workers: usize) -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let share = limit.unwrap_or(u64::MAX) / workers.max(1) as u64 / DESCRIPTOR_SHARE;
        let entries_max = share.clamp(1, ENTRIES_MAX as u64);
        let entries = unsync::Cache::with(
            0,
            entries_max,
            UnitWeighter,
            RandomState::default(),
            unsync::DefaultLifecycle::default(),
        );
        Self { entries: RefCell::new(entries), roots: RefCell::default(), turns: Semaphore::new(THREADS_MAX) }
    }

    /// The file for a path that was found lately.
    #[inline]
    pub(super) fn fresh(&self, files: &RouteFiles, path: &[u8], now: u32) -> Option<Rc<ServedFile>> {
        let entries = self.entries.borrow();
        let entry = entries.get(&KeyRef { files: files.id, path })?;
        entry.used_at.set(now);
        (now.wrapping_sub(entry.found_at.get()) < VALID.0).then(|| Rc::clone(&entry.file))
    }

    /// Finds what a path leads to; `requested` is how the request has written it.
    pub(super) async fn look_up(
        &self,
        files: &Arc<RouteFiles>,
        requested: &[u8],
        (name, form): (&[u8], Form),
        worker: &Worker,
    ) -> Result<Lookup, OpenError> {
        let now = worker.deadlines.now();
        if let Some(file) = self.fresh(files, requested, now) {
            return Ok(Lookup::File(file));
        }
        let (root, found) = match self.find_at_once(files, (name, form), now) {
            Err(OpenError::WouldWait) => self.find_elsewhere(files, (name, form)).await?,
            outcome => outcome?,
        };
        self.keep_root(&files.settings.root, &root, now);
        match found {
            Found::WithoutSlash => Ok(Lookup::WithoutSlash),
            Found::Directory => Ok(Lookup::Directory(root)),
            Found::File(found) => {
                let mut entries = self.entries.borrow_mut();
                if let Some(entry) = entries.get(&KeyRef { files: files.id, path: requested })
                    && entry.file.is_still(&found)
                {
                    entry.found_at.set(now);
                    entry.file.look_again();
                    return Ok(Lookup::File(Rc::clone(&entry.file)));
                }
                let file = Rc::new(ServedFile::new(found, &files.settings, worker.unix_seconds()));
                let key = Key { files: files.id, path: requested.into() };
                let entry =
                    Entry { file: Rc::clone(&file), found_at: Cell::new(now), used_at: Cell::new(now) };
                entries.insert(key, entry);
                Ok(Lookup::File(file))
            }
        }
    }

    /// Finds a file where nothing of its path has to be read from a disk.
    fn find_at_once(
        &self,
        files: &RouteFiles,
        (name, form): (&[u8], Form),
        now: u32,
    ) -> Result<(Arc<Root>, Found), OpenError> {
        let settings = &files.settings;
        let known =
            self.roots.borrow().get(&settings.root).and_then(|(root, opened_at)| {
                (now.wrapping_sub(*opened_at) < VALID.0).then(|| Arc::clone(root))
            });
        let root = match known {
            Some(root) => root,
            None => Arc::new(Root::open(&settings.root, Waits::Never)?),
        };
        let found = find(&root, name, form, &places(settings), Waits::Never)?;
        Ok((root, found))
    }

    /// Finds a file on another thread.
    async fn find_elsewhere(
        &self,
        files: &RouteFiles,
        (name, form): (&[u8], Form),
    ) -> Result<(Arc<Root>, Found), OpenError> {
        let (settings, name) = (Arc::clone(&files.settings), name.to_vec());
        self.elsewhere(move || {
            let root = Root::open(&settings.root, Waits::Maybe)?;
            let found = find(&root, &name, form, &places(&settings), Waits::Maybe)?;
            Ok((Arc::new(root), found))
        })
        .await
    }

    /// Takes a step that may wait for a disk, on another thread.
    pub(super) async fn elsewhere<T: Send + 'static>(
        &self,
        step: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
    ) -> Result<T, OpenError> {
        // It is never closed.
        let _turn = self.turns.acquire().await.map_err(std::io::Error::other).map_err(OpenError::Failed)?;
        let done = tokio::task::spawn_blocking(step).await;
        done.map_err(|error| OpenError::Failed(error.into()))?
    }

    /// Notes when a root was opened, if it was just now: a path may lead elsewhere later.
    fn keep_root(&self, path: &Path, root: &Arc<Root>, now: u32) {
        let mut roots = self.roots.borrow_mut();
        match roots.get_mut(path) {
            Some((known, _)) if Arc::ptr_eq(known, root) => {}
            Some(known) => *known = (Arc::clone(root), now),
            None => drop(roots.insert(path.to_owned(), (Arc::clone(root), now))),
        }
    }

    /// Closes what nobody has asked for lately.
    pub(crate) fn sweep(&self, now: u32) {
        let mut entries = self.entries.borrow_mut();
        if !entries.is_empty() {
            entries.retain(|_, entry| now.wrapping_sub(entry.used_at.get()) < UNUSED.0);
        }
        self.roots.borrow_mut().retain(|_, (_, opened_at)| now.wrapping_sub(*opened_at) < UNUSED.0);
    }

    /// Closes all files that are not being sent. Returns whether there were any.
    pub(crate) fn close(&self) -> bool {
        let mut entries = self.entries.borrow_mut();
        let had_any = !entries.is_empty();
        entries.clear();
        had_any
    }
}

fn places(settings: &config::Files) -> Places<'_> {
    Places {
        index: &settings.index,
        fallback: settings.fallback.as_deref(),
        precompressed: settings.precompressed,
        lists: settings.listing,
        links: settings.symlinks,
    }
}
