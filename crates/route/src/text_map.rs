//! A hash table with text keys, filled once and then only read.
//!
//! The hash is fast and not keyed: clients cannot add entries, so a collision costs no more than a comparison.

/// Values by text. A lookup hashes the text in steps of eight bytes, and usually compares it with one entry.
#[derive(Debug, Clone)]
pub(crate) struct TextMap<T> {
    entries: Vec<TextMapEntry<T>>,
    /// Positions in `entries`, counted from 1; 0 is empty. A power of two, at least twice the number of entries.
    slots: Box<[u32]>,
}

#[derive(Debug, Clone)]
struct TextMapEntry<T> {
    hash: u64,
    text: Box<[u8]>,
    value: T,
}

impl<T> Default for TextMap<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), slots: Box::default() }
    }
}

impl<T> TextMap<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    pub(crate) fn at(&self, position: usize) -> &T {
        &self.entries[position].value
    }

    pub(crate) fn at_mut(&mut self, position: usize) -> &mut T {
        &mut self.entries[position].value
    }

    pub(crate) fn text(&self, position: usize) -> &[u8] {
        &self.entries[position].text
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|entry| &entry.value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().map(|entry| &mut entry.value)
    }

    /// The value of a text. `hash` and `equal` must be used consistently for all texts of the table.
    #[inline]
    pub(crate) fn find(&self, hash: u64, equal: impl Fn(&[u8]) -> bool) -> Option<&T> {
        self.position(hash, equal).map(|position| self.at(position))
    }

    /// The value of a text; created if missing.
    pub(crate) fn entry(&mut self, hash: u64, text: &[u8], new: impl FnOnce() -> T) -> &mut T {
        let found = self.position(hash, |known| known == text);
        let index = found.unwrap_or_else(|| {
            self.entries.push(TextMapEntry { hash, text: text.into(), value: new() });
            self.place();
            self.entries.len() - 1
        });
        &mut self.entries[index].value
    }

    /// The position of a text among the values; see `at`.
    #[inline]
    pub(crate) fn position(&self, hash: u64, equal: impl Fn(&[u8]) -> bool) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut slot = hash as usize & mask;
        // The loop ends: at least half of the slots are empty.
        while let Some(index) = (self.slots[slot] as usize).checked_sub(1) {
            let entry = &self.entries[index];
            if entry.hash == hash && equal(&entry.text) {
                return Some(index);
            }
            slot = (slot + 1) & mask;
        }
        None
    }

    /// Puts the last entry into a slot, or all into more slots.
    fn place(&mut self) {
        let wanted = (self.entries.len() * 2).next_power_of_two();
        let from = if self.slots.len() < wanted {
            self.slots = vec![0; wanted].into();
            0
        } else {
            self.entries.len() - 1
        };
        let mask = self.slots.len() - 1;
        for (index, entry) in self.entries.iter().enumerate().skip(from) {
            let mut slot = entry.hash as usize & mask;
            while self.slots[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            self.slots[slot] = index as u32 + 1;
        }
    }
}

/// Converts letters to lower case, and maps no other byte of a host to a letter.
const LOWER: u64 = 0x2020_2020_2020_2020;

#[inline]
pub(crate) fn hash_ignoring_case(text: &[u8]) -> u64 {
    fold(0, text, LOWER)
}

/// Continues a hash with more text. `hash_on(hash_on(0, a), b)` differs from the hash of the joined text.
#[inline]
pub(crate) fn hash_on(hash: u64, text: &[u8]) -> u64 {
    fold(hash, text, 0)
}

/// Whether a text equals `lower` when converted to lower case.
#[inline]
pub(crate) fn is_in_lower_case(text: &[u8], lower: &[u8]) -> bool {
    let (words, rest) = text.as_chunks::<8>();
    let (lower_words, lower_rest) = lower.as_chunks::<8>();
    let mut pairs = words.iter().zip(lower_words);
    text.len() == lower.len()
        && pairs.all(|(word, lower)| lower_case(u64::from_le_bytes(*word)) == u64::from_le_bytes(*lower))
        && match (text.last_chunk::<8>(), lower.last_chunk::<8>()) {
            // The last word overlaps the one before, which costs less than single bytes.
            (Some(word), Some(lower)) => lower_case(u64::from_le_bytes(*word)) == u64::from_le_bytes(*lower),
            _ => rest.iter().map(u8::to_ascii_lowercase).eq(lower_rest.iter().copied()),
        }
}

