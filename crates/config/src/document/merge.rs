//! Joins the tables of several files to one, as if all were in one file.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::document::reader::{Reader, Span};

/// The rule by which an option of several files becomes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merging {
    /// Only one file may have it.
    Once,
    /// Lists are joined, in the order of the files.
    Joined,
    /// Lists are joined; of other values there may be only one.
    Lists,
    /// Tables with names are joined; each name is used once.
    Named,
}

/// Adds `start` to all positions of a table.
pub(crate) fn shifted<'t>(table: DeTable<'t>, start: usize) -> DeTable<'t> {
    let shift = |span: Range<usize>| span.start + start..span.end + start;
    let entry = |(key, value): (Spanned<_>, Spanned<DeValue<'t>>)| {
        let (key_at, at) = (shift(key.span()), shift(value.span()));
        (Spanned::new(key_at, key.into_inner()), Spanned::new(at, shifted_value(value.into_inner(), start)))
    };
    table.into_iter().map(entry).collect()
}

fn shifted_value(value: DeValue<'_>, start: usize) -> DeValue<'_> {
    match value {
        DeValue::Table(table) => DeValue::Table(shifted(table, start)),
        DeValue::Array(elements) => {
            let mut moved = DeArray::new();
            for element in elements {
                let Range { start: from, end } = element.span();
                moved.push(Spanned::new(
                    from + start..end + start,
                    shifted_value(element.into_inner(), start),
                ));
            }
            DeValue::Array(moved)
        }
        other => other,
    }
}

/// Adds the options of an included file.
pub(crate) fn merge<'t>(root: &mut DeTable<'t>, included: DeTable<'t>, reader: &mut Reader<'_>) {
    for (key, value) in included {
        let name = key.get_ref().as_ref();
        let Some((first, _)) = root.get_key_value(name) else {
            root.insert(key, value);
            continue;
        };
        let (name, first, at) = (name.to_owned(), first.span(), key.span());
        let Some(there) = root.get_mut(name.as_str()) else { continue };
        // Only one file can be right about an unknown option.
        let merging = (reader.format.merging)(&name);
        let are_lists = there.get_ref().is_array() && value.get_ref().is_array();
        if merging == Merging::Once || (merging == Merging::Lists && !are_lists) {
            twice(&name, &first, &at, reader);
            continue;
        }
        if name == "include" {
            let list = |value| Spanned::new(at.clone(), DeValue::Array(listed(value)));
            let all = std::mem::replace(there, Spanned::new(0..0, DeValue::Boolean(false)));
            *there = list(all);
            let DeValue::Array(all) = there.get_mut() else { continue };
            listed(value).into_iter().for_each(|element| all.push(element));
            continue;
        }
        match (merging, there.get_mut(), value) {
            (Merging::Joined | Merging::Lists, DeValue::Array(all), value) if value.get_ref().is_array() => {
                listed(value).into_iter().for_each(|element| all.push(element));
            }
            (Merging::Named, DeValue::Table(all), value) if value.get_ref().is_table() => {
                if let DeValue::Table(more) = value.into_inner() {
                    named(&name, all, more, reader);
                }
            }
            // One of them is of the wrong type: the mistake is reported when the option is read.
            (Merging::Joined, DeValue::Array(_), value) | (Merging::Named, DeValue::Table(_), value) => {
                *there = value;
            }
            _ => {}
        }
    }
}

/// A value that may stand for a list of one.
fn listed(value: Spanned<DeValue<'_>>) -> DeArray<'_> {
    let at = value.span();
    match value.into_inner() {
        DeValue::Array(elements) => elements,
        other => [Spanned::new(at, other)].into_iter().collect(),
    }
}

fn named<'t>(option: &str, all: &mut DeTable<'t>, more: DeTable<'t>, reader: &mut Reader<'_>) {
    for (key, value) in more {
        match all.get_key_value(key.get_ref().as_ref()) {
            Some((first, _)) => {
                let path = join(option, &quoted_key(key.get_ref()));
                twice(&format!("[{path}]"), &first.span(), &key.span(), reader);
            }
            None => {
                all.insert(key, value);
            }
        }
    }
}

fn twice(what: &str, first: &Span, at: &Span, reader: &mut Reader<'_>) {
    let place = reader.line(first);
    let mistake = reader.mistake(at, format!("{what} appears twice: also at {place}"));
    reader.add(mistake.expecting("it in one of the files"));
}

pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Quotes a TOML key if necessary.
pub(crate) fn quoted_key(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !name.is_empty() && name.bytes().all(bare) { name.to_owned() } else { toml_text::quoted(name) }
}
