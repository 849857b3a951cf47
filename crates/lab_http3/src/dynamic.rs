//! Dynamic table of HPACK (RFC 7541 §2.3.2) and of QPACK (RFC 9204 §3.2), on the decoder's side.

use std::collections::VecDeque;

/// Overhead of an entry (RFC 7541 §4.1, RFC 9204 §3.2.1).
const ENTRY_BYTES: usize = 32;

#[derive(Debug)]
pub struct DynamicTable {
    /// The latest first.
    entries: VecDeque<DynamicEntry>,
    size_bytes: usize,
    limit_bytes: usize,
    changes: u64,
}

/// Name and value, concatenated.
#[derive(Debug)]
struct DynamicEntry {
    text: Box<[u8]>,
    name_bytes: usize,
}

impl DynamicTable {
    pub fn new(limit_bytes: usize) -> Self {
        Self { entries: VecDeque::new(), size_bytes: 0, limit_bytes, changes: 0 }
    }

    /// Number of changes: while it is the same, the entries are the same.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    pub fn set_limit(&mut self, limit_bytes: usize) {
        self.limit_bytes = limit_bytes;
        self.evict(0);
    }

    /// Inserts an entry, and evicts the oldest ones to make room. Returns whether it is in the table: an entry that is
    /// too large only empties it.
    pub fn insert(&mut self, name: &[u8], value: &[u8]) -> bool {
        let bytes = name.len() + value.len() + ENTRY_BYTES;
        self.evict(bytes);
        if bytes > self.limit_bytes {
            return false;
        }
        let text = [name, value].concat().into_boxed_slice();
        self.entries.push_front(DynamicEntry { text, name_bytes: name.len() });
        self.size_bytes += bytes;
        true
    }

    /// Name and value of the entry this many insertions before the latest.
    pub fn recent(&self, before: usize) -> Option<(&[u8], &[u8])> {
        self.entries.get(before).map(|entry| entry.text.split_at(entry.name_bytes))
    }

    /// Removes the oldest entries until this much is free.
    fn evict(&mut self, bytes: usize) {
        self.changes += 1;
        while self.size_bytes + bytes > self.limit_bytes
            && let Some(entry) = self.entries.pop_back()
        {
            self.size_bytes -= entry.text.len() + ENTRY_BYTES;
        }
    }

    #[cfg(test)]
    pub(crate) fn len_and_size(&self) -> (usize, usize) {
        (self.entries.len(), self.size_bytes)
    }
}
