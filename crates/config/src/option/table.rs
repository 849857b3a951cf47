//! Declared tables: an option is declared once, and read, printed and documented from its declaration.
//!
//! A declaration is plain data and two functions, which read the option into its table and print it. Kinds of values are
//! in `kind`, tables below tables in `section`, the options in `options`.

use std::borrow::Cow;

use mistake::nearest;
use serde_json::{Map, Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::document::foreign;
use crate::document::merge::Merging;
use crate::document::reader::{Reader, Span};
use crate::option::form::Form;
use crate::option::kind::{Described, Kind, refuse_type};
use crate::option::section::Below;

/// A declared table. Its options fill a `T`, which starts with its defaults.
pub(crate) struct Table<T: 'static> {
    pub(crate) options: &'static [Declared<T>],
}

/// A declared option of a table, or a table within it.
pub(crate) struct Declared<T> {
    pub(crate) row: Row,
    pub(crate) read: fn(&Written<'_>, &mut T, &mut Reader<'_>),
    /// Prints the value as in a file; `None` if the option would be left out, or is a table.
    pub(crate) print: fn(&T) -> Option<String>,
    /// Takes the value that the option has in another table. Only options of routes have this.
    pub(crate) inherit: fn(&T, &mut T),
}

impl<T> Clone for Declared<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Declared<T> {}

/// A declaration without its functions.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// The former name, which is still read, with a warning.
    pub(crate) former_name: Option<&'static str>,
    pub(crate) required: bool,
    /// The rule by which the option of several files becomes one.
    pub(crate) merging: Merging,
    pub(crate) takes: Takes,
    pub(crate) doc: &'static str,
}

/// The values that an option accepts.
#[derive(Clone, Copy)]
pub(crate) enum Takes {
    Value(&'static dyn Described),
    Tables(Below, &'static dyn Shape),
}

/// A value in the file, and the option that it belongs to.
pub(crate) struct Written<'a> {
    /// The path of the table: empty, `limits`, `upstream.app`.
    pub(crate) path: &'a str,
    /// The name of the option.
    pub(crate) name: &'static str,
    pub(crate) value: &'a Spanned<DeValue<'a>>,
}

/// Declares an option `name = value` with a default: its name, kind, place (`Table.field`) and meaning.
macro_rules! key {
    ($name:expr, $kind:expr, $Table:ident.$($field:tt).+, $doc:expr $(,)?) => {
        $crate::option::table::Declared {
            row: $crate::option::table::Row {
                name: $name,
                former_name: None,
                required: false,
                merging: $crate::document::merge::Merging::Once,
                takes: $crate::option::table::Takes::Value(&$kind),
                doc: $doc,
            },
            read: |written, table: &mut $Table, reader| {
                $crate::option::table::fill(&$kind, written, &mut table.$($field).+, reader)
            },
            print: |table: &$Table| $crate::option::kind::Kind::print(&$kind, &table.$($field).+),
            inherit: |_, _| {},
        }
    };
}
pub(crate) use key;

macro_rules! required {
    ($($declaration:tt)+) => { $crate::option::table::key!($($declaration)+).required() };
}
pub(crate) use required;

/// Declares an option with a default and a former name.
macro_rules! renamed {
    (($former_name:expr, $name:expr), $($rest:tt)+) => {
        $crate::option::table::key!($name, $($rest)+).formerly($former_name)
    };
}
pub(crate) use renamed;

/// Declares an option that routes may have from `[route_defaults]`.
macro_rules! inherited {
    ($name:expr, $kind:expr, $Table:ident.$($field:tt).+, $doc:expr $(,)?) => {
        $crate::option::table::Declared {
            inherit: |from: &$Table, to: &mut $Table| to.$($field).+.clone_from(&from.$($field).+),
            ..$crate::option::table::key!($name, $kind, $Table.$($field).+, $doc)
        }
    };
}
pub(crate) use inherited;

/// Declares an option of another struct that appears in this table without a header.
macro_rules! within {
    ($Table:ident.$($field:tt).+, $option:expr) => {
        $crate::option::table::Declared {
            row: $option.row,
            read: |written, table: &mut $Table, reader| {
                ($option.read)(written, &mut table.$($field).+, reader)
            },
            print: |table: &$Table| ($option.print)(&table.$($field).+),
            inherit: |_, _| {},
        }
    };
}
pub(crate) use within;

impl<T> Declared<T> {
    pub(crate) const fn required(mut self) -> Self {
        self.row.required = true;
        self
    }

    pub(crate) const fn formerly(mut self, former_name: &'static str) -> Self {
        self.row.former_name = Some(former_name);
        self
    }

