//! Files of maps and lists. Vanward reads them itself where it understands them in the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use expression::ValueType;
use maps::{FileFormat, MapKind, MapShape, PATTERNS_MAX, TableBuilder, entry_of_line};

use crate::definitions::{Definitions, DraftMap};
use crate::draft::StatementOrigin;
use crate::{Include, values};

/// The most values whose names are kept.
const VALUES_MAX: usize = 1000;

/// Files next to the configuration, each read once.
pub(super) struct PatternFiles<'i> {
    include: Include<'i>,
    known: BTreeMap<String, Result<Rc<str>, String>>,
}

/// A map of the result.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FoundMap {
    /// As in expressions: `map.hosts`.
    pub(super) name: String,
    pub(super) kind: MapKind,
    /// Keys and values in the order of the file. The first of equal keys counts.
    pub(super) entries: Rc<[(String, String)]>,
}

impl FoundMap {
    /// All values; `None` if there are too many to name them.
    pub(super) fn values(&self) -> Option<BTreeSet<String>> {
        let values: BTreeSet<String> = self.entries.iter().map(|(_, value)| value.clone()).collect();
        (values.len() <= VALUES_MAX).then_some(values)
    }
}

impl<'i> PatternFiles<'i> {
    pub(super) fn new(include: Include<'i>) -> Self {
        Self { include, known: BTreeMap::new() }
    }

    /// The text of a file.
    ///
    /// # Errors
    /// The file cannot be read.
    fn text(&mut self, file: &str) -> Result<Rc<str>, String> {
        if file.is_empty() || file.contains(['*', '?', '[', '@']) {
            return Err(format!("{file:?} is not the path of a file"));
        }
        if let Some(known) = self.known.get(file) {
            return known.clone();
        }
        let read = (self.include)(file).map_err(|why| format!("{file}: {why}"));
        let text = read.map(|texts| texts.into_iter().map(|(_, text)| text).collect::<String>().into());
        self.known.insert(file.to_owned(), text.clone());
        text
    }

    /// The lines of a list, without comments.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn list(&mut self, file: &str) -> Result<Vec<String>, String> {
        let text = self.text(file)?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Ok(lines.map(str::to_owned).collect())
    }

    /// The map for a file with networks, one on each line. With `is_map`, values follow them.
    ///
    /// # Errors
    /// The file cannot be read, or Vanward cannot read it.
    pub(super) fn networks(
        &mut self,
        file: &str,
        is_map: bool,
        definitions: &mut Definitions,
        from: StatementOrigin,
    ) -> Result<String, String> {
        let text = self.text(file)?;
        let shape = MapShape { kind: MapKind::Network, values: is_map.then_some(ValueType::Text) };
        read_by_vanward(file, &text, shape)?;
        definitions.map_of_file(base(file), ("network", is_map), file, vec![from])
    }

    /// The map for a file of pairs, whose keys are compared as the suffix of HAProxy's converter says: `beg` of `map_beg`.
    ///
    /// # Errors
    /// The file cannot be read, or Vanward has no such map.
    pub(super) fn map(
        &mut self,
        file: &str,
        way: &str,
        definitions: &mut Definitions,
        from: StatementOrigin,
    ) -> Result<FoundMap, String> {
        let text = self.text(file)?;
        let pairs = MapShape { kind: MapKind::Exact, values: Some(ValueType::Text) };
        let mut entries: Vec<(String, String)> = Vec::new();
        let mut keys = BTreeSet::new();
        for (key, value) in text.lines().filter_map(|line| entry_of_line(pairs, line)) {
            if keys.insert(key) {
                entries.push((key.to_owned(), value.to_owned()));
            }
        }
        let kind = match way {
            "" | "str" => MapKind::Exact,
            "beg" => MapKind::Prefix,
            "ip" => MapKind::Network,
            "reg" => MapKind::Regex,
            "dom" if are_nested_hosts(&entries) => MapKind::Suffix,
            "dom" | "sub" | "end" | "dir" => return searched(file, way, entries, definitions, from),
            _ => return Err(format!("map_{way} compares in another way")),
        };
        read_by_vanward(file, &text, MapShape { kind, ..pairs })?;
        let name = definitions.map_of_file(base(file), (kind.word(), true), file, vec![from])?;
        Ok(FoundMap { name, kind, entries: entries.into() })
    }
}

/// The name of a file, without folders and extension.
fn base(file: &str) -> &str {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split_once('.').map_or(name, |(stem, _)| stem)
}

