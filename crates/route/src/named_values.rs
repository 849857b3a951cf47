//! Values: named expressions that templates use like variables. A map with a key is one as well.

use std::collections::BTreeMap;
use std::sync::Arc;

use expression::{ExchangeStage, Expression, Fact, FactFamily, ValueType};

use crate::pattern::BytePattern;
use crate::template::VARIABLES;

/// Names of expressions for templates, such as `${app}`, and maps, such as `${map.tenant}`. A later value replaces an
/// earlier one of the same name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedValues {
    values: Vec<NamedValue>,
    /// By `map.NAME`. All routes share them.
    maps: Option<Arc<BTreeMap<Box<str>, Arc<Expression>>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedValue {
    name: Box<str>,
    meaning: Arc<Expression>,
    /// The name as an expression, as templates have it.
    named: Arc<Expression>,
}

impl NamedValues {
    /// No values.
    pub const NONE: &'static Self = &Self { values: Vec::new(), maps: None };

    /// Adds a name for an expression.
    pub fn add(&mut self, name: &str, meaning: &Arc<Expression>) {
        let named = Arc::new(Expression::from_name(&format!("values.{name}"), meaning));
        let value = NamedValue { name: name.into(), meaning: Arc::clone(meaning), named };
        match self.values.iter_mut().find(|known| *known.name == *name) {
            Some(known) => *known = value,
            None => self.values.push(value),
        }
    }

    /// Adds a map, whose name begins with `map.`, and its value for the key of a request.
    pub fn add_map(&mut self, name: &str, meaning: &Arc<Expression>) {
        let maps = Arc::make_mut(self.maps.get_or_insert_default());
        maps.insert(name.into(), Arc::new(Expression::from_name(name, meaning)));
    }

    /// The expression behind a name: evaluated like a condition that consists of this name.
    pub fn find(&self, name: &str) -> Option<&Arc<Expression>> {
        let value = self.values.iter().find(|known| *known.name == *name).map(|known| &known.named);
        value.or_else(|| self.maps.as_ref()?.get(name))
    }

    /// The names of values and maps.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let maps = self.maps.iter().flat_map(|maps| maps.keys());
        self.values.iter().map(|known| &known.name).chain(maps).map(|name| &**name)
    }

    /// Names and expressions without maps, in the order in which the names were added first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<Expression>)> {
        self.values.iter().map(|known| (&*known.name, &known.named))
    }

    /// Names without maps, and the expressions that were given names.
    pub fn meanings(&self) -> impl Iterator<Item = (&str, &Arc<Expression>)> {
        self.values.iter().map(|known| (&*known.name, &known.meaning))
    }

    /// The expressions behind all names, also those of maps.
    pub fn expressions(&self) -> impl Iterator<Item = &Arc<Expression>> {
        let maps = self.maps.iter().flat_map(|maps| maps.values());
        self.values.iter().map(|known| &known.named).chain(maps)
    }

    /// Whether there are neither values nor maps.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.maps.is_none()
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

/// A variable whose value may differ between clients that request one URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfClient<'t> {
    Header(&'t [u8]),
    Cookie(&'t [u8]),
    /// A named expression, as expressions write it: `values.app`.
    Value(&'t str),
    /// Another variable, as it is written.
    Other(&'static str),
}

/// Whether the value may differ between clients that request one URL.
pub(crate) fn is_of_client(value: &Expression) -> bool {
    // A stored response has one server and one head for all clients.
    let is_of_url = |fact: &Fact| {
        matches!(
            fact,
            Fact::RequestMethod
                | Fact::RequestScheme
                | Fact::RequestHost
                | Fact::RequestPath
                | Fact::RequestRawPath
                | Fact::RequestQuery
        ) || fact.stage() > ExchangeStage::Authenticated
    };
    let is_family_of_url = |family: FactFamily| {
        family == FactFamily::RequestQuery || family.stage() > ExchangeStage::Authenticated
    };
    Fact::ALL.iter().any(|fact| value.asks_for(*fact) && !is_of_url(fact))
        || FactFamily::ALL
            .into_iter()
            .any(|family| value.asks_for_family(family) && !is_family_of_url(family))
}

/// Whether the value may depend on who the client is.
pub(crate) fn is_of_user(value: &Expression) -> bool {
    value.asks_for(Fact::ClientUser) || value.asks_for_family(FactFamily::JwtClaims)
}

/// Whether a value is a text of the requested host only, such as the host without `www.`.
pub(crate) fn is_of_host(value: &Expression) -> bool {
    value.kind().of == ValueType::Text && value.asks_only_for(Fact::RequestHost)
}
