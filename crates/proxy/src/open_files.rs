//! A worker's open files. A path is looked up again after a second. Bounded, without a lock.
//!
//! A worker never waits for a disk: another thread opens files whose metadata is not in memory.

/// A representation of a file.
pub(crate) mod representation;
/// Coded forms of a file.
mod coded_forms;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use ::files::{FileRoots, MayBlock, OpenError, PathForm, PathMatch, Root, find};
use quick_cache::{Equivalent, UnitWeighter, unsync};
use tokio::sync::Semaphore;

use crate::shared::route_files::RouteFiles;
use representation::ServedFile;
use transport::deadline::Ticks;

/// How long a look-up remains valid.
const VALID: Ticks = Ticks(10);
/// How long an unused file stays open. A removed file keeps its disk space until then.
const UNUSED: Ticks = Ticks(100);
/// Maximum number of a worker's entries. Each takes up to four descriptors (with siblings), and up to 16 KiB of memory.
const ENTRIES_MAX: usize = 1024;
/// Divisor: a worker's entries may take this share of its descriptors.
const DESCRIPTOR_SHARE: u64 = 8;
/// How many threads open and read files for a worker at once.
const THREADS_MAX: usize = 16;

/// A request path within a route's files.
#[derive(PartialEq, Eq)]
struct OpenFileKey {
    files: u64,
    path: Box<[u8]>,
}

struct KeyRef<'a> {
    files: u64,
    path: &'a [u8],
}

impl Hash for OpenFileKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        KeyRef { files: self.files, path: &self.path }.hash(state);
    }
}

impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Hashes as `Key` does, so that a look-up needs no boxed path.
        state.write_u64(self.files);
        state.write(self.path);
    }
}

impl Equivalent<OpenFileKey> for KeyRef<'_> {
    fn equivalent(&self, key: &OpenFileKey) -> bool {
        self.files == key.files && *self.path == *key.path
    }
}

struct OpenFileEntry {
    file: Rc<ServedFile>,
    found_at: Cell<u32>,
    used_at: Cell<u32>,
}

pub(crate) struct OpenFiles {
    entries: RefCell<unsync::Cache<OpenFileKey, OpenFileEntry, UnitWeighter, RandomState>>,
    /// The directories beneath which files are opened, with the tick of their opening.
    roots: RefCell<HashMap<PathBuf, (Arc<Root>, u32)>>,
    turns: Semaphore,
}

/// The target of a path.
pub(crate) enum Lookup {
    File(Rc<ServedFile>),
    /// A directory whose path lacks the final slash.
    WithoutSlash,
    /// A directory to list, beneath this root.
    Directory(Arc<Root>),
}

impl OpenFiles {
    /// Creates an empty table for one of so many workers, which share the descriptors.
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

    /// Returns the file of a path that was looked up recently.
    #[inline]
    pub(crate) fn fresh(&self, files: &RouteFiles, path: &[u8], now: u32) -> Option<Rc<ServedFile>> {
        let entries = self.entries.borrow();
        let entry = entries.get(&KeyRef { files: files.id, path })?;
        // Even if it must be looked up again: a file in use must not be closed as unused.
        entry.used_at.set(now);
        (now.wrapping_sub(entry.found_at.get()) < VALID.0).then(|| Rc::clone(&entry.file))
    }

