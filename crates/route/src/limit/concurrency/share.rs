//! Limits on requests under way over several instances. Each instance holds permits of a key, and admits requests up to
//! their number. It asks for as many as it has requests, and the instances never hold more than the limit together.
//! A request beyond the permits of its instance waits for the answer. It is refused if neither the answer nor the queue
//! has room for it. Knows no network.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::{Alone, Concurrency, ConcurrencyKey, ConcurrencyLimiter, KeyState, Keys, ShareStanding};

/// [`KeyShare::told`] of a key if it is not known what the others know.
const UNTOLD: u32 = u32::MAX;

/// The state of a key of a shared limit.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct KeyShare {
    /// How many requests may be under way here, as the instances agreed.
    held: u32,
    /// How many requests the other instances know of.
    told: u32,
    /// The limit of the latest request.
    pub(super) max: u32,
    /// Whether the key is in the news, or an answer is due.
    is_news: bool,
}

impl KeyShare {
    pub(super) fn is_unused(&self) -> bool {
        self.held == 0 && self.told == 0 && !self.is_news
    }
}

/// A question for the permits of a key, as an absolute number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConcurrencyDemand {
    pub key: u64,
    /// How many are under way here.
    pub under_way: u32,
    /// How many further ones wait here.
    pub waiting: u32,
    /// How many of those may still wait if there is no room for them.
    pub waiting_max: u32,
    /// The limit over all instances.
    pub max: u32,
    /// Tickets below it are of this demand.
    tickets: u64,
}

impl ConcurrencyDemand {
    /// Returns the number that the others know after an answer: those under way, and those that wait on.
    fn told(&self, permits: u32) -> u32 {
        let counted = permits.max(self.under_way);
        let rest = self.under_way.saturating_add(self.waiting).saturating_sub(counted);
        counted.saturating_add(rest.min(self.waiting_max))
    }
}

/// The additional state of a limiter with a shared limit.
pub(super) struct ConcurrencyShare {
    alone: Alone,
    /// The number of instances that cannot reach each other; 0 if they can.
    apart: AtomicU32,
    has_news: AtomicBool,
    /// Whether the function is called for news that no request waits for.
    is_idle: AtomicBool,
    caller: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for ConcurrencyShare {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ConcurrencyShare").field("alone", &self.alone).finish_non_exhaustive()
    }
}

impl ConcurrencyShare {
    /// Returns the number of instances that cannot reach each other.
    fn apart(&self) -> Option<u32> {
        // Relaxed: shards are locked after a change, and each is settled then.
        match self.apart.load(Ordering::Relaxed) {
            0 => None,
            instances => Some(instances),
        }
    }

    pub(super) fn room(&self, key: &KeyShare, max: u32) -> u32 {
        match (self.apart(), self.alone) {
            (None, _) => key.held.min(max),
            (Some(_), Alone::Open) => u32::MAX,
            (Some(instances), Alone::Local) => max.div_ceil(instances),
            (Some(_), Alone::Closed) => 0,
        }
    }

    pub(super) fn waiting_max(&self, under_way: u32, limit: Concurrency) -> usize {
        match (self.apart(), self.alone) {
            // Whether there is room is known only with the answer.
            (None, _) => limit.waiting_max as usize + limit.max.get().saturating_sub(under_way) as usize,
            (Some(_), Alone::Closed) => 0,
            (Some(_), _) => limit.waiting_max as usize,
        }
    }

    /// Notes that a key has changed. `waits`: a request waits for the answer.
    pub(super) fn note<W>(&self, keys: &mut Keys<W>, key: ConcurrencyKey, waits: bool) {
        let Keys { states, news, .. } = keys;
        let Some(state) = states.get_mut(&key.0) else { return };
        if self.apart().is_some() {
            if state.under_way == 0 && state.queue.is_none() {
                keys.forget(key);
            }
            return;
        }
        if !state.share.is_news {
            state.share.is_news = true;
            news.push(key.0);
        }
        // SeqCst: either this call sees the rest, or the rest sees the news.
        let is_first = !self.has_news.swap(true, Ordering::SeqCst);
        let is_idle = self.is_idle.swap(false, Ordering::SeqCst);
        if (waits || is_first && is_idle)
            && let Some(caller) = self.caller.get()
        {
            caller();
        }
    }
}

impl<W> ConcurrencyLimiter<W> {
    /// A limiter that shares its limit with other instances; `instances` is their assumed number until
    /// [`stand`](Self::stand). All of them need the same `secret`.
    pub fn shared(secret: [u64; 2], alone: Alone, instances: u32) -> Self {
        let share = ConcurrencyShare {
            alone,
            apart: AtomicU32::new(instances.max(1)),
            has_news: AtomicBool::new(false),
            is_idle: AtomicBool::new(true),
            caller: OnceLock::new(),
        };
        Self { share: Some(Box::new(share)), ..Self::new(secret) }
    }

    /// Whether instances that cannot reach each other refuse all requests now.
    pub fn is_closed(&self) -> bool {
        let closed = |share: &ConcurrencyShare| share.apart().is_some() && share.alone == Alone::Closed;
        self.share.as_deref().is_some_and(closed)
    }

    /// The behaviour of a shared limit while instances cannot reach each other. `None` for a limit of one instance.
    pub fn alone(&self) -> Option<Alone> {
        self.share.as_ref().map(|share| share.alone)
    }

