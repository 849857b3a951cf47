//! Tables that may be left out or be `"off"`, which switches their feature off.

use serde_json::{Value, json};
use toml::de::DeValue;

use crate::kind::{article, quoted};
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
