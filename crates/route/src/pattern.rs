//! Regular expressions that must match a whole text.
//!
//! Matching takes time linear in the text, for every expression. The cost of compiling is limited.

use std::fmt;
use std::ops::Range;

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use crate::path::{LenientPath, with_reading};

/// The longest expression, as configured.
pub const PATTERN_BYTES_MAX: usize = 4096;

/// The size limit of a compiled pattern, or of a compiled set.
const PROGRAM_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The size limit of the cache of one search.
const CACHE_BYTES_MAX: usize = 1024 * 1024;
const NESTING_MAX: u32 = 50;

/// A regular expression over bytes, in the syntax of the crate `regex`.
///
/// It must match the whole text: `/files/.*`, not `/files/`. A dot matches every byte, line breaks included, so that no
/// byte slips past `.*`. Classes such as `\w` are ASCII unless `(?u)` is set.
///
/// A clone shares the compiled program and has separate scratch space: give each thread a clone, because threads that
/// share a pattern sometimes wait for each other.
#[derive(Clone)]
pub struct BytePattern {
    text: Box<str>,
    ignores_case: bool,
    regex: Regex,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The pattern exceeds [`PATTERN_BYTES_MAX`].
    #[error("the expression has {0} bytes; at most {PATTERN_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// The compiled pattern exceeds the limit, usually because of a large count such as `{{1000}}`.
    #[error("the expression is too large once compiled; use smaller repetition counts or fewer alternatives")]
    TooLarge,
    /// The pattern is not in the syntax of the crate `regex`.
    #[error("{what}")]
    Syntax {
        /// In bytes.
        offset: usize,
        what: String,
    },
}

impl BytePattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// The problem with the pattern.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::TooLong(text.len()));
        }
        // Compiled without the frame first, so that an error shows the text as configured.
        build(text)?;
        Ok(Self { text: text.into(), ignores_case: false, regex: build(&whole(text))? })
    }

    /// Compiles a pattern that ignores case, for texts such as hosts, unless it contains `(?-i)`.
    ///
    /// # Errors
    /// The problem with the pattern.
    pub fn ignoring_case(text: &str) -> Result<Self, PatternError> {
        let sensitive = Self::new(text)?;
        let regex = build(&in_any_case(&whole(text)))?;
        Ok(Self { ignores_case: true, regex, ..sensitive })
    }

    /// The expression that is compiled.
    fn program(&self) -> String {
        let whole = whole(&self.text);
        if self.ignores_case { in_any_case(&whole) } else { whole }
    }

    /// The pattern as configured.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    #[inline]
    pub fn matches(&self, text: &[u8]) -> bool {
        self.regex.is_match(text)
    }

    /// The number of groups, including group 0 for the whole match.
    pub fn groups(&self) -> usize {
        self.regex.captures_len()
    }

    /// The number of the group `(?<name>…)`.
    pub fn group(&self, name: &str) -> Option<usize> {
        self.regex.capture_names().position(|known| known == Some(name))
    }

    /// The matches of the groups, if the pattern matches the whole text. Allocates twice.
    pub fn captures(&self, text: &[u8]) -> Option<Captures> {
        let mut locations = self.regex.capture_locations();
        self.regex.captures_read(&mut locations, text)?;
        let spans = (0..locations.len()).map(|group| locations.get(group).map(|(start, end)| start..end));
        Some(Captures { text: text.into(), spans: spans.collect(), escapes: Box::default() })
    }

    /// The matches of the groups in a request's path, which the pattern sees as a lenient server reads it. Remembers
    /// which bytes were escaped.
    pub fn captures_of_path(&self, path: &[u8]) -> Option<Captures> {
        let captures = with_reading(path, |path| self.captures(path))?;
        let has_escapes = path.contains(&b'%');
        let escapes =
            if has_escapes { LenientPath::from_path(path).escapes().collect() } else { Box::default() };
        Some(Captures { escapes, ..captures })
    }
}

impl PartialEq for BytePattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.ignores_case == other.ignores_case
    }
}

impl Eq for BytePattern {}

impl fmt::Debug for BytePattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Pattern({:?})", self.text)
    }
}

