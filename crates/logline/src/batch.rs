//! Lines of a log on their way to where they are written. What quick lines are written over is initialised already, so no
//! line pays for that.

/// Whole lines, one after the other.
#[derive(Debug, Default)]
pub struct Batch {
    /// The lines, and behind them bytes without a meaning.
    bytes: Vec<u8>,
    /// How many bytes the lines have.
    end: usize,
}

impl Batch {
    /// No lines yet, and room for `bytes` of them.
    #[must_use]
    pub fn with_room(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes], end: 0 }
    }

    /// The lines, each with its line feed.
    #[must_use]
    pub fn lines(&self) -> &[u8] {
        &self.bytes[..self.end]
    }

    /// Whether there are no lines.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// The memory that it takes, in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Forgets the lines and keeps the memory.
    pub fn clear(&mut self) {
        self.end = 0;
    }

    /// Appends a line that `write` puts into an array right behind the others, and whose length it returns; `None` if it wrote
    /// none. Returns whether it did.
    #[inline]
    #[must_use]
    pub(crate) fn in_place<const ROOM: usize>(
        &mut self,
        write: impl FnOnce(&mut [u8; ROOM]) -> Option<usize>,
    ) -> bool {
        let end = self.end;
        if self.bytes.len() < end + ROOM {
            self.grow(ROOM);
        }
        let Some(room) = self.bytes[end..].first_chunk_mut() else { return false };
        let written = write(room);
        self.end += written.unwrap_or(0).min(ROOM);
        written.is_some()
    }

    /// Appends a line that `write` appends to the bytes of the others.
    pub(crate) fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.truncate(self.end);
        write(&mut self.bytes);
        self.end = self.bytes.len();
    }

    #[cold]
    fn grow(&mut self, room: usize) {
        self.bytes.resize(self.end + room, 0);
    }
}
