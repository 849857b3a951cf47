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

/// `vanward.toml:12:3: unknown key "adress"; expected address; did you mean "address"?`
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
