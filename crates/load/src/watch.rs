//! Checks of responses in a plan: status, fields, size, digest, and text in bodies that arrive in pieces. No I/O.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

use flate2::Crc;
use memchr::memmem::Finder;

use crate::page::{PageFacts, PagePattern};

#[derive(Debug)]
pub(crate) struct Checker {
    /// Good statuses; empty for 2xx and 3xx.
    pub(crate) statuses: Vec<RangeInclusive<u16>>,
    /// Names of fields, and a pattern for one of their values: `*` stands for any text.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) contains: Vec<Finder<'static>>,
    pub(crate) size: Option<RangeInclusive<u64>>,
    pub(crate) digest: Option<u32>,
}

/// Whether a complete response is a success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseVerdict {
    Good,
    /// Without a check of the status: it is not 2xx or 3xx.
    Status,
    Missed(Missed),
    /// The response is unlike the first responses to its request.
    Unlike(Missed),
}

/// The first check that a response does not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missed {
    Status,
    Field(usize),
    /// The media type of the first responses.
    Kind,
    Size,
    Contains(usize),
    Digest,
}

impl ResponseVerdict {
    /// The verdict on a response without checks.
    #[inline]
    pub(crate) fn from_status(status: u16) -> Self {
        if (200..400).contains(&status) { Self::Good } else { Self::Status }
    }
}

/// Observes a response: for its checks, and for the digest of its body.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    watch: Option<Box<ResponseWatch>>,
    digest: Option<Crc>,
}

impl Observer {
    /// For the response to a request with these checks, and this pattern.
    #[inline]
    pub(crate) fn new(checker: Option<&Arc<Checker>>, pattern: Option<&Arc<PagePattern>>) -> Self {
        let wants_digest = pattern.is_some_and(|pattern| pattern.wants_digest())
            || checker.is_some_and(|checker| checker.digest.is_some());
        Self {
            watch: checker.map(|checker| Box::new(ResponseWatch::new(checker))),
            digest: wants_digest.then(Crc::new),
        }
    }

    /// Whether it needs heads.
    #[inline]
    pub(crate) fn has_watch(&self) -> bool {
        self.watch.is_some()
    }

    /// Whether it needs bodies.
    #[inline]
    pub(crate) fn sees_bodies(&self) -> bool {
        self.watch.is_some() || self.digest.is_some()
    }

    /// The checks of the response, if it has any.
    pub(crate) fn watch(&mut self) -> Option<&mut ResponseWatch> {
        self.watch.as_deref_mut()
    }

    #[inline]
    pub(crate) fn body(&mut self, piece: &[u8]) {
        if let Some(digest) = &mut self.digest {
            digest.update(piece);
        }
        if let Some(watch) = &mut self.watch {
            watch.body(piece);
        }
    }

    #[inline]
    pub(crate) fn end_body(&mut self) -> Option<u32> {
        let digest = self.digest.as_mut()?;
        let whole = digest.sum();
        // Another response may follow, after a redirect.
        digest.reset();
        Some(whole)
    }

    /// Judges the complete response by its checks, or by the pattern of earlier responses.
    #[inline]
    pub(crate) fn verdict(
        &self,
        page: PageFacts,
        pattern: Option<&Arc<PagePattern>>,
        now: Instant,
    ) -> ResponseVerdict {
        match (&self.watch, pattern) {
            (Some(watch), _) => watch.verdict(page),
            (None, Some(pattern)) if ResponseVerdict::from_status(page.status) == ResponseVerdict::Good => {
                pattern.verdict(page, now)
            }
            (None, _) => ResponseVerdict::from_status(page.status),
        }
    }

    /// Describes a missed check.
    pub(crate) fn words(
        &self,
        verdict: ResponseVerdict,
        page: PageFacts,
        pattern: Option<&Arc<PagePattern>>,
    ) -> String {
        match (verdict, &self.watch, pattern) {
            (ResponseVerdict::Missed(missed), Some(watch), _) => watch.words(missed, page),
            (ResponseVerdict::Unlike(missed), _, Some(pattern)) => {
                pattern.words(missed, page.status, page.body_bytes)
            }
            _ => format!("status {}", page.status),
        }
    }
}

#[derive(Debug)]
pub(crate) struct ResponseWatch {
    checker: Arc<Checker>,
    /// Index of the first field that missed its check, and its value if it has one.
    field_missed: Option<(usize, Option<String>)>,
    searches: Vec<PageSearch>,
}

#[derive(Debug, Default)]
struct PageSearch {
    is_found: bool,
    /// End of the pieces so far: shorter than the text.
    tail: Vec<u8>,
}

