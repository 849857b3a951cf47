//! The option `files` of a route: its declaration, relations and settings.

use std::path::PathBuf;

use ::route::{
    NamedValues, PathRewrite, RouteTemplate, TemplateError, TemplateScope, TemplateStage, TemplateUse,
};

use crate::document::reader::{Reader, Span};
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::form::Form;
use crate::option::kind::{
    At, Boxed, Content, Described, Kind, List, Located, Maybe, Name, Switch, UPSTREAM_NAME, located,
};
use crate::option::pairs::{Pair, Pairs};
use crate::option::table::{Element, Inline, Table, Written, element, key, required};
use crate::option::templates::template;
use crate::tables::names::Names;

/// Files beneath a directory, and how they are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The directory. It need not exist yet.
    pub root: PathBuf,
    /// The directory below the root with the files of a request, if values decide it: `${site}/public`.
    pub below: Option<RouteTemplate>,
    /// Names of the files that stand for their directory, in the order in which they are tried.
    pub index: Vec<String>,
    /// The places that are tried in order, with `$path` for the path of the request. None: the path, and the index of its
    /// directory.
    pub tries: Vec<String>,
    /// The file that is sent where there is no other, relative to the root.
    pub fallback: Option<String>,
    /// The upstream that gets requests for which there is no file, an index into `Settings::upstreams`.
    pub otherwise: Option<usize>,
    /// The path that this upstream gets in place of that of the request.
    pub else_path: Option<PathRewrite>,
    /// Whether a precompressed sibling is sent to clients that accept its coding.
    pub precompressed: bool,
    /// The value of Cache-Control.
    pub cache_control: Option<String>,
    /// Patterns of paths below the root with their own values. The first that matches counts.
    pub cache_control_for: Vec<(FilePattern, String)>,
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
            below: None,
            index: vec!["index.html".to_owned()],
            tries: Vec::new(),
            fallback: None,
            otherwise: None,
            else_path: None,
            precompressed: false,
            cache_control: None,
            cache_control_for: Vec::new(),
            listing: false,
            symlinks: false,
        }
    }

    /// The value of Cache-Control for a file, by its path below the root.
    pub fn cache_control_of(&self, path: &[u8]) -> Option<&str> {
        let own = self.cache_control_for.iter().find(|(pattern, _)| pattern.matches(path));
        own.map(|(_, value)| value).or(self.cache_control.as_ref()).map(String::as_str)
    }
}

/// A path below the root, in which one `*` is any text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePattern {
    /// Without its first slash.
    before: String,
    /// `None` without `*`.
    after: Option<String>,
}

impl FilePattern {
    /// Parses `/index.html`, `/assets/*` or `*.js`; `None` for other forms.
    pub fn new(text: &str) -> Option<Self> {
        let (before, after) =
            text.split_once('*').map_or((text, None), |(before, after)| (before, Some(after)));
        let is_file = after.is_some() || !before.ends_with('/');
        let is_path =
            before.starts_with('/') || before.is_empty() && after.is_some_and(|after| !after.is_empty());
        let is_plain = !after.is_some_and(|after| after.contains('*')) && !text.contains('\0');
        (is_file && is_path && is_plain)
            .then(|| Self { before: relative(before).to_owned(), after: after.map(str::to_owned) })
    }

