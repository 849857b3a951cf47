//! Finds the file for a path: the file itself, the index of a directory, or the fallback.

use coding::Coding;

use crate::path::PathForm;
use crate::root::{MayBlock, OpenError, OpenFile, OpenedPath, Root};
use crate::siblings::{SIBLINGS, extension};

#[derive(Debug, Clone, Copy)]
pub struct FileRoots<'a> {
    /// Names of index files, in the order in which they are tried.
    pub index: &'a [String],
    /// File to send when no other matches, relative to the root.
    pub fallback: Option<&'a str>,
    /// Whether a request without a file goes elsewhere. Then a directory from which nothing is sent counts as missing.
    pub goes_on: bool,
    /// Extension of scripts that a server runs, in any case. They count as missing, because their source is no file for clients.
    pub scripts: Option<&'a str>,
    /// Whether to look for precompressed siblings.
    pub precompressed: bool,
    /// Whether to list directories without an index.
    pub lists: bool,
    /// Whether to follow symbolic links that stay beneath the root.
    pub links: bool,
}

impl FileRoots<'_> {
    fn is_script(&self, path: &[u8]) -> bool {
        let end = |scripts: &str| path.len().checked_sub(scripts.len()).and_then(|start| path.get(start..));
        self.scripts.is_some_and(|scripts| {
            end(scripts).is_some_and(|end| end.eq_ignore_ascii_case(scripts.as_bytes()))
        })
    }
}

#[derive(Debug)]
pub enum PathMatch {
    File(FoundFile),
    /// A directory whose path lacks the final slash: to redirect.
    WithoutSlash,
    Directory,
}

#[derive(Debug)]
pub struct FoundFile {
    /// The path of the opened file, relative to the root.
    pub path: Vec<u8>,
    pub file: OpenFile,
    pub siblings: Vec<Sibling>,
}

#[derive(Debug)]
pub struct Sibling {
    pub coding: Coding,
    pub file: OpenFile,
}

/// Finds the file or directory for a path beneath the root.
///
/// # Errors
/// If clients may have nothing at this path.
pub fn find(
    root: &Root,
    path: &[u8],
    form: PathForm,
    places: &FileRoots<'_>,
    waits: MayBlock,
) -> Result<PathMatch, OpenError> {
    let open = |path: &[u8]| match places.is_script(path) {
        true => Err(OpenError::NotFound),
        false => root.file(path, places.links, waits),
    };
    let is_there = |path: &[u8]| match root.file(path, places.links, waits) {
        Ok(OpenedPath::File(_)) => Ok(true),
        Ok(OpenedPath::Directory) | Err(OpenError::NotFound) => Ok(false),
        Err(error) => Err(error),
    };
    let found = match form {
        PathForm::File => match open(path) {
            Ok(OpenedPath::File(file)) => Some((path.to_vec(), file)),
            // The slash is only worth a redirect if something is sent below it.
            Ok(OpenedPath::Directory) if places.goes_on => match index(path, places, open, is_there)? {
                IndexMatch::Script => return Err(OpenError::NotFound),
                IndexMatch::None if !places.lists => None,
                _ => return Ok(PathMatch::WithoutSlash),
            },
            Ok(OpenedPath::Directory) => return Ok(PathMatch::WithoutSlash),
            Err(OpenError::NotFound) => None,
            Err(error) => return Err(error),
        },
        PathForm::Directory => match index(path, places, open, is_there)? {
            IndexMatch::File(path, file) => Some((path, file)),
            IndexMatch::Script => return Err(OpenError::NotFound),
            IndexMatch::None if places.lists && matches!(open(path), Ok(OpenedPath::Directory)) => {
                return Ok(PathMatch::Directory);
            }
            IndexMatch::None => None,
        },
    };
    let (path, file) = match (found, places.fallback) {
        (Some(found), _) => found,
        (None, Some(fallback)) => match open(fallback.as_bytes())? {
            OpenedPath::File(file) => (fallback.as_bytes().to_vec(), file),
            OpenedPath::Directory => return Err(OpenError::NotFound),
        },
        (None, None) => return Err(OpenError::NotFound),
    };
    let siblings = if places.precompressed { siblings(&path, open)? } else { Vec::new() };
    Ok(PathMatch::File(FoundFile { path, file, siblings }))
}

/// The index of a directory.
enum IndexMatch {
    File(Vec<u8>, OpenFile),
    /// A script, which is no file for clients: the server runs it.
    Script,
    None,
}

