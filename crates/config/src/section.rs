//! Tables with another form: `"off"`, which switches their feature off, and a list of several.

use serde_json::{Value, json};
use toml::Spanned;
use toml::de::DeValue;

use crate::kind::{article, quoted};
use crate::merge::Merging;
use crate::reader::Reader;
use crate::table::{Declared, Element, Page, Table, Written, element, join};

/// The keyword that switches a feature off.
const OFF: &str = "off";

/// A table `[name]`, or `name = "off"`.
pub(crate) struct Switched<T, V: 'static> {
    pub(crate) name: &'static str,
    pub(crate) table: &'static Table<V>,
    pub(crate) place: fn(&mut T) -> &mut Option<Element<V>>,
    pub(crate) doc: &'static str,
}

impl<T: Default + Clone, V: Default + Clone> Declared<T> for Switched<T, V> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_required(&self) -> bool {
        false
    }

    fn expected(&self) -> String {
        format!("a table [{}], or {}", self.name, quoted(OFF))
    }

    fn read(&self, written: &Written<'_>, table: &mut T, reader: &mut Reader<'_>) {
        let path = join(written.path, self.name);
        let at = written.value.span();
        match written.value.get_ref() {
            DeValue::Table(entries) => {
                let refused_before = reader.refused();
                let value = self.table.read((&format!("[{path}]"), &path), entries, &at, reader);
                let is_intact = reader.refused() == refused_before;
                *(self.place)(table) = Some(Element { at, is_intact, ..element(value) });
            }
            DeValue::String(word) if word == OFF => *(self.place)(table) = None,
            other => {
                let what = match other {
                    DeValue::String(word) => format!("{word:?}"),
                    other => article(other).to_owned(),
                };
                let mistake = reader.mistake(&at, format!("{} is {what}", self.name));
                reader.add(mistake.expecting(format!("a table [{path}], or {}", quoted(OFF))));
            }
        }
    }

    fn schema(&self) -> Value {
        json!({ "anyOf": [{ "const": OFF }, self.table.schema()], "description": self.doc })
    }

    fn line(&self, table: &T) -> Option<String> {
        let is_on = |mut table: T| (self.place)(&mut table).is_some();
        (is_on(T::default()) && !is_on(table.clone())).then(|| format!("{} = {}\n", self.name, quoted(OFF)))
    }

    fn sections(&self, table: &T, path: &str) -> String {
        let path = join(path, self.name);
        match (self.place)(&mut table.clone()) {
            Some(element) => format!("\n[{path}]\n{}", self.table.print(&element.value, &path)),
            None => String::new(),
        }
    }

    fn document(&self, path: &str, page: &mut Page) {
        let path = join(path, self.name);
        let switched = if (self.place)(&mut T::default()).is_some() {
            format!("On unless `{} = \"off\"`.", self.name)
        } else {
            "Off without this table.".to_owned()
        };
        page.section(&format!("[{path}]"), &path, &format!("{} {switched}", self.doc), self.table);
    }
}

/// A table `[name]`, or a list of tables `[[name]]`.
pub(crate) struct OneOrSections<T, V: 'static> {
    pub(crate) name: &'static str,
    pub(crate) table: &'static Table<V>,
    pub(crate) place: fn(&mut T) -> &mut Vec<Element<V>>,
    pub(crate) doc: &'static str,
}

impl<T: Clone, V: Default + Clone> OneOrSections<T, V> {
    fn title(&self, is_one: bool) -> String {
        if is_one { format!("[{}]", self.name) } else { format!("[[{}]]", self.name) }
    }

    fn read_one(
        &self,
        title: &str,
        value: &Spanned<DeValue<'_>>,
        reader: &mut Reader<'_>,
    ) -> Option<Element<V>> {
        let at = value.span();
        let DeValue::Table(entries) = value.get_ref() else {
            let mistake = reader.mistake(&at, format!("{} is {}", self.name, article(value.get_ref())));
            reader.add(mistake.expecting(self.expected()));
            return None;
        };
        let refused_before = reader.refused();
        let (value, given) = self.table.read_given((title, self.name), entries, &at, reader);
        Some(Element { value, at, is_intact: reader.refused() == refused_before, given })
    }
}

impl<T: Clone, V: Default + Clone> Declared<T> for OneOrSections<T, V> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_required(&self) -> bool {
        false
    }

    fn merging(&self) -> Merging {
        Merging::Lists
    }

    fn expected(&self) -> String {
        format!("a table {}, or several {}", self.title(true), self.title(false))
    }

    fn read(&self, written: &Written<'_>, table: &mut T, reader: &mut Reader<'_>) {
        let all = match written.value.get_ref() {
            DeValue::Array(elements) => {
                let title = self.title(false);
                elements.iter().filter_map(|element| self.read_one(&title, element, reader)).collect()
            }
            _ => self.read_one(&self.title(true), written.value, reader).into_iter().collect(),
        };
        *(self.place)(table) = all;
    }

    fn line(&self, _: &T) -> Option<String> {
        None
    }

    fn sections(&self, table: &T, _: &str) -> String {
        let mut table = table.clone();
        let all = (self.place)(&mut table);
        // Without any, the defaults are shown.
        let (none, is_one) = ([element(V::default())], all.len() < 2);
        let shown = if all.is_empty() { &none[..] } else { all };
        let print = |element: &Element<V>| {
            format!("\n{}\n{}", self.title(is_one), self.table.print(&element.value, self.name))
        };
        shown.iter().map(print).collect()
    }

    fn schema(&self) -> Value {
        let list = json!({ "type": "array", "items": self.table.schema() });
        json!({ "anyOf": [self.table.schema(), list], "description": self.doc })
    }

    fn document(&self, _: &str, page: &mut Page) {
        page.section(&self.title(true), self.name, self.doc, self.table);
    }
}
