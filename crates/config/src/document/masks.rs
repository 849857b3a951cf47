//! Hides the secrets in the text of a configuration.
//!
//! References to files and variables stay. A secret that is written as well becomes the reference to it; a value of a field
//! that carries secrets becomes asterisks, in comments too.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use toml_text::{InsertionPoint, next_place};

use crate::document::substitution::{Secret, is_named_like_a_secret};

/// Printed instead of a secret that is written in the file.
const MASK: &str = "***";

/// Fields whose values are secret, besides those whose name says so.
const SECRET_FIELDS: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "set-cookie"];

/// Words in comments that secrets follow.
const SECRET_WORDS: [&str; 4] = ["password", "passwd", "secret", "token"];

/// Words in front of credentials (RFC 9110 §11.1), which are no secrets themselves.
const SCHEMES: [&str; 5] = ["basic", "bearer", "digest", "negotiate", "token"];

/// Whether a secret is written in the text of a file, rather than referred to.
pub fn has_written_secret(text: &str) -> bool {
    is_secret_written(text, &[])
}

pub(crate) fn is_secret_written(text: &str, secrets: &[Secret]) -> bool {
    let mut is_written = false;
    replaced_strings(text, &mut |name, value| {
        is_written |= masked_value(name, value, secrets).is_some_and(|value| value == MASK);
        None
    });
    is_written
}

pub(crate) fn masked(text: &str, secrets: &[Secret]) -> String {
    let text = replaced_strings(text, &mut |name, value| masked_value(name, value, secrets));
    let comments = comments(&text);
    let mut replaced = comments.into_iter().filter_map(|at| {
        let comment = masked_comment(&text[at.clone()], secrets);
        (comment != text[at.clone()]).then_some((at, comment))
    });
    spliced(&text, &mut replaced)
}

/// Replaces strings as `change` says, which is given the name of the option and the value.
pub(crate) fn replaced_strings(text: &str, change: &mut dyn FnMut(&str, &str) -> Option<String>) -> String {
    let Ok(root) = DeTable::parse(text) else { return text.to_owned() };
    let mut replaced = Vec::new();
    of_table(root.get_ref(), change, &mut replaced);
    replaced.sort_by_key(|(at, _)| at.start);
    spliced(text, &mut replaced.into_iter().map(|(at, value)| (at, toml_text::quoted(&value))))
}

fn of_table(
    table: &DeTable<'_>,
    change: &mut dyn FnMut(&str, &str) -> Option<String>,
    replaced: &mut Vec<(Range<usize>, String)>,
) {
    for (key, value) in table.iter() {
        of_value(key.get_ref(), value, change, replaced);
    }
}

fn of_value(
    name: &str,
    value: &Spanned<DeValue<'_>>,
    change: &mut dyn FnMut(&str, &str) -> Option<String>,
    replaced: &mut Vec<(Range<usize>, String)>,
) {
    match value.get_ref() {
        DeValue::Table(table) => of_table(table, change, replaced),
        DeValue::Array(elements) => {
            elements.iter().for_each(|element| of_value(name, element, change, replaced));
        }
        DeValue::String(text) => replaced.extend(change(name, text).map(|new| (value.span(), new))),
        _ => {}
    }
}

fn spliced(text: &str, replaced: &mut dyn Iterator<Item = (Range<usize>, String)>) -> String {
    let (mut all, mut rest) = (String::with_capacity(text.len()), 0);
    for (at, value) in replaced {
        all += &text[rest..at.start];
        all += &value;
        rest = at.end;
    }
    all + &text[rest..]
}

/// Returns the replacement of a value; `None` if the value may be shown.
fn masked_value(name: &str, text: &str, secrets: &[Secret]) -> Option<String> {
    let (referred, open) = referred(text, secrets);
    let printed = if is_secret_field(name) && tells(&open) { MASK.to_owned() } else { referred };
    (printed != text).then_some(printed)
}

/// Whether a name is the one of a field that carries a secret. Options have no hyphens and no capital letters.
fn is_secret_field(name: &str) -> bool {
    let is_field = name.contains(|byte: char| byte == '-' || byte.is_ascii_uppercase());
    let lower = name.to_ascii_lowercase();
    SECRET_FIELDS.contains(&lower.as_str()) || (is_field && is_named_like_a_secret(name))
}

