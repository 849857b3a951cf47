//! Conditions on texts. Each yields texts that meet it, and texts that nearly do.

use regex_syntax::hir::{Class, Hir, HirKind};

/// Longer examples are cut.
const EXAMPLE_MAX: usize = 200;
const REPEATED_MAX: u32 = 64;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TextPattern {
    Exact(String),
    /// As [`TextPattern::Exact`], without case.
    ExactAnyCase(String),
    Prefix(String),
    Suffix(String),
    Contains(String),
    Regex {
        pattern: String,
        any_case: bool,
    },
    /// Any text, but not none.
    Present,
}

impl TextPattern {
    /// Texts that meet the condition; none for an expression that is not understood.
    pub(crate) fn matching(&self, random: &mut Random) -> Vec<String> {
        let texts = match self {
            Self::Exact(text) => vec![text.clone()],
            Self::ExactAnyCase(text) => vec![text.clone(), text.to_ascii_uppercase()],
            Self::Prefix(text) => vec![text.clone(), format!("{text}{}", random.word())],
            Self::Suffix(text) => vec![format!("{}{text}", random.word())],
            Self::Contains(text) => vec![text.clone(), format!("a {text}/1.0")],
            Self::Regex { pattern, .. } => of_expression(pattern, random),
            Self::Present => vec![random.word()],
        };
        let mut made: Vec<String> =
            texts.into_iter().filter(|text| self.holds(text) != Some(false)).collect();
        made.dedup();
        made
    }

    /// Texts that are close to the condition, and do not meet it.
    pub(crate) fn nearly(&self, random: &mut Random) -> Vec<String> {
        let Some(whole) = self.matching(random).into_iter().next() else { return Vec::new() };
        let mut shorter = whole.clone();
        shorter.pop();
        let swapped: String = whole.chars().map(swap_case).collect();
        let changed: String = {
            let count = whole.chars().count();
            let place = if count == 0 { 0 } else { random.below(count) };
            let other = |(index, letter)| if index == place && letter != '/' { 'q' } else { letter };
            whole.chars().enumerate().map(other).collect()
        };
        let longer = [format!("{whole}x"), format!("x{whole}")];
        let mut near = vec![shorter, swapped, changed];
        near.extend(longer);
        near.retain(|text| *text != whole && self.holds(text) == Some(false));
        near.dedup();
        near
    }

    /// Whether a text meets the condition; `None` if the expression is not understood.
    pub(crate) fn holds(&self, text: &str) -> Option<bool> {
        Some(match self {
            Self::Exact(whole) => text == whole,
            Self::ExactAnyCase(whole) => text.eq_ignore_ascii_case(whole),
            Self::Prefix(start) => text.starts_with(start.as_str()),
            Self::Suffix(end) => text.ends_with(end.as_str()),
            Self::Contains(part) => text.contains(part.as_str()),
            Self::Regex { pattern, any_case } => {
                let mut builder = regex::RegexBuilder::new(pattern);
                let built = builder.case_insensitive(*any_case).size_limit(1 << 20).build();
                return built.ok().map(|regex| regex.is_match(text));
            }
            Self::Present => !text.is_empty(),
        })
    }
}

fn swap_case(letter: char) -> char {
    if letter.is_ascii_lowercase() { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() }
}

/// Texts that match an expression. Assertions of PCRE that Rust's expressions lack are left out.
fn of_expression(pattern: &str, random: &mut Random) -> Vec<String> {
    let parsed = regex_syntax::parse(pattern).ok();
    let parsed = parsed.or_else(|| regex_syntax::parse(&adapt::without_assertions(pattern)).ok());
    let Some(hir) = parsed else { return Vec::new() };
    let mut texts = Vec::new();
    for _ in 0..3 {
        let mut text = String::new();
        write(&hir, random, &mut text);
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts
}

fn write(hir: &Hir, random: &mut Random, text: &mut String) {
    if text.len() > EXAMPLE_MAX {
        return;
    }
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => text.push_str(&String::from_utf8_lossy(&literal.0)),
        HirKind::Class(class) => text.push(of_class(class, random)),
        HirKind::Repetition(repetition) => {
            let least = repetition.min.min(REPEATED_MAX);
            let most = repetition.max.unwrap_or(least + 3).min(least + 3);
            let count = least + random.below((most - least) as usize + 1) as u32;
            for _ in 0..count {
                write(&repetition.sub, random, text);
            }
        }
        HirKind::Capture(capture) => write(&capture.sub, random, text),
        HirKind::Concat(parts) => parts.iter().for_each(|part| write(part, random, text)),
        HirKind::Alternation(parts) => {
            if let Some(part) = parts.get(random.below(parts.len())) {
                write(part, random, text);
            }
        }
    }
}

