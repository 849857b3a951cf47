//! Limits over several instances: what one may admit before it has heard of the others, what it tells them, and what it
//! does while it cannot. Knows no network.
//!
//! Each instance has a copy of a key's state, and admits by that. A while later it tells what it has admitted, and takes
//! over the state that follows from what all have. So everything is counted, and what is too much is paid back.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use sha2::{Digest, Sha256};

use super::gcra::Rate;
use super::states::PLACES;

/// What a shared limit does while instances cannot reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alone {
    /// It admits all requests.
    Open,
    /// Each instance has its share of the rate and of the burst.
    Local,
    /// It refuses all requests.
    Closed,
}

/// How a shared limit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// So many instances tell each other what they admit.
    Together(u32),
    /// Of so many instances, none hears of the others.
    Alone(u32),
}

/// What a limit is to all instances. `Debug` does not show the secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SharedIdentity {
    /// What keys are hashed with.
    pub secret: [u64; 2],
    /// Tells the limit from others.
    pub id: u64,
}

impl fmt::Debug for SharedIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SharedIdentity").field("id", &self.id).finish_non_exhaustive()
    }
}

impl SharedIdentity {
    /// Of a limit that a text describes, for those who know a secret.
    pub fn of(secret: &[u8], described: &str) -> Self {
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

/// Requests of a key that others have not been told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    /// Where the limiter keeps the key.
    pub place: usize,
    /// The hash of the key.
    pub key: u64,
    /// The number of requests.
    pub requests: u32,
}

/// By what an instance admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    /// The time between requests.
    pub(super) interval_ns: u64,
    /// So far ahead of time is a key of which nothing else is known: what is left up to the tolerance is the lease, which
    /// the instance may use before it hears of the others.
    pub(super) floor_ns: u64,
    /// No key is further ahead.
    pub(super) ceiling_ns: u64,
}

impl Terms {
    pub(super) fn of(rate: Rate, standing: Standing, alone: Alone) -> Self {
        let (interval_ns, burst) = (rate.interval_ns(), u64::from(rate.burst().get()));
        let lease = |instances: u32| burst.div_ceil(u64::from(instances.max(1)));
        let terms = |interval_ns, floor_ns| Self { interval_ns, floor_ns, ceiling_ns: u64::MAX };
        match (standing, alone) {
            (Standing::Together(instances), _) => {
                terms(interval_ns, (burst - lease(instances)).saturating_mul(interval_ns))
            }
            (Standing::Alone(_), Alone::Open) => Self { interval_ns: 0, floor_ns: 0, ceiling_ns: 0 },
            (Standing::Alone(instances), Alone::Local) => {
                // The same tolerance has room for a share of the burst, at a share of the rate.
                let interval_ns = interval_ns.saturating_mul(u64::from(instances.max(1)));
                let used_ns = (lease(instances) - 1).saturating_mul(interval_ns);
                terms(interval_ns, rate.tolerance_ns().saturating_sub(used_ns))
            }
            (Standing::Alone(_), Alone::Closed) => terms(interval_ns, rate.tolerance_ns().saturating_add(1)),
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

/// What a limiter needs besides its states to be one of several.
pub(super) struct Share {
    pub(super) alone: Alone,
    interval_ns: AtomicU64,
    floor_ns: AtomicU64,
    ceiling_ns: AtomicU64,
    /// Of each place, what was admitted and is not told yet.
    untold: Box<[AtomicU32]>,
    /// A bit for each set of places: whether one has something to tell.
    marks: Box<[AtomicU64]>,
    /// Whether nobody looks at the marks until called.
    is_idle: AtomicBool,
    is_called: AtomicBool,
    caller: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Share {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Share").field("alone", &self.alone).finish_non_exhaustive()
    }
}

impl Share {
    /// For `sets` sets of states. Until it hears of others, it is alone.
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
        share.stand(rate, Standing::Alone(instances));
        share
    }

    /// Relaxed: a request that is decided by halves of two standings is decided by one of their limits.
    pub(super) fn stand(&self, rate: Rate, standing: Standing) {
        let terms = Terms::of(rate, standing, self.alone);
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
        // A second one is for the same listener.
        let _ = self.caller.set(caller);
    }

    /// Notes an admitted request. `is_last` says that the next one would be refused.
    pub(super) fn spend(&self, place: usize, is_last: bool) {
        // Whoever makes it one marks it; what comes until the mark is seen is told with it.
        if self.untold[place].fetch_add(1, Ordering::Relaxed) == 0 {
            let set = place / PLACES;
            // Release: whoever sees the mark sees the request.
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

    /// Takes what is not told yet: places and numbers of requests.
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

    /// What of a place is not told yet.
    pub(super) fn untold(&self, place: usize) -> u32 {
        self.untold[place].load(Ordering::Relaxed)
    }

    /// Has the next request call. Returns whether there is nothing to tell: if there is, it may not have called.
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
            // A whole burst for one instance, parts for several; the rate is that of all until others are heard of.
            (10, 20, Standing::Together(1), Alone::Local, (20, 100)),
            (10, 20, Standing::Together(3), Alone::Local, (7, 100)),
            (10, 20, Standing::Together(50), Alone::Local, (1, 100)),
            (10, 1, Standing::Together(3), Alone::Local, (1, 100)),
            (10, 20, Standing::Alone(1), Alone::Local, (20, 100)),
            (10, 20, Standing::Alone(2), Alone::Local, (10, 50)),
            (10, 20, Standing::Alone(4), Alone::Local, (5, 25)),
            (10, 1, Standing::Alone(2), Alone::Local, (1, 50)),
            (10, 20, Standing::Alone(3), Alone::Open, (1000, 10_000)),
            (10, 20, Standing::Alone(3), Alone::Closed, (0, 0)),
            (10, 20, Standing::Together(0), Alone::Closed, (20, 100)),
        ] {
            let rate = rate(requests, burst);
            let terms = Terms::of(rate, standing, alone);
            assert_eq!(admitted(terms, rate), expected, "{requests} {burst} {standing:?} {alone:?}");
        }
    }

    #[test]
    fn limits_are_told_apart() {
        let of = |secret: &str, described| SharedIdentity::of(secret.as_bytes(), described);
        let one = of("secret", "a limit");
        assert_eq!(one, of("secret", "a limit"));
        for other in [of("secret", "another"), of("secre", "ta limit"), of("other", "a limit")] {
            assert!(one.id != other.id && one.secret != other.secret);
        }
        assert!(!format!("{one:?}").contains(&one.secret[0].to_string()));
    }

    #[test]
    fn one_that_opens_forgets_what_keys_owe() {
        let rate = rate(1, 1);
        let open = Terms::of(rate, Standing::Alone(2), Alone::Open);
        assert_eq!(open.decide(rate.tolerance_ns(), u64::MAX, 5), Ok(5));
    }

    #[test]
    fn what_was_spent_is_told_once() {
        let share = Share::new(rate(10, 10), Alone::Local, 1, 100);
        let taken = |share: &Share| {
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
    fn whoever_tells_is_called_when_it_rests_and_when_a_lease_is_used_up() {
        use std::sync::Arc;
        let calls = Arc::new(AtomicU32::new(0));
        let share = Share::new(rate(10, 10), Alone::Local, 1, 1);
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
