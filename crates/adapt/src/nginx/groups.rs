//! Groups of the expression in an `if`, as pieces of the text that it is matched against.
//!
//! Vanward's expressions have no groups. A group that is always a whole segment of a path, or a whole label of a host, is a
//! piece of that text, which `split` gives. Other groups have no translation here.

use std::rc::Rc;

use super::syntax::Directive;
use super::variables::{ResolvedVariable, TextPart, VariableValue};

/// A group that is a piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GroupPiece {
    /// As in `$1`.
    pub(super) number: usize,
    /// As in `(?<name>…)`.
    pub(super) name: Option<String>,
    /// The piece, as `fact` of `facts` knows it.
    fact: String,
}

impl GroupPiece {
    /// The value of the group.
    pub(super) fn resolved(&self) -> Rc<ResolvedVariable> {
        let value = VariableValue::Text(vec![TextPart::NginxFact(self.fact.clone())]);
        Rc::new(ResolvedVariable { value, is_of_block: true, ..ResolvedVariable::constant("") })
    }
}

/// Returns the character that separates the pieces of a variable's text.
pub(super) fn separator(variable: &str) -> Option<char> {
    match variable {
        "uri" | "document_uri" => Some('/'),
        "host" => Some('.'),
        "args" | "query_string" => Some('='),
        _ => None,
    }
}

/// The variable and the expression of an `if ($variable ~ expression)`, and whether the latter ignores case; `None` if the
/// condition has another form.
pub(super) fn of_if(block: &Directive) -> Option<(&str, &str, bool)> {
    let mut words: Vec<&str> = block.words.iter().map(String::as_str).collect();
    *words.first_mut()? = words.first()?.strip_prefix('(')?;
    *words.last_mut()? = words.last()?.strip_suffix(')')?;
    words.retain(|word| !word.is_empty());
    let [variable, sign, pattern] = words.as_slice() else { return None };
    let ignores_case = match *sign {
        "~" => false,
        "~*" => true,
        _ => return None,
    };
    Some((variable.strip_prefix('$')?, pattern, ignores_case))
}

/// The groups of an expression that are pieces of the variable that it is matched against, up to the first part that may be
/// several pieces.
pub(super) fn pieces(variable: &str, pattern: &str) -> Vec<GroupPiece> {
    let Some(separator) = separator(variable) else { return Vec::new() };
    let Some(mut rest) = pattern.strip_prefix('^') else { return Vec::new() };
    let mut found = Vec::new();
    for index in 0.. {
        match rest.strip_prefix('(') {
            Some(group) => {
                let Some((name, behind)) = whole_piece(group, separator) else { break };
                let fact = format!("{variable}[{index}]");
                found.push(GroupPiece { number: found.len() + 1, name, fact });
                rest = behind;
            }
            None => rest = &rest[literal_bytes(rest, separator)..],
        }
        match behind_separator(rest, separator) {
            Some(behind) => rest = behind,
            None => break,
        }
    }
    found
}

/// Returns the number of groups of an expression; 0 if it has a mistake.
pub(super) fn count(expression: &str) -> usize {
    regex::Regex::new(expression).map_or(0, |expression| expression.captures_len() - 1)
}

/// Reads a group behind its `(`. Returns its name and what follows, if it is always a whole piece.
fn whole_piece(group: &str, separator: char) -> Option<(Option<String>, &str)> {
    let (name, group) = match group.strip_prefix('?') {
        None => (None, group),
        Some(named) => {
            let (name, group) = named.trim_start_matches('P').strip_prefix('<')?.split_once('>')?;
            (Some(name.to_owned()), group)
        }
    };
    let (inner, behind) = group.split_once(')')?;
    // A class without the separator, once or more.
    let class = inner.strip_suffix(['+', '*'])?;
    let ends = behind.is_empty() || behind == "$" || begins_with(behind, separator);
    let is_delimited = behind == "$" || behind_separator(behind, separator).is_some();
    let is_whole = match class.strip_prefix('[').and_then(|class| class.strip_suffix(']')) {
        // All but the separator: as much as there is.
        Some(class)
            if class
                .strip_prefix('^')
                .is_some_and(|class| class.trim_start_matches('\\').chars().eq([separator])) =>
        {
            ends
        }
        Some(class) => is_delimited && is_plain_class(class),
        None => is_delimited && matches!(class, "\\d" | "\\w"),
    };
    is_whole.then_some((name, behind))
}

