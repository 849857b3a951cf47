//! Conditions on requests, as expressions.

use std::sync::Arc;

use expression::{ExchangeStage, Expression, ExpressionFault, ExpressionLimits, ValueType};
use toml::de::DeValue;

use crate::document::reader::Reader;
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::form::Form;
use crate::option::kind::{Described, Kind, Located, quoted, refuse_type};
use crate::option::later_condition::places_of;
use crate::option::table::Written;

/// The kind of value for a condition on a request whose client is not authenticated yet.
pub(crate) struct ConditionKind;

pub(crate) const CONDITION: &str = "a condition such as 'request.method == \"GET\"'";

impl Described for ConditionKind {
    fn form(&self) -> Form {
        Form::words(CONDITION)
    }
}

impl Kind<Arc<Expression>> for ConditionKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Arc<Expression>> {
        let DeValue::String(text) = written.value.get_ref() else {
            refuse_type(written, self.expected(), reader);
            return None;
        };
        let at = written.value.span();
        read_condition(written.name, &Located { value: text.as_ref(), at }, ExchangeStage::Request, reader)
    }

    fn print(&self, condition: &Arc<Expression>) -> Option<String> {
        Some(quoted(condition.as_str()))
    }
}

/// Reads a condition that is evaluated at a stage of an exchange. Otherwise adds a mistake, at its place in the text. A
/// name that is known only later comes with the options that may use it.
pub(crate) fn read_condition(
    name: &str,
    text: &Located<&str>,
    stage: ExchangeStage,
    reader: &mut Reader<'_>,
) -> Option<Arc<Expression>> {
    let Located { value: text, at } = text;
    match compiled(text, stage, reader) {
        Ok(condition) => Some(Arc::new(condition)),
        Err(_) if reader.may_lack_names(text) => None,
        Err(fault) => {
            let expected = fault.known_from.map_or(CONDITION, places_of);
            let fault = ValueFault::Expression(Box::new(fault));
            reader.refuse(at, name, &ValueError { fault, expected });
            None
        }
    }
}

/// Compiles a condition with the names that the file has added.
fn compiled(text: &str, stage: ExchangeStage, reader: &Reader<'_>) -> Result<Expression, ExpressionFault> {
    let schema = reader.expression_names.schema(stage);
    Expression::of_type(ValueType::Boolean, text, &schema, &ExpressionLimits::default())
}
