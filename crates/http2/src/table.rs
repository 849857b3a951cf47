//! The tables that header blocks refer to (RFC 7541 §2.3): the static one, and the dynamic one.

use std::collections::VecDeque;

/// The static table (RFC 7541 Appendix A); its first index is 1.
#[rustfmt::skip]
static STATIC: [(&str, &str); STATIC_LEN] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""), ("etag", ""),
    ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""),
    ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""),
    ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
];

pub(crate) const STATIC_LEN: usize = 61;

/// The field at an index of the static table.
pub(crate) fn fixed(index: usize) -> Option<(&'static [u8], &'static [u8])> {
    let (name, value) = STATIC.get(index.checked_sub(1)?)?;
    Some((name.as_bytes(), value.as_bytes()))
}

/// The index of the first static field with this lower-case name; 0 if there is none.
#[rustfmt::skip]
pub(crate) fn index_of(name: &[u8]) -> u8 {
    match name {
        b":authority" => 1, b":method" => 2, b":path" => 4, b":scheme" => 6, b":status" => 8, b"accept-charset" => 15,
        b"accept-encoding" => 16, b"accept-language" => 17, b"accept-ranges" => 18, b"accept" => 19,
        b"access-control-allow-origin" => 20, b"age" => 21, b"allow" => 22, b"authorization" => 23,
        b"cache-control" => 24, b"content-disposition" => 25, b"content-encoding" => 26, b"content-language" => 27,
        b"content-length" => 28, b"content-location" => 29, b"content-range" => 30, b"content-type" => 31,
        b"cookie" => 32, b"date" => 33, b"etag" => 34, b"expect" => 35, b"expires" => 36, b"from" => 37, b"host" => 38,
        b"if-match" => 39, b"if-modified-since" => 40, b"if-none-match" => 41, b"if-range" => 42,
        b"if-unmodified-since" => 43, b"last-modified" => 44, b"link" => 45, b"location" => 46, b"max-forwards" => 47,
        b"proxy-authenticate" => 48, b"proxy-authorization" => 49, b"range" => 50, b"referer" => 51, b"refresh" => 52,
        b"retry-after" => 53, b"server" => 54, b"set-cookie" => 55, b"strict-transport-security" => 56,
        b"transfer-encoding" => 57, b"user-agent" => 58, b"vary" => 59, b"via" => 60, b"www-authenticate" => 61,
        _ => 0,
    }
}

/// The size that an entry counts beyond its bytes (RFC 7541 §4.1).
const ENTRY_OVERHEAD: usize = 32;
/// The default size of the dynamic table (RFC 9113 §6.5.2).
pub(crate) const SIZE_DEFAULT: usize = 4096;

/// The dynamic table, the latest field first.
pub(crate) struct Table {
    /// Names and values, one field after the other. The first ones may belong to evicted fields.
    bytes: Vec<u8>,
    entries: VecDeque<Entry>,
    size: usize,
    limit: usize,
    /// The number of fields ever inserted.
    inserted: u32,
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
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), entries: VecDeque::new(), size: 0, limit: SIZE_DEFAULT, inserted: 0 }
    }

    /// The field that was inserted `back` fields before the latest.
    pub(crate) fn at(&self, back: usize) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(self.entries.len().checked_sub(back + 1)?)?;
        let (start, middle) = (entry.start, entry.start + entry.name_len);
        Some((&self.bytes[start..middle], &self.bytes[middle..middle + entry.value_len]))
    }

    /// The number of fields.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number of fields ever inserted, which is also the number of the next one.
    pub(crate) fn inserted(&self) -> u32 {
        self.inserted
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Changes the size limit (RFC 7541 §4.3).
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.evict(limit);
    }

    /// Inserts a field, and evicts the oldest (RFC 7541 §4.4). A field larger than the table leaves it empty.
    pub(crate) fn insert(&mut self, name: &[u8], value: &[u8]) {
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
        self.inserted = self.inserted.wrapping_add(1);
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
    fn each_name_has_the_first_of_its_indices() {
        for index in 1..=STATIC_LEN {
            let (name, _) = fixed(index).expect("there are that many");
            let first = (1..).find(|&first| fixed(first).is_some_and(|(other, _)| other == name));
            assert_eq!(Some(usize::from(index_of(name))), first);
        }
        assert_eq!((fixed(0), fixed(62), index_of(b"x")), (None, None, 0));
    }

    #[test]
    fn the_oldest_make_way() {
        let mut table = Table::new();
        table.set_limit(100);
        for (value, len) in [(b"1", 1), (b"2", 2), (b"3", 3), (b"4", 3)] {
            table.insert(b"a", value);
            assert_eq!((table.len(), table.at(0)), (len.min(2), Some((b"a".as_slice(), value.as_slice()))));
        }
        assert_eq!((table.at(1), table.at(2)), (Some((b"a".as_slice(), b"3".as_slice())), None));
        table.insert(b"long", &[b'x'; 65]);
        assert_eq!((table.len(), table.inserted()), (0, 4));
    }

    #[test]
    fn many_fields_take_little_room() {
        let mut table = Table::new();
        for at in 0..10_000u32 {
            table.insert(b"name", at.to_string().as_bytes());
            assert_eq!(table.at(0).map(|(_, value)| value), Some(at.to_string().as_bytes()));
        }
        assert!(table.bytes.capacity() <= 4 * SIZE_DEFAULT && table.len() > 100);
    }
}
