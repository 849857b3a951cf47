//! Findings about a server, besides its health: check results, reasons for ejections, and the last failed request.

use std::sync::{Arc, Mutex, PoisonError};

use std::time::Duration;

use balance::{Health, Time};

/// At most so often is a further failure reported. Until then, failures are counted.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// First failures after a success that are reported at once in such an interval.
// A server that fails every second request would otherwise fill the journal.
const FIRST_MAX: u8 = 5;

/// The findings about a server. Kept across reloads, together with its health. Only failed requests write them.
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
    /// The last failed request.
    pub last_error: Option<ServerError>,
    /// Failed requests that no message has mentioned.
    unreported: u64,
    /// When a message mentioned failures, and how many first failures since the interval began.
    reported_at: Option<Time>,
    interval: Option<(Time, u8)>,
}

/// A request that a server failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerError {
    pub at: Time,
    /// The word in the log.
    pub cause: &'static str,
    /// The reason in words, as `connection refused`.
    pub reason: String,
    /// The number of failed requests since the start, including this one.
    pub count: u64,
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
            last_error: None,
            unreported: 0,
            reported_at: None,
            interval: None,
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
                last_error: findings.last_error.take(),
                unreported: findings.unreported,
                reported_at: findings.reported_at,
                interval: findings.interval,
                ..ServerFindings::default()
            };
        });
    }

    /// Records an ejection as an outlier, with its end and reason.
    pub fn is_outlier(&self, until: Time, reason: String) {
        self.change(|findings| findings.outlier = Some((until, reason)));
    }

    /// Records a failed request. `is_first`: the server had succeeded before. Returns whether to report it at once.
    pub(crate) fn failed(&self, cause: &'static str, reason: &str, is_first: bool, now: Time) -> bool {
        self.change(|findings| {
            // The text is reused, because a dead server fails many requests for one reason.
            let error = findings.last_error.get_or_insert_with(|| ServerError {
                at: now,
                cause,
                reason: String::new(),
                count: 0,
            });
            (error.at, error.cause) = (now, cause);
            error.count += 1;
            if error.reason != reason {
                error.reason.clear();
                error.reason.push_str(reason);
            }
            let (began, firsts) = match findings.interval {
                Some((began, firsts)) if now.since(began) < REPORT_INTERVAL => (began, firsts),
                _ => (now, 0),
            };
            let is_reported = is_first && firsts < FIRST_MAX;
            findings.interval = Some((began, firsts + u8::from(is_reported)));
            if is_reported {
                findings.reported_at = Some(now);
            } else {
                findings.unreported += 1;
            }
            is_reported
        })
    }

    /// Returns the number of failed requests that no message has mentioned, and the last reason, once a minute.
    pub fn due_failures(&self, now: Time) -> Option<(u64, String)> {
        self.change(|findings| {
            let is_due = findings.reported_at.is_none_or(|at| now.since(at) >= REPORT_INTERVAL);
            let error = findings.last_error.as_ref().filter(|_| is_due && findings.unreported > 0)?;
            findings.reported_at = Some(now);
            Some((std::mem::take(&mut findings.unreported), error.reason.clone()))
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut ServerFindings) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the findings of the previous plan, or empty ones.
pub(crate) fn watch_of(known: Option<&Arc<ServerWatch>>) -> Arc<ServerWatch> {
    known.map(Arc::clone).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_failure_is_reported_at_once_and_the_others_once_a_minute() {
        let at = |seconds: u64| Time::from_millis(seconds * 1000);
        let watch = ServerWatch::default();
        let fails =
            |is_first, seconds| watch.failed("upstream-refused", "connection refused", is_first, at(seconds));
        assert!(fails(true, 10));
        for second in 11..40 {
            assert!(!fails(false, second));
        }
        assert_eq!(watch.due_failures(at(69)), None);
        assert_eq!(watch.due_failures(at(70)), Some((29, "connection refused".to_owned())));
        assert_eq!(watch.due_failures(at(200)), None, "none is left");
        let last = watch.findings().last_error.expect("it failed");
        assert_eq!((last.at, last.cause, last.count), (at(39), "upstream-refused", 30));
        // A server that fails every second request fills no journal.
        let reported = (0..100).filter(|_| fails(true, 300)).count();
        assert_eq!(reported, usize::from(FIRST_MAX));
        assert_eq!(watch.due_failures(at(360)), Some((95, "connection refused".to_owned())));
        assert!(fails(true, 361));
        watch.forget_checks();
        assert!(watch.findings().last_error.is_some(), "requests have failed, whether or not checks go on");
    }
}