    pub(crate) const fn merged(mut self, merging: Merging) -> Self {
        self.row.merging = merging;
        self
    }
}

/// Reads a value of this kind into its place, unless it is rejected.
pub(crate) fn fill<V, K: Kind<V>>(kind: &K, written: &Written<'_>, place: &mut V, reader: &mut Reader<'_>) {
    if let Some(value) = kind.read(written, reader) {
        *place = value;
    }
}

/// Which options of a table the file has, by their places in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct GivenOptions(u128);

impl GivenOptions {
    pub(crate) fn has(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }

    fn add(&mut self, index: usize) {
        self.0 |= 1 << index;
    }
}

/// A table of `[[name]]`, or an inline one, with its position.
#[derive(Debug, Clone)]
pub(crate) struct Element<V> {
    pub(crate) value: V,
    pub(crate) at: Span,
    /// Whether no value in the table was rejected, so that a default value really means that the option was left out.
    pub(crate) is_intact: bool,
    pub(crate) given: GivenOptions,
}

/// A table without a position, for printing.
pub(crate) fn element<V>(value: V) -> Element<V> {
    Element { value, at: 0..0, is_intact: true, given: GivenOptions::default() }
}

/// A table with the positions of its options, for mistakes about them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Placed<V> {
    pub(crate) value: V,
    places: Vec<(&'static str, Span)>,
}

impl<V> Placed<V> {
    /// The position of an option's value, if the file has the option.
    pub(crate) fn at(&self, option: &str) -> Option<&Span> {
        self.places.iter().find(|(name, _)| *name == option).map(|(_, at)| at)
    }
}

impl<V> From<V> for Placed<V> {
    fn from(value: V) -> Self {
        Self { value, places: Vec::new() }
    }
}

impl Written<'_> {
    /// The option with the table around it: `route.when`.
    pub(crate) fn full_name(&self) -> String {
        if self.path.is_empty() { self.name.to_owned() } else { format!("{}.{}", self.path, self.name) }
    }
}

impl<T: Default> Table<T> {
    /// Reads the entries of a table. `title` names the table in mistakes, `at` is its position.
    pub(crate) fn read(
        &self,
        names: (&str, &str),
        entries: &DeTable<'_>,
        at: &Span,
        reader: &mut Reader<'_>,
    ) -> T {
        self.read_element(names, entries, at, reader).value
    }

    /// Like `read`, and also returns which options there are, and whether all of them were accepted.
    pub(crate) fn read_element(
        &self,
        names: (&str, &str),
        entries: &DeTable<'_>,
        at: &Span,
        reader: &mut Reader<'_>,
    ) -> Element<T> {
        let (mut value, refused_before) = (T::default(), reader.refused());
        let mut read = |index: usize, written: &Written<'_>, reader: &mut Reader<'_>| {
            (self.options[index].read)(written, &mut value, reader);
        };
        let outer_names = reader.expression_names.enter();
        let given = read_entries(self, &mut read, names, entries, at, reader);
        reader.expression_names.leave(outer_names);
        let is_intact = reader.refused() == refused_before;
        Element { value, at: at.clone(), is_intact, given }
    }

    /// Like `read`, and also returns where the options are.
    pub(crate) fn read_placed(
        &self,
        names: (&str, &str),
        entries: &DeTable<'_>,
        at: &Span,
        reader: &mut Reader<'_>,
    ) -> Placed<T> {
        let mut placed = Placed::from(T::default());
        let mut read = |index: usize, written: &Written<'_>, reader: &mut Reader<'_>| {
            placed.places.push((written.name, written.value.span()));
            (self.options[index].read)(written, &mut placed.value, reader);
        };
        read_entries(self, &mut read, names, entries, at, reader);
        placed
    }
}

impl<T> Table<T> {
    /// An option and its place, by its name or its former one.
    pub(crate) fn option(&self, name: &str) -> Option<(usize, &'static Declared<T>)> {
        let is_now = |option: &Declared<T>| option.row.name == name;
        let was = |option: &Declared<T>| option.row.former_name == Some(name);
        let index = self.options.iter().position(is_now).or_else(|| self.options.iter().position(was))?;
        Some((index, &self.options[index]))
    }

    /// Prints the values that are not the defaults, as an inline table.
    pub(crate) fn print_given(&self, table: &T) -> String
    where
        T: Default,
    {
        let defaults = T::default();
        let given = |Declared { row, print, .. }: &Declared<T>| {
            let value = print(table).filter(|value| Some(value) != print(&defaults).as_ref())?;
            Some(format!("{} = {value}", row.name))
        };
        format!("{{ {} }}", self.options.iter().filter_map(given).collect::<Vec<_>>().join(", "))
    }

    /// Prints the values of a table, one option a line, without its header.
    pub(crate) fn print(&self, table: &T) -> String {
        let line =
            |Declared { row, print, .. }: &Declared<T>| Some(format!("{} = {}\n", row.name, print(table)?));
        self.options.iter().filter_map(line).collect()
    }
}

