//! Values as parts of keys: `${app}`, `${map.tenant}`.

use std::borrow::Cow;
use std::sync::Arc;

use ::route::RateKeyPart;
use balance::SessionSource;
use expression::Expression;
use mistake::nearest;
use toml::de::DeValue;

use crate::document::reader::Reader;
use crate::option::form::Form;
use crate::option::keys::{HASH_KEY, RATE_KEY, STICKY};
use crate::option::kind::{Described, Kind};
use crate::option::later_condition::check_value_of_key;
use crate::option::table::Written;

/// The value that a text names, as `${NAME}`; `None` if the text has another form. A value that is unknown, or known only
/// after authentication, is a mistake.
pub(crate) fn value(written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Option<Arc<Expression>>> {
    let DeValue::String(text) = written.value.get_ref() else { return None };
    let name = text.strip_prefix("${")?.strip_suffix('}')?;
    let full = name_in_expressions(name);
    let at = written.value.span();
    if let Some(meaning) = reader.expression_names.definition(&full) {
        let value = Arc::new(Expression::from_name(&full, meaning));
        return Some(check_value_of_key((written.name, name), &value, &at, reader).then_some(value));
    }
    if reader.refuses_map(&at, written.name, name) {
        return Some(None);
    }
    let known = reader.expression_names.definitions().map(|(name, _)| name_in_texts(name));
    let near = nearest(name, known).map(|near| format!("${{{near}}}"));
    let message = format!("{}: no value is named {name:?}", written.name);
    let mistake = reader.mistake(&at, message);
    reader.add(mistake.meaning(near).expecting("the name of a value, which [values] or values declares"));
    Some(None)
}

/// The name in expressions of what texts call `app` or `map.tenant`.
pub(crate) fn name_in_expressions(name: &str) -> Cow<'_, str> {
    if name.starts_with("map.") { name.into() } else { format!("values.{name}").into() }
}

/// The name in texts of what expressions call `values.app` or `map.tenant`.
fn name_in_texts(name: &str) -> &str {
    name.strip_prefix("values.").unwrap_or(name)
}

/// `${app}`, as it is written.
pub(crate) fn written_value(value: &Expression) -> String {
    format!("${{{}}}", name_in_texts(value.as_str()))
}

/// The key of a sticky session or a split, which can be a value.
pub(crate) struct StickyKind;

impl Described for StickyKind {
    fn form(&self) -> Form {
        Form::words(STICKY.expected.replace(" or path", ", a value such as ${app}, or path"))
    }
}

impl Kind<Option<SessionSource>> for StickyKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Option<SessionSource>> {
        match value(written, reader) {
            Some(value) => value.map(|value| Some(source(&value))),
            None => STICKY.read(written, reader),
        }
    }

    fn print(&self, source: &Option<SessionSource>) -> Option<String> {
        STICKY.print(source)
    }
}

/// The key that requests are hashed by, which can be a value.
pub(crate) struct HashKeyKind;

impl Described for HashKeyKind {
    fn form(&self) -> Form {
        Form::words(HASH_KEY.expected.replace(" or basic-user", ", basic-user, or a value such as ${app}"))
    }
}

impl Kind<SessionSource> for HashKeyKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<SessionSource> {
        match value(written, reader) {
            Some(value) => value.map(|value| source(&value)),
            None => HASH_KEY.read(written, reader),
        }
    }

    fn print(&self, source: &SessionSource) -> Option<String> {
        HASH_KEY.print(source)
    }
}

/// A value as the key of a session. The proxy looks it up by name, because a route may have its own of that name.
fn source(value: &Expression) -> SessionSource {
    SessionSource::Value(name_in_texts(value.as_str()).to_owned())
}

/// The key of a rate limit, which can have values. `None` counts all requests of the route together.
pub(crate) struct RateKeyKind;

impl Described for RateKeyKind {
    fn form(&self) -> Form {
        let words = RATE_KEY.expected.replace(" or route", " a value such as ${app}, or route");
        Form::words(words)
    }
}

impl Kind<Option<RateKeyPart>> for RateKeyKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Option<RateKeyPart>> {
        match value(written, reader) {
            Some(value) => value.map(|value| Some(RateKeyPart::Value(value))),
            None => RATE_KEY.read(written, reader),
        }
    }

    fn print(&self, part: &Option<RateKeyPart>) -> Option<String> {
        RATE_KEY.print(part)
    }
}
