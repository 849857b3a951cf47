//! Forward authentication of a route, and the decisions that it remembers. Shared by all workers.
//!
//! Decisions are in shards, each behind a lock that is held for one look-up. Concurrent requests for the same decision
//! are collapsed: one asks, and the others wait.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use balance::Time;
use config::AuthCache;
use tokio::sync::watch;

use super::decisions_elsewhere::Elsewhere;
use crate::failure::Failure;
use crate::shared::vouched::Vouched;
use transport::deadline::Ticks;

const SHARDS: usize = 16;

pub(crate) struct ForwardAuth {
    /// Name of the upstream; its index would belong to one plan.
    upstream: String,
    pub(crate) settings: config::ForwardAuth,
    pub(crate) timeout: Ticks,
    pub(crate) memory: Option<Decisions>,
}

/// The decision of an authentication server.
#[derive(Clone)]
pub(crate) enum Decision {
    Admitted(Arc<Vouched>),
    Refused(Arc<RefusedAnswer>),
}

/// A response that is passed on to the client.
pub(crate) struct RefusedAnswer {
    pub(crate) status: u16,
    /// Field lines, each with CRLF, without those about the connection and the length.
    pub(crate) lines: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// The result for requests that wait for the same question.
#[derive(Clone)]
pub(crate) enum QuestionOutcome {
    Decision(Decision),
    Failed(Failure),
    /// The answer only holds for one request: each asks separately.
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

    /// Whether it asks the same questions.
    pub(crate) fn is_alike(&self, upstream: &str, settings: &config::ForwardAuth) -> bool {
        self.upstream == upstream && self.settings == *settings
    }
}

/// The remembered decisions, in shards.
pub(crate) struct Decisions {
    pub(crate) settings: AuthCache,
    hasher: RandomState,
    shards: Box<[Mutex<DecisionShard>]>,
    /// Entries per shard.
    entries_max: usize,
    /// Decisions of other instances, if they are shared.
    pub(crate) elsewhere: Option<Arc<Elsewhere>>,
}

#[derive(Default)]
struct DecisionShard {
    entries: HashMap<Box<[u8]>, DecisionEntry>,
    /// The keys of entries with their numbers, the oldest first. Replaced entries remain in it.
    order: VecDeque<(Box<[u8]>, u64)>,
    /// The questions under way, by key.
    questions: HashMap<Box<[u8]>, watch::Receiver<Option<QuestionOutcome>>>,
    number: u64,
}

struct DecisionEntry {
    decision: Decision,
    until: Time,
    number: u64,
}

/// The way in which a request gets its decision.
pub(crate) enum DecisionSource<'a> {
    Known(Decision),
    Waits(watch::Receiver<Option<QuestionOutcome>>),
    /// This request asks, for all.
    Asks(OpenQuestion<'a>),
}

/// A question under way. If it is dropped, the waiting requests ask themselves.
pub(crate) struct OpenQuestion<'a> {
    decisions: &'a Decisions,
    pub(crate) key: &'a [u8],
    told: watch::Sender<Option<QuestionOutcome>>,
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

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, DecisionShard> {
        // The hash is seeded at random, so that clients cannot aim their keys at one shard.
        let shard = &self.shards[self.hasher.hash_one(key) as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a decision that is still valid.
    pub(crate) fn known(&self, key: &[u8], now: Time) -> Option<Decision> {
        self.shard(key).known(key, now)
    }

    /// Returns a decision that is still valid, or how to get one.
    pub(crate) fn join<'a>(&'a self, key: &'a [u8], now: Time) -> DecisionSource<'a> {
        let mut shard = self.shard(key);
        if let Some(decision) = shard.known(key, now) {
            return DecisionSource::Known(decision);
        }
        if let Some(told) = shard.questions.get(key) {
            return DecisionSource::Waits(told.clone());
        }
        // Entered under the lock of the look-up, so that only one request asks.
        let (told, receiver) = watch::channel(None);
        shard.questions.insert(key.into(), receiver);
        DecisionSource::Asks(OpenQuestion { decisions: self, key, told })
    }
}

impl DecisionShard {
    fn known(&self, key: &[u8], now: Time) -> Option<Decision> {
        self.entries.get(key).filter(|entry| entry.until > now).map(|entry| entry.decision.clone())
    }

    fn keep(&mut self, key: &[u8], decision: Decision, until: Time, entries_max: usize) {
        self.number += 1;
        self.order.push_back((key.into(), self.number));
        self.entries.insert(key.into(), DecisionEntry { decision, until, number: self.number });
        // A replaced entry leaves its old key in the order, which must not grow without bound.
        while self.entries.len() > entries_max || self.order.len() > 2 * entries_max {
            let Some((key, number)) = self.order.pop_front() else { break };
            // A newer number means that the entry was replaced, and is still wanted.
            if self.entries.get(&key).is_some_and(|entry| entry.number == number) {
                self.entries.remove(&key);
            }
        }
    }
}

impl OpenQuestion<'_> {
    /// Answers the waiting requests, and remembers a decision for its lifetime.
    pub(crate) fn answer(self, told: QuestionOutcome, lifetime: Option<Duration>, now: Time) {
        if let (QuestionOutcome::Decision(decision), Some(lifetime)) = (&told, lifetime) {
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

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        // However the question has ended, a later request may ask again.
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
        let DecisionSource::Asks(question) = decisions.join(key, Time::from_micros(0)) else { return };
        let decision = Decision::Admitted(Arc::default());
        question.answer(
            QuestionOutcome::Decision(decision),
            Some(Duration::from_secs(seconds)),
            Time::from_micros(0),
        );
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
        let DecisionSource::Asks(question) = decisions.join(b"k", now) else { panic!("the first one asks") };
        let DecisionSource::Waits(mut waits) = decisions.join(b"k", now) else {
            panic!("the second one waits")
        };
        drop(question);
        assert!(waits.has_changed().is_err(), "nobody asks any more");
        let DecisionSource::Asks(question) = decisions.join(b"k", now) else { panic!("the next one asks") };
        let DecisionSource::Waits(mut told) = decisions.join(b"k", now) else { panic!("the others wait") };
        question.answer(QuestionOutcome::Private, Some(Duration::from_secs(1)), now);
        assert!(matches!(&*told.borrow_and_update(), Some(QuestionOutcome::Private)));
        assert!(matches!(decisions.join(b"k", now), DecisionSource::Asks(_)), "nothing is remembered");
        drop(waits.borrow_and_update());
    }
}
