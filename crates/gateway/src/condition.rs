//! Conditions: what a controller has found about an object, in the words of the Gateway API.

use serde_json::{Value, json};

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Its type, such as Accepted.
    pub kind: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// Why, in a word of the API.
    pub reason: &'static str,
    /// Why, in a sentence.
    pub message: String,
}

/// Why a condition does not hold: the reason and a sentence.
pub(crate) type Fault = (&'static str, String);

impl Condition {
    pub(crate) fn holds(kind: &'static str, reason: &'static str) -> Self {
        Self { kind, holds: true, reason, message: String::new() }
    }

    pub(crate) fn fails(kind: &'static str, (reason, message): Fault) -> Self {
        Self { kind, holds: false, reason, message }
    }

    /// Holds with `reason`, or fails with a fault.
    pub(crate) fn of(kind: &'static str, reason: &'static str, fault: Option<Fault>) -> Self {
        fault.map_or_else(|| Self::holds(kind, reason), |fault| Self::fails(kind, fault))
    }

    /// As it is written into an object. `before` are the conditions that it has: the time of one that has not changed
    /// stays.
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

/// The API refuses longer ones.
const MESSAGE_MAX: usize = 32_768;

/// Conditions as they are written. Those in `before` of other types are kept, if `keeps_others`.
pub(crate) fn written(
    conditions: &[Condition],
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
