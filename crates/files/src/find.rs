//! Finds the file for a path: the file itself, the index of a directory, or the fallback.

use coding::Coding;

use crate::path::PathForm;
use crate::root::{MayBlock, OpenError, OpenFile, OpenedPath, Root};
use crate::siblings::{SIBLINGS, extension};

/// The path of the request in a place that is tried.
const REQUEST_PATH: &str = "$path";

#[derive(Debug, Clone, Copy)]
pub struct FileRoots<'a> {
    /// Names of index files, in the order in which they are tried.
    pub index: &'a [String],
    /// Places that are tried in order, such as `$path.html`; none for the path itself, or the index of its directory.
    pub tries: &'a [String],
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
    let finder = Finder { root, places, waits };
    let found = match places.tries {
        [] => finder.at_path(path, form)?,
        tries => finder.first_of(tries, path, form)?,
    };
    let (path, file) = match (found, places.fallback) {
        (Step::File(path, file), _) => (path, file),
        (Step::End(found), _) => return Ok(found),
        (Step::Next, Some(fallback)) => match finder.file(fallback.as_bytes().to_vec())? {
            Step::File(path, file) => (path, file),
            _ => return Err(OpenError::NotFound),
        },
        (Step::Next, None) => return Err(OpenError::NotFound),
    };
    let siblings = if places.precompressed { siblings(&path, |path| finder.open(path))? } else { Vec::new() };
    Ok(PathMatch::File(FoundFile { path, file, siblings }))
}

/// The result of one place.
enum Step {
    File(Vec<u8>, OpenFile),
    /// A directory, listed or without its slash.
    End(PathMatch),
    /// Nothing is there, so the next place is tried.
    Next,
}

struct Finder<'f> {
    root: &'f Root,
    places: &'f FileRoots<'f>,
    waits: MayBlock,
}