/// A letter of a class: one that stands in paths if there is one.
fn of_class(class: &Class, random: &mut Random) -> char {
    const USUAL: &str = "abcdefghijklmnopqrstuvwxyz0123456789-_";
    let is_in = |letter: char| match class {
        Class::Unicode(class) => class.iter().any(|range| (range.start()..=range.end()).contains(&letter)),
        Class::Bytes(class) => {
            class.iter().any(|range| (range.start()..=range.end()).contains(&(letter as u8)))
        }
    };
    let usual: Vec<char> = USUAL.chars().filter(|letter| is_in(*letter)).collect();
    if let Some(letter) = usual.get(random.below(usual.len().max(1))) {
        return *letter;
    }
    match class {
        Class::Unicode(class) => class.iter().next().map_or('a', regex_syntax::hir::ClassUnicodeRange::start),
        Class::Bytes(class) => class.iter().next().map_or('a', |range| char::from(range.start())),
    }
}

/// Reproducible numbers (SplitMix64).
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 for an `end` of 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { (self.next() % end as u64) as usize }
    }

    pub(crate) fn word(&mut self) -> String {
        const WORDS: [&str; 6] = ["x", "item", "a1", "Users", "7", "app"];
        WORDS[self.below(WORDS.len())].to_owned()
    }

    pub(crate) fn one<'t, T>(&mut self, of: &'t [T]) -> Option<&'t T> {
        of.get(self.below(of.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regex(pattern: &str, any_case: bool) -> TextPattern {
        TextPattern::Regex { pattern: pattern.to_owned(), any_case }
    }

    #[test]
    fn examples_meet_the_condition_and_near_ones_do_not() {
        let patterns = [
            TextPattern::Exact("/api".to_owned()),
            TextPattern::ExactAnyCase("GET".to_owned()),
            TextPattern::Prefix("/api/".to_owned()),
            TextPattern::Suffix(".php".to_owned()),
            TextPattern::Contains("bot".to_owned()),
            regex(r"\.(jpe?g|png)$", false),
            regex(r"^/user/([0-9]{2,})/[^/]+$", false),
            regex("^(curl|wget)", true),
            regex(r"^[\w-]+\.example\.com$", false),
            regex(r"^.+-[0-9a-f]{32}\.css$", true),
        ];
        for pattern in patterns {
            let mut random = Random::new(1);
            let (matching, near) = (pattern.matching(&mut random), pattern.nearly(&mut random));
            assert!(!matching.is_empty() && !near.is_empty(), "{pattern:?}: {matching:?} {near:?}");
            assert!(matching.iter().all(|text| pattern.holds(text) == Some(true)), "{matching:?}");
            assert!(near.iter().all(|text| pattern.holds(text) == Some(false)), "{near:?}");
        }
    }

    #[test]
    fn assertions_of_pcre_are_left_out_of_examples() {
        let pattern = regex(r"^/(?!admin(x|y))[a-z]{3}/(?=b)b", false);
        let made = pattern.matching(&mut Random::new(2));
        assert!(made.iter().all(|text| text.starts_with('/') && text.ends_with("/b")), "{made:?}");
        assert_eq!(pattern.nearly(&mut Random::new(2)), Vec::<String>::new());
    }

    #[test]
    fn a_seed_gives_the_same_numbers() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            (0..9).map(|_| random.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        assert_eq!(Random::new(1).below(0), 0);
    }
}
