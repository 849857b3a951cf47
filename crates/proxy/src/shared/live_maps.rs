//! Maps of the configuration with operators' changes, shared by all workers.
//!
//! A change builds a new snapshot of one map, which the next look-up of every worker uses. Look-ups take no lock.

/// Changes that all instances make.
mod sharing;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};
use config::{Config, Map};
use expression::Value;
use maps::{
    EntryFault, FileFault, FileFormat, MapChange, MapShape, MapSnapshot, MapTable, MapValue, TableBuilder,
};
use mistake::nearest;
use route::MapLookup;
use serde::{Deserialize, Serialize};

pub use sharing::{SharedBase, SharedChange, SharedState};

/// The most entries of one map that differ from its file. More changes replace the whole map.
pub const CHANGES_MAX: usize = 200_000;
/// Counters of each map. Workers with different numbers use different ones, so that they do not contend for memory.
const SHARDS: usize = 16;
/// The most bytes of keys and values in one message of a handover.
const HANDOVER_BYTES_MAX: usize = 8 * 1024;

/// The maps of a plan.
#[derive(Debug)]
pub struct LiveMaps {
    /// In the order of the configuration.
    snapshots: ArcSwap<Vec<MapSnapshot>>,
    counters: Vec<Arc<MapCounters>>,
    states: Mutex<Vec<MapState>>,
}

/// Look-ups of a map since the start.
#[derive(Debug, Default)]
struct MapCounters([MapShard; SHARDS]);

#[derive(Debug, Default)]
#[repr(align(128))]
struct MapShard {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl MapCounters {
    /// Hits and misses of all workers.
    fn sums(&self) -> [u64; 2] {
        self.0.iter().fold([0, 0], |[hits, misses], shard| {
            [hits + shard.hits.load(Ordering::Relaxed), misses + shard.misses.load(Ordering::Relaxed)]
        })
    }
}

/// A map as configured, and what operators have changed since.
#[derive(Debug, Clone)]
struct MapState {
    map: Map,
    /// The entries of configuration and file, as last read.
    table: Arc<MapTable>,
    /// The entries that replace those.
    replacement: Option<Arc<MapTable>>,
    changes: BTreeMap<String, ChangedEntry>,
    /// The generation of the state that instances share, of their last replacement or reset.
    generation: Option<String>,
}

/// An entry as an operator has changed it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ChangedEntry {
    /// `None` if the entry is deleted.
    value: Option<MapValue>,
    ends_ms: Option<u64>,
    origin: ChangeOrigin,
}

/// Whether a change was made on this instance alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
enum ChangeOrigin {
    #[default]
    Here,
    /// By all instances that share their maps.
    Shared,
}

/// Why a change of a map is refused. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum MapRefusal {
    #[error("no map is named {name:?}; {known}")]
    NoMap { name: String, known: String },
    #[error("{key}: {fault}")]
    Entry { key: String, fault: EntryFault },
    #[error("{0}")]
    File(#[from] FileFault),
    #[error("{0}")]
    Table(EntryFault),
    #[error("more than {CHANGES_MAX} entries differ from the file: replace the map instead")]
    TooMany,
}

/// A map, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapStatus {
    pub name: String,
    pub kind: &'static str,
    /// The type of the values, or `set`.
    pub values: &'static str,
    pub entry_count: usize,
    pub memory_bytes: usize,
    pub hits: u64,
    pub misses: u64,
    /// Entries that no look-up has found.
    pub unused_count: usize,
    /// Entries that differ from the file by commands.
    pub changed_count: usize,
    /// Whether a command has replaced all entries.
    pub is_replaced: bool,
}

/// Changes of a map, for the next process. Large maps take several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapHandover {
    map: String,
    /// Whether these entries belong to a replacement of all entries. Otherwise they are changes.
    is_replacement: bool,
    entries: Vec<EntryHandover>,
    #[serde(default)]
    generation: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct EntryHandover {
    key: String,
    /// `None` if the entry is deleted.
    value: Option<String>,
    ends_ms: Option<u64>,
    #[serde(default)]
    origin: ChangeOrigin,
}

