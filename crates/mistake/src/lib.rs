//! Mistakes in text files, with position, message, suggestion, and an excerpt of the line.
//!
//! The readers of files decide what is a mistake: those of the proxy's configuration, and of the lab's plans.

#![forbid(unsafe_code)]

/// Finds the valid name for a misspelt one.
mod nearest;
/// Masks the passwords in URLs.
mod password;
/// Rewords messages of libraries.
mod plain;
/// Groups mistakes with one sentence.
mod repeated;

use std::fmt;
use std::ops::Range;

pub use nearest::nearest;
pub use plain::{PlainWords, json_error, toml_syntax, value_error};
pub use repeated::{RepeatedMistake, repeated};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The file's name, as the user wrote it.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    pub message: String,
    /// The accepted values or syntax.
    pub expected: Option<String>,
    /// The valid name nearest to a misspelt one.
    pub nearest: Option<String>,
    /// The replacement for syntax from another program.
    pub hint: Option<String>,
    pub excerpt: Excerpt,
}

/// A part of a line, with a marked range.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Excerpt {
    /// Characters that a terminal would not show in one column are replaced by spaces.
    pub text: String,
    /// The number of characters before the marked ones.
    pub before: usize,
    /// The number of marked characters; at least 1.
    pub marked: usize,
}

/// The maximum length of an excerpt, in characters.
const SHOWN_MAX: usize = 100;
const SHOWN_BEFORE_MAX: usize = 60;
/// The number of characters on either side of the marked range in which passwords are searched for.
const READ_MAX: usize = 4096;

impl Mistake {
    #[must_use]
    pub fn expecting(self, expected: impl Into<String>) -> Self {
        Self { expected: Some(expected.into()), ..self }
    }

    #[must_use]
    pub fn meaning(self, nearest: Option<String>) -> Self {
        Self { nearest, ..self }
    }

    #[must_use]
    pub fn hinting(self, hint: Option<String>) -> Self {
        Self { hint, ..self }
    }

    /// The mistake in one line, without its position: `unknown key "adress" in [[listen]]; did you mean "address"?
    /// Expected address or name`.
    pub fn sentence(&self) -> String {
        let Self { message, expected, nearest, hint, .. } = self;
        let mut sentence = message.clone();
        let mut ends = "; ";
        if let Some(hint) = hint {
            sentence += &format!("; {hint}");
        }
        if let Some(nearest) = nearest {
            sentence += &format!("; did you mean {nearest:?}?");
            ends = " ";
        }
        if let Some(expected) = expected {
            let word = if nearest.is_some() { "Expected" } else { "expected" };
            sentence += &format!("{ends}{word} {expected}");
        }
        password::without(&sentence)
    }

    /// The line with carets below the marked characters; empty if there is no line to show.
    ///
    /// ```text
    ///    2 | adress = "127.0.0.1:8080"
    ///      | ^^^^^^
    /// ```
    pub fn shown(&self) -> String {
        let Excerpt { text, before, marked } = &self.excerpt;
        if text.trim().is_empty() {
            return String::new();
        }
        let (indent, carets) = (" ".repeat(*before), "^".repeat((*marked).max(1)));
        format!("{:>5} | {text}\n      | {indent}{carets}\n", self.line)
    }
}

/// The position and the mistake in one line: `vanward.toml:12:3: unknown key "adress" in [[listen]]; did you mean
/// "address"? Expected address or name`.
impl fmt::Display for Mistake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, .. } = self;
        write!(formatter, "{file}:{line}:{column}: {}", self.sentence())
    }
}

impl std::error::Error for Mistake {}

/// Maps byte offsets in a text to lines and columns.
pub struct LineMap<'t> {
    file: &'t str,
    text: &'t str,
    /// The byte offset of the start of each line.
    lines: Vec<usize>,
}

impl<'t> LineMap<'t> {
    /// `file` is used only in messages.
    pub fn new(text: &'t str, file: &'t str) -> Self {
        let after_newlines = text.match_indices('\n').map(|(newline, _)| newline + 1);
        Self { file, text, lines: std::iter::once(0).chain(after_newlines).collect() }
    }

    pub fn file(&self) -> &'t str {
        self.file
    }

    /// `None` if the range is out of bounds, or its ends are within characters.
    pub fn text(&self, at: &Range<usize>) -> Option<&'t str> {
        self.text.get(at.clone())
    }

    /// From 1.
    pub fn line(&self, offset: usize) -> usize {
        self.lines.partition_point(|start| *start <= offset)
    }

    /// The line and the column, both from 1.
    pub fn line_and_column(&self, offset: usize) -> (usize, usize) {
        (self.line(offset), self.before(offset).trim_start_matches('\u{feff}').chars().count() + 1)
    }

    /// The part of a line before this offset.
    fn before(&self, offset: usize) -> &'t str {
        self.text.get(self.lines[self.line(offset) - 1]..offset).unwrap_or_default()
    }

    /// Describes a mistake at this byte range of the text.
    pub fn mistake(&self, at: &Range<usize>, message: impl Into<String>) -> Mistake {
        let (line, column) = self.line_and_column(at.start);
        Mistake {
            file: self.file.to_owned(),
            line,
            column,
            message: message.into(),
            expected: None,
            nearest: None,
            hint: None,
            excerpt: excerpt(
                self.before(at.start),
                self.text.get(at.start..).unwrap_or_default(),
                self.text.get(at.clone()).unwrap_or_default(),
            ),
        }
    }
}

