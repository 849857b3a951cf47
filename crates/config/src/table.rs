//! Declared tables: an option is declared once, and read, printed and documented from its declaration.
//!
//! Kinds of values are in `kind`, the options in `options`.

use serde_json::{Map, Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::foreign;
use crate::kind::{Kind, article, refuse_type};
use crate::merge::Merging;
use crate::reader::{Reader, Span};
use mistake::nearest;

/// A declared table. Its options fill a `T`, which starts with its defaults.
pub(crate) struct Table<T: 'static> {
    pub(crate) options: &'static [&'static dyn Declared<T>],
}

/// Which options of a table the file has, by their places in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Given(u128);

impl Given {
    fn of(seen: &[bool]) -> Self {
        Self(seen.iter().enumerate().filter(|(_, seen)| **seen).map(|(index, _)| 1 << index).sum())
    }

    pub(crate) fn has(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }
}

/// A value in the file, and the option that it belongs to.
pub(crate) struct Written<'a> {
    /// The path of the table: empty, `limits`, `upstream.app`.
    pub(crate) path: &'a str,
    /// The name of the option.
    pub(crate) name: &'static str,
    pub(crate) value: &'a Spanned<DeValue<'a>>,
}

/// A declared option of a table, or a table within it.
pub(crate) trait Declared<T>: Sync {
    fn name(&self) -> &'static str;
    /// The former name, which is still read, with a warning.
    fn former_name(&self) -> Option<&'static str> {
        None
    }
    fn is_required(&self) -> bool;
    /// How the option of several files becomes one.
    fn merging(&self) -> Merging {
        Merging::Once
    }
    fn expected(&self) -> String;
    fn read(&self, written: &Written<'_>, table: &mut T, reader: &mut Reader<'_>);
    /// Takes the value that the option has in another table, which stays as it is. For options with a value.
    fn inherit(&self, _from: &mut T, _to: &mut T) {}
    /// Prints `name = value`, if this is an option with a value.
    fn line(&self, table: &T) -> Option<String>;
    /// Prints the tables below this one with their headers, if this is a table.
    fn sections(&self, table: &T, path: &str) -> String;
    /// Adds the option, and the tables below it, to the reference.
    fn document(&self, path: &str, page: &mut Page);
    /// The JSON Schema.
    fn schema(&self) -> Value;
}

impl<T: Default + Clone> Table<T> {
    /// Reads the entries of a table. `title` names the table in mistakes, `at` is its position.
    pub(crate) fn read(
        &self,
        (title, path): (&str, &str),
        entries: &DeTable<'_>,
        at: &Span,
        reader: &mut Reader<'_>,
    ) -> T {
        self.read_given((title, path), entries, at, reader).0
    }

    /// Like `read`, and also returns which options there are.
    pub(crate) fn read_given(
        &self,
        (title, path): (&str, &str),
        entries: &DeTable<'_>,
        at: &Span,
        reader: &mut Reader<'_>,
    ) -> (T, Given) {
        let mut table = T::default();
        let mut seen = vec![false; self.options.len()];
        for (key, value) in entries.iter() {
            if let Some(index) = self.place_of(key.get_ref()) {
                if let Some(former) = self.options[index].former_name() {
                    let names = (former, self.options[index].name());
                    notice_former_name(names, (key, seen[index]), reader);
                }
                seen[index] = true;
                let option = self.options[index];
                if !reader.skip_broken(&key.span()) {
                    option.read(&Written { path, name: option.name(), value }, &mut table, reader);
                }
            } else {
                let meant = self.unknown(title, key.get_ref(), &key.span(), reader);
                // `adress` is one mistake, not also a missing `address`.
                if let Some(index) = self.options.iter().position(|option| Some(option.name()) == meant) {
                    seen[index] = true;
                }
            }
        }
        if reader.is_whole() {
            for (option, _) in
                self.options.iter().zip(&seen).filter(|(option, seen)| option.is_required() && !**seen)
            {
                let missing = reader.mistake(at, format!("{title} has no {}", option.name()));
                reader.add(missing.expecting(option.expected()));
            }
        }
        (table, Given::of(&seen))
    }

    /// The place of an option.
    pub(crate) fn index(&self, name: &str) -> Option<usize> {
        self.place_of(name)
    }