impl LiveMaps {
    /// The maps of a configuration. Changes of maps that `previous` has under the same name stay.
    pub(crate) fn new(config: &Config, previous: Option<&Self>) -> Self {
        let before = previous.map(|previous| {
            (previous.states().clone(), previous.snapshots.load_full(), previous.counters.as_slice())
        });
        let mut snapshots = Vec::with_capacity(config.maps.len());
        let (mut counters, mut states) = (Vec::new(), Vec::new());
        for map in &config.maps {
            let found = before.as_ref().and_then(|(states, snapshots, counters)| {
                let place = states.iter().position(|state| state.map.name == map.name)?;
                Some((states.get(place)?, snapshots.get(place)?, counters.get(place)?))
            });
            counters.push(found.map(|(.., counters)| Arc::clone(counters)).unwrap_or_default());
            match found {
                // Its file may have changed since the configuration was read.
                Some((state, snapshot, _)) if state.map == *map => {
                    states.push(state.clone());
                    snapshots.push(snapshot.clone());
                }
                Some((state, ..)) if state.table.shape() == map.table.shape() => {
                    let state = MapState { map: map.clone(), table: Arc::clone(&map.table), ..state.clone() };
                    snapshots.push(state.snapshot());
                    states.push(state);
                }
                _ => {
                    let state = MapState::new(map);
                    snapshots.push(state.snapshot());
                    states.push(state);
                }
            }
        }
        Self { snapshots: ArcSwap::from_pointee(snapshots), counters, states: Mutex::new(states) }
    }

