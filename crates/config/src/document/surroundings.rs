//! The environment of a configuration: included files, files with secrets, environment variables.
//!
//! Behind a trait, so that tests and fuzz targets need no machine.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The largest file of a configuration: far more than anybody writes, and an end to `/dev/zero`.
const LARGEST_FILE_BYTES: u64 = 16 << 20;
/// The largest file with a secret. A header section that is longer would be refused anyway.
const LARGEST_SECRET_BYTES: u64 = 64 << 10;

/// The environment of a configuration: other files and variables. Paths are relative to the working directory.
pub trait Surroundings {
    /// The bytes of a file of the configuration, or why there are none.
    fn file(&self, path: &Path) -> Result<Vec<u8>, String>;
    /// The files that a pattern with wildcards matches, sorted by name.
    fn matches(&self, pattern: &str) -> Result<Vec<PathBuf>, String>;
    /// A name that all paths of one file have in common.
    fn identity(&self, path: &Path) -> PathBuf;
    /// The value of an environment variable; `None` if it is not set.
    fn variable(&self, name: &str) -> Option<Vec<u8>>;
    /// The bytes of a file with a secret, and whether every user of the machine may read them.
    fn secret(&self, path: &Path) -> Result<(Vec<u8>, bool), String>;
    /// The bytes of a file that an option names, such as a list of users; at most `bytes_max`.
    fn named_file(&self, path: &Path, bytes_max: u64) -> Result<Vec<u8>, String>;
    /// Whether a file that is missing here, or a variable (`None`), may exist on the machines that use the configuration.
    /// What depends on it is not checked then.
    fn may_be_elsewhere(&self, _: Option<&Path>) -> bool {
        false
    }
}

/// The machine of this process.
#[derive(Debug, Clone, Copy)]
pub struct Machine;

impl Surroundings for Machine {
    fn file(&self, path: &Path) -> Result<Vec<u8>, String> {
        use std::io::Read;
        let failed = |error: std::io::Error| format!("the file can't be read: {error}");
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        // A byte more than the largest file tells that there is more.
        file.take(LARGEST_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > LARGEST_FILE_BYTES {
            return Err(format!("the file is larger than {} MiB", LARGEST_FILE_BYTES >> 20));
        }
        Ok(bytes)
    }

    fn matches(&self, pattern: &str) -> Result<Vec<PathBuf>, String> {
        // Hidden files are those of editors and version control.
        let options = glob::MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: true,
        };
        let found = glob::glob_with(pattern, options).map_err(|error| error.to_string())?;
        let mut files = Vec::new();
        for path in found {
            let path = path.map_err(|error| error.to_string())?;
            if !path.is_dir() {
                files.push(path);
            }
        }
        Ok(files)
    }

    fn identity(&self, path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| path.to_owned())
    }

    fn variable(&self, name: &str) -> Option<Vec<u8>> {
        std::env::var_os(name).map(std::os::unix::ffi::OsStringExt::into_vec)
    }

    fn secret(&self, path: &Path) -> Result<(Vec<u8>, bool), String> {
        const READ_BY_OTHERS: u32 = 0o004;
        let bytes = read_at_most(path, LARGEST_SECRET_BYTES)?;
        let mode = std::fs::metadata(path).map(|metadata| metadata.permissions().mode());
        Ok((bytes, mode.is_ok_and(|mode| mode & READ_BY_OTHERS != 0)))
    }

    fn named_file(&self, path: &Path, bytes_max: u64) -> Result<Vec<u8>, String> {
        read_at_most(path, bytes_max)
    }
}

/// No other files, and an environment without variables: for texts that come from others than the operator's files.
#[derive(Debug, Clone, Copy)]
pub struct Nowhere;

impl Surroundings for Nowhere {
    fn file(&self, _: &Path) -> Result<Vec<u8>, String> {
        Err(NO_FILES.to_owned())
    }

    fn matches(&self, _: &str) -> Result<Vec<PathBuf>, String> {
        Err(NO_FILES.to_owned())
    }

    fn identity(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }

    fn variable(&self, _: &str) -> Option<Vec<u8>> {
        None
    }

    fn secret(&self, _: &Path) -> Result<(Vec<u8>, bool), String> {
        Err(NO_FILES.to_owned())
    }

    fn named_file(&self, _: &Path, _: u64) -> Result<Vec<u8>, String> {
        Err(NO_FILES.to_owned())
    }
}

const NO_FILES: &str = "no files are read here";

/// The largest file of other options than maps, far larger than any page, list of users or key.
pub(crate) const NAMED_FILE_BYTES: u64 = 4 << 20;

/// Returns a path as messages show it: absolute if nothing is there. A relative path begins at the folder in which vanward was
/// started, which the reader of a message may not know.
pub fn shown_path(path: &Path) -> String {
    let shown = if path.exists() { None } else { std::path::absolute(path).ok() };
    shown.as_deref().unwrap_or(path).display().to_string()
}

/// Reads a file of the usual size.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, String> {
    read_at_most(path, NAMED_FILE_BYTES)
}

/// Reads a regular file. Others are rejected: a pipe could block a reload for ever.
pub(crate) fn read_at_most(path: &Path, largest: u64) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("it can't be read: {error}");
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err("it is not a file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(largest + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > largest {
        return Err(format!("it is larger than {} KiB", largest >> 10));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examine_in;

    #[test]
    fn nowhere_no_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "5ms\n").unwrap();
        let file = file.display();
        for options in [
            format!("delay = \"trace {file}\""),
            format!("error_pages = {{ 503 = \"{file}\" }}"),
            format!("auth = {{ users = \"{file}\" }}"),
            format!("request_headers = {{ set = {{ X = \"${{file:{file}}}\" }} }}"),
        ] {
            let text = format!(
                "[[listen]]\naddress = \"*:1\"\n[[route]]\nrespond = {{ status = 503 }}\n{options}\n"
            );
            let mistakes = examine_in(&text, "v.toml", &Nowhere).mistakes;
            assert!(
                mistakes.iter().any(|mistake| mistake.message.contains(NO_FILES)),
                "{options}: {mistakes:?}"
            );
        }
    }
}
