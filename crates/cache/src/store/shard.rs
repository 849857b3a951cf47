//! A shard of the store behind one lock: stored responses with their eviction policy, fetches in progress, and marks of
//! keys that cannot be stored.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use quick_cache::{OptionsBuilder, Weighter, unsync};

use crate::fill::flight::Flight;
use crate::key::CacheKey;
use crate::purge::Force;
use crate::store::marks::Marks;
use crate::store::object::Object;
use crate::store::variants::Variants;
use crate::vary::{VariantKey, Vary};

/// The divisor of a shard's memory that gives the limit for all variants of a resource, which are evicted together.
// A resource with countless variants must not push out all others.
const VARIANTS_SHARE: u64 = 2;

/// The most fetches in a shard. Further requests go to the origin separately.
// An origin that hangs while clients ask for ever new URLs must not fill the memory.
const FLIGHTS_MAX: usize = 16 << 10;

pub(crate) struct StoreShard {
    objects: unsync::Cache<u64, ShardEntry, Weigher, BuildHasherDefault<AsIs>, CountEvicted>,
    flights: HashMap<CacheKey, Vec<Arc<Flight>>>,
    flights_count: usize,
    pub(crate) marks: Marks,
    /// The number of hits, and of misses that were stored.
    pub(crate) requests: u64,
    /// The number of variants evicted for other variants of their resource.
    pub(crate) displaced: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum ShardEntry {
    One(Arc<Object>),
    Several(Box<Variants>),
}

/// Responses that left the shard in one step. They are dropped after the lock is released.
#[derive(Debug, Default)]
pub(crate) struct Left {
    // Dropping a response may free megabytes, which must not happen under the lock.
    entries: Vec<ShardEntry>,
    objects: Vec<Arc<Object>>,
    pub(crate) evicted_count: u64,
    pub(crate) evicted_bytes: u64,
}

impl StoreShard {
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        // The policy remembers recently evicted keys: half as many as objects of this size fit.
        Self::with_items((capacity_bytes / 2048).max(64) as usize, capacity_bytes)
    }

    fn with_items(items: usize, capacity_bytes: u64) -> Self {
        let options =
            OptionsBuilder::new().estimated_items_capacity(items).weight_capacity(capacity_bytes).build();
        let Ok(options) = options else { unreachable!("both numbers are given") };
        Self {
            objects: unsync::Cache::with_options(
                options,
                Weigher,
                BuildHasherDefault::default(),
                CountEvicted,
            ),
            flights: HashMap::new(),
            flights_count: 0,
            marks: Marks::default(),
            requests: 0,
            displaced: 0,
        }
    }

    /// An empty shard that is not in use.
    // Small, because most stores never need all shards.
    pub(crate) fn unused() -> Self {
        Self { marks: Marks::none(), ..Self::with_items(1, 1) }
    }

    /// Changes the capacity, and evicts the least used responses if necessary.
    pub(crate) fn set_capacity(&mut self, capacity_bytes: u64) {
        self.objects.set_capacity(capacity_bytes);
    }

    pub(crate) fn responses(&self) -> usize {
        self.objects.iter().map(|(_, entry)| entry.count()).sum()
    }

    /// Removes all stored responses and all fetches in progress.
    pub(crate) fn take_all(&mut self) -> (Vec<ShardEntry>, Vec<Arc<Flight>>) {
        self.flights_count = 0;
        let entries = self.objects.drain().map(|(_, entry)| entry).collect();
        (entries, self.flights.drain().flat_map(|(_, flights)| flights).collect())
    }

    /// Adds an entry from another shard.
    pub(crate) fn take_in(&mut self, entry: ShardEntry, left: &mut Left) {
        if let Some(key) = entry.key() {
            self.objects.insert_with_lifecycle(slot(key), entry, left);
        }
    }

    /// Adds a fetch from another shard.
    pub(crate) fn take_up(&mut self, flight: Arc<Flight>) {
        self.flights_count += 1;
        self.flights.entry(flight.key).or_default().push(flight);
    }

    /// Finds the variant that answers a request.
    #[inline]
    pub(crate) fn find(
        &self,
        key: CacheKey,
        variant_of: impl FnMut(&Vary) -> VariantKey,
    ) -> Option<&Arc<Object>> {
        self.objects.get(&slot(key))?.find(key, variant_of)
    }

