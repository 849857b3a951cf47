//! Finds the longest of nested entries: prefixes of texts, networks within networks.
//!
//! Entries are sorted so that each one directly follows those that contain it or their other contents. Each links to the
//! smallest entry around it. The entries that contain a key are then the last entry before the key, as far as it
//! contains the key, and the entries around it.

use std::cmp::Ordering;

use crate::texts::Texts;

/// The link of an entry that no other contains.
const OUTERMOST: u32 = u32::MAX;

/// For each entry, in order, the place of the smallest entry around it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Links(Box<[u32]>);

impl Links {
    /// Links sorted entries. `contains` says whether the first contains the second, which follows it.
    pub(crate) fn new(count: u32, contains: impl Fn(u32, u32) -> bool) -> Self {
        let mut open: Vec<u32> = Vec::new();
        let link = |place: u32| {
            while open.pop_if(|last| !contains(*last, place)).is_some() {}
            let around = open.last().copied().unwrap_or(OUTERMOST);
            open.push(place);
            around
        };
        Self((0..count).map(link).collect())
    }

    /// The places of an entry and of those around it, from the inside. `count` is the number of entries before the key.
    pub(crate) fn outwards(&self, count: usize) -> impl Iterator<Item = u32> {
        let last = count.checked_sub(1).map(|place| place as u32);
        let around = |place: &u32| self.0.get(*place as usize).copied().filter(|next| *next != OUTERMOST);
        std::iter::successors(last, around)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        4 * self.0.len()
    }
}

/// Texts by prefix, or hosts by suffix.
#[derive(Debug, Clone)]
pub(crate) struct NestedTexts {
    direction: Direction,
    /// The entries in order.
    sorted: Box<[u32]>,
    links: Links,
}

/// The end at which texts are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Prefixes.
    FromStart,
    /// Domains, with their labels.
    FromEnd,
}

impl NestedTexts {
    /// Sorts the texts and drops repeated ones.
    ///
    /// # Errors
    /// An entry with the same key as another from which it differs.
    pub(crate) fn new(
        direction: Direction,
        keys: &Texts,
        differ: impl Fn(u32, u32) -> bool,
    ) -> Result<Self, u32> {
        let mut sorted: Vec<u32> = (0..keys.len() as u32).collect();
        sorted.sort_by(|one, other| direction.compare(keys.text(*one), keys.text(*other)));
        let mut conflict = None;
        sorted.dedup_by(|second, first| {
            let is_same = keys.text(*first) == keys.text(*second);
            if is_same && differ(*first, *second) {
                conflict = Some(*second);
            }
            is_same
        });
        if let Some(entry) = conflict {
            return Err(entry);
        }
        let text = |place: u32| keys.text(sorted[place as usize]);
        let links =
            Links::new(sorted.len() as u32, |outer, inner| direction.begins(text(inner), text(outer)));
        Ok(Self { direction, sorted: sorted.into(), links })
    }

    /// The entries that contain a text, the longest first.
    pub(crate) fn matches<'a>(&'a self, keys: &'a Texts, text: &'a [u8]) -> impl Iterator<Item = u32> + 'a {
        let is_before = |entry: &u32| self.direction.compare(keys.text(*entry), text) != Ordering::Greater;
        let entries = self.links.outwards(self.sorted.partition_point(is_before));
        let entries = entries.filter_map(|place| self.sorted.get(place as usize).copied());
        entries.filter(move |entry| self.direction.matches(keys.text(*entry), text))
    }

    /// The entry with exactly this key.
    pub(crate) fn entry(&self, keys: &Texts, key: &[u8]) -> Option<u32> {
        let order = |entry: &u32| self.direction.compare(keys.text(*entry), key);
        let near = self.sorted.partition_point(|entry| order(entry) == Ordering::Less);
        self.sorted.get(near..)?.iter().take(2).copied().find(|entry| keys.text(*entry) == key)
    }

    /// The entries in order.
    pub(crate) fn entries(&self) -> &[u32] {
        &self.sorted
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        4 * self.sorted.len() + self.links.memory_bytes()
    }
}

impl Direction {
    fn compare(self, one: &[u8], other: &[u8]) -> Ordering {
        match self {
            Self::FromStart => one.cmp(other),
            Self::FromEnd => compared_domain(one).iter().rev().cmp(compared_domain(other).iter().rev()),
        }
    }

    /// Whether a text begins with another, from this end.
    fn begins(self, text: &[u8], part: &[u8]) -> bool {
        match self {
            Self::FromStart => text.starts_with(part),
            Self::FromEnd => compared_domain(text).ends_with(compared_domain(part)),
        }
    }

    /// Whether an entry is right for a text.
    fn matches(self, entry: &[u8], text: &[u8]) -> bool {
        match self {
            Self::FromStart => text.starts_with(entry),
            Self::FromEnd => match text.strip_suffix(compared_domain(entry)) {
                // `*.example.com` begins with a dot here.
                Some(rest) if entry.starts_with(b"*") => !rest.is_empty(),
                Some(rest) => rest.is_empty() || rest.ends_with(b"."),
                None => false,
            },
        }
    }
}

/// The part of a key that is compared: `.example.com` of `*.example.com`.
fn compared_domain(key: &[u8]) -> &[u8] {
    key.strip_prefix(b"*").unwrap_or(key)
}
