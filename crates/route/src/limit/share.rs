//! Limits over several instances: the allowance of an instance before it has received the others' counts, the counts
//! that it reports, and its behaviour while it cannot. Knows no network.
//!
//! Each instance has a copy of a key's state, and decides by that. Later it reports the requests that it has admitted,
//! and adopts the state over all instances. So every request is counted, and an excess is paid back.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use sha2::{Digest, Sha256};

use super::gcra::Rate;
use super::states::PLACES;

/// The behaviour of a shared limit while instances cannot reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alone {
    /// Admits all requests.
    Open,
    /// Each instance has its share of the rate and of the burst.
    Local,
    /// Rejects all requests.
    Closed,
}

/// The standing of a shared limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShareStanding {
    /// This many instances exchange their counts.
    Together(u32),
    /// This many instances cannot reach each other.
    Alone(u32),
}

/// The identity of a limit on all instances. `Debug` does not show the secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SharedIdentity {
    /// The secret that keys are hashed with.
    pub secret: [u64; 2],
    /// Distinguishes the limit from others.
    pub id: u64,
}

impl fmt::Debug for SharedIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SharedIdentity").field("id", &self.id).finish_non_exhaustive()
    }
}

impl SharedIdentity {
    /// Derived from a text that describes the limit, and a secret of the instances.
    pub fn from_secret(secret: &[u8], described: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update((secret.len() as u64).to_le_bytes());
        hash.update(secret);
        hash.update(described);
        let hash = hash.finalize();
        let number = |index: usize| {
            hash[index * 8..][..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        Self { secret: [number(0), number(1)], id: number(2) }
    }
}

/// Requests of a key that were not reported to the other instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    /// The key's place in the limiter.
    pub place: usize,
    pub key: u64,
    pub requests: u32,
}

/// The parameters by which an instance admits requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    /// The time between requests.
    pub(super) interval_ns: u64,
    /// Theoretical arrival time assumed for an unknown key, relative to now. The remaining tolerance is its lease,
    /// which the instance may use before it has received the others' counts.
    pub(super) floor_ns: u64,
    /// No key is further ahead of time.
    pub(super) ceiling_ns: u64,
}

impl Terms {
    pub(super) fn from_rate(rate: Rate, standing: ShareStanding, alone: Alone) -> Self {
        let (interval_ns, burst) = (rate.interval_ns(), u64::from(rate.burst().get()));
        let lease = |instances: u32| burst.div_ceil(u64::from(instances.max(1)));
        let terms = |interval_ns, floor_ns| Self { interval_ns, floor_ns, ceiling_ns: u64::MAX };
        match (standing, alone) {
            (ShareStanding::Together(instances), _) => {
                terms(interval_ns, (burst - lease(instances)).saturating_mul(interval_ns))
            }
            (ShareStanding::Alone(_), Alone::Open) => Self { interval_ns: 0, floor_ns: 0, ceiling_ns: 0 },
            (ShareStanding::Alone(instances), Alone::Local) => {
                // The same tolerance holds a share of the burst, at a share of the rate.
                let interval_ns = interval_ns.saturating_mul(u64::from(instances.max(1)));
                let used_ns = (lease(instances) - 1).saturating_mul(interval_ns);
                terms(interval_ns, rate.tolerance_ns().saturating_sub(used_ns))
            }
            (ShareStanding::Alone(_), Alone::Closed) => {
                terms(interval_ns, rate.tolerance_ns().saturating_add(1))
            }
        }
    }

    /// Decides about a request as [`Rate::decide`] does.
    #[inline]
    pub(super) fn decide(self, tolerance_ns: u64, due_ns: u64, now_ns: u64) -> Result<u64, u64> {
        let highest_ns = now_ns.saturating_add(self.ceiling_ns);
        let due_ns = due_ns.max(now_ns.saturating_add(self.floor_ns)).min(highest_ns);
        match (due_ns - now_ns).checked_sub(tolerance_ns) {
            None | Some(0) => Ok(due_ns.saturating_add(self.interval_ns)),
            Some(wait_ns) => Err(wait_ns),
        }
    }
}

