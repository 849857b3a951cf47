//! Bytes of a stream between the connection and whoever reads the stream.

/// Bytes that have arrived and are unread.
#[derive(Default)]
pub struct Unread {
    bytes: Vec<u8>,
    start: usize,
}

/// The most memory that an empty one keeps.
const KEEP_MAX: usize = 512;

impl Unread {
    /// The unread bytes.
    pub fn get(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// How many bytes are unread.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Whether all bytes were read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends bytes, and reserves memory for the `expected` ones behind them.
    pub fn push(&mut self, bytes: &[u8], expected: usize) {
        let tail = self.tail();
        tail.reserve(bytes.len() + expected);
        tail.extend_from_slice(bytes);
    }

    /// The buffer for appending. Bytes that were read are removed first if they take much room.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        &mut self.bytes
    }

    /// Appends short text, and takes over the memory of long text instead of copying it.
    pub fn take_over(&mut self, bytes: &mut Vec<u8>) {
        if self.is_empty() && bytes.len() > KEEP_MAX {
            *self = Self { bytes: std::mem::take(bytes), start: 0 };
        } else {
            self.push(bytes, 0);
        }
    }

    /// Removes the first `count` bytes, which were read.
    pub fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.bytes.len() {
            self.clear();
        }
    }

    /// Removes all bytes, and most of the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.start = 0;
        self.bytes.shrink_to(KEEP_MAX);
    }
}
