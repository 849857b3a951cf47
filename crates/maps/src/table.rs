//! Immutable tables.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use expression::Value;
use regex::bytes::Regex;

use crate::fault::EntryFault;
use crate::index::{ExactKeys, Found, Index, pattern};
use crate::nested::{Direction, NestedTexts};
use crate::networks::{self, NetworksBuilder};
use crate::shape::{KEY_BYTES_MAX, MapKind, MapShape, MapValue, PATTERNS_MAX};
use crate::texts::Texts;
use crate::values::{Values, ValuesBuilder};

/// The most entries of one map.
pub const ENTRIES_MAX: usize = 4_000_000;

/// An immutable table of entries. Lookups only set bits in it: which entries were found.
#[derive(Debug)]
pub struct MapTable {
    shape: MapShape,
    /// Keys; empty for networks.
    keys: Texts,
    index: Index,
    values: Values,
    /// When each entry ends, in milliseconds since 1970. Empty if no entry ends.
    ends: Box<[u64]>,
    /// A bit per entry: whether it was found.
    found: Box<[AtomicU64]>,
    entry_count: usize,
}

/// An entry, for listings and for the next table.
#[derive(Debug, Clone, PartialEq)]
pub struct MapEntry<'a> {
    pub key: Cow<'a, str>,
    pub value: Value<'a>,
    /// When the entry ends, in milliseconds since 1970.
    pub ends_ms: Option<u64>,
    /// Whether a lookup has found the entry.
    pub is_found: bool,
}

/// Collects the entries of a table.
#[derive(Debug)]
pub struct TableBuilder {
    shape: MapShape,
    keys: Texts,
    exact: ExactKeys,
    networks: NetworksBuilder,
    patterns: Vec<Regex>,
    values: ValuesBuilder,
    ends: Vec<u64>,
    found: Vec<u32>,
    entry_count: usize,
}

impl TableBuilder {
    pub fn new(shape: MapShape) -> Self {
        Self {
            shape,
            keys: Texts::default(),
            exact: ExactKeys::default(),
            networks: NetworksBuilder::default(),
            patterns: Vec::new(),
            values: ValuesBuilder::new(shape.values),
            ends: Vec::new(),
            found: Vec::new(),
            entry_count: 0,
        }
    }

