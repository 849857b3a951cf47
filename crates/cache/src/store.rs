//! Stored responses in memory, limited in bytes; also variants, and fetches in progress.
//!
//! All workers share the store. A hit takes one short lock and one `Arc` count, and allocates nothing. Whether a
//! response may be stored or used is decided elsewhere.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use crate::coded::Forms;
use crate::decide::Forward;
use crate::fill::flight::{Flight, Keeping, Stage};
use crate::fill::{Lead, Reader, Wait};
use crate::key::Key;
use crate::outcome::{Ending, Outcome, Outcomes};
use crate::purge::{Force, Rules, RulesFull, Scope};
use crate::refusal::Refusal;
use crate::survey::{HitRates, Survey};
use crate::vary::{VariantKey, Vary};

/// A stored response.
pub(crate) mod object;
/// Stored parts of representations.
mod parts;
/// Stored responses in a binary form.
pub(crate) mod record;
/// Interface to a store behind this one, such as a disk.
pub(crate) mod behind;
/// Interface to a place for long bodies.
pub(crate) mod shelf;
/// A shard of the store, behind one lock.
mod shard;
/// The variants of one resource.
mod variants;
/// Keys for which requests are not collapsed.
pub(crate) mod marks;
/// Stores responses to requests that did not lead a fetch.
pub(crate) mod apart;
/// Counts the responses that purges have matched.
pub(crate) mod count;
/// Changes the memory limit.
pub(crate) mod resize;

use behind::Behind;
use count::Rule;
use marks::Mark;
use object::{Object, seconds};
use shard::{Left, Shard};
use shelf::{Shelf, Shelving};

/// Memory limits of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreSettings {
    /// The memory limit of the whole store.
    pub memory_bytes: u64,
    /// The limit of one object; never more than an eighth of the memory, or half of a shard.
    pub object_bytes_max: u64,
}

/// The cache store in memory.
pub struct Store {
    /// All shards that may ever be needed; the first ones are in use.
    shards: Box<[Mutex<Shard>]>,
    /// The bits of a key that select its shard: the number of shards in use, minus one.
    mask: AtomicUsize,
    memory_bytes: AtomicU64,
    object_bytes_max: AtomicU64,
    /// Held while all shards are visited, so that nothing moves between them meanwhile.
    round: Mutex<()>,
    /// The number of the last purge in force.
    epoch: AtomicU64,
    rules: RwLock<Rules>,
    /// The memory of bodies that are still arriving.
    filling_bytes: Arc<AtomicU64>,
    counts: Counts,
    survey: Survey,
    outcomes: Outcomes,
    behind: Option<Arc<dyn Behind>>,
    shelf: Option<Arc<dyn Shelf>>,
}

#[derive(Debug, Default)]
struct Counts {
    stored: AtomicU64,
    evicted: AtomicU64,
    evicted_bytes: AtomicU64,
    purges: AtomicU64,
}

/// Statistics of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreTally {
    /// The number of keys with a stored response.
    pub keys: u64,
    /// The memory of all stored responses.
    pub bytes: u64,
    /// The memory of bodies that are still arriving.
    pub filling_bytes: u64,
    /// The number of responses stored since the start.
    pub stored: u64,
    /// The number of responses evicted since the start.
    pub evicted: u64,
    /// The memory of the responses evicted since the start.
    pub evicted_bytes: u64,
    /// The number of variants evicted for other variants of their resource.
    pub displaced: u64,
    /// Purges since the start; each key and each scope counts as one.
    pub purges: u64,
    /// The number of purge rules that are still remembered.
    pub purge_rules: u64,
}

/// How to handle a request that no stored response answers.
#[derive(Debug)]
pub enum Joined {
    /// A response has been stored meanwhile.
    Hit(Arc<Object>),
    /// Ask the origin, as the leader for all who come later.
    Lead(Lead),
    /// Wait: another client leads a fetch.
    Wait(Wait),
    /// Read the response that is already arriving.
    Stream(Reader),
    /// Ask the origin for this request alone: the last response was not storable, or too many fetches are in progress.
    Pass,
}

