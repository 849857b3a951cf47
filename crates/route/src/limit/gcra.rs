//! The generic cell rate algorithm (GCRA, ITU-T I.371 annex A): one number per key, no history of requests.
//!
//! The number is the time at which the next request would be due at exactly the rate; a burst may be ahead of it.

use std::num::NonZeroU32;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    requests: NonZeroU32,
    per: Duration,
    burst: NonZeroU32,
    /// The time between requests at exactly the rate. Rounded up, so that the rate is never exceeded.
    interval_ns: u64,
    /// How far ahead of time requests may be.
    tolerance_ns: u64,
}

/// Why a rate is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// The period is zero, or more than a day.
    #[error("the time of a rate is from 1ms to a day, not {0:?}")]
    Time(Duration),
    /// The rate exceeds one request per 100 nanoseconds, which is as good as no limit.
    #[error("{0} requests in {1:?} are more than 10 million a second; leave the limit out")]
    TooFast(u32, Duration),
    /// The burst is more than the rate admits in a year.
    #[error("a burst of {0} would take more than a year at this rate; use a smaller one")]
    Burst(u32),
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const YEAR_NS: u64 = 365 * 24 * 60 * 60 * 1_000_000_000;
const INTERVAL_NS_MIN: u64 = 100;

impl Rate {
    /// A rate of `requests` per `per`, with at most `burst` requests at once.
    ///
    /// # Errors
    /// Why the rate is invalid.
    pub fn new(requests: NonZeroU32, per: Duration, burst: NonZeroU32) -> Result<Self, RateError> {
        if per < Duration::from_millis(1) || per > DAY {
            return Err(RateError::Time(per));
        }
        // A day is less than 2⁴⁷ nanoseconds.
        let interval_ns = (per.as_nanos() as u64).div_ceil(u64::from(requests.get()));
        if interval_ns < INTERVAL_NS_MIN {
            return Err(RateError::TooFast(requests.get(), per));
        }
        let tolerance_ns = interval_ns.checked_mul(u64::from(burst.get() - 1));
        let tolerance_ns = tolerance_ns.filter(|tolerance_ns| *tolerance_ns <= YEAR_NS);
        let tolerance_ns = tolerance_ns.ok_or(RateError::Burst(burst.get()))?;
        Ok(Self { requests, per, burst, interval_ns, tolerance_ns })
    }

    /// The number of requests, and the period.
    pub fn requests_per(self) -> (NonZeroU32, Duration) {
        (self.requests, self.per)
    }

    pub fn burst(self) -> NonZeroU32 {
        self.burst
    }

    /// The time between requests at exactly the rate.
    pub fn interval_ns(self) -> u64 {
        self.interval_ns
    }

    /// How far ahead of time a key may be and still be admitted.
    pub fn tolerance_ns(self) -> u64 {
        self.tolerance_ns
    }

    /// Decides about a request of a key. Returns the new state if it is admitted, otherwise the nanoseconds to wait.
    ///
    /// The state of a new key is 0. In any time span, at most the burst plus the rate times the span is admitted.
    #[inline]
    pub(super) fn decide(self, due_ns: u64, now_ns: u64) -> Result<u64, u64> {
        let due_ns = due_ns.max(now_ns);
        match (due_ns - now_ns).checked_sub(self.tolerance_ns) {
            None | Some(0) => Ok(due_ns.saturating_add(self.interval_ns)),
            Some(wait_ns) => Err(wait_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(requests: u32, per: Duration, burst: u32) -> Result<Rate, RateError> {
        Rate::new(NonZeroU32::new(requests).unwrap(), per, NonZeroU32::new(burst).unwrap())
    }

    #[test]
    fn rates() {
        let three = rate(3, Duration::from_secs(1), 2).unwrap();
        assert_eq!((three.interval_ns, three.tolerance_ns), (333_333_334, 333_333_334));
        assert_eq!((three.requests_per().0.get(), three.requests_per().1), (3, Duration::from_secs(1)));
        assert_eq!(three.burst().get(), 2);
        assert_eq!(rate(1, DAY, 1).unwrap().interval_ns, 86_400_000_000_000);
        assert_eq!(rate(1, Duration::ZERO, 1), Err(RateError::Time(Duration::ZERO)));
        assert_eq!(rate(1, DAY * 2, 1), Err(RateError::Time(DAY * 2)));
        assert!(matches!(rate(20_000_000, Duration::from_secs(1), 1), Err(RateError::TooFast(..))));
        assert!(matches!(rate(1, DAY, u32::MAX), Err(RateError::Burst(_))));
    }

    proptest! {
        #[test]
        fn never_more_than_the_burst_and_the_rate(
            requests in 1..50_u32,
            per_ms in 1..5000_u64,
            burst in 1..20_u32,
            steps in prop::collection::vec(0..200_000_000_u64, 1..300),
            start_ns in 0..1_u64 << 60,
        ) {
            let per = Duration::from_millis(per_ms);
            let rate = rate(requests, per, burst).unwrap();
            let (mut due_ns, mut now_ns) = (0, start_ns);
            let mut admitted = Vec::new();
            for step in steps {
                now_ns += step;
                match rate.decide(due_ns, now_ns) {
                    Ok(next_ns) => {
                        due_ns = next_ns;
                        admitted.push(now_ns);
                    }
                    // It is admitted at exactly this time, not before.
                    Err(wait_ns) => {
                        prop_assert!(rate.decide(due_ns, now_ns + wait_ns).is_ok());
                        prop_assert!(rate.decide(due_ns, now_ns + wait_ns - 1).is_err());
                    }
                }
            }
            // In any part of the time span, not only in the whole.
            for (first, from_ns) in admitted.iter().enumerate() {
                for (last, to_ns) in admitted.iter().enumerate().skip(first) {
                    let count = (last - first + 1) as u64;
                    let given = (to_ns - from_ns) * u64::from(requests) / (per_ms * 1_000_000);
                    prop_assert!(count <= u64::from(burst) + given, "{count} in {}", to_ns - from_ns);
                }
            }
        }

        #[test]
        fn a_client_that_keeps_to_the_rate_is_never_refused(requests in 1..50_u32, per_ms in 1..5000_u64, count in 1..200_u64) {
            let rate = rate(requests, Duration::from_millis(per_ms), 1).unwrap();
            let mut due_ns = 0;
            for number in 0..count {
                due_ns = rate.decide(due_ns, number * rate.interval_ns).unwrap();
            }
        }
    }
}
