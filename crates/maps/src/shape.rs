//! Kinds of keys and types of values.

use expression::{Value, ValueType, parse_duration};

use crate::fault::EntryFault;

/// The longest key, in bytes. Longer keys of requests match no exact entry.
pub const KEY_BYTES_MAX: usize = 1024;
/// The longest text of a value, in bytes.
pub const VALUE_BYTES_MAX: usize = 4096;
/// The most regular expressions in one map: a lookup tries one after the other.
pub const PATTERNS_MAX: usize = 1000;

/// Comparison of the keys of requests with those of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapKind {
    /// Equal texts.
    Exact,
    /// The longest entry that the text starts with.
    Prefix,
    /// Hosts: the longest entry that is the host or a parent domain. `*.example.com` excludes `example.com`.
    Suffix,
    /// The smallest network that contains the address.
    Network,
    /// The first regular expression that matches somewhere in the text.
    Regex,
}

impl MapKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Exact, Self::Prefix, Self::Suffix, Self::Network, Self::Regex];

    /// The word in configurations.
    pub fn word(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Prefix => "prefix",
            Self::Suffix => "suffix",
            Self::Network => "network",
            Self::Regex => "regex",
        }
    }

    /// The type of the keys that requests give.
    pub fn key_type(self) -> ValueType {
        if self == Self::Network { ValueType::Address } else { ValueType::Text }
    }
}

/// The kind of a map, and the type of its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapShape {
    pub kind: MapKind,
    /// The type of the values: text, integer, boolean or duration. `None` for a set of keys.
    pub values: Option<ValueType>,
}

/// The value of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapValue {
    /// The value of every key in a set.
    Present,
    Boolean(bool),
    Integer(i64),
    Text(Box<str>),
    /// In nanoseconds.
    Duration(i64),
}

impl MapShape {
    /// The word for the type of the values in configurations; `set` if there are none.
    pub fn values_word(&self) -> &'static str {
        match self.values {
            None => "set",
            Some(ValueType::Integer) => "integer",
            Some(ValueType::Boolean) => "boolean",
            Some(ValueType::Duration) => "duration",
            Some(_) => "text",
        }
    }

    /// The shape that words describe, as far as lines of entries depend on it: that of a kind, and [`Self::values_word`].
    pub fn of_words(kind: &str, values: &str) -> Option<Self> {
        let kind = MapKind::ALL.into_iter().find(|known| known.word() == kind)?;
        Some(Self { kind, values: (values != "set").then_some(ValueType::Text) })
    }

    /// Parses a value.
    ///
    /// # Errors
    /// A text that is no value of the map's type.
    pub fn value(&self, text: &str) -> Result<MapValue, EntryFault> {
        let wrong = |expected: &'static str| EntryFault::Value { value: text.to_owned(), expected };
        match self.values {
            None if text.is_empty() => Ok(MapValue::Present),
            None => Err(EntryFault::ValueInSet(text.to_owned())),
            Some(ValueType::Boolean) => match text {
                "true" => Ok(MapValue::Boolean(true)),
                "false" => Ok(MapValue::Boolean(false)),
                _ => Err(wrong("true or false")),
            },
            Some(ValueType::Integer) => {
                text.parse().map(MapValue::Integer).map_err(|_| wrong("an integer such as 10"))
            }
            Some(ValueType::Duration) => {
                parse_duration(text).map(MapValue::Duration).ok_or_else(|| wrong("a duration such as 1m30s"))
            }
            Some(_) if text.len() > VALUE_BYTES_MAX => Err(EntryFault::LongValue(text.len())),
            // RFC 9110 §5.5: a value may become a part of a field.
            Some(_) => match text.chars().find(|character| character.is_control()) {
                Some(character) => Err(EntryFault::Character(character)),
                None => Ok(MapValue::Text(text.into())),
            },
        }
    }
}

impl MapValue {
    /// The value in the form of expressions.
    pub fn as_value(&self) -> Value<'_> {
        match self {
            Self::Present => Value::Boolean(true),
            Self::Boolean(value) => Value::Boolean(*value),
            Self::Integer(value) => Value::Integer(*value),
            Self::Text(text) => Value::Text(text.as_bytes()),
            Self::Duration(nanoseconds) => Value::Duration(*nanoseconds),
        }
    }
}