    /// The maps for evaluations on one worker.
    #[inline]
    pub(crate) fn view(&self, worker: usize, now_ms: u64) -> MapsView<'_> {
        MapsView { snapshots: self.snapshots.load(), counters: &self.counters, worker, now_ms }
    }

    /// The maps for explanations: look-ups are not counted.
    pub fn peek(&self, now_ms: u64) -> impl MapLookup {
        MapsPeek { snapshots: self.snapshots.load_full(), now_ms }
    }

    /// Changes entries of a map. Returns the number of changes.
    ///
    /// # Errors
    /// An unknown map, an invalid entry, or too many changes.
    pub fn change(&self, name: &str, changes: &[MapChange], now_ms: u64) -> Result<usize, MapRefusal> {
        let mut states = self.states();
        let place = place(&states, name)?;
        let (next, keys) = self.prepared(&mut states, place, changes, now_ms)?;
        states[place].record(keys.into_iter().zip(changes), ChangeOrigin::Here);
        self.put(place, next);
        Ok(changes.len())
    }

    /// The snapshot of a map after changes, and their keys in normal form. Changes nothing.
    fn prepared(
        &self,
        states: &mut [MapState],
        place: usize,
        changes: &[MapChange],
        now_ms: u64,
    ) -> Result<(MapSnapshot, Vec<String>), MapRefusal> {
        let next = self.snapshots.load()[place].with_changes(changes, now_ms);
        let next = next.map_err(|(place, fault)| {
            let key = changes.get(place).map(|change| change.key().to_owned()).unwrap_or_default();
            MapRefusal::Entry { key, fault }
        })?;
        let state = &mut states[place];
        let normal = |change: &MapChange| state.table.normal_key(change.key()).map_err(MapRefusal::Table);
        let keys: Vec<String> = changes.iter().map(normal).collect::<Result<_, _>>()?;
        state.changes.retain(|_, entry| entry.ends_ms.is_none_or(|end| end > now_ms));
        let new_count = keys.iter().filter(|key| !state.changes.contains_key(*key)).count();
        if state.changes.len() + new_count > CHANGES_MAX {
            return Err(MapRefusal::TooMany);
        }
        Ok((next, keys))
    }

    /// Replaces all entries of a map by those of a text. Returns their number.
    ///
    /// # Errors
    /// An unknown map, or a mistake in the text.
    pub fn replace(&self, name: &str, text: &[u8]) -> Result<usize, MapRefusal> {
        let table = self.replacement(name, text)?;
        let entry_count = table.len();
        self.update(name, |state| {
            state.replacement = Some(table);
            state.changes.clear();
        })?;
        Ok(entry_count)
    }

    /// Reads the entries of a text for a map. Changes nothing.
    fn replacement(&self, name: &str, text: &[u8]) -> Result<Arc<MapTable>, MapRefusal> {
        let shape = self.with_map(name, MapSnapshot::shape)?;
        // Without the lock: a large text takes long.
        let mut builder = TableBuilder::new(shape);
        let format = if shape.values.is_none() { FileFormat::Keys } else { FileFormat::Pairs };
        format.read(text, &mut builder)?;
        builder.build().map(Arc::new).map_err(MapRefusal::Table)
    }

    /// Drops all changes of a map. Returns the number of its entries.
    ///
    /// # Errors
    /// An unknown map.
    pub fn reset(&self, name: &str) -> Result<usize, MapRefusal> {
        self.update(name, |state| {
            state.replacement = None;
            state.changes.clear();
        })
    }

    /// Puts entries that were read again into a map. A map of another shape stays unchanged.
    pub fn reread(&self, name: &str, table: MapTable) {
        // The configuration may have lost the map meanwhile.
        let _ = self.update(name, |state| {
            if state.table.shape() == table.shape() {
                state.table = Arc::new(table);
            }
        });
    }

    /// Changes the state of a map. Returns the number of its entries.
    fn update(&self, name: &str, change: impl FnOnce(&mut MapState)) -> Result<usize, MapRefusal> {
        let mut states = self.states();
        let place = place(&states, name)?;
        change(&mut states[place]);
        let snapshot = states[place].snapshot();
        let entry_count = snapshot.len();
        self.put(place, snapshot);
        Ok(entry_count)
    }

    /// Puts a snapshot in force. The caller holds the lock of the states.
    fn put(&self, place: usize, snapshot: MapSnapshot) {
        let mut snapshots = Vec::clone(&self.snapshots.load());
        snapshots[place] = snapshot;
        self.snapshots.store(Arc::new(snapshots));
    }

    /// The maps with files: their names, and what reads them again.
    pub fn with_files(&self) -> Vec<Map> {
        let states = self.states();
        states.iter().filter(|state| state.map.file.is_some()).map(|state| state.map.clone()).collect()
    }

    /// The state of each map.
    pub fn statuses(&self, now_ms: u64) -> Vec<MapStatus> {
        let snapshots = self.snapshots.load();
        let states = self.states();
        let status = |((state, snapshot), counters): ((&MapState, &MapSnapshot), &Arc<MapCounters>)| {
            let [hits, misses] = counters.sums();
            let (mut entry_count, mut unused_count) = (0, 0);
            for entry in snapshot.entries(now_ms) {
                entry_count += 1;
                unused_count += usize::from(!entry.is_found);
            }
            let is_in_force = |entry: &&ChangedEntry| entry.ends_ms.is_none_or(|end| end > now_ms);
            MapStatus {
                name: state.map.name.clone(),
                kind: state.table.shape().kind.word(),
                values: state.table.shape().values_word(),
                entry_count,
                memory_bytes: snapshot.memory_bytes(),
                hits,
                misses,
                unused_count,
                changed_count: state.changes.values().filter(is_in_force).count(),
                is_replaced: state.replacement.is_some(),
            }
        };
        states.iter().zip(&**snapshots).zip(&self.counters).map(status).collect()
    }

    /// Hits, misses and entries of each map, for metrics.
    pub fn samples(&self) -> Vec<(String, [u64; 3])> {
        let snapshots = self.snapshots.load();
        let states = self.states();
        let sample = |((state, snapshot), counters): ((&MapState, &MapSnapshot), &Arc<MapCounters>)| {
            let [hits, misses] = counters.sums();
            (state.map.name.clone(), [hits, misses, snapshot.len() as u64])
        };
        states.iter().zip(&**snapshots).zip(&self.counters).map(sample).collect()
    }

    /// Calls `then` with a map as it is in force.
    ///
    /// # Errors
    /// An unknown map.
    pub fn with_map<R>(&self, name: &str, then: impl FnOnce(&MapSnapshot) -> R) -> Result<R, MapRefusal> {
        let place = place(&self.states(), name)?;
        Ok(then(&self.snapshots.load()[place]))
    }

    /// All changes, for the next process.
    pub fn handover(&self, now_ms: u64) -> Vec<MapHandover> {
        let mut parts = Vec::new();
        for state in self.states().iter() {
            let shape = state.table.shape();
            if let Some(replacement) = &state.replacement {
                let entries = replacement.entries().map(|entry| EntryHandover {
                    key: entry.key.into_owned(),
                    value: Some(readable(shape, entry.value)),
                    ends_ms: entry.ends_ms,
                    origin: ChangeOrigin::default(),
                });
                in_parts(state, true, entries, &mut parts);
            }
            let kept = state.changes.iter().filter(|(_, entry)| entry.ends_ms.is_none_or(|end| end > now_ms));
            let entries = kept.map(|(key, entry)| EntryHandover {
                key: key.clone(),
                value: entry.value.as_ref().map(|value| readable(shape, value.as_value())),
                ends_ms: entry.ends_ms,
                origin: entry.origin,
            });
            in_parts(state, false, entries, &mut parts);
        }
        parts
    }

    /// Takes over the changes of the previous process. Changes that no longer fit their map are dropped, and returned with
    /// the reason.
    pub fn inherit(&self, parts: Vec<MapHandover>, now_ms: u64) -> Vec<String> {
        let mut dropped = Vec::new();
        let mut by_map: BTreeMap<String, Vec<MapHandover>> = BTreeMap::new();
        parts.into_iter().for_each(|part| by_map.entry(part.map.clone()).or_default().push(part));
        for (name, parts) in by_map {
            let taken = self.inherit_map(&name, parts, now_ms);
            dropped
                .extend(taken.err().map(|refusal| format!("changes of map.{name} are dropped: {refusal}")));
        }
        dropped
    }

    fn inherit_map(&self, name: &str, parts: Vec<MapHandover>, now_ms: u64) -> Result<(), MapRefusal> {
        let shape = self.with_map(name, MapSnapshot::shape)?;
        let generation = parts.first().and_then(|part| part.generation.clone());
        self.update(name, |state| state.generation = generation)?;
        let (replacement, changes): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|part| part.is_replacement);
        let fault = |key: &str, fault| MapRefusal::Entry { key: key.to_owned(), fault };
        if !replacement.is_empty() {
            let mut builder = TableBuilder::new(shape);
            for EntryHandover { key, value, ends_ms, .. } in replacement.iter().flat_map(|part| &part.entries)
            {
                let value = shape.value(value.as_deref().unwrap_or_default());
                let value = value.map_err(|found| fault(key, found))?;
                builder.insert(key, &value, *ends_ms).map_err(|found| fault(key, found))?;
            }
            let table = Arc::new(builder.build().map_err(MapRefusal::Table)?);
            self.update(name, |state| state.replacement = Some(table))?;
        }
        let (mut all, mut shared) = (Vec::new(), Vec::new());
        for EntryHandover { key, value, ends_ms, origin } in changes.into_iter().flat_map(|part| part.entries)
        {
            if origin == ChangeOrigin::Shared {
                shared.push(key.clone());
            }
            all.push(match value {
                None => MapChange::Delete { key },
                Some(value) => {
                    let value = shape.value(&value).map_err(|found| fault(&key, found))?;
                    MapChange::Set { key, value, ends_ms }
                }
            });
        }
        self.change(name, &all, now_ms)?;
        self.mark_shared(name, &shared)
    }

    /// No holder of the lock panics halfway through a change.
    fn states(&self) -> MutexGuard<'_, Vec<MapState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a map.
