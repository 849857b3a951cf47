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

use mistake::{LineMap, Mistake};

use crate::listed::{Check, LISTED_MAX, Listed};

/// Maximum number of mistakes that are reported.
const MISTAKES_MAX: usize = 20;
const CHECKS: [&str; 5] = ["status", "header", "contains", "size", "digest"];
const BODIES_BYTES_MAX: usize = 256 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListFormat {
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

impl ListFormat {
    pub fn from_file(file: &str) -> Option<Self> {
        let extension = file.rsplit_once('.')?.1.to_ascii_lowercase();
        match extension.as_str() {
            "toml" => Some(Self::Toml),
            "http" | "rest" => Some(Self::Http),
            "har" => Some(Self::Har),
            _ => None,
        }
    }
}

pub struct RequestSource<'s> {
    pub text: &'s str,
    pub file: &'s str,
    /// URL with the host for requests that have only a path.
    pub base: Option<&'s str>,
    /// Hosts of a recording whose requests are sent. Empty: the host of `base`, or the only one.
    pub hosts: &'s [String],
    /// Names of header fields that replace recorded ones.
    pub given: &'s [String],
    /// Reads a file that the list names, relative to the list. Fails with the reason.
    pub read: &'s dyn Fn(&str) -> Result<Vec<u8>, String>,
}

impl std::fmt::Debug for RequestSource<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Source").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Parses a check in the form of comments in `.http` files and of `--check`: `status 200`, `size 1KB..`.
///
/// # Errors
/// The mistake, and the expected form.
pub fn check(text: &str, check: &mut Check) -> Result<(), String> {
    checks::add(text, check).map_err(|wrong| wrong.to_string())
}

/// Whether a list of URLs has methods, which makes it [`ListFormat::Lines`].
pub fn has_methods(text: &str) -> bool {
    text.lines().any(lines::has_method)
}

/// Reads a list. Returns at least one request, or at least one mistake.
pub fn parse(format: ListFormat, source: &RequestSource<'_>) -> Result<Vec<Listed>, Vec<Mistake>> {
    let mut reading = ListReading::new(source);
    match format {
        ListFormat::Toml => tables::read(&mut reading),
        ListFormat::Http => http::read(&mut reading),
        ListFormat::Har => har::read(&mut reading),
        ListFormat::Lines => lines::read(&mut reading),
        ListFormat::Handed => handed::read(&mut reading),
    }
    reading.end()
}

/// Reads the requests of a list of tables within a larger TOML text, at this place in it.
pub fn parse_tables(source: &RequestSource<'_>, at: &Range<usize>) -> Result<Vec<Listed>, Vec<Mistake>> {
    let mut reading = ListReading::new(source);
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

/// Removes scheme and host from a request's URL, so that it fits any host.
pub fn here(request: &mut Listed) {
    request.url.replace_range(..draft::authority(&request.url).len(), "");
    if !request.url.starts_with('/') {
        request.url.insert(0, '/');
    }
}

struct ListReading<'s> {
    source: &'s RequestSource<'s>,
    places: LineMap<'s>,
    listed: Vec<Listed>,
    bodies_bytes: usize,
    mistakes: Vec<Mistake>,
    /// A limit is exceeded, so the rest is ignored.
    is_over: bool,
}

impl<'s> ListReading<'s> {
    fn new(source: &'s RequestSource<'s>) -> Self {
        let places = LineMap::new(source.text, source.file);
        Self { source, places, listed: Vec::new(), bodies_bytes: 0, mistakes: Vec::new(), is_over: false }
    }

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