    /// An option by its name, or by its former one.
    pub(crate) fn option(&self, name: &str) -> Option<&'static dyn Declared<T>> {
        self.place_of(name).map(|index| self.options[index])
    }

    /// How the option of several files becomes one. Only one file can be right about an unknown one.
    pub(crate) fn merging(&self, name: &str) -> Merging {
        self.place_of(name).map_or(Merging::Once, |index| self.options[index].merging())
    }

    /// The option of this name, or of this former name.
    fn place_of(&self, name: &str) -> Option<usize> {
        let is_now = |option: &&dyn Declared<T>| option.name() == name;
        let was = |option: &&dyn Declared<T>| option.former_name() == Some(name);
        self.options.iter().position(is_now).or_else(|| self.options.iter().position(was))
    }

    fn unknown(&self, title: &str, name: &str, at: &Span, reader: &mut Reader<'_>) -> Option<&'static str> {
        let names: Vec<&'static str> = self.options.iter().map(|option| option.name()).collect();
        let nearest = nearest(name, names.iter().copied());
        let mistake = reader.mistake(at, format!("unknown key {name:?} in {title}"));
        // What is near is what was meant, whatever it means elsewhere.
        let hint = || foreign::key(name).map(str::to_owned).or_else(|| foreign::owner(name));
        let hint = if nearest.is_none() { hint() } else { None };
        reader.add(mistake.expecting(one_of(&names)).meaning(nearest.map(str::to_owned)).hinting(hint));
        nearest
    }

    /// Prints the values of a table, without its header.
    pub(crate) fn print(&self, table: &T, path: &str) -> String {
        let lines: String = self.options.iter().filter_map(|option| option.line(table)).collect();
        let sections: String = self.options.iter().map(|option| option.sections(table, path)).collect();
        lines + &sections
    }

    /// The JSON Schema of the table.
    pub(crate) fn schema(&self) -> Value {
        let properties = self.options.iter().map(|option| (option.name().to_owned(), option.schema()));
        let required = self.options.iter().filter(|option| option.is_required()).map(|option| option.name());
        json!({
            "type": "object",
            "properties": properties.collect::<Map<_, _>>(),
            "required": required.collect::<Vec<_>>(),
            "additionalProperties": false,
        })
    }

    /// Adds the options of the table, and the tables below it, to the reference.
    pub(crate) fn document(&self, path: &str, page: &mut Page) {
        for option in self.options {
            option.document(path, page);
        }
    }
}