fn place(states: &[MapState], name: &str) -> Result<usize, MapRefusal> {
    let names = || states.iter().map(|state| state.map.name.as_str());
    names().position(|known| known == name).ok_or_else(|| {
        let known = match nearest(name, names()) {
            Some(near) => format!("did you mean {near:?}?"),
            None if states.is_empty() => "the configuration has no [map.NAME]".to_owned(),
            None => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
        };
        MapRefusal::NoMap { name: name.to_owned(), known }
    })
}

/// A value as it is read again.
pub fn written(value: Value<'_>) -> String {
    match value {
        Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Duration(nanoseconds) => expression::written_duration(nanoseconds),
        // The value of every key in a set.
        Value::Boolean(true) => "true".to_owned(),
        other => other.to_string(),
    }
}

/// A value as the shape of its map reads it: the keys of a set have none.
fn readable(shape: MapShape, value: Value<'_>) -> String {
    if shape.values.is_none() { String::new() } else { written(value) }
}

fn in_parts(
    state: &MapState,
    is_replacement: bool,
    entries: impl Iterator<Item = EntryHandover>,
    parts: &mut Vec<MapHandover>,
) {
    let part = |entries| MapHandover {
        map: state.map.name.clone(),
        is_replacement,
        entries,
        generation: state.generation.clone(),
    };
    let (mut open, mut open_bytes) = (Vec::new(), 0);
    for entry in entries {
        // Escapes take up to six bytes per byte; a longer entry has a part of its own.
        let bytes = 96 + 2 * (entry.key.len() + entry.value.as_ref().map_or(0, String::len));
        if open_bytes + bytes > HANDOVER_BYTES_MAX && !open.is_empty() {
            parts.push(part(std::mem::take(&mut open)));
            open_bytes = 0;
        }
        open_bytes += bytes;
        open.push(entry);
    }
    // An empty replacement is one, too, and a generation counts without changes.
    if !open.is_empty() || is_replacement || state.generation.is_some() {
        parts.push(part(open));
    }
}