impl Finder<'_> {
    fn open(&self, path: &[u8]) -> Result<OpenedPath, OpenError> {
        match self.places.is_script(path) {
            true => Err(OpenError::NotFound),
            false => self.root.file(path, self.places.links, self.waits),
        }
    }

    /// Tries places in order. `$path` in one is the path of the request; only one that ends in `$path/` is a directory.
    fn first_of(&self, tries: &[String], path: &[u8], form: PathForm) -> Result<Step, OpenError> {
        for tried in tries {
            let step = match (tried.split_once(REQUEST_PATH), form) {
                (None, _) => self.file(joined("", tried.as_bytes(), ""))?,
                (Some((before, "/")), PathForm::Directory) => self.directory(&joined(before, path, ""))?,
                (Some((before, "/")), PathForm::File) => self.without_slash(&joined(before, path, ""))?,
                (Some((before, after)), PathForm::File) => self.file(joined(before, path, after))?,
                (Some((before, after)), _) if after.starts_with('/') => {
                    self.file(joined(before, path, after))?
                }
                // A path that ends in a slash is no file, nor is one with more behind its slash.
                (Some(_), PathForm::Directory) => Step::Next,
            };
            if !matches!(step, Step::Next) {
                return Ok(step);
            }
        }
        Ok(Step::Next)
    }

    fn at_path(&self, path: &[u8], form: PathForm) -> Result<Step, OpenError> {
        match form {
            PathForm::Directory => self.directory(path),
            PathForm::File => match self.file(path.to_vec())? {
                Step::Next => self.without_slash(path),
                step => Ok(step),
            },
        }
    }

    fn file(&self, path: Vec<u8>) -> Result<Step, OpenError> {
        match self.open(&path) {
            Ok(OpenedPath::File(file)) => Ok(Step::File(path, file)),
            Ok(OpenedPath::Directory) | Err(OpenError::NotFound) => Ok(Step::Next),
            Err(error) => Err(error),
        }
    }

    /// A directory whose path lacks the slash.
    fn without_slash(&self, path: &[u8]) -> Result<Step, OpenError> {
        match self.open(path) {
            Ok(OpenedPath::Directory) => {}
            Ok(OpenedPath::File(_)) | Err(OpenError::NotFound) => return Ok(Step::Next),
            Err(error) => return Err(error),
        }
        // The slash is only worth a redirect if something is sent below it.
        if self.places.goes_on {
            match self.index(path)? {
                IndexMatch::Script => return Err(OpenError::NotFound),
                IndexMatch::None if !self.places.lists => return Ok(Step::Next),
                _ => {}
            }
        }
        Ok(Step::End(PathMatch::WithoutSlash))
    }

    fn directory(&self, path: &[u8]) -> Result<Step, OpenError> {
        match self.index(path)? {
            IndexMatch::File(path, file) => Ok(Step::File(path, file)),
            IndexMatch::Script => Err(OpenError::NotFound),
            IndexMatch::None if self.places.lists && matches!(self.open(path), Ok(OpenedPath::Directory)) => {
                Ok(Step::End(PathMatch::Directory))
            }
            IndexMatch::None => Ok(Step::Next),
        }
    }

    /// Opens the first index file that exists.
    fn index(&self, directory: &[u8]) -> Result<IndexMatch, OpenError> {
        for name in self.places.index {
            let path = match directory {
                b"." => name.as_bytes().to_vec(),
                directory => [directory, b"/", name.as_bytes()].concat(),
            };
            if self.places.is_script(&path) {
                match self.root.file(&path, self.places.links, self.waits) {
                    Ok(OpenedPath::File(_)) => return Ok(IndexMatch::Script),
                    Ok(OpenedPath::Directory) | Err(OpenError::NotFound) => continue,
                    Err(error) => return Err(error),
                }
            }
            match self.open(&path) {
                Ok(OpenedPath::File(file)) => return Ok(IndexMatch::File(path, file)),
                Ok(OpenedPath::Directory) | Err(OpenError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(IndexMatch::None)
    }
}

/// The index of a directory.
enum IndexMatch {
    File(Vec<u8>, OpenFile),
    /// A script, which is no file for clients: the server runs it.
    Script,
    None,
}

/// The path of a place, relative to the root. `.` is the path of the root itself.
fn joined(before: &str, path: &[u8], after: &str) -> Vec<u8> {
    let before = before.trim_start_matches('/');
    let path = if path == b"." { b"" } else { path };
    let between: &[u8] = if before.is_empty() || path.is_empty() { b"" } else { b"/" };
    let joined = [before.as_bytes(), between, path, after.as_bytes()].concat();
    match joined.strip_prefix(b"/") {
        Some(rest) => rest.to_vec(),
        None if joined.is_empty() => b".".to_vec(),
        None => joined,
    }
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
            tries: INDEX,
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
        let extended = ["$path", "$path.html", "$path/index.htm"].map(str::to_owned);
        let extended = FileRoots { tries: &extended, ..plain };
        let folders = ["/docs$path", "$path/", "/page"].map(str::to_owned);
        let folders = FileRoots { tries: &folders, index: &index, ..plain };
        let folder_first = ["/docs$path/", "$path"].map(str::to_owned);
        let folder_first = FileRoots { tries: &folder_first, index: &index, goes_on: true, ..plain };
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
            ("page", File, extended, "page"),
            ("app", File, extended, "app.html"),
            ("app", Directory, extended, "not found"),
            ("docs", File, extended, "docs/index.htm"),
            ("docs", Directory, extended, "docs/index.htm"),
            ("empty", File, extended, "not found"),
            (".", Directory, extended, "not found"),
            ("index.htm", File, folders, "docs/index.htm"),
            ("docs", File, folders, "without slash"),
            ("docs", Directory, folders, "docs/index.htm"),
            ("gone", File, folders, "page"),
            (".", Directory, folders, "page"),
            (".", Directory, folder_first, "docs/index.htm"),
            ("page", File, folder_first, "page"),
            ("empty", File, folder_first, "not found"),
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
