//! Regular expressions that are looked for in a text, as CEL does; `^` and `$` tie them to its ends.
//!
//! Matching takes time linear in the text. The cost of compiling, and of the compiled pattern, is limited.

use std::fmt;
use std::ops::Range;

use regex::bytes::{Regex, RegexBuilder};

/// The longest pattern, as it is written.
const PATTERN_BYTES_MAX: usize = 4096;
/// Sizes of compiled patterns, each with its weight: in the worst case, a search takes the size times the text. A pattern has
/// the first size that suffices.
const SIZES: [(usize, u64); 4] = [(8 * 1024, 1), (32 * 1024, 4), (128 * 1024, 16), (256 * 1024, 32)];
/// The size limit of the cache of one search.
const CACHE_BYTES_MAX: usize = 1024 * 1024;
/// The deepest nesting of groups.
const NESTING_MAX: u32 = 50;

/// A compiled regular expression over bytes.
///
/// A clone has its own scratch space: threads that share a pattern sometimes wait for each other.
#[derive(Clone)]
pub(crate) struct Pattern {
    text: Box<str>,
    regex: Regex,
    weight: u64,
}

/// Why a pattern is invalid, and where in the pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PatternFault {
    pub(crate) offset: usize,
    pub(crate) what: String,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Result<Self, PatternFault> {
        let fault = |what: String| PatternFault { offset: 0, what };
        if text.len() > PATTERN_BYTES_MAX {
            return Err(fault(format!(
                "it has {} bytes; at most {PATTERN_BYTES_MAX} are allowed",
                text.len()
            )));
        }
        let mut builder = RegexBuilder::new(text);
        builder.unicode(false).nest_limit(NESTING_MAX).dfa_size_limit(CACHE_BYTES_MAX);
        for (size, weight) in SIZES {
            match builder.size_limit(size).build() {
                Ok(regex) => return Ok(Self { text: text.into(), regex, weight }),
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(error) => return Err(syntax_fault(text, &error)),
            }
        }
        Err(fault("its compiled form is too large; use smaller repetition counts".to_owned()))
    }

    /// The factor of the cost of a search.
    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }

    /// The place of the first match.
    pub(crate) fn first_in(&self, text: &[u8]) -> Option<Range<usize>> {
        self.regex.find(text).map(|found| found.range())
    }

    #[inline]
    pub(crate) fn is_in(&self, text: &[u8]) -> bool {
        self.regex.is_match(text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Pattern({:?})", self.text)
    }
}

/// `regex` draws the place over several lines; its parser gives it as a number.
fn syntax_fault(text: &str, error: &regex::Error) -> PatternFault {
    let mut builder = regex_syntax::ParserBuilder::new();
    builder.unicode(false).utf8(false).nest_limit(NESTING_MAX);
    let (offset, what) = match builder.build().parse(text) {
        Err(regex_syntax::Error::Parse(error)) => (error.span().start.offset, error.kind().to_string()),
        Err(regex_syntax::Error::Translate(error)) => (error.span().start.offset, error.kind().to_string()),
        _ => (0, error.to_string()),
    };
    PatternFault { offset, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_patterns_cost_more() {
        for (text, weight) in [
            ("^/files/[0-9]+$", Some(1)),
            (r"(?i)(googlebot|bingbot|yandexbot|duckduckbot|baiduspider|applebot|petalbot)", Some(1)),
            ("[ab]{200}", Some(4)),
            (r"(?u)^\w+$", Some(16)),
            ("(a{100}){100}", None),
        ] {
            assert_eq!(Pattern::new(text).ok().map(|pattern| pattern.weight()), weight, "{text}");
        }
    }
}
