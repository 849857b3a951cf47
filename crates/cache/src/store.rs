//! Stored responses in memory, limited in bytes; also variants, and fetches in progress.
//!
//! All workers share the store. A hit takes one short lock and one `Arc` count, and allocates nothing. Other modules
//! decide whether a response may be stored or used.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use crate::coded::Forms;
use crate::decide::Forward;
use crate::fill::flight::{Flight, FlightStage, Keeping};
use crate::fill::{FillReader, HeadWait, Lead};
use crate::key::CacheKey;
use crate::outcome::{MissEnding, MissOutcome, Outcomes};
use crate::purge::{Force, PurgeRules, PurgeScope, RulesFull};
use crate::refusal::NotStored;
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
/// Counts of requests.
mod uses;
/// Stores responses to requests that did not lead a fetch.
pub(crate) mod apart;
/// Counts the responses that purges have matched.
pub(crate) mod count;
/// Changes the memory limit.
pub(crate) mod resize;

use behind::Behind;
use count::PurgeRule;
use marks::Mark;
use object::{Object, seconds};
use shard::{Left, StoreShard};
use shelf::{Shelf, Shelving};
use uses::UseCounts;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreSettings {
    /// The memory limit of the whole store.
    pub memory_bytes: u64,
    /// The limit of one object; never more than an eighth of the memory, or half of a shard.
    pub object_bytes_max: u64,
}

/// The cache store in memory.
pub struct MemoryStore {
    /// All shards that may ever be needed; the first ones are in use.
    shards: Box<[Mutex<StoreShard>]>,
    /// The bits of a key that select its shard: the number of shards in use, minus one.
    mask: AtomicUsize,
    memory_bytes: AtomicU64,
    object_bytes_max: AtomicU64,
    /// Held while all shards are visited, so that nothing moves between them meanwhile.
    round: Mutex<()>,
    /// The number of the last purge in force.
    epoch: AtomicU64,
    rules: RwLock<PurgeRules>,
    /// The memory of bodies that are still arriving.
    filling_bytes: Arc<AtomicU64>,
    counts: StoreCounts,
    survey: Survey,
    outcomes: Outcomes,
    uses: UseCounts,
    behind: Option<Arc<dyn Behind>>,
    shelf: Option<Arc<dyn Shelf>>,
}