    /// All responses under a key, the newest first; none of them counts as used.
    pub(crate) fn peek(&self, key: CacheKey) -> impl Iterator<Item = &Arc<Object>> {
        // `peek` and not `get`, which would count as a use and change what is evicted.
        let objects = self.objects.peek(&slot(key)).into_iter().flat_map(ShardEntry::objects);
        objects.filter(move |object| object.key() == key)
    }

    /// How many variants of a resource were evicted for others, since its entry was created.
    pub(crate) fn displaced(&self, key: CacheKey) -> u64 {
        match self.objects.peek(&slot(key)) {
            Some(ShardEntry::Several(variants)) => variants.displaced(),
            _ => 0,
        }
    }

    /// The memory limit for all variants of a resource.
    pub(crate) fn variants_bytes_max(&self) -> u64 {
        self.objects.capacity() / VARIANTS_SHARE
    }

    /// Stores a response, in place of the previous one of its variant.
    pub(crate) fn put(&mut self, object: &Arc<Object>) -> Left {
        let mut left = Left::default();
        let bytes_max = self.variants_bytes_max();
        let (before, mut gone) = (self.displaced, Vec::new());
        // The cache replaces an entry as a whole, so other variants are taken out and put back with the new one.
        let known =
            self.objects.peek_mut(&slot(object.key())).and_then(|mut entry| entry.take_several(object));
        let entry = match known {
            None => ShardEntry::One(object.clone()),
            Some(mut variants) => {
                let displaced = variants.displaced();
                variants.put(object.clone(), bytes_max, &mut gone);
                self.displaced += variants.displaced() - displaced;
                ShardEntry::Several(variants)
            }
        };
        let displaced = (self.displaced - before) as usize;
        left.evicted_count += displaced as u64;
        // A replaced response is first in the list, if there is one.
        left.evicted_bytes +=
            gone.iter().rev().take(displaced).map(|object| object.weight_bytes()).sum::<u64>();
        left.objects = gone;
        self.objects.insert_with_lifecycle(slot(object.key()), entry, &mut left);
        left
    }

    /// Counts memory that is kept beside a stored response for which `is_it` holds, and evicts others if necessary.
    pub(crate) fn grow(&mut self, key: CacheKey, is_it: impl Fn(&Object) -> bool, bytes: u64) {
        let Some(mut entry) = self.objects.peek_mut(&slot(key)) else { return };
        // Checks before the change, because the cache weighs a changed entry again.
        match &mut *entry {
            ShardEntry::One(object) if is_it(object) => object.add_weight(bytes),
            ShardEntry::One(_) => {}
            ShardEntry::Several(variants) => drop(variants.grow(is_it, bytes)),
        }
    }

    pub(crate) fn remove(&mut self, key: CacheKey) -> Option<ShardEntry> {
        self.objects.remove(&slot(key)).map(|(_, entry)| entry)
    }

    /// Removes a response, or a copy of it with the same metadata. Other variants stay. Returns whether another
    /// response has replaced it.
    pub(crate) fn withdraw(&mut self, old: &Object) -> (bool, Option<ShardEntry>) {
        let mut is_replaced = false;
        for object in self.peek(old.key()).filter(|object| object.is_same_variant(old)) {
            if object.stored() == old.stored() {
                object.purge(Force::Hard);
            }
            is_replaced |= !object.is_gone();
        }
        // Other variants of the resource may still be good.
        let is_over = self.peek(old.key()).all(|object| object.is_gone());
        (is_replaced, if is_over { self.remove(old.key()) } else { None })
    }

    /// Checks all responses, removes purged ones, and returns the epoch in which the oldest fetch in progress began.
    pub(crate) fn sweep(&mut self, mut judge: impl FnMut(&Object)) -> Option<u64> {
        let objects = self.objects.iter().flat_map(|(_, entry)| entry.objects());
        objects.for_each(|object| judge(object));
        self.objects.retain(|_, entry| entry.objects().any(|object| !object.is_gone()));
        self.flights.values().flatten().map(|flight| flight.epoch).min()
    }

