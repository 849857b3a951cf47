//! Responses in memory: bounded in bytes with all that they take, variants beside each other, and what is being fetched.
//!
//! All workers share it. A hit is one short lock and the count of one `Arc`; nothing is allocated. When and whether a
//! response may be stored or used is decided elsewhere.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use crate::decide::Forward;
use crate::fill::flight::{Flight, Keeping, Stage};
use crate::fill::{Lead, Reader, Wait};
use crate::key::Key;
use crate::outcome::{Ending, Outcome, Outcomes};
use crate::purge::{Force, Rules, RulesFull, Scope};
use crate::refusal::Refusal;
use crate::survey::{HitRates, Survey};
use crate::vary::{VariantKey, Vary};

/// One stored response.
pub(crate) mod object;
/// Parts of representations.
mod parts;
/// The same as bytes.
pub(crate) mod record;
/// What lies behind the store.
pub(crate) mod behind;
/// Where long bodies may lie.
pub(crate) mod shelf;
/// A part of the store, behind one lock.
mod shard;
/// Variants of one resource.
mod variants;
/// Keys for which nobody waits.
pub(crate) mod marks;
/// Responses that nobody waited for.
pub(crate) mod apart;
/// What purges have met.
pub(crate) mod count;
/// More memory, or less.
pub(crate) mod resize;

use behind::Behind;
use count::Rule;
use marks::Mark;
use object::{Object, seconds};
use shard::{Left, Shard};
use shelf::{Shelf, Shelving};

/// How much a store takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreSettings {
    /// All memory together.
    pub memory_bytes: u64,
    /// What one object may take; never more than an eighth of the memory, or half of a shard.
    pub object_bytes_max: u64,
}

/// Responses in memory.
pub struct Store {
    /// As many as there may be, of which the first are in use.
    shards: Box<[Mutex<Shard>]>,
    /// What of a key says its shard: one less than there are in use.
    mask: AtomicUsize,
    memory_bytes: AtomicU64,
    object_bytes_max: AtomicU64,
    /// Held while all shards are gone through, so that nothing moves from one to another meanwhile.
    round: Mutex<()>,
    /// The number of the last purge that is in force.
    epoch: AtomicU64,
    rules: RwLock<Rules>,
    /// What bodies under way hold.
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

/// What a store holds, and what became of what it held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreTally {
    /// Keys that something is stored under.
    pub keys: u64,
    /// What all objects take.
    pub bytes: u64,
    /// What bodies under way take.
    pub filling_bytes: u64,
    /// Objects that were stored.
    pub stored: u64,
    /// Objects that had to make room.
    pub evicted: u64,
    /// What these took.
    pub evicted_bytes: u64,
    /// Variants among them that made room for others of the same resource.
    pub displaced: u64,
    /// Purges since the start, each key and each scope for one.
    pub purges: u64,
    /// Purges that are still remembered.
    pub purge_rules: u64,
}

/// What is to be done for a request that nothing stored answers.
#[derive(Debug)]
pub enum Joined {
    /// Something is stored by now.
    Hit(Arc<Object>),
    /// To ask the origin, for all who come after.
    Lead(Lead),
    /// Somebody asks already.
    Wait(Wait),
    /// The response comes already.
    Stream(Reader),
    /// To ask for this request alone: it is remembered that what came last was not stored, or too much is under way.
    Pass,
}

/// The least that a shard has, unless all is less: an object may take half of it.
const SHARD_BYTES_MIN: u64 = 64 << 20;
const SHARDS_MAX: usize = 64;

