//! The control thread's findings about a server, besides its health: check results, and reasons for ejections.

use std::sync::{Arc, Mutex, PoisonError};

use balance::{Health, Time};

/// The findings about a server. Kept over reloads, together with its health; no request reads them.
#[derive(Default)]
pub struct Watch(Mutex<Findings>);

/// The results of health checks and outlier comparisons.
#[derive(Debug, Clone)]
pub struct Findings {
    /// The health by the last check; `Unknown` if there was none.
    pub health: Health,
    /// When checks last found a change between up and down.
    pub(crate) since: Option<Time>,
    /// When the last check ended.
    pub(crate) checked_at: Option<Time>,
    /// Why the last check failed, if it did.
    pub failure: Option<String>,
    /// The number of checks.
    pub checks: u64,
    /// The number of failed checks.
    pub failures: u64,
    /// The number of ejections.
    pub ejections: u64,
    /// The end and the reason of the last ejection as an outlier.
    pub outlier: Option<(Time, String)>,
}

impl Default for Findings {
    fn default() -> Self {
        Self {
            health: Health::Unknown,
            since: None,
            checked_at: None,
            failure: None,
            checks: 0,
            failures: 0,
            ejections: 0,
            outlier: None,
        }
    }
}

impl Watch {
    /// The current findings.
    pub fn findings(&self) -> Findings {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts an ejection, whatever its reason.
    pub fn count_ejection(&self) {
        self.change(|findings| findings.ejections += 1);
    }

    /// Records the outcome of a check, and the health that follows from it.
    pub fn checked(&self, health: Health, outcome: &Result<(), String>, now: Time) {
        self.change(|findings| {
            let was_down = matches!(findings.health, Health::Down { .. });
            if findings.since.is_none() || was_down != matches!(health, Health::Down { .. }) {
                findings.since = Some(now);
            }
            findings.health = health;
            findings.checked_at = Some(now);
            findings.failure = outcome.as_ref().err().cloned();
            findings.checks += 1;
            findings.failures += u64::from(outcome.is_err());
        });
    }

    /// Removes the results of checks, as the server is not checked any more.
    pub fn forget_checks(&self) {
        self.change(|findings| {
            *findings = Findings {
                outlier: findings.outlier.take(),
                checks: findings.checks,
                failures: findings.failures,
                ejections: findings.ejections,
                ..Findings::default()
            };
        });
    }

    /// Records an ejection as an outlier, with its end and reason.
    pub fn is_outlier(&self, until: Time, reason: String) {
        self.change(|findings| findings.outlier = Some((until, reason)));
    }

    fn change(&self, change: impl FnOnce(&mut Findings)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Keeps the findings of the previous plan, or begins with none.
pub(crate) fn watch_of(known: Option<&Arc<Watch>>) -> Arc<Watch> {
    known.map(Arc::clone).unwrap_or_default()
}