    fn matches(&self, path: &[u8]) -> bool {
        let (before, after) = (self.before.as_bytes(), self.after.as_deref().map(str::as_bytes));
        match (path.strip_prefix(before), after) {
            (Some(rest), Some(after)) => rest.ends_with(after),
            (Some(rest), None) => rest.is_empty(),
            (None, _) => false,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct FilesWritten {
    root: Option<Located<String>>,
    index: Vec<Located<String>>,
    tries: Option<Vec<Located<String>>>,
    fallback: Option<Located<String>>,
    otherwise: Option<Box<Element<ElseWritten>>>,
    precompressed: bool,
    cache_control: Option<Located<String>>,
    cache_control_for: Vec<Pair<String, Located<String>>>,
    listing: bool,
    symlinks: bool,
}

impl FilesWritten {
    /// Whether an upstream gets the requests for which there is no file.
    pub(crate) fn has_upstream(&self) -> bool {
        self.otherwise.is_some()
    }

    /// The directory of the files, without what values decide, and where the file says so.
    pub(crate) fn root(&self) -> Option<(PathBuf, &Span)> {
        self.root.as_ref().map(|Located { value, at }| (split_root(value).0, at))
    }
}

impl Default for FilesWritten {
    fn default() -> Self {
        let mut defaults = written(&Files::from_root(PathBuf::new())).value;
        defaults.root = None;
        defaults
    }
}

/// The part `else` of the option.
#[derive(Debug, Clone, Default)]
struct ElseWritten {
    upstream: Option<Located<String>>,
    path: Option<Located<String>>,
}

const ELSE: Inline<ElseWritten> = Inline {
    title: "else",
    example: "{ upstream = \"app\" }",
    table: &Table {
        options: &[
            required!(
                "upstream",
                Maybe(At(UPSTREAM_NAME)),
                ElseWritten.upstream,
                "The upstream that gets these requests.",
            ),
            key!(
                "path",
                Maybe(At(Name { expected: ELSE_PATH })),
                ElseWritten.path,
                "Path that it gets instead of that of the request, with variables as in `rewrite.path`. The query stays, \
             unless the path has `?`. An application runs the script of this path, and gets the client's path in \
             REQUEST_URI; the script of a directory that the request names comes first. Default: the path of the \
             request.",
            ),
        ],
    },
};

pub(crate) const ROOT_EXPECTED: &str = "the path of a directory such as /srv/www";

pub(crate) const INDEX: &str = "the name of a file such as index.html";

pub(crate) const TRIED: &str =
    "a path with $path for that of the request, such as $path.html, $path/index.html, $path/ or /down.html";

pub(crate) const FALLBACK: &str = "the path of a file beneath the root such as /index.html";

const ELSE_PATH: &str = "a path such as /index.php, or with variables /index.php$path";

pub(crate) const CACHE_CONTROL: &str = "directives such as max-age=3600";

const CACHE_CONTROL_FOR: Pairs<String, At<Name>> = Pairs {
    expected: "a table such as { \"/index.html\" = \"no-cache\", \"/assets/*\" = \"max-age=31536000\" }",
    name: file_pattern,
    print_name: String::clone,
    kind: At(Name { expected: CACHE_CONTROL }),
};

fn file_pattern(text: &str) -> Result<String, ValueError> {
    let fault = || ValueError {
        fault: ValueFault::Unknown { written: text.to_owned(), why: "is no path of files", nearest: None },
        expected: "/index.html, /assets/* or *.js",
    };
    FilePattern::new(text).map(|_| text.to_owned()).ok_or_else(fault)
}

pub(crate) const FILES: Inline<FilesWritten> = Inline {
    title: "files",
    example: "{ root = \"/srv/www\" }",
    table: &Table {
        options: &[
            required!(
                "root",
                Maybe(At(RootKind)),
                FilesWritten.root,
                "The directory. `\"/srv/${site}\"` is the folder below `/srv` that a value names, without `index` of \
                 other folders. The whole path of a request is looked up below it: `/a/b.html` is \
                 ROOT/a/b.html. `rewrite = { path = \"/\" }` removes the prefix of the route's `path`.",
            ),
            key!(
                "index",
                List { kind: At(Name { expected: INDEX }), may_be_empty: true },
                FilesWritten.index,
                "Files that stand for their directory; the first that exists is sent.",
            ),
            key!(
                "try",
                Maybe(List { kind: At(Name { expected: TRIED }), may_be_empty: false }),
                FilesWritten.tries,
                "Paths below the root that are tried in this order, with `$path` for the path of the request: \
                 `$path` and `$path.html` are files, `$path/` is a directory with its `index`. The first that \
                 exists is sent; then `fallback` and `else` apply. Default: `[\"$path\", \"$path/\"]`.",
            ),
            key!(
                "fallback",
                Maybe(At(Name { expected: FALLBACK })),
                FilesWritten.fallback,
                "File below the root that is sent with 200 if no other file matches, for single-page \
                 applications. Default: 404.",
            ),
            key!(
                "else",
                Maybe(Boxed(ELSE)),
                FilesWritten.otherwise,
                "Sends a request to an upstream if no file matches, and each request whose method is not GET or \
                 HEAD: `{ upstream = \"app\" }`. See [files.md](files.md#files-first-else-a-server). Default: \
                 404 or 405.",
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
                "cache_control_for",
                CACHE_CONTROL_FOR,
                FilesWritten.cache_control_for,
                "Cache-Control of some files, by their path below the root: `/index.html`, `/assets/*` or `*.js`. The \
                 first that matches counts. Default: all files have that of `cache_control`.",
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

/// The kind of value of `root`: a path with values behind its fixed part.
struct RootKind;

impl Described for RootKind {
    fn form(&self) -> Form {
        Form::words(ROOT_EXPECTED)
    }
}

impl Kind<String> for RootKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<String> {
        let text = Content { expected: ROOT_EXPECTED }.read(written, reader)?;
        if text.is_empty() {
            let error = ValueError { fault: ValueFault::Empty, expected: ROOT_EXPECTED };
            reader.refuse(&written.value.span(), written.name, &error);
            return None;
        }
        Some(text)
    }

    fn print(&self, root: &String) -> Option<String> {
        Some(toml_text::quoted(root))
    }
}

/// Splits a root into its fixed part, and the part below it that values decide.
fn split_root(root: &str) -> (PathBuf, Option<&str>) {
    let Some(value) = root.find("${") else { return (PathBuf::from(root), None) };
    match root[..value].rfind('/') {
        Some(0) => (PathBuf::from("/"), Some(&root[1..])),
        Some(slash) => (PathBuf::from(&root[..slash]), Some(&root[slash + 1..])),
        None => (PathBuf::new(), Some(root)),
    }
}

/// The part of a root that values decide; `None` if there is a mistake.
fn below(
    root: &Located<String>,
    written: &FilesWritten,
    scope: TemplateScope<'_>,
    reader: &mut Reader<'_>,
) -> Option<Option<RouteTemplate>> {
    let Located { value, at } = root;
    let (fixed, Some(below)) = split_root(value) else { return Some(None) };
    if fixed.as_os_str().is_empty() {
        let message = format!("root: {value:?} has no folder that all values stay below");
        refuse(at, message, "a path such as /srv/${site}", reader);
        return None;
    }
    for (option, at) in [
        ("fallback", written.fallback.as_ref().map(|path| &path.at)),
        ("listing", Some(at).filter(|_| written.listing)),
    ] {
        if let Some(at) = at {
            let message = format!("{option} is not possible with a root that has values");
            refuse(at, message, "a root without values, or no such option", reader);
            return None;
        }
    }
    let made = RouteTemplate::new(below, TemplateUse::Folder, TemplateStage::Authenticated, scope);
    // The place of a mistake is counted from the start of the whole path.
    let offset = value.len() - below.len();
    let made = made.map_err(|error| TemplateError { offset: error.offset + offset, ..error });
    template(made, "root", at, "a path such as /srv/${site}", reader).map(Some)
}

/// Converts the option to settings; `None` if there is a mistake.
pub(crate) fn files(
    written: &FilesWritten,
    scope: TemplateScope<'_>,
    names: &Names<'_>,
    reader: &mut Reader<'_>,
) -> Option<Files> {
    let refused_before = reader.refused();
    check_names(written, reader);
    let (mut otherwise, mut else_path) = (None, None);
    if let Some(written) = &written.otherwise {
        let Located { value, at } = written.value.upstream.as_ref()?;
        otherwise = Some(names.http_upstream("else", value, at, reader)?);
        if let Some(Located { value, at }) = &written.value.path {
            if !value.starts_with('/') {
                refuse(
                    at,
                    format!("else: the path {value:?} does not begin with a slash"),
                    ELSE_PATH,
                    reader,
                );
                return None;
            }
            let made = PathRewrite::whole(value, scope.values.unwrap_or(NamedValues::NONE));
            else_path = Some(template(made, "path", at, ELSE_PATH, reader)?);
        }
    }
    let root = written.root.as_ref()?;
    let below = below(root, written, scope, reader)?;
    let (fixed, _) = split_root(&root.value);
    if !fixed.is_dir() {
        let then = if otherwise.is_some() { "the upstream gets all requests" } else { "requests get 404" };
        let message = format!("root: {fixed:?} is not a directory now; until it is, {then}");
        let warning = reader.mistake(&root.at, message);
        reader.warn(warning);
    }
    let value = |option: &Option<Located<String>>| option.as_ref().map(|option| option.value.clone());
    (reader.refused() == refused_before).then(|| Files {
        root: fixed,
        below,
        index: written.index.iter().map(|name| name.value.clone()).collect(),
        tries: written.tries.iter().flatten().map(|tried| tried.value.clone()).collect(),
        fallback: value(&written.fallback).map(|path| relative(&path).to_owned()),
        otherwise,
        else_path,
        precompressed: written.precompressed,
        cache_control: value(&written.cache_control).map(|value| value.trim().to_owned()),
        cache_control_for: written.cache_control_for.iter().filter_map(own_cache_control).collect(),
        listing: written.listing,
        symlinks: written.symlinks,
    })
}

/// Rejects names that no client can get, and options that exclude each other.
fn check_names(written: &FilesWritten, reader: &mut Reader<'_>) {
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
    check_tries(written, reader);
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
    let own = written.cache_control_for.iter().map(|pair| ("cache_control_for", &pair.value));
    let shared = written.cache_control.iter().map(|value| ("cache_control", value));
    for (option, Located { value, at }) in shared.chain(own) {
        // RFC 9110 §5.5: what a field's value may have, without what is obsolete.
        if value.trim().is_empty() || !value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
            let message = format!("{option}: {value:?} is not a value for Cache-Control");
            refuse(at, message, CACHE_CONTROL, reader);
        }
    }
    if let (Some(_), Some(otherwise)) = (&written.fallback, &written.otherwise) {
        refuse(
            &otherwise.at,
            "files has fallback and else: with a fallback, every path has a file".to_owned(),
            "one of them",
            reader,
        );
    }
}

fn own_cache_control(pair: &Pair<String, Located<String>>) -> Option<(FilePattern, String)> {
    Some((FilePattern::new(&pair.name)?, pair.value.value.trim().to_owned()))
}

/// Rejects places that no client can get, and options without an effect on these places.
fn check_tries(written: &FilesWritten, reader: &mut Reader<'_>) {
    let Some(tries) = &written.tries else { return };
    for Located { value, at } in tries.iter().filter(|tried| !is_place(&tried.value)) {
        refuse(at, format!("try: {value:?} is not the path of a file that clients can get"), TRIED, reader);
    }
    if tries.iter().any(|tried| tried.value.ends_with("$path/")) {
        return;
    }
    let Some(at) = tries.first().map(|tried| &tried.at) else { return };
    let defaults = FilesWritten::default().index;
    let is_written = |one: &[Located<String>]| {
        !one.iter().map(|name| &name.value).eq(defaults.iter().map(|name| &name.value))
    };
    for (option, is_set) in [("index", is_written(&written.index)), ("listing", written.listing)] {
        if is_set {
            let message = format!("files has {option}, and `try` has no directory");
            refuse(at, message, "\"$path/\" among the places, or no such option", reader);
        }
    }
}

/// Whether a text is a place to try: a path, with the request's path at most once.
fn is_place(text: &str) -> bool {
    let Some((before, after)) = text.split_once("$path") else {
        return text.starts_with('/')
            && !text.contains('$')
            && relative(text).split('/').all(is_visible_name);
    };
    let is_folder =
        |before: &str| before.starts_with('/') && relative(before).split('/').all(is_visible_name);
    let (joined, folders) =
        after.split_once('/').map_or((after, None), |(joined, rest)| (joined, Some(rest)));
    let is_end = |rest: &str| joined.is_empty() && rest.is_empty() || rest.split('/').all(is_visible_name);
    let is_plain = |text: &str| !text.contains(['$', '\0']);
    (before.is_empty() || is_folder(before))
        && is_plain(before)
        && is_plain(after)
        && folders.is_none_or(is_end)
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
    // Only the defaults are written so, and they have no upstream, places or patterns.
    let Files {
        root,
        below,
        index,
        tries: _,
        fallback,
        otherwise: _,
        else_path: _,
        precompressed,
        cache_control,
        cache_control_for: _,
        listing,
        symlinks,
    } = files;
    element(FilesWritten {
        root: Some(located(match below {
            None => root.display().to_string(),
            Some(below) => root.join(below.as_str()).display().to_string(),
        })),
        index: index.iter().cloned().map(located).collect(),
        tries: None,
        fallback: fallback.as_ref().map(|path| located(format!("/{path}"))),
        otherwise: None,
        precompressed: *precompressed,
        cache_control: cache_control.clone().map(located),
        cache_control_for: Vec::new(),
        listing: *listing,
        symlinks: *symlinks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_files() {
        for (pattern, path, matches) in [
            ("/index.html", "index.html", true),
            ("/index.html", "a/index.html", false),
            ("/assets/*", "assets/a/b.js", true),
            ("/assets/*", "assets", false),
            ("*.js", "a/b.js", true),
            ("*.js", "a.js.gz", false),
            ("/a/*.js", "a/.js", true),
            ("/ab*ba", "aba", false),
            ("/*", "a", true),
        ] {
            let pattern = FilePattern::new(pattern).expect(pattern);
            assert_eq!(pattern.matches(path.as_bytes()), matches, "{pattern:?} {path}");
        }
        for wrong in ["", "*", "index.html", "/assets/", "/a*b*", "a*"] {
            assert_eq!(FilePattern::new(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn places_to_try() {
        for (place, is) in [
            ("$path", true),
            ("$path/", true),
            ("$path.html", true),
            ("$path/index.html", true),
            ("/cache$path/index.html", true),
            ("/down/page.html", true),
            ("/down/", false),
            ("/cache/$path", false),
            ("cache$path", false),
            ("$path/.git", false),
            ("/.cache$path", false),
            ("$path$path", false),
            ("$host$path", false),
            ("$path//", false),
            ("page.html", false),
            ("", false),
        ] {
            assert_eq!(is_place(place), is, "{place}");
        }
    }
}
