//! Scripts of FastCGI applications: which paths are files beneath the root. A worker asks the file system once a second.

use std::cell::{Cell, RefCell};
use std::collections::hash_map::RandomState;
use std::hash::{Hash, Hasher};
use std::path::Path;

use ::files::{MayBlock, OpenError, Root};
use quick_cache::{Equivalent, UnitWeighter, unsync};

use super::{OpenFiles, VALID};

/// Maximum number of a worker's entries: clients choose the paths.
const SCRIPTS_MAX: u64 = 1024;

/// The path of a script beneath a root.
#[derive(PartialEq, Eq)]
struct ScriptKey {
    root: Box<str>,
    name: Box<[u8]>,
}

struct ScriptKeyRef<'a> {
    root: &'a str,
    name: &'a [u8],
}

impl Hash for ScriptKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        ScriptKeyRef { root: &self.root, name: &self.name }.hash(state);
    }
}

impl Hash for ScriptKeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Hashes as `ScriptKey` does, so that a look-up needs no boxed path.
        state.write(self.root.as_bytes());
        state.write(self.name);
    }
}

impl Equivalent<ScriptKey> for ScriptKeyRef<'_> {
    fn equivalent(&self, key: &ScriptKey) -> bool {
        *self.root == *key.root && *self.name == *key.name
    }
}

struct KnownScript {
    exists: Cell<bool>,
    found_at: Cell<u32>,
}

/// The paths that were looked up recently.
pub(super) struct KnownScripts(RefCell<unsync::Cache<ScriptKey, KnownScript, UnitWeighter, RandomState>>);

impl KnownScripts {
    pub(super) fn new() -> Self {
        Self(RefCell::new(unsync::Cache::with(
            0,
            SCRIPTS_MAX,
            UnitWeighter,
            RandomState::default(),
            unsync::DefaultLifecycle::default(),
        )))
    }
}

impl OpenFiles {
    /// Whether a script exists, if no disk must be read for that. `name` begins with a slash.
    ///
    /// # Errors
    /// [`OpenError::WouldWait`] if another thread must look.
    #[inline]
    pub(crate) fn has_script_at_once(&self, root: &str, name: &[u8], now: u32) -> Result<bool, OpenError> {
        if let Some(known) = self.scripts.0.borrow().get(&ScriptKeyRef { root, name })
            && now.wrapping_sub(known.found_at.get()) < VALID.0
        {
            return Ok(known.exists.get());
        }
        self.look_for_script(root, name, now)
    }

    #[cold]
    fn look_for_script(&self, root: &str, name: &[u8], now: u32) -> Result<bool, OpenError> {
        let path = Path::new(root);
        let exists = match self.root_at_once(path, now) {
            Ok(opened) => {
                self.keep_root(path, &opened, now);
                opened.has_file(&name[1..], MayBlock::Never)?
            }
            Err(OpenError::NotFound) => false,
            Err(error) => return Err(error),
        };
        self.script_was_found(root, name, exists, now);
        Ok(exists)
    }

    /// Notes whether a script exists.
    pub(crate) fn script_was_found(&self, root: &str, name: &[u8], exists: bool, now: u32) {
        let mut known = self.scripts.0.borrow_mut();
        match known.get(&ScriptKeyRef { root, name }) {
            Some(known) => {
                known.exists.set(exists);
                known.found_at.set(now);
            }
            None => {
                let key = ScriptKey { root: root.into(), name: name.into() };
                known.insert(key, KnownScript { exists: Cell::new(exists), found_at: Cell::new(now) });
            }
        }
    }

    /// Opens a root for a thread that may wait; `None` if there is no such directory.
    ///
    /// # Errors
    /// The directory exists, and cannot be opened.
    pub(crate) fn root_of_scripts(root: &str) -> Result<Option<Root>, OpenError> {
        match Root::open(Path::new(root), MayBlock::Maybe) {
            Ok(root) => Ok(Some(root)),
            Err(OpenError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
