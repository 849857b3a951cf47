//! Conditions on requests, as expressions.

use std::sync::Arc;

use expression::{ExchangeStage, Expression, ExpressionLimits, FactFamily, Schema, ValueType};
use toml::de::DeValue;

use crate::document::reader::Reader;
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::form::Form;
use crate::option::kind::{Described, Kind, quoted, refuse_type};
use crate::option::table::Written;

/// The kind of value for a condition on a request whose client is not authenticated yet.
pub(crate) struct ConditionKind;

const CONDITION: &str = "a condition such as 'request.method == \"GET\"'";

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
        let at = &written.value.span();
        let schema = Schema::new(ExchangeStage::Request);
        let read = Expression::of_type(ValueType::Boolean, text, &schema, &ExpressionLimits::default());
        match read {
            Ok(condition) if condition.asks_for_family(FactFamily::JwtClaims) => {
                let message = format!("{}: the token of a request is verified only after this", written.name);
                let mistake = reader.mistake(at, message);
                reader.add(mistake.expecting("the option claim, in a route with jwt"));
                None
            }
            Ok(condition) => Some(Arc::new(condition)),
            Err(fault) => {
                let fault = ValueFault::Expression(Box::new(fault));
                reader.refuse(at, written.name, &ValueError { fault, expected: CONDITION });
                None
            }
        }
    }

    fn print(&self, condition: &Arc<Expression>) -> Option<String> {
        Some(quoted(condition.as_str()))
    }
}
