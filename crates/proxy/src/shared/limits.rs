//! Configured bandwidth limits, and the totals that messages share under them. Shared by all workers. A configuration
//! change modifies an existing limit in place, also for messages that are under way.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use config::{Bandwidth, Bandwidths, Scope};
use shape::{Limit, Total};

/// Number of client totals beyond which unused ones are removed.
const CLIENTS_KEPT: usize = 1024;

/// The direction of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Down,
    Up,
}

/// All bandwidth limits of a listener, a route or an upstream.
pub(crate) struct BandwidthLimits {
    settings: Bandwidths,
    down: Vec<Arc<Limiter>>,
    up: Vec<Arc<Limiter>>,
}

impl BandwidthLimits {
    /// Creates the limits; `None` if nothing is limited. Limits of `before` at the same position and with the same
    /// scope continue.
    pub(crate) fn new(settings: &Bandwidths, before: Option<&Arc<Self>>) -> Option<Arc<Self>> {
        if *settings == Bandwidths::default() {
            return None;
        }
        // Unchanged settings keep all totals with their bursts.
        if let Some(before) = before.filter(|before| before.settings == *settings) {
            return Some(Arc::clone(before));
        }
        let limiters = |settings: &[Bandwidth], before: Option<&Vec<Arc<Limiter>>>| {
            let of_place = |place: usize| before.and_then(|before| before.get(place));
            let limiter = |(place, bandwidth): (usize, &Bandwidth)| {
                // Another scope counts something else, so its totals begin empty.
                let same = of_place(place).filter(|before| before.scope == bandwidth.scope);
                same.map_or_else(|| Arc::new(Limiter::new(bandwidth)), Arc::clone)
            };
            settings.iter().enumerate().map(limiter).collect()
        };
        Some(Arc::new(Self {
            settings: settings.clone(),
            down: limiters(&settings.down, before.map(|before| &before.down)),
            up: limiters(&settings.up, before.map(|before| &before.up)),
        }))
    }

    pub(crate) fn for_direction(&self, direction: Direction) -> &[Arc<Limiter>] {
        match direction {
            Direction::Down => &self.down,
            Direction::Up => &self.up,
        }
    }

    /// Applies the configured limits: their plan is now in force.
    pub(crate) fn enforce(&self, now_ns: u64) {
        let pairs = self.settings.down.iter().zip(&self.down).chain(self.settings.up.iter().zip(&self.up));
        pairs.for_each(|(settings, limiter)| limiter.enforce(settings.limit, now_ns));
    }
}

/// A bandwidth limit, and the totals under it.
pub(crate) struct Limiter {
    pub(crate) scope: Scope,
    /// The total of everything; unused with another scope.
    all: Arc<Total>,
    /// Locked for a single look-up.
    state: Mutex<LimitState>,
}

struct LimitState {
    limit: Limit,
    clients: HashMap<[u8; 16], Arc<Total>>,
    /// The number of client totals at which unused ones are removed.
    sweep_at: usize,
}

impl Limiter {
    fn new(settings: &Bandwidth) -> Self {
        let state = LimitState { limit: settings.limit, clients: HashMap::new(), sweep_at: CLIENTS_KEPT };
        Self { scope: settings.scope, all: Arc::new(Total::new(settings.limit)), state: Mutex::new(state) }
    }

    /// The limit that a server sets for the body of one response.
    pub(crate) fn of_response(rate_bytes_per_second: NonZeroU64) -> Self {
        Self::new(&Bandwidth { scope: Scope::Request, ..Bandwidth::link(rate_bytes_per_second) })
    }

