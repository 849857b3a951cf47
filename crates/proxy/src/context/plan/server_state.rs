//! The control thread's findings about a server, besides its health: check results, and reasons for ejections.

use std::sync::{Arc, Mutex, PoisonError};

use balance::{Health, Time};

/// The findings about a server. Kept across reloads, together with its health; no request reads them.
#[derive(Default)]
pub struct ServerWatch(Mutex<ServerFindings>);

/// Results of health checks and outlier comparisons.
#[derive(Debug, Clone)]
pub struct ServerFindings {
    /// The health by the last check; `Unknown` if there was none.
    pub health: Health,
    /// When checks last found a change between up and down.
    pub(crate) since: Option<Time>,
    /// When the last check ended.
    pub(crate) checked_at: Option<Time>,
    /// Why the last check failed, if it did.
    pub failure: Option<String>,
    pub checks: u64,
    pub failures: u64,
    pub ejections: u64,
    /// End and reason of the last ejection as an outlier.
    pub outlier: Option<(Time, String)>,
}

impl Default for ServerFindings {
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

impl ServerWatch {
    pub fn findings(&self) -> ServerFindings {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts an ejection for any reason.
    pub fn count_ejection(&self) {
        self.change(|findings| findings.ejections += 1);
    }

    /// Records the outcome of a check, and the resulting health.
    pub fn checked(&self, health: Health, outcome: &Result<(), String>, now: Time) {
        self.change(|findings| {
            let was_down = matches!(findings.health, Health::Down { .. });
            // The time marks a change between up and down, not each check.
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

    /// Removes the results of checks, because the server is no longer checked.
    pub fn forget_checks(&self) {
        self.change(|findings| {
            // Counts go on, because metrics must not fall.
            *findings = ServerFindings {
                outlier: findings.outlier.take(),
                checks: findings.checks,
                failures: findings.failures,
                ejections: findings.ejections,
                ..ServerFindings::default()
            };
        });
    }

    /// Records an ejection as an outlier, with its end and reason.
    pub fn is_outlier(&self, until: Time, reason: String) {
        self.change(|findings| findings.outlier = Some((until, reason)));
    }

    fn change(&self, change: impl FnOnce(&mut ServerFindings)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Returns the findings of the previous plan, or empty ones.
pub(crate) fn watch_of(known: Option<&Arc<ServerWatch>>) -> Arc<ServerWatch> {
    known.map(Arc::clone).unwrap_or_default()
}
