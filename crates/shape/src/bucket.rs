//! Token bucket for one rate limit: credit grows with time, and sent bytes spend it.
//!
//! Exact at every rate: credit is counted in bytes times nanoseconds, without rounding.

use crate::limit::{Limit, Model, SECOND_NS};

/// The maximum time of credit that a waiting sender may catch up on. A late timer then costs no throughput, but a long
/// pause of the machine is not followed by a burst.
const MADE_UP_MAX_NS: u64 = 30_000_000;
/// A sender that asks again within this time was not idle: it was fetching its next data.
const FETCH_NS: u64 = 2_000_000;

#[derive(Debug)]
pub struct Bucket {
    limit: Limit,
    /// In bytes times nanoseconds per second.
    credit: u128,
    at_ns: u64,
    waiting: CreditWait,
}

#[derive(Debug, Clone, Copy)]
enum CreditWait {
    Somebody,
    /// No sender has been waiting since `since_ns`. `left` is the credit that late timers left until then.
    Nobody {
        since_ns: u64,
        left: u128,
    },
}

impl Bucket {
    /// A token bucket starts full.
    pub fn new(limit: Limit, now_ns: u64) -> Self {
        let credit = match limit.model {
            Model::Link => 0,
            Model::TokenBucket { .. } => limit.saved_max(),
        };
        let waiting = CreditWait::Nobody { since_ns: now_ns, left: 0 };
        Self { limit, credit, at_ns: now_ns, waiting }
    }

    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Changes the limit. Waiting senders keep the existing credit.
    pub fn set_limit(&mut self, limit: Limit, now_ns: u64) {
        self.advance(now_ns);
        self.limit = limit;
        self.credit = self.credit.min(self.made_up_max());
    }

    /// Records whether a sender is waiting for credit.
    pub fn set_waited_for(&mut self, is_waited_for: bool, now_ns: u64) {
        self.advance(now_ns);
        self.waiting = match self.waiting {
            _ if is_waited_for => CreditWait::Somebody,
            CreditWait::Somebody => CreditWait::Nobody { since_ns: self.at_ns, left: self.credit },
            nobody => nobody,
        };
    }

    /// Whether the bucket is full, so that its state need not be kept. Always true for a link, which saves no credit.
    pub fn is_full(&mut self, now_ns: u64) -> bool {
        self.advance(now_ns);
        self.limit.model == Model::Link || self.credit >= self.limit.saved_max()
    }

    /// Returns the number of bytes that may be sent now.
    pub fn available(&mut self, now_ns: u64) -> u64 {
        self.advance(now_ns);
        u64::try_from(self.credit / u128::from(SECOND_NS)).unwrap_or(u64::MAX)
    }

    /// Spends credit for `bytes`, which must not exceed the available bytes.
    pub fn take(&mut self, bytes: u64) {
        let cost = u128::from(bytes) * u128::from(SECOND_NS);
        debug_assert!(cost <= self.credit);
        self.credit = self.credit.saturating_sub(cost);
    }

    pub fn give_back(&mut self, bytes: u64) {
        self.credit += u128::from(bytes) * u128::from(SECOND_NS);
    }

