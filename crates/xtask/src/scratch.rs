//! Temporary directory that is removed with its content at the end.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;

/// A temporary directory. Dropping it removes the directory.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Creates the directory. `purpose` is unique in this process and ends the directory's name.
    pub(crate) fn new(purpose: &str) -> Result<Self, String> {
        let path = env::temp_dir().join(format!("vanward-{}-{purpose}", process::id()));
        fs::create_dir(&path).map_err(|error| format!("{} cannot be created: {error}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}
