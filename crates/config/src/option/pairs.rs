//! Kinds of values with several parts: names with values, and one or a list.

use toml::Spanned;
use toml::de::DeValue;

use crate::document::merge::quoted_key;
use crate::document::reader::{Reader, Span};
use crate::document::value_error::ValueError;
use crate::option::form::Form;
use crate::option::kind::{Described, Kind, refuse_type};
use crate::option::table::Written;

/// A name and its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pair<N, V> {
    pub(crate) at: Span,
    pub(crate) name: N,
    pub(crate) value: V,
}

/// A pair without a position, for printing.
pub(crate) fn pair<N, V>(name: N, value: V) -> Pair<N, V> {
    Pair { at: 0..0, name, value }
}

/// A table with names of the user's choice: `{ NAME = VALUE }`, in the order of the file.
pub(crate) struct Pairs<N, K> {
    /// Describes the table, with an example.
    pub(crate) expected: &'static str,
    /// Parses a name.
    pub(crate) name: fn(&str) -> Result<N, ValueError>,
    pub(crate) print_name: fn(&N) -> String,
    /// The kind of value that each name has.
    pub(crate) kind: K,
}

impl<N, K: Described> Described for Pairs<N, K> {
    fn form(&self) -> Form {
        Form::Pairs { expected: self.expected, each: self.kind.form().into() }
    }
}

impl<N: PartialEq, V, K: Kind<V>> Kind<Vec<Pair<N, V>>> for Pairs<N, K> {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Vec<Pair<N, V>>> {
        let DeValue::Table(entries) = written.value.get_ref() else {
            refuse_type(written, self.expected(), reader);
            return None;
        };
        let mut pairs: Vec<Pair<N, V>> = Vec::new();
        for (key, value) in entries.iter() {
            if reader.skip_broken(&key.span()) {
                continue;
            }
            let name = match (self.name)(key.get_ref()) {
                Ok(name) => name,
                Err(error) => {
                    reader.refuse(&key.span(), written.name, &error);
                    continue;
                }
            };
            let inner = Written { path: written.path, name: written.name, value };
            if let Some(value) = self.kind.read(&inner, reader) {
                pairs.push(Pair { at: key.span(), name, value });
            }
        }
        // The parser sorts by name; the order that counts is the file's.
        pairs.sort_by_key(|pair| pair.at.start);
        refuse_repeated(written.name, &pairs, entries.len(), reader);
        Some(pairs)
    }

    fn print(&self, pairs: &Vec<Pair<N, V>>) -> Option<String> {
        let print = |Pair { name, value, .. }: &Pair<N, V>| {
            Some(format!("{} = {}", quoted_key(&(self.print_name)(name)), self.kind.print(value)?))
        };
        let pairs: Vec<String> = pairs.iter().filter_map(print).collect();
        (!pairs.is_empty()).then(|| format!("{{ {} }}", pairs.join(", ")))
    }
}

/// TOML allows no name twice; two spellings of one name it can't know.
fn refuse_repeated<N: PartialEq, V>(
    option: &str,
    pairs: &[Pair<N, V>],
    entries: usize,
    reader: &mut Reader<'_>,
) {
    /// Beyond it a table is no table of names that people write, and comparing all of them would take long.
    const COMPARED_MAX: usize = 1000;
    if entries > COMPARED_MAX {
        return;
    }
    for (index, pair) in pairs.iter().enumerate() {
        if let Some(first) = pairs[..index].iter().find(|first| first.name == pair.name) {
            let line = reader.line(&first.at);
            let mistake = reader.mistake(&pair.at, format!("{option}: the same name appears twice"));
            reader.add(mistake.expecting(format!("a name other than the one in {line}")));
        }
    }
}

/// A value of another kind, or an array; empty if it is left out.
pub(crate) struct OneOrMany<K>(pub(crate) K);

impl<K: Described> Described for OneOrMany<K> {
    fn form(&self) -> Form {
        Form::OneOrMany(self.0.form().into())
    }
}

impl<V, K: Kind<V>> Kind<Vec<V>> for OneOrMany<K> {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Vec<V>> {
        let DeValue::Array(elements) = written.value.get_ref() else {
            return self.0.read(written, reader).map(|value| vec![value]);
        };
        let element = |value: &Spanned<DeValue<'_>>| {
            self.0.read(&Written { path: written.path, name: written.name, value }, reader)
        };
        Some(elements.iter().filter_map(element).collect())
    }

    fn print(&self, values: &Vec<V>) -> Option<String> {
        let printed: Vec<String> = values.iter().filter_map(|value| self.0.print(value)).collect();
        match printed.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            several => Some(format!("[{}]", several.join(", "))),
        }
    }
}
