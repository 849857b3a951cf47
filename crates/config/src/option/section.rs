//! Tables below tables: `[name]`, `[[name]]`, `[name.NAME]`, and `name = "off"`.

use serde_json::{Value, json};
use toml::Spanned;
use toml::de::DeValue;

use crate::document::merge::{join, quoted_key};
use crate::document::reader::{Reader, Span};
use crate::option::form::OFF;
use crate::option::kind::{article, quoted};
use crate::option::table::{Element, Page, Placed, Row, Shape, Table, Written};

/// The ways to write tables below a table.
#[derive(Clone, Copy)]
pub(crate) enum Below {
    /// A table `[name]`.
    One,
    /// A table `[name]`, or `name = "off"`; whether it is on by default.
    Switched(fn() -> bool),
    /// A table `[name]`, or a list of tables `[[name]]`.
    OneOrMany,
    /// A list of tables `[[name]]`.
    Many,
    /// Named tables `[name.NAME]`.
    Named,
    /// A table `[name]` whose options are documented elsewhere.
    Elsewhere,
}

/// Declares a table below a table: its name, options, place and meaning, and how it is written and read.
macro_rules! below {
    (
        $below:expr, $merging:ident, $read:ident;
        $name:expr, $table:expr, $Table:ident.$field:ident, $doc:expr $(,)?
    ) => {
        $crate::option::table::Declared {
            row: $crate::option::table::Row {
                name: $name,
                former_name: None,
                required: false,
                merging: $crate::document::merge::Merging::$merging,
                takes: $crate::option::table::Takes::Tables($below, &$table),
                doc: $doc,
            },
            read: |written, table: &mut $Table, reader| {
                $crate::option::section::$read(&$table, written, &mut table.$field, reader)
            },
            print: |_| None,
            inherit: |_, _| {},
        }
    };
}
pub(crate) use below;

macro_rules! section {
    ($($declaration:tt)+) => {
        $crate::option::section::below!($crate::option::section::Below::One, Once, read_one; $($declaration)+)
    };
}
pub(crate) use section;

/// Declares a table `[name]` that keeps the positions of its options.
macro_rules! placed {
    ($($declaration:tt)+) => {
        $crate::option::section::below!($crate::option::section::Below::One, Once, read_placed; $($declaration)+)
    };
}
pub(crate) use placed;

/// Declares a table `[name]`, or `name = "off"`.
macro_rules! switched {
    ($name:expr, $table:expr, $Table:ident.$field:ident, $doc:expr $(,)?) => {
        $crate::option::section::below!(
            $crate::option::section::Below::Switched(|| <$Table>::default().$field.is_some()),
            Once, read_switched; $name, $table, $Table.$field, $doc
        )
    };
}
pub(crate) use switched;

/// Declares a list of tables `[[name]]`.
macro_rules! sections {
    ($($declaration:tt)+) => {
        $crate::option::section::below!($crate::option::section::Below::Many, Joined, read_many; $($declaration)+)
    };
}
pub(crate) use sections;

/// Declares a table `[name]`, or a list of tables `[[name]]`.
macro_rules! one_or_sections {
    ($($declaration:tt)+) => {
        $crate::option::section::below!(
            $crate::option::section::Below::OneOrMany, Lists, read_one_or_many; $($declaration)+
        )
    };
}
pub(crate) use one_or_sections;

macro_rules! named {
    ($($declaration:tt)+) => {
        $crate::option::section::below!($crate::option::section::Below::Named, Named, read_named; $($declaration)+)
    };
}
pub(crate) use named;

impl Below {
    /// Describes what is expected under a name, at a path.
    pub(crate) fn expected(self, name: &str, path: &str) -> String {
        let one = format!("[{}]", join(path, name));
        match self {
            Self::One | Self::Elsewhere => format!("a table {one}"),
            Self::Switched(_) => format!("a table {one}, or {}", quoted(OFF)),
            Self::OneOrMany => format!("a table {one}, or several [{one}]"),
            Self::Many => format!("at least one [{one}]"),
            Self::Named => format!("at least one table [{name}.NAME]"),
        }
    }

