//! Kinds of values: what each accepts, and how it is read and printed.
//!
//! Kinds with a range are in `range`, with several parts in `pairs`.

use mistake::nearest;
use toml::Spanned;
use toml::de::DeValue;

use crate::document::foreign;
use crate::document::reader::{Reader, Span};
use crate::document::value_error::ValueError;
use crate::option::form::{Form, OFF};
use crate::option::table::{Element, Inline, Written};

/// A kind of value that describes itself, in one place for mistakes, the reference and the schema.
pub(crate) trait Described: Sync {
    fn form(&self) -> Form;
    /// Describes the expected values: `a duration such as …`.
    fn expected(&self) -> String {
        self.form().expected()
    }
}

/// A kind of value that options can have.
pub(crate) trait Kind<V>: Described {
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

impl<V> Described for Text<V> {
    fn form(&self) -> Form {
        Form::words(self.expected)
    }
}

impl<V> Kind<V> for Text<V> {
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

/// The name of an upstream.
pub(crate) const UPSTREAM_NAME: Name = Name { expected: "the name of an upstream: NAME of [upstream.NAME]" };

impl Described for Name {
    fn form(&self) -> Form {
        Form::words(self.expected)
    }
}

impl Kind<String> for Name {
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

impl Described for Template {
    fn form(&self) -> Form {
        Form::words(self.expected)
    }
}

impl Kind<String> for Template {
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

/// Content in which only `${name}` is a variable. What was put into it has none.
pub(crate) struct Content {
    pub(crate) expected: &'static str,
}

impl Described for Content {
    fn form(&self) -> Form {
        Form::words(self.expected)
    }
}

impl Kind<String> for Content {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<String> {
        let text = Name { expected: self.expected }.read(written, reader)?;
        let (mut content, mut rest) = (String::with_capacity(text.len() + 8), 0);
        for range in reader.literal(&written.value.span()) {
            content += &text[rest..range.start];
            // Dollar signs count in pairs in front of a brace, and only there.
            for (at, character) in text[range.clone()].char_indices() {
                content.push(character);
                let behind = text[range.start + at..].trim_start_matches('$');
                if character == '$' && behind.starts_with('{') {
                    content.push('$');
                }
            }
            rest = range.end;
        }
        Some(content + &text[rest..])
    }

    fn print(&self, value: &String) -> Option<String> {
        Some(toml_text::quoted(value))
    }
}

/// A boolean: `true` or `false`.
pub(crate) struct Switch;

impl Described for Switch {
    fn form(&self) -> Form {
        Form::Boolean
    }
}

impl Kind<bool> for Switch {
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

/// A keyword from a list.
pub(crate) struct Word<V: 'static> {
    pub(crate) words: &'static [(&'static str, V)],
}

impl<V> Word<V> {
    fn names(&self) -> impl Iterator<Item = &'static str> + use<'_, V> {
        self.words.iter().map(|(word, _)| *word)
    }
}

impl<V: Sync> Described for Word<V> {
    fn form(&self) -> Form {
        Form::OneOf(self.names().collect())
    }
}

impl<V: Clone + PartialEq + Sync> Kind<V> for Word<V> {
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
    pub(crate) make: fn(W) -> V,
    /// Converts back, for printing.
    pub(crate) written: fn(&V) -> W,
}

impl<K: Described, W, V> Described for Made<K, W, V> {
    fn form(&self) -> Form {
        self.kind.form()
    }
}

impl<K: Kind<W>, W, V> Kind<V> for Made<K, W, V> {
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

impl<K: Described> Described for Unless<K> {
    fn form(&self) -> Form {
        Form::OrWord(self.kind.form().into(), self.word)
    }
}

impl<V, K: Kind<V>> Kind<Option<V>> for Unless<K> {
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

impl<K: Described> Described for Maybe<K> {
    fn form(&self) -> Form {
        Form::Optional(self.0.form().into())
    }
}

impl<V, K: Kind<V>> Kind<Option<V>> for Maybe<K> {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Option<V>> {
        // A route can have none of what [route_defaults] has.
        if written.value.get_ref().as_str() == Some(OFF) && self.0.form().can_be_off() {
            return Some(None);
        }
        self.0.read(written, reader).map(Some)
    }

    fn print(&self, value: &Option<V>) -> Option<String> {
        self.0.print(value.as_ref()?)
    }
}

/// A feature that is off or on: `true` has all defaults, a table replaces some of them.
pub(crate) struct Switchable<V: 'static>(pub(crate) Inline<V>);

impl<V: Default> Described for Switchable<V> {
    fn form(&self) -> Form {
        Form::OrBoolean(self.0.form().into())
    }
}

impl<V: Default + PartialEq> Kind<Option<V>> for Switchable<V> {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Option<V>> {
        match written.value.get_ref() {
            DeValue::Boolean(is_on) => Some(is_on.then(V::default)),
            DeValue::Table(_) => self.0.read(written, reader).map(|Element { value, .. }| Some(value)),
            _ => {
                refuse_type(written, self.expected(), reader);
                None
            }
        }
    }

    fn print(&self, value: &Option<V>) -> Option<String> {
        let value = value.as_ref()?;
        let is_default = *value == V::default();
        Some(if is_default { "true".to_owned() } else { self.0.print_value(value) })
    }
}

/// A value of another kind behind a pointer: most of 100,000 routes have none.
pub(crate) struct Boxed<K>(pub(crate) K);

impl<K: Described> Described for Boxed<K> {
    fn form(&self) -> Form {
        self.0.form()
    }
}

impl<V, K: Kind<V>> Kind<Box<V>> for Boxed<K> {
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

impl<K: Described> Described for At<K> {
    fn form(&self) -> Form {
        self.0.form()
    }
}

impl<V, K: Kind<V>> Kind<Located<V>> for At<K> {
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

impl<K: Described> Described for List<K> {
    fn form(&self) -> Form {
        Form::List { each: self.kind.form().into(), may_be_empty: self.may_be_empty }
    }
}

impl<V, K: Kind<V>> Kind<Vec<V>> for List<K> {
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