/// Whether a class has nothing but letters, digits, `_` and `-`.
fn is_plain_class(class: &str) -> bool {
    let plain = class.replace("\\d", "0").replace("\\w", "a");
    !plain.is_empty() && plain.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// The bytes of the text at the start that stands for itself, without a separator.
fn literal_bytes(text: &str, separator: char) -> usize {
    let is_literal =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'~' | b'=' | b'&' | b'/');
    let is_separator = |byte: u8| separator == char::from(byte);
    let mut len = text.bytes().take_while(|byte| is_literal(*byte) && !is_separator(*byte)).count();
    // The last character may be repeated, or absent.
    if text[len..].starts_with(['?', '*', '+', '{']) {
        len = len.saturating_sub(1);
    }
    len
}

fn begins_with(text: &str, separator: char) -> bool {
    match separator {
        '.' => text.starts_with("\\."),
        separator => text.starts_with(separator),
    }
}

/// Returns the text behind a separator at its beginning that occurs exactly once.
fn behind_separator(text: &str, separator: char) -> Option<&str> {
    if !begins_with(text, separator) {
        return None;
    }
    let behind = &text[if separator == '.' { 2 } else { 1 }..];
    (!behind.starts_with(['?', '*', '+', '{'])).then_some(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pieces_are_found_up_to_the_first_part_that_may_be_several() {
        for (variable, pattern, expected) in [
            ("uri", "^/a/([^/]+)", "1=uri[2]"),
            ("uri", "^/a/([^/]*)/b/([^/]+)$", "1=uri[2] 2=uri[4]"),
            ("uri", "^/([a-z0-9_-]+)/(\\d+)$", "1=uri[1] 2=uri[2]"),
            ("document_uri", "^/(?<tenant>[^/]+)/", "1=document_uri[1]:tenant"),
            ("host", "^([^.]+)\\.example\\.com$", "1=host[0]"),
            ("host", "^(?P<app>[a-z]+)\\.(\\w+)\\.example$", "1=host[0]:app 2=host[1]"),
            ("host", "^www\\.([^\\.]+)\\.", "1=host[1]"),
            ("args", "^id=([0-9]+)$", "1=args[1]"),
            // A part of a piece, several pieces, or maybe none.
            ("uri", "^/a/(.*)$", ""),
            ("uri", "/a/([^/]+)", ""),
            ("uri", "^/a/([a-z]+)", ""),
            ("uri", "^/v([0-9]+)/", ""),
            ("uri", "^/a/?([^/]+)", ""),
            ("uri", "^/a/([^/]+)x", ""),
            ("uri", "^/a/([^/]+)?/", ""),
            ("uri", "^/a.b/([^/]+)$", ""),
            ("uri", "^/([^/]+)/.*/([^/]+)$", "1=uri[1]"),
            ("uri", "^/(a|b)/([^/]+)$", ""),
            ("uri", "^/(?:[^/]+)/([^/]+)$", ""),
            ("uri", "^/([^/.]+)/", ""),
            ("host", "^([^.]+).example.com$", ""),
            ("host", "^(.+)\\.example\\.com$", ""),
            ("host", "^(?:www\\.)?([^.]+)\\.", ""),
            ("args", "^id=([^&]+)$", ""),
            ("http_x", "^([^.]+)$", ""),
        ] {
            let found = pieces(variable, pattern);
            let written: Vec<String> = found
                .iter()
                .map(|piece| {
                    let name = piece.name.as_ref().map(|name| format!(":{name}")).unwrap_or_default();
                    format!("{}={}{name}", piece.number, piece.fact)
                })
                .collect();
            assert_eq!(written.join(" "), expected, "{pattern}");
        }
    }
}
