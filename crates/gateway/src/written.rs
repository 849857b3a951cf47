//! Writes `vanward.toml`: tables of options, each with the object that it comes from, so that the object can report
//! mistakes.

use std::fmt::Write as _;

pub(crate) use toml_text::literal as text;
pub(crate) use toml_text::quoted;

use crate::object::Reference;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WrittenText {
    pub text: String,
    /// Objects with the number of their first line, in order.
    owners: Vec<(usize, Option<Reference>)>,
    lines: usize,
}

impl WrittenText {
    /// Returns the object that a line comes from. Lines count from 1.
    pub fn owner(&self, line: usize) -> Option<&Reference> {
        let at = self.owners.partition_point(|(first, _)| *first <= line);
        self.owners[..at].last().and_then(|(_, owner)| owner.as_ref())
    }

    pub(crate) fn table(&mut self, owner: Option<Reference>, table: &WrittenTable) {
        self.owners.push((self.lines + 1, owner));
        let before = self.text.len();
        self.text += &table.head;
        self.text.push('\n');
        for (key, value) in &table.options {
            let _ = writeln!(self.text, "{key} = {value}");
        }
        self.text.push('\n');
        self.lines += self.text[before..].matches('\n').count();
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct WrittenTable {
    head: String,
    options: Vec<(String, String)>,
}

impl WrittenTable {
    /// `head` is such as `[[route]]`, or empty for top-level options.
    pub(crate) fn new(head: impl Into<String>) -> Self {
        Self { head: head.into(), options: Vec::new() }
    }

    pub(crate) fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.options.push((key.to_owned(), value.into()));
        self
    }

    pub(crate) fn maybe(self, key: &str, value: Option<String>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }
}

/// Writes a string in which `$` is literal, for options that expand variables.
pub(crate) fn literal(text: &str) -> String {
    quoted(&escaped(text))
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('$', "$$")
}

/// Writes a string whose variables are expanded.
pub(crate) fn template(text: &str) -> String {
    quoted(text)
}

pub(crate) fn list(values: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", values.into_iter().collect::<Vec<_>>().join(", "))
}

pub(crate) fn inline<'k>(pairs: impl IntoIterator<Item = (&'k str, String)>) -> String {
    let pairs: Vec<String> =
        pairs.into_iter().map(|(key, value)| format!("{} = {value}", quoted(key))).collect();
    format!("{{ {} }}", pairs.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectKind;

    #[test]
    fn lines_are_owned_by_the_objects_of_their_tables() {
        let owner = |name: &str| Reference {
            kind: ObjectKind::HttpRoute,
            namespace: "n".to_owned(),
            name: name.to_owned(),
        };
        let mut written = WrittenText::default();
        written.table(None, &WrittenTable::new("").with("a", "1"));
        written.table(
            Some(owner("x")),
            &WrittenTable::new("[[route]]").with("path", text("/\n")).with("y", "2"),
        );
        written.table(Some(owner("z")), &WrittenTable::new("[[route]]"));
        let owners: Vec<Option<&str>> = (1..=written.text.lines().count())
            .map(|line| written.owner(line).map(|owner| owner.name.as_str()))
            .collect();
        let x = Some("x");
        assert_eq!(owners, [None, None, None, x, x, x, x, Some("z"), Some("z")], "{}", written.text);
    }

    #[test]
    fn nothing_is_put_into_a_text() {
        for (written, expected) in [
            ("plain $x ${y}", "plain $x ${y}"),
            ("${HOME}", "$${HOME}"),
            ("a$${HOME}b", "a$$$${HOME}b"),
            ("${file:/etc/passwd}", "$${file:/etc/passwd}"),
            ("${env:x}${_A}", "$${env:x}$${_A}"),
            ("$", "$"),
            ("${", "${"),
        ] {
            assert_eq!(toml_text::unexpanded(written), expected);
        }
        assert_eq!(text("a\"\\\u{7f}é"), "\"a\\\"\\\\\\u007Fé\"");
    }
}