    /// Finds the target of a path; `requested` is the path as written in the request.
    pub(crate) async fn look_up(
        &self,
        files: &Arc<RouteFiles>,
        requested: &[u8],
        name: &[u8],
        form: PathForm,
        now: u32,
        unix_seconds: u64,
    ) -> Result<Lookup, OpenError> {
        // A request with ranges or conditions comes here without a look at the open files.
        if let Some(file) = self.fresh(files, requested, now) {
            return Ok(Lookup::File(file));
        }
        let (root, found) = match self.find_at_once(files, name, form, now) {
            Err(OpenError::WouldWait) => self.find_elsewhere(files, name, form).await?,
            outcome => outcome?,
        };
        self.keep_root(&files.settings.root, &root, now);
        match found {
            PathMatch::WithoutSlash => Ok(Lookup::WithoutSlash),
            PathMatch::Directory => Ok(Lookup::Directory(root)),
            PathMatch::File(found) => {
                // An unchanged file stays open, with its coded forms.
                let mut entries = self.entries.borrow_mut();
                if let Some(entry) = entries.get(&KeyRef { files: files.id, path: requested })
                    && entry.file.is_still(&found)
                {
                    entry.found_at.set(now);
                    entry.file.look_again();
                    return Ok(Lookup::File(Rc::clone(&entry.file)));
                }
                let file = Rc::new(ServedFile::new(found, &files.settings, unix_seconds));
                let key = OpenFileKey { files: files.id, path: requested.into() };
                let entry = OpenFileEntry {
                    file: Rc::clone(&file),
                    found_at: Cell::new(now),
                    used_at: Cell::new(now),
                };
                entries.insert(key, entry);
                Ok(Lookup::File(file))
            }
        }
    }

    /// Finds a file if no part of its path must be read from a disk.
    fn find_at_once(
        &self,
        files: &RouteFiles,
        name: &[u8],
        form: PathForm,
        now: u32,
    ) -> Result<(Arc<Root>, PathMatch), OpenError> {
        let settings = &files.settings;
        let known =
            self.roots.borrow().get(&settings.root).and_then(|(root, opened_at)| {
                (now.wrapping_sub(*opened_at) < VALID.0).then(|| Arc::clone(root))
            });
        let root = match known {
            Some(root) => root,
            None => Arc::new(Root::open(&settings.root, MayBlock::Never)?),
        };
        let found = find(&root, name, form, &places(settings), MayBlock::Never)?;
        Ok((root, found))
    }

    async fn find_elsewhere(
        &self,
        files: &RouteFiles,
        name: &[u8],
        form: PathForm,
    ) -> Result<(Arc<Root>, PathMatch), OpenError> {
        let (settings, name) = (Arc::clone(&files.settings), name.to_vec());
        self.elsewhere(move || {
            let root = Root::open(&settings.root, MayBlock::Maybe)?;
            let found = find(&root, &name, form, &places(&settings), MayBlock::Maybe)?;
            Ok((Arc::new(root), found))
        })
        .await
    }

    /// Runs a step that may block on a disk on another thread.
    pub(crate) async fn elsewhere<T: Send + 'static>(
        &self,
        step: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
    ) -> Result<T, OpenError> {
        // The semaphore is never closed.
        let _turn = self.turns.acquire().await.map_err(std::io::Error::other).map_err(OpenError::Failed)?;
        let done = tokio::task::spawn_blocking(step).await;
        done.map_err(|error| OpenError::Failed(error.into()))?
    }

    /// Notes when a root was opened, because its path may lead elsewhere later.
    fn keep_root(&self, path: &Path, root: &Arc<Root>, now: u32) {
        let mut roots = self.roots.borrow_mut();
        match roots.get_mut(path) {
            // The same root keeps its time. Otherwise it would never be opened again.
            Some((known, _)) if Arc::ptr_eq(known, root) => {}
            Some(known) => *known = (Arc::clone(root), now),
            None => drop(roots.insert(path.to_owned(), (Arc::clone(root), now))),
        }
    }

    /// Closes unused files. Called on each tick.
    pub(crate) fn sweep(&self, now: u32) {
        let mut entries = self.entries.borrow_mut();
        // Most workers have no open files, and nothing to visit.
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

fn places(settings: &config::Files) -> FileRoots<'_> {
    FileRoots {
        index: &settings.index,
        fallback: settings.fallback.as_deref(),
        precompressed: settings.precompressed,
        lists: settings.listing,
        links: settings.symlinks,
    }
}
