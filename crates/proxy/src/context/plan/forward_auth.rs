//! Forward authentication of a route, and the decisions that it remembers. Shared by all workers.
//!
//! Decisions are in shards, each behind a lock that is held for one look. Of all requests that want the same decision at
//! once, one asks for it, and the others wait.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use balance::Time;
use config::AuthCache;
use tokio::sync::watch;

use super::decisions_elsewhere::Elsewhere;
use crate::context::failure::Failure;
use crate::context::vouched::Vouched;
use transport::deadline::Ticks;

const SHARDS: usize = 16;

/// The forward authentication of a route.
pub(crate) struct ForwardAuth {
    /// The name of the upstream, whose index is of one plan.
    upstream: String,
    pub(crate) settings: config::ForwardAuth,
    pub(crate) timeout: Ticks,
    pub(crate) memory: Option<Decisions>,
}

/// What an authentication server has decided.
#[derive(Clone)]
pub(crate) enum Decision {
    Admitted(Arc<Vouched>),
    Refused(Arc<RefusedAnswer>),
}

/// An answer that is passed on to the client.
pub(crate) struct RefusedAnswer {
    pub(crate) status: u16,
    /// Field lines, each with CRLF, without those about the connection and the length.
    pub(crate) lines: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// What those that wait for one question learn.
#[derive(Clone)]
pub(crate) enum Told {
    Decision(Decision),
    Failed(Failure),
    /// The answer is for one request only: each asks for itself.
    Private,
}

impl ForwardAuth {
    pub(crate) fn new(upstream: &str, settings: &config::ForwardAuth) -> Self {
        Self {
            upstream: upstream.to_owned(),
            timeout: settings.timeout.into(),
            memory: settings.cache.as_ref().map(|cache| Decisions {
                elsewhere: cache.is_shared.then(|| Arc::new(Elsewhere::new(upstream, settings))),
                ..Decisions::new(cache)
            }),
            settings: settings.clone(),
        }
    }

    /// Whether it asks the same.
    pub(crate) fn is_alike(&self, upstream: &str, settings: &config::ForwardAuth) -> bool {
        self.upstream == upstream && self.settings == *settings
    }
}

/// The decisions that are remembered.
pub(crate) struct Decisions {
    pub(crate) settings: AuthCache,
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
    /// Entries of a shard.
    entries_max: usize,
    /// Decisions of other instances, if they are shared.
    pub(crate) elsewhere: Option<Arc<Elsewhere>>,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<Box<[u8]>, Entry>,
    /// The keys of entries with their numbers, the oldest first. What was replaced since is still in it.
    order: VecDeque<(Box<[u8]>, u64)>,
    /// The questions that are under way.
    questions: HashMap<Box<[u8]>, watch::Receiver<Option<Told>>>,
    number: u64,
}

struct Entry {
    decision: Decision,
    until: Time,
    number: u64,
}

/// How a request gets its decision.
pub(crate) enum Joined<'a> {
    Known(Decision),
    /// Another request asks for the same.
    Waits(watch::Receiver<Option<Told>>),
    /// This one asks, for all.
    Asks(Question<'a>),
}

/// A question under way, until it is dropped: then those that wait ask for themselves.
pub(crate) struct Question<'a> {
    decisions: &'a Decisions,
    pub(crate) key: &'a [u8],
    told: watch::Sender<Option<Told>>,
}