    pub fn shape(&self) -> MapShape {
        self.shape
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// An invalid key or value, a key with two different values, or too many entries. Repeated prefixes, hosts and networks
    /// are noticed by [`TableBuilder::build`].
    pub fn add(&mut self, key: &str, value: &str) -> Result<(), EntryFault> {
        self.insert(key, &self.shape.value(value)?, None)
    }

    /// Adds an entry that may end, in milliseconds since 1970.
    ///
    /// # Errors
    /// Those of [`TableBuilder::add`].
    pub fn insert(&mut self, key: &str, value: &MapValue, ends_ms: Option<u64>) -> Result<(), EntryFault> {
        let entry = self.entry_count as u32;
        if self.entry_count >= ENTRIES_MAX {
            return Err(EntryFault::TooMany);
        }
        match self.shape.kind {
            MapKind::Network => self.networks.push(networks::parse(key)?, entry),
            kind => {
                let key = normal_key(kind, key)?;
                let known = match kind {
                    MapKind::Exact => self.exact.entry(&self.keys, key.as_bytes()),
                    MapKind::Regex => (0..entry).find(|known| self.keys.text(*known) == key.as_bytes()),
                    _ => None,
                };
                if let Some(known) = known {
                    return match self.values.values().value(known) == value.as_value() {
                        true => Ok(()),
                        false => Err(EntryFault::Twice(key.into_owned())),
                    };
                }
                if kind == MapKind::Regex {
                    if self.patterns.len() >= PATTERNS_MAX {
                        return Err(EntryFault::TooManyPatterns);
                    }
                    self.patterns.push(pattern(&key)?);
                }
                self.keys.push(key.as_bytes()).ok_or(EntryFault::TooLarge)?;
                if kind == MapKind::Exact {
                    self.exact.insert(&self.keys, entry);
                }
            }
        }
        self.values.push(value)?;
        if ends_ms.is_some() && self.ends.is_empty() {
            self.ends.resize(self.entry_count, u64::MAX);
        }
        if ends_ms.is_some() || !self.ends.is_empty() {
            self.ends.push(ends_ms.unwrap_or(u64::MAX));
        }
        self.entry_count += 1;
        Ok(())
    }

    /// Marks the entry that was added last as found.
    pub(crate) fn mark_found(&mut self) {
        self.found.extend(self.entry_count.checked_sub(1).map(|entry| entry as u32));
    }

    /// Builds the table.
    ///
    /// # Errors
    /// A key with two different values.
    pub fn build(self) -> Result<MapTable, EntryFault> {
        let Self { shape, mut keys, mut exact, networks, patterns, values, ends, found, entry_count } = self;
        keys.shrink();
        let values = values.build();
        let differ = |one: u32, other: u32| values.value(one) != values.value(other);
        let nested = |direction: Direction| {
            let nested = NestedTexts::new(direction, &keys, differ);
            let key = |entry: u32| String::from_utf8_lossy(keys.text(entry)).into_owned();
            nested.map(Index::Nested).map_err(|entry| EntryFault::Twice(key(entry)))
        };
        let index = match shape.kind {
            MapKind::Exact => {
                exact.shrink(&keys);
                Index::Exact(exact)
            }
            MapKind::Prefix => nested(Direction::FromStart)?,
            MapKind::Suffix => nested(Direction::FromEnd)?,
            MapKind::Network => Index::Networks(networks.build(differ).map_err(EntryFault::Twice)?),
            MapKind::Regex => Index::Patterns(patterns.into()),
        };
        let marks: Box<[AtomicU64]> = (0..entry_count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let table = MapTable { shape, keys, index, values, ends: ends.into(), found: marks, entry_count };
        found.into_iter().for_each(|entry| table.mark(entry));
        Ok(table)
    }
}

/// A key as it is compared: hosts in lower case, without a final dot.
pub(crate) fn normal_key(kind: MapKind, key: &str) -> Result<Cow<'_, str>, EntryFault> {
    if key.is_empty() {
        return Err(EntryFault::EmptyKey);
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(EntryFault::LongKey(key.len()));
    }
    match kind {
        MapKind::Network => Ok(networks::parse(key)?.to_string().into()),
        MapKind::Suffix => {
            let host = key.strip_suffix('.').unwrap_or(key);
            let name = host.strip_prefix("*.").unwrap_or(host);
            let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte);
            let has_labels = name.split('.').all(|label| !label.is_empty());
            if !has_labels || !name.bytes().all(is_host) {
                return Err(EntryFault::Host(key.to_owned()));
            }
            Ok(host.to_ascii_lowercase().into())
        }
        MapKind::Exact | MapKind::Prefix | MapKind::Regex => Ok(key.into()),
    }
}

impl MapTable {
    /// A table without entries.
    pub fn empty(shape: MapShape) -> Self {
        TableBuilder::new(shape).build().unwrap_or_else(|_| unreachable!("no entry can be wrong"))
    }

    pub fn shape(&self) -> MapShape {
        self.shape
    }

    /// A key in the form in which it is compared.
    ///
    /// # Errors
    /// An invalid key.
    pub fn normal_key(&self, key: &str) -> Result<String, EntryFault> {
        normal_key(self.shape.kind, key).map(Cow::into_owned)
    }

    /// Whether there is an entry with exactly this key, in its normal form.
    pub fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// The number of entries, including those that have ended.
    pub fn len(&self) -> usize {
        match &self.index {
            Index::Nested(nested) => nested.entries().len(),
            Index::Networks(networks) => networks.len(),
            Index::Exact(_) | Index::Patterns(_) => self.entry_count,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entry_count == 0
    }

    /// The bytes of memory that the table takes.
    pub fn memory_bytes(&self) -> usize {
        let marks = 8 * (self.ends.len() + self.found.len());
        self.keys.memory_bytes() + self.index.memory_bytes() + self.values.memory_bytes() + marks
    }

    /// All entries, in the order of their kind.
    pub fn entries(&self) -> impl Iterator<Item = MapEntry<'_>> {
        self.numbered().map(|(_, entry)| entry)
    }