/// The smallest size of a shard, unless the whole store is smaller. One object may take half of a shard.
const SHARD_BYTES_MIN: u64 = 64 << 20;
const SHARDS_MAX: usize = 64;

/// The layout of a store, which follows from its settings.
struct Shape {
    shards: usize,
    shard_bytes: u64,
    object_bytes_max: u64,
}

impl Shape {
    fn of(settings: StoreSettings) -> Self {
        let StoreSettings { memory_bytes, object_bytes_max } = settings;
        let shards = (memory_bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX as u64);
        let shards = 1 << shards.ilog2();
        // A tenth is left for bodies under way, and for what the allocator cannot give back.
        let shard_bytes = (memory_bytes - memory_bytes / 10) / shards;
        let object_bytes_max = object_bytes_max.min(memory_bytes / 8).min(shard_bytes / 2);
        Self { shards: shards as usize, shard_bytes, object_bytes_max }
    }
}

impl Store {
    /// An empty store, optionally with a store behind it.
    pub fn new(settings: StoreSettings, behind: Option<Arc<dyn Behind>>) -> Self {
        let Shape { shards, shard_bytes, object_bytes_max } = Shape::of(settings);
        let shard = |index| if index < shards { Shard::new(shard_bytes) } else { Shard::unused() };
        Self {
            shards: (0..SHARDS_MAX).map(|index| Mutex::new(shard(index))).collect(),
            mask: AtomicUsize::new(shards - 1),
            memory_bytes: AtomicU64::new(settings.memory_bytes),
            object_bytes_max: AtomicU64::new(object_bytes_max),
            round: Mutex::default(),
            epoch: AtomicU64::new(0),
            rules: RwLock::default(),
            filling_bytes: Arc::default(),
            counts: Counts::default(),
            survey: Survey::new(settings.memory_bytes),
            outcomes: Outcomes::new(settings.memory_bytes),
            behind,
            shelf: None,
        }
    }

    /// Adds a place for long bodies.
    pub fn with_shelf(self, shelf: Arc<dyn Shelf>) -> Self {
        Self { shelf: Some(shelf), ..self }
    }

    /// Looks up the stored response for a request, fresh or not. `variant_of` is called only if there is a Vary.
    #[inline]
    pub fn look(&self, key: Key, variant_of: impl FnMut(&Vary) -> VariantKey) -> Option<Arc<Object>> {
        let mut shard = self.shard(key);
        let object = shard.find(key, variant_of)?.clone();
        shard.requests += 1;
        drop(shard);
        self.survey.touch(key, object.weight_bytes());
        self.is_good(&object).then_some(object)
    }

    /// Whether any variant is stored under a key.
    pub fn holds(&self, key: Key) -> bool {
        self.shard(key).peek(key).any(|object| self.is_good(object))
    }

    /// How to handle a request that the look-up could not answer. `seen` is the response that the look-up returned, if
    /// any.
    pub fn join(
        self: &Arc<Self>,
        key: Key,
        seen: Option<&Arc<Object>>,
        mut variant_of: impl FnMut(&Vary) -> VariantKey,
        now_seconds: u64,
    ) -> Joined {
        let epoch = self.epoch.load(Acquire);
        let mut shard = self.shard(key);
        if let Some(object) = shard.find(key, &mut variant_of)
            && seen.is_none_or(|seen| !Arc::ptr_eq(seen, object))
            && self.is_good(object)
        {
            return Joined::Hit(object.clone());
        }
        if shard.marks.of(key, now_seconds).is_some() {
            return Joined::Pass;
        }
        let hint = shard.peek(key).next().map(|object| variant_of(object.vary()));
        for flight in shard.flights(key) {
            // What was asked before a purge is no answer to what is asked after it.
            if flight.epoch == epoch
                && let Some(joined) = self.join_flight(flight, hint, &mut variant_of, now_seconds)
            {
                return joined;
            }
        }
        let flight = Arc::new(Flight::new(key, hint, epoch));
        if shard.depart(&flight) { Joined::Lead(Lead::new(self.clone(), flight)) } else { Joined::Pass }
    }