/// What follows from the settings.
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
    /// An empty store, with what lies behind it.
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

    /// The same store with a place for long bodies.
    pub fn with_shelf(self, shelf: Arc<dyn Shelf>) -> Self {
        Self { shelf: Some(shelf), ..self }
    }

    /// The stored response for a request, if there is one; whether it is fresh is not looked at. What the request's
    /// variant is for a `Vary` is asked only where there is one.
    #[inline]
    pub fn look(&self, key: Key, variant_of: impl FnMut(&Vary) -> VariantKey) -> Option<Arc<Object>> {
        let mut shard = self.shard(key);
        let object = shard.find(key, variant_of)?.clone();
        shard.requests += 1;
        drop(shard);
        self.survey.touch(key, object.weight_bytes());
        self.is_good(&object).then_some(object)
    }

    /// Whether anything is stored under a key, be it other variants than a request asks for.
    pub fn holds(&self, key: Key) -> bool {
        self.shard(key).peek(key).any(|object| self.is_good(object))
    }

    /// What to do for a request whose look-up gave nothing that answers it: `seen` is what it gave, if anything.
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

    /// All variants that are stored under a key, for who wants to know; none of them counts as used.
    pub fn variants(&self, key: Key) -> Vec<Arc<Object>> {
        let variants: Vec<Arc<Object>> = self.shard(key).peek(key).cloned().collect();
        variants.into_iter().filter(|object| self.is_good(object)).collect()
    }

    /// How many variants of a resource had to make room for others of it, of late, and what all of them may take.
    pub fn displaced(&self, key: Key) -> (u64, u64) {
        let shard = self.shard(key);
        (shard.displaced(key), shard.variants_bytes_max())
    }

    /// Remembers that nothing stored answers a request, and why.
    pub fn note(&self, key: Key, at_ms: u64, forward: Forward) {
        self.outcomes.note(key, Outcome { at_ms, forward, status: None, ending: Ending::Failed });
    }

    /// What has become of the request that was noted last.
    pub fn settle(&self, key: Key, status: u16, ending: Ending) {
        self.outcomes.settle(key, status, ending);
    }

    /// What became of the last request for a key that nothing stored answered, if that is still known.
    pub fn outcome(&self, key: Key) -> Option<Outcome> {
        self.outcomes.of(key)
    }

    /// What was to be stored was not.
    pub(crate) fn refuse(&self, key: Key, refusal: Refusal) {
        self.outcomes.amend(key, refusal);
    }

    /// Purges one key, with all its variants and what is being fetched of it, and says how many objects were stored.
    pub fn purge_key(&self, key: Key, force: Force) -> usize {
        let (met, removed) = self.shard(key).purge(key, force);
        let (_, removed_parts) = self.shard(key).purge(key.of_parts(), force);
        drop((removed, removed_parts));
        self.counts.purges.fetch_add(1, Relaxed);
        let behind = self.behind.as_ref().map_or(0, |behind| behind.purged_key(key));
        met.max(behind)
    }

    /// What lies behind the store under a key, with all its variants, is not to be used as it is any more.
    pub fn forget_behind(&self, key: Key) {
        if let Some(behind) = &self.behind {
            behind.purged_key(key);
        }
    }

    /// Purges what is in the scope, now and for all workers, and what is being fetched of it.
    ///
    /// # Errors
    /// If too many purges have to be remembered for fetches that have been under way since.
    pub fn purge(&self, scope: Scope, force: Force) -> Result<(), RulesFull> {
        self.purge_at(scope, force, 0)
    }

    /// The same with the time, in milliseconds since 1970: from then on is stale what a soft purge meets.
    ///
    /// # Errors
    /// If too many purges have to be remembered for fetches that have been under way since.
    pub fn purge_at(&self, scope: Scope, force: Force, at_ms: u64) -> Result<(), RulesFull> {
        self.purge_rule(scope, force, at_ms).map(|_| ())
    }

    /// The same for who wants to know what it meets: see [`Store::count`].
    ///
    /// # Errors
    /// If too many purges have to be remembered for fetches that have been under way since.
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

    /// Whether there are purges that a sweep would let forget.
    pub fn is_sweep_due(&self) -> bool {
        !self.rules().is_empty()
    }

    /// Frees what purges met, and forgets these. It takes as long as there are objects, a shard's at a time, and holds
    /// up look-ups of that shard.
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

    /// Whether an object answers after all purges; it is compared with each only once.
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

    /// What the store holds.
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

    /// The share of hits among the requests for what can be stored, as it would be with another size of memory.
    pub fn hit_rates(&self) -> Option<HitRates> {
        self.survey.hit_rates(self.shards.iter().map(|shard| lock(shard).requests).sum())
    }

    /// What one object may take.
    pub fn object_bytes_max(&self) -> u64 {
        self.object_bytes_max.load(Relaxed)
    }

    /// All memory that it may take.
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

    /// Stores an object, unless it was purged while it was fetched, and has it kept behind the store.
    pub(crate) fn put(&self, flight: &Flight, object: &Arc<Object>) -> bool {
        let is_put = self.put_here(flight, object);
        if let (true, None, Some(behind)) = (is_put, object.stored().part, &self.behind) {
            behind.stored(object);
        }
        is_put
    }

    /// Stores an object that came from behind the store, unless it is purged.
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

    /// A request was a miss, and this is what it weighs.
    pub(crate) fn survey_miss(&self, object: &Object) {
        self.shard(object.key()).requests += 1;
        self.survey.touch(object.key(), object.weight_bytes());
    }

    /// Until then nobody waits for what another request brings.
    pub(crate) fn mark(&self, key: Key, mark: Mark, until_seconds: u64) {
        self.shard(key).marks.set(key, mark, until_seconds);
    }

    pub(crate) fn land(&self, flight: &Arc<Flight>) {
        self.shard(flight.key).land(flight);
    }

    /// The leader of a fetch is gone: one who waits is woken to lead it, or it is over.
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

    /// Begins a body on the shelf with these pieces; its length is told as far as it is known.
    pub(crate) fn shelve<'b>(
        &self,
        body_bytes: Option<u64>,
        mut pieces: impl Iterator<Item = &'b [u8]>,
    ) -> Option<Box<dyn Shelving>> {
        let mut shelving = self.shelf.as_ref()?.begin(body_bytes.unwrap_or(self.object_bytes_max()))?;
        pieces.all(|piece| shelving.append(piece)).then_some(shelving)
    }

    /// An object that came with its body in parts, on the shelf if it is a long one.
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

    /// Whether bodies under way take all that is for them, without one that takes so much itself: alone it may be as long as
    /// any object.
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
