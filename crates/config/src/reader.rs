//! State of reading a file: its syntax tree, and the mistakes so far.
//!
//! After a syntax error the rest is still read, so that one run shows everything. Conclusions that a broken file does
//! not allow are avoided: a broken value is skipped, and nothing is called missing where a part was lost.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::foreign;
use crate::value_error::ValueError;
use mistake::{Mistake, Places};

/// The nesting beyond which a value is treated as one piece; no table of a configuration is deeper.
const DEEPEST_TABLE: usize = 8;

/// The most mistakes that are kept. A file with more is probably of another kind.
const MOST_MISTAKES: usize = 1000;

/// A range of bytes in the text.
pub(crate) type Span = Range<usize>;

/// Collects the mistakes of one file.
pub(crate) struct Reader<'t> {
    places: Places<'t>,
    mistakes: Vec<Mistake>,
    /// How many mistakes were dropped because of the limit.
    dropped: usize,
    warnings: Vec<Mistake>,
    /// The positions of keys whose values have a syntax error.
    broken: HashSet<usize>,
    /// How many of the broken values were skipped so far.
    skipped: usize,
    /// Whether no part of the file was lost to a syntax error.
    whole: bool,
}

impl<'t> Reader<'t> {
    /// Parses the syntax of `text`.
    pub(crate) fn new(text: &'t str, file: &'t str) -> (Self, Spanned<DeTable<'t>>) {
        let (root, errors) = DeTable::parse_recoverable(text);
        let mut reader = Self {
            places: Places::new(text, file),
            mistakes: Vec::new(),
            dropped: 0,
            warnings: Vec::new(),
            broken: HashSet::new(),
            skipped: 0,
            whole: true,
        };
        reader.syntax_errors(text, &errors, &pieces_of(&root, text));
        (reader, root)
    }

    /// One mistake for each broken value or, outside of values, for each line: what follows within it is
    /// mostly the parser's guess at what the first error meant.
    fn syntax_errors(&mut self, text: &str, errors: &[toml::de::Error], pieces: &[Span]) {
        let mut spans: Vec<(Span, &str)> =
            errors.iter().map(|error| (error.span().unwrap_or(0..0), error.message())).collect();
        spans.sort_by_key(|(span, _)| span.start);
        let mut lines = HashSet::new();
        for (span, message) in spans {
            if self.is_full() {
                self.whole = false;
                self.dropped += 1;
                break;
            }
            let candidate = pieces.partition_point(|piece| piece.start <= span.start).checked_sub(1);
            let piece = candidate.map(|index| &pieces[index]).filter(|piece| span.start <= piece.end);
            let is_first = match piece {
                Some(piece) => self.broken.insert(piece.start),
                None => {
                    self.whole = false;
                    lines.insert(self.places.line(span.start))
                }
            };
            if is_first {
                let mistake = syntax_mistake(&self.places, text, &span, message);
                // Of other proxies most lines are no TOML.
                let hint = if piece.is_none() { foreign::line(&mistake.excerpt.text) } else { None };
                let mistake = mistake.hinting(hint.map(str::to_owned));
                self.add(mistake);
            }
        }
    }

    /// Whether the value of the key at `key` has a syntax error, which is already reported. If so, the value counts as
    /// rejected.
    pub(crate) fn skip_broken(&mut self, key: &Span) -> bool {
        let is_broken = self.broken.contains(&key.start);
        self.skipped += usize::from(is_broken);
        is_broken
    }

    /// How many values were rejected so far.
    pub(crate) fn refused(&self) -> usize {
        self.mistakes.len() + self.dropped + self.skipped
    }

    /// Whether the file is complete, so that what was not found is really missing.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// The line of a position, from 1.
    pub(crate) fn line(&self, at: &Span) -> usize {
        self.places.line(at.start)
    }

    /// Makes a mistake at a position. Pass it to `add` when it is complete.
    pub(crate) fn mistake(&self, at: &Span, message: impl Into<String>) -> Mistake {
        // Finding a column costs a walk along its line: not for what won't be kept.
        self.places.mistake(if self.is_full() { &(0..0) } else { at }, message)
    }

    pub(crate) fn add(&mut self, mistake: Mistake) {
        if self.is_full() {
            self.dropped += 1;
        } else {
            self.mistakes.push(mistake);
        }
    }

    /// Adds a warning: the setting is valid, but probably unintended.
    pub(crate) fn warn(&mut self, warning: Mistake) {
        if self.warnings.len() < MOST_MISTAKES && !self.is_full() {
            self.warnings.push(warning);
        }
    }

    fn is_full(&self) -> bool {
        self.mistakes.len() >= MOST_MISTAKES
    }

    /// Adds a mistake about the value of the option `name`.
    pub(crate) fn refuse(&mut self, at: &Span, name: &str, error: &ValueError) {
        let at = &error.fault.offset().map_or(at.clone(), |offset| self.within(at, offset));
        let mistake = self.mistake(at, format!("{name}: {}", error.fault));
        self.add(mistake.expecting(error.expected).meaning(error.fault.meant()));
    }