    /// The JSON Schema.
    pub(crate) fn schema(self, table: &dyn Shape, doc: &str) -> Value {
        let one = table.schema();
        match self {
            Self::One | Self::Elsewhere => one,
            Self::Switched(_) => json!({ "anyOf": [{ "const": OFF }, one], "description": doc }),
            Self::OneOrMany => {
                json!({ "anyOf": [one, { "type": "array", "items": one }], "description": doc })
            }
            Self::Many => json!({ "type": "array", "items": one, "minItems": 1, "description": doc }),
            Self::Named => json!({ "type": "object", "additionalProperties": one, "description": doc }),
        }
    }

    /// Adds the tables to the reference.
    pub(crate) fn document(self, row: &Row, table: &dyn Shape, path: &str, page: &mut Page) {
        let Row { name, doc, .. } = *row;
        let inner = join(path, name);
        match self {
            Self::One => page.section(&format!("[{inner}]"), &inner, doc, table),
            Self::Switched(is_on) => {
                let switched = if is_on() {
                    format!("On unless `{name} = \"off\"`.")
                } else {
                    "Off without this table.".to_owned()
                };
                page.section(&format!("[{inner}]"), &inner, &format!("{doc} {switched}"), table);
            }
            Self::OneOrMany => page.section(&format!("[{name}]"), name, doc, table),
            Self::Many => page.section(&format!("[[{name}]]"), name, doc, table),
            Self::Named => {
                let path = join(name, "NAME");
                page.section(&format!("[{path}]"), &path, doc, table);
            }
            Self::Elsewhere => {
                page.section(&format!("[{inner}]"), &inner, doc, &Table::<()> { options: &[] });
            }
        }
    }
}

/// Adds a mistake about something else than the expected tables.
pub(crate) fn refuse(written: &Written<'_>, below: Below, reader: &mut Reader<'_>) {
    let at = written.value.span();
    let name = written.name;
    let message = match (below, written.value.get_ref()) {
        (Below::Many, DeValue::Table(_)) => format!("[{name}] is in single brackets"),
        (Below::Switched(_), DeValue::String(word)) => format!("{name} is {word:?}"),
        (_, other) => format!("{name} is {}", article(other)),
    };
    let expected = match below {
        Below::Many => format!("[[{name}]] in double brackets"),
        Below::Named => format!("tables [{name}.NAME]"),
        _ => below.expected(name, written.path),
    };
    let mistake = reader.mistake(&at, message);
    reader.add(mistake.expecting(expected));
}

pub(crate) fn read_one<V: Default>(
    table: &Table<V>,
    written: &Written<'_>,
    place: &mut V,
    reader: &mut Reader<'_>,
) {
    let path = join(written.path, written.name);
    match written.value.get_ref() {
        DeValue::Table(entries) => {
            *place = table.read((&format!("[{path}]"), &path), entries, &written.value.span(), reader);
        }
        _ => refuse(written, Below::One, reader),
    }
}

pub(crate) fn read_placed<V: Default>(
    table: &Table<V>,
    written: &Written<'_>,
    place: &mut Placed<V>,
    reader: &mut Reader<'_>,
) {
    let path = join(written.path, written.name);
    match written.value.get_ref() {
        DeValue::Table(entries) => {
            let names = (&*format!("[{path}]"), &*path);
            *place = table.read_placed(names, entries, &written.value.span(), reader);
        }
        _ => refuse(written, Below::One, reader),
    }
}

/// A place for a table: for its values alone, or with its position.
pub(crate) trait TablePlace<V> {
    fn from_element(element: Element<V>) -> Self;
}

impl<V> TablePlace<V> for V {
    fn from_element(element: Element<V>) -> Self {
        element.value
    }
}

impl<V> TablePlace<V> for Element<V> {
    fn from_element(element: Self) -> Self {
        element
    }
}

