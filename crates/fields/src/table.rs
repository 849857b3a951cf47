//! The dynamic table of HPACK (RFC 7541 §2.3.2) and QPACK (RFC 9204 §3.2).

use std::collections::VecDeque;

/// The size that an entry counts beyond its bytes (RFC 7541 §4.1, RFC 9204 §3.2.1).
const ENTRY_OVERHEAD: usize = 32;
/// The dynamic table, the latest field first.
pub struct Table {
    /// Names and values, one field after the other. The first ones may belong to evicted fields.
    bytes: Vec<u8>,
    entries: VecDeque<Entry>,
    size: usize,
    limit: usize,
    /// The number of fields ever inserted.
    inserted: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    start: usize,
    name_len: usize,
    value_len: usize,
}

impl Entry {
    fn size(self) -> usize {
        self.name_len + self.value_len + ENTRY_OVERHEAD
    }
}

impl Table {
    /// An empty table of at most `limit` bytes, counted as in RFC 7541 §4.1.
    pub fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), entries: VecDeque::new(), size: 0, limit, inserted: 0 }
    }

    /// The field that was inserted `back` fields before the latest.
    pub fn at(&self, back: usize) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(self.entries.len().checked_sub(back + 1)?)?;
        let (start, middle) = (entry.start, entry.start + entry.name_len);
        Some((&self.bytes[start..middle], &self.bytes[middle..middle + entry.value_len]))
    }

    /// The number of fields.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the table holds no field.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of fields ever inserted, which is also the number of the next one.
    pub fn inserted(&self) -> u64 {
        self.inserted
    }

    /// The most bytes that the table may take.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Changes the size limit (RFC 7541 §4.3).
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.evict(limit);
    }

    /// How many of the oldest fields make way for another one; `None` if it is larger than the table.
    pub fn evicted_by(&self, name: &[u8], value: &[u8]) -> Option<usize> {
        let room = self.limit.checked_sub(name.len() + value.len() + ENTRY_OVERHEAD)?;
        let mut size = self.size;
        let mut entries = self.entries.iter();
        while size > room {
            size -= entries.next()?.size();
        }
        Some(self.entries.len() - entries.len())
    }

    /// Inserts a field, and evicts the oldest (RFC 7541 §4.4). A field larger than the table leaves it empty.
    pub fn insert(&mut self, name: &[u8], value: &[u8]) {
        let entry = Entry { start: 0, name_len: name.len(), value_len: value.len() };
        if entry.size() > self.limit {
            self.evict(0);
            return;
        }
        self.evict(self.limit - entry.size());
        self.compact(name.len() + value.len());
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_back(Entry { start, ..entry });
        self.size += entry.size();
        self.inserted += 1;
    }

    /// Drops the oldest until the rest takes no more than `size`.
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

    /// Forgets the bytes of fields that are gone, once they are as many as those of all others may be.
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
        let mut table = Table::new(4096);
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
        let mut table = Table::new(4096);
        for at in 0..10_000u32 {
            table.insert(b"name", at.to_string().as_bytes());
            assert_eq!(table.at(0).map(|(_, value)| value), Some(at.to_string().as_bytes()));
        }
        assert!(table.bytes.capacity() <= 4 * 4096 && table.len() > 100);
    }
}