/// Opens the first index file that exists.
fn index(
    directory: &[u8],
    places: &FileRoots<'_>,
    open: impl Fn(&[u8]) -> Result<OpenedPath, OpenError>,
    is_there: impl Fn(&[u8]) -> Result<bool, OpenError>,
) -> Result<IndexMatch, OpenError> {
    for name in places.index {
        let path = match directory {
            b"." => name.as_bytes().to_vec(),
            directory => [directory, b"/", name.as_bytes()].concat(),
        };
        if places.is_script(&path) {
            match is_there(&path)? {
                true => return Ok(IndexMatch::Script),
                false => continue,
            }
        }
        match open(&path) {
            Ok(OpenedPath::File(file)) => return Ok(IndexMatch::File(path, file)),
            Ok(OpenedPath::Directory) | Err(OpenError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(IndexMatch::None)
}

fn siblings(
    path: &[u8],
    open: impl Fn(&[u8]) -> Result<OpenedPath, OpenError>,
) -> Result<Vec<Sibling>, OpenError> {
    let mut siblings = Vec::new();
    for coding in SIBLINGS {
        match open(&[path, extension(coding).as_bytes()].concat()) {
            Ok(OpenedPath::File(file)) => siblings.push(Sibling { coding, file }),
            Err(error @ (OpenError::WouldWait | OpenError::NoDescriptor)) => return Err(error),
            // A sibling that cannot be sent is ignored, because the file itself can be sent.
            Ok(OpenedPath::Directory) | Err(_) => {}
        }
    }
    Ok(siblings)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const INDEX: &[String] = &[];

    fn places() -> FileRoots<'static> {
        FileRoots {
            index: INDEX,
            fallback: None,
            goes_on: false,
            scripts: None,
            precompressed: false,
            lists: false,
            links: false,
        }
    }

    fn scene() -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("docs/index.html")).unwrap();
        fs::create_dir(at("empty")).unwrap();
        for name in [
            "app.html",
            "page",
            "page.br",
            "page.gz",
            "docs/index.htm",
            "other.zst",
            "a.php",
            "a.php.gz",
            "b.PhP",
        ] {
            fs::write(at(name), name).unwrap();
        }
        fs::create_dir(at("page.zst")).unwrap();
        let root = Root::open(directory.path(), MayBlock::Maybe).unwrap();
        (directory, root)
    }

    fn word(root: &Root, path: &str, form: PathForm, places: &FileRoots<'_>) -> String {
        match find(root, path.as_bytes(), form, places, MayBlock::Maybe) {
            Ok(PathMatch::File(found)) => {
                let codings = found.siblings.iter().map(|sibling| sibling.coding.name());
                let codings: Vec<&str> = codings.collect();
                format!("{} {}", String::from_utf8_lossy(&found.path), codings.join(" "))
                    .trim_end()
                    .to_owned()
            }
            Ok(PathMatch::WithoutSlash) => "without slash".to_owned(),
            Ok(PathMatch::Directory) => "directory".to_owned(),
            Err(OpenError::NotFound) => "not found".to_owned(),
            Err(error) => format!("{error:?}"),
        }
    }

    #[test]
    fn files_indexes_and_fallbacks_are_found_in_this_order() {
        use PathForm::{Directory, File};
        let (_directory, root) = scene();
        let index = ["index.html".to_owned(), "index.htm".to_owned()];
        let plain = places();
        let indexed = FileRoots { index: &index, ..plain };
        let listed = FileRoots { lists: true, ..indexed };
        let with_fallback = FileRoots { fallback: Some("app.html"), ..indexed };
        let without_fallback = FileRoots { fallback: Some("gone.html"), ..indexed };
        let to_directory = FileRoots { fallback: Some("docs"), ..indexed };
        let goes_on = FileRoots { goes_on: true, ..indexed };
        let goes_on_without_index = FileRoots { goes_on: true, ..plain };
        let goes_on_listed = FileRoots { goes_on: true, lists: true, ..plain };
        let index_php = ["a.php".to_owned(), "app.html".to_owned()];
        let beside_scripts =
            FileRoots { scripts: Some(".php"), precompressed: true, index: &index_php, ..goes_on };
        let listed_beside_scripts = FileRoots { lists: true, ..beside_scripts };
        let index_gone = ["gone.php".to_owned(), "app.html".to_owned()];
        let without_script = FileRoots { index: &index_gone, ..beside_scripts };
        let all = FileRoots { fallback: Some("app.html"), lists: true, precompressed: true, ..indexed };
        for (path, form, places, expected) in [
            ("page", File, plain, "page"),
            ("page", Directory, plain, "not found"),
            ("docs", File, plain, "without slash"),
            ("docs", Directory, plain, "not found"),
            // A directory cannot be an index.
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
            ("page", File, goes_on, "page"),
            ("docs", File, goes_on, "without slash"),
            ("docs", Directory, goes_on, "docs/index.htm"),
            ("empty", File, goes_on, "not found"),
            ("empty", Directory, goes_on, "not found"),
            ("docs", File, goes_on_without_index, "not found"),
            (".", Directory, goes_on_without_index, "not found"),
            ("empty", File, goes_on_listed, "without slash"),
            ("empty", Directory, goes_on_listed, "directory"),
            ("gone", File, to_directory, "not found"),
            ("a.php", File, plain, "a.php"),
            ("a.php", File, beside_scripts, "not found"),
            ("b.PhP", File, beside_scripts, "not found"),
            // The first index that exists decides: here a script, which is for the server.
            (".", Directory, beside_scripts, "not found"),
            (".", Directory, listed_beside_scripts, "not found"),
            (".", Directory, without_script, "app.html"),
            ("page", File, beside_scripts, "page br gzip"),
            ("php", File, beside_scripts, "not found"),
            ("page", File, all, "page br gzip"),
            ("gone", File, all, "app.html"),
            ("gone", Directory, all, "app.html"),
            ("other", File, places_without_fallback(&all), "not found"),
        ] {
            assert_eq!(word(&root, path, form, &places), expected, "{path} {form:?} {places:?}");
        }
    }

    fn places_without_fallback<'a>(places: &FileRoots<'a>) -> FileRoots<'a> {
        FileRoots { fallback: None, ..*places }
    }
}
