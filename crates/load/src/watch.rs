//! Checks of responses that a list of requests asks for: status, header fields, size, and text in bodies, which come in
//! pieces. No I/O.

use std::ops::RangeInclusive;
use std::sync::Arc;

use memchr::memmem::Finder;

/// What the response of a request must be.
#[derive(Debug)]
pub(crate) struct Checker {
    /// Statuses that are good; empty for 2xx and 3xx.
    pub(crate) statuses: Vec<RangeInclusive<u16>>,
    /// Names of fields, and what one of their values must be: `*` stands for any text.
    pub(crate) fields: Vec<(String, String)>,
    /// Texts that the body must contain.
    pub(crate) contains: Vec<Finder<'static>>,
    /// Bytes of the body.
    pub(crate) size: Option<RangeInclusive<u64>>,
}

/// Whether a complete response is a success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    /// Without a check of the status: it is not 2xx or 3xx.
    Status,
    Missed(Missed),
}

/// The first check that a response does not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missed {
    Status,
    Field(usize),
    Size,
    Contains(usize),
}

impl Verdict {
    /// Of a response without checks.
    #[inline]
    pub(crate) fn of(status: u16) -> Self {
        if (200..400).contains(&status) { Self::Good } else { Self::Status }
    }
}

/// Observes a response for its checks.
#[derive(Debug)]
pub(crate) struct Watch {
    checker: Arc<Checker>,
    /// First field that is not as expected, and its value if it has one.
    field_missed: Option<(usize, Option<String>)>,
    searches: Vec<Search>,
}

/// Search for a text in pieces.
#[derive(Debug, Default)]
struct Search {
    is_found: bool,
    /// End of the pieces so far: shorter than the text.
    tail: Vec<u8>,
}

impl Watch {
    pub(crate) fn new(checker: &Arc<Checker>) -> Self {
        let searches = checker.contains.iter().map(|_| Search::default()).collect();
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

    /// Reads the fields of a head, in place of those before.
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

    /// Reads the next piece of the body.
    pub(crate) fn body(&mut self, piece: &[u8]) {
        for (finder, search) in self.checker.contains.iter().zip(&mut self.searches) {
            search.read(finder, piece);
        }
    }

    /// Judges the complete response.
    pub(crate) fn verdict(&self, status: u16, body_bytes: u64) -> Verdict {
        let checker = &*self.checker;
        if checker.statuses.is_empty() {
            if Verdict::of(status) != Verdict::Good {
                return Verdict::Status;
            }
        } else if !checker.statuses.iter().any(|good| good.contains(&status)) {
            return Verdict::Missed(Missed::Status);
        }
        let size = || checker.size.as_ref().is_some_and(|size| !size.contains(&body_bytes));
        let text = || self.searches.iter().position(|search| !search.is_found);
        if let Some((field, _)) = self.field_missed {
            Verdict::Missed(Missed::Field(field))
        } else if size() {
            Verdict::Missed(Missed::Size)
        } else {
            text().map_or(Verdict::Good, |text| Verdict::Missed(Missed::Contains(text)))
        }
    }

    /// What was missed, for people.
    pub(crate) fn words(&self, missed: Missed, status: u16, body_bytes: u64) -> String {
        let checker = &*self.checker;
        match missed {
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

impl Search {
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

/// Whether a value is like a pattern, in which `*` stands for any text.
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

    fn checker(contains: &[&[u8]]) -> Arc<Checker> {
        let contains = contains.iter().map(|text| Finder::new(text).into_owned()).collect();
        Arc::new(Checker { statuses: Vec::new(), fields: Vec::new(), contains, size: None })
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
        });
        let told = |status, head: &str, body: &[u8]| {
            let mut watch = Watch::new(&checker);
            watch.head(format!("HTTP/1.1 200 OK\r\n{head}\r\n").as_bytes());
            watch.body(body);
            match watch.verdict(status, body.len() as u64) {
                Verdict::Missed(missed) => watch.words(missed, status, body.len() as u64),
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
        let watch = Watch::new(&self::checker(&[]));
        assert_eq!((watch.verdict(302, 0), watch.verdict(404, 0)), (Verdict::Good, Verdict::Status));
    }

    proptest! {
        #[test]
        fn a_text_is_found_however_the_body_is_cut(
            body in prop::collection::vec(0u8..3, 0..40),
            text in prop::collection::vec(0u8..3, 1..6),
            cuts in prop::collection::vec(0usize..40, 0..8),
        ) {
            let mut watch = Watch::new(&checker(&[&text]));
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(body.len())).collect();
            cuts.push(body.len());
            cuts.sort_unstable();
            let mut start = 0;
            for cut in cuts {
                watch.body(&body[start..cut]);
                start = cut;
            }
            let is_found = watch.verdict(200, 0) == Verdict::Good;
            prop_assert_eq!(is_found, memchr::memmem::find(&body, &text).is_some());
        }
    }
}
