//! A worker's open files. A path is looked up again after a second. Bounded, without a lock.
//!
//! A worker never waits for a disk: another thread opens files whose metadata is not in memory.

/// A representation of a file.
pub(crate) mod representation;
/// Coded forms of a file.
mod coded_forms;
/// Scripts that exist.
pub(crate) mod scripts;

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

use crate::failure::Failure;
use crate::shared::route_files::RouteFiles;
use representation::ServedFile;
use rustix::io::Errno;
use scripts::KnownScripts;
use telemetry::message;
use transport::deadline::Ticks;

/// How long a look-up remains valid.
const VALID: Ticks = Ticks(10);
/// How long an unused file stays open. A removed file keeps its disk space until then.
const UNUSED: Ticks = Ticks(100);
/// Maximum number of a worker's entries. Each takes up to four descriptors (with siblings), and up to 16 KiB of memory.
const ENTRIES_MAX: usize = 1024;
/// Maximum number of a worker's paths without a file.
const ABSENT_MAX: u64 = 4096;
/// Longer paths without a file are looked up each time, which bounds the memory of the table to 1 MiB.
const ABSENT_PATH_BYTES_MAX: usize = 256;
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

type Table<T> = RefCell<unsync::Cache<OpenFileKey, T, UnitWeighter, RandomState>>;

pub(crate) struct OpenFiles {
    entries: Table<OpenFileEntry>,
    /// Paths without a file, for routes that then ask a server; with the tick of the look-up.
    absent: Table<Cell<u32>>,
    /// The directories beneath which files are opened, with the tick of their opening.
    roots: RefCell<HashMap<PathBuf, (Arc<Root>, u32)>>,
    scripts: KnownScripts,
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
        Self {
            entries: table(entries_max),
            absent: table(ABSENT_MAX),
            roots: RefCell::default(),
            scripts: KnownScripts::new(),
            turns: Semaphore::new(THREADS_MAX),
        }
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

    /// Whether a recent look-up has found no file for a path. Only known for routes that then ask a server.
    #[inline]
    pub(crate) fn is_absent(&self, files: &RouteFiles, path: &[u8], now: u32) -> bool {
        if files.settings.otherwise.is_none() {
            return false;
        }
        let absent = self.absent.borrow();
        let found_at = absent.get(&KeyRef { files: files.id, path });
        found_at.is_some_and(|found_at| now.wrapping_sub(found_at.get()) < VALID.0)
    }

    /// Notes that there is no file for a path, and closes the one that was there before.
    fn note_absent(&self, files: &RouteFiles, path: &[u8], now: u32) {
        let key = KeyRef { files: files.id, path };
        self.entries.borrow_mut().remove(&key);
        if files.settings.otherwise.is_none() || path.len() > ABSENT_PATH_BYTES_MAX {
            return;
        }
        let mut absent = self.absent.borrow_mut();
        match absent.get(&key) {
            Some(found_at) => found_at.set(now),
            None => absent.insert(OpenFileKey { files: files.id, path: path.into() }, Cell::new(now)),
        }
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
        if self.is_absent(files, requested, now) {
            return Err(OpenError::NotFound);
        }
        let found = match self.find_at_once(files, name, form, now) {
            Err(OpenError::WouldWait) => self.find_elsewhere(files, name, form).await,
            outcome => outcome,
        };
        if let Err(OpenError::NotFound | OpenError::Hidden) = &found {
            self.note_absent(files, requested, now);
        }
        let (root, found) = found?;
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
        let root = self.root_at_once(&settings.root, now)?;
        let found = find(&root, name, form, &places(files), MayBlock::Never)?;
        Ok((root, found))
    }

    /// Returns a root that was opened recently, or opens it if its path need not be read from a disk.
    fn root_at_once(&self, path: &Path, now: u32) -> Result<Arc<Root>, OpenError> {
        let known =
            self.roots.borrow().get(path).and_then(|(root, opened_at)| {
                (now.wrapping_sub(*opened_at) < VALID.0).then(|| Arc::clone(root))
            });
        known.map_or_else(|| Root::open(path, MayBlock::Never).map(Arc::new), Ok)
    }

