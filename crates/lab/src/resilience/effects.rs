//! Counts of the requests that each fault affected, and the reason why a fault without effect tested nothing. Pure.

use crate::resilience::plan::{FaultKind, FaultPlace, PlanFault};

/// Share of the due requests that may use existing connections while a fault refuses new ones. Above it, the refusal
/// kept too few requests from the server.
const KEPT_MOST: f64 = 0.1;

/// Counts of one fault, over all places where it was injected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Effect {
    /// Requests that ended at its places while it lasted.
    pub(crate) passed: u64,
    /// Requests or connections for which a draw was made.
    pub(crate) matched: u64,
    /// Requests or connections that it affected.
    pub(crate) injected: u64,
    /// Whether it refuses connections: then `injected` counts how often it began.
    pub(crate) refuses: bool,
}

impl Effect {
    /// Returns the reason why the fault tested nothing, if it did not. `due` is the number of requests that were due
    /// while it lasted, over all of `origins` servers.
    pub(crate) fn missing(&self, fault: &PlanFault, due: f64, origins: usize) -> Option<String> {
        let &Self { passed, matched, injected, refuses } = self;
        let share = match fault.place {
            FaultPlace::Origin(_) => 1.0 / origins.max(1) as f64,
            FaultPlace::Origins | FaultPlace::Clients => 1.0,
        };
        match &fault.kind {
            FaultKind::Profile(_) => (passed == 0).then(|| "no request passed the link".to_owned()),
            FaultKind::Inject(_) if refuses => (passed as f64 > KEPT_MOST * share * due).then(|| {
                let remedy = match fault.place {
                    FaultPlace::Clients => "",
                    FaultPlace::Origins | FaultPlace::Origin(_) => "; \"kill origin N\" ends those too",
                };
                format!("{passed} requests used existing connections, which are not refused{remedy}")
            }),
            FaultKind::Inject(_) if injected > 0 => None,
            FaultKind::Inject(_) => Some(match (passed, matched) {
                (0, 0) => "it was injected 0 times: no request arrived there".to_owned(),
                (_, 0) => format!(
                    "it was injected 0 times: {passed} requests passed, on existing connections, or with another \
                     fault that overrides it"
                ),
                _ => format!(
                    "it was injected 0 times, although {matched} requests or connections matched: its probability is \
                     too low, or it does not fit the responses"
                ),
            }),
        }
    }

    /// Formats how often the fault happened, as a remark.
    pub(crate) fn remark(&self, fault: &PlanFault) -> String {
        let Self { passed, injected, refuses, .. } = self;
        match fault.kind {
            FaultKind::Inject(_) if !refuses => {
                format!("{fault}: injected {injected} times; {passed} requests passed there meanwhile.")
            }
            FaultKind::Inject(_) | FaultKind::Profile(_) => {
                format!("{fault}: {passed} requests passed there meanwhile.")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_fault_that_met_nothing_tested_nothing() {
        let link = || FaultKind::Profile("3g".to_owned());
        let fault = || FaultKind::Inject("503".to_owned());
        let effect = |passed, matched, injected| Effect { passed, matched, injected, refuses: false };
        let refusal = |passed| Effect { refuses: true, ..effect(passed, 0, 1) };
        let cases = [
            (fault(), FaultPlace::Origins, effect(50, 50, 1), None),
            (fault(), FaultPlace::Origins, effect(0, 0, 0), Some("no request arrived there")),
            (fault(), FaultPlace::Origins, effect(50, 0, 0), Some("another fault that overrides it")),
            (fault(), FaultPlace::Origins, effect(50, 50, 0), Some("does not fit the responses")),
            (link(), FaultPlace::Clients, effect(1, 0, 0), None),
            (link(), FaultPlace::Clients, effect(0, 0, 0), Some("no request passed")),
            (fault(), FaultPlace::Origins, refusal(10), None),
            (fault(), FaultPlace::Origins, refusal(100), Some("existing connections")),
            // One of three servers gets at most a third of the due requests.
            (fault(), FaultPlace::Origin(2), refusal(2), None),
            (fault(), FaultPlace::Origin(2), refusal(5), Some("existing connections")),
        ];
        for (kind, place, effect, expected) in cases {
            let second = Duration::from_secs(1);
            let fault = PlanFault { from: second, until: 2 * second, kind, place, phase: None };
            let missing = effect.missing(&fault, 100.0, 3);
            let is_right = match expected {
                None => missing.is_none(),
                Some(words) => missing.as_ref().is_some_and(|missing| missing.contains(words)),
            };
            assert!(is_right, "{effect:?} of {fault:?}: {missing:?}");
        }
    }
}
