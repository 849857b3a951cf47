//! Files in memory: certificates and keys that are never on a disk. They have names in place of paths, and are reloaded
//! when they change, like files on a disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// The prefix of the names. No path of a real file needs it.
const PREFIX: &str = "kubernetes:";

static FILES: LazyLock<RwLock<Files>> = LazyLock::new(RwLock::default);

#[derive(Default)]
struct Files {
    files: BTreeMap<PathBuf, InMemory>,
    /// The number of the last change.
    changes: u64,
}

/// A file, and the number of the change that wrote it.
#[derive(Clone)]
pub(crate) struct InMemory {
    pub(crate) content: Arc<[u8]>,
    pub(crate) change: u64,
}

/// Replaces all files in memory. Their names begin with `kubernetes:`.
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

/// Whether a path is the name of a file in memory.
pub(crate) fn is_name(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with(PREFIX))
}

pub(crate) fn file(path: &Path) -> Option<InMemory> {
    FILES.read().unwrap_or_else(PoisonError::into_inner).files.get(path).cloned()
}
