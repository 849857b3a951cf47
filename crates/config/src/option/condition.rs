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

/// The form of conditions that are evaluated at this stage.
pub(crate) fn condition_form(stage: ExchangeStage) -> Form {
    Form::Expression { expected: CONDITION, of: Some(ValueType::Boolean), stage }
}

impl Described for ConditionKind {
    fn form(&self) -> Form {
        condition_form(ExchangeStage::Request)
    }
}

impl Kind<Arc<Expression>> for ConditionKind {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Arc<Expression>> {
        let DeValue::String(text) = written.value.get_ref() else {
            refuse_type(written, self.expected(), reader);
            return None;
        };
        let text = Located { value: text.as_ref(), at: written.value.span() };
        let condition = read_condition(written.name, &text, ExchangeStage::Request, reader)?;
        reader.note_expression(&text.at, written.full_name(), &condition);
        Some(condition)
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
    let schema = reader.expression_names.schema(stage);
    let read = Expression::of_type(ValueType::Boolean, text.value, &schema, &ExpressionLimits::default());
    let expected = |fault: &ExpressionFault| fault.known_from.map_or(CONDITION, places_of);
    accepted(read, (name, text), expected, reader)
}

/// Reads an expression of any type and stage, for a name. Otherwise adds a mistake.
pub(crate) fn read_expression(
    name: &str,
    text: &Located<&str>,
    expected: &'static str,
    reader: &mut Reader<'_>,
) -> Option<Arc<Expression>> {
    let schema = reader.expression_names.schema(ExchangeStage::Response);
    let read = Expression::new(text.value, &schema, &ExpressionLimits::default());
    accepted(read, (name, text), |_| expected, reader)
}

/// Returns an expression without mistakes. A mistake that may follow from another one is not reported.
fn accepted(
    read: Result<Expression, ExpressionFault>,
    (name, text): (&str, &Located<&str>),
    expected: impl Fn(&ExpressionFault) -> &'static str,
    reader: &mut Reader<'_>,
) -> Option<Arc<Expression>> {
    match read {
        Ok(expression) => Some(Arc::new(expression)),
        Err(_) if reader.may_lack_names(text.value) => None,
        Err(fault) => {
            let expected = expected(&fault);
            let fault = ValueFault::Expression(Box::new(fault));
            reader.refuse(&text.at, name, &ValueError { fault, expected });
            None
        }
    }
}