/// Shows the end of `before`, then `marked`, then the start of `behind`, with passwords masked. A line may be as long
/// as the file, so only the part near the marked range is read.
fn excerpt(before: &str, behind: &str, marked: &str) -> Excerpt {
    let plain = |character: char| if character.is_control() { ' ' } else { character };
    let in_line = |character: &char| !matches!(character, '\n' | '\r');
    let before = before.trim_start_matches('\u{feff}');
    let mut near: Vec<char> = before.chars().rev().take(READ_MAX).map(plain).collect();
    near.reverse();
    let start = near.len();
    near.extend(behind.chars().take_while(in_line).take(READ_MAX).map(plain));
    let end = start + marked.chars().take(READ_MAX).take_while(in_line).count();
    let (masked, [start, end]) = password::masked(&near, [start, end]);
    let first = start.saturating_sub(SHOWN_BEFORE_MAX);
    let shown = &masked[first..masked.len().min(first + SHOWN_MAX)];
    let (before, room) = (start - first, (first + shown.len() - start).max(1));
    let text: String = shown.iter().collect();
    Excerpt { text: text.trim_end().to_owned(), before, marked: (end - start).clamp(1, room) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_characters() {
        let text = "\u{feff}a = 1\r\n\"\u{e9}\" = 2\n\n";
        let places = LineMap::new(text, "f");
        let place = |offset| {
            let mistake = places.mistake(&(offset..offset), "");
            (mistake.line, mistake.column)
        };
        assert_eq!(place(0), (1, 1));
        assert_eq!(place(text.find('a').unwrap()), (1, 1));
        assert_eq!(place(text.find('1').unwrap()), (1, 5));
        assert_eq!(place(text.find('2').unwrap()), (2, 7));
        assert_eq!(place(text.len() - 1), (3, 1));
        assert_eq!(place(text.len()), (4, 1));
        // Within a character, or beyond the end: at least the line is right.
        assert_eq!(place(text.find('\u{e9}').unwrap() + 1).0, 2);
        assert_eq!(place(text.len() + 9).0, 4);
    }

    #[test]
    fn carets_are_below_the_marked_range() {
        let text = "\u{feff}a = 1\r\n\t\"\u{e9}\" = \"\u{1b}[2J\"  \n\nb = [\n1]";
        let places = LineMap::new(text, "f");
        let shown = |part: &str| {
            let start = text.find(part).unwrap();
            places.mistake(&(start..start + part.len()), "").shown()
        };
        assert_eq!(shown("a"), "    1 | a = 1\n      | ^\n");
        assert_eq!(shown("\"\u{e9}\""), "    2 |  \"\u{e9}\" = \" [2J\"\n      |  ^^^\n");
        // A range over several lines is marked in its first. Nothing is shown where there is no text.
        assert_eq!(shown("[\n1]"), "    4 | b = [\n      |     ^\n");
        assert_eq!(places.mistake(&(text.len()..text.len() + 5), "").shown(), "    5 | 1]\n      |   ^\n");
        assert_eq!(LineMap::new("", "f").mistake(&(0..0), "").shown(), "");
        let long = "x".repeat(1000) + "adress" + &"y".repeat(1000);
        let shown = LineMap::new(&long, "f").mistake(&(1000..1006), "").shown();
        let (line, carets) = shown.split_once('\n').unwrap();
        assert_eq!(line.find("adress"), carets.find("^^^^^^"));
        assert!(line.len() < 120, "{line}");
    }

    #[test]
    fn passwords_of_urls_are_neither_in_excerpts_nor_in_sentences() {
        let line = "servers = [\"http://user:secret@host/\", \"htp://other\"]\n";
        let places = LineMap::new(line, "f");
        let of = |part: &str| {
            let start = line.find(part).unwrap();
            places.mistake(&(start..start + part.len()), format!("{part} is wrong"))
        };
        let masked = "    1 | servers = [\"http://user:***@host/\", \"htp://other\"]\n";
        let behind = format!("      | {}^^^\n", " ".repeat(37));
        assert_eq!(of("htp").shown(), format!("{masked}{behind}"));
        assert_eq!(of("htp").column, 41, "where it is in the file");
        let whole = of("http://user:secret@host/");
        assert_eq!(whole.shown(), format!("{masked}      | {}{}\n", " ".repeat(12), "^".repeat(21)));
        assert_eq!(whole.to_string(), "f:1:13: http://user:***@host/ is wrong");
        // A range within the password marks the mask.
        assert_eq!(of("cret").shown(), format!("{masked}      | {}^^^\n", " ".repeat(24)));
        let far = format!("\"redis://:{}@host\" x", "p".repeat(2000));
        let shown = LineMap::new(&far, "f").mistake(&(far.len() - 1..far.len()), "").shown();
        assert_eq!(shown, format!("    1 | \"redis://:***@host\" x\n      | {}^\n", " ".repeat(20)));
    }

    #[test]
    fn the_nearest_name_comes_before_the_list() {
        let mistake = LineMap::new("adress = 1", "f").mistake(&(0..6), "unknown key \"adress\"");
        let meant = mistake.clone().expecting("address or name").meaning(Some("address".to_owned()));
        assert_eq!(
            meant.to_string(),
            "f:1:1: unknown key \"adress\"; did you mean \"address\"? Expected address or name"
        );
        let hinted = mistake.expecting("address or name").hinting(Some("it is called address".to_owned()));
        assert_eq!(
            hinted.to_string(),
            "f:1:1: unknown key \"adress\"; it is called address; expected address or name"
        );
    }
}