/// Eight bytes with their capital letters in lower case.
#[inline]
fn lower_case(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x80 * EACH;
    let low = word & !HIGH;
    // The high bit of each byte shows, without a carry into the next: at least `A`, beyond `Z`.
    let from_a = low + (0x80 - b'A' as u64) * EACH;
    let beyond_z = low + (0x7f - b'Z' as u64) * EACH;
    let capital = (from_a ^ beyond_z) & !word & HIGH;
    word | capital >> 2
}

#[inline]
fn fold(mut hash: u64, text: &[u8], case: u64) -> u64 {
    let (words, rest) = text.as_chunks::<8>();
    for word in words {
        hash = mix(hash ^ (u64::from_le_bytes(*word) | case));
    }
    let last = match text.last_chunk::<8>() {
        Some(last) => u64::from_le_bytes(*last),
        None => rest.iter().fold(0, |last, &byte| last << 8 | u64::from(byte)),
    };
    // With the length, so that zeros at the end count.
    mix(hash ^ (last | case) ^ (text.len() as u64) << 56)
}

/// All bits of the product of two words, folded into one.
#[inline]
fn mix(word: u64) -> u64 {
    // An odd number without a pattern: the fraction of the golden ratio.
    const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15;
    let product = u128::from(word ^ 0x5851_f42d_4c95_7f2d) * FACTOR;
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserted_entries_are_found() {
        let texts: Vec<String> = (0..1000).map(|number| format!("text-{}", number * 7919)).collect();
        let mut map = TextMap::default();
        for (index, text) in texts.iter().enumerate() {
            assert_eq!(*map.entry(hash_on(0, text.as_bytes()), text.as_bytes(), || index), index);
            assert_eq!(*map.entry(hash_on(0, text.as_bytes()), text.as_bytes(), || 0), index, "only once");
        }
        let find = |text: &str| map.find(hash_on(0, text.as_bytes()), |known| known == text.as_bytes());
        for (index, text) in texts.iter().enumerate() {
            assert_eq!(find(text), Some(&index));
            assert_eq!(find(&format!("{text}x")), None);
        }
        assert_eq!(TextMap::<()>::default().find(0, |_| true), None);
        assert_eq!(map.values().count(), 1000);
    }

    #[test]
    fn texts_with_equal_hashes_are_distinguished() {
        let mut map = TextMap::default();
        for index in 0..20_u8 {
            map.entry(7, &[index], || index);
        }
        for index in 0..20_u8 {
            assert_eq!(map.find(7, |known| known == [index]), Some(&index));
        }
        assert_eq!(map.find(7, |known| known == [20]), None);
    }

    #[test]
    fn hashes() {
        let hosts = ["", "a", "b", "a\0", "example.com", "example.org", "www.example.com", "[::1]", "[::2]"];
        for host in hosts {
            let hash = hash_ignoring_case(host.as_bytes());
            assert_eq!(hash, hash_ignoring_case(host.to_uppercase().as_bytes()), "{host}");
            for other in hosts {
                assert_eq!(hash == hash_ignoring_case(other.as_bytes()), host == other, "{host} {other}");
            }
        }
        for length in 0..20 {
            for byte in 0..=255_u8 {
                let text = vec![byte; length];
                assert!(is_in_lower_case(&text, &text.to_ascii_lowercase()), "{text:?}");
                assert_eq!(
                    is_in_lower_case(&text, &text),
                    !byte.is_ascii_uppercase() || length == 0,
                    "{text:?}"
                );
            }
        }
        assert!(!is_in_lower_case(b"example.com", b"example.co") && !is_in_lower_case(b"a", b"b"));
        assert_ne!(hash_on(0, b"/a"), hash_on(0, b"/A"));
        assert_ne!(hash_on(hash_on(0, b"/a"), b"/b"), hash_on(0, b"/a/b"));
    }
}
