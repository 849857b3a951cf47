//! Conditions of objects in the vocabulary of the Gateway API.

use serde_json::{Value, json};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusCondition {
    /// Such as Accepted.
    pub kind: &'static str,
    pub holds: bool,
    /// A CamelCase word of the API.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// The reason and message of a condition that does not hold.
pub(crate) type Fault = (&'static str, String);

impl StatusCondition {
    pub(crate) fn holds(kind: &'static str, reason: &'static str) -> Self {
        Self { kind, holds: true, reason, message: String::new() }
    }

    pub(crate) fn fails(kind: &'static str, (reason, message): Fault) -> Self {
        Self { kind, holds: false, reason, message }
    }

    /// Holds with `reason`, or fails with a fault.
    pub(crate) fn new(kind: &'static str, reason: &'static str, fault: Option<Fault>) -> Self {
        fault.map_or_else(|| Self::holds(kind, reason), |fault| Self::fails(kind, fault))
    }

    /// Serializes the condition. If it is unchanged in `before`, its transition time stays.
    fn written(&self, generation: i64, before: &Value, now: &str) -> Value {
        let status = if self.holds { "True" } else { "False" };
        let known = before.as_array().into_iter().flatten().find(|known| known["type"] == self.kind);
        let since = known
            .filter(|known| known["status"] == status)
            .and_then(|known| known["lastTransitionTime"].as_str());
        json!({
            "type": self.kind,
            "status": status,
            "reason": self.reason,
            "message": self.message.chars().take(MESSAGE_MAX).collect::<String>(),
            "observedGeneration": generation,
            "lastTransitionTime": since.unwrap_or(now),
        })
    }
}

/// The API's limit.
const MESSAGE_MAX: usize = 32_768;

/// Serializes conditions. With `keeps_others`, other types in `before` are kept.
pub(crate) fn written(
    conditions: &[StatusCondition],
    generation: i64,
    before: &Value,
    keeps_others: bool,
    now: &str,
) -> Value {
    let others =
        before.as_array().into_iter().flatten().filter(|known| {
            keeps_others && !conditions.iter().any(|condition| known["type"] == condition.kind)
        });
    let own = conditions.iter().map(|condition| condition.written(generation, before, now));
    own.chain(others.cloned()).collect()
}