pub(crate) fn read_switched<V: Default, P: TablePlace<V>>(
    table: &Table<V>,
    written: &Written<'_>,
    place: &mut Option<P>,
    reader: &mut Reader<'_>,
) {
    let path = join(written.path, written.name);
    match written.value.get_ref() {
        DeValue::Table(entries) => {
            let names = (&*format!("[{path}]"), &*path);
            *place = Some(P::from_element(table.read_element(names, entries, &written.value.span(), reader)));
        }
        DeValue::String(word) if word == OFF => *place = None,
        _ => refuse(written, Below::Switched(|| false), reader),
    }
}

pub(crate) fn read_many<V: Default>(
    table: &Table<V>,
    written: &Written<'_>,
    place: &mut Vec<Element<V>>,
    reader: &mut Reader<'_>,
) {
    let name = written.name;
    let DeValue::Array(elements) = written.value.get_ref() else {
        return refuse(written, Below::Many, reader);
    };
    if elements.is_empty() {
        let mistake = reader.mistake(&written.value.span(), format!("{name} is empty"));
        reader.add(mistake.expecting(Below::Many.expected(name, "")));
    }
    let title = format!("[[{name}]]");
    place.reserve_exact(elements.len());
    for element in elements.iter() {
        let at = element.span();
        match element.get_ref() {
            DeValue::Table(entries) => place.push(table.read_element((&title, name), entries, &at, reader)),
            other => {
                let mistake = reader.mistake(&at, format!("{name} has {}", article(other)));
                reader.add(mistake.expecting(format!("tables {title}")));
            }
        }
    }
}

pub(crate) fn read_one_or_many<V: Default>(
    table: &Table<V>,
    written: &Written<'_>,
    place: &mut Vec<Element<V>>,
    reader: &mut Reader<'_>,
) {
    let name = written.name;
    let mut read = |title: &str, value: &Spanned<DeValue<'_>>| {
        let DeValue::Table(entries) = value.get_ref() else {
            refuse(&Written { value, ..*written }, Below::OneOrMany, reader);
            return None;
        };
        Some(table.read_element((title, name), entries, &value.span(), reader))
    };
    *place = match written.value.get_ref() {
        DeValue::Array(elements) => {
            let title = format!("[[{name}]]");
            elements.iter().filter_map(|element| read(&title, element)).collect()
        }
        _ => read(&format!("[{name}]"), written.value).into_iter().collect(),
    };
}

/// Describes the names that users choose for tables.
pub(crate) const EXPECTED_NAME: &str = "1 to 64 letters, digits, '.', '-' and '_'";

/// Whether a text can name a table.
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

pub(crate) fn read_named<V: Default>(
    table: &Table<V>,
    written: &Written<'_>,
    place: &mut Vec<(Span, String, V)>,
    reader: &mut Reader<'_>,
) {
    let option = written.name;
    let DeValue::Table(entries) = written.value.get_ref() else {
        return refuse(written, Below::Named, reader);
    };
    for (key, value) in entries.iter() {
        if reader.skip_broken(&key.span()) {
            continue;
        }
        let name = key.get_ref().as_ref();
        if !is_name(name) {
            let mistake = reader.mistake(&key.span(), format!("{name:?} can't name an {option}"));
            reader.add(mistake.expecting(EXPECTED_NAME));
        }
        let path = join(option, &quoted_key(name));
        let title = format!("[{path}]");
        if let DeValue::Table(entries) = value.get_ref() {
            let read = table.read((&title, &path), entries, &value.span(), reader);
            place.push((key.span(), name.to_owned(), read));
        } else {
            let message = format!("{option}.{name} is {}", article(value.get_ref()));
            let mistake = reader.mistake(&key.span(), message);
            reader.add(mistake.expecting(format!("a table {title}")));
        }
    }
    // The parser sorts by name; the order that counts is the file's.
    place.sort_by_key(|(span, _, _)| span.start);
}