    fn join_flight(
        self: &Arc<Self>,
        flight: &Arc<Flight>,
        hint: Option<VariantKey>,
        mut variant_of: impl FnMut(&Vary) -> VariantKey,
        now_seconds: u64,
    ) -> Option<Joined> {
        let mut progress = flight.progress();
        match &mut progress.stage {
            Stage::Asked if flight.hint == hint => {
                progress.waiting += 1;
                Some(Joined::Wait(Wait::new(self.clone(), flight.clone())))
            }
            Stage::Vacant if flight.hint == hint => {
                progress.stage = Stage::Asked;
                Some(Joined::Lead(Lead::new(self.clone(), flight.clone())))
            }
            Stage::Streaming(stream)
                if stream.end.is_none()
                    && stream.keeping == Keeping::Whole
                    // RFC 9111 §4: who comes now is not answered with what may not be reused.
                    && stream.opening.stored.is_fresh(now_seconds * 1000)
                    && variant_of(&stream.opening.vary) == stream.opening.variant =>
            {
                Some(Joined::Stream(Reader::new(stream, flight)))
            }
            _ => None,
        }
    }

    /// All variants under a key, for display; none of them counts as used.
    pub fn variants(&self, key: Key) -> Vec<Arc<Object>> {
        let variants: Vec<Arc<Object>> = self.shard(key).peek(key).cloned().collect();
        variants.into_iter().filter(|object| self.is_good(object)).collect()
    }

    /// How many variants of a resource were evicted recently for others of the resource, and the memory limit for all
    /// of them.
    pub fn displaced(&self, key: Key) -> (u64, u64) {
        let shard = self.shard(key);
        (shard.displaced(key), shard.variants_bytes_max())
    }

    /// Notes a miss and its reason.
    pub fn note(&self, key: Key, at_ms: u64, forward: Forward) {
        self.outcomes.note(key, Outcome { at_ms, forward, status: None, ending: Ending::Failed });
    }

    /// Notes what happened to the last noted miss of a key.
    pub fn settle(&self, key: Key, status: u16, ending: Ending) {
        self.outcomes.settle(key, status, ending);
    }

    /// The last miss of a key, if it is still known.
    pub fn outcome(&self, key: Key) -> Option<Outcome> {
        self.outcomes.of(key)
    }

    /// Notes that a response was not stored after all.
    pub(crate) fn refuse(&self, key: Key, refusal: Refusal) {
        self.outcomes.amend(key, refusal);
    }

    /// Purges one key with all its variants, fetches in progress included. Returns how many responses were stored.
    pub fn purge_key(&self, key: Key, force: Force) -> usize {
        let (met, removed) = self.shard(key).purge(key, force);
        let (_, removed_parts) = self.shard(key).purge(key.of_parts(), force);
        drop((removed, removed_parts));
        self.counts.purges.fetch_add(1, Relaxed);
        let behind = self.behind.as_ref().map_or(0, |behind| behind.purged_key(key));
        met.max(behind)
    }

    /// Removes a key with all its variants from the store behind this one.
    pub fn forget_behind(&self, key: Key) {
        if let Some(behind) = &self.behind {
            behind.purged_key(key);
        }
    }

    /// Purges everything in the scope for all workers, fetches in progress included.
    ///
    /// # Errors
    /// Too many purges would have to be remembered for fetches that are still in progress.
    pub fn purge(&self, scope: Scope, force: Force) -> Result<(), RulesFull> {
        self.purge_at(scope, force, 0)
    }

    /// Purges everything in the scope. Softly purged responses are stale from `at_ms` on, in milliseconds since 1970.
    ///
    /// # Errors
    /// Too many purges would have to be remembered for fetches that are still in progress.
    pub fn purge_at(&self, scope: Scope, force: Force, at_ms: u64) -> Result<(), RulesFull> {
        self.purge_rule(scope, force, at_ms).map(|_| ())
    }

