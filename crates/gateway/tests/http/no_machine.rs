//! A configuration by users of a cluster may read nothing except its objects. The fuzz target `gateway_objects`
//! uses this file, too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use config::Surroundings;

/// Has only the files from objects. Any other read panics.
pub(crate) struct NoMachine<'t>(pub(crate) &'t BTreeMap<String, Vec<u8>>);

impl Surroundings for NoMachine<'_> {
    fn named_file(&self, path: &Path, _: u64) -> Result<Vec<u8>, String> {
        let file = path.to_str().and_then(|path| self.0.get(path));
        Ok(file.unwrap_or_else(|| panic!("{} is read", path.display())).clone())
    }

    fn file(&self, path: &Path) -> Result<Vec<u8>, String> {
        panic!("{} is read", path.display())
    }

    fn matches(&self, pattern: &str) -> Result<Vec<PathBuf>, String> {
        panic!("{pattern} is read")
    }

    fn identity(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }

    fn variable(&self, name: &str) -> Option<Vec<u8>> {
        panic!("{name} is read")
    }

    fn secret(&self, path: &Path) -> Result<(Vec<u8>, bool), String> {
        panic!("{} is read", path.display())
    }
}
