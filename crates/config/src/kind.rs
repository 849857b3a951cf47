//! Kinds of values: what each accepts, and how it is read and printed.
//!
//! Each kind describes its values in one place, for mistakes and for the reference. Kinds with a range are in `range`.

use serde_json::{Value, json};
use toml::Spanned;
use toml::de::DeValue;

use crate::foreign;
use crate::reader::{Reader, Span};
use crate::table::{Page, Written, one_of};
use crate::value_error::ValueError;
use mistake::nearest;

/// A kind of value that options can have.
pub(crate) trait Kind<V>: Sync {
    /// Describes the expected values: `a duration such as …`.
    fn expected(&self) -> String;
    /// Describes the expected values in few words, for a table whose readers know what a duration looks like.
    fn brief(&self) -> String {
        self.expected()
    }
    /// Whether `"off"` can stand for no value, where a value is optional.
    fn can_be_off(&self) -> bool {
        false
    }
    /// Adds the options of a value that may be a table to the reference.
    fn document(&self, _page: &mut Page) {}
    /// The JSON Schema. It accepts whatever `read` accepts, and explains in words what a schema cannot express.
    fn schema(&self) -> Value {
        json!({ "description": self.expected() })
    }
    /// Reads a value, or adds a mistake to the reader.
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<V>;
    /// Prints a value as in a file; `None` if the option would be left out.
    fn print(&self, value: &V) -> Option<String>;
}

/// Adds a mistake about a value of the wrong type.
pub(crate) fn refuse_type(written: &Written<'_>, expected: String, reader: &mut Reader<'_>) {
    let message = format!("{}: this is {}", written.name, article(written.value.get_ref()));
    let mistake = reader.mistake(&written.value.span(), message);
    reader.add(mistake.expecting(expected));
}

/// The type of a value with its article: `an array`.
pub(crate) fn article(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// Quotes a string for TOML, so that nothing is put into it.
pub(crate) fn quoted(text: &str) -> String {
    toml_text::literal(text)
}

/// A string with a syntax that `read` parses.
pub(crate) struct Text<V> {
    pub(crate) expected: &'static str,
    pub(crate) read: fn(&str) -> Result<V, ValueError>,
    pub(crate) print: fn(&V) -> String,
}

impl<V> Kind<V> for Text<V> {
    fn expected(&self) -> String {
        self.expected.to_owned()
    }

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<V> {
        let DeValue::String(text) = written.value.get_ref() else {
            refuse_type(written, self.expected(), reader);
            return None;
        };
        match (self.read)(text) {
            Ok(value) => Some(value),
            Err(error) => {
                reader.refuse(&written.value.span(), written.name, &error);
                None
            }
        }
    }

    fn print(&self, value: &V) -> Option<String> {
        Some(quoted(&(self.print)(value)))
    }
}

/// A string of any content.
pub(crate) struct Name {
    pub(crate) expected: &'static str,
}

impl Kind<String> for Name {
    fn expected(&self) -> String {
        self.expected.to_owned()
    }

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<String> {
        let text = written.value.get_ref().as_str();
        if text.is_none() {
            refuse_type(written, self.expected(), reader);
        }
        text.map(str::to_owned)
    }

    fn print(&self, value: &String) -> Option<String> {
        Some(quoted(value))
    }
}

/// A string with variables of requests, such as `$host`. What was put into it has none.
pub(crate) struct Template {
    pub(crate) expected: &'static str,
}

impl Kind<String> for Template {
    fn expected(&self) -> String {
        self.expected.to_owned()
    }

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<String> {
        let text = Name { expected: self.expected }.read(written, reader)?;
        let literal = reader.literal(&written.value.span());
        if literal.is_empty() {
            return Some(text);
        }
        let (mut template, mut rest) = (String::with_capacity(text.len() + 8), 0);
        for range in literal {
            template += &text[rest..range.start];
            template += &text[range.clone()].replace('$', "$$");
            rest = range.end;
        }
        Some(template + &text[rest..])
    }

    fn print(&self, value: &String) -> Option<String> {
        Some(toml_text::quoted(value))
    }
}

/// A boolean: `true` or `false`.
pub(crate) struct Switch;

impl Kind<bool> for Switch {
    fn expected(&self) -> String {
        "true or false".to_owned()
    }

    fn schema(&self) -> Value {
        json!({ "type": "boolean" })
    }

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<bool> {
        let is_on = match written.value.get_ref() {
            // `"${DEBUG}"`: in the file it is a string, whatever it stands for.
            DeValue::String(text) if reader.is_completed(&written.value.span()) => text.parse().ok(),
            other => other.as_bool(),
        };
        if is_on.is_none() {
            refuse_type(written, self.expected(), reader);
        }
        is_on
    }

    fn print(&self, is_on: &bool) -> Option<String> {
        Some(is_on.to_string())
    }
}

/// One of a few keywords.
pub(crate) struct Word<V: 'static> {
    pub(crate) words: &'static [(&'static str, V)],
}