    /// Purges everything in the scope, and returns the rule, with which [`Store::count`] counts the matches.
    ///
    /// # Errors
    /// Too many purges would have to be remembered for fetches that are still in progress.
    pub fn purge_rule(&self, scope: Scope, force: Force, at_ms: u64) -> Result<Rule, RulesFull> {
        let at_seconds = seconds(at_ms);
        let purge = |scope: Scope| {
            let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
            let epoch = rules.epoch() + 1;
            rules.add_at(&scope, force, epoch, at_seconds)?;
            if let Some(behind) = &self.behind {
                behind.purged(&scope, force, epoch);
            }
            self.epoch.store(epoch, Release);
            self.counts.purges.fetch_add(1, Relaxed);
            Ok(Rule { scope, force, epoch })
        };
        purge(scope.clone()).or_else(|RulesFull| {
            self.sweep();
            purge(scope)
        })
    }

    /// Whether there are purge rules that a sweep could remove.
    pub fn is_sweep_due(&self) -> bool {
        !self.rules().is_empty()
    }

    /// Frees purged responses, and removes the purge rules. Takes time in proportion to the number of responses, and
    /// locks one shard at a time.
    pub fn sweep(&self) {
        let _round = self.round();
        let mut swept = self.epoch.load(Acquire);
        for shard in &self.shards {
            let oldest = lock(shard).sweep(|object| {
                self.is_good(object);
            });
            swept = swept.min(oldest.unwrap_or(u64::MAX));
        }
        self.rules.write().unwrap_or_else(PoisonError::into_inner).forget(swept);
    }

    /// Whether a response is usable after all purges. It is compared with each purge only once.
    #[inline]
    pub fn is_good(&self, object: &Object) -> bool {
        if object.checked() < self.epoch.load(Acquire) {
            let rules = self.rules();
            let verdict = rules.verdict(object.epoch(), object.key_text(), object.labels());
            if verdict == Some(Force::Soft) {
                let (text, labels) = (object.key_text(), object.labels());
                object.note_stale(rules.stale_since_seconds(object.epoch(), text, labels));
            }
            object.judge(verdict, rules.epoch());
        }
        !object.is_gone()
    }

    /// Statistics of the store.
    pub fn tally(&self) -> StoreTally {
        let mut tally = StoreTally {
            filling_bytes: self.filling_bytes.load(Relaxed),
            stored: self.counts.stored.load(Relaxed),
            evicted: self.counts.evicted.load(Relaxed),
            evicted_bytes: self.counts.evicted_bytes.load(Relaxed),
            purges: self.counts.purges.load(Relaxed),
            purge_rules: self.rules().len() as u64,
            ..StoreTally::default()
        };
        for shard in &self.shards {
            let shard = lock(shard);
            tally.keys += shard.count() as u64;
            tally.bytes += shard.weight_bytes();
            tally.displaced += shard.displaced;
        }
        tally
    }

    /// Estimated hit rates for other memory sizes.
    pub fn hit_rates(&self) -> Option<HitRates> {
        self.survey.hit_rates(self.shards.iter().map(|shard| lock(shard).requests).sum())
    }

    /// The size limit of one object.
    pub fn object_bytes_max(&self) -> u64 {
        self.object_bytes_max.load(Relaxed)
    }

