//! Builds a configuration of Vanward: ordered tables, in which each option has its origins.

use std::collections::BTreeSet;
use std::fmt::Write as _;

pub(crate) use toml_text::quoted;

use crate::environment;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DraftValue {
    Text(String),
    Number(u64),
    Bool(bool),
    /// An expression in Vanward's language.
    Expression(String),
    List(Vec<DraftValue>),
    Table(Vec<(String, DraftValue)>),
}

impl From<&str> for DraftValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for DraftValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for DraftValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for DraftValue {
    fn from(is_so: bool) -> Self {
        Self::Bool(is_so)
    }
}

impl From<Vec<String>> for DraftValue {
    fn from(texts: Vec<String>) -> Self {
        Self::List(texts.into_iter().map(Self::Text).collect())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StatementOrigin {
    Directive(usize),
    /// No directive, but for example a default of the other proxy.
    Default(&'static str),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct DraftTable {
    /// Such as `[[route]]`; empty for the top of the file.
    pub(crate) header: String,
    pub(crate) from: Vec<StatementOrigin>,
    options: Vec<(String, DraftValue, Vec<StatementOrigin>)>,
}

impl DraftTable {
    pub(crate) fn new(header: impl Into<String>, from: Vec<StatementOrigin>) -> Self {
        Self { header: header.into(), from, options: Vec::new() }
    }

    /// A table with these pairs, whose keys are different.
    pub(crate) fn of_pairs(header: String, pairs: Vec<(String, DraftValue)>) -> Self {
        let option = |(key, value)| (key, value, Vec::new());
        Self { header, from: Vec::new(), options: pairs.into_iter().map(option).collect() }
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &DraftValue)> {
        self.options.iter().map(|(key, value, _)| (key.as_str(), value))
    }

    pub(crate) fn get(&self, key: &str) -> Option<&DraftValue> {
        self.options.iter().find(|(known, ..)| known == key).map(|(_, value, _)| value)
    }

    pub(crate) fn option(&self, key: &str) -> Option<(DraftValue, Vec<StatementOrigin>)> {
        self.options
            .iter()
            .find(|(known, ..)| known == key)
            .map(|(_, value, from)| (value.clone(), from.clone()))
    }

    pub(crate) fn set(&mut self, key: &str, value: impl Into<DraftValue>, from: Vec<StatementOrigin>) {
        let value = value.into();
        match self.options.iter_mut().find(|(known, ..)| known == key) {
            Some(known) => (known.1, known.2) = (value, from),
            None => self.options.push((key.to_owned(), value, from)),
        }
    }

    /// Sets an option before all others.
    pub(crate) fn set_first(&mut self, key: &str, value: impl Into<DraftValue>) {
        self.options.insert(0, (key.to_owned(), value.into(), Vec::new()));
    }

    pub(crate) fn without(&mut self, key: &str) {
        self.options.retain(|(known, ..)| known != key);
    }

    pub(crate) fn keep(&mut self, keys: &[&str]) {
        self.options.retain(|(key, ..)| keys.contains(&key.as_str()));
    }

    /// Sets a field in an option's table: `request_headers = { set = { NAME = VALUE } }`. Returns whether it is new.
    pub(crate) fn field(
        &mut self,
        option: &str,
        place: &str,
        name: &str,
        value: &str,
        from: Vec<StatementOrigin>,
    ) -> bool {
        let mut pairs = match self.inner(option, place) {
            Some(DraftValue::Table(known)) => known.clone(),
            _ => Vec::new(),
        };
        let known = pairs.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let is_new = known.is_none();
        match known {
            Some((_, known)) => *known = value.into(),
            None => pairs.push((name.to_owned(), value.into())),
        }
        self.extend(option, (place, DraftValue::Table(pairs)), from);
        is_new
    }

    /// Removes an empty list from an option, but keeps its origins.
    pub(crate) fn without_empty(&mut self, key: &str, place: &str) {
        if let Some((_, DraftValue::Table(pairs), _)) =
            self.options.iter_mut().find(|(known, ..)| known == key)
        {
            pairs.retain(|(name, value)| name != place || *value != DraftValue::List(Vec::new()));
        }
    }

    /// Adds a name to a list in an option: `response_headers = { remove = [NAME] }`.
    pub(crate) fn listed(&mut self, option: &str, place: &str, name: &str, from: Vec<StatementOrigin>) {
        let mut names = match self.inner(option, place) {
            Some(DraftValue::List(known)) => known.clone(),
            _ => Vec::new(),
        };
        if !names.contains(&name.into()) {
            names.push(name.into());
        }
        if place == "remove" {
            // What was written before is gone.
            for written in ["set", "add"] {
                self.without_field(option, written, name);
            }
        }
        self.extend(option, (place, DraftValue::List(names)), from);
    }

    /// Removes a field from an option's table, but keeps its origins.
    pub(crate) fn without_field(&mut self, option: &str, place: &str, name: &str) {
        let Some((_, DraftValue::Table(places), _)) =
            self.options.iter_mut().find(|(known, ..)| known == option)
        else {
            return;
        };
        for (_, value) in places.iter_mut().filter(|(known, _)| known == place) {
            if let DraftValue::Table(fields) = value {
                fields.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
            }
        }
        places.retain(|(known, value)| known != place || *value != DraftValue::Table(Vec::new()));
    }

    /// Removes pairs from an option that is a table, but keeps its origins.
    pub(crate) fn remove_pairs(&mut self, key: &str, names: &[&str]) {
        if let Some((_, DraftValue::Table(pairs), _)) =
            self.options.iter_mut().find(|(known, ..)| known == key)
        {
            pairs.retain(|(name, _)| !names.contains(&name.as_str()));
        }
    }

    /// Adds a pair to an option that is a table, with its origins.
    pub(crate) fn extend(&mut self, key: &str, more: (&str, DraftValue), from: Vec<StatementOrigin>) {
        if self.get(key).is_none() {
            self.set(key, DraftValue::Table(Vec::new()), Vec::new());
        }
        if let Some((_, DraftValue::Table(pairs), origins)) =
            self.options.iter_mut().find(|(known, ..)| known == key)
        {
            let (name, value) = more;
            match pairs.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => *known = value,
                None => pairs.push((name.to_owned(), value)),
            }
            origins.extend(from);
        }
    }

    pub(crate) fn inner(&self, key: &str, name: &str) -> Option<&DraftValue> {
        let Some(DraftValue::Table(pairs)) = self.get(key) else { return None };
        pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Adds a value to an option that is a list. For a value that exists, only origins are added.
    pub(crate) fn push(&mut self, key: &str, value: DraftValue, from: Vec<StatementOrigin>) {
        if self.get(key).is_none() {
            self.set(key, DraftValue::List(Vec::new()), Vec::new());
        }
        if let Some((_, DraftValue::List(values), origins)) =
            self.options.iter_mut().find(|(known, ..)| known == key)
        {
            if !values.contains(&value) {
                values.push(value);
            }
            origins.extend(from);
        }
    }

    pub(crate) fn cite(&mut self, key: &str, from: StatementOrigin) {
        if let Some((.., origins)) = self.options.iter_mut().find(|(known, ..)| known == key) {
            origins.push(from);
        }
    }

    /// Whether another table has the same options, regardless of origins.
    pub(crate) fn says_the_same(&self, other: &Self) -> bool {
        let own = self.options.iter().map(|(key, value, _)| (key, value));
        own.eq(other.options.iter().map(|(key, value, _)| (key, value)))
    }

    pub(crate) fn append(&mut self, other: &Self) {
        self.options.extend(other.options.iter().cloned());
    }

    pub(crate) fn cites(&self, number: usize) -> bool {
        let wanted = StatementOrigin::Directive(number);
        self.from.contains(&wanted) || self.options.iter().any(|(.., from)| from.contains(&wanted))
    }

    /// Returns the options as a text for comparisons.
    pub(crate) fn place(&self) -> String {
        let pairs: Vec<String> =
            self.options.iter().map(|(key, value, _)| written_pair(key, value)).collect();
        pairs.join(", ")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.options.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.options.len()
    }

    /// Renders the table with a comment at each option; `named` describes a directive. Collects the cited directives.
    pub(crate) fn render(&self, named: &dyn Fn(usize) -> String, cited: &mut BTreeSet<usize>) -> String {
        let mut comment = |from: &[StatementOrigin]| {
            let mut texts: Vec<String> = Vec::new();
            for origin in from {
                let text = match origin {
                    StatementOrigin::Directive(number) => {
                        cited.insert(*number);
                        named(*number)
                    }
                    StatementOrigin::Default(why) => (*why).to_owned(),
                };
                if !texts.contains(&text) {
                    texts.push(text);
                }
            }
            if texts.is_empty() { String::new() } else { format!("  # {}", texts.join(", ")) }
        };
        let mut text = String::new();
        if !self.header.is_empty() {
            let _ = writeln!(text, "{}{}", self.header, comment(&self.from));
        }
        for (key, value, from) in &self.options {
            let _ = writeln!(text, "{}{}", written_pair(key, value), comment(from));
        }
        text
    }
}

fn written_pair(key: &str, value: &DraftValue) -> String {
    format!("{} = {}", bare_or_quoted(key), written(value))
}

fn written(value: &DraftValue) -> String {
    match value {
        DraftValue::Text(text) => quoted(&environment::written(text)),
        // Quotes of its own, and no places that are replaced when the file is read.
        DraftValue::Expression(text) => {
            let text = environment::written(&toml_text::unexpanded(text));
            let is_plain = !text.contains('\'') && !text.chars().any(char::is_control);
            if is_plain { format!("'{text}'") } else { quoted(&text) }
        }
        DraftValue::Number(number) => number.to_string(),
        DraftValue::Bool(is_so) => is_so.to_string(),
        DraftValue::List(values) => {
            format!("[{}]", values.iter().map(written).collect::<Vec<_>>().join(", "))
        }
        DraftValue::Table(pairs) if pairs.is_empty() => "{}".to_owned(),
        DraftValue::Table(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| written_pair(key, value));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}

fn bare_or_quoted(key: &str) -> String {
    let is_bare = !key.is_empty()
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if is_bare { key.to_owned() } else { quoted(key) }
}