#[derive(Debug, Default)]
struct StoreCounts {
    stored: AtomicU64,
    evicted: AtomicU64,
    evicted_bytes: AtomicU64,
    purges: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreTally {
    /// Keys with a stored response.
    pub keys: u64,
    /// The memory of all stored responses.
    pub bytes: u64,
    /// The memory of bodies that are still arriving.
    pub filling_bytes: u64,
    /// Responses stored since the start.
    pub stored: u64,
    /// Responses evicted since the start.
    pub evicted: u64,
    /// The memory of the responses evicted since the start.
    pub evicted_bytes: u64,
    /// Variants evicted for other variants of their resource.
    pub displaced: u64,
    /// Purges since the start; each key and each scope counts as one.
    pub purges: u64,
    /// Purge rules that are still remembered.
    pub purge_rules: u64,
}

/// The handling of a request that no stored response answers.
#[derive(Debug)]
pub enum MissRole {
    /// A response has been stored meanwhile.
    Hit(Arc<Object>),
    /// Ask the origin, as the leader for all later requests.
    Lead(Lead),
    /// Wait: another client leads a fetch.
    Wait(HeadWait),
    /// Read the response that is already arriving.
    Stream(FillReader),
    /// Send a separate request to the origin: the last response was not storable, or too many fetches are in progress.
    Pass,
}

/// The smallest size of a shard, unless the whole store is smaller. One object may take half of a shard.
// Smaller shards would limit objects more than the memory does.
const SHARD_BYTES_MIN: u64 = 64 << 20;
const SHARDS_MAX: usize = 64;

/// The layout of a store, which follows from its settings.
struct StoreLayout {
    shards: usize,
    shard_bytes: u64,
    object_bytes_max: u64,
}

impl StoreLayout {
    fn from_settings(settings: StoreSettings) -> Self {
        let StoreSettings { memory_bytes, object_bytes_max } = settings;
        let shards = (memory_bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX as u64);
        // A power of two, so that a mask selects the shard.
        let shards = 1 << shards.ilog2();
        // A tenth is left for arriving bodies, and for memory that the allocator cannot return.
        let shard_bytes = (memory_bytes - memory_bytes / 10) / shards;
        let object_bytes_max = object_bytes_max.min(memory_bytes / 8).min(shard_bytes / 2);
        Self { shards: shards as usize, shard_bytes, object_bytes_max }
    }
}

impl MemoryStore {
    /// An empty store, optionally with a store behind it.
    pub fn new(settings: StoreSettings, behind: Option<Arc<dyn Behind>>) -> Self {
        let StoreLayout { shards, shard_bytes, object_bytes_max } = StoreLayout::from_settings(settings);
        let shard = |index| if index < shards { StoreShard::new(shard_bytes) } else { StoreShard::unused() };
        Self {
            // All of them from the start: a resize then needs no lock around the list.
            shards: (0..SHARDS_MAX).map(|index| Mutex::new(shard(index))).collect(),
            mask: AtomicUsize::new(shards - 1),
            memory_bytes: AtomicU64::new(settings.memory_bytes),
            object_bytes_max: AtomicU64::new(object_bytes_max),
            round: Mutex::default(),
            epoch: AtomicU64::new(0),
            rules: RwLock::default(),
            filling_bytes: Arc::default(),
            counts: StoreCounts::default(),
            survey: Survey::new(settings.memory_bytes),
            outcomes: Outcomes::new(settings.memory_bytes),
            uses: UseCounts::default(),
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
    pub fn look(&self, key: CacheKey, variant_of: impl FnMut(&Vary) -> VariantKey) -> Option<Arc<Object>> {
        let mut shard = self.shard(key);
        // The lock ends with the count of an `Arc`; rules and survey are looked at without it.
        let object = shard.find(key, variant_of)?.clone();
        shard.requests += 1;
        drop(shard);
        self.survey.touch(key, object.weight_bytes());
        self.is_good(&object).then_some(object)
    }

    /// Whether any variant is stored under a key.
    pub fn holds(&self, key: CacheKey) -> bool {
        self.shard(key).peek(key).any(|object| self.is_good(object))
    }

    /// Decides the handling of a request that the lookup could not answer. `seen` is the response that the lookup
    /// returned, if any.
    pub fn join(
        self: &Arc<Self>,
        key: CacheKey,
        seen: Option<&Arc<Object>>,
        variant_of: impl FnMut(&Vary) -> VariantKey,
        now_seconds: u64,
    ) -> MissRole {
        self.join_if(key, seen, variant_of, now_seconds, |mark| mark.is_none())
    }

    /// Leads the validation of a stored response, regardless of other variants. `None` if another request does so, or
    /// if the response has been replaced.
    pub fn validate(
        self: &Arc<Self>,
        seen: &Arc<Object>,
        variant_of: impl FnMut(&Vary) -> VariantKey,
        now_seconds: u64,
    ) -> Option<Lead> {
        match self.join_if(seen.key(), Some(seen), variant_of, now_seconds, |_| true) {
            MissRole::Lead(lead) => Some(lead),
            MissRole::Hit(_) | MissRole::Wait(_) | MissRole::Stream(_) | MissRole::Pass => None,
        }
    }

    fn join_if(
        self: &Arc<Self>,
        key: CacheKey,
        seen: Option<&Arc<Object>>,
        mut variant_of: impl FnMut(&Vary) -> VariantKey,
        now_seconds: u64,
        is_shared: impl FnOnce(Option<Mark>) -> bool,
    ) -> MissRole {
        // Before the lookup: a purge after this line has a greater number and matches the fetch.
        let epoch = self.epoch.load(Acquire);
        let mut shard = self.shard(key);
        if let Some(object) = shard.find(key, &mut variant_of)
            // Another response than the one that could not be used: it was stored since the lookup.
            && seen.is_none_or(|seen| !Arc::ptr_eq(seen, object))
            && self.is_good(object)
        {
            return MissRole::Hit(object.clone());
        }
        if !is_shared(shard.marks.for_key(key, now_seconds)) {
            return MissRole::Pass;
        }
        // Any stored variant shows which fields select. Without one, all requests are assumed to want one response.
        let hint = shard.peek(key).next().map(|object| variant_of(object.vary()));
        for flight in shard.flights(key) {
            // A fetch from before a purge cannot answer a request from after it.
            if flight.epoch == epoch
                && let Some(joined) = self.join_flight(flight, hint, &mut variant_of, now_seconds)
            {
                return joined;
            }
        }
        let flight = Arc::new(Flight::new(key, hint, epoch));
        if shard.depart(&flight) { MissRole::Lead(Lead::new(self.clone(), flight)) } else { MissRole::Pass }
    }

    fn join_flight(
        self: &Arc<Self>,
        flight: &Arc<Flight>,
        hint: Option<VariantKey>,
        mut variant_of: impl FnMut(&Vary) -> VariantKey,
        now_seconds: u64,
    ) -> Option<MissRole> {
        let mut progress = flight.progress();
        match &mut progress.stage {
            FlightStage::Asked if flight.hint == hint => {
                progress.waiting += 1;
                Some(MissRole::Wait(HeadWait::new(self.clone(), flight.clone())))
            }
            // The leader was dropped, and this client is here before those that were woken.
            FlightStage::Vacant if flight.hint == hint => {
                progress.stage = FlightStage::Asked;
                Some(MissRole::Lead(Lead::new(self.clone(), flight.clone())))
            }
            FlightStage::Streaming(stream)
                if stream.end.is_none()
                    // A body that is not kept may have lost its beginning, or lose it before this reader starts.
                    && stream.keeping == Keeping::Whole
                    // RFC 9111 §4: a response that may not be reused cannot answer later requests.
                    && stream.opening.stored.is_fresh(now_seconds * 1000)
                    && variant_of(&stream.opening.vary) == stream.opening.variant =>
            {
                Some(MissRole::Stream(FillReader::new(stream, flight)))
            }
            _ => None,
        }
    }

    /// All variants under a key, for display; none of them counts as used.
    pub fn variants(&self, key: CacheKey) -> Vec<Arc<Object>> {
        let variants: Vec<Arc<Object>> = self.shard(key).peek(key).cloned().collect();
        variants.into_iter().filter(|object| self.is_good(object)).collect()
    }

    /// How many variants of a resource were evicted recently for others of the resource, and the memory limit for all
    /// of them.
    pub fn displaced(&self, key: CacheKey) -> (u64, u64) {
        let shard = self.shard(key);
        (shard.displaced(key), shard.variants_bytes_max())
    }

    /// Records a miss and its reason.
    pub fn note(&self, key: CacheKey, at_ms: u64, forward: Forward) {
        self.outcomes.note(key, MissOutcome { at_ms, forward, status: None, ending: MissEnding::Failed });
    }

    /// Records the fate of the last recorded miss of a key.
    pub fn settle(&self, key: CacheKey, status: u16, ending: MissEnding) {
        self.outcomes.settle(key, status, ending);
    }

    /// The last miss of a key, if it is still known.
    pub fn outcome(&self, key: CacheKey) -> Option<MissOutcome> {
        self.outcomes.for_key(key)
    }

    /// Records that a response was not stored after all.
    pub(crate) fn refuse(&self, key: CacheKey, refusal: NotStored) {
        self.outcomes.amend(key, refusal);
    }

    /// Purges one key with all its variants, fetches in progress included. Returns how many responses were stored.
    pub fn purge_key(&self, key: CacheKey, force: Force) -> usize {
        let (met, removed) = self.shard(key).purge(key, force);
        let (_, removed_parts) = self.shard(key).purge(key.of_parts(), force);
        // Freeing many blocks takes time, so it happens after the locks are released.
        drop((removed, removed_parts));
        self.counts.purges.fetch_add(1, Relaxed);
        let behind = self.behind.as_ref().map_or(0, |behind| behind.purged_key(key));
        met.max(behind)
    }

    /// Removes a response that is obsolete (RFC 9111 §4.3.3), unless another one has replaced it.
    pub fn withdraw(&self, old: &Object) {
        // First the object, which other workers may hold: they see it as gone even before the shard does.
        old.purge(Force::Hard);
        let (is_replaced, removed) = self.shard(old.key()).withdraw(old);
        drop(removed);
        // Parts are only in memory.
        if !is_replaced && old.stored().part.is_none() {
            self.forget_behind(old.key());
        }
    }

    /// Removes a key with all its variants from the store behind this one.
    pub fn forget_behind(&self, key: CacheKey) {
        // The disk may still have variants that memory has evicted.
        if let Some(behind) = &self.behind {
            behind.purged_key(key);
        }
    }

    /// Purges everything in the scope for all workers, fetches in progress included.
    ///
    /// # Errors
    /// Too many purges would have to be remembered for fetches that are still in progress.
    pub fn purge(&self, scope: PurgeScope, force: Force) -> Result<(), RulesFull> {
        self.purge_at(scope, force, 0)
    }

    /// Purges everything in the scope. Softly purged responses are stale from `at_ms` on, in milliseconds since 1970.
    ///
    /// # Errors
    /// Too many purges would have to be remembered for fetches that are still in progress.
    pub fn purge_at(&self, scope: PurgeScope, force: Force, at_ms: u64) -> Result<(), RulesFull> {
        self.purge_rule(scope, force, at_ms).map(|_| ())
    }

    /// Purges everything in the scope, and returns the rule, with which [`MemoryStore::count`] counts the matches.
    ///
    /// # Errors
    /// Too many purges would have to be remembered for fetches that are still in progress.
    pub fn purge_rule(&self, scope: PurgeScope, force: Force, at_ms: u64) -> Result<PurgeRule, RulesFull> {
        let at_seconds = seconds(at_ms);
        let purge = |scope: PurgeScope| {
            let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
            let epoch = rules.epoch() + 1;
            rules.add_at(&scope, force, epoch, at_seconds)?;
            if let Some(behind) = &self.behind {
                // Before it is in force here, so that the disk does not hand out responses that memory already
                // refuses.
                behind.purged(&scope, force, epoch);
            }
            // Behind the rule: a lookup that sees the number also finds the rule.
            self.epoch.store(epoch, Release);
            self.counts.purges.fetch_add(1, Relaxed);
            Ok(PurgeRule { scope, force, epoch })
        };
        purge(scope.clone()).or_else(|RulesFull| {
            // Makes room for rules, since most of them are no longer needed once every response was compared.
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
            // A fetch from before a purge may still store its response, so the rule stays until it has ended.
            swept = swept.min(oldest.unwrap_or(u64::MAX));
        }
        self.rules.write().unwrap_or_else(PoisonError::into_inner).forget(swept);
    }

    /// Whether a response is usable after all purges. It is compared with each purge only once.
    #[inline]
    pub fn is_good(&self, object: &Object) -> bool {
        // Usually equal: a hit pays one comparison for all purges together.
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

    pub fn object_bytes_max(&self) -> u64 {
        self.object_bytes_max.load(Relaxed)
    }

    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Relaxed)
    }

    fn rules(&self) -> RwLockReadGuard<'_, PurgeRules> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn shard(&self, key: CacheKey) -> MutexGuard<'_, StoreShard> {
        loop {
            let mask = self.mask.load(Acquire);
            let shard = lock(&self.shards[shard_of(key, mask)]);
            // It changes only while all shards are locked.
            // A resize may have moved the key to another shard before this one was locked.
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
            // Compared under the lock of the shard, which a sweep takes, too: no rule is forgotten in between.
            self.is_good(object);
            // Purges since the start of the fetch must still be remembered.
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
    pub(crate) fn add_weight(&self, key: CacheKey, forms: &Arc<Forms>, bytes: u64) {
        self.shard(key).grow(key, |object| object.has_forms(forms), bytes);
    }

    /// Counts a miss and the size of its response for the hit rate estimate.
    pub(crate) fn survey_miss(&self, object: &Object) {
        self.shard(object.key()).requests += 1;
        self.survey.touch(object.key(), object.weight_bytes());
    }

    /// Whether the last response for a key could not be stored, as far as that is remembered.
    pub fn is_refused(&self, key: CacheKey, now_seconds: u64) -> bool {
        self.shard(key).marks.for_key(key, now_seconds).is_some()
    }

    /// Remembers until `until_seconds` that a response for a key could not be stored.
    pub fn set_refused(&self, key: CacheKey, until_seconds: u64) {
        self.mark(key, Mark::Unstorable, until_seconds);
    }

    /// Turns off request collapsing for a key until `until_seconds`.
    pub(crate) fn mark(&self, key: CacheKey, mark: Mark, until_seconds: u64) {
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
            if !matches!(progress.stage, FlightStage::Vacant) {
                return;
            }
            if progress.waiting == 0 {
                shard.land(flight);
            }
            progress.take_waker()
        };
        if let Some(waker) = waker {
            // A single client: the others would only see that it leads.
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

    /// Whether arriving bodies use all the memory for them. Ignores `own_bytes`, because a single body may be as long
    /// as any object.
    pub(crate) fn is_filling_full(&self, own_bytes: u64) -> bool {
        // A body on its way to the shelf is in memory twice.
        let share = if self.shelf.is_some() { 16 } else { 8 };
        self.filling_bytes.load(Relaxed).saturating_sub(own_bytes) >= self.memory_bytes() / share
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Store").field("memory_bytes", &self.memory_bytes()).finish_non_exhaustive()
    }
}

fn shard_of(key: CacheKey, mask: usize) -> usize {
    (key.as_u128() >> 64) as usize & mask
}

fn lock(shard: &Mutex<StoreShard>) -> MutexGuard<'_, StoreShard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests;
