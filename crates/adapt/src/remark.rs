//! What is said of the directives of the other configuration: those that are not in the result, and those that work
//! differently there.

use std::fmt;

/// What became of a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It is not needed: Vanward does so by itself, or has nothing that it would be for.
    NeedsNothing,
    /// It was taken over, and works differently.
    Differs,
    /// It could not be taken over.
    Refused,
}

impl Kind {
    /// Its word in messages and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::NeedsNothing => "needs nothing",
            Self::Differs => "differs",
            Self::Refused => "not taken over",
        }
    }
}

/// A remark about one directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The directive as it was written, up to a hundred characters.
    pub directive: String,
    /// What became of it.
    pub kind: Kind,
    /// Why.
    pub why: String,
    /// What to do instead; empty if nothing has to be done.
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

/// A configuration that was turned into `vanward.toml`.
#[derive(Debug, Clone)]
pub struct Adapted {
    /// The text of `vanward.toml`.
    pub toml: String,
    /// Remarks, in the order in which the directives were read.
    pub remarks: Vec<Remark>,
    /// The number of directives, blocks included.
    pub directives: usize,
    /// How many of them are options in `toml`.
    pub taken: usize,
    /// How many need nothing.
    pub needless: usize,
}

impl Adapted {
    /// How many directives could not be taken over.
    pub fn refused(&self) -> usize {
        self.directives - self.taken - self.needless
    }
}