/// Warns of an option under its former name, and rejects one written under both names.
#[cold]
fn notice_former_name(
    (former, name): (&str, &str),
    (written, is_seen): (&Spanned<std::borrow::Cow<'_, str>>, bool),
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
    /// Adds a table below the current one.
    pub(crate) fn section<T: Default + Clone>(
        &mut self,
        header: &str,
        path: &str,
        doc: &str,
        table: &Table<T>,
    ) {
        let mut page = Page::default();
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

/// An option: `name = value`.
pub(crate) struct Key<T, V, K> {
    name: &'static str,
    former_name: Option<&'static str>,
    required: bool,
    kind: K,
    place: fn(&mut T) -> &mut V,
    doc: &'static str,
}

/// Declares an option with a default.
pub(crate) const fn key<T, V, K: Kind<V>>(
    name: &'static str,
    kind: K,
    place: fn(&mut T) -> &mut V,
    doc: &'static str,
) -> Key<T, V, K> {
    Key { name, former_name: None, required: false, kind, place, doc }
}

/// Declares an option with a default and a former name.
pub(crate) const fn renamed<T, V, K: Kind<V>>(
    (former_name, name): (&'static str, &'static str),
    kind: K,
    place: fn(&mut T) -> &mut V,
    doc: &'static str,
) -> Key<T, V, K> {
    Key { name, former_name: Some(former_name), required: false, kind, place, doc }
}

/// Declares a required option.
pub(crate) const fn required<T, V, K: Kind<V>>(
    name: &'static str,
    kind: K,
    place: fn(&mut T) -> &mut V,
    doc: &'static str,
) -> Key<T, V, K> {
    Key { name, former_name: None, required: true, kind, place, doc }
}

impl<T: Default + Clone, V: Clone, K: Kind<V>> Declared<T> for Key<T, V, K> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn former_name(&self) -> Option<&'static str> {
        self.former_name
    }

    fn is_required(&self) -> bool {
        self.required
    }

    fn expected(&self) -> String {
        self.kind.expected()
    }

    fn read(&self, written: &Written<'_>, table: &mut T, reader: &mut Reader<'_>) {
        if let Some(value) = self.kind.read(written, reader) {
            *(self.place)(table) = value;
        }
    }

    fn inherit(&self, from: &mut T, to: &mut T) {
        *(self.place)(to) = (self.place)(from).clone();
    }

    fn line(&self, table: &T) -> Option<String> {
        let value = self.kind.print((self.place)(&mut table.clone()))?;
        Some(format!("{} = {value}\n", self.name))
    }

    fn sections(&self, _: &T, _: &str) -> String {
        String::new()
    }

    fn schema(&self) -> Value {
        let mut schema = self.kind.schema();
        if let Some(schema) = schema.as_object_mut() {
            // What it takes is said where it cannot be expressed; what it means comes first.
            let takes = schema.get("description").and_then(Value::as_str).map(str::to_owned);
            let means = takes.map_or(self.doc.to_owned(), |takes| format!("{} Takes {takes}.", self.doc));
            schema.insert("description".to_owned(), Value::from(means));
        }
        schema
    }

    fn document(&self, _path: &str, page: &mut Page) {
        let default = self.kind.print((self.place)(&mut T::default())).filter(|_| !self.required);
        let default = match default {
            Some(default) => format!("`{default}`"),
            None if self.required => "required".to_owned(),
            None => "none".to_owned(),
        };
        let name = format!("{}{}", page.prefix, self.name);
        // What Markdown would read as the end of a cell or as emphasis.
        let brief = self.kind.brief().replace('|', "\\|").replace('*', "\\*");
        page.rows += &format!("| `{name}` | {brief} | {default} | {} |\n", self.doc);
        let outer = std::mem::replace(&mut page.prefix, format!("{name}."));
        self.kind.document(page);
        page.prefix = outer;
    }
}

/// An option of another struct that appears in this table without a header.
pub(crate) struct Within<T, V: 'static> {
    pub(crate) place: fn(&mut T) -> &mut V,
    pub(crate) option: &'static dyn Declared<V>,
}

impl<T: Clone, V> Declared<T> for Within<T, V> {
    fn name(&self) -> &'static str {
        self.option.name()
    }

    fn is_required(&self) -> bool {
        self.option.is_required()
    }

    fn expected(&self) -> String {
        self.option.expected()
    }

    fn read(&self, written: &Written<'_>, table: &mut T, reader: &mut Reader<'_>) {
        self.option.read(written, (self.place)(table), reader);
    }

    fn inherit(&self, from: &mut T, to: &mut T) {
        self.option.inherit((self.place)(from), (self.place)(to));
    }

    fn line(&self, table: &T) -> Option<String> {
        self.option.line((self.place)(&mut table.clone()))
    }

    fn sections(&self, table: &T, path: &str) -> String {
        self.option.sections((self.place)(&mut table.clone()), path)
    }

    fn document(&self, path: &str, page: &mut Page) {
        self.option.document(path, page);
    }

    fn schema(&self) -> Value {
        self.option.schema()
    }
}

/// An option whose values in several files are joined to a list.
pub(crate) struct Joined<O>(pub(crate) O);

impl<T, O: Declared<T>> Declared<T> for Joined<O> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn is_required(&self) -> bool {
        self.0.is_required()
    }

    fn merging(&self) -> Merging {
        Merging::Joined
    }

    fn expected(&self) -> String {
        self.0.expected()
    }

    fn read(&self, written: &Written<'_>, table: &mut T, reader: &mut Reader<'_>) {
        self.0.read(written, table, reader);
    }

    fn line(&self, table: &T) -> Option<String> {
        self.0.line(table)
    }

    fn sections(&self, table: &T, path: &str) -> String {
        self.0.sections(table, path)
    }

    fn document(&self, path: &str, page: &mut Page) {
        self.0.document(path, page);
    }

    fn schema(&self) -> Value {
        self.0.schema()
    }
}

/// A table `[name]`.
pub(crate) struct Section<T, V: 'static> {
    pub(crate) name: &'static str,
    pub(crate) table: &'static Table<V>,
    pub(crate) place: fn(&mut T) -> &mut V,
    pub(crate) doc: &'static str,
}

