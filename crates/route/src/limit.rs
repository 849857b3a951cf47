//! Limits on the requests of a client, a header value or a whole route: a rate and a burst per key, or a number under
//! way.
//!
//! One limiter serves all workers, so the limit holds for all of them together. It reads no clock.

/// Limits on requests under way.
mod concurrency;
/// The rate limiting algorithm, as a function of state and time.
mod gcra;
/// The keys that requests are counted by.
mod key;
/// The first requests of each key.
mod first;
/// Limits over several instances.
mod share;
/// State for very many keys in bounded memory.
mod states;

pub use concurrency::{
    Concurrency, ConcurrencyDemand, ConcurrencyEntry, ConcurrencyKey, ConcurrencyLimiter, ConcurrencyTicket,
};
pub use first::{FirstRequests, KeyCount};
pub use gcra::{Rate, RateError};
pub use key::{RateKey, RateKeyPart};
pub use share::{Alone, ShareStanding, SharedIdentity, Spent};
pub use states::KEY_BYTES;

use std::sync::Arc;

use crate::request::{FieldLookup, RequestParts};
use share::LimitShare;
use states::States;

/// A rate limit per key.
///
/// # Memory
/// [`KEY_BYTES`] for each key that there is room for, allocated at once. A key is forgotten once a whole burst is
/// available to it, which loses nothing. If there is no room for a new key before, the new key takes the place and the
/// state of the key that is nearest to a whole burst. So a flood of keys hardly weakens the limit, and takes no more
/// memory. Keys are spread over sets of eight by a keyed hash; leave room for twice the expected number.
/// Clones share their counts.
#[derive(Debug, Clone)]
pub struct RateLimiter {
    rate: Rate,
    key: RateKey,
    /// Shared by limiters of one zone.
    states: Arc<States>,
    /// Present for a limit over several instances.
    share: Option<Arc<LimitShare>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateVerdict {
    /// The request is admitted, and was counted.
    Admitted,
    /// The request is rejected with 429, and was not counted.
    Refused {
        /// The value of Retry-After (RFC 9110 §10.2.3), at least 1: the time until a request would be admitted.
        retry_after_seconds: u64,
    },
}

/// The rest of a key's quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// How many requests would be admitted at once.
    pub remaining: u64,
    /// When the whole burst is available again; after a rejection, when a request would be admitted.
    pub reset_seconds: u64,
}

impl RateLimiter {
    /// A limiter with room for `keys_max` keys, rounded up to a power of two. `secret` must be random: an attacker who
    /// knows it can choose keys that collide.
    pub fn new(rate: Rate, key: RateKey, keys_max: usize, secret: [u64; 2]) -> Self {
        Self { rate, key, states: Arc::new(States::new(keys_max, secret)), share: None }
    }

    /// A limiter that shares its limit with other instances; `instances` is their assumed number until
    /// [`stand`](Self::stand). All of them need the same `secret`.
    pub fn shared(
        rate: Rate,
        key: RateKey,
        keys_max: usize,
        secret: [u64; 2],
        (alone, instances): (Alone, u32),
    ) -> Self {
        let states = States::new(keys_max, secret);
        let share = Arc::new(LimitShare::new(rate, alone, instances, states.sets()));
        Self { rate, key, states: Arc::new(states), share: Some(share) }
    }

    /// A limiter with the same counts and another burst. `rate` must have the same mean.
    #[must_use]
    pub fn with_burst_of(&self, rate: Rate) -> Self {
        Self { rate, ..self.clone() }
    }

    /// Counts a request of a user, unless it exceeds the limit. The user matters only for a key that [has
    /// one](RateKey::has_user).
    ///
    /// `now_ns` is the time of a monotonic clock that all workers share; small differences between workers are
    /// tolerated. Takes a lock only for a new key.
    pub fn admit<F: FieldLookup + ?Sized>(
        &self,
        request: &RequestParts<'_, F>,
        user: &str,
        now_ns: u64,
    ) -> RateVerdict {
        verdict(self.outcome(request, user, now_ns))
    }

    /// As [`admit`](Self::admit), but also returns the rest of the quota.
    pub fn admit_with_quota<F: FieldLookup + ?Sized>(
        &self,
        request: &RequestParts<'_, F>,
        user: &str,
        now_ns: u64,
    ) -> (RateVerdict, Quota) {
        let outcome = self.outcome(request, user, now_ns);
        let verdict = verdict(outcome);
        let quota = match (outcome, verdict) {
            (Ok(due_ns), _) => {
                let (ahead_ns, interval_ns) = (due_ns.saturating_sub(now_ns), self.rate.interval_ns());
                let most_ns = self.rate.tolerance_ns().saturating_add(interval_ns);
                Quota {
                    remaining: most_ns.saturating_sub(ahead_ns) / interval_ns,
                    reset_seconds: ahead_ns.div_ceil(1_000_000_000),
                }
            }
            (Err(_), RateVerdict::Refused { retry_after_seconds: reset_seconds }) => {
                Quota { remaining: 0, reset_seconds }
            }
            (Err(_), RateVerdict::Admitted) => Quota { remaining: 0, reset_seconds: 0 },
        };
        (verdict, quota)
    }

