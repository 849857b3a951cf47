//! Schema: the names that an expression in one place of the configuration may use.

use std::sync::Arc;

use crate::Expression;
use crate::facts::{ExchangeStage, Fact, FactFamily, Key};
use crate::value::ValueType;

/// The names that an expression may use: the facts known at a stage, and names that the caller adds.
#[derive(Debug, Clone)]
pub struct Schema {
    stage: ExchangeStage,
    added: Vec<(Box<str>, SchemaAddition)>,
    numbers: fn(FactFamily, &str) -> u32,
}

/// A name that the caller adds.
#[derive(Debug, Clone)]
pub(crate) enum SchemaAddition {
    Map(Map),
    Constant(SchemaConstant),
    Definition(Arc<Expression>),
}

/// A map from keys to values, which [`Facts::lookup`](crate::Facts::lookup) knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Map {
    /// The number that [`Facts::lookup`](crate::Facts::lookup) is called with.
    pub number: u16,
    /// The type of the keys: text, integer or address.
    pub keys: ValueType,
    /// The type of the values; `None` for a set of keys, which only `in` asks. A boolean of an absent key is false.
    pub values: Option<ValueType>,
}

/// A constant with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaConstant {
    /// True or false.
    Boolean(bool),
    Integer(i64),
    Text(String),
    /// A duration in nanoseconds.
    Duration(i64),
    /// A list, for the right side of `in`: texts, or networks if an address is looked for.
    List(Vec<String>),
}

/// Source of the value behind a name.
#[derive(Debug, Clone)]
pub(crate) enum Meaning<'s> {
    Fact(Fact),
    Added(&'s SchemaAddition),
}

impl Schema {
    /// The names that are known at a stage.
    pub fn new(stage: ExchangeStage) -> Self {
        Self { stage, added: Vec::new(), numbers: |_, _| 0 }
    }

    /// The stage at which expressions are evaluated.
    pub fn stage(&self) -> ExchangeStage {
        self.stage
    }

    /// Adds a map.
    #[must_use]
    pub fn with_map(mut self, name: &str, map: Map) -> Self {
        self.added.push((name.into(), SchemaAddition::Map(map)));
        self
    }

    /// Adds a constant.
    #[must_use]
    pub fn with_constant(mut self, name: &str, constant: SchemaConstant) -> Self {
        self.added.push((name.into(), SchemaAddition::Constant(constant)));
        self
    }

    /// Adds a name for another expression. Its stage may be later than this schema's: then only using it is a mistake.
    #[must_use]
    pub fn with_definition(mut self, name: &str, expression: Arc<Expression>) -> Self {
        self.added.push((name.into(), SchemaAddition::Definition(expression)));
        self
    }

    /// Gives keys a number, such as the index of a well-known field name, which makes [`Facts::field`](crate::Facts::field)
    /// faster. The function is called once per key, when an expression is compiled.
    #[must_use]
    pub fn with_numbers(self, numbers: fn(FactFamily, &str) -> u32) -> Self {
        Self { numbers, ..self }
    }

    pub(crate) fn key(&self, family: FactFamily, text: &str) -> Key {
        Key::new(text, (self.numbers)(family, text))
    }

    /// Looks up a name with a single value, at any stage.
    pub(crate) fn meaning(&self, name: &str) -> Option<Meaning<'_>> {
        let added = self.added.iter().rev().find(|(known, _)| **known == *name);
        if let Some((_, added)) = added {
            return Some(Meaning::Added(added));
        }
        Fact::ALL.iter().find(|fact| fact.name() == name).map(|fact| Meaning::Fact(*fact))
    }

    /// All names, each once, including names of later stages.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let facts = Fact::ALL.iter().map(|fact| fact.name());
        let is_fact = |name: &str| Fact::ALL.iter().any(|fact| fact.name() == name);
        let families = FactFamily::ALL.iter().map(|family| family.name()).filter(move |name| !is_fact(name));
        facts.chain(families).chain(self.added.iter().map(|(name, _)| &**name))
    }
}

/// The family with this name.
pub(crate) fn family(name: &str) -> Option<FactFamily> {
    FactFamily::ALL.into_iter().find(|family| family.name() == name)
}