impl<V> Word<V> {
    fn names(&self) -> impl Iterator<Item = &'static str> + use<'_, V> {
        self.words.iter().map(|(word, _)| *word)
    }
}

impl<V: Clone + PartialEq + Sync> Kind<V> for Word<V> {
    fn expected(&self) -> String {
        let quoted: Vec<String> = self.names().map(quoted).collect();
        one_of(&quoted.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn schema(&self) -> Value {
        json!({ "enum": self.names().collect::<Vec<_>>() })
    }

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<V> {
        let DeValue::String(text) = written.value.get_ref() else {
            refuse_type(written, self.expected(), reader);
            return None;
        };
        if let Some((_, value)) = self.words.iter().find(|(word, _)| word == text) {
            return Some(value.clone());
        }
        let mistake =
            reader.mistake(&written.value.span(), format!("{}: unknown word {text:?}", written.name));
        let names: Vec<&str> = self.names().collect();
        let meant = foreign::word(text, &names).or_else(|| nearest(text, names.iter().copied()));
        let nearest = meant.map(str::to_owned);
        reader.add(mistake.expecting(self.expected()).meaning(nearest));
        None
    }

    fn print(&self, value: &V) -> Option<String> {
        self.words.iter().find(|(_, meant)| meant == value).map(|(word, _)| quoted(word))
    }
}

/// A value of another kind, converted.
pub(crate) struct Made<K, W, V> {
    pub(crate) kind: K,
    /// Converts the parsed value.
    pub(crate) make: fn(W) -> V,
    /// Converts back, for printing.
    pub(crate) written: fn(&V) -> W,
}

impl<K: Kind<W>, W, V> Kind<V> for Made<K, W, V> {
    fn can_be_off(&self) -> bool {
        self.kind.can_be_off()
    }

    fn expected(&self) -> String {
        self.kind.expected()
    }

    fn brief(&self) -> String {
        self.kind.brief()
    }

    fn document(&self, page: &mut Page) {
        self.kind.document(page);
    }

    fn schema(&self) -> Value {
        self.kind.schema()
    }

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<V> {
        self.kind.read(written, reader).map(self.make)
    }

    fn print(&self, value: &V) -> Option<String> {
        self.kind.print(&(self.written)(value))
    }
}

/// A value of another kind, or a keyword for `None`.
pub(crate) struct Unless<K> {
    pub(crate) word: &'static str,
    pub(crate) kind: K,
}

impl<V, K: Kind<V>> Kind<Option<V>> for Unless<K> {
    fn expected(&self) -> String {
        format!("{}, or {:?}", self.kind.expected(), self.word)
    }

    fn brief(&self) -> String {
        format!("{}, or {:?}", self.kind.brief(), self.word)
    }

    fn schema(&self) -> Value {
        json!({ "anyOf": [{ "const": self.word }, self.kind.schema()] })
    }

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Option<V>> {
        if written.value.get_ref().as_str() == Some(self.word) {
            return Some(None);
        }
        self.kind.read(written, reader).map(Some)
    }

    fn print(&self, value: &Option<V>) -> Option<String> {
        match value {
            Some(value) => self.kind.print(value),
            None => Some(quoted(self.word)),
        }
    }
}

/// An optional value of another kind.
pub(crate) struct Maybe<K>(pub(crate) K);

impl<V, K: Kind<V>> Kind<Option<V>> for Maybe<K> {
    fn expected(&self) -> String {
        self.0.expected()
    }

    fn brief(&self) -> String {
        self.0.brief()
    }

    fn document(&self, page: &mut Page) {
        self.0.document(page);
    }

    fn schema(&self) -> Value {
        if self.0.can_be_off() {
            json!({ "anyOf": [{ "const": "off" }, self.0.schema()] })
        } else {
            self.0.schema()
        }
    }

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Option<V>> {
        // A route can have none of what [route_defaults] has.
        if self.0.can_be_off() && written.value.get_ref().as_str() == Some("off") {
            return Some(None);
        }
        self.0.read(written, reader).map(Some)
    }

    fn print(&self, value: &Option<V>) -> Option<String> {
        self.0.print(value.as_ref()?)
    }
}

/// What describes a kind, where its values are only held in another way: as the inner kind has it.
macro_rules! described_by_inner {
    () => {
        fn can_be_off(&self) -> bool {
            self.0.can_be_off()
        }

        fn expected(&self) -> String {
            self.0.expected()
        }

        fn brief(&self) -> String {
            self.0.brief()
        }

        fn document(&self, page: &mut Page) {
            self.0.document(page);
        }

        fn schema(&self) -> Value {
            self.0.schema()
        }
    };
}

/// A value of another kind behind a pointer: most of 100,000 routes have none.
pub(crate) struct Boxed<K>(pub(crate) K);

impl<V, K: Kind<V>> Kind<Box<V>> for Boxed<K> {
    described_by_inner!();

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Box<V>> {
        self.0.read(written, reader).map(Box::new)
    }

    fn print(&self, value: &Box<V>) -> Option<String> {
        self.0.print(value)
    }
}

/// A value and its position in the file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Located<V> {
    pub(crate) value: V,
    pub(crate) at: Span,
}

/// A value without a position, for printing.
pub(crate) fn located<V>(value: V) -> Located<V> {
    Located { value, at: 0..0 }
}

/// A value of another kind, with its position.
pub(crate) struct At<K>(pub(crate) K);

impl<V, K: Kind<V>> Kind<Located<V>> for At<K> {
    described_by_inner!();

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Located<V>> {
        self.0.read(written, reader).map(|value| Located { value, at: written.value.span() })
    }

