//! Names that a configuration adds to expressions: maps and values.

use std::sync::Arc;

use expression::{ExchangeStage, Expression, Map, Schema, ValueType};

/// Names that a configuration adds to expressions, in the order of their declarations.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExpressionNames {
    names: Vec<(String, ExpressionName)>,
    /// Whether a declaration has a mistake, so that its name is unknown.
    pub(crate) is_incomplete: bool,
    /// Names of the table that is being read; they replace equal ones of the file.
    local: Vec<(String, ExpressionName)>,
}

/// Meaning of an added name.
#[derive(Debug, Clone)]
pub(crate) enum ExpressionName {
    /// A map without a key of its own: `map.NAME[key]`.
    Map(Map),
    /// A named expression: a map with its key, or a value.
    Definition(Arc<Expression>),
}

impl ExpressionNames {
    /// Adds a name such as `map.tenant`, or gives it another meaning. Expressions that are read later can use it.
    pub(crate) fn add(&mut self, name: String, meaning: ExpressionName) {
        match self.names.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = meaning,
            None => self.names.push((name, meaning)),
        }
    }

    /// Adds a name that is known only within the table that is being read.
    pub(crate) fn add_local(&mut self, name: String, meaning: ExpressionName) {
        self.local.push((name, meaning));
    }

    /// How many names of tables are known: to be given to `leave` when a table within them ends.
    pub(crate) fn enter(&self) -> usize {
        self.local.len()
    }

    /// Forgets the names that were added within a table.
    pub(crate) fn leave(&mut self, known_before: usize) {
        self.local.truncate(known_before);
    }

    /// All names, each with the meaning that it has where the reader is.
    fn known(&self) -> impl Iterator<Item = &(String, ExpressionName)> {
        let is_replaced = |name: &String| self.local.iter().any(|(local, _)| local == name);
        self.names.iter().filter(move |(name, _)| !is_replaced(name)).chain(&self.local)
    }

    /// The expression behind a name, if it has one.
    pub(crate) fn definition(&self, name: &str) -> Option<&Arc<Expression>> {
        self.definitions().find(|(known, _)| *known == name).map(|(_, expression)| expression)
    }

    /// The names of expressions: values, and maps with a key.
    pub(crate) fn definitions(&self) -> impl Iterator<Item = (&str, &Arc<Expression>)> {
        self.known().filter_map(|(name, meaning)| match meaning {
            ExpressionName::Definition(expression) => Some((name.as_str(), expression)),
            ExpressionName::Map(_) => None,
        })
    }

    /// Explains why a name has no value for a request, with what to write instead; `None` if it is not a map without key.
    pub(crate) fn map_without_key(&self, name: &str) -> Option<(String, String)> {
        let map = self.known().find_map(|(known, meaning)| match meaning {
            ExpressionName::Map(map) if known == name => Some(map),
            _ => None,
        })?;
        let key = if map.keys == ValueType::Address { "client.address" } else { "request.host" };
        let value = if map.values.is_some() { format!("{name}[{key}]") } else { format!("{key} in {name}") };
        let expected = format!("key = '{key}' in [{name}], or a value such as '{value}' in [values]");
        Some((format!("{name} has no key, so a request has no value of it"), expected))
    }

    /// The names that expressions at this stage can use.
    pub(crate) fn schema(&self, stage: ExchangeStage) -> Schema {
        self.known().fold(Schema::new(stage), |schema, (name, meaning)| match meaning {
            ExpressionName::Map(map) => schema.with_map(name, *map),
            ExpressionName::Definition(expression) => schema.with_definition(name, expression.clone()),
        })
    }
}
