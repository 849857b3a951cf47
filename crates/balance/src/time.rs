//! A point in time, as a number counted from a start that all workers share.
//!
//! This crate reads no clock: time is passed in. A coarse clock suffices except for measuring latencies.

use std::ops::Add;
use std::time::Duration;

/// Microseconds since a start that all workers share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    pub const START: Self = Self(0);
    /// Later than any real time.
    pub const NEVER: Self = Self(u64::MAX);

    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1000))
    }

    pub const fn as_micros(self) -> u64 {
        self.0
    }

    pub const fn as_millis(self) -> u64 {
        self.0 / 1000
    }

    /// The time since `earlier`; zero if it is in the future, because the clocks of two workers may differ slightly.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }
}

/// A duration in microseconds, up to half a million years.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_neither_wraps_nor_runs_backwards() {
        let second = Time::from_millis(1000);
        assert_eq!(second + Duration::from_millis(500), Time::from_micros(1_500_000));
        assert_eq!(second.since(Time::START), Duration::from_secs(1));
        assert_eq!(Time::START.since(second), Duration::ZERO);
        assert_eq!(second + Duration::MAX, Time::NEVER);
        assert_eq!(Time::from_millis(u64::MAX), Time::NEVER);
    }
}
