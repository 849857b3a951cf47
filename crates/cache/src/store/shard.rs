//! A shard of the store behind one lock: stored responses with their eviction policy, fetches in progress, and marks of
//! keys that cannot be stored.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use quick_cache::{OptionsBuilder, Weighter, unsync};

use crate::fill::flight::Flight;
use crate::key::Key;
use crate::purge::Force;
use crate::store::marks::Marks;
use crate::store::object::Object;
use crate::store::variants::Variants;
use crate::vary::{VariantKey, Vary};

/// The divisor of a shard's memory that gives the limit for all variants of a resource, which are evicted together.
const VARIANTS_SHARE: u64 = 2;

/// The most fetches in a shard. Further requests go to the origin alone.
const FLIGHTS_MAX: usize = 16 << 10;

pub(crate) struct Shard {
    objects: unsync::Cache<u64, Entry, Weigher, BuildHasherDefault<AsIs>, CountEvicted>,
    flights: HashMap<Key, Vec<Arc<Flight>>>,
    flights_count: usize,
    pub(crate) marks: Marks,
    /// The number of hits, and of misses that were stored.
    pub(crate) requests: u64,
    /// The number of variants evicted for other variants of their resource.
    pub(crate) displaced: u64,
}

/// The responses stored under one key.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    One(Arc<Object>),
    Several(Box<Variants>),
}

/// Responses that left the shard in one step. They are dropped after the lock is released.
#[derive(Debug, Default)]
pub(crate) struct Left {
    entries: Vec<Entry>,
    objects: Vec<Arc<Object>>,
    pub(crate) evicted_count: u64,
    pub(crate) evicted_bytes: u64,
}

impl Shard {
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        // For how many keys it is remembered that they were evicted of late: half as many as there are objects of this
        // size.
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
    pub(crate) fn unused() -> Self {
        Self { marks: Marks::none(), ..Self::with_items(1, 1) }
    }

    /// Changes the capacity, and evicts the least used responses if necessary.
    pub(crate) fn set_capacity(&mut self, capacity_bytes: u64) {
        self.objects.set_capacity(capacity_bytes);
    }

    /// The number of stored responses.
    pub(crate) fn responses(&self) -> usize {
        self.objects.iter().map(|(_, entry)| entry.count()).sum()
    }

    /// Removes all stored responses and all fetches in progress.
    pub(crate) fn take_all(&mut self) -> (Vec<Entry>, Vec<Arc<Flight>>) {
        self.flights_count = 0;
        let entries = self.objects.drain().map(|(_, entry)| entry).collect();
        (entries, self.flights.drain().flat_map(|(_, flights)| flights).collect())
    }

    /// Adds an entry from another shard.
    pub(crate) fn take_in(&mut self, entry: Entry, left: &mut Left) {
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
    pub(crate) fn find(&self, key: Key, variant_of: impl FnMut(&Vary) -> VariantKey) -> Option<&Arc<Object>> {
        self.objects.get(&slot(key))?.find(key, variant_of)
    }

    /// All responses under a key, the newest first; none of them counts as used.
    pub(crate) fn peek(&self, key: Key) -> impl Iterator<Item = &Arc<Object>> {
        let objects = self.objects.peek(&slot(key)).into_iter().flat_map(Entry::objects);
        objects.filter(move |object| object.key() == key)
    }

    /// How many variants of a resource were evicted for others, since its entry was created.
    pub(crate) fn displaced(&self, key: Key) -> u64 {
        match self.objects.peek(&slot(key)) {
            Some(Entry::Several(variants)) => variants.displaced(),
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
        let known =
            self.objects.peek_mut(&slot(object.key())).and_then(|mut entry| entry.take_several(object));
        let entry = match known {
            None => Entry::One(object.clone()),
            Some(mut variants) => {
                let displaced = variants.displaced();
                variants.put(object.clone(), bytes_max, &mut gone);
                self.displaced += variants.displaced() - displaced;
                Entry::Several(variants)
            }
        };
        let displaced = (self.displaced - before) as usize;
        left.evicted_count += displaced as u64;
        // What was only replaced comes first, if it is among them.
        left.evicted_bytes +=
            gone.iter().rev().take(displaced).map(|object| object.weight_bytes()).sum::<u64>();
        left.objects = gone;
        self.objects.insert_with_lifecycle(slot(object.key()), entry, &mut left);
        left
    }

    /// Counts memory that is kept beside a stored response for which `is_it` holds, and evicts others if necessary.
    pub(crate) fn grow(&mut self, key: Key, is_it: impl Fn(&Object) -> bool, bytes: u64) {
        let Some(mut entry) = self.objects.peek_mut(&slot(key)) else { return };
        // Looked at first: what is changed is weighed anew.
        match &mut *entry {
            Entry::One(object) if is_it(object) => object.add_weight(bytes),
            Entry::One(_) => {}
            Entry::Several(variants) => drop(variants.grow(is_it, bytes)),
        }
    }

    /// Removes all responses under a key.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Entry> {
        self.objects.remove(&slot(key)).map(|(_, entry)| entry)
    }

    /// Checks all responses, removes purged ones, and returns the epoch in which the oldest fetch in progress began.
    pub(crate) fn sweep(&mut self, mut judge: impl FnMut(&Object)) -> Option<u64> {
        let objects = self.objects.iter().flat_map(|(_, entry)| entry.objects());
        objects.for_each(|object| judge(object));
        self.objects.retain(|_, entry| entry.objects().any(|object| !object.is_gone()));
        self.flights.values().flatten().map(|flight| flight.epoch).min()
    }

    pub(crate) fn flights(&self, key: Key) -> &[Arc<Flight>] {
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

    /// Removes a fetch that has ended, or that nobody may join any more.
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
    pub(crate) fn purge(&mut self, key: Key, force: Force) -> (usize, Option<Entry>) {
        let flights = self.flights.remove(&key).unwrap_or_default();
        self.flights_count -= flights.len();
        self.marks.purged(key);
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

/// The half of a key for look-ups in the shard; the other half selects the shard. A stored response has the whole key.
pub(crate) fn slot(key: Key) -> u64 {
    key.as_u128() as u64
}

impl Entry {
    pub(crate) fn key(&self) -> Option<Key> {
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

    /// Takes the entry's other variants, to be put back together with the new response; `None` if there are none.
    fn take_several(&mut self, coming: &Object) -> Option<Box<Variants>> {
        match self {
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
    fn find(&self, key: Key, mut variant_of: impl FnMut(&Vary) -> VariantKey) -> Option<&Arc<Object>> {
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

impl Weighter<u64, Entry> for Weigher {
    fn weight(&self, _: &u64, entry: &Entry) -> u64 {
        let objects_bytes = match entry {
            Entry::One(object) => object.weight_bytes(),
            Entry::Several(variants) => size_of::<Variants>() as u64 + variants.weight_bytes(),
        };
        crate::store::object::INDEX_BYTES + objects_bytes
    }
}

#[derive(Debug, Clone)]
struct CountEvicted;

impl quick_cache::Lifecycle<u64, Entry> for CountEvicted {
    type RequestState = Left;

    /// Unlike `on_evict`, not called for what is replaced.
    fn before_evict(&self, left: &mut Left, key: &u64, entry: &mut Entry) {
        left.evicted_count += entry.count() as u64;
        left.evicted_bytes += Weigher.weight(key, entry);
    }

    fn on_evict(&self, left: &mut Left, _: u64, entry: Entry) {
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

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0.rotate_left(8) ^ u64::from(byte));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}