    /// The new state of the request's key, or the nanoseconds to wait.
    fn outcome<F: FieldLookup + ?Sized>(
        &self,
        request: &RequestParts<'_, F>,
        user: &str,
        now_ns: u64,
    ) -> Result<u64, u64> {
        let tag = self.states.tag(|hasher| self.key.hash(request, user, hasher));
        let outcome = match &self.share {
            None => self.states.update(tag, |due_ns| self.rate.decide(due_ns, now_ns)),
            Some(share) => {
                let (terms, tolerance_ns) = (share.terms(), self.rate.tolerance_ns());
                let outcome = self.states.update(tag, |due_ns| terms.decide(tolerance_ns, due_ns, now_ns));
                if let Ok((place, due_ns)) = outcome {
                    share.spend(place, due_ns.saturating_sub(now_ns) > tolerance_ns);
                }
                outcome
            }
        };
        outcome.map(|(_, due_ns)| due_ns)
    }

    /// The behaviour of a shared limit while instances cannot reach each other. `None` for a limit of one instance.
    pub fn alone(&self) -> Option<Alone> {
        self.share.as_ref().map(|share| share.alone)
    }

    /// Sets the standing of a shared limit.
    pub fn stand(&self, standing: ShareStanding) {
        if let Some(share) = &self.share {
            share.stand(self.rate, standing);
        }
    }

    /// Sets a function that the thread of a request calls, if a shared limiter that [rests](Self::rest) has something
    /// to report, or a key has used up this instance's allowance. Only the first call of this method has an effect.
    pub fn call_with(&self, caller: impl Fn() + Send + Sync + 'static) {
        if let Some(share) = &self.share {
            share.call_with(Box::new(caller));
        }
    }

    /// Takes the requests that a shared limiter has admitted since the last call.
    pub fn take_spent(&self, spent: &mut Vec<Spent>) {
        if let Some(share) = &self.share {
            share.take(|place, requests| {
                // If another key has taken the place, that key pays.
                let key = self.states.key_at(place);
                spent.push(Spent { place, key, requests });
            });
        }
    }

    /// Applies the state of a key over all instances: how far ahead of time it is. Requests admitted since `take_spent`
    /// are added.
    pub fn learn(&self, Spent { place, key, .. }: Spent, ahead_ns: u64, now_ns: u64) {
        if let Some(share) = &self.share {
            self.states.replace(place, key, || {
                let untold_ns = self.rate.interval_ns().saturating_mul(share.untold(place).into());
                now_ns.saturating_add(ahead_ns).saturating_add(untold_ns)
            });
        }
    }

    /// Lets the next request call the function of [`call_with`](Self::call_with). Returns whether there is nothing to
    /// report.
    pub fn rest(&self) -> bool {
        self.share.as_ref().is_none_or(|share| share.rest())
    }

    pub fn rate(&self) -> Rate {
        self.rate
    }
}

