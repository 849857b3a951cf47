//! A mistake in a configuration file: where it is, what it is, what was expected instead.

use std::fmt;

/// One thing that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The file as it was named.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub expected: Option<String>,
    /// The nearest valid name, for a misspelt one.
    pub nearest: Option<String>,
}

impl Mistake {
    /// The same, saying what would be right.
    pub(crate) fn expecting(self, expected: impl Into<String>) -> Self {
        Self { expected: Some(expected.into()), ..self }
    }

    /// The same, saying what was probably meant.
    pub(crate) fn meaning(self, nearest: Option<String>) -> Self {
        Self { nearest, ..self }
    }
}

/// `vanward.toml:12:3: unknown key "adress" in [[listen]]; expected address; did you mean "address"?`
impl fmt::Display for Mistake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, message, .. } = self;
        write!(formatter, "{file}:{line}:{column}: {message}")?;
        if let Some(expected) = &self.expected {
            write!(formatter, "; expected {expected}")?;
        }
        if let Some(nearest) = &self.nearest {
            write!(formatter, "; did you mean {nearest:?}?")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistake {}

/// From offsets to lines and columns.
pub(crate) struct Places<'t> {
    file: &'t str,
    text: &'t str,
    /// The offset of each line's first byte.
    lines: Vec<usize>,
}

impl<'t> Places<'t> {
    pub(crate) fn new(text: &'t str, file: &'t str) -> Self {
        let after_newlines = text.match_indices('\n').map(|(newline, _)| newline + 1);
        Self { file, text, lines: std::iter::once(0).chain(after_newlines).collect() }
    }

    /// What is written there.
    pub(crate) fn text(&self, at: &std::ops::Range<usize>) -> Option<&'t str> {
        self.text.get(at.clone())
    }

    /// The line of an offset, from 1.
    pub(crate) fn line(&self, offset: usize) -> usize {
        self.lines.partition_point(|start| *start <= offset)
    }

    pub(crate) fn mistake(&self, offset: usize, message: impl Into<String>) -> Mistake {
        let line = self.line(offset);
        let before = self.text.get(self.lines[line - 1]..offset).unwrap_or_default();
        let column = before.trim_start_matches('\u{feff}').chars().count() + 1;
        Mistake {
            file: self.file.to_owned(),
            line,
            column,
            message: message.into(),
            expected: None,
            nearest: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_characters() {
        let text = "\u{feff}a = 1\r\n\"\u{e9}\" = 2\n\n";
        let places = Places::new(text, "f");
        let place = |offset| {
            let mistake = places.mistake(offset, "");
            (mistake.line, mistake.column)
        };
        assert_eq!(place(0), (1, 1));
        assert_eq!(place(text.find('a').unwrap()), (1, 1));
        assert_eq!(place(text.find('1').unwrap()), (1, 5));
        assert_eq!(place(text.find('2').unwrap()), (2, 7));
        assert_eq!(place(text.len() - 1), (3, 1));
        assert_eq!(place(text.len()), (4, 1));
        // Within a character, or beyond the end: the line at least.
        assert_eq!(place(text.find('\u{e9}').unwrap() + 1).0, 2);
        assert_eq!(place(text.len() + 9).0, 4);
    }
}