/// Checks that Vanward reads a file as HAProxy does.
fn read_by_vanward(file: &str, text: &str, shape: MapShape) -> Result<(), String> {
    let mut builder = TableBuilder::new(shape);
    let format = if shape.values.is_some() { FileFormat::Pairs } else { FileFormat::Keys };
    format.read(text.as_bytes(), &mut builder).map_err(|fault| format!("{file}: {fault}"))?;
    builder.build().map(drop).map_err(|fault| format!("{file}: {fault}"))
}

/// Whether all keys are hosts with a domain, and the first that matches is the longest.
fn are_nested_hosts(entries: &[(String, String)]) -> bool {
    let mut known: BTreeSet<&str> = BTreeSet::new();
    entries.iter().all(|(key, _)| {
        let parents = key.match_indices('.').map(|(at, _)| &key[at + 1..]);
        let is_behind = parents.clone().any(|parent| known.contains(parent));
        known.insert(key);
        key.contains('.') && crate::rules::is_host(key) && !is_behind
    })
}

/// A map of regular expressions, for keys that are looked for within a text.
fn searched(
    file: &str,
    way: &str,
    entries: Vec<(String, String)>,
    definitions: &mut Definitions,
    from: StatementOrigin,
) -> Result<FoundMap, String> {
    if entries.len() > PATTERNS_MAX {
        return Err(format!("{file} has more than {PATTERNS_MAX} keys, which are tried one after the other"));
    }
    if let Some((key, _)) = entries.iter().find(|(_, value)| value.is_empty()) {
        return Err(format!("{file}: {key:?} has no value"));
    }
    let pattern = |key: &str| {
        let part = |marks: &[char], class: &str| {
            let key = values::escaped(key.trim_matches(marks));
            format!("(?:^|[{class}]){key}(?:[{class}]|$)")
        };
        match way {
            "sub" => values::escaped(key),
            "end" => format!("{}$", values::escaped(key)),
            "dir" => part(&['/', '?'], "/?"),
            _ => part(&['/', '?', '.', ':'], "/?.:"),
        }
    };
    let made = entries.iter().map(|(key, value)| (pattern(key), value.clone())).collect();
    let map = DraftMap { kind: MapKind::Regex.word(), entries: made, ..DraftMap::default() };
    let name = definitions.map(base(file), map, vec![from])?;
    Ok(FoundMap { name, kind: MapKind::Regex, entries: entries.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name and kind of the map, or why there is none.
    fn found(text: &str, way: &str) -> Result<(String, &'static str), String> {
        let mut include = |file: &str| match file {
            "/etc/none.map" => Err("there is none".to_owned()),
            _ => Ok(vec![(file.to_owned(), text.to_owned())]),
        };
        let mut definitions = Definitions::default();
        let file = if text.is_empty() { "/etc/none.map" } else { "/etc/maps/hosts.map" };
        let mut files = PatternFiles::new(&mut include);
        let map = files.map(file, way, &mut definitions, StatementOrigin::Directive(0))?;
        Ok((map.name, map.kind.word()))
    }

    #[test]
    fn files_are_maps_of_the_kind_that_compares_alike() {
        let cases = [
            ("a.b one\n", "", Ok("exact")),
            ("# comment\n  a   one \n\nb two", "str", Ok("exact")),
            ("/a one\n/a/b two\n", "beg", Ok("prefix")),
            ("10.0.0.0/8 one\n::1 two\n", "ip", Ok("network")),
            ("^/a[0-9]+$ one\n", "reg", Ok("regex")),
            ("a.b one\n", "dom", Ok("suffix")),
            ("x.a.b one\na.b two\n", "dom", Ok("suffix")),
            // HAProxy takes the first that matches, not the longest.
            ("a.b one\nx.a.b two\n", "dom", Ok("regex")),
            ("shop one\n", "dom", Ok("regex")),
            ("a one\n", "sub", Ok("regex")),
            (".png one\n", "end", Ok("regex")),
            ("a one\n", "dir", Ok("regex")),
            ("x one\n", "ip", Err("/etc/maps/hosts.map: line 1: ")),
            ("(?=a) one\n", "reg", Err("/etc/maps/hosts.map: line 1: ")),
            ("a\n", "str", Err("/etc/maps/hosts.map: line 1: ")),
            ("a\n", "sub", Err("/etc/maps/hosts.map: \"a\" has no value")),
            ("a 1\na 2\n", "str", Err("/etc/maps/hosts.map: line 2: ")),
            ("a 1\n", "regm", Err("map_regm compares in another way")),
            ("", "str", Err("/etc/none.map: there is none")),
        ];
        for (text, way, expected) in cases {
            match (found(text, way), expected) {
                (Ok((name, kind)), Ok(wanted)) => {
                    assert_eq!((name.as_str(), kind), ("map.hosts", wanted), "{text}");
                }
                (Err(why), Err(wanted)) => assert!(why.starts_with(wanted), "{text}: {why}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }
}
