//! Texts with variables of requests, and names of fields that the proxy may write.

use ::route::{HeaderEdit, HeaderEdits, TemplateError, TemplateFault, TemplateStage};

use crate::document::reader::{Reader, Span};
use crate::document::value_error::{ValueError, ValueFault};
use crate::option::kind::Located;
use crate::option::later_condition::places_of_value;
use crate::option::matching::FieldName;

/// Adds a mistake for an invalid template, at its position in the text.
pub(crate) fn template<T>(
    made: Result<T, TemplateError>,
    option: &str,
    at: &Span,
    expected: &'static str,
    reader: &mut Reader<'_>,
) -> Option<T> {
    made.map_err(|error| {
        let expected = expected_for(&error, expected);
        reader.refuse(at, option, &ValueError { fault: ValueFault::Template(error), expected });
    })
    .ok()
}

/// Returns the expectation for a text with a mistake. A value that is known too late may be used elsewhere.
pub(crate) fn expected_for(error: &TemplateError, usual: &'static str) -> &'static str {
    match error.fault {
        TemplateFault::LateValue { known, .. } => places_of_value(known),
        _ => usual,
    }
}

/// The name of a request field that the proxy may write. Otherwise adds a mistake.
pub(crate) fn field_name(option: &str, name: &Located<String>, reader: &mut Reader<'_>) -> Option<String> {
    match HeaderEdits::new([HeaderEdit::Remove(&name.value)], TemplateStage::Forward, None) {
        Ok(_) => Some(name.value.clone()),
        Err((_, error)) => {
            let fault = ValueFault::HeaderEdit(error);
            reader.refuse(&name.at, option, &ValueError { fault, expected: FieldName::EXPECTED });
            None
        }
    }
}
