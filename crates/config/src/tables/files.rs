//! The option `files` of a route: its declaration, relations and settings.

use std::path::PathBuf;

use crate::document::reader::{Reader, Span};
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::kind::{At, List, Located, Maybe, Name, Switch, Text, located};
use crate::option::table::{Element, Inline, Table, element, key, required};

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
    pub fn from_root(root: PathBuf) -> Self {
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

#[derive(Debug, Clone)]
pub(crate) struct FilesWritten {
    root: Option<Located<PathBuf>>,
    index: Vec<Located<String>>,
    fallback: Option<Located<String>>,
    precompressed: bool,
    cache_control: Option<Located<String>>,
    listing: bool,
    symlinks: bool,
}

impl FilesWritten {
    /// The directory of the files, and where the file says so.
    pub(crate) fn root(&self) -> Option<&Located<PathBuf>> {
        self.root.as_ref()
    }
}

impl Default for FilesWritten {
    fn default() -> Self {
        let mut defaults = written(&Files::from_root(PathBuf::new())).value;
        defaults.root = None;
        defaults
    }
}

pub(crate) const ROOT_EXPECTED: &str = "the path of a directory such as /srv/www";

pub(crate) const ROOT: Text<PathBuf> = Text {
    expected: ROOT_EXPECTED,
    read: |text| match text {
        "" => Err(ValueError { fault: ValueFault::Empty, expected: ROOT_EXPECTED }),
        path => Ok(PathBuf::from(path)),
    },
    print: |path| path.display().to_string(),
};

pub(crate) const INDEX: &str = "the name of a file such as index.html";

pub(crate) const FALLBACK: &str = "the path of a file beneath the root such as /index.html";

pub(crate) const CACHE_CONTROL: &str = "directives such as max-age=3600";

pub(crate) const FILES: Inline<FilesWritten> = Inline {
    title: "files",
    example: "{ root = \"/srv/www\" }",
    table: &Table {
        options: &[
            required!(
                "root",
                Maybe(At(ROOT)),
                FilesWritten.root,
                "The directory. The whole path of a request is looked up below it: `/a/b.html` is \
                 ROOT/a/b.html. `rewrite = { path = \"/\" }` removes the prefix of the route's `path`.",
            ),
            key!(
                "index",
                List { kind: At(Name { expected: INDEX }), may_be_empty: true },
                FilesWritten.index,
                "Files that stand for their directory; the first that exists is sent.",
            ),
            key!(
                "fallback",
                Maybe(At(Name { expected: FALLBACK })),
                FilesWritten.fallback,
                "File below the root that is sent with 200 if no other file matches, for single-page \
                 applications. Default: 404.",
            ),
            key!(
                "precompressed",
                Switch,
                FilesWritten.precompressed,
                "Sends FILE.br, FILE.zst or FILE.gz instead of FILE, if it exists and the client accepts \
                 its coding.",
            ),
            key!(
                "cache_control",
                Maybe(At(Name { expected: CACHE_CONTROL })),
                FilesWritten.cache_control,
                "Cache-Control of the files, also in 304. Default: none, so caches apply their own rules.",
            ),
            key!(
                "listing",
                Switch,
                FilesWritten.listing,
                "Lists directories that have no index, as HTML. Default: 404.",
            ),
            key!(
                "symlinks",
                Switch,
                FilesWritten.symlinks,
                "Follows symbolic links that stay below the root. Otherwise, and if they leave it, 404. \
                 `root` itself may always contain links.",
            ),
        ],
    },
};

/// Converts the option to settings; `None` if there is a mistake.
pub(crate) fn files(written: &FilesWritten, reader: &mut Reader<'_>) -> Option<Files> {
    let refused_before = reader.refused();
    for Located { value, at } in &written.index {
        if !is_visible_name(value) || value.contains('/') {
            refuse(
                at,
                format!("index: {value:?} is not the name of a file that clients can get"),
                INDEX,
                reader,
            );
        }
    }
    if let Some(Located { value, at }) = &written.fallback
        && !relative(value).split('/').all(is_visible_name)
    {
        refuse(
            at,
            format!("fallback: {value:?} is not the path of a file that clients can get"),
            FALLBACK,
            reader,
        );
    }
    if let Some(Located { value, at }) = &written.cache_control
        // RFC 9110 §5.5: what a field's value may have, without what is obsolete.
        && (value.trim().is_empty() || !value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()))
    {
        refuse(
            at,
            format!("cache_control: {value:?} is not a value for Cache-Control"),
            CACHE_CONTROL,
            reader,
        );
    }
    let root = written.root.as_ref()?;
    if !root.value.is_dir() {
        let message = format!("root: {:?} is not a directory now; until it is, requests get 404", root.value);
        let warning = reader.mistake(&root.at, message);
        reader.warn(warning);
    }
    let value = |option: &Option<Located<String>>| option.as_ref().map(|option| option.value.clone());
    (reader.refused() == refused_before).then(|| Files {
        root: root.value.clone(),
        index: written.index.iter().map(|name| name.value.clone()).collect(),
        fallback: value(&written.fallback).map(|path| relative(&path).to_owned()),
        precompressed: written.precompressed,
        cache_control: value(&written.cache_control).map(|value| value.trim().to_owned()),
        listing: written.listing,
        symlinks: written.symlinks,
    })
}

/// The path of a file as it is below the root.
fn relative(path: &str) -> &str {
    path.strip_prefix('/').unwrap_or(path)
}

/// Dot segments and hidden files are nothing that clients may have.
fn is_visible_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains('\0')
}

fn refuse(at: &Span, message: String, expected: &str, reader: &mut Reader<'_>) {
    let mistake = reader.mistake(at, message);
    reader.add(mistake.expecting(expected.to_owned()));
}

/// Converts settings back to the option: the source of its defaults.
pub(crate) fn written(files: &Files) -> Element<FilesWritten> {
    let Files { root, index, fallback, precompressed, cache_control, listing, symlinks } = files;
    element(FilesWritten {
        root: Some(located(root.clone())),
        index: index.iter().cloned().map(located).collect(),
        fallback: fallback.as_ref().map(|path| located(format!("/{path}"))),
        precompressed: *precompressed,
        cache_control: cache_control.clone().map(located),
        listing: *listing,
        symlinks: *symlinks,
    })
}