    /// Sets a function that is called if a request waits for an answer, or after a [rest](Self::rest) if there is news.
    /// Only the first call of this method has an effect.
    pub fn call_with(&self, caller: impl Fn() + Send + Sync + 'static) {
        if let Some(share) = &self.share {
            // A second caller is for the same listener.
            let _ = share.caller.set(Box::new(caller));
        }
    }

    /// Lets the next news call the function of [`call_with`](Self::call_with). Returns whether there is none.
    pub fn rest(&self) -> bool {
        self.share.as_ref().is_none_or(|share| {
            share.is_idle.store(true, Ordering::SeqCst);
            !share.has_news.load(Ordering::SeqCst)
        })
    }

    /// Whether no key is in use.
    pub fn is_unused(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().states.is_empty())
    }

    /// Sets the standing of a shared limit. Requests that wait are decided again by it. Also called with an unchanged
    /// standing if the others have lost what they knew of this instance. Returns requests that are counted from now on.
    /// The `W` of refused ones is dropped.
    #[must_use = "they must be notified"]
    pub fn stand(&self, standing: ShareStanding) -> Vec<W> {
        let mut admitted = Vec::new();
        let Some(share) = &self.share else { return admitted };
        let apart = match standing {
            ShareStanding::Together(_) => 0,
            ShareStanding::Alone(instances) => instances.max(1),
        };
        share.apart.store(apart, Ordering::Relaxed);
        for shard in &self.shards {
            let mut keys = shard.lock();
            keys.news.clear();
            let all: Vec<u64> = keys.states.keys().copied().collect();
            for key in all {
                let Some(state) = keys.states.get_mut(&key) else { continue };
                state.share = KeyShare { told: UNTOLD, max: state.share.max, ..KeyShare::default() };
                if apart != 0 {
                    self.settle(state, u64::MAX, &mut admitted);
                }
                share.note(&mut keys, ConcurrencyKey(key), false);
            }
        }
        admitted
    }

    /// Makes each key news again, although it has not changed.
    pub fn tell_all(&self) {
        let Some(share) = &self.share else { return };
        for shard in &self.shards {
            let mut keys = shard.lock();
            let all: Vec<u64> = keys.states.keys().copied().collect();
            all.into_iter().for_each(|key| share.note(&mut keys, ConcurrencyKey(key), false));
        }
    }

    /// Takes the news of a shared limit, or of it what requests wait for. Each one needs an answer.
    pub fn take_demands(&self, all: bool, demands: &mut Vec<ConcurrencyDemand>) {
        let Some(share) = &self.share else { return };
        if !share.has_news.swap(false, Ordering::SeqCst) {
            return;
        }
        for shard in &self.shards {
            let mut keys = shard.lock();
            let (tickets, mut rest) = (keys.next_ticket, Vec::new());
            for key in std::mem::take(&mut keys.news) {
                let Some(state) = keys.states.get_mut(&key) else { continue };
                let KeyState { under_way, share: KeyShare { held, max, .. }, .. } = *state;
                let waiting = u32::try_from(state.waiting()).unwrap_or(u32::MAX);
                if waiting == 0 && !all {
                    rest.push(key);
                    continue;
                }
                state.share.is_news = false;
                if state.is_unused() {
                    keys.forget(ConcurrencyKey(key));
                    continue;
                }
                state.share.is_news = true;
                // Unused permits go back, so none of them is used while the answer is due.
                state.share.held = held.min(under_way.saturating_add(waiting));
                let waiting_max = state.queue.as_ref().and_then(|queue| queue.0.back());
                let waiting_max = waiting_max.map_or(0, |waiter| waiter.limit.waiting_max);
                demands.push(ConcurrencyDemand { key, under_way, waiting, waiting_max, max, tickets });
            }
            if !rest.is_empty() {
                share.has_news.store(true, Ordering::SeqCst);
                keys.news = rest;
            }
        }
    }

    /// Applies the answer to a demand: how many may be under way here. Returns requests that are counted from now on.
    /// The `W` of refused ones is dropped.
    #[must_use = "they must be notified"]
    pub fn learn(&self, demand: &ConcurrencyDemand, permits: u32) -> Vec<W> {
        let (mut admitted, key) = (Vec::new(), ConcurrencyKey(demand.key));
        let mut keys = self.keys(key);
        // The standing may have changed meanwhile.
        if let (Some(share), Some(state)) = (&self.share, keys.states.get_mut(&key.0))
            && share.apart().is_none()
        {
            state.share =
                KeyShare { held: permits, told: demand.told(permits), is_news: false, ..state.share };
            self.settle(state, demand.tickets, &mut admitted);
            let KeyState { under_way, share: KeyShare { told, .. }, .. } = *state;
            if state.queue.is_some() || permits > under_way || told != under_way {
                share.note(&mut keys, key, false);
            } else if state.is_unused() {
                keys.forget(key);
            }
        }
        admitted
    }

    /// Counts those that there is room for. Of the others with a ticket below `tickets`, those beyond their queue are
    /// refused. Their `W` is dropped before the lock is released, so that [`leave`](Self::leave) knows it.
    fn settle(&self, state: &mut KeyState<W>, tickets: u64, admitted: &mut Vec<W>) {
        admitted.extend(std::iter::from_fn(|| self.call_next(state)));
        let Some(queue) = &mut state.queue else { return };
        let is_closed = self.is_closed();
        let mut place = 0;
        queue.0.retain(|waiter| {
            let stays = waiter.ticket >= tickets || !is_closed && place < waiter.limit.waiting_max;
            place += u32::from(stays);
            stays
        });
        state.settle();
    }
}

#[cfg(test)]
mod tests;
