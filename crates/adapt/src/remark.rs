//! Remarks on directives that the result lacks, or that work differently in it.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemarkKind {
    /// Vanward does the same without it, or has no use for it.
    NeedsNothing,
    /// Translated, but works differently.
    Differs,
    Refused,
}

impl RemarkKind {
    /// The word in messages and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::NeedsNothing => "needs nothing",
            Self::Differs => "differs",
            Self::Refused => "not taken over",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// As named by the caller.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// As written, up to a hundred characters.
    pub directive: String,
    pub kind: RemarkKind,
    pub why: String,
    /// The remedy; empty if none is necessary.
    pub instead: String,
}

/// `nginx.conf:12: not taken over: fastcgi_pass …: why; what to do instead`
impl fmt::Display for Remark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, directive, kind, why, instead } = self;
        write!(formatter, "{file}:{line}: {}: {directive}: {why}", kind.word())?;
        if instead.is_empty() { Ok(()) } else { write!(formatter, "; {instead}") }
    }
}

/// The result of a translation.
#[derive(Debug, Clone)]
pub struct Adapted {
    pub toml: String,
    /// In the order in which the directives were read.
    pub remarks: Vec<Remark>,
    /// The number of directives, including blocks.
    pub directives: usize,
    /// Directives that became options in `toml`.
    pub taken: usize,
    pub needless: usize,
}

impl Adapted {
    /// Returns the number of directives that could not be translated.
    pub fn refused(&self) -> usize {
        self.directives - self.taken - self.needless
    }
}