impl MapState {
    fn new(map: &Map) -> Self {
        let table = Arc::clone(&map.table);
        Self { map: map.clone(), table, replacement: None, changes: BTreeMap::new(), generation: None }
    }

    /// The entries under the changes.
    fn base(&self) -> &Arc<MapTable> {
        self.replacement.as_ref().unwrap_or(&self.table)
    }

    /// Records changes, with their keys in normal form.
    fn record<'c>(
        &mut self,
        changes: impl IntoIterator<Item = (String, &'c MapChange)>,
        origin: ChangeOrigin,
    ) {
        for (key, change) in changes {
            match change {
                MapChange::Set { value, ends_ms, .. } => {
                    let entry = ChangedEntry { value: Some(value.clone()), ends_ms: *ends_ms, origin };
                    self.changes.insert(key, entry);
                }
                // The files of other instances may have the entry already.
                MapChange::Delete { .. } if origin == ChangeOrigin::Shared || self.base().has(&key) => {
                    self.changes.insert(key, ChangedEntry { value: None, ends_ms: None, origin });
                }
                // Otherwise lists of bans, where entries come and go, would grow for ever.
                MapChange::Delete { .. } => drop(self.changes.remove(&key)),
            }
        }
    }

    /// The map as it is in force.
    fn snapshot(&self) -> MapSnapshot {
        let snapshot = MapSnapshot::new(Arc::clone(self.base()));
        if self.changes.is_empty() {
            return snapshot;
        }
        let change = |(key, entry): (&String, &ChangedEntry)| match entry {
            ChangedEntry { value: Some(value), ends_ms, .. } => {
                MapChange::Set { key: key.clone(), value: value.clone(), ends_ms: *ends_ms }
            }
            ChangedEntry { value: None, .. } => MapChange::Delete { key: key.clone() },
        };
        let changes: Vec<MapChange> = self.changes.iter().map(change).collect();
        // The changes were valid for this shape before. Only the number of entries may be too large together.
        snapshot.with_changes(&changes, 0).unwrap_or(snapshot)
    }
}

/// The maps as they are in force during one evaluation.
pub(crate) struct MapsView<'a> {
    snapshots: Guard<Arc<Vec<MapSnapshot>>>,
    counters: &'a [Arc<MapCounters>],
    worker: usize,
    now_ms: u64,
}

impl MapLookup for MapsView<'_> {
    fn lookup(&self, map: u16, key: Value<'_>) -> Option<Value<'_>> {
        let map = usize::from(map);
        let found = self.snapshots.get(map)?.lookup(key, self.now_ms);
        if let Some(counters) = self.counters.get(map) {
            let shard = &counters.0[self.worker % SHARDS];
            let counter = if found.is_some() { &shard.hits } else { &shard.misses };
            counter.fetch_add(1, Ordering::Relaxed);
        }
        found
    }
}

struct MapsPeek {
    snapshots: Arc<Vec<MapSnapshot>>,
    now_ms: u64,
}

impl MapLookup for MapsPeek {
    fn lookup(&self, map: u16, key: Value<'_>) -> Option<Value<'_>> {
        self.snapshots.get(usize::from(map))?.peek(key, self.now_ms)
    }
}