    fn state(&self) -> MutexGuard<'_, LimitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn limit(&self) -> Limit {
        self.state().limit
    }

    /// Returns the total for a client's message: shared, or a new one if the limit is per connection or per message.
    pub(crate) fn total(&self, client: IpAddr, now_ns: u64) -> Arc<Total> {
        match self.scope {
            Scope::All => Arc::clone(&self.all),
            Scope::Client(prefixes) => self.state().of_client(prefixes.client(client), now_ns),
            Scope::Connection | Scope::Request => Arc::new(Total::new(self.limit())),
        }
    }

    fn enforce(&self, limit: Limit, now_ns: u64) {
        let mut state = self.state();
        state.limit = limit;
        for total in state.clients.values().chain([&self.all]) {
            total.set_limit(limit, now_ns);
        }
    }
}

impl LimitState {
    fn of_client(&mut self, client: [u8; 16], now_ns: u64) -> Arc<Total> {
        if let Some(total) = self.clients.get(&client) {
            return Arc::clone(total);
        }
        if self.clients.len() >= self.sweep_at {
            // The rest is in use or remembers a burst, so connections and time bound it.
            self.clients.retain(|_, total| Arc::strong_count(total) > 1 || !total.is_as_new(now_ns));
            self.sweep_at = CLIENTS_KEPT.max(2 * self.clients.len());
        }
        let total = Arc::new(Total::new(self.limit));
        self.clients.insert(client, Arc::clone(&total));
        total
    }
}

#[cfg(test)]
mod tests {
    use shape::Model;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn limiter(scope: Scope) -> Limiter {
        let rate_bytes_per_second = NonZeroU64::new(1_000).unwrap();
        let model = Model::TokenBucket { burst_bytes: 1_000 };
        Limiter::new(&Bandwidth { limit: Limit { rate_bytes_per_second, model }, scope })
    }

    fn address(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from(0x0a00_0000 + number).into()
    }

    #[test]
    fn who_shares_a_total() {
        let prefixes = balance::AddressPrefixes { v4: 24, v6: 64 };
        for (scope, of_one, of_network, of_others) in [
            (Scope::All, true, true, true),
            (Scope::Client(balance::AddressPrefixes::default()), true, false, false),
            (Scope::Client(prefixes), true, true, false),
            (Scope::Request, false, false, false),
        ] {
            let limiter = limiter(scope);
            let first = limiter.total(address(1), 0);
            let shares = |number| Arc::ptr_eq(&first, &limiter.total(address(number), 0));
            assert_eq!([shares(1), shares(2), shares(256)], [of_one, of_network, of_others], "{scope:?}");
        }
    }

    #[test]
    fn clients_are_forgotten_once_they_are_as_good_as_new() {
        let limiter = limiter(Scope::Client(balance::AddressPrefixes::default()));
        let in_use = limiter.total(address(0), 0);
        for number in 1..10 * CLIENTS_KEPT as u32 {
            limiter.total(address(number), 0);
        }
        assert!(limiter.state().clients.len() <= CLIENTS_KEPT + 1);
        assert!(Arc::ptr_eq(&in_use, &limiter.total(address(0), SECOND_NS)));
    }

    #[test]
    fn a_limit_that_has_its_place_still_is_changed_in_place() {
        let link = |rate| Bandwidth::link(NonZeroU64::new(rate).unwrap());
        let settings = |rate| Bandwidths { down: vec![link(rate)], up: Vec::new() };
        let before = BandwidthLimits::new(&settings(1_000), None).unwrap();
        assert!(Arc::ptr_eq(&before, &BandwidthLimits::new(&settings(1_000), Some(&before)).unwrap()));
        let after = BandwidthLimits::new(&settings(2_000), Some(&before)).unwrap();
        let total = after.for_direction(Direction::Down)[0].total(address(1), 0);
        assert_eq!(total.limit(), link(1_000).limit, "a plan that is not yet in force changes nothing");
        after.enforce(SECOND_NS);
        assert_eq!([total.limit(), before.for_direction(Direction::Down)[0].limit()], [link(2_000).limit; 2]);
        assert!(BandwidthLimits::new(&Bandwidths::default(), Some(&after)).is_none());
    }
}
