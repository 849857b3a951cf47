//! Finds the entries for a key.

use std::hash::BuildHasher;

use expression::Value;
use hashbrown::{DefaultHashBuilder, HashTable};
use regex::bytes::{Regex, RegexBuilder};

use crate::fault::EntryFault;
use crate::nested::NestedTexts;
use crate::networks::{self, Networks};
use crate::shape::KEY_BYTES_MAX;
use crate::texts::Texts;

/// The largest compiled form of a regular expression.
const PATTERN_COMPILED_BYTES_MAX: usize = 128 * 1024;
/// The deepest nesting of groups in a regular expression.
const PATTERN_NESTING_MAX: u32 = 50;

/// Finds the entries for a key.
#[derive(Debug, Clone)]
pub(crate) enum Index {
    Exact(ExactKeys),
    Nested(NestedTexts),
    Networks(Networks),
    /// In the order of the entries.
    Patterns(Box<[Regex]>),
}

/// An entry that matches a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) entry: u32,
    /// The length of the entry's key: of several entries that match, the longest wins.
    pub(crate) length: usize,
}

impl Index {
    /// The most specific entry that matches a key and is accepted.
    #[inline]
    pub(crate) fn find(
        &self,
        keys: &Texts,
        key: Value<'_>,
        mut accepts: impl FnMut(u32) -> bool,
    ) -> Option<Found> {
        match (self, key) {
            (Self::Exact(exact), Value::Text(text)) => {
                let entry = exact.entry(keys, text).filter(|entry| accepts(*entry))?;
                Some(Found { entry, length: text.len() })
            }
            (Self::Nested(nested), Value::Text(text)) => {
                let entry = nested.matches(keys, text).find(|entry| accepts(*entry))?;
                Some(Found { entry, length: keys.text(entry).len() })
            }
            (Self::Networks(networks), Value::Address(address)) => {
                let (length, entry) = networks.first(address, accepts)?;
                Some(Found { entry, length })
            }
            (Self::Patterns(patterns), Value::Text(text)) => {
                let mut all = (0..).zip(patterns);
                let (entry, _) = all.find(|(entry, pattern)| pattern.is_match(text) && accepts(*entry))?;
                Some(Found { entry, length: 0 })
            }
            // The checker of expressions gives keys of the right type.
            _ => None,
        }
    }

    /// The entry with exactly this key, in its normal form.
    pub(crate) fn entry(&self, keys: &Texts, key: &str) -> Option<u32> {
        match self {
            Self::Exact(exact) => exact.entry(keys, key.as_bytes()),
            Self::Nested(nested) => nested.entry(keys, key.as_bytes()),
            Self::Networks(all) => all.entry(networks::parse(key).ok()?),
            Self::Patterns(_) => (0..keys.len() as u32).find(|entry| keys.text(*entry) == key.as_bytes()),
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Exact(exact) => exact.table.capacity() * 5,
            Self::Nested(nested) => nested.memory_bytes(),
            Self::Networks(networks) => networks.memory_bytes(),
            Self::Patterns(patterns) => patterns.len() * PATTERN_COMPILED_BYTES_MAX,
        }
    }
}

/// A hash table of entries.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExactKeys {
    hasher: DefaultHashBuilder,
    table: HashTable<u32>,
}

impl ExactKeys {
    #[inline]
    pub(crate) fn entry(&self, keys: &Texts, text: &[u8]) -> Option<u32> {
        if text.len() > KEY_BYTES_MAX {
            return None;
        }
        self.table.find(self.hasher.hash_one(text), |entry| keys.text(*entry) == text).copied()
    }

    /// Adds an entry whose key is new.
    pub(crate) fn insert(&mut self, keys: &Texts, entry: u32) {
        let Self { hasher, table } = self;
        let hash_of = |entry: &u32| hasher.hash_one(keys.text(*entry));
        table.insert_unique(hash_of(&entry), entry, hash_of);
    }

    pub(crate) fn shrink(&mut self, keys: &Texts) {
        let Self { hasher, table } = self;
        table.shrink_to_fit(|entry| hasher.hash_one(keys.text(*entry)));
    }
}

/// Compiles a regular expression that is looked for in texts of any bytes.
pub(crate) fn pattern(text: &str) -> Result<Regex, EntryFault> {
    let mut builder = RegexBuilder::new(text);
    builder.unicode(false).nest_limit(PATTERN_NESTING_MAX).size_limit(PATTERN_COMPILED_BYTES_MAX);
    builder.build().map_err(|error| {
        // The library draws the place over several lines, before a last line in words.
        let text_of_error = error.to_string();
        let what = text_of_error.lines().last().unwrap_or_default();
        let what = what.strip_prefix("error: ").unwrap_or(what).to_owned();
        EntryFault::Pattern { pattern: text.to_owned(), what }
    })
}
