//! Finds the file for a path: the file itself, the index of a directory, or the fallback.

use coding::Coding;

use crate::path::Form;
use crate::root::{OpenError, OpenFile, Opened, Root, Waits};
use crate::siblings::{SIBLINGS, extension};

/// Where files are looked for.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// Names of the files that stand for their directory, in the order in which they are tried.
    pub index: &'a [String],
    /// The file that is sent where there is no other, relative to the root.
    pub fallback: Option<&'a str>,
    /// Whether precompressed siblings are looked for.
    pub precompressed: bool,
    /// Whether directories without an index are listed.
    pub lists: bool,
    /// Whether symbolic links are followed that stay beneath the root.
    pub links: bool,
}

/// What a path names.
#[derive(Debug)]
pub enum Found {
    /// A file.
    File(FoundFile),
    /// A directory, whose path lacks the slash at its end.
    WithoutSlash,
    /// A directory to list.
    Directory,
}

/// A file, with its precompressed siblings.
#[derive(Debug)]
pub struct FoundFile {
    /// The path by which it was opened, relative to the root.
    pub path: Vec<u8>,
    /// The file.
    pub file: OpenFile,
    /// Its siblings that there are.
    pub siblings: Vec<Sibling>,
}

/// A precompressed sibling.
#[derive(Debug)]
pub struct Sibling {
    /// Its coding.
    pub coding: Coding,
    /// The file.
    pub file: OpenFile,
}

/// Finds what a path names beneath the root.
///
/// # Errors
/// If it names nothing that clients may have.
pub fn find(
    root: &Root,
    path: &[u8],
    form: Form,
    places: &Places<'_>,
    waits: Waits,
) -> Result<Found, OpenError> {
    let open = |path: &[u8]| root.file(path, places.links, waits);
    let found = match form {
        Form::File => match open(path) {
            Ok(Opened::File(file)) => Some((path.to_vec(), file)),
            Ok(Opened::Directory) => return Ok(Found::WithoutSlash),
            Err(OpenError::NotFound) => None,
            Err(error) => return Err(error),
        },
        Form::Directory => match index(path, places, open)? {
            None if places.lists && matches!(open(path), Ok(Opened::Directory)) => {
                return Ok(Found::Directory);
            }
            found => found,
        },
    };
    let (path, file) = match (found, places.fallback) {
        (Some(found), _) => found,
        (None, Some(fallback)) => match open(fallback.as_bytes())? {
            Opened::File(file) => (fallback.as_bytes().to_vec(), file),
            Opened::Directory => return Err(OpenError::NotFound),
        },
        (None, None) => return Err(OpenError::NotFound),
    };
    let siblings = if places.precompressed { siblings(&path, open)? } else { Vec::new() };
    Ok(Found::File(FoundFile { path, file, siblings }))
}

/// The first index that a directory has.
fn index(
    directory: &[u8],
    places: &Places<'_>,
    open: impl Fn(&[u8]) -> Result<Opened, OpenError>,
) -> Result<Option<(Vec<u8>, OpenFile)>, OpenError> {
    for name in places.index {
        let path = match directory {
            b"." => name.as_bytes().to_vec(),
            directory => [directory, b"/", name.as_bytes()].concat(),
        };
        match open(&path) {
            Ok(Opened::File(file)) => return Ok(Some((path, file))),
            Ok(Opened::Directory) | Err(OpenError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn siblings(
    path: &[u8],
    open: impl Fn(&[u8]) -> Result<Opened, OpenError>,
) -> Result<Vec<Sibling>, OpenError> {
    let mut siblings = Vec::new();
    for coding in SIBLINGS {
        match open(&[path, extension(coding).as_bytes()].concat()) {
            Ok(Opened::File(file)) => siblings.push(Sibling { coding, file }),
            Err(error @ (OpenError::WouldWait | OpenError::NoDescriptor)) => return Err(error),
            // What cannot be sent is as good as none: the file itself can.
            Ok(Opened::Directory) | Err(_) => {}
        }
    }
    Ok(siblings)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const INDEX: &[String] = &[];

    fn places() -> Places<'static> {
        Places { index: INDEX, fallback: None, precompressed: false, lists: false, links: false }
    }

    fn scene() -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("docs/index.html")).unwrap();
        fs::create_dir(at("empty")).unwrap();
        for name in ["app.html", "page", "page.br", "page.gz", "docs/index.htm", "other.zst"] {
            fs::write(at(name), name).unwrap();
        }
        fs::create_dir(at("page.zst")).unwrap();
        let root = Root::open(directory.path(), Waits::Maybe).unwrap();
        (directory, root)
    }

    fn word(root: &Root, path: &str, form: Form, places: &Places<'_>) -> String {
        match find(root, path.as_bytes(), form, places, Waits::Maybe) {
            Ok(Found::File(found)) => {
                let codings = found.siblings.iter().map(|sibling| sibling.coding.name());
                let codings: Vec<&str> = codings.collect();
                format!("{} {}", String::from_utf8_lossy(&found.path), codings.join(" "))
                    .trim_end()
                    .to_owned()
            }
            Ok(Found::WithoutSlash) => "without slash".to_owned(),
            Ok(Found::Directory) => "directory".to_owned(),
            Err(OpenError::NotFound) => "not found".to_owned(),
            Err(error) => format!("{error:?}"),
        }
    }

    #[test]
    fn files_indexes_and_fallbacks_are_found_in_this_order() {
        use Form::{Directory, File};
        let (_directory, root) = scene();
        let index = ["index.html".to_owned(), "index.htm".to_owned()];
        let plain = places();
        let indexed = Places { index: &index, ..plain };
        let listed = Places { lists: true, ..indexed };
        let with_fallback = Places { fallback: Some("app.html"), ..indexed };
        let without_fallback = Places { fallback: Some("gone.html"), ..indexed };
        let to_directory = Places { fallback: Some("docs"), ..indexed };
        let all = Places { fallback: Some("app.html"), lists: true, precompressed: true, ..indexed };
        for (path, form, places, expected) in [
            ("page", File, plain, "page"),
            ("page", Directory, plain, "not found"),
            ("docs", File, plain, "without slash"),
            ("docs", Directory, plain, "not found"),
            // A directory is no index.
            ("docs", Directory, indexed, "docs/index.htm"),
            (".", Directory, indexed, "not found"),
            (".", Directory, listed, "directory"),
            ("empty", Directory, listed, "directory"),
            ("gone", Directory, listed, "not found"),
            ("gone", File, with_fallback, "app.html"),
            ("gone", Directory, with_fallback, "app.html"),
            ("empty", Directory, with_fallback, "app.html"),
            ("page/gone", File, with_fallback, "app.html"),
            ("page", File, with_fallback, "page"),
            ("docs", File, with_fallback, "without slash"),
            ("gone", File, without_fallback, "not found"),
            ("gone", File, to_directory, "not found"),
            ("page", File, all, "page br gzip"),
            ("gone", File, all, "app.html"),
            ("gone", Directory, all, "app.html"),
            ("other", File, places_without_fallback(&all), "not found"),
        ] {
            assert_eq!(word(&root, path, form, &places), expected, "{path} {form:?} {places:?}");
        }
    }

    fn places_without_fallback<'a>(places: &Places<'a>) -> Places<'a> {
        Places { fallback: None, ..*places }
    }
}
