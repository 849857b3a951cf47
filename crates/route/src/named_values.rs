//! Values: named expressions that templates use like variables.

use std::sync::Arc;

use expression::{Expression, Fact, FactFamily};

use crate::pattern::BytePattern;
use crate::template::VARIABLES;

/// Names of expressions for templates, such as `${app}`. A later one replaces an earlier one of the same name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedValues(Vec<NamedValue>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedValue {
    name: Box<str>,
    meaning: Arc<Expression>,
    /// The name as an expression, as templates have it.
    named: Arc<Expression>,
}

impl NamedValues {
    /// No values.
    pub const NONE: &'static Self = &Self(Vec::new());

    /// Adds a name for an expression.
    pub fn add(&mut self, name: &str, meaning: &Arc<Expression>) {
        let named = Arc::new(Expression::from_name(&format!("values.{name}"), meaning));
        let value = NamedValue { name: name.into(), meaning: Arc::clone(meaning), named };
        match self.0.iter_mut().find(|known| *known.name == *name) {
            Some(known) => *known = value,
            None => self.0.push(value),
        }
    }

    /// The expression behind a name: evaluated like a condition that consists of this name.
    pub fn find(&self, name: &str) -> Option<&Arc<Expression>> {
        self.0.iter().find(|known| *known.name == *name).map(|known| &known.named)
    }

    /// Names and expressions, in the order in which the names were added first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<Expression>)> {
        self.0.iter().map(|known| (&*known.name, &known.named))
    }

    /// Names, and the expressions that were given names.
    pub fn meanings(&self) -> impl Iterator<Item = (&str, &Arc<Expression>)> {
        self.0.iter().map(|known| (&*known.name, &known.meaning))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Names that a template can refer to, besides the variables of every request.
#[derive(Debug, Clone, Copy, Default)]
pub struct TemplateScope<'s> {
    /// The pattern that groups refer to.
    pub pattern: Option<&'s BytePattern>,
    /// `None` means no values.
    pub values: Option<&'s NamedValues>,
}

impl<'s> From<Option<&'s BytePattern>> for TemplateScope<'s> {
    fn from(pattern: Option<&'s BytePattern>) -> Self {
        Self { pattern, values: None }
    }
}

impl<'s> From<&'s NamedValues> for TemplateScope<'s> {
    fn from(values: &'s NamedValues) -> Self {
        Self { pattern: None, values: Some(values) }
    }
}

/// Whether a name is taken by a variable of every request, or by a family of them.
pub fn is_variable(name: &str) -> bool {
    let mut all = VARIABLES.iter().map(|known| known.split_once('.').map_or(*known, |(family, _)| family));
    all.any(|known| known == name)
}

/// Whether the value may differ between clients that request one URL.
pub(crate) fn is_of_client(value: &Expression) -> bool {
    let is_of_url = |fact: &Fact| {
        matches!(
            fact,
            Fact::RequestMethod
                | Fact::RequestScheme
                | Fact::RequestHost
                | Fact::RequestPath
                | Fact::RequestQuery
        )
    };
    Fact::ALL.iter().any(|fact| value.asks_for(*fact) && !is_of_url(fact))
        || FactFamily::ALL
            .into_iter()
            .any(|family| value.asks_for_family(family) && family != FactFamily::RequestQuery)
}