/// A table without the type that holds its values.
pub(crate) trait Shape: Sync {
    /// The declaration of an option, by its place.
    fn row(&self, index: usize) -> Option<&'static Row>;
    /// The default of an option with a value, as in a file.
    fn default_of(&self, index: usize) -> Option<String>;
}

impl<T: Default> Shape for Table<T> {
    fn row(&self, index: usize) -> Option<&'static Row> {
        self.options.get(index).map(|option| &option.row)
    }

    fn default_of(&self, index: usize) -> Option<String> {
        (self.options.get(index)?.print)(&T::default())
    }
}

impl dyn Shape + '_ {
    fn rows(&self) -> impl Iterator<Item = &'static Row> + use<'_> {
        (0..).map_while(|index| self.row(index))
    }

    /// The JSON Schema of the table.
    pub(crate) fn schema(&self) -> Value {
        let properties = self.rows().map(|row| (row.name.to_owned(), row.schema()));
        let required = self.rows().filter(|row| row.required).map(|row| row.name);
        json!({
            "type": "object",
            "properties": properties.collect::<Map<_, _>>(),
            "required": required.collect::<Vec<_>>(),
            "additionalProperties": false,
        })
    }

    /// Adds the options of the table, and the tables below it, to the reference.
    pub(crate) fn document(&self, path: &str, page: &mut Page) {
        for (index, row) in self.rows().enumerate() {
            match row.takes {
                Takes::Value(kind) => page.option(row, &kind.form(), self.default_of(index)),
                Takes::Tables(below, table) => below.document(row, table, path, page),
            }
        }
    }
}

impl Row {
    fn expected(&self) -> String {
        match self.takes {
            Takes::Value(kind) => kind.expected(),
            Takes::Tables(below, _) => below.expected(self.name, ""),
        }
    }

    fn schema(&self) -> Value {
        let mut schema = match self.takes {
            Takes::Tables(below, table) => return below.schema(table, self.doc),
            Takes::Value(kind) => kind.form().schema(),
        };
        if let Some(schema) = schema.as_object_mut() {
            // The accepted values are described in words where the schema cannot express them. The meaning comes first.
            let takes = schema.get("description").and_then(Value::as_str).map(str::to_owned);
            let means = takes.map_or(self.doc.to_owned(), |takes| format!("{} Takes {takes}.", self.doc));
            schema.insert("description".to_owned(), Value::from(means));
        }
        schema
    }
}

/// Reads the entries of a table with `read`, which is given the places of options.
fn read_entries(
    shape: &dyn Shape,
    read: &mut dyn FnMut(usize, &Written<'_>, &mut Reader<'_>),
    (title, path): (&str, &str),
    entries: &DeTable<'_>,
    at: &Span,
    reader: &mut Reader<'_>,
) -> GivenOptions {
    let mut seen = GivenOptions::default();
    let place_of = |is: &dyn Fn(&Row) -> bool| shape.rows().enumerate().find(|(_, row)| is(row));
    let known = |name: &str| {
        place_of(&|row| row.name == name).or_else(|| place_of(&|row| row.former_name == Some(name)))
    };
    let mut known: Vec<_> = entries.iter().map(|(key, value)| (known(key.get_ref()), key, value)).collect();
    // In the order of the declarations: expressions use names of tables that are declared before their own.
    known.sort_by_key(|(known, ..)| known.map_or(usize::MAX, |(index, _)| index));
    for (known, key, value) in known {
        if let Some((index, row)) = known {
            if let Some(former) = row.former_name {
                notice_former_name((former, row.name), (key, seen.has(index)), reader);
            }
            seen.add(index);
            if !reader.skip_broken(&key.span()) {
                read(index, &Written { path, name: row.name, value }, reader);
            }
        } else {
            let meant = refuse_unknown(shape, title, key.get_ref(), &key.span(), reader);
            // `adress` is one mistake, not also a missing `address`.
            if let Some((index, _)) = place_of(&|row| Some(row.name) == meant) {
                seen.add(index);
            }
        }
    }
    if reader.is_whole() {
        for (_, row) in shape.rows().enumerate().filter(|(index, row)| row.required && !seen.has(*index)) {
            let missing = reader.mistake(at, format!("{title} has no {}", row.name));
            reader.add(missing.expecting(row.expected()));
        }
    }
    seen
}