    /// The values of all entries, each once.
    pub fn distinct_values(&self) -> impl Iterator<Item = Value<'_>> {
        self.values.distinct()
    }

    /// All entries with their numbers.
    pub(crate) fn numbered(&self) -> Box<dyn Iterator<Item = (u32, MapEntry<'_>)> + '_> {
        let text = |entry: u32| String::from_utf8_lossy(self.keys.text(entry));
        let listed = move |entry: u32| (entry, self.listed(text(entry), entry));
        match &self.index {
            Index::Nested(nested) => Box::new(nested.entries().iter().copied().map(listed)),
            Index::Networks(networks) => Box::new(
                networks
                    .all()
                    .map(|(network, entry)| (entry, self.listed(network.to_string().into(), entry))),
            ),
            Index::Exact(_) | Index::Patterns(_) => Box::new((0..self.entry_count as u32).map(listed)),
        }
    }

    fn listed<'a>(&'a self, key: Cow<'a, str>, entry: u32) -> MapEntry<'a> {
        let ends_ms = self.ends.get(entry as usize).copied().filter(|end| *end != u64::MAX);
        MapEntry { key, value: self.values.value(entry), ends_ms, is_found: self.is_found(entry) }
    }

    /// The entry for a key that is in force and that `is_hidden` does not exclude.
    #[inline]
    pub(crate) fn find(&self, key: Value<'_>, now_ms: u64, is_hidden: impl Fn(u32) -> bool) -> Option<Found> {
        self.index.find(&self.keys, key, |entry| !self.has_ended(entry, now_ms) && !is_hidden(entry))
    }

    /// The value for a key, without marking its entry as found.
    pub fn peek(&self, key: Value<'_>, now_ms: u64) -> Option<Value<'_>> {
        let found = self.find(key, now_ms, |_| false)?;
        Some(self.values.value(found.entry))
    }

    /// The value of an entry, without marking it as found.
    pub(crate) fn peek_value(&self, entry: u32) -> Value<'_> {
        self.values.value(entry)
    }

    /// The value of an entry, which is marked as found.
    #[inline]
    pub(crate) fn value(&self, entry: u32) -> Value<'_> {
        self.mark(entry);
        self.values.value(entry)
    }

    /// The entry with exactly this key, in its normal form.
    pub(crate) fn entry(&self, key: &str) -> Option<u32> {
        self.index.entry(&self.keys, key)
    }

    #[inline]
    pub(crate) fn has_ended(&self, entry: u32, now_ms: u64) -> bool {
        self.ends.get(entry as usize).is_some_and(|end| *end <= now_ms)
    }

    fn is_found(&self, entry: u32) -> bool {
        let word = self.found.get(entry as usize / 64).map_or(0, |word| word.load(Ordering::Relaxed));
        word & (1 << (entry % 64)) != 0
    }

    /// Writes only once per entry, so that workers do not contend for the memory.
    #[inline]
    fn mark(&self, entry: u32) {
        let bit = 1 << (entry % 64);
        if let Some(word) = self.found.get(entry as usize / 64)
            && word.load(Ordering::Relaxed) & bit == 0
        {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }
}

/// Equal if they have the same entries, whether found or not. `Eq` lets `Arc` compare pointers first: the maps of a
/// configuration are compared once a second, and mostly share their table.
impl Eq for MapTable {}

impl PartialEq for MapTable {
    fn eq(&self, other: &Self) -> bool {
        let is_equal = |(one, other): (MapEntry<'_>, MapEntry<'_>)| {
            MapEntry { is_found: false, ..one } == MapEntry { is_found: false, ..other }
        };
        self.shape == other.shape
            && self.len() == other.len()
            && self.entries().zip(other.entries()).all(is_equal)
    }
}
