//! A configuration of Vanward in the making: tables in their order, each option with the directives that it came from.

use std::collections::BTreeSet;
use std::fmt::Write as _;

pub(crate) use toml_text::quoted;

/// A value of an option.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Number(u64),
    Bool(bool),
    List(Vec<Value>),
    Table(Vec<(String, Value)>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Value {
    fn from(is_so: bool) -> Self {
        Self::Bool(is_so)
    }
}

impl From<Vec<String>> for Value {
    fn from(texts: Vec<String>) -> Self {
        Self::List(texts.into_iter().map(Self::Text).collect())
    }
}

/// Where something came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A directive, by its number.
    Directive(usize),
    /// Not from a directive, such as a default of the other proxy.
    Default(&'static str),
}

/// A table of the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    /// Such as `[[route]]`; empty for the top of the file.
    pub(crate) header: String,
    pub(crate) from: Vec<Origin>,
    options: Vec<(String, Value, Vec<Origin>)>,
}

impl Table {
    pub(crate) fn new(header: impl Into<String>, from: Vec<Origin>) -> Self {
        Self { header: header.into(), from, options: Vec::new() }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.options.iter().find(|(known, ..)| known == key).map(|(_, value, _)| value)
    }

    /// An option with where it came from.
    pub(crate) fn option(&self, key: &str) -> Option<(Value, Vec<Origin>)> {
        self.options
            .iter()
            .find(|(known, ..)| known == key)
            .map(|(_, value, from)| (value.clone(), from.clone()))
    }

    /// Sets an option, in place of an earlier value.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>, from: Vec<Origin>) {
        let value = value.into();
        match self.options.iter_mut().find(|(known, ..)| known == key) {
            Some(known) => (known.1, known.2) = (value, from),
            None => self.options.push((key.to_owned(), value, from)),
        }
    }

    /// Sets an option in front of all others.
    pub(crate) fn set_first(&mut self, key: &str, value: impl Into<Value>) {
        self.options.insert(0, (key.to_owned(), value.into(), Vec::new()));
    }

    /// Leaves an option out.
    pub(crate) fn without(&mut self, key: &str) {
        self.options.retain(|(known, ..)| known != key);
    }

    /// Leaves only these options.
    pub(crate) fn keep(&mut self, keys: &[&str]) {
        self.options.retain(|(key, ..)| keys.contains(&key.as_str()));
    }

    /// Sets a field in a table of an option: `request_headers = { set = { NAME = VALUE } }`. Whether there was none.
    pub(crate) fn field(
        &mut self,
        option: &str,
        place: &str,
        name: &str,
        value: &str,
        from: Vec<Origin>,
    ) -> bool {
        let mut pairs = match self.inner(option, place) {
            Some(Value::Table(known)) => known.clone(),
            _ => Vec::new(),
        };
        let known = pairs.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let is_new = known.is_none();
        match known {
            Some((_, known)) => *known = value.into(),
            None => pairs.push((name.to_owned(), value.into())),
        }
        self.extend(option, (place, Value::Table(pairs)), from);
        is_new
    }

    /// Leaves a list in an option out if it is empty, and cites its origins all the same.
    pub(crate) fn without_empty(&mut self, key: &str, place: &str) {
        if let Some((_, Value::Table(pairs), _)) = self.options.iter_mut().find(|(known, ..)| known == key) {
            pairs.retain(|(name, value)| name != place || *value != Value::List(Vec::new()));
        }
    }

    /// Adds a name to a list in an option: `response_headers = { remove = [NAME] }`.
    pub(crate) fn listed(&mut self, option: &str, place: &str, name: &str, from: Vec<Origin>) {
        let mut names = match self.inner(option, place) {
            Some(Value::List(known)) => known.clone(),
            _ => Vec::new(),
        };
        if !names.contains(&name.into()) {
            names.push(name.into());
        }
        self.extend(option, (place, Value::List(names)), from);
    }

    /// Adds keys to an option that is a table, and remembers from where.
    pub(crate) fn extend(&mut self, key: &str, more: (&str, Value), from: Vec<Origin>) {
        if self.get(key).is_none() {
            self.set(key, Value::Table(Vec::new()), Vec::new());
        }
        if let Some((_, Value::Table(pairs), origins)) =
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

    /// A value in an option that is a table.
    pub(crate) fn inner(&self, key: &str, name: &str) -> Option<&Value> {
        let Some(Value::Table(pairs)) = self.get(key) else { return None };
        pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Adds a value to an option that is a list; one that it has already is only cited.
    pub(crate) fn push(&mut self, key: &str, value: Value, from: Vec<Origin>) {
        if self.get(key).is_none() {
            self.set(key, Value::List(Vec::new()), Vec::new());
        }
        if let Some((_, Value::List(values), origins)) =
            self.options.iter_mut().find(|(known, ..)| known == key)
        {
            if !values.contains(&value) {
                values.push(value);
            }
            origins.extend(from);
        }
    }

    /// Says that an option also came from there.
    pub(crate) fn cite(&mut self, key: &str, from: Origin) {
        if let Some((.., origins)) = self.options.iter_mut().find(|(known, ..)| known == key) {
            origins.push(from);
        }
    }

    /// Whether another table has the same options, wherever they came from.
    pub(crate) fn says_the_same(&self, other: &Self) -> bool {
        let own = self.options.iter().map(|(key, value, _)| (key, value));
        own.eq(other.options.iter().map(|(key, value, _)| (key, value)))
    }

    /// Adds the options of another table behind its own.
    pub(crate) fn append(&mut self, other: &Self) {
        self.options.extend(other.options.iter().cloned());
    }

    /// Whether an option came from a directive.
    pub(crate) fn cites(&self, number: usize) -> bool {
        let wanted = Origin::Directive(number);
        self.from.contains(&wanted) || self.options.iter().any(|(.., from)| from.contains(&wanted))
    }

    /// What it has so far, as a text to compare.
    pub(crate) fn place(&self) -> String {
        let pairs: Vec<String> =
            self.options.iter().map(|(key, value, _)| format!("{key} = {}", written(value))).collect();
        pairs.join(", ")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.options.is_empty()
    }

    /// The table as text, with a comment at each option; `named` writes a directive. Collects which directives it cites.
    pub(crate) fn render(&self, named: &dyn Fn(usize) -> String, cited: &mut BTreeSet<usize>) -> String {
        let mut comment = |from: &[Origin]| {
            let mut texts: Vec<String> = Vec::new();
            for origin in from {
                let text = match origin {
                    Origin::Directive(number) => {
                        cited.insert(*number);
                        named(*number)
                    }
                    Origin::Default(why) => (*why).to_owned(),
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
            let _ = writeln!(text, "{} = {}{}", bare_or_quoted(key), written(value), comment(from));
        }
        text
    }
}

/// A value as TOML, in one line.
fn written(value: &Value) -> String {
    match value {
        Value::Text(text) => quoted(text),
        Value::Number(number) => number.to_string(),
        Value::Bool(is_so) => is_so.to_string(),
        Value::List(values) => format!("[{}]", values.iter().map(written).collect::<Vec<_>>().join(", ")),
        Value::Table(pairs) if pairs.is_empty() => "{}".to_owned(),
        Value::Table(pairs) => {
            let pairs =
                pairs.iter().map(|(key, value)| format!("{} = {}", bare_or_quoted(key), written(value)));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}

fn bare_or_quoted(key: &str) -> String {
    let is_bare = !key.is_empty()
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if is_bare { key.to_owned() } else { quoted(key) }
}