/// Rejects an option that the table does not have. Returns the one that was probably meant.
fn refuse_unknown(
    shape: &dyn Shape,
    title: &str,
    name: &str,
    at: &Span,
    reader: &mut Reader<'_>,
) -> Option<&'static str> {
    let names: Vec<&'static str> = shape.rows().map(|row| row.name).collect();
    let nearest = nearest(name, names.iter().copied());
    let mistake = reader.mistake(at, format!("unknown key {name:?} in {title}"));
    // An option of another table is in the wrong place, unless it is one letter from an option of this table.
    let owner = (reader.format.owners)(name).filter(|_| nearest.is_none_or(|near| !is_close(name, near)));
    let nearest = if owner.is_some() { None } else { nearest };
    let hint = || foreign::key(&format!("{title} {name}")).or_else(|| foreign::key(name)).map(str::to_owned);
    let hint = owner.or_else(|| if nearest.is_none() { hint() } else { None });
    reader.add(mistake.expecting(one_of(&names)).meaning(nearest.map(str::to_owned)).hinting(hint));
    nearest
}

/// Whether two names differ by a letter at most, or by how words are joined.
fn is_close(one: &str, other: &str) -> bool {
    let letters = |name: &str| name.replace(['-', '_'], "").to_lowercase();
    let (one, other) = (letters(one), letters(other));
    let (short, long) = if one.len() < other.len() { (one, other) } else { (other, one) };
    let start = short.bytes().zip(long.bytes()).take_while(|(a, b)| a == b).count();
    match long.len() - short.len() {
        0 => start == short.len() || short.as_bytes()[start + 1..] == long.as_bytes()[start + 1..],
        1 => short.as_bytes()[start..] == long.as_bytes()[start + 1..],
        _ => false,
    }
}

/// Warns of an option under its former name, and rejects one written under both names.
#[cold]
fn notice_former_name(
    (former, name): (&str, &str),
    (written, is_seen): (&Spanned<Cow<'_, str>>, bool),
    reader: &mut Reader<'_>,
) {
    let at = written.span();
    if is_seen {
        reader.add(reader.mistake(&at, format!("{former} is the former name of {name}: write it once")));
    } else if written.get_ref() == former {
        reader.warn(reader.mistake(&at, format!("{former} is called {name} now")));
    }
}

/// Joins names to a list: `a, b or c`.
pub(crate) fn one_of(names: &[&str]) -> String {
    match names {
        [] => "nothing".to_owned(),
        [name] => (*name).to_owned(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    }
}

/// The reference while it is generated: the options of the current table, then the tables below it.
#[derive(Default)]
pub(crate) struct Page {
    /// The prefix for options of a value that may be a table: `servers.`.
    prefix: String,
    rows: String,
    sections: String,
}

impl Page {
    /// Adds an option of the current table, and the options of its value.
    fn option(&mut self, row: &Row, form: &Form, default: Option<String>) {
        let default = match default {
            _ if row.required => "required".to_owned(),
            Some(default) => format!("`{default}`"),
            None => "none".to_owned(),
        };
        let name = format!("{}{}", self.prefix, row.name);
        // What Markdown would read as the end of a cell or as emphasis.
        let brief = form.in_brief().replace('|', "\\|").replace('*', "\\*");
        self.rows += &format!("| `{name}` | {brief} | {default} | {} |\n", row.doc);
        let outer = std::mem::replace(&mut self.prefix, format!("{name}."));
        form.document(self);
        self.prefix = outer;
    }

    /// Adds a table below the current one.
    pub(crate) fn section(&mut self, header: &str, path: &str, doc: &str, table: &dyn Shape) {
        let mut page = Self::default();
        table.document(path, &mut page);
        self.sections += &format!("\n### `{header}`\n\n{doc}\n\n{}", page.finish());
    }

    /// Returns the rows as a Markdown table, and the tables below.
    pub(crate) fn finish(self) -> String {
        let head = "| option | takes | default | meaning |\n|---|---|---|---|\n";
        let head = if self.rows.is_empty() { "" } else { head };
        format!("{head}{}{}", self.rows, self.sections)
    }
}

/// An inline table `{ … }` as the value of an option or an element of an array. Tables inside it have no headers.
pub(crate) struct Inline<V: 'static> {
    /// The name of the table in mistakes.
    pub(crate) title: &'static str,
    pub(crate) example: &'static str,
    pub(crate) table: &'static Table<V>,
}

impl<V: Default> Described for Inline<V> {
    fn form(&self) -> Form {
        Form::Table { example: self.example, table: self.table }
    }
}

impl<V: Default> Kind<Element<V>> for Inline<V> {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Element<V>> {
        let DeValue::Table(entries) = written.value.get_ref() else {
            refuse_type(written, self.expected(), reader);
            return None;
        };
        let names = (self.title, written.path);
        Some(self.table.read_element(names, entries, &written.value.span(), reader))
    }

    fn print(&self, element: &Element<V>) -> Option<String> {
        Some(self.print_value(&element.value))
    }
}

impl<V> Inline<V> {
    pub(crate) fn print_value(&self, value: &V) -> String {
        let lines = self.table.print(value);
        format!("{{ {} }}", lines.lines().collect::<Vec<_>>().join(", "))
    }
}