impl ResponseWatch {
    pub(crate) fn new(checker: &Arc<Checker>) -> Self {
        let searches = checker.contains.iter().map(|_| PageSearch::default()).collect();
        let mut watch = Self { checker: Arc::clone(checker), field_missed: None, searches };
        watch.fields(&[]);
        watch
    }

    /// Reads the head of an HTTP/1.1 response that was parsed before.
    pub(crate) fn head(&mut self, head: &[u8]) {
        if self.checker.fields.is_empty() {
            return;
        }
        let mut fields = [httparse::EMPTY_HEADER; 256];
        let mut response = httparse::Response::new(&mut fields);
        if response.parse(head).is_ok() {
            let fields: Vec<_> = response.headers.iter().map(|field| (field.name, field.value)).collect();
            self.fields(&fields);
        }
    }

    /// Reads the fields of a head, which replace earlier ones.
    pub(crate) fn fields(&mut self, fields: &[(&str, &[u8])]) {
        self.field_missed = None;
        for (number, (name, pattern)) in self.checker.fields.iter().enumerate() {
            let is_named = |(other, _): &&(&str, &[u8])| other.eq_ignore_ascii_case(name);
            let mut values = fields.iter().filter(is_named).map(|(_, value)| *value);
            let first = values.clone().next();
            if !values.any(|value| is_like(value.trim_ascii(), pattern.as_bytes())) {
                let first = first.map(|value| String::from_utf8_lossy(value).into_owned());
                self.field_missed = Some((number, first));
                return;
            }
        }
    }

    pub(crate) fn body(&mut self, piece: &[u8]) {
        for (finder, search) in self.checker.contains.iter().zip(&mut self.searches) {
            search.read(finder, piece);
        }
    }

    fn verdict(&self, page: PageFacts) -> ResponseVerdict {
        let PageFacts { status, body_bytes, .. } = page;
        let checker = &*self.checker;
        if checker.statuses.is_empty() {
            if ResponseVerdict::from_status(status) != ResponseVerdict::Good {
                return ResponseVerdict::Status;
            }
        } else if !checker.statuses.iter().any(|good| good.contains(&status)) {
            return ResponseVerdict::Missed(Missed::Status);
        }
        let size = || checker.size.as_ref().is_some_and(|size| !size.contains(&body_bytes));
        let text = || self.searches.iter().position(|search| !search.is_found);
        let digest = || checker.digest.is_some_and(|digest| page.digest != Some(digest));
        if let Some((field, _)) = self.field_missed {
            ResponseVerdict::Missed(Missed::Field(field))
        } else if size() {
            ResponseVerdict::Missed(Missed::Size)
        } else if let Some(text) = text() {
            ResponseVerdict::Missed(Missed::Contains(text))
        } else if digest() {
            ResponseVerdict::Missed(Missed::Digest)
        } else {
            ResponseVerdict::Good
        }
    }

    /// Describes a missed check.
    fn words(&self, missed: Missed, page: PageFacts) -> String {
        let (checker, PageFacts { status, body_bytes, digest, .. }) = (&*self.checker, page);
        match missed {
            Missed::Digest | Missed::Kind => {
                let [found, expected] = [digest, checker.digest].map(Option::unwrap_or_default);
                format!(
                    "the body of {body_bytes} bytes has the digest crc32:{found:08x}, expected crc32:{expected:08x}"
                )
            }
            Missed::Status => {
                let good = checker.statuses.iter().map(|good| match (good.start(), good.end()) {
                    (first, last) if first == last => first.to_string(),
                    (first, last) => format!("{first} to {last}"),
                });
                format!("status {status}, expected {}", good.collect::<Vec<_>>().join(", "))
            }
            Missed::Field(number) => {
                let (name, pattern) = &checker.fields[number];
                match self.field_missed.as_ref().and_then(|(_, value)| value.as_ref()) {
                    Some(value) => {
                        format!("header {name} is {:?}, expected {pattern:?}", shortened(value))
                    }
                    None => format!("header {name} is missing, expected {pattern:?}"),
                }
            }
            Missed::Size => {
                let told = checker.size.as_ref().map(|size| match (*size.start(), *size.end()) {
                    (least, most) if least == most => least.to_string(),
                    (least, u64::MAX) => format!("at least {least}"),
                    (least, most) => format!("{least} to {most}"),
                });
                format!("the body has {body_bytes} bytes, expected {}", told.unwrap_or_default())
            }
            Missed::Contains(number) => {
                let text = String::from_utf8_lossy(checker.contains[number].needle()).into_owned();
                format!("the body of {body_bytes} bytes does not contain {:?}", shortened(&text))
            }
        }
    }
}