impl<T: Clone, V: Default + Clone> Declared<T> for Section<T, V> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_required(&self) -> bool {
        false
    }

    fn expected(&self) -> String {
        format!("a table [{}]", self.name)
    }

    fn read(&self, written: &Written<'_>, table: &mut T, reader: &mut Reader<'_>) {
        let path = join(written.path, self.name);
        let at = written.value.span();
        match written.value.get_ref() {
            DeValue::Table(entries) => {
                *(self.place)(table) = self.table.read((&format!("[{path}]"), &path), entries, &at, reader);
            }
            other => {
                let mistake = reader.mistake(&at, format!("{} is {}", self.name, article(other)));
                reader.add(mistake.expecting(format!("a table [{path}]")));
            }
        }
    }

    fn line(&self, _: &T) -> Option<String> {
        None
    }

    fn sections(&self, table: &T, path: &str) -> String {
        let path = join(path, self.name);
        format!("\n[{path}]\n{}", self.table.print((self.place)(&mut table.clone()), &path))
    }

    fn schema(&self) -> Value {
        self.table.schema()
    }

    fn document(&self, path: &str, page: &mut Page) {
        let path = join(path, self.name);
        page.section(&format!("[{path}]"), &path, self.doc, self.table);
    }
}

/// A table of `[[name]]`, or an inline one, with its position.
#[derive(Debug, Clone)]
pub(crate) struct Element<V> {
    pub(crate) value: V,
    pub(crate) at: Span,
    /// Whether no value in the table was rejected, so that a default value really means that the option was left out.
    pub(crate) is_intact: bool,
    pub(crate) given: Given,
}

/// A table without a position, for printing.
pub(crate) fn element<V>(value: V) -> Element<V> {
    Element { value, at: 0..0, is_intact: true, given: Given::default() }
}

/// A list of tables `[[name]]`.
pub(crate) struct Sections<T, V: 'static> {
    pub(crate) name: &'static str,
    pub(crate) table: &'static Table<V>,
    pub(crate) place: fn(&mut T) -> &mut Vec<Element<V>>,
    pub(crate) required: bool,
    pub(crate) doc: &'static str,
}

impl<T: Clone, V: Default + Clone> Declared<T> for Sections<T, V> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_required(&self) -> bool {
        self.required
    }

    fn merging(&self) -> Merging {
        Merging::Joined
    }

    fn expected(&self) -> String {
        format!("at least one [[{}]]", self.name)
    }

    fn read(&self, written: &Written<'_>, table: &mut T, reader: &mut Reader<'_>) {
        let title = format!("[[{}]]", self.name);
        let DeValue::Array(elements) = written.value.get_ref() else {
            let message = match written.value.get_ref() {
                DeValue::Table(_) => format!("[{}] is in single brackets", self.name),
                other => format!("{} is {}", self.name, article(other)),
            };
            let mistake = reader.mistake(&written.value.span(), message);
            return reader.add(mistake.expecting(format!("{title} in double brackets")));
        };
        if elements.is_empty() {
            let mistake = reader.mistake(&written.value.span(), format!("{} is empty", self.name));
            reader.add(mistake.expecting(self.expected()));
        }
        (self.place)(table).reserve_exact(elements.len());
        for element in elements.iter() {
            let at = element.span();
            match element.get_ref() {
                DeValue::Table(entries) => {
                    let refused_before = reader.refused();
                    let (value, given) = self.table.read_given((&title, self.name), entries, &at, reader);
                    let is_intact = reader.refused() == refused_before;
                    (self.place)(table).push(Element { value, at, is_intact, given });
                }
                other => {
                    let mistake = reader.mistake(&at, format!("{} has {}", self.name, article(other)));
                    reader.add(mistake.expecting(format!("tables {title}")));
                }
            }
        }
    }

    fn line(&self, _: &T) -> Option<String> {
        None
    }

    fn sections(&self, table: &T, _: &str) -> String {
        let print = |element: &Element<V>| {
            format!("\n[[{}]]\n{}", self.name, self.table.print(&element.value, self.name))
        };
        (self.place)(&mut table.clone()).iter().map(print).collect()
    }

    fn schema(&self) -> Value {
        json!({ "type": "array", "items": self.table.schema(), "minItems": 1, "description": self.doc })
    }

    fn document(&self, _: &str, page: &mut Page) {
        page.section(&format!("[[{}]]", self.name), self.name, self.doc, self.table);
    }
}