/// The text with references instead of written secrets, and the text without references.
fn referred(text: &str, secrets: &[Secret]) -> (String, String) {
    let mut forms: Vec<(String, &str)> = Vec::new();
    for Secret { value, reference } in secrets {
        for form in [value.replace('$', "$$"), toml_text::unexpanded(value), value.clone()] {
            if text.contains(&form) && !forms.iter().any(|(known, _)| *known == form) {
                forms.push((form, reference));
            }
        }
    }
    // The longest first: one secret may be a part of another.
    forms.sort_by_key(|(form, _)| std::cmp::Reverse(form.len()));
    let (mut printed, mut open, mut rest) = (String::new(), String::new(), text);
    while let Some(next) = rest.chars().next() {
        if let Some((reference, default)) = reference(rest) {
            printed += reference;
            open += default;
            rest = &rest[reference.len()..];
            continue;
        }
        match forms.iter().find(|(form, _)| rest.starts_with(form.as_str())) {
            // A dollar sign in front of a reference would make it a text.
            Some(_) if printed.ends_with('$') => return (MASK.to_owned(), String::new()),
            Some((form, reference)) => {
                printed += reference;
                rest = &rest[form.len()..];
            }
            None => {
                printed.push(next);
                open.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
    }
    (printed, open)
}

/// The reference that a text begins with, with the dollar signs in front of it, and its default.
fn reference(text: &str) -> Option<(&str, &str)> {
    let InsertionPoint { dollars, end } = next_place(text).filter(|_| text.starts_with('$'))?;
    if dollars.start > 0 || dollars.len() % 2 == 0 {
        return None;
    }
    let inside = text[dollars.end..end].trim_start_matches('{').trim_end_matches('}');
    let default = inside.split_once(":-").filter(|_| !inside.starts_with("file:"));
    Some((&text[..end], default.map_or("", |(_, default)| default)))
}

/// Whether a text says more than a scheme and variables of the request.
fn tells(text: &str) -> bool {
    let is_scheme = |word: &str| SCHEMES.iter().any(|scheme| scheme.eq_ignore_ascii_case(word));
    let is_variable = |word: &str| word.starts_with('$') && !word[1..].contains('$');
    text.split_whitespace().any(|word| !is_scheme(word) && !is_variable(word))
}

/// A comment without known secrets, and without what follows the name of one.
fn masked_comment(comment: &str, secrets: &[Secret]) -> String {
    let mut masked = comment.to_owned();
    for Secret { value, reference } in secrets {
        masked = masked.replace(value.as_str(), reference);
    }
    let is_part = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    let is_of_secret = |at: &usize| {
        let before = masked[..*at].trim_end().trim_end_matches(['"', '\'']);
        let word = before.rsplit(|character| !is_part(character)).next().unwrap_or_default();
        let value = masked[at + 1..].trim().trim_start_matches(['"', '\'']);
        (is_secret_field(word) || SECRET_WORDS.contains(&word.to_ascii_lowercase().as_str()))
            && !value.is_empty()
            && reference(value).is_none()
    };
    let at = masked.match_indices(['=', ':']).map(|(at, _)| at).find(is_of_secret);
    match at {
        Some(at) => format!("{} {MASK}", &masked[..=at]),
        None => masked,
    }
}

/// Where the comments of a text are.
fn comments(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = text[at..].find(['#', '"', '\'']).map(|next| at + next) {
        let rest = &text[next..];
        if rest.starts_with('#') {
            at = next + rest.find(['\r', '\n']).unwrap_or(rest.len());
            found.push(next..at);
            continue;
        }
        at = next + string_len(rest);
    }
    found
}

/// The length of the string that a text begins with.
fn string_len(text: &str) -> usize {
    let quote = &text[..1];
    let (quotes, closing) =
        if text.starts_with(&quote.repeat(3)) { (3, quote.repeat(3)) } else { (1, quote.to_owned()) };
    let mut at = quotes;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with(&closing) {
            // Up to two quotes may stand at the end of a string of several lines.
            let more = if quotes == 3 {
                rest[3..].bytes().take(2).take_while(|byte| *byte == quote.as_bytes()[0]).count()
            } else {
                0
            };
            return at + quotes + more;
        }
        let escaped = quote == "\"" && rest.starts_with('\\');
        let len = |rest: &str| rest.chars().next().map_or(1, char::len_utf8);
        at += if escaped { 1 + rest.get(1..).map_or(1, len) } else { len(rest) };
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_comments_are_hidden() {
        let secret = Secret { value: "hunter2".to_owned(), reference: "${PASSWORD}".to_owned() };
        for (written, shown) in [
            ("a = 1 # as before", "a = 1 # as before"),
            ("# the one of old: hunter2!", "# the one of old: ${PASSWORD}!"),
            ("# X = { set = { Authorization = \"Bearer abc\" } }", "# X = { set = { Authorization = ***"),
            ("# Authorization = \"${TOKEN}\"", "# Authorization = \"${TOKEN}\""),
            ("# password: abc", "# password: ***"),
            ("# password_file = \"/run/password\"", "# password_file = \"/run/password\""),
            ("a = \"# Cookie: 1\" # Cookie: 2", "a = \"# Cookie: 1\" # Cookie: ***"),
            ("a = '''\n# Cookie: 1''''# token: 3", "a = '''\n# Cookie: 1''''# token: ***"),
            ("a = \"\\\"# x: hunter2\"", "a = \"\\\"# x: ${PASSWORD}\""),
        ] {
            assert_eq!(masked(written, std::slice::from_ref(&secret)), shown);
        }
    }
}
