//! The option `values`: names for expressions, of the top level and of routes.

use std::sync::Arc;

use ::route::{NamedValues, is_variable};
use expression::{ExchangeStage, Expression, ExpressionFault, ExpressionLimits, Schema, SchemaConstant};
use toml::Spanned;
use toml::de::DeValue;

use crate::document::expression_names::{ExpressionName, ExpressionNames};
use crate::document::reader::Reader;
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::condition::read_expression;
use crate::option::form::Form;
use crate::option::kind::{Described, Kind, Located, quoted, refuse_type};
use crate::option::pairs::Pair;
use crate::option::table::{Element, Written};
use crate::tables::listen::Listen;

/// The most values of one table.
const VALUES_MAX: usize = 64;
/// The longest name of a value.
const NAME_BYTES_MAX: usize = 64;

const TABLE: &str = "names for expressions such as { app = 'request.headers[\"x-app\"] ?? \"www\"' }";
const NAME: &str = "a lower-case letter, then up to 63 lower-case letters, digits and _";
const EXPRESSION: &str = "an expression such as 'request.headers[\"x-app\"] ?? \"www\"'";

/// Values as a table declares them, in the order of the file.
pub(crate) type ValuesWritten = Vec<Pair<String, Arc<Expression>>>;

/// The kind of value of `values`: each expression can use the values before it, and all that are known around the table. It
/// may ask for names of any stage; the places that use it are then those of its stage.
pub(crate) struct ValuesKind {
    /// Whether the values are for the table in which the option stands, rather than for all of the file.
    pub(crate) is_local: bool,
}

impl Described for ValuesKind {
    fn form(&self) -> Form {
        let each = Form::Expression { expected: EXPRESSION, of: None, stage: ExchangeStage::Response };
        Form::Pairs { expected: TABLE, each: each.into() }
    }
}

impl Kind<ValuesWritten> for ValuesKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<ValuesWritten> {
        let DeValue::Table(entries) = written.value.get_ref() else {
            refuse_type(written, self.expected(), reader);
            return None;
        };
        if entries.len() > VALUES_MAX {
            let message =
                format!("values: there are {} values; at most {VALUES_MAX} are allowed", entries.len());
            reader.add(reader.mistake(&written.value.span(), message));
            return None;
        }
        let mut in_order: Vec<_> = entries.iter().collect();
        // The parser sorts by name; a value can use those that the file has before it.
        in_order.sort_by_key(|(key, _)| key.span().start);
        let mut values = Vec::with_capacity(in_order.len());
        for (key, value) in in_order {
            let name = key.get_ref().as_ref();
            let at = key.span();
            if reader.skip_broken(&at) || !check_name(name, &at, reader) {
                continue;
            }
            if let Some(expression) = expression(name, value, reader) {
                let full = format!("values.{name}");
                let option = format!("{}.{name}", written.full_name());
                reader.note_expression(&value.span(), option, &expression);
                let meaning = ExpressionName::Definition(Arc::clone(&expression));
                match self.is_local {
                    true => reader.expression_names.add_local(full, meaning),
                    false => reader.expression_names.add(full, meaning),
                }
                values.push(Pair { at, name: name.to_owned(), value: expression });
            }
        }
        Some(values)
    }

    fn print(&self, values: &ValuesWritten) -> Option<String> {
        let print = |Pair { name, value, .. }: &Pair<String, Arc<Expression>>| {
            format!("{name} = {}", quoted(value.as_str()))
        };
        let values: Vec<String> = values.iter().map(print).collect();
        (!values.is_empty()).then(|| format!("{{ {} }}", values.join(", ")))
    }
}