/// Named tables `[name.NAME]`.
pub(crate) struct Named<T, V: 'static> {
    pub(crate) name: &'static str,
    pub(crate) table: &'static Table<V>,
    pub(crate) place: fn(&mut T) -> &mut Vec<(Span, String, V)>,
    pub(crate) is_name: fn(&str) -> bool,
    pub(crate) expected_name: &'static str,
    pub(crate) doc: &'static str,
}

impl<T: Clone, V: Default + Clone> Declared<T> for Named<T, V> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_required(&self) -> bool {
        false
    }

    fn merging(&self) -> Merging {
        Merging::Named
    }

    fn expected(&self) -> String {
        format!("at least one table [{}.NAME]", self.name)
    }

    fn read(&self, written: &Written<'_>, table: &mut T, reader: &mut Reader<'_>) {
        let DeValue::Table(entries) = written.value.get_ref() else {
            let message = format!("{} is {}", self.name, article(written.value.get_ref()));
            let mistake = reader.mistake(&written.value.span(), message);
            return reader.add(mistake.expecting(format!("tables [{}.NAME]", self.name)));
        };
        for (key, value) in entries.iter() {
            if reader.skip_broken(&key.span()) {
                continue;
            }
            let name = key.get_ref().as_ref();
            if !(self.is_name)(name) {
                let mistake = reader.mistake(&key.span(), format!("{name:?} can't name an {}", self.name));
                reader.add(mistake.expecting(self.expected_name));
            }
            let path = join(self.name, &quoted_key(name));
            let title = format!("[{path}]");
            if let DeValue::Table(entries) = value.get_ref() {
                let read = self.table.read((&title, &path), entries, &value.span(), reader);
                (self.place)(table).push((key.span(), name.to_owned(), read));
            } else {
                let message = format!("{}.{name} is {}", self.name, article(value.get_ref()));
                let mistake = reader.mistake(&key.span(), message);
                reader.add(mistake.expecting(format!("a table {title}")));
            }
        }
        // The parser sorts by name; the order that counts is the file's.
        (self.place)(table).sort_by_key(|(span, _, _)| span.start);
    }

    fn line(&self, _: &T) -> Option<String> {
        None
    }

    fn sections(&self, table: &T, _: &str) -> String {
        let print = |(_, name, value): &(Span, String, V)| {
            let path = join(self.name, &quoted_key(name));
            format!("\n[{path}]\n{}", self.table.print(value, &path))
        };
        (self.place)(&mut table.clone()).iter().map(print).collect()
    }

    fn schema(&self) -> Value {
        json!({ "type": "object", "additionalProperties": self.table.schema(), "description": self.doc })
    }

    fn document(&self, _: &str, page: &mut Page) {
        let path = join(self.name, "NAME");
        page.section(&format!("[{path}]"), &path, self.doc, self.table);
    }
}

/// An inline table `{ … }` as the value of an option or an element of an array. Tables inside it have no headers.
pub(crate) struct Inline<V: 'static> {
    /// The name of the table in mistakes.
    pub(crate) title: &'static str,
    pub(crate) example: &'static str,
    pub(crate) table: &'static Table<V>,
}

impl<V: Default + Clone> Kind<Element<V>> for Inline<V> {
    fn can_be_off(&self) -> bool {
        true
    }

    fn expected(&self) -> String {
        format!("a table such as {}", self.example)
    }

    fn brief(&self) -> String {
        "table".to_owned()
    }

    fn document(&self, page: &mut Page) {
        self.table.document("", page);
    }

    fn schema(&self) -> Value {
        self.table.schema()
    }

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Element<V>> {
        let DeValue::Table(entries) = written.value.get_ref() else {
            refuse_type(written, self.expected(), reader);
            return None;
        };
        let at = written.value.span();
        let refused_before = reader.refused();
        let (value, given) = self.table.read_given((self.title, written.path), entries, &at, reader);
        Some(Element { value, at, is_intact: reader.refused() == refused_before, given })
    }

    fn print(&self, element: &Element<V>) -> Option<String> {
        let lines = self.table.print(&element.value, "");
        Some(format!("{{ {} }}", lines.lines().collect::<Vec<_>>().join(", ")))
    }
}

pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Quotes a TOML key if necessary.
pub(crate) fn quoted_key(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !name.is_empty() && name.bytes().all(bare) { name.to_owned() } else { toml_text::quoted(name) }
}
