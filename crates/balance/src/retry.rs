//! The retry budget: retries are limited to a share of requests, so that an outage does not multiply the load.
//!
//! Like Finagle's retry budgets. Each worker counts its own requests; all workers share the minimum of retries per
//! second. The caller decides whether a request may be retried at all.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::time::Time;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetrySettings {
    /// The percentage of the requests in the last ten seconds that may be retries.
    pub percent: u32,
    /// Additional retries per second, over all workers.
    pub per_second_min: u32,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self { percent: 20, per_second_min: 10 }
    }
}

/// Seconds that are remembered.
// As in Finagle: a quiet second does not use up the budget, and an old crowd does not lend it.
const SECONDS: usize = 10;

/// The retry budget of a worker for an upstream.
#[derive(Debug, Clone)]
pub struct RetryBudget {
    settings: RetrySettings,
    /// Requests and retries in each of the last seconds, indexed by the second modulo their number.
    seconds: [RetrySecond; SECONDS],
    latest: u64,
    /// The sums over all seconds.
    requests: u64,
    retries: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct RetrySecond {
    requests: u32,
    retries: u32,
}

impl RetryBudget {
    pub fn new(settings: RetrySettings) -> Self {
        Self { settings, seconds: [RetrySecond::default(); SECONDS], latest: 0, requests: 0, retries: 0 }
    }

    /// Counts a request that is not a retry.
    #[inline]
    pub fn request(&mut self, now: Time) {
        let second = self.second(now);
        // Saturates at four billion per second.
        second.requests = second.requests.saturating_add(1);
        self.requests += 1;
    }

    /// Takes a retry from this worker's budget, or from the shared reserve. Returns whether there was one.
    pub fn retry(&mut self, now: Time, reserve: &RetryReserve) -> bool {
        let percent = u64::from(self.settings.percent);
        let second = self.second(now);
        second.retries = second.retries.saturating_add(1);
        self.retries += 1;
        // Counted first and taken back, so that the retry itself is part of the share.
        if self.retries * 100 <= self.requests * percent {
            return true;
        }
        self.second(now).retries -= 1;
        self.retries -= 1;
        reserve.take(self.settings.per_second_min, now)
    }

    /// The current second. Forgets seconds that are older than ten.
    fn second(&mut self, now: Time) -> &mut RetrySecond {
        // Another worker's clock may have been a little ahead.
        let current = (now.as_millis() / 1000).max(self.latest);
        let passed = (current - self.latest).min(SECONDS as u64);
        for forgotten in current + 1 - passed..=current {
            let second = std::mem::take(&mut self.seconds[(forgotten % SECONDS as u64) as usize]);
            self.requests -= u64::from(second.requests);
            self.retries -= u64::from(second.retries);
        }
        self.latest = current;
        &mut self.seconds[(current % SECONDS as u64) as usize]
    }
}

/// Retries per second that all workers share, with one second's worth as a burst. A token bucket in one word, stored as
/// the time at which it would be full (virtual scheduling of the GCRA, ITU-T I.371).
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct RetryReserve(AtomicU64);

impl RetryReserve {
    /// Takes a retry. Returns false if there is none.
    fn take(&self, per_second: u32, now: Time) -> bool {
        let Some(interval) = 1_000_000u64.checked_div(u64::from(per_second)) else { return false };
        let now = now.as_micros();
        let next = |full_at: u64| {
            // A bucket that has been full for long holds no more than a second's worth.
            let next = full_at.max(now) + interval.max(1);
            (next <= now + 1_000_000).then_some(next)
        };
        self.0.fetch_update(Relaxed, Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn taken(budget: &mut RetryBudget, reserve: &RetryReserve, now: Time, tries: u32) -> u32 {
        (0..tries).map(|_| u32::from(budget.retry(now, reserve))).sum()
    }

    #[test]
    fn retries_are_a_share_of_the_requests_of_ten_seconds() {
        let mut budget = RetryBudget::new(RetrySettings { percent: 20, per_second_min: 0 });
        let reserve = RetryReserve::default();
        assert_eq!(taken(&mut budget, &reserve, at(0), 5), 0, "nothing from nothing");
        (0..1000).for_each(|_| budget.request(at(500)));
        assert_eq!(taken(&mut budget, &reserve, at(900), 500), 200);
        assert_eq!(taken(&mut budget, &reserve, at(9_999), 500), 0);
        (0..10).for_each(|_| budget.request(at(9_999)));
        assert_eq!(taken(&mut budget, &reserve, at(9_999), 500), 2);
        assert_eq!(taken(&mut budget, &reserve, at(10_000), 500), 0, "both are forgotten together");
        (0..10).for_each(|_| budget.request(at(60_000)));
        assert_eq!(taken(&mut budget, &reserve, at(60_000), 500), 2);
    }

    #[test]
    fn a_few_each_second_are_shared_by_all_workers() {
        let settings = RetrySettings { percent: 0, per_second_min: 10 };
        let mut workers = [RetryBudget::new(settings), RetryBudget::new(settings)];
        let reserve = RetryReserve::default();
        let mut all = |now| workers.iter_mut().map(|worker| taken(worker, &reserve, now, 50)).sum::<u32>();
        for (now, expected) in [(0, 10), (50, 0), (100, 1), (400, 3), (1400, 10), (99_000, 10)] {
            assert_eq!(all(at(now)), expected, "at {now} ms");
        }
    }

    #[test]
    fn an_outage_is_multiplied_by_no_more_than_the_share() {
        let mut budget = RetryBudget::new(RetrySettings { percent: 20, per_second_min: 5 });
        let reserve = RetryReserve::default();
        let mut sent = 0;
        for request in 0..100_000u64 {
            let now = at(request / 2);
            budget.request(now);
            sent += 1;
            // Each request fails, and would be retried three times.
            sent += taken(&mut budget, &reserve, now, 3);
        }
        let retried_percent = (f64::from(sent) - 1e5) / 1e3;
        // 5 retries per second are a quarter of a percent of 2000 requests.
        assert!((20.0..20.3).contains(&retried_percent), "{retried_percent}%");
    }
}