fn verdict(outcome: Result<u64, u64>) -> RateVerdict {
    match outcome {
        Ok(_) => RateVerdict::Admitted,
        Err(wait_ns) => RateVerdict::Refused { retry_after_seconds: wait_ns.div_ceil(1_000_000_000).max(1) },
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::request::NoFields;

    fn rate(requests: u32, per_ms: u64, burst: u32) -> Rate {
        let number = |number| NonZeroU32::new(number).unwrap();
        Rate::new(number(requests), Duration::from_millis(per_ms), number(burst)).unwrap()
    }

    fn client(address: [u8; 4]) -> RequestParts<'static, NoFields> {
        RequestParts {
            listener: 0,
            host: b"a",
            path: b"/",
            query: None,
            method: b"GET",
            client: address.into(),
            fields: &NoFields,
            conditions: &crate::NoConditions,
        }
    }

    const SECRET: [u64; 2] = [1, 2];
    const SECOND_NS: u64 = 1_000_000_000;

    fn by_client() -> RateKey {
        RateKey(vec![RateKeyPart::ClientNetwork { bits_v4: 24, bits_v6: 64 }])
    }

    #[test]
    fn a_quota_reports_the_rest() {
        let limiter = RateLimiter::new(rate(1, 10_000, 3), by_client(), 1000, SECRET);
        let now_ns = 5 * SECOND_NS;
        let mut asks = |now_ns| {
            let (verdict, quota) = limiter.admit_with_quota(&client([10, 0, 0, 1]), "", now_ns);
            (verdict == RateVerdict::Admitted, quota.remaining, quota.reset_seconds)
        };
        assert_eq!([now_ns; 4].map(&mut asks), [(true, 2, 10), (true, 1, 20), (true, 0, 30), (false, 0, 10)]);
        assert_eq!(asks(now_ns + 9 * SECOND_NS), (false, 0, 1));
        assert_eq!(asks(now_ns + 10 * SECOND_NS), (true, 0, 30));
        assert_eq!(asks(now_ns + 39 * SECOND_NS + SECOND_NS / 2), (true, 1, 11));
    }

    #[test]
    fn each_key_has_a_burst_and_then_its_rate() {
        let limiter = RateLimiter::new(rate(2, 1000, 3), by_client(), 1000, SECRET);
        let refused = |seconds| RateVerdict::Refused { retry_after_seconds: seconds };
        let now_ns = 5 * SECOND_NS;
        for _ in 0..3 {
            assert_eq!(limiter.admit(&client([10, 0, 0, 1]), "", now_ns), RateVerdict::Admitted);
        }
        assert_eq!(limiter.admit(&client([10, 0, 0, 2]), "", now_ns), refused(1), "the same network");
        assert_eq!(
            limiter.admit(&client([10, 0, 1, 1]), "", now_ns),
            RateVerdict::Admitted,
            "another network"
        );
        assert_eq!(limiter.admit(&client([10, 0, 0, 1]), "", now_ns + SECOND_NS / 2 - 1), refused(1));
        assert_eq!(limiter.admit(&client([10, 0, 0, 1]), "", now_ns + SECOND_NS / 2), RateVerdict::Admitted);
        assert_eq!(limiter.admit(&client([10, 0, 0, 1]), "", now_ns + SECOND_NS / 2), refused(1));
        for _ in 0..3 {
            assert_eq!(
                limiter.admit(&client([10, 0, 0, 1]), "", now_ns + 60 * SECOND_NS),
                RateVerdict::Admitted
            );
        }
        assert_eq!(limiter.admit(&client([10, 0, 0, 1]), "", now_ns + 60 * SECOND_NS), refused(1));
        let slow = RateLimiter::new(rate(1, 60_000, 1), RateKey(vec![]), 1, SECRET);
        assert_eq!(slow.admit(&client([10, 0, 0, 1]), "", 0), RateVerdict::Admitted);
        assert_eq!(slow.admit(&client([10, 0, 0, 1]), "", SECOND_NS / 2), refused(60));
        assert_eq!(slow.rate(), rate(1, 60_000, 1));
    }

    /// At most the burst plus the rate times the elapsed time is admitted, for any number of threads.
    #[test]
    fn the_limit_holds_over_threads() {
        const THREADS: u64 = 4;
        const ROUNDS: u64 = 20_000;
        const STEP_NS: u64 = 50_000;
        let limiter = RateLimiter::new(rate(1000, 1000, 50), by_client(), 64, SECRET);
        let clock_ns = AtomicU64::new(0);
        let admitted = [const { AtomicU64::new(0) }; 8];
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (limiter, clock_ns, admitted) = (&limiter, &clock_ns, &admitted);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        // The clock that each thread reads is slightly behind that of others.
                        let now_ns = clock_ns.fetch_add(STEP_NS, Ordering::Relaxed);
                        let key = ((round + thread) % 8) as u8;
                        if limiter.admit(&client([10, 0, key, 1]), "", now_ns) == RateVerdict::Admitted {
                            admitted[usize::from(key)].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let passed_ms = THREADS * ROUNDS * STEP_NS / 1_000_000;
        for count in &admitted {
            let count = count.load(Ordering::Relaxed);
            assert!(count <= 50 + passed_ms, "{count} in {passed_ms} ms");
            // Each key is requested 2.5 times a millisecond, so nearly the whole rate is used, except for stale clock
            // readings.
            assert!(count >= passed_ms * 9 / 10, "{count} in {passed_ms} ms");
        }
    }

    #[test]
    fn a_flood_of_keys_takes_no_more_memory_and_frees_no_key_at_once() {
        let limiter = RateLimiter::new(rate(1, 1000, 2), by_client(), 8, SECRET);
        let total: usize = (0..=255)
            .flat_map(|third| (0..4).map(move |_| third))
            .filter(|third| limiter.admit(&client([10, 0, *third, 1]), "", 0) == RateVerdict::Admitted)
            .count();
        // Eight states of two requests each: if the keys do not fit, the sum of all limits is kept.
        assert_eq!(total, 16);
    }
}
