//! Schedule and verdict of active health checks: the results in a row that count, and when the next check is due. The
//! caller makes the checks.

use std::time::Duration;

use crate::hash::{below, mix};
use crate::time::{Time, micros};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckSettings {
    pub interval: Duration,
    /// The time between checks while the server is not up, or about to change state, so that a recovery is noticed
    /// sooner.
    pub interval_in_doubt: Duration,
    /// The most by which an interval is randomly shortened, in percent, so that the checks of many servers and proxies
    /// do not coincide. Intervals are never lengthened.
    pub jitter_percent: u32,
    /// Successes in a row that bring a server up; at least 1.
    pub rise: u32,
    /// Failures in a row that bring a server down; at least 1.
    pub fall: u32,
}

impl Default for CheckSettings {
    fn default() -> Self {
        let interval = Duration::from_secs(2);
        Self { interval, interval_in_doubt: interval / 2, jitter_percent: 20, rise: 2, fall: 3 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckTurn {
    Up,
    Down,
}

/// The state of a server according to its checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Not checked yet. Counts as up; the first check decides.
    Unknown,
    Up {
        /// In a row; below `fall`.
        failures: u32,
    },
    Down {
        /// In a row; below `rise`.
        successes: u32,
    },
}

impl Health {
    /// The state after a check, and the change of state, if there is one.
    #[must_use]
    pub fn checked(self, is_success: bool, settings: &CheckSettings) -> (Self, Option<CheckTurn>) {
        match (self, is_success) {
            (Health::Unknown, true) => (Health::Up { failures: 0 }, None),
            // The first check decides alone: a server that was down before the start should not get requests for
            // `fall` checks.
            (Health::Unknown, false) => (Health::Down { successes: 0 }, Some(CheckTurn::Down)),
            (Health::Up { .. }, true) => (Health::Up { failures: 0 }, None),
            (Health::Up { failures }, false) if failures + 1 < settings.fall => {
                (Health::Up { failures: failures + 1 }, None)
            }
            (Health::Up { .. }, false) => (Health::Down { successes: 0 }, Some(CheckTurn::Down)),
            (Health::Down { successes }, true) if successes + 1 < settings.rise => {
                (Health::Down { successes: successes + 1 }, None)
            }
            (Health::Down { .. }, true) => (Health::Up { failures: 0 }, Some(CheckTurn::Up)),
            (Health::Down { .. }, false) => (Health::Down { successes: 0 }, None),
        }
    }

    /// When the next check is due, if a check began now. `random` holds 64 random bits.
    pub fn due(self, settings: &CheckSettings, now: Time, random: u64) -> Time {
        let interval = match self {
            Health::Up { failures: 0 } => settings.interval,
            Health::Unknown | Health::Up { .. } | Health::Down { .. } => settings.interval_in_doubt,
        };
        let jitter = micros(interval) / 100 * u64::from(settings.jitter_percent.min(100));
        now + (interval - Duration::from_micros(below(mix(random), jitter + 1)))
    }

    /// When the first check of a server is due. The first checks of many servers are spread over an interval.
    pub fn first_due(settings: &CheckSettings, now: Time, random: u64) -> Time {
        now + Duration::from_micros(below(mix(random), micros(settings.interval_in_doubt) + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: CheckSettings = CheckSettings {
        interval: Duration::from_secs(10),
        interval_in_doubt: Duration::from_secs(1),
        jitter_percent: 20,
        rise: 2,
        fall: 3,
    };

    #[test]
    fn checks_in_a_row_decide() {
        use CheckTurn::{Down, Up};
        // `+` succeeds, `-` fails; the verdicts by the number of the check.
        for (checks, verdicts) in [
            ("++++", &[][..]),
            ("-", &[(0, Down)]),
            ("+--+--+--", &[]),
            ("+---", &[(3, Down)]),
            ("+----+-+-++", &[(3, Down), (10, Up)]),
            ("-++---++", &[(0, Down), (2, Up), (5, Down), (7, Up)]),
        ] {
            let mut health = Health::Unknown;
            let mut found = Vec::new();
            for (number, check) in checks.chars().enumerate() {
                let verdict;
                (health, verdict) = health.checked(check == '+', &SETTINGS);
                found.extend(verdict.map(|verdict| (number, verdict)));
            }
            assert_eq!(found, verdicts, "{checks}");
        }
    }

    #[test]
    fn intervals_are_shortened_by_up_to_the_jitter() {
        let now = Time::from_millis(500);
        for (health, shortest, longest) in [
            (Health::Up { failures: 0 }, 8_500, 10_500),
            (Health::Up { failures: 1 }, 1_300, 1_500),
            (Health::Down { successes: 0 }, 1_300, 1_500),
        ] {
            let dues: Vec<u64> =
                (0..1000).map(|random| health.due(&SETTINGS, now, random).as_millis()).collect();
            let (least, most) = (dues.iter().min().copied(), dues.iter().max().copied());
            let span = longest - shortest;
            assert!(
                least.is_some_and(|least| (shortest..shortest + span / 20).contains(&least)),
                "{least:?}"
            );
            assert!(most.is_some_and(|most| (longest - span / 20..=longest).contains(&most)), "{most:?}");
        }
        let still = CheckSettings { jitter_percent: 0, ..SETTINGS };
        assert_eq!(Health::Unknown.due(&still, now, 77), Time::from_millis(1500));
        let first = (0..1000).map(|random| Health::first_due(&SETTINGS, now, random));
        assert!(first.clone().all(|due| due >= now && due <= now + SETTINGS.interval_in_doubt));
        assert!(first.max() > Some(now + SETTINGS.interval_in_doubt * 9 / 10));
    }
}