    /// The time at which `bytes` will be available if nothing is taken before; `now` if they already are.
    pub fn due_ns(&self, bytes: u64) -> u64 {
        let missing = (u128::from(bytes) * u128::from(SECOND_NS)).saturating_sub(self.credit);
        let wait = missing.div_ceil(u128::from(self.limit.rate_bytes_per_second.get()));
        self.at_ns.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    fn advance(&mut self, now_ns: u64) {
        // Two workers read their clocks before they lock, so an earlier reading may arrive second.
        let Some(span_ns) = now_ns.checked_sub(self.at_ns) else { return };
        self.at_ns = now_ns;
        let rate = u128::from(self.limit.rate_bytes_per_second.get());
        let most = match self.waiting {
            CreditWait::Somebody => self.made_up_max(),
            // The lateness of a timer, and the time until the sender asks again, are not idle time.
            CreditWait::Nobody { since_ns, left } if now_ns.saturating_sub(since_ns) <= FETCH_NS => {
                self.limit.saved_max().max(left + rate * u128::from(FETCH_NS)).min(self.made_up_max())
            }
            CreditWait::Nobody { .. } => self.limit.saved_max(),
        };
        self.credit = (self.credit + u128::from(span_ns) * rate).min(most);
    }

    /// Maximum credit while a sender waits.
    fn made_up_max(&self) -> u128 {
        let rate = u128::from(self.limit.rate_bytes_per_second.get());
        let pieces = 2 * u128::from(self.limit.piece_bytes()) * u128::from(SECOND_NS);
        self.limit.saved_max().max(rate * u128::from(MADE_UP_MAX_NS)).max(pieces)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    const MS: u64 = 1_000_000;

    fn limit(rate: u64, model: Model) -> Limit {
        Limit { rate_bytes_per_second: NonZeroU64::new(rate).unwrap(), model }
    }

    #[test]
    fn a_link_saves_nothing_while_nobody_sends() {
        let mut bucket = Bucket::new(limit(1_000_000, Model::Link), 0);
        assert_eq!(bucket.available(0), 0);
        assert_eq!(bucket.available(60_000 * MS), 1_000, "the slack of a millisecond");
    }

    #[test]
    fn a_token_bucket_is_full_at_first_and_fills_again() {
        let mut bucket = Bucket::new(limit(1_000_000, Model::TokenBucket { burst_bytes: 64_000 }), 0);
        assert_eq!(bucket.available(0), 64_000);
        bucket.take(64_000);
        assert_eq!(bucket.available(10 * MS), 10_000);
        assert_eq!(bucket.available(60_000 * MS), 64_000);
    }

    #[test]
    fn whoever_waits_loses_nothing_to_a_late_timer() {
        let mut bucket = Bucket::new(limit(1_000_000, Model::Link), 0);
        bucket.set_waited_for(true, 0);
        assert_eq!(bucket.due_ns(1460), 1_460_000);
        assert_eq!(bucket.available(20 * MS), 20_000);
        assert_eq!(bucket.available(60_000 * MS), 30_000, "but a long standstill is not made up for");
    }

    #[test]
    fn whoever_asks_again_at_once_has_what_a_late_timer_left() {
        for (away_ms, available) in [(1, 5_000), (2, 6_000), (3, 1_000)] {
            let mut bucket = Bucket::new(limit(1_000_000, Model::Link), 0);
            bucket.set_waited_for(true, 0);
            assert_eq!(bucket.available(5 * MS), 5_000);
            bucket.take(1_000);
            bucket.set_waited_for(false, 5 * MS);
            bucket.set_waited_for(true, (5 + away_ms) * MS);
            assert_eq!(bucket.available((5 + away_ms) * MS), available, "after {away_ms} ms");
        }
    }

    #[test]
    fn another_limit_holds_from_then_on() {
        let mut bucket = Bucket::new(limit(1_000, Model::Link), 0);
        bucket.set_waited_for(true, 0);
        assert_eq!(bucket.due_ns(1_000), 1_000 * MS);
        bucket.set_limit(limit(1_000_000, Model::Link), 10 * MS);
        assert_eq!(bucket.available(10 * MS), 10, "what there was");
        assert_eq!(bucket.available(11 * MS), 1_010);
        bucket.set_limit(limit(1_000, Model::TokenBucket { burst_bytes: 500 }), 11 * MS);
        assert_eq!(bucket.available(11 * MS), 500, "no more than it may hold");
    }

    #[test]
    fn a_full_bucket_is_as_good_as_a_new_one() {
        let mut bucket = Bucket::new(limit(1_000, Model::TokenBucket { burst_bytes: 500 }), 0);
        assert!(bucket.is_full(0));
        bucket.take(100);
        assert!(!bucket.is_full(99 * MS) && bucket.is_full(100 * MS));
        assert!(Bucket::new(limit(1_000, Model::Link), 0).is_full(0));
    }

    #[test]
    fn fractions_of_bytes_are_not_lost() {
        let mut bucket = Bucket::new(limit(3, Model::Link), 0);
        bucket.set_waited_for(true, 0);
        let mut sent = 0;
        for step in 1..=100_000u64 {
            let now = step * 100_000;
            if bucket.available(now) > 0 {
                bucket.take(1);
                sent += 1;
            }
        }
        assert_eq!(sent, 30, "three bytes a second for ten seconds");
    }
}
