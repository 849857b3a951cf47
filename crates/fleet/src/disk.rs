//! The last version in force, on disk. An instance starts with it while etcd is unreachable.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::tree::Tree;

const FILE: &str = "last-good.json";
/// Version of the file format. Files of other formats are ignored.
const FORM: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DiskVersion {
    form: u32,
    /// The URL in etcd that the version came from; a folder belongs to one.
    location: String,
    pub(crate) tree: Tree,
}

#[derive(Debug, Clone)]
pub(crate) struct VersionFolder(PathBuf);

impl VersionFolder {
    /// Creates the folder if it is missing, readable only by this user.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| format!("{}: {error}; --fleet-dir names another folder", path.display()))?;
        Ok(Self(path.to_owned()))
    }

    /// Reads the version that was stored for a location; `None` if there is none.
    pub(crate) fn read(&self, location: &str) -> Result<Option<Tree>, String> {
        let path = self.0.join(FILE);
        let failed = |why: String| format!("{}: {why}", path.display());
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error.to_string())),
        };
        let kept: DiskVersion = serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?;
        if kept.form != FORM {
            return Err(failed(format!("it has form {}, this program reads form {FORM}", kept.form)));
        }
        Ok((kept.location == location).then_some(kept.tree))
    }

    /// Stores a version atomically, even if the machine stops meanwhile.
    pub(crate) fn keep(&self, location: &str, tree: &Tree) -> Result<(), String> {
        let kept = DiskVersion { form: FORM, location: location.to_owned(), tree: tree.clone() };
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
    fn a_stored_version_is_read_for_the_same_location() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a/b");
        let folder = VersionFolder::open(&path).expect("it can be made");
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
