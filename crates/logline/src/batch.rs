//! Buffered log lines on the way to their target. The buffer behind the lines is initialised once, so quick lines
//! need not do it.

#[derive(Debug, Default)]
pub struct LineBatch {
    /// The lines, then initialised bytes without meaning.
    bytes: Vec<u8>,
    /// The length of the lines in `bytes`.
    end: usize,
}

impl LineBatch {
    /// Creates an empty batch with room for `bytes` bytes.
    #[must_use]
    pub fn with_room(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes], end: 0 }
    }

    #[must_use]
    pub fn lines(&self) -> &[u8] {
        &self.bytes[..self.end]
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// The allocated memory in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub fn clear(&mut self) {
        self.end = 0;
    }

    /// Appends a line that `write` writes into the array behind the last line. `write` returns the length, or
    /// `None` if it wrote no line. Returns whether a line was appended.
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
