//! The dynamic table of HPACK (RFC 7541 §2.3.2) and QPACK (RFC 9204 §3.2).

use std::collections::VecDeque;

/// The size of an entry counts this many additional bytes (RFC 7541 §4.1, RFC 9204 §3.2.1).
const ENTRY_OVERHEAD: usize = 32;
/// The latest field has index 0.
pub struct FieldTable {
    /// Names and values, one field after the other. The first bytes may be those of evicted fields.
    bytes: Vec<u8>,
    entries: VecDeque<TableEntry>,
    size: usize,
    limit: usize,
    inserted: u64,
}

#[derive(Clone, Copy)]
struct TableEntry {
    start: usize,
    name_len: usize,
    value_len: usize,
}

impl TableEntry {
    fn size(self) -> usize {
        self.name_len + self.value_len + ENTRY_OVERHEAD
    }
}

impl FieldTable {
    /// `limit` is in bytes, counted as in RFC 7541 §4.1.
    pub fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), entries: VecDeque::new(), size: 0, limit, inserted: 0 }
    }

    /// The field that was inserted `back` fields before the latest.
    pub fn at(&self, back: usize) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(self.entries.len().checked_sub(back + 1)?)?;
        let (start, middle) = (entry.start, entry.start + entry.name_len);
        Some((&self.bytes[start..middle], &self.bytes[middle..middle + entry.value_len]))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of insertions so far, which is also the absolute index of the next field.
    pub fn inserted(&self) -> u64 {
        self.inserted
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    /// RFC 7541 §4.3.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.evict(limit);
    }

    /// The number of fields that an insertion would evict; `None` if the new field is larger than the table.
    pub fn evicted_by(&self, name: &[u8], value: &[u8]) -> Option<usize> {
        let room = self.limit.checked_sub(name.len() + value.len() + ENTRY_OVERHEAD)?;
        let mut size = self.size;
        let mut entries = self.entries.iter();
        while size > room {
            size -= entries.next()?.size();
        }
        Some(self.entries.len() - entries.len())
    }

    /// Inserts a field, and evicts the oldest (RFC 7541 §4.4). A field larger than the table empties it.
    pub fn insert(&mut self, name: &[u8], value: &[u8]) {
        let entry = TableEntry { start: 0, name_len: name.len(), value_len: value.len() };
        if entry.size() > self.limit {
            self.evict(0);
            return;
        }
        self.evict(self.limit - entry.size());
        self.compact(name.len() + value.len());
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_back(TableEntry { start, ..entry });
        self.size += entry.size();
        self.inserted += 1;
    }

    /// Removes the oldest fields until the others take at most `size` bytes.
    fn evict(&mut self, size: usize) {
        while self.size > size
            && let Some(entry) = self.entries.pop_front()
        {
            self.size -= entry.size();
        }
        if self.entries.is_empty() {
            self.bytes.clear();
        }
    }

    /// Removes the bytes of evicted fields when the buffer would exceed twice the limit. Thus few insertions move
    /// bytes.
    fn compact(&mut self, wanted: usize) {
        if self.bytes.len() + wanted <= 2 * self.limit {
            return;
        }
        let gone = self.entries.front().map_or(self.bytes.len(), |entry| entry.start);
        self.bytes.drain(..gone);
        self.entries.iter_mut().for_each(|entry| entry.start -= gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_make_way() {
        let mut table = FieldTable::new(4096);
        table.set_limit(100);
        for (value, len) in [(b"1", 1), (b"2", 2), (b"3", 3), (b"4", 3)] {
            let evicted = table.evicted_by(b"a", value).expect("it fits");
            assert_eq!(table.len() + 1 - evicted, len.min(2));
            table.insert(b"a", value);
            assert_eq!((table.len(), table.at(0)), (len.min(2), Some((b"a".as_slice(), value.as_slice()))));
        }
        assert_eq!((table.at(1), table.at(2)), (Some((b"a".as_slice(), b"3".as_slice())), None));
        assert_eq!(
            (table.evicted_by(b"long", &[b'x'; 64]), table.evicted_by(b"long", &[b'x'; 65])),
            (Some(2), None)
        );
        table.insert(b"long", &[b'x'; 65]);
        assert_eq!((table.len(), table.inserted()), (0, 4));
    }

    #[test]
    fn many_fields_take_little_room() {
        let mut table = FieldTable::new(4096);
        for at in 0..10_000u32 {
            table.insert(b"name", at.to_string().as_bytes());
            assert_eq!(table.at(0).map(|(_, value)| value), Some(at.to_string().as_bytes()));
        }
        assert!(table.bytes.capacity() <= 4 * 4096 && table.len() > 100);
    }
}
