//! Reads lists of requests from files. Reports every mistake with its place. The caller reads files.

/// A request as it is written, and its mistakes.
mod draft;
/// Checks of responses as they are written.
mod checks;
/// TOML: `[[request]]`.
mod tables;
/// `.http` files.
mod http;
/// HAR.
mod har;
/// Lists of URLs with methods.
mod lines;
/// Lists that were read before.
mod handed;

use std::ops::Range;

use mistake::{Mistake, Places};

use crate::listed::{LISTED_MAX, Listed};

/// Maximum number of mistakes that are reported.
const MISTAKES_MAX: usize = 20;
/// Kinds of checks.
const CHECKS: [&str; 4] = ["status", "header", "contains", "size"];
/// Maximum bytes of all bodies together.
const BODIES_BYTES_MAX: usize = 256 << 20;

/// Format of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Tables `[[request]]` in TOML.
    Toml,
    /// `.http` files of the REST Client and of IntelliJ.
    Http,
    /// HAR 1.2.
    Har,
    /// `METHOD URL body` on a line.
    Lines,
    /// [`Listed`] as JSON, from a program that has read a list in another format.
    Handed,
}

impl Format {
    /// The format of a file with this name.
    pub fn of(file: &str) -> Option<Self> {
        let extension = file.rsplit_once('.')?.1.to_ascii_lowercase();
        match extension.as_str() {
            "toml" => Some(Self::Toml),
            "http" | "rest" => Some(Self::Http),
            "har" => Some(Self::Har),
            _ => None,
        }
    }
}

/// A list of requests, and what it refers to.
pub struct Source<'s> {
    /// Content of the file.
    pub text: &'s str,
    /// Name of the file in messages.
    pub file: &'s str,
    /// URL whose host requests with a path go to.
    pub base: Option<&'s str>,
    /// Hosts of a recording whose requests are sent; none for that of `base`, or the only one.
    pub hosts: &'s [String],
    /// Names of header fields that are given otherwise, in place of recorded ones.
    pub given: &'s [String],
    /// Reads a file that the list names, relative to the list, or says why it cannot.
    pub read: &'s dyn Fn(&str) -> Result<Vec<u8>, String>,
}

impl std::fmt::Debug for Source<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Source").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Whether a list of URLs has methods, so that it is of [`Format::Lines`].
pub fn has_methods(text: &str) -> bool {
    text.lines().any(lines::has_method)
}

/// Reads a list. At least one request, or at least one mistake.
pub fn parse(format: Format, source: &Source<'_>) -> Result<Vec<Listed>, Vec<Mistake>> {
    let mut reading = Reading::new(source);
    match format {
        Format::Toml => tables::read(&mut reading),
        Format::Http => http::read(&mut reading),
        Format::Har => har::read(&mut reading),
        Format::Lines => lines::read(&mut reading),
        Format::Handed => handed::read(&mut reading),
    }
    reading.end()
}

/// Reads the requests of a list of tables within a larger TOML text, at this place in it.
pub fn parse_tables(source: &Source<'_>, at: &Range<usize>) -> Result<Vec<Listed>, Vec<Mistake>> {
    let mut reading = Reading::new(source);
    tables::read_at(&mut reading, at);
    reading.end()
}

/// Scheme, host and port of the URLs of requests, each once.
pub fn hosts(requests: &[Listed]) -> Vec<&str> {
    let mut hosts = Vec::new();
    for request in requests {
        let host = draft::authority(&request.url);
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts
}

/// Makes the URL of a request a path: it is for whatever host is meant later.
pub fn here(request: &mut Listed) {
    request.url.replace_range(..draft::authority(&request.url).len(), "");
    if !request.url.starts_with('/') {
        request.url.insert(0, '/');
    }
}

/// Reading of a list under way.
struct Reading<'s> {
    source: &'s Source<'s>,
    places: Places<'s>,
    listed: Vec<Listed>,
    bodies_bytes: usize,
    mistakes: Vec<Mistake>,
    /// A limit is exceeded: nothing that follows matters.
    is_over: bool,
}

impl<'s> Reading<'s> {
    fn new(source: &'s Source<'s>) -> Self {
        let places = Places::new(source.text, source.file);
        Self { source, places, listed: Vec::new(), bodies_bytes: 0, mistakes: Vec::new(), is_over: false }
    }

    /// Reports a mistake.
    fn wrong(&mut self, at: &Range<usize>, message: impl Into<String>) {
        let mistake = self.places.mistake(at, message);
        self.report(mistake);
    }

    fn report(&mut self, mistake: Mistake) {
        if self.mistakes.len() < MISTAKES_MAX {
            self.mistakes.push(mistake);
        }
    }

    fn is_full(&self) -> bool {
        self.is_over || self.mistakes.len() >= MISTAKES_MAX
    }

    /// The file and line of a position.
    fn place(&self, at: usize) -> String {
        let Mistake { file, line, column, .. } = self.places.mistake(&(at..at), "");
        format!("{file}:{line}:{column}")
    }

    /// Reads a file that the list names.
    fn file(&mut self, name: &str, at: &Range<usize>) -> Option<Vec<u8>> {
        match (self.source.read)(name) {
            Ok(content) => Some(content),
            Err(reason) => {
                self.wrong(at, format!("cannot read {name}: {reason}"));
                None
            }
        }
    }

    fn add(&mut self, listed: Listed, at: &Range<usize>) {
        self.bodies_bytes += listed.body.len();
        if self.listed.len() == LISTED_MAX {
            self.wrong(at, format!("there are more than {LISTED_MAX} requests"));
        } else if self.bodies_bytes > BODIES_BYTES_MAX {
            self.wrong(at, "the bodies of all requests together are larger than 256 MiB");
        } else {
            self.listed.push(listed);
            return;
        }
        self.is_over = true;
    }

    fn end(mut self) -> Result<Vec<Listed>, Vec<Mistake>> {
        if self.mistakes.is_empty() {
            if self.listed.is_empty() {
                self.wrong(&(0..0), "the file has no request");
            } else if self.listed.iter().all(|request| request.weight == 0) {
                self.wrong(&(0..0), "every request has weight 0, so that none would be sent");
            }
        }
        self.mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
        if self.mistakes.is_empty() { Ok(self.listed) } else { Err(self.mistakes) }
    }
}

/// A piece of the file, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Placed<T> {
    value: T,
    at: Range<usize>,
}
