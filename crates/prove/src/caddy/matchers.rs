//! Matchers of a Caddyfile, as conditions on requests.

use std::collections::BTreeMap;

use adapt::statements::Statement;

use crate::old::OldCondition;
use crate::pattern::TextPattern;

/// Named matchers, each with its conditions.
#[derive(Default)]
pub(super) struct Matchers(BTreeMap<String, Vec<OldCondition>>);

impl Matchers {
    pub(super) fn add(&mut self, named: &Statement) {
        let mut conditions = Vec::new();
        if let Some((kind, words)) = named.words.split_first() {
            conditions.extend(condition(kind, words));
        }
        for line in named.inner() {
            conditions.extend(condition(&line.name, &line.words));
        }
        self.0.insert(named.name.clone(), conditions);
    }

    /// The conditions of a directive's matcher.
    pub(super) fn conditions(&self, word: &str) -> Vec<OldCondition> {
        match word.starts_with('/') {
            true => vec![OldCondition::Path(glob(word))],
            false => self.0.get(word).cloned().unwrap_or_default(),
        }
    }
}

/// The networks of a named matcher.
pub(super) fn networks(named: &Statement) -> Vec<&str> {
    let of_line = |kind: &str, words| if kind.contains("_ip") { words } else { [].as_slice() };
    let own = of_line(named.word(0), named.words.get(1..).unwrap_or_default());
    let inner = named.inner().iter().flat_map(|line| of_line(&line.name, line.words.as_slice()));
    own.iter().chain(inner).map(String::as_str).collect()
}

fn condition(kind: &str, words: &[String]) -> Option<OldCondition> {
    let first = words.first().map_or("", String::as_str);
    let second = words.get(1).map_or("", String::as_str);
    let expression = |pattern: &str| TextPattern::Regex { pattern: pattern.to_owned(), any_case: false };
    Some(match kind {
        "path" => OldCondition::Path(glob(first)),
        "path_regexp" => OldCondition::Path(expression(words.last()?)),
        "method" => OldCondition::Methods(words.to_vec()),
        "host" => OldCondition::Host(glob(first)),
        "header" if first.starts_with('!') => return None,
        // A request with it becomes a tunnel.
        "header" if first.eq_ignore_ascii_case("connection") || first.eq_ignore_ascii_case("upgrade") => {
            return None;
        }
        "header" if second.is_empty() => OldCondition::Field(first.to_owned(), TextPattern::Present),
        "header" => OldCondition::Field(first.to_owned(), glob(second)),
        "header_regexp" => {
            let (field, pattern) =
                if words.len() > 2 { (second, words.get(2)?) } else { (first, words.get(1)?) };
            OldCondition::Field(field.to_owned(), expression(pattern))
        }
        "query" => {
            let (name, value) = first.split_once('=')?;
            OldCondition::Argument(name.to_owned(), glob(value))
        }
        "remote_ip" | "client_ip" => {
            OldCondition::Clients(words.iter().filter(|word| *word != "forwarded").cloned().collect())
        }
        _ => return None,
    })
}

/// A text with `*` at its ends.
fn glob(text: &str) -> TextPattern {
    match (text.strip_prefix('*'), text.strip_suffix('*')) {
        _ if text == "*" => TextPattern::Present,
        (Some(rest), Some(_)) => TextPattern::Contains(rest.trim_end_matches('*').to_owned()),
        (Some(end), None) => TextPattern::Suffix(end.to_owned()),
        (None, Some(start)) => TextPattern::Prefix(start.to_owned()),
        (None, None) => TextPattern::ExactAnyCase(text.to_owned()),
    }
}