    pub(crate) fn flights(&self, key: CacheKey) -> &[Arc<Flight>] {
        self.flights.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Adds a fetch, unless there are too many. Returns whether it was added.
    pub(crate) fn depart(&mut self, flight: &Arc<Flight>) -> bool {
        if self.flights_count >= FLIGHTS_MAX {
            return false;
        }
        self.flights_count += 1;
        self.flights.entry(flight.key).or_default().push(flight.clone());
        true
    }

    /// Removes a fetch that has ended, or that no client may join any more.
    pub(crate) fn land(&mut self, flight: &Arc<Flight>) {
        let Some(flights) = self.flights.get_mut(&flight.key) else { return };
        let before = flights.len();
        flights.retain(|other| !Arc::ptr_eq(other, flight));
        self.flights_count -= before - flights.len();
        if flights.is_empty() {
            self.flights.remove(&flight.key);
        }
    }

    /// Purges a key: stored responses and fetches in progress. Returns how many stored responses matched.
    pub(crate) fn purge(&mut self, key: CacheKey, force: Force) -> (usize, Option<ShardEntry>) {
        let flights = self.flights.remove(&key).unwrap_or_default();
        self.flights_count -= flights.len();
        // Separate requests are in no list: they compare this number before they store.
        self.marks.purged(key);
        // Their responses were asked for before the purge, and may be the old ones.
        flights.iter().for_each(|flight| flight.doom());
        let met = self.peek(key).inspect(|object| object.purge(force)).count();
        (met, if force == Force::Hard { self.remove(key) } else { None })
    }

    pub(crate) fn count(&self) -> usize {
        self.objects.len()
    }

    pub(crate) fn weight_bytes(&self) -> u64 {
        self.objects.weight()
    }
}

/// The half of a key for lookups in the shard; the other half selects the shard. A stored response has the whole key.
pub(crate) fn slot(key: CacheKey) -> u64 {
    key.as_u128() as u64
}

impl ShardEntry {
    pub(crate) fn key(&self) -> Option<CacheKey> {
        self.objects().next().map(|object| object.key())
    }

    /// The newest first.
    fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        let (one, several) = match self {
            Self::One(object) => (Some(object), None),
            Self::Several(variants) => (None, Some(variants)),
        };
        one.into_iter().chain(several.into_iter().flat_map(|variants| variants.iter()))
    }

    fn count(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Several(variants) => variants.len(),
        }
    }

    /// Takes the entry's other variants, to be put back together with the new response. `None` if there are none.
    fn take_several(&mut self, coming: &Object) -> Option<Box<Variants>> {
        match self {
            // Two keys may share the 64 bits of a slot. Then the later one replaces the earlier.
            Self::One(object) if object.key() != coming.key() => None,
            Self::One(object) if object.is_gone() || object.is_same_variant(coming) => None,
            Self::One(object) => {
                let mut variants = Box::<Variants>::default();
                variants.put(Arc::clone(object), u64::MAX, &mut Vec::new());
                Some(variants)
            }
            Self::Several(variants) => {
                let is_same = variants.iter().next().is_some_and(|object| object.key() == coming.key());
                is_same.then(|| std::mem::take(variants))
            }
        }
    }

    #[inline]
    fn find(&self, key: CacheKey, mut variant_of: impl FnMut(&Vary) -> VariantKey) -> Option<&Arc<Object>> {
        match self {
            Self::One(object) => {
                let is_found =
                    object.key() == key && object.variant() == variant_of(object.vary()) && !object.is_gone();
                is_found.then_some(object)
            }
            Self::Several(variants) => variants.find(key, variant_of),
        }
    }
}

#[derive(Debug, Clone)]
struct Weigher;

impl Weighter<u64, ShardEntry> for Weigher {
    fn weight(&self, _: &u64, entry: &ShardEntry) -> u64 {
        let objects_bytes = match entry {
            ShardEntry::One(object) => object.weight_bytes(),
            ShardEntry::Several(variants) => size_of::<Variants>() as u64 + variants.weight_bytes(),
        };
        // The index counts as well: with bodies of 128 bytes it is a large part of the memory.
        crate::store::object::INDEX_BYTES + objects_bytes
    }
}

#[derive(Debug, Clone)]
struct CountEvicted;

impl quick_cache::Lifecycle<u64, ShardEntry> for CountEvicted {
    type RequestState = Left;

    /// Unlike `on_evict`, not called for replaced entries.
    fn before_evict(&self, left: &mut Left, key: &u64, entry: &mut ShardEntry) {
        left.evicted_count += entry.count() as u64;
        left.evicted_bytes += Weigher.weight(key, entry);
    }

    fn on_evict(&self, left: &mut Left, _: u64, entry: ShardEntry) {
        left.entries.push(entry);
    }
}

/// A hasher for keys that are hashes already.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    // Never called for `u64`, but the trait requires it.
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0.rotate_left(8) ^ u64::from(byte));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}