impl fmt::Display for BytePattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// The matches of a pattern's groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captures {
    text: Box<[u8]>,
    spans: Box<[Option<Range<usize>>]>,
    /// Which bytes of the text were escaped; empty if none was.
    escapes: Box<[bool]>,
}

impl Captures {
    /// The match of a group. `None` if the group does not exist or took no part in the match.
    pub fn group(&self, number: usize) -> Option<&[u8]> {
        self.text.get(self.span(number)?)
    }

    /// The bytes of a group's match, each with whether it was escaped.
    pub(crate) fn bytes_of_group(&self, number: usize) -> impl Iterator<Item = (u8, bool)> {
        let bytes = self.span(number).into_iter().flatten();
        bytes.map(|at| (self.text[at], self.escapes.get(at).copied().unwrap_or(false)))
    }

    fn span(&self, number: usize) -> Option<Range<usize>> {
        self.spans.get(number)?.clone()
    }
}

/// An ordered list of patterns, of which the first match is wanted.
///
/// From [`SET_FROM`] patterns on, one pass over the text first determines whether any pattern matches.
#[derive(Debug, Clone, Default)]
pub(crate) struct Patterns<T> {
    list: Vec<(BytePattern, T)>,
    any: Option<RegexSet>,
}

/// The number of patterns from which a combined search is faster.
const SET_FROM: usize = 4;

impl<T> Patterns<T> {
    /// The value of a pattern; a new pattern is appended.
    pub(crate) fn entry(&mut self, pattern: &BytePattern, new: impl FnOnce() -> T) -> &mut T {
        let found = self.list.iter().position(|(known, _)| known == pattern);
        let index = found.unwrap_or_else(|| {
            self.list.push((pattern.clone(), new()));
            self.list.len() - 1
        });
        &mut self.list[index].1
    }

    /// Prepares the list for searches, after all patterns were added.
    pub(crate) fn link(&mut self) {
        if self.list.len() >= SET_FROM {
            let texts = self.list.iter().map(|(pattern, _)| pattern.program());
            let mut builder = RegexSetBuilder::new(texts);
            builder.unicode(false).dot_matches_new_line(true).nest_limit(NESTING_MAX + 1);
            // Many patterns together may exceed the limit; then each is tried separately.
            self.any = builder.size_limit(PROGRAM_BYTES_MAX).dfa_size_limit(CACHE_BYTES_MAX).build().ok();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.list.iter_mut().map(|(_, value)| value)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.list.iter().map(|(_, value)| value)
    }

    /// The values of all matching patterns, in order.
    #[inline]
    pub(crate) fn matching<'s>(&'s self, text: &'s [u8]) -> impl Iterator<Item = &'s T> {
        let list = match &self.any {
            Some(any) if !any.is_match(text) => &[][..],
            _ => &self.list,
        };
        list.iter().filter(move |(pattern, _)| pattern.matches(text)).map(|(_, value)| value)
    }
}

fn whole(text: &str) -> String {
    let framed = format!(r"\A(?:{text})\z");
    // `(?x)` allows a comment, which a line end must terminate; in other expressions a line end would be matched.
    let ends_in_comment = text.contains('#') && build(&framed).is_err();
    if ends_in_comment { format!("\\A(?:{text}\n)\\z") } else { framed }
}

fn in_any_case(whole: &str) -> String {
    format!("(?i){whole}")
}

fn build(text: &str) -> Result<Regex, PatternError> {
    let mut builder = RegexBuilder::new(text);
    builder.unicode(false).dot_matches_new_line(true).nest_limit(NESTING_MAX + 1);
    builder.size_limit(PROGRAM_BYTES_MAX).dfa_size_limit(CACHE_BYTES_MAX);
    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => PatternError::TooLarge,
        error => syntax_error(text, &error),
    })
}

