//! Matchers of a Caddyfile, as conditions on requests.

use std::collections::BTreeMap;

use adapt::statements::Statement;

use crate::old::OldCondition;
use crate::pattern::TextPattern;

#[derive(Default, Clone)]
struct NamedMatcher {
    conditions: Vec<OldCondition>,
    /// Conditions behind `not`: a request that meets one misses the matcher.
    excluded: Vec<OldCondition>,
}

/// Named matchers, and the placeholders that they may ask for.
#[derive(Default)]
pub(super) struct Matchers {
    named: BTreeMap<String, NamedMatcher>,
    /// Outputs of `map`, each with a condition under which it is not the default.
    outputs: BTreeMap<String, OldCondition>,
}

impl Matchers {
    pub(super) fn add(&mut self, named: &Statement) {
        let mut made = NamedMatcher::default();
        if let Some((kind, words)) = named.words.split_first() {
            self.line(kind, words, named.inner(), &mut made);
        } else {
            named.inner().iter().for_each(|line| self.line(&line.name, &line.words, line.inner(), &mut made));
        }
        self.named.insert(named.name.clone(), made);
    }

    fn line(&self, kind: &str, words: &[String], inner: &[Statement], made: &mut NamedMatcher) {
        match (kind, words.split_first()) {
            ("not", Some((kind, words))) => made.excluded.extend(condition(kind, words)),
            ("not", None) => {
                made.excluded.extend(inner.iter().filter_map(|line| condition(&line.name, &line.words)));
            }
            ("expression", _) => made.conditions.extend(self.expression(&words.join(" "))),
            _ => made.conditions.extend(condition(kind, words)),
        }
    }

    /// Notes the outputs of a `map`.
    pub(super) fn map(&mut self, map: &Statement) {
        let Some((source, outputs)) = map.words.split_first() else { return };
        let is_plain = |row: &&Statement| row.name != "default" && !row.name.starts_with('~');
        let Some(row) = map.inner().iter().find(is_plain) else { return };
        let Some(condition) = of_placeholder(source, TextPattern::Exact(row.name.clone())) else { return };
        self.outputs.extend(outputs.iter().map(|output| (output.clone(), condition.clone())));
    }

    /// The first comparison of an expression that requests can bring about.
    fn expression(&self, text: &str) -> Option<OldCondition> {
        text.split("||").flat_map(|part| part.split("&&")).find_map(|part| {
            let (left, right) = part.split_once("==").or_else(|| part.split_once("!="))?;
            let value = right.trim().trim_matches(['"', '\'', ')']);
            let name = left.trim().trim_start_matches(['(', '!']).trim_matches(['"', '\'']);
            self.outputs
                .get(name)
                .cloned()
                .or_else(|| of_placeholder(name, TextPattern::Exact(value.to_owned())))
        })
    }

    /// The conditions of a directive's matcher.
    pub(super) fn conditions(&self, word: &str) -> Vec<OldCondition> {
        match word.starts_with('/') {
            true => vec![OldCondition::Path(glob(word))],
            false => self.named.get(word).map(|named| named.conditions.clone()).unwrap_or_default(),
        }
    }

    /// The conditions under which requests miss a directive's matcher.
    pub(super) fn excluded(&self, word: &str) -> &[OldCondition] {
        self.named.get(word).map_or(&[], |named| named.excluded.as_slice())
    }
}

/// A condition on a placeholder such as `{query.a}`.
fn of_placeholder(written: &str, pattern: TextPattern) -> Option<OldCondition> {
    let name = written.strip_prefix('{')?.strip_suffix('}')?;
    let name = name.strip_prefix("http.request.").unwrap_or(name);
    let name = name.strip_prefix("uri.").unwrap_or(name);
    Some(match name.split_once('.') {
        None if name == "path" => OldCondition::Path(pattern),
        None if name == "host" => OldCondition::Host(pattern),
        Some(("cookie", name)) => OldCondition::Cookie(name.to_owned(), pattern),
        Some(("query", name)) => OldCondition::Argument(name.to_owned(), pattern),
        Some(("header", name)) => OldCondition::Field(name.to_owned(), pattern),
        _ => return None,
    })
}

/// The networks of a named matcher.
pub(super) fn networks(named: &Statement) -> Vec<&str> {
    fn of_line<'s>(kind: &str, words: &'s [String], inner: &'s [Statement], into: &mut Vec<&'s str>) {
        match (kind, words.split_first()) {
            ("not", Some((kind, words))) => of_line(kind, words, &[], into),
            ("not", None) => {
                inner.iter().for_each(|line| of_line(&line.name, &line.words, line.inner(), into));
            }
            _ if kind.contains("_ip") => into.extend(words.iter().map(String::as_str)),
            _ => {}
        }
    }
    let mut all = Vec::new();
    if let Some((kind, words)) = named.words.split_first() {
        of_line(kind, words, named.inner(), &mut all);
    } else {
        named.inner().iter().for_each(|line| of_line(&line.name, &line.words, line.inner(), &mut all));
    }
    all
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
