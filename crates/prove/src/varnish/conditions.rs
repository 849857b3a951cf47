//! Conditions of VCL, as conditions on requests.

use super::{Lists, unquoted};
use crate::old::OldCondition;
use crate::pattern::TextPattern;

/// Conditions that make a condition true: of alternatives, the first that requests can bring about.
pub(super) fn of_if(words: &[String], lists: &Lists) -> Vec<OldCondition> {
    let words = without_parentheses(words);
    for alternative in split(words, "||") {
        let made: Vec<OldCondition> = split(alternative, "&&")
            .into_iter()
            .flat_map(|part| comparison(without_parentheses(part), lists))
            .collect();
        if !made.is_empty() {
            return made;
        }
    }
    Vec::new()
}

/// Removes parentheses around the whole.
fn without_parentheses(mut words: &[String]) -> &[String] {
    while let [first, inner @ .., last] = words {
        let mut depth = 0;
        let is_whole = inner.iter().all(|word| {
            depth += match word.as_str() {
                "(" => 1,
                ")" => -1,
                _ => 0,
            };
            depth >= 0
        });
        if first != "(" || last != ")" || !is_whole {
            break;
        }
        words = inner;
    }
    words
}

/// Splits words at a sign outside of parentheses.
fn split<'w>(words: &'w [String], sign: &str) -> Vec<&'w [String]> {
    let mut depth = 0;
    words
        .split(|word| {
            match word.as_str() {
                "(" => depth += 1,
                ")" => depth -= 1,
                _ => {}
            }
            depth == 0 && word == sign
        })
        .collect()
}

fn comparison(words: &[String], lists: &Lists) -> Vec<OldCondition> {
    let [name, rest @ ..] = words else { return Vec::new() };
    if words.iter().any(|word| matches!(word.as_str(), "||" | "&&")) {
        return of_if(words, lists);
    }
    let (sign, value) = match rest {
        [] => return of_name(name, TextPattern::Present).into_iter().collect(),
        [sign, value, ..] => (sign.as_str(), value.as_str()),
        _ => return Vec::new(),
    };
    if name == "client.ip" {
        let networks = lists.iter().find(|(known, _)| known == value).map(|(_, networks)| networks.clone());
        return networks.map(OldCondition::Clients).into_iter().collect();
    }
    let text = unquoted(value);
    let pattern = match sign {
        "==" | "!=" => TextPattern::Exact(text.to_owned()),
        "~" | "!~" => {
            let any_case = text.strip_prefix("(?i)");
            TextPattern::Regex { pattern: any_case.unwrap_or(text).to_owned(), any_case: any_case.is_some() }
        }
        _ => return Vec::new(),
    };
    of_name(name, pattern).into_iter().collect()
}

fn of_name(name: &str, pattern: TextPattern) -> Option<OldCondition> {
    let field = name.strip_prefix("req.http.").or_else(|| name.strip_prefix("bereq.http."));
    match (field, name) {
        (Some(field), _) if field.eq_ignore_ascii_case("host") => Some(OldCondition::Host(pattern)),
        // A request with it becomes a tunnel.
        (Some(field), _) if field.eq_ignore_ascii_case("upgrade") => None,
        (Some(field), _) => Some(OldCondition::Field(field.to_owned(), pattern)),
        (None, "req.url" | "bereq.url") => Some(OldCondition::Path(pattern)),
        (None, "req.method" | "bereq.method") => {
            let methods = pattern.matching(&mut crate::pattern::Random::new(0));
            Some(OldCondition::Methods(methods))
        }
        _ => None,
    }
}
