//! Descriptions of kinds of values, for mistakes, the reference and the schema.

use std::borrow::Cow;

use expression::{ExchangeStage, ValueType};
use serde_json::{Value, json};

use crate::option::expression_form;
use crate::option::kind::quoted;
use crate::option::table::{Page, Shape, one_of};

/// The keyword that switches a feature off.
pub(crate) const OFF: &str = "off";

/// A description of the values that an option accepts. The schema accepts whatever is read, and explains in words what a
/// schema cannot express.
pub(crate) enum Form {
    /// Described in words: `a duration such as …`, and briefly for readers who know what a duration looks like.
    Words {
        expected: Cow<'static, str>,
        brief: Cow<'static, str>,
    },
    /// Words, or a table with options.
    WordsOrTable {
        expected: &'static str,
        brief: &'static str,
        table: &'static dyn Shape,
    },
    /// An expression: its type, if it is always the same, and the stage whose names it can use.
    Expression {
        expected: &'static str,
        of: Option<ValueType>,
        stage: ExchangeStage,
    },
    Boolean,
    /// A keyword from a list.
    OneOf(Vec<&'static str>),
    /// An inline table, with an example.
    Table {
        example: &'static str,
        table: &'static dyn Shape,
    },
    /// A value that may be left out.
    Optional(Box<Form>),
    /// A value or a keyword.
    OrWord(Box<Form>, &'static str),
    /// `true`, `false` or a value.
    OrBoolean(Box<Form>),
    List {
        each: Box<Form>,
        may_be_empty: bool,
    },
    /// A value or an array of them.
    OneOrMany(Box<Form>),
    /// A table with names of the user's choice.
    Pairs {
        expected: &'static str,
        each: Box<Form>,
    },
}

impl Form {
    /// Values that are described in words, everywhere the same.
    pub(crate) fn words(expected: impl Into<Cow<'static, str>>) -> Self {
        let expected = expected.into();
        Self::Words { brief: expected.clone(), expected }
    }

    /// Values that are described in words, and in fewer words in the reference.
    pub(crate) fn brief(expected: impl Into<Cow<'static, str>>, brief: impl Into<Cow<'static, str>>) -> Self {
        Self::Words { expected: expected.into(), brief: brief.into() }
    }

    /// Describes the expected values, for mistakes.
    pub(crate) fn expected(&self) -> String {
        match self {
            Self::Words { expected, .. } => expected.to_string(),
            Self::WordsOrTable { expected, .. }
            | Self::Expression { expected, .. }
            | Self::Pairs { expected, .. } => (*expected).to_owned(),
            Self::Boolean => "true or false".to_owned(),
            Self::OneOf(words) => {
                let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
                one_of(&quoted.iter().map(String::as_str).collect::<Vec<_>>())
            }
            Self::Table { example, .. } => format!("a table such as {example}"),
            Self::Optional(value) => value.expected(),
            Self::OrWord(value, word) => format!("{}, or {word:?}", value.expected()),
            Self::OrBoolean(value) => format!("true, false, or {}", value.expected()),
            Self::List { each, may_be_empty } => {
                let least = if *may_be_empty { "" } else { ", at least one" };
                format!("an array{least}, each {}", each.expected())
            }
            Self::OneOrMany(value) => format!("{}, or an array of them", value.expected()),
        }
    }

    /// Describes the expected values, for the reference.
    pub(crate) fn in_brief(&self) -> String {
        match self {
            Self::Words { brief, .. } => brief.to_string(),
            Self::WordsOrTable { brief, .. } => (*brief).to_owned(),
            Self::Expression { .. } | Self::Boolean | Self::OneOf(_) => self.expected(),
            Self::Table { .. } | Self::Pairs { .. } => "table".to_owned(),
            Self::Optional(value) => value.in_brief(),
            Self::OrWord(value, word) => format!("{}, or {word:?}", value.in_brief()),
            Self::OrBoolean(value) => format!("true, false, or {}", value.in_brief()),
            Self::List { each, .. } => format!("array, each {}", each.in_brief()),
            Self::OneOrMany(value) => format!("{}, or array", value.in_brief()),
        }
    }

    /// Whether `"off"` can stand for no value, where a value is optional.
    pub(crate) fn can_be_off(&self) -> bool {
        matches!(self, Self::Table { .. })
    }

    /// The JSON Schema.
    pub(crate) fn schema(&self) -> Value {
        match self {
            Self::Words { .. } => json!({ "description": self.expected() }),
            Self::WordsOrTable { table, .. } => {
                json!({ "description": self.expected(), "anyOf": [{ "type": "string" }, table.schema()] })
            }
            Self::Expression { expected, of, stage } => expression_form::schema(expected, *of, *stage),
            Self::Boolean => json!({ "type": "boolean" }),
            Self::OneOf(words) => json!({ "enum": words }),
            Self::Table { table, .. } => table.schema(),
            Self::Optional(value) if value.can_be_off() => {
                json!({ "anyOf": [{ "const": OFF }, value.schema()] })
            }
            Self::Optional(value) => value.schema(),
            Self::OrWord(value, word) => json!({ "anyOf": [{ "const": word }, value.schema()] }),
            Self::OrBoolean(value) => json!({ "anyOf": [Self::Boolean.schema(), value.schema()] }),
            Self::List { each, may_be_empty } => {
                json!({ "type": "array", "items": each.schema(), "minItems": usize::from(!may_be_empty) })
            }
            Self::OneOrMany(value) => {
                let one = value.schema();
                json!({ "anyOf": [one, { "type": "array", "items": one }] })
            }
            Self::Pairs { each, .. } => json!({ "type": "object", "additionalProperties": each.schema() }),
        }
    }

    /// Adds the options of a value that may be a table to the reference.
    pub(crate) fn document(&self, page: &mut Page) {
        match self {
            Self::WordsOrTable { table, .. } | Self::Table { table, .. } => table.document("", page),
            Self::Optional(value) | Self::OrWord(value, _) | Self::OrBoolean(value) => value.document(page),
            Self::List { each: value, .. } | Self::OneOrMany(value) => value.document(page),
            Self::Words { .. }
            | Self::Expression { .. }
            | Self::Boolean
            | Self::OneOf(_)
            | Self::Pairs { .. } => {}
        }
    }
}
