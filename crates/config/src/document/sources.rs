//! The files of a configuration: the first one, and those that it includes.
//!
//! All of them share one range of positions: a file's begin where those of the file before it end.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use crate::document::reader::Span;
use crate::document::substitution::Substitution;
use crate::document::surroundings::{Surroundings, shown_path};

/// How deep files may include others: deeper than anybody nests them.
const DEEPEST: usize = 8;
/// The most files of a configuration.
const FILES_MAX: usize = 10_000;
/// The most bytes of all files together.
const BYTES_MAX: usize = 64 << 20;

/// A file of the configuration.
#[derive(Debug)]
pub(crate) struct Source<'t> {
    /// The path, as it is shown.
    pub(crate) name: String,
    /// The directory that its paths of other files of the configuration are relative to.
    pub(crate) folder: PathBuf,
    pub(crate) text: Cow<'t, str>,
    /// The position of its first byte.
    pub(crate) start: usize,
}

/// The files of a configuration in order: each one before those that it includes.
#[derive(Debug)]
pub(crate) struct Sources<'t> {
    pub(crate) files: Vec<Source<'t>>,
    /// Why files are missing.
    pub(crate) problems: Vec<Problem>,
}

/// A file that cannot be included, and where it is named.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) at: Span,
    pub(crate) message: String,
    pub(crate) expected: Option<&'static str>,
}

/// A file that is being included, to find cycles.
struct Open {
    identity: PathBuf,
    name: String,
}

impl<'t> Sources<'t> {
    /// The file with `text` and what it includes. `name` is its path.
    pub(crate) fn from_text(text: &'t str, name: &str, surroundings: &dyn Surroundings) -> Self {
        let path = Path::new(name);
        let first =
            Source { name: name.to_owned(), folder: folder(path), text: Cow::Borrowed(text), start: 0 };
        let mut sources = Self { files: vec![first], problems: Vec::new() };
        if may_include(text) {
            let identity = surroundings.identity(path);
            let mut seen = HashSet::from([identity.clone()]);
            let mut open = vec![Open { identity, name: name.to_owned() }];
            sources.include_all(0, &mut open, &mut seen, surroundings);
        }
        sources
    }

    /// Adds what the file at `index` includes, in the order of its patterns, and of names within one.
    fn include_all(
        &mut self,
        index: usize,
        open: &mut Vec<Open>,
        seen: &mut HashSet<PathBuf>,
        surroundings: &dyn Surroundings,
    ) {
        let Source { folder, text, start, .. } = &self.files[index];
        let (start, folder) = (*start, folder.clone());
        for (pattern, at) in patterns(text, &folder, surroundings) {
            let at = start + at.start..start + at.end;
            match matches(&pattern, &folder, surroundings) {
                Ok(paths) => {
                    for path in paths {
                        self.include(&path, &at, open, seen, surroundings);
                    }
                }
                Err(why) => {
                    let what = format!("include: {pattern}: {why}");
                    self.refuse(&at, what, Some("a path such as \"conf.d/*.toml\""));
                }
            }
        }
    }

    fn include(
        &mut self,
        path: &Path,
        at: &Span,
        open: &mut Vec<Open>,
        seen: &mut HashSet<PathBuf>,
        surroundings: &dyn Surroundings,
    ) {
        let name = path.display().to_string();
        let identity = surroundings.identity(path);
        if let Some(first) = open.iter().position(|open| open.identity == identity) {
            let circle: Vec<&str> = open[first..].iter().map(|open| open.name.as_str()).collect();
            let what = format!("include: {name} includes itself: {} -> {name}", circle.join(" -> "));
            return self.refuse(at, what, Some("files in a directory of their own"));
        }
        // Patterns that overlap choose an order: the first one counts.
        if !seen.insert(identity.clone()) {
            return;
        }
        if open.len() > DEEPEST {
            let what = format!("include: {name}: files are nested more than {DEEPEST} deep");
            return self.refuse(at, what, None);
        }
        let last = &self.files[self.files.len() - 1];
        // Apart, so that the end of a file is no place of the next.
        let start = last.start + last.text.len() + 1;
        if self.files.len() >= FILES_MAX || start > BYTES_MAX {
            let what = format!(
                "include: {name}: the configuration would exceed {FILES_MAX} files or {} MiB",
                BYTES_MAX >> 20
            );
            return self.refuse(at, what, None);
        }
        let bytes = match surroundings.file(path) {
            Ok(bytes) => bytes,
            Err(why) => return self.refuse(at, format!("include: {}: {why}", shown_path(path)), None),
        };
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let valid = error.utf8_error().valid_up_to();
                self.refuse(&(start + valid..start + valid), "this is not UTF-8 text".to_owned(), None);
                String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned()
            }
        };
        let includes = may_include(&text);
        self.files.push(Source { name: name.clone(), folder: folder(path), text: text.into(), start });
        if includes {
            open.push(Open { identity, name });
            self.include_all(self.files.len() - 1, open, seen, surroundings);
            open.pop();
        }
    }

    fn refuse(&mut self, at: &Span, message: String, expected: Option<&'static str>) {
        self.problems.push(Problem { at: at.clone(), message, expected });
    }
}

fn folder(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).to_owned()
}

/// Whether a text may have the option; parsing it twice is only for those that may.
fn may_include(text: &str) -> bool {
    text.contains("include")
}

/// The patterns of the option `include` and their places. What is no pattern is reported when the option is read.
fn patterns(text: &str, folder: &Path, surroundings: &dyn Surroundings) -> Vec<(String, Span)> {
    let (root, _) = DeTable::parse_recoverable(text);
    let mut substitution = Substitution::new(surroundings);
    let mut pattern = |text: &str, at: Span| match substitution.expand(text, folder) {
        Ok(expanded) => Some((expanded.map_or_else(|| text.to_owned(), |expanded| expanded.text), at)),
        Err(_) => None,
    };
    let Some(value) = root.get_ref().get("include") else { return Vec::new() };
    match value.get_ref() {
        DeValue::String(text) => pattern(text, value.span()).into_iter().collect(),
        DeValue::Array(elements) => {
            let texts =
                elements.iter().filter_map(|element| Some((element.get_ref().as_str()?, element.span())));
            texts.filter_map(|(text, at)| pattern(text, at)).collect()
        }
        _ => Vec::new(),
    }
}

/// The files of a pattern. One with wildcards may match none.
fn matches(pattern: &str, folder: &Path, surroundings: &dyn Surroundings) -> Result<Vec<PathBuf>, String> {
    if pattern.is_empty() {
        return Err("it is empty".to_owned());
    }
    if !pattern.contains(['*', '?', '[']) {
        return Ok(vec![folder.join(pattern)]);
    }
    let pattern = match Path::new(pattern).is_absolute() {
        true => pattern.to_owned(),
        // Of the directory's own name nothing is a wildcard.
        false => {
            let folder = glob::Pattern::escape(&folder.display().to_string());
            if folder.is_empty() { pattern.to_owned() } else { format!("{folder}/{pattern}") }
        }
    };
    surroundings.matches(&pattern)
}