/// The error of `regex` draws the position over several lines; its parser reports it as a number.
fn syntax_error(text: &str, error: &regex::Error) -> PatternError {
    let mut builder = regex_syntax::ParserBuilder::new();
    builder.unicode(false).utf8(false).dot_matches_new_line(true).nest_limit(NESTING_MAX + 1);
    let (offset, what) = match builder.build().parse(text) {
        Err(regex_syntax::Error::Parse(error)) => (error.span().start.offset, error.kind().to_string()),
        Err(regex_syntax::Error::Translate(error)) => (error.span().start.offset, error.kind().to_string()),
        _ => (0, error.to_string()),
    };
    PatternError::Syntax { offset, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_the_whole_text() {
        for (pattern, text, matches) in [
            ("/files/.*", "/files/a", true),
            ("/files/", "/files/a", false),
            ("a|ab", "ab", true),
            ("^/x$", "/x", true),
            (r".*\.php", "/a.php", true),
            (r".*\.php", "/a.php\n", false),
            ("/admin.*", "/admin\n/x", true),
            ("", "", true),
            ("(?x) /a  # and no more", "/a", true),
            ("(?x) /a  # and no more", "/a\n", false),
            ("(?i)/CAF\u{e9}", "/caf\u{e9}", true),
            ("/[a-z]+/\u{e9}", "/abc/\u{e9}", true),
            (r"/\w+", "/\u{e9}", false),
            (r"(?u)/\w+", "/\u{e9}", true),
        ] {
            assert_eq!(
                BytePattern::new(pattern).unwrap().matches(text.as_bytes()),
                matches,
                "{pattern} {text:?}"
            );
        }
        assert!(BytePattern::new("/.*").unwrap().matches(b"/\xff\x00\r"), "a dot is for every byte");
    }

    #[test]
    fn invalid_patterns() {
        let message = |text: &str| BytePattern::new(text).unwrap_err().to_string();
        assert!(message("/a(").contains("unclosed group"), "{}", message("/a("));
        assert!(!message("/a(").contains(r"\A"), "shown as it was written: {}", message("/a("));
        assert!(
            matches!(BytePattern::new("a)|(b"), Err(PatternError::Syntax { .. })),
            "no way out of the frame"
        );
        assert_eq!(BytePattern::new(r"(?u)(\w{500}){500}"), Err(PatternError::TooLarge));
        let unclosed = PatternError::Syntax { offset: 2, what: "unclosed group".to_owned() };
        assert_eq!(BytePattern::new("/a(b"), Err(unclosed));
        assert_eq!(BytePattern::new(&"a".repeat(5000)), Err(PatternError::TooLong(5000)));
        assert!(matches!(BytePattern::new(&"(".repeat(200)), Err(PatternError::Syntax { .. })));
        assert!(matches!(
            BytePattern::new(&format!("{}{}", "(".repeat(60), ")".repeat(60))),
            Err(PatternError::Syntax { .. })
        ));
    }

    #[test]
    fn groups_that_take_no_part_are_none() {
        let pattern = BytePattern::new("/(?<kind>a|b)(/(c))?(.*)").unwrap();
        assert_eq!((pattern.groups(), pattern.group("kind"), pattern.group("other")), (5, Some(1), None));
        let captures = pattern.captures(b"/ax").unwrap();
        assert_eq!(captures.group(0), Some(&b"/ax"[..]));
        assert_eq!(captures.group(1), Some(&b"a"[..]));
        assert_eq!((captures.group(2), captures.group(3), captures.group(9)), (None, None, None));
        assert_eq!(captures.group(4), Some(&b"x"[..]));
        assert_eq!(pattern.captures(b"/c"), None);
    }

    #[test]
    fn the_first_of_many_wins() {
        for count in [1, 3, 4, 50] {
            let mut patterns = Patterns::default();
            for index in 0..count {
                patterns.entry(&BytePattern::new(&format!("/{index}.*")).unwrap(), || index);
            }
            patterns.entry(&BytePattern::new("/0.*").unwrap(), || 99);
            patterns.link();
            for text in ["/0", "/1", "/10", "/44x", "/x"] {
                let expected: Vec<usize> =
                    (0..count).filter(|index| text.starts_with(&format!("/{index}"))).collect();
                assert_eq!(
                    patterns.matching(text.as_bytes()).copied().collect::<Vec<_>>(),
                    expected,
                    "{text} {count}"
                );
            }
        }
    }
}