/// The additional state of a limiter with a shared limit.
pub(super) struct LimitShare {
    pub(super) alone: Alone,
    interval_ns: AtomicU64,
    floor_ns: AtomicU64,
    ceiling_ns: AtomicU64,
    /// Admitted requests per place that were not reported yet.
    untold: Box<[AtomicU32]>,
    /// A bit for each set of places: whether one has something to report.
    marks: Box<[AtomicU64]>,
    /// Whether the marks are read only after a call of `caller`.
    is_idle: AtomicBool,
    is_called: AtomicBool,
    caller: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for LimitShare {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Share").field("alone", &self.alone).finish_non_exhaustive()
    }
}

impl LimitShare {
    /// For `sets` sets of states. Begins with the standing `Alone`.
    pub(super) fn new(rate: Rate, alone: Alone, instances: u32, sets: usize) -> Self {
        let share = Self {
            alone,
            interval_ns: AtomicU64::new(0),
            floor_ns: AtomicU64::new(0),
            ceiling_ns: AtomicU64::new(0),
            untold: (0..sets * PLACES).map(|_| AtomicU32::new(0)).collect(),
            marks: (0..sets.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            is_idle: AtomicBool::new(true),
            is_called: AtomicBool::new(false),
            caller: OnceLock::new(),
        };
        share.stand(rate, ShareStanding::Alone(instances));
        share
    }

    /// Relaxed: a decision that mixes values of two standings still obeys one of their limits.
    pub(super) fn stand(&self, rate: Rate, standing: ShareStanding) {
        let terms = Terms::from_rate(rate, standing, self.alone);
        self.interval_ns.store(terms.interval_ns, Ordering::Relaxed);
        self.floor_ns.store(terms.floor_ns, Ordering::Relaxed);
        self.ceiling_ns.store(terms.ceiling_ns, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn terms(&self) -> Terms {
        Terms {
            interval_ns: self.interval_ns.load(Ordering::Relaxed),
            floor_ns: self.floor_ns.load(Ordering::Relaxed),
            ceiling_ns: self.ceiling_ns.load(Ordering::Relaxed),
        }
    }

    pub(super) fn call_with(&self, caller: Box<dyn Fn() + Send + Sync>) {
        // A second caller is for the same listener.
        let _ = self.caller.set(caller);
    }

    /// Records an admitted request. `is_last` says that the next one would be rejected.
    pub(super) fn spend(&self, place: usize, is_last: bool) {
        // The first request sets the mark. Requests until the mark is read are reported with it.
        if self.untold[place].fetch_add(1, Ordering::Relaxed) == 0 {
            let set = place / PLACES;
            // Release: a thread that sees the mark sees the request.
            self.marks[set / 64].fetch_or(1 << (set % 64), Ordering::Release);
        }
        if is_last || self.is_idle.load(Ordering::Relaxed) {
            self.call();
        }
    }

    #[cold]
    fn call(&self) {
        if !self.is_called.swap(true, Ordering::AcqRel)
            && let Some(caller) = self.caller.get()
        {
            self.is_idle.store(false, Ordering::Relaxed);
            caller();
        }
    }

    /// Takes the unreported requests: places and numbers.
    pub(super) fn take(&self, mut each: impl FnMut(usize, u32)) {
        self.is_called.store(false, Ordering::Release);
        for (word, marks) in self.marks.iter().enumerate() {
            if marks.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut marks = marks.swap(0, Ordering::Acquire);
            while marks != 0 {
                let set = word * 64 + marks.trailing_zeros() as usize;
                marks &= marks - 1;
                for place in set * PLACES..(set + 1) * PLACES {
                    match self.untold[place].swap(0, Ordering::Relaxed) {
                        0 => {}
                        requests => each(place, requests),
                    }
                }
            }
        }
    }

    /// The unreported requests of a place.
    pub(super) fn untold(&self, place: usize) -> u32 {
        self.untold[place].load(Ordering::Relaxed)
    }

    /// Lets the next request call the function. Returns whether there is nothing to report; otherwise the function may
    /// not have been called.
    pub(super) fn rest(&self) -> bool {
        self.is_idle.store(true, Ordering::Release);
        self.is_called.store(false, Ordering::Release);
        self.marks.iter().all(|marks| marks.load(Ordering::Acquire) == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;

    fn rate(requests: u32, burst: u32) -> Rate {
        let number = |number| NonZeroU32::new(number).unwrap();
        Rate::new(number(requests), Duration::from_secs(1), number(burst)).unwrap()
    }

    /// How many requests are admitted at once, and how many more in the ten seconds after.
    fn admitted(terms: Terms, rate: Rate) -> (u64, u64) {
        let (mut due_ns, start_ns) = (0, 1 << 40);
        let mut ask = |now_ns| match terms.decide(rate.tolerance_ns(), due_ns, now_ns) {
            Ok(next_ns) => {
                due_ns = next_ns;
                true
            }
            Err(_) => false,
        };
        let at_once = (0..1000).filter(|_| ask(start_ns)).count() as u64;
        let later = (1..=10_000).filter(|ms| ask(start_ns + ms * 1_000_000)).count() as u64;
        (at_once, later)
    }

    #[test]
    fn shares_of_a_limit() {
        for (requests, burst, standing, alone, expected) in [
            // One instance has the whole burst, several have parts. Each has the whole rate until it receives the
            // others' counts.
            (10, 20, ShareStanding::Together(1), Alone::Local, (20, 100)),
            (10, 20, ShareStanding::Together(3), Alone::Local, (7, 100)),
            (10, 20, ShareStanding::Together(50), Alone::Local, (1, 100)),
            (10, 1, ShareStanding::Together(3), Alone::Local, (1, 100)),
            (10, 20, ShareStanding::Alone(1), Alone::Local, (20, 100)),
            (10, 20, ShareStanding::Alone(2), Alone::Local, (10, 50)),
            (10, 20, ShareStanding::Alone(4), Alone::Local, (5, 25)),
            (10, 1, ShareStanding::Alone(2), Alone::Local, (1, 50)),
            (10, 20, ShareStanding::Alone(3), Alone::Open, (1000, 10_000)),
            (10, 20, ShareStanding::Alone(3), Alone::Closed, (0, 0)),
            (10, 20, ShareStanding::Together(0), Alone::Closed, (20, 100)),
        ] {
            let rate = rate(requests, burst);
            let terms = Terms::from_rate(rate, standing, alone);
            assert_eq!(admitted(terms, rate), expected, "{requests} {burst} {standing:?} {alone:?}");
        }
    }

    #[test]
    fn limits_are_distinguished() {
        let of = |secret: &str, described| SharedIdentity::from_secret(secret.as_bytes(), described);
        let one = of("secret", "a limit");
        assert_eq!(one, of("secret", "a limit"));
        for other in [of("secret", "another"), of("secre", "ta limit"), of("other", "a limit")] {
            assert!(one.id != other.id && one.secret != other.secret);
        }
        assert!(!format!("{one:?}").contains(&one.secret[0].to_string()));
    }

    #[test]
    fn open_limits_ignore_the_debts_of_keys() {
        let rate = rate(1, 1);
        let open = Terms::from_rate(rate, ShareStanding::Alone(2), Alone::Open);
        assert_eq!(open.decide(rate.tolerance_ns(), u64::MAX, 5), Ok(5));
    }

    #[test]
    fn spending_is_reported_once() {
        let share = LimitShare::new(rate(10, 10), Alone::Local, 1, 100);
        let taken = |share: &LimitShare| {
            let mut taken = Vec::new();
            share.take(|place, requests| taken.push((place, requests)));
            taken
        };
        assert!(share.rest());
        for place in [0, 9, 799, 9] {
            share.spend(place, false);
        }
        assert!(!share.rest());
        assert_eq!(taken(&share), [(0, 1), (9, 2), (799, 1)]);
        assert_eq!(taken(&share), []);
        assert!(share.rest());
    }

    #[test]
    fn the_reporter_is_called_after_a_rest_and_after_a_used_up_lease() {
        use std::sync::Arc;
        let calls = Arc::new(AtomicU32::new(0));
        let share = LimitShare::new(rate(10, 10), Alone::Local, 1, 1);
        let counted = Arc::clone(&calls);
        share.call_with(Box::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        }));
        let expect = |expected| assert_eq!(calls.load(Ordering::Relaxed), expected);
        share.spend(0, false);
        expect(1);
        share.spend(0, false);
        share.spend(0, true);
        expect(1);
        share.take(|_, _| ());
        share.spend(0, false);
        expect(1);
        share.spend(0, true);
        expect(2);
        share.take(|_, _| ());
        assert!(share.rest());
        share.spend(0, false);
        expect(3);
    }
}
