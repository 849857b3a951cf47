//! Conditions that are evaluated after authentication, or with the response.

use std::sync::Arc;

use expression::{ExchangeStage, Expression};
use toml::de::DeValue;

use crate::document::reader::{Reader, Span, refuse};
use crate::option::condition::{ConditionKind, condition_form, read_condition};
use crate::option::form::Form;
use crate::option::kind::{Described, Kind, Located, refuse_type};
use crate::option::table::Written;

/// The kind of value for a condition that is evaluated at this stage of an exchange.
pub(crate) struct LaterCondition(pub(crate) ExchangeStage);

impl Described for LaterCondition {
    fn form(&self) -> Form {
        condition_form(self.0)
    }
}

impl Kind<Located<Arc<Expression>>> for LaterCondition {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Located<Arc<Expression>>> {
        let DeValue::String(text) = written.value.get_ref() else {
            refuse_type(written, self.expected(), reader);
            return None;
        };
        let at = written.value.span();
        let text = Located { value: text.as_ref(), at: at.clone() };
        let value = read_condition(written.name, &text, self.0, reader)?;
        reader.note_expression(&at, written.full_name(), &value);
        Some(Located { value, at })
    }

    fn print(&self, condition: &Located<Arc<Expression>>) -> Option<String> {
        ConditionKind.print(&condition.value)
    }
}

/// A condition without its position, for settings that are used as they are written.
pub(crate) struct Unplaced(pub(crate) LaterCondition);

impl Described for Unplaced {
    fn form(&self) -> Form {
        self.0.form()
    }
}

impl Kind<Arc<Expression>> for Unplaced {
    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Arc<Expression>> {
        self.0.read(written, reader).map(|condition| condition.value)
    }

    fn print(&self, condition: &Arc<Expression>) -> Option<String> {
        ConditionKind.print(condition)
    }
}

/// Rejects a condition that asks for names which are known only after this stage.
pub(crate) fn check_stage(
    condition: &Located<Arc<Expression>>,
    stage: ExchangeStage,
    reader: &mut Reader<'_>,
) {
    if condition.value.stage() > stage {
        let text = Located { value: condition.value.as_str(), at: condition.at.clone() };
        // It is rejected, because it was accepted for a later stage only.
        let _ = read_condition("when", &text, stage, reader);
    }
}

/// Whether a key can have this value: it has to be known once the client is authenticated. Otherwise adds a mistake.
pub(crate) fn check_value_of_key(
    (option, name): (&str, &str),
    value: &Expression,
    at: &Span,
    reader: &mut Reader<'_>,
) -> bool {
    let (known, here) = (value.stage(), ExchangeStage::Authenticated);
    if known <= here {
        return true;
    }
    let because = value.latest_name().map(|name| format!(", because it asks for {name}"));
    let message = format!(
        "{option}: ${{{name}}} is known only {}{}; this key is made {}",
        known.since(),
        because.unwrap_or_default(),
        here.since()
    );
    refuse(at, &message, places_of_value(known), reader);
    false
}

/// Describes where texts may have values of a stage, for mistakes.
pub(crate) fn places_of_value(stage: ExchangeStage) -> &'static str {
    match stage {
        ExchangeStage::Connection | ExchangeStage::Request => "it in any text",
        ExchangeStage::Authenticated => {
            "it where requests of known users are: upstream, redirect, respond, rewrite, files.root, keys, request_headers, \
             response_headers or [log]"
        }
        ExchangeStage::Forward => "it in rewrite.host, request_headers, response_headers or [log]",
        ExchangeStage::Response => "it in response_headers or [log]",
    }
}

/// Describes where conditions may use names of a stage, for mistakes.
pub(crate) fn places_of(stage: ExchangeStage) -> &'static str {
    match stage {
        ExchangeStage::Connection | ExchangeStage::Request => "it in a condition on requests",
        ExchangeStage::Authenticated => {
            "it in request_headers, response_headers, mirror, cache, split, compress, access_log, concurrency, or a \
             rate_limit by user; for claims of routes, the option claim"
        }
        ExchangeStage::Forward => {
            "it in request_headers, response_headers, cache.rules, compress or access_log"
        }
        ExchangeStage::Response => "it in response_headers, cache.rules, compress or access_log",
    }
}
