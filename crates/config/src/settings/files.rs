//! Settings of routes that answer with files.

use std::path::PathBuf;

/// Files beneath a directory, and how they are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The directory. It need not exist yet.
    pub root: PathBuf,
    /// Names of the files that stand for their directory, in the order in which they are tried.
    pub index: Vec<String>,
    /// The file that is sent where there is no other, relative to the root.
    pub fallback: Option<String>,
    /// Whether a precompressed sibling is sent to clients that accept its coding.
    pub precompressed: bool,
    /// The value of Cache-Control.
    pub cache_control: Option<String>,
    /// Whether directories without an index are listed.
    pub listing: bool,
    /// Whether symbolic links are followed that stay beneath the root.
    pub symlinks: bool,
}

impl Files {
    /// The files beneath this directory, with every default.
    pub fn of(root: PathBuf) -> Self {
        Self {
            root,
            index: vec!["index.html".to_owned()],
            fallback: None,
            precompressed: false,
            cache_control: None,
            listing: false,
            symlinks: false,
        }
    }
}