    /// The position of a byte in a string if the file contains the string literally, otherwise the position of the
    /// string.
    fn within(&self, string: &Span, offset: usize) -> Span {
        let quote =
            |text: &str| !text.starts_with(r#"""""#) && !text.starts_with("'''") && !text.contains('\\');
        let is_verbatim = self.places.text(string).is_some_and(quote);
        let start = if is_verbatim { (string.start + 1 + offset).min(string.end) } else { string.start };
        start..string.end
    }

    pub(crate) fn has_mistakes(&self) -> bool {
        !self.mistakes.is_empty()
    }

    /// Returns all mistakes and warnings, in the order of the file. If there were too many, only the first ones found.
    pub(crate) fn finish(mut self) -> (Vec<Mistake>, Vec<Mistake>) {
        self.mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
        if let Some(last) = self.mistakes.last().filter(|_| self.dropped > 0) {
            let message = format!("there are more mistakes than these {MOST_MISTAKES}");
            self.mistakes.push(Mistake {
                message,
                expected: None,
                nearest: None,
                hint: None,
                ..last.clone()
            });
        }
        self.warnings.sort_by_key(|warning| (warning.line, warning.column));
        (self.mistakes, self.warnings)
    }
}

/// Where each key with its value begins and ends, in the order of the file.
fn pieces_of(root: &Spanned<DeTable<'_>>, text: &str) -> Vec<Span> {
    let mut pieces = Vec::new();
    collect_pieces(root.get_ref(), text, 0, &mut pieces);
    pieces.sort_by_key(|piece| piece.start);
    pieces
}

fn collect_pieces(table: &DeTable<'_>, text: &str, depth: usize, pieces: &mut Vec<Span>) {
    for (key, value) in table.iter() {
        let is_inline = text.get(value.span()).is_some_and(|written| written.starts_with('{'));
        match value.get_ref() {
            DeValue::Table(inner) if depth < DEEPEST_TABLE && !is_inline => {
                collect_pieces(inner, text, depth + 1, pieces);
            }
            DeValue::Array(tables) if depth < DEEPEST_TABLE && has_headers(value.span(), tables) => {
                for inner in tables.iter().filter_map(|table| table.get_ref().as_table()) {
                    collect_pieces(inner, text, depth + 1, pieces);
                }
            }
            _ => pieces.push(key.span().start..value.span().end),
        }
    }
}

/// The place of an array of `[[tables]]` is its first header; that of `[…]` is around all its elements.
fn has_headers(array: Span, elements: &[Spanned<DeValue<'_>>]) -> bool {
    elements.first().is_some_and(|first| first.span() == array)
}

/// The parser's words, without its grammar's.
fn syntax_mistake(places: &Places<'_>, text: &str, span: &Span, message: &str) -> Mistake {
    let (message, expected) = match message.split_once(", expected ") {
        Some((message, expected)) => (message, Some(expected)),
        None => (message, None),
    };
    let written = text.get(span.clone()).unwrap_or_default();
    let (message, expected): (Cow<'_, str>, Option<Cow<'_, str>>) = match message {
        "string values must be quoted" if written.is_empty() => ("a value is missing after =".into(), None),
        "string values must be quoted" => {
            let quoted =
                (!written.contains(['"', '\\', '\n'])).then(|| format!("text in quotes: \"{written}\""));
            (format!("{written} is not a value").into(), quoted.map(Cow::from))
        }
        "duplicate key" => (format!("{written:?} is there twice").into(), None),
        _ => (message.into(), expected.filter(|expected| *expected != "nothing").map(Cow::from)),
    };
    let mistake = places.mistake(span, message);
    Mistake { expected: expected.map(Cow::into_owned), ..mistake }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (Vec<String>, bool) {
        let (reader, _) = Reader::new(text, "f");
        let whole = reader.is_whole();
        (reader.finish().0.iter().map(ToString::to_string).collect(), whole)
    }

    #[test]
    fn syntax_errors_one_for_each_broken_value_or_line() {
        for (text, said, whole) in [
            ("a = 1\n", &[][..], true),
            ("a = 10s\n", &["f:1:5: 10s is not a value; expected text in quotes: \"10s\""], true),
            (
                "a = \nb = 2\nc = \n",
                &["f:1:5: a value is missing after =", "f:3:5: a value is missing after ="],
                true,
            ),
            ("a = \"b\nc = 1\n", &["f:1:7: invalid basic string; expected `\"`"], true),
            ("a = 08\n", &["f:1:5: unexpected leading zero"], true),
            ("a = 1\na = 2\n", &["f:2:1: \"a\" is there twice"], false),
            ("[t]\n[t]\nb = 1\n", &["f:2:2: \"t\" is there twice"], false),
            (
                "a\nb c\n",
                &["f:1:2: key with no value; expected `=`", "f:2:3: key with no value; expected `=`"],
                false,
            ),
        ] {
            assert_eq!(of(text), (said.iter().map(ToString::to_string).collect(), whole), "{text}");
        }
        // An unclosed array swallows what follows: one mistake, not one a token.
        assert_eq!(of("a = [1,\nb = 2\nc = 3\n[d]\ne = 1\n").0.len(), 1);
    }

    #[test]
    fn of_very_many_mistakes_the_first_are_kept() {
        let text =
            format!("limits = {{ {} }}", (0..20_000).map(|n| format!("k{n} = 1, ")).collect::<String>());
        for text in [text, "a b\n".repeat(20_000)] {
            let mistakes = crate::parse(&text, "f").unwrap_err();
            assert_eq!(mistakes.len(), MOST_MISTAKES + 1);
            assert_eq!(mistakes[MOST_MISTAKES].message, "there are more mistakes than these 1000");
        }
    }

    #[test]
    fn deep_nesting_is_refused_not_followed() {
        for text in [
            format!("a = {}", "[".repeat(100_000)),
            format!("a = {}", "{a=".repeat(100_000)),
            format!("[{}a]", "a.".repeat(100_000)),
            format!("{}a = 1", "a.".repeat(100_000)),
        ] {
            let (reader, _root) = Reader::new(&text, "f");
            drop(reader);
        }
    }
}
