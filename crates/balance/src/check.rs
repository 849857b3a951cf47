//! Active checks: how many in a row decide, and when the next one is due. Who checks, and how, is elsewhere.

use std::time::Duration;

use crate::hash::{below, mix};
use crate::time::{Time, micros};

/// How checks of one server follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckSettings {
    /// From one check to the next.
    pub interval: Duration,
    /// From one check to the next while the server is not up, or about to change: a return is seen sooner.
    pub interval_in_doubt: Duration,
    /// By how much of itself an interval is shortened at most, at random, in percent: so that the checks of many servers
    /// and proxies do not fall together. Never lengthened.
    pub jitter_percent: u32,
    /// Successes in a row that bring a server up; at least 1.
    pub rise: u32,
    /// Failures in a row that bring it down; at least 1.
    pub fall: u32,
}

impl Default for CheckSettings {
    fn default() -> Self {
        let interval = Duration::from_secs(2);
        Self { interval, interval_in_doubt: interval / 2, jitter_percent: 20, rise: 2, fall: 3 }
    }
}

/// What a check's result has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The server came up.
    Up,
    /// The server went down.
    Down,
}

/// What the checks of one server have found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Not checked yet. It counts as up, and the first check decides.
    Unknown,
    /// Up, with so many failures in a row.
    Up {
        /// Fewer than `fall`.
        failures: u32,
    },
    /// Down, with so many successes in a row.
    Down {
        /// Fewer than `rise`.
        successes: u32,
    },
}

impl Health {
    /// After a check: what it is now, and whether that is another verdict.
    #[must_use]
    pub fn checked(self, is_success: bool, settings: &CheckSettings) -> (Self, Option<Verdict>) {
        match (self, is_success) {
            (Health::Unknown, true) => (Health::Up { failures: 0 }, None),
            (Health::Unknown, false) => (Health::Down { successes: 0 }, Some(Verdict::Down)),
            (Health::Up { .. }, true) => (Health::Up { failures: 0 }, None),
            (Health::Up { failures }, false) if failures + 1 < settings.fall => {
                (Health::Up { failures: failures + 1 }, None)
            }
            (Health::Up { .. }, false) => (Health::Down { successes: 0 }, Some(Verdict::Down)),
            (Health::Down { successes }, true) if successes + 1 < settings.rise => {
                (Health::Down { successes: successes + 1 }, None)
            }
            (Health::Down { .. }, true) => (Health::Up { failures: 0 }, Some(Verdict::Up)),
            (Health::Down { .. }, false) => (Health::Down { successes: 0 }, None),
        }
    }

    /// When the next check is due, if one began now. `random` is 64 random bits.
    pub fn due(self, settings: &CheckSettings, now: Time, random: u64) -> Time {
        let interval = match self {
            Health::Up { failures: 0 } => settings.interval,
            Health::Unknown | Health::Up { .. } | Health::Down { .. } => settings.interval_in_doubt,
        };
        let jitter = micros(interval) / 100 * u64::from(settings.jitter_percent.min(100));
        now + (interval - Duration::from_micros(below(mix(random), jitter + 1)))
    }

    /// When the first check of a server is due: those of many are spread over an interval.
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
        use Verdict::{Down, Up};
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
