//! Files in memory: certificates and keys that are never on a disk. They have names where others have paths, and are
//! reloaded as others are when they change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// How the names begin. No path of a file needs to.
const PREFIX: &str = "kubernetes:";

static FILES: LazyLock<RwLock<Files>> = LazyLock::new(RwLock::default);

#[derive(Default)]
struct Files {
    files: BTreeMap<PathBuf, InMemory>,
    /// The number of the last change.
    changes: u64,
}

/// A file, and which change wrote it.
#[derive(Clone)]
pub(crate) struct InMemory {
    pub(crate) content: Arc<[u8]>,
    pub(crate) change: u64,
}

/// These are the files from now on, and no others. Their names begin with `kubernetes:`.
pub fn keep_in_memory(wanted: &BTreeMap<String, Vec<u8>>) {
    let mut known = FILES.write().unwrap_or_else(PoisonError::into_inner);
    let change = known.changes + 1;
    let files = wanted.iter().map(|(name, content)| {
        let path = PathBuf::from(name);
        let same = known.files.get(&path).filter(|file| *file.content == **content).cloned();
        let file = same.unwrap_or_else(|| InMemory { content: content.as_slice().into(), change });
        (path, file)
    });
    *known = Files { files: files.collect(), changes: change };
}

/// Whether a path is the name of such a file.
pub(crate) fn is_name(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with(PREFIX))
}

/// A file, if it is there.
pub(crate) fn file(path: &Path) -> Option<InMemory> {
    FILES.read().unwrap_or_else(PoisonError::into_inner).files.get(path).cloned()
}