    /// The memory limit.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Relaxed)
    }

    fn rules(&self) -> RwLockReadGuard<'_, Rules> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn shard(&self, key: Key) -> MutexGuard<'_, Shard> {
        loop {
            let mask = self.mask.load(Acquire);
            let shard = lock(&self.shards[shard_of(key, mask)]);
            // It changes only while all shards are locked.
            if mask == self.mask.load(Relaxed) {
                return shard;
            }
        }
    }

    fn round(&self) -> MutexGuard<'_, ()> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a response, also in the store behind this one, unless it was purged during its fetch. Returns whether it
    /// was stored.
    pub(crate) fn put(&self, flight: &Flight, object: &Arc<Object>) -> bool {
        let is_put = self.put_here(flight, object);
        if let (true, None, Some(behind)) = (is_put, object.stored().part, &self.behind) {
            behind.stored(object);
        }
        is_put
    }

    /// Stores a response that came from the store behind this one, unless it is purged. Returns whether it was stored.
    pub(crate) fn put_here(&self, flight: &Flight, object: &Arc<Object>) -> bool {
        let left: Left;
        {
            let mut shard = self.shard(flight.key);
            self.is_good(object);
            // What purges came since it was asked for has to be known still.
            let is_known = flight.epoch >= self.rules().forgotten();
            if !is_known || flight.is_doomed() || object.is_gone() || object.is_softly_purged() {
                return false;
            }
            left = shard.put(object);
        }
        self.counts.stored.fetch_add(1, Relaxed);
        self.counts.evicted.fetch_add(left.evicted_count, Relaxed);
        self.counts.evicted_bytes.fetch_add(left.evicted_bytes, Relaxed);
        true
    }

    /// Counts memory that is kept beside a stored response: other codings of its body.
    pub(crate) fn add_weight(&self, key: Key, forms: &Arc<Forms>, bytes: u64) {
        self.shard(key).grow(key, |object| object.has_forms(forms), bytes);
    }

    /// Counts a miss and the size of its response for the hit rate estimate.
    pub(crate) fn survey_miss(&self, object: &Object) {
        self.shard(object.key()).requests += 1;
        self.survey.touch(object.key(), object.weight_bytes());
    }

    /// Whether the last response for a key could not be stored, as far as that is remembered.
    pub fn is_refused(&self, key: Key, now_seconds: u64) -> bool {
        self.shard(key).marks.of(key, now_seconds).is_some()
    }

    /// Remembers until then that a response for a key could not be stored.
    pub fn set_refused(&self, key: Key, until_seconds: u64) {
        self.mark(key, Mark::Unstorable, until_seconds);
    }

    /// Turns off request collapsing for a key until `until_seconds`.
    pub(crate) fn mark(&self, key: Key, mark: Mark, until_seconds: u64) {
        self.shard(key).marks.set(key, mark, until_seconds);
    }

    pub(crate) fn land(&self, flight: &Arc<Flight>) {
        self.shard(flight.key).land(flight);
    }

    /// Hands over a fetch without a leader: wakes a waiting client to lead it, or ends the fetch.
    pub(crate) fn hand_over(&self, flight: &Arc<Flight>) {
        let waker = {
            let mut shard = self.shard(flight.key);
            let mut progress = flight.progress();
            if !matches!(progress.stage, Stage::Vacant) {
                return;
            }
            if progress.waiting == 0 {
                shard.land(flight);
            }
            progress.take_waker()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Starts a body on the shelf with these pieces. `body_bytes` is its length, if it is known.
    pub(crate) fn shelve<'b>(
        &self,
        body_bytes: Option<u64>,
        mut pieces: impl Iterator<Item = &'b [u8]>,
    ) -> Option<Box<dyn Shelving>> {
        let mut shelving = self.shelf.as_ref()?.begin(body_bytes.unwrap_or(self.object_bytes_max()))?;
        pieces.all(|piece| shelving.append(piece)).then_some(shelving)
    }

    /// Moves a long body from parts to the shelf.
    pub(crate) fn shelved(&self, object: &Arc<Object>) -> Option<Arc<Object>> {
        if !object.is_in_parts() {
            return None;
        }
        let body = self.shelve(Some(object.body_bytes()), object.body(0..u64::MAX))?.finish()?;
        Some(Arc::new(object.moved(body)))
    }

    pub(crate) fn filling(&self) -> Arc<AtomicU64> {
        self.filling_bytes.clone()
    }

    /// Whether bodies that are arriving use all memory for them, one body of `own_bytes` aside: alone, it may be as
    /// long as any object.
    pub(crate) fn is_filling_full(&self, own_bytes: u64) -> bool {
        // What is on its way to the shelf is in memory twice.
        let share = if self.shelf.is_some() { 16 } else { 8 };
        self.filling_bytes.load(Relaxed).saturating_sub(own_bytes) >= self.memory_bytes() / share
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Store").field("memory_bytes", &self.memory_bytes()).finish_non_exhaustive()
    }
}

fn shard_of(key: Key, mask: usize) -> usize {
    (key.as_u128() >> 64) as usize & mask
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests;
