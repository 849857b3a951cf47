//! Expressions that look ahead in one alternative, as several that do not: `^(a|b(?!c)|d)e` is `^(a|d)e`, or `^be` without
//! `^bc`.
//!
//! This holds where the text before has one length only, so that there is one place to look ahead from.

use crate::values::{choice, closing};

/// An expression in parts, each without a look ahead.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts {
    /// The other alternatives.
    pub(super) others: Option<String>,
    /// The alternative, whatever follows.
    pub(super) with: String,
    /// An expression that must not match then.
    pub(super) not: String,
}

const SIGN: &str = "(?!";

/// Splits an expression with one `(?!…)`, from the start of the text; `None` for others.
pub(super) fn split(pattern: &str) -> Option<Parts> {
    let at = pattern.find(SIGN)?;
    let (before, rest) = (&pattern[..at], &pattern[at + SIGN.len()..]);
    let end = closing(rest)?;
    let (word, behind) = (&rest[..end], &rest[end + 1..]);
    let has_more = [behind, word].iter().any(|text| text.contains("(?=") || text.contains(SIGN));
    if !before.starts_with('^') || has_more {
        return None;
    }
    let (mut path, mut starts) = (String::from("^"), Vec::new());
    let mut letters = before.char_indices().skip(1).peekable();
    while let Some((place, letter)) = letters.next() {
        match letter {
            '\\' => {
                let (_, escaped) = letters.next()?;
                // A class such as `\d` is one letter, too; `\b` and others are none.
                if escaped.is_ascii_alphabetic() && !"dws".contains(escaped) {
                    return None;
                }
                path.extend(['\\', escaped]);
            }
            '(' => starts.push((place + 1, path.len(), place + 1)),
            ')' | '[' | '{' | '}' | '*' | '+' | '?' | '.' | '^' | '$' => return None,
            // Without a group, it is a choice of the whole expression.
            '|' => {
                let (first, length, _) = starts.pop()?;
                path.truncate(length);
                starts.push((first, length, place + 1));
            }
            letter => path.push(letter),
        }
    }
    let mut tail = behind;
    let (mut cut, mut is_alone) = (None, true);
    for (depth, (first, _, own)) in starts.iter().rev().enumerate() {
        let end = closing(tail)?;
        let others_behind = choice(&tail[..end]);
        let has_others = *own > *first || others_behind.is_some();
        let inside = others_behind.unwrap_or(end);
        if depth > 0 && inside > 0 && is_alone {
            return None;
        }
        if has_others && cut.is_none() {
            // The alternative, from its bar to the next one.
            let from = if *own > *first { own - 1 } else { *first };
            let behind_at = pattern.len() - tail.len() + inside;
            let to = if *own > *first { behind_at } else { behind_at + 1 };
            cut = Some(format!("{}{}", &pattern[..from], &pattern[to..]));
        }
        is_alone &= !has_others;
        path += &tail[..inside];
        tail = &tail[end + 1..];
        if tail.starts_with(['*', '+', '?', '{']) {
            return None;
        }
    }
    let not = {
        let mut fixed = String::from("^");
        fixed += path.get(1..path.len() - inside_length(&path, behind, &starts)).unwrap_or_default();
        format!("{fixed}(?:{word})")
    };
    Some(Parts { others: cut, with: format!("{path}{tail}"), not })
}

/// How much of the path is from behind the place that looks ahead.
fn inside_length(path: &str, behind: &str, starts: &[(usize, usize, usize)]) -> usize {
    let mut tail = behind;
    let mut length = 0;
    for _ in starts {
        let Some(end) = closing(tail) else { break };
        length += choice(&tail[..end]).unwrap_or(end);
        tail = &tail[end + 1..];
    }
    length.min(path.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alternative_that_looks_ahead_becomes_two_conditions() {
        let split = |pattern: &str| split(pattern).map(|Parts { others, with, not }| (others, with, not));
        let parts = |others: Option<&str>, with: &str, not: &str| {
            Some((others.map(str::to_owned), with.to_owned(), not.to_owned()))
        };
        for (pattern, expected) in [
            (
                r"^(docker\/1\.(3|4|5(?!\.[0-9]-dev))|Go ).*$",
                parts(
                    Some(r"^(docker\/1\.(3|4)|Go ).*$"),
                    r"^docker\/1\.5.*$",
                    r"^docker\/1\.5(?:\.[0-9]-dev)",
                ),
            ),
            (r"^/a(?!b).*$", parts(None, "^/a.*$", "^/a(?:b)")),
            ("^(a(?!b)|c)$", parts(Some("^(c)$"), "^a$", "^a(?:b)")),
            // There may be several places to look ahead from.
            ("^a*(?!b)", None),
            ("^(ab)+(?!c)", None),
            ("a(?!b)", None),
            ("^.(?!b)", None),
            ("^a(?!b)c(?!d)", None),
            ("^a|b(?!c)", None),
            ("^a$", None),
        ] {
            assert_eq!(split(pattern), expected, "{pattern}");
        }
    }
}
