//! What the control thread knows of a server beside how it stands: what its checks found, and why it was left out.

use std::sync::{Arc, Mutex, PoisonError};

use balance::{Health, Time};

/// What is known of a server. Kept with its standing, over reloads; no request looks at it.
#[derive(Default)]
pub struct Watch(Mutex<Findings>);

/// What checks and comparisons have found.
#[derive(Debug, Clone)]
pub struct Findings {
    /// As of the last check; `Unknown` where there was none.
    pub health: Health,
    /// Since when checks have found it up, or down.
    pub(crate) since: Option<Time>,
    /// When the last check ended.
    pub(crate) checked_at: Option<Time>,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// Checks that were made.
    pub checks: u64,
    /// Those that failed.
    pub failures: u64,
    /// How often it was ejected.
    pub ejections: u64,
    /// Until when it is, or was, left out as worse than the others, and in which way.
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
    /// What is known now.
    pub fn findings(&self) -> Findings {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It was ejected, for whatever reason.
    pub fn count_ejection(&self) {
        self.change(|findings| findings.ejections += 1);
    }

    /// A check has ended so, and that is what the server's health is now.
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

    /// It is not checked any more.
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

    /// It is left out until then, since it is worse than the others.
    pub fn is_outlier(&self, until: Time, reason: String) {
        self.change(|findings| findings.outlier = Some((until, reason)));
    }

    fn change(&self, change: impl FnOnce(&mut Findings)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// What is known of each server from the plan before, and of new ones nothing.
pub(crate) fn watch_of(known: Option<&Arc<Watch>>) -> Arc<Watch> {
    known.map(Arc::clone).unwrap_or_default()
}