impl PageSearch {
    fn read(&mut self, finder: &Finder<'_>, piece: &[u8]) {
        let overlap = finder.needle().len().saturating_sub(1);
        if self.is_found || piece.is_empty() {
            return;
        }
        if !self.tail.is_empty() {
            let known = self.tail.len();
            self.tail.extend_from_slice(&piece[..piece.len().min(overlap)]);
            self.is_found = finder.find(&self.tail).is_some();
            self.tail.truncate(known);
        }
        self.is_found = self.is_found || finder.find(piece).is_some();
        self.tail.extend_from_slice(&piece[piece.len().saturating_sub(overlap)..]);
        self.tail.drain(..self.tail.len().saturating_sub(overlap));
    }
}

/// Whether a value matches a pattern, in which `*` stands for any text.
fn is_like(value: &[u8], pattern: &[u8]) -> bool {
    let mut parts = pattern.split(|byte| *byte == b'*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = value.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = memchr::memmem::find(rest, part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

fn shortened(text: &str) -> String {
    const CHARACTERS: usize = 80;
    match text.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(status: u16, body: &[u8]) -> PageFacts {
        let digest = Some(crate::page::digest(body));
        PageFacts { status, kind: 0, body_bytes: body.len() as u64, digest }
    }

    fn checker(contains: &[&[u8]]) -> Arc<Checker> {
        let contains = contains.iter().map(|text| Finder::new(text).into_owned()).collect();
        Arc::new(Checker { statuses: Vec::new(), fields: Vec::new(), contains, size: None, digest: None })
    }

    #[test]
    fn a_pattern_is_the_value_but_for_its_stars() {
        for (value, pattern, expected) in [
            ("a", "a", true),
            ("a", "A", false),
            ("ab", "a", false),
            ("ab", "a*", true),
            ("a", "a*", true),
            ("ab", "*b", true),
            ("", "*", true),
            ("", "", true),
            ("abcabd", "a*b*d", true),
            ("abc", "a*bb*c", false),
            ("ab", "ab*b", false),
        ] {
            assert_eq!(is_like(value.as_bytes(), pattern.as_bytes()), expected, "{value} {pattern}");
        }
    }

    #[test]
    fn the_first_missed_check_is_told() {
        let checker = Arc::new(Checker {
            statuses: vec![200..=200, 400..=499],
            fields: vec![("Content-Type".into(), "text/*".into()), ("x-a".into(), "1".into())],
            contains: vec![Finder::new("hello").into_owned()],
            size: Some(3..=u64::MAX),
            digest: Some(crate::page::digest(b"oh hello")),
        });
        let told = |status, head: &str, body: &[u8]| {
            let mut watch = ResponseWatch::new(&checker);
            watch.head(format!("HTTP/1.1 200 OK\r\n{head}\r\n").as_bytes());
            watch.body(body);
            let page = page(status, body);
            match watch.verdict(page) {
                ResponseVerdict::Missed(missed) => watch.words(missed, page),
                other => format!("{other:?}"),
            }
        };
        let good = "content-type: text/html\r\nX-A: 0\r\nX-A: 1\r\n";
        assert_eq!(told(404, good, b"oh hello"), "Good");
        assert_eq!(told(500, "", b""), "status 500, expected 200, 400 to 499");
        assert_eq!(told(200, "", b""), "header Content-Type is missing, expected \"text/*\"");
        let other = "content-type: image/png\r\n";
        assert_eq!(told(200, other, b""), "header Content-Type is \"image/png\", expected \"text/*\"");
        assert_eq!(told(200, good, b"hi"), "the body has 2 bytes, expected at least 3");
        assert_eq!(told(200, good, b"hell"), "the body of 4 bytes does not contain \"hello\"");
        let words = "the body of 8 bytes has the digest crc32:54ecfb2a, expected crc32:";
        assert!(told(200, good, b"oh,hello").starts_with(words), "{}", told(200, good, b"oh,hello"));
        let watch = ResponseWatch::new(&self::checker(&[]));
        assert_eq!(
            (watch.verdict(page(302, b"")), watch.verdict(page(404, b""))),
            (ResponseVerdict::Good, ResponseVerdict::Status)
        );
    }

    proptest! {
        #[test]
        fn a_text_is_found_however_the_body_is_cut(
            body in prop::collection::vec(0u8..3, 0..40),
            text in prop::collection::vec(0u8..3, 1..6),
            cuts in prop::collection::vec(0usize..40, 0..8),
        ) {
            let mut watch = ResponseWatch::new(&checker(&[&text]));
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(body.len())).collect();
            cuts.push(body.len());
            cuts.sort_unstable();
            let mut start = 0;
            for cut in cuts {
                watch.body(&body[start..cut]);
                start = cut;
            }
            let is_found = watch.verdict(page(200, b"")) == ResponseVerdict::Good;
            prop_assert_eq!(is_found, memchr::memmem::find(&body, &text).is_some());
        }
    }
}