impl Decisions {
    fn new(settings: &AuthCache) -> Self {
        Self {
            settings: settings.clone(),
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            entries_max: settings.entries_max.div_ceil(SHARDS),
            elsewhere: None,
        }
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[self.hasher.hash_one(key) as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A decision that still counts.
    pub(crate) fn known(&self, key: &[u8], now: Time) -> Option<Decision> {
        self.shard(key).known(key, now)
    }

    /// A decision that still counts, or how to get one.
    pub(crate) fn join<'a>(&'a self, key: &'a [u8], now: Time) -> Joined<'a> {
        let mut shard = self.shard(key);
        if let Some(decision) = shard.known(key, now) {
            return Joined::Known(decision);
        }
        if let Some(told) = shard.questions.get(key) {
            return Joined::Waits(told.clone());
        }
        let (told, receiver) = watch::channel(None);
        shard.questions.insert(key.into(), receiver);
        Joined::Asks(Question { decisions: self, key, told })
    }
}

impl Shard {
    fn known(&self, key: &[u8], now: Time) -> Option<Decision> {
        self.entries.get(key).filter(|entry| entry.until > now).map(|entry| entry.decision.clone())
    }

    fn keep(&mut self, key: &[u8], decision: Decision, until: Time, entries_max: usize) {
        self.number += 1;
        self.order.push_back((key.into(), self.number));
        self.entries.insert(key.into(), Entry { decision, until, number: self.number });
        while self.entries.len() > entries_max || self.order.len() > 2 * entries_max {
            let Some((key, number)) = self.order.pop_front() else { break };
            if self.entries.get(&key).is_some_and(|entry| entry.number == number) {
                self.entries.remove(&key);
            }
        }
    }
}

impl Question<'_> {
    /// Tells those that wait, and remembers a decision for as long as it counts.
    pub(crate) fn answer(self, told: Told, lifetime: Option<Duration>, now: Time) {
        if let (Told::Decision(decision), Some(lifetime)) = (&told, lifetime) {
            let until = now + lifetime;
            self.decisions.shard(self.key).keep(
                self.key,
                decision.clone(),
                until,
                self.decisions.entries_max,
            );
        }
        self.told.send_replace(Some(told));
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.decisions.shard(self.key).questions.remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decisions(entries_max: usize) -> Decisions {
        let key = Vec::new();
        Decisions::new(&AuthCache {
            key,
            ttl: Duration::ZERO,
            negative_ttl: None,
            entries_max,
            is_shared: false,
        })
    }

    fn keep(decisions: &Decisions, key: &[u8], seconds: u64) {
        let Joined::Asks(question) = decisions.join(key, Time::from_micros(0)) else { return };
        let decision = Decision::Admitted(Arc::default());
        question.answer(Told::Decision(decision), Some(Duration::from_secs(seconds)), Time::from_micros(0));
    }

    #[test]
    fn decisions_count_for_their_time_and_make_room() {
        let decisions = decisions(160);
        let knows = |key: u32, now: u64| {
            decisions.known(&key.to_le_bytes(), Time::from_micros(now * 1_000_000)).is_some()
        };
        for key in 0_u32..10_000 {
            keep(&decisions, &key.to_le_bytes(), 10);
        }
        assert!((0..10_000).filter(|key| knows(*key, 9)).count() <= 160);
        assert!(knows(9_999, 9) && !knows(9_999, 10) && !knows(0, 0), "the oldest make room");
    }

    #[test]
    fn one_asks_and_what_is_dropped_is_asked_again() {
        let decisions = decisions(16);
        let now = Time::from_micros(0);
        let Joined::Asks(question) = decisions.join(b"k", now) else { panic!("the first one asks") };
        let Joined::Waits(mut waits) = decisions.join(b"k", now) else { panic!("the second one waits") };
        drop(question);
        assert!(waits.has_changed().is_err(), "nobody asks any more");
        let Joined::Asks(question) = decisions.join(b"k", now) else { panic!("the next one asks") };
        let Joined::Waits(mut told) = decisions.join(b"k", now) else { panic!("the others wait") };
        question.answer(Told::Private, Some(Duration::from_secs(1)), now);
        assert!(matches!(&*told.borrow_and_update(), Some(Told::Private)));
        assert!(matches!(decisions.join(b"k", now), Joined::Asks(_)), "nothing is remembered");
        drop(waits.borrow_and_update());
    }
}