    async fn find_elsewhere(
        &self,
        files: &Arc<RouteFiles>,
        name: &[u8],
        form: PathForm,
    ) -> Result<(Arc<Root>, PathMatch), OpenError> {
        let (files, name) = (Arc::clone(files), name.to_vec());
        self.elsewhere(move || {
            let root = Root::open(&files.settings.root, MayBlock::Maybe)?;
            let found = find(&root, &name, form, &places(&files), MayBlock::Maybe)?;
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
        let mut absent = self.absent.borrow_mut();
        if !absent.is_empty() {
            absent.retain(|_, found_at| now.wrapping_sub(found_at.get()) < UNUSED.0);
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

fn table<T>(entries_max: u64) -> Table<T> {
    RefCell::new(unsync::Cache::with(
        0,
        entries_max,
        UnitWeighter,
        RandomState::default(),
        unsync::DefaultLifecycle::default(),
    ))
}

/// Returns the failure of a request whose file cannot be opened.
pub(crate) fn failure(error: &OpenError) -> Failure {
    match error {
        OpenError::NotFound => Failure::NoFile,
        OpenError::Hidden => Failure::FileHidden,
        OpenError::Forbidden => Failure::FileForbidden,
        OpenError::NoDescriptor => Failure::OutOfDescriptors,
        OpenError::WouldWait => Failure::FileUnreadable,
        OpenError::Failed(error) => {
            message::error(&unreadable(error));
            Failure::FileUnreadable
        }
    }
}

/// Returns the operator's message about a file that the system cannot open. Equal messages are logged once a second.
fn unreadable(error: &std::io::Error) -> String {
    let remedy = if error.raw_os_error() == Some(Errno::NOSYS.raw_os_error()) {
        "; openat2 is refused, by a kernel before Linux 5.6 or by a filter of system calls, such as that of \
         RestrictSUIDSGID= in a unit of systemd"
    } else {
        ""
    };
    format!("a file cannot be opened: {error}{remedy}")
}

fn places(files: &RouteFiles) -> FileRoots<'_> {
    let settings = &files.settings;
    FileRoots {
        index: &settings.index,
        tries: &settings.tries,
        fallback: settings.fallback.as_deref(),
        goes_on: settings.otherwise.is_some(),
        scripts: files.scripts.as_deref(),
        precompressed: settings.precompressed,
        lists: settings.listing,
        links: settings.symlinks,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn absence_is_remembered_for_a_second_where_a_server_is_asked_then() {
        let directory = tempfile::tempdir().unwrap();
        let files = |otherwise| {
            let settings = config::Files::from_root(directory.path().to_owned());
            let files = config::Files { otherwise, ..settings };
            let config = config::Settings::for_files(vec![([127, 0, 0, 1], 0).into()], files.clone());
            Arc::new(RouteFiles::new(&Arc::new(files), &config))
        };
        let (plain, goes_on) = (files(None), files(Some(0)));
        let open = OpenFiles::new(1);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let is_found = |files: &Arc<RouteFiles>, name: &str, now| {
            let looked_up = open.look_up(files, name.as_bytes(), name.as_bytes(), PathForm::File, now, 0);
            runtime.block_on(looked_up).is_ok()
        };
        assert!(!is_found(&goes_on, "page", 100) && !is_found(&plain, "page", 100));
        fs::write(directory.path().join("page"), "page").unwrap();
        assert!(is_found(&plain, "page", 101), "without a server, there is no such memory");
        assert!(!is_found(&goes_on, "page", 100 + VALID.0 - 1) && open.is_absent(&goes_on, b"page", 101));
        assert!(is_found(&goes_on, "page", 100 + VALID.0));
        // A removed file is closed at once.
        fs::remove_file(directory.path().join("page")).unwrap();
        assert!(!is_found(&goes_on, "page", 200) && open.fresh(&goes_on, b"page", 101).is_none());
        for path in 0..2 * ABSENT_MAX {
            open.note_absent(&goes_on, path.to_string().as_bytes(), 300);
        }
        open.note_absent(&goes_on, &[b'n'; ABSENT_PATH_BYTES_MAX + 1], 300);
        assert!(open.absent.borrow().len() as u64 <= ABSENT_MAX);
        assert!(!open.is_absent(&goes_on, &[b'n'; ABSENT_PATH_BYTES_MAX + 1], 300));
        open.sweep(300 + UNUSED.0);
        assert!(open.absent.borrow().is_empty());
    }

    #[test]
    fn a_file_that_is_not_opened_is_told_with_its_reason() {
        let told = |errno: Errno| unreadable(&errno.into());
        assert_eq!(told(Errno::IO), "a file cannot be opened: Input/output error (os error 5)");
        assert!(told(Errno::NOSYS).contains("RestrictSUIDSGID="), "{}", told(Errno::NOSYS));
    }
}
