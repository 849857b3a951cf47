//! Many texts in one buffer: 4 bytes per text besides its own.

/// A list of texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Texts {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Texts {
    /// The largest buffer. Places have 32 bits.
    pub(crate) const BYTES_MAX: usize = 1 << 30;

    /// Appends a text; `None` if the buffer would be too large.
    pub(crate) fn push(&mut self, text: &[u8]) -> Option<()> {
        let end = self.bytes.len() + text.len();
        if end > Self::BYTES_MAX {
            return None;
        }
        self.bytes.extend_from_slice(text);
        self.ends.push(u32::try_from(end).ok()?);
        Some(())
    }

    /// The text at a place; empty if there is none.
    #[inline]
    pub(crate) fn text(&self, place: u32) -> &[u8] {
        let place = place as usize;
        let start = place.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let end = self.ends.get(place).copied().unwrap_or(start);
        self.bytes.get(start as usize..end as usize).unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// The bytes of memory in use.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + 4 * self.ends.capacity()
    }
}