    fn print(&self, value: &Located<V>) -> Option<String> {
        self.0.print(&value.value)
    }
}

/// An array of values of another kind.
pub(crate) struct List<K> {
    pub(crate) kind: K,
    pub(crate) may_be_empty: bool,
}

impl<V, K: Kind<V>> Kind<Vec<V>> for List<K> {
    fn expected(&self) -> String {
        let least = if self.may_be_empty { "" } else { ", at least one" };
        format!("an array{least}, each {}", self.kind.expected())
    }

    fn brief(&self) -> String {
        format!("array, each {}", self.kind.brief())
    }

    fn schema(&self) -> Value {
        let least = usize::from(!self.may_be_empty);
        json!({ "type": "array", "items": self.kind.schema(), "minItems": least })
    }

    fn document(&self, page: &mut Page) {
        self.kind.document(page);
    }

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Vec<V>> {
        let DeValue::Array(elements) = written.value.get_ref() else {
            refuse_type(written, self.expected(), reader);
            return None;
        };
        if elements.is_empty() && !self.may_be_empty {
            let mistake = reader.mistake(&written.value.span(), format!("{}: this is empty", written.name));
            reader.add(mistake.expecting(self.expected()));
        }
        let element = |value: &Spanned<DeValue<'_>>| {
            self.kind.read(&Written { path: written.path, name: written.name, value }, reader)
        };
        Some(elements.iter().filter_map(element).collect())
    }

    fn print(&self, value: &Vec<V>) -> Option<String> {
        let elements: Vec<String> = value.iter().filter_map(|value| self.kind.print(value)).collect();
        Some(format!("[{}]", elements.join(", ")))
    }
}
