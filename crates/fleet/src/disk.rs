//! The last version that was in force, on the disk: what an instance starts with while etcd is gone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::tree::Tree;

const FILE: &str = "last-good.json";
/// The form of the file. Others are not read.
const FORM: u32 = 1;

/// A version of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    form: u32,
    /// Where it is from: a folder is of one place.
    location: String,
    /// Its files.
    pub(crate) tree: Tree,
}

/// The folder of an instance.
#[derive(Debug, Clone)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes the folder if it is missing; nobody else may read it.
    ///
    /// # Errors
    /// Why it cannot be used, for messages.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| format!("{}: {error}; --fleet-dir names another folder", path.display()))?;
        Ok(Self(path.to_owned()))
    }

    /// What was kept for a location; `None` if there is nothing.
    ///
    /// # Errors
    /// Why it cannot be read, for messages.
    pub(crate) fn read(&self, location: &str) -> Result<Option<Tree>, String> {
        let path = self.0.join(FILE);
        let failed = |why: String| format!("{}: {why}", path.display());
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error.to_string())),
        };
        let kept: Kept = serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
        if kept.form != FORM {
            return Err(failed(format!("it has form {}, this program reads form {FORM}", kept.form)));
        }
        Ok((kept.location == location).then_some(kept.tree))
    }

    /// Keeps a version: whole or not at all, whenever the machine stops.
    ///
    /// # Errors
    /// Why it cannot be written, for messages.
    pub(crate) fn keep(&self, location: &str, tree: &Tree) -> Result<(), String> {
        let kept = Kept { form: FORM, location: location.to_owned(), tree: tree.clone() };
        let (path, new) = (self.0.join(FILE), self.0.join(format!("{FILE}.{}.new", std::process::id())));
        let write = || {
            let text = serde_json::to_vec(&kept).map_err(io::Error::other)?;
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.0)?.sync_all()
        };
        write().map_err(|error| format!("{}: {error}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_again_for_the_same_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a/b");
        let folder = Folder::open(&path).expect("it can be made");
        assert_eq!(folder.read("x"), Ok(None));
        let tree = Tree { files: [("vanward.toml".to_owned(), "a = 1".to_owned())].into() };
        folder.keep("x", &Tree::default()).expect("it can be written");
        folder.keep("x", &tree).expect("it can be replaced");
        assert_eq!(folder.read("x"), Ok(Some(tree)));
        assert_eq!(folder.read("y"), Ok(None));
        assert_eq!(fs::read_dir(&path).expect("it is there").count(), 1);
        fs::write(path.join(FILE), "{\"form\":2,\"location\":\"x\",\"tree\":{\"files\":{}}}")
            .expect("writable");
        assert!(folder.read("x").is_err_and(|why| why.contains("it has form 2")));
        fs::write(path.join(FILE), "{").expect("writable");
        assert!(folder.read("x").is_err_and(|why| why.contains(FILE)));
    }
}