fn check_name(name: &str, at: &std::ops::Range<usize>, reader: &mut Reader<'_>) -> bool {
    let is_first = |byte: u8| byte.is_ascii_lowercase();
    let is_next = |byte: u8| is_first(byte) || byte.is_ascii_digit() || byte == b'_';
    let is_name = name.bytes().next().is_some_and(is_first)
        && name.bytes().all(is_next)
        && name.len() <= NAME_BYTES_MAX;
    let why = if !is_name {
        // `${NAME}` and `${_name}` are variables of the environment.
        format!("values: {name:?} can't name a value")
    } else if is_variable(name) {
        format!("values: ${name} is a variable of every request")
    } else if logline::field_names().any(|field| field == name) {
        format!("values: ${name} is a field of access logs")
    } else {
        return true;
    };
    let expected = if is_name { "another name" } else { NAME };
    reader.add(reader.mistake(at, why).expecting(expected));
    false
}

fn expression(
    name: &str,
    written: &Spanned<DeValue<'_>>,
    reader: &mut Reader<'_>,
) -> Option<Arc<Expression>> {
    let DeValue::String(text) = written.get_ref() else {
        let written = Written { path: "values", name: "values", value: written };
        refuse_type(&written, EXPRESSION.to_owned(), reader);
        return None;
    };
    read_expression(name, &Located { value: text.as_ref(), at: written.span() }, EXPRESSION, reader)
}

/// Gives values of the top level another meaning for the requests of listeners that have their own. `names` are the
/// names of the listeners.
pub(crate) fn replace_by_listeners(
    names: &[String],
    listeners: &[Element<Listen>],
    values: &mut ValuesWritten,
    reader: &mut Reader<'_>,
) {
    for (listener, Element { value: listen, .. }) in names.iter().zip(listeners) {
        if let (Some(first), Some(_)) = (listen.values.first(), &listen.tcp) {
            let mistake = reader.mistake(&first.at, "values: the listener has tcp, so no route uses them");
            reader.add(mistake.expecting("values of a listener without tcp"));
        }
        for Pair { at, name, value: own } in &listen.values {
            let Some(known) = values.iter_mut().find(|known| known.name == *name) else {
                if reader.is_whole() {
                    let message =
                        format!("values: {name} is not in [values], so other listeners do not have it");
                    let near = format!("a value {name} in [values]");
                    reader.add(reader.mistake(at, message).expecting(near));
                }
                continue;
            };
            let (is, expected) = (own.kind().of, known.value.kind().of);
            if is != expected {
                let message = format!("values: {name} is {is} here");
                let expected = format!("{expected}, as in [values]");
                reader.add(reader.mistake(at, message).expecting(expected));
                continue;
            }
            match for_listener(listener, own, &known.value) {
                Ok(joined) => {
                    let meaning = ExpressionName::Definition(Arc::clone(&joined));
                    reader.expression_names.add(format!("values.{name}"), meaning);
                    known.value = joined;
                }
                // Together they exceed a limit.
                Err(fault) => {
                    let fault = ValueFault::Expression(Box::new(fault));
                    reader.refuse(at, name, &ValueError { fault, expected: "a shorter expression" });
                }
            }
        }
    }
}

/// An expression that is `own` for the requests of a listener, and `other` for all others.
fn for_listener(
    listener: &str,
    own: &Arc<Expression>,
    other: &Arc<Expression>,
) -> Result<Arc<Expression>, ExpressionFault> {
    let schema = Schema::new(ExchangeStage::Response)
        .with_constant("name", SchemaConstant::Text(listener.to_owned()))
        .with_definition("own", Arc::clone(own))
        .with_definition("other", Arc::clone(other));
    let joined =
        Expression::new("listener.name == name ? own : other", &schema, &ExpressionLimits::default());
    joined.map(Arc::new)
}

/// The values of the top level and all maps with a key, for templates.
pub(crate) fn of_file(written: &ValuesWritten, names: &ExpressionNames) -> NamedValues {
    let mut values = named(NamedValues::NONE, written);
    for (name, meaning) in names.definitions().filter(|(name, _)| name.starts_with("map.")) {
        values.add_map(name, meaning);
    }
    values
}

/// The values of a table, for templates.
pub(crate) fn named(outer: &NamedValues, written: &ValuesWritten) -> NamedValues {
    let mut values = outer.clone();
    for Pair { name, value, .. } in written {
        values.add(name, value);
    }
    values
}
