//! Remarks on directives that the result lacks, or that work differently in it.

use std::collections::HashMap;
use std::fmt;

/// Places of equal remarks that are listed, besides the first.
const PLACES_MAX: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RemarkKind {
    /// Vanward does the same without it, or has no use for it.
    NeedsNothing,
    /// Translated, but works differently.
    Differs,
    /// Not translated, because nothing that is translated uses it.
    Unused,
    Refused,
}

impl RemarkKind {
    /// The word in messages and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::NeedsNothing => "needs nothing",
            Self::Differs => "differs",
            Self::Unused | Self::Refused => "not taken over",
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

/// Equal remarks on equal directives.
#[derive(Debug, Clone)]
pub struct RepeatedRemark<'r> {
    pub first: &'r Remark,
    pub others: Vec<&'r Remark>,
}

/// Groups equal remarks on equal directives, in the order of the first of each.
pub fn repeated<'r>(remarks: impl IntoIterator<Item = &'r Remark>) -> Vec<RepeatedRemark<'r>> {
    let mut groups: Vec<RepeatedRemark<'r>> = Vec::new();
    let mut known: HashMap<(&str, RemarkKind, &str), usize> = HashMap::new();
    for remark in remarks {
        let group = (remark.directive.as_str(), remark.kind, remark.why.as_str());
        let group = *known.entry(group).or_insert(groups.len());
        match groups.get_mut(group) {
            Some(alike) => alike.others.push(remark),
            None => groups.push(RepeatedRemark { first: remark, others: Vec::new() }),
        }
    }
    groups
}

/// `nginx.conf:12: differs: expires 30d: why (3 places: also at 18, shop.conf:4)`
impl fmt::Display for RepeatedRemark<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, others } = self;
        let place = |other: &&Remark| match other.file == first.file {
            true => other.line.to_string(),
            false => format!("{}:{}", other.file, other.line),
        };
        let mut places: Vec<String> = others.iter().take(PLACES_MAX).map(place).collect();
        if let Some(more) = others.len().checked_sub(PLACES_MAX).filter(|more| *more > 0) {
            places.push(format!("{more} more"));
        }
        match places.as_slice() {
            [] => write!(formatter, "{first}"),
            places => {
                write!(formatter, "{first} ({} places: also at {})", others.len() + 1, places.join(", "))
            }
        }
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
