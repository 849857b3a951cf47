//! Tables with later changes.
//!
//! A change of a few entries costs a small table instead of a new one. Many changes are merged into a new table.

use std::sync::Arc;

use expression::Value;

use crate::fault::EntryFault;
use crate::index::Found;
use crate::shape::{MapKind, MapShape, MapValue};
use crate::table::{MapEntry, MapTable, TableBuilder, normal_key};

/// The number of changes from which on they are merged into the table.
const CHANGES_MAX: usize = 1024;

/// A table with the changes since it was built. A clone shares both.
#[derive(Debug, Clone)]
pub struct MapSnapshot {
    table: Arc<MapTable>,
    /// Entries that were set since.
    added: Arc<MapTable>,
    /// Entries of the table that were replaced or deleted since, in order.
    hidden: Arc<[u32]>,
}

/// A change of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapChange {
    /// Sets an entry, which may exist.
    Set {
        key: String,
        value: MapValue,
        /// When the entry ends, in milliseconds since 1970.
        ends_ms: Option<u64>,
    },
    /// Deletes an entry. Deleting an absent one changes nothing.
    Delete { key: String },
}

impl MapChange {
    /// The key of the entry, as it was written.
    pub fn key(&self) -> &str {
        match self {
            Self::Set { key, .. } | Self::Delete { key } => key,
        }
    }
}

impl MapSnapshot {
    /// A table without changes.
    pub fn new(table: Arc<MapTable>) -> Self {
        let added = Arc::new(MapTable::empty(table.shape()));
        Self { table, added, hidden: [].into() }
    }

    /// The kind of the map, and the type of its values.
    pub fn shape(&self) -> MapShape {
        self.table.shape()
    }

    /// The value for a key of a request; `None` if no entry matches. `now_ms` is in milliseconds since 1970.
    #[inline]
    pub fn lookup(&self, key: Value<'_>, now_ms: u64) -> Option<Value<'_>> {
        let (table, Found { entry, .. }) = self.find(key, now_ms)?;
        Some(table.value(entry))
    }

    /// The value for a key, without marking its entry as found.
    pub fn peek(&self, key: Value<'_>, now_ms: u64) -> Option<Value<'_>> {
        let (table, Found { entry, .. }) = self.find(key, now_ms)?;
        Some(table.peek_value(entry))
    }

    #[inline]
    fn find(&self, key: Value<'_>, now_ms: u64) -> Option<(&MapTable, Found)> {
        let in_table =
            self.table.find(key, now_ms, |entry| self.is_hidden(entry)).map(|found| (&*self.table, found));
        if self.added.is_empty() {
            return in_table;
        }
        let added = self.added.find(key, now_ms, |_| false).map(|found| (&*self.added, found));
        match (in_table, added) {
            (Some(in_table), Some(added)) if in_table.1.length > added.1.length => Some(in_table),
            (in_table, added) => added.or(in_table),
        }
    }

    /// Whether an entry of the table was replaced or deleted.
    #[inline]
    fn is_hidden(&self, entry: u32) -> bool {
        !self.hidden.is_empty() && self.hidden.binary_search(&entry).is_ok()
    }

    /// All entries that are in force.
    pub fn entries(&self, now_ms: u64) -> impl Iterator<Item = MapEntry<'_>> {
        let kept = self.table.numbered().filter(|(number, _)| !self.is_hidden(*number));
        let kept = kept.map(|(_, entry)| entry);
        kept.chain(self.added.entries()).filter(move |entry| is_in_force(entry, now_ms))
    }

    /// The number of entries, including those that have ended.
    pub fn len(&self) -> usize {
        self.table.len() - self.hidden.len() + self.added.len()
    }

    /// Whether the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of memory that the map takes.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.added.memory_bytes() + 4 * self.hidden.len()
    }

    /// The snapshot after these changes, in order. Of several changes of one key, the last one counts.
    ///
    /// # Errors
    /// The first invalid change, and its place in `changes`.
    pub fn with_changes(&self, changes: &[MapChange], now_ms: u64) -> Result<Self, (usize, EntryFault)> {
        let shape = self.table.shape();
        let mut keys = Vec::with_capacity(changes.len());
        for (place, change) in changes.iter().enumerate() {
            let key = normal_key(shape.kind, change.key()).map_err(|fault| (place, fault))?;
            keys.push(key);
        }
        let mut last: Vec<usize> = (0..changes.len()).collect();
        last.sort_by(|one, other| keys[*one].cmp(&keys[*other]).then(other.cmp(one)));
        last.dedup_by(|later, first| keys[*later] == keys[*first]);
        let changed = |key: &str| last.binary_search_by(|place| (*keys[*place]).cmp(key)).is_ok();

        let mut hidden: Vec<u32> = self.hidden.to_vec();
        hidden.extend(last.iter().filter_map(|place| self.table.entry(&keys[*place])));
        hidden.sort_unstable();
        hidden.dedup();
        let mut added = TableBuilder::new(shape);
        let kept = self.added.entries().filter(|entry| !changed(&entry.key));
        let at_end = |fault| (changes.len().saturating_sub(1), fault);
        kept.filter(|entry| is_in_force(entry, now_ms))
            .try_for_each(|entry| copy(&entry, &mut added))
            .map_err(at_end)?;
        // In the order of the changes: of regular expressions, the first one that matches wins.
        last.sort_unstable();
        for place in last {
            if let MapChange::Set { value, ends_ms, .. } = &changes[place] {
                added.insert(&keys[place], value, *ends_ms).map_err(|fault| (place, fault))?;
            }
        }
        let next = Self {
            table: self.table.clone(),
            added: Arc::new(added.build().map_err(at_end)?),
            hidden: hidden.into(),
        };
        // The order of regular expressions counts, so added ones follow the others.
        let is_small = next.added.len() + next.hidden.len() <= CHANGES_MAX && shape.kind != MapKind::Regex;
        if is_small { Ok(next) } else { next.merged(now_ms).map_err(at_end) }
    }

    /// A table with all entries that are in force.
    fn merged(&self, now_ms: u64) -> Result<Self, EntryFault> {
        let mut builder = TableBuilder::new(self.table.shape());
        self.entries(now_ms).try_for_each(|entry| copy(&entry, &mut builder))?;
        Ok(Self::new(Arc::new(builder.build()?)))
    }
}

fn is_in_force(entry: &MapEntry<'_>, now_ms: u64) -> bool {
    entry.ends_ms.is_none_or(|end| end > now_ms)
}

fn copy(entry: &MapEntry<'_>, to: &mut TableBuilder) -> Result<(), EntryFault> {
    let value = match entry.value {
        Value::Boolean(_) if to.shape().values.is_none() => MapValue::Present,
        Value::Boolean(value) => MapValue::Boolean(value),
        Value::Integer(number) => MapValue::Integer(number),
        Value::Duration(nanoseconds) => MapValue::Duration(nanoseconds),
        Value::Text(text) => MapValue::Text(String::from_utf8_lossy(text).into()),
        // No map has such values.
        Value::Time(_) | Value::Address(_) => MapValue::Present,
    };
    to.insert(&entry.key, &value, entry.ends_ms)?;
    if entry.is_found {
        to.mark_found();
    }
    Ok(())
}
