//! A buffer between a connection and the reader of one of its streams.

use crate::message::Framed;

/// Room for the size line of a chunk and its end.
const CHUNK_ROOM: usize = 24;

/// Received bytes that are not read yet.
#[derive(Default)]
pub struct Unread {
    bytes: Vec<u8>,
    start: usize,
}

/// An empty buffer keeps at most this much memory.
const KEEP_MAX: usize = 512;

impl Unread {
    pub fn get(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends bytes, and reserves memory for `expected` more. The sender may send `more_max` bytes behind these.
    pub fn push(&mut self, bytes: &[u8], expected: usize, more_max: usize) {
        let tail = self.tail();
        let needed = bytes.len() + expected;
        if tail.capacity() - tail.len() < needed {
            // Twice the memory, as a vector grows, but no more than the sender can fill.
            let doubled = (2 * tail.capacity()).saturating_sub(tail.len());
            tail.reserve_exact(doubled.min(bytes.len().saturating_add(more_max)).max(needed));
        }
        tail.extend_from_slice(bytes);
    }

    /// The buffer for appending. If more than half of its bytes were read, they are removed first.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        &mut self.bytes
    }

    /// Copies short text; takes the allocation of long text instead.
    pub fn take_over(&mut self, bytes: &mut Vec<u8>) {
        if self.is_empty() && bytes.len() > KEEP_MAX {
            *self = Self { bytes: std::mem::take(bytes), start: 0 };
        } else {
            self.push(bytes, 0, usize::MAX);
        }
    }

    /// Moves as many bytes as fit into `buffer`, and returns their number.
    pub fn read(&mut self, buffer: &mut [u8]) -> usize {
        let count = self.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.get()[..count]);
        self.consume(count);
        count
    }

    /// Copies bytes of a body into `buffer`, as one chunk if the body is chunked. The bytes stay unread.
    ///
    /// Returns the number of copied bytes, and the number of bytes written with framing; `None` if `buffer` is too
    /// small.
    pub fn copy_framed(&self, framed: Framed, buffer: &mut [u8]) -> Option<(usize, usize)> {
        let room = match framed {
            Framed::Raw => buffer.len(),
            Framed::Chunked => buffer.len().saturating_sub(CHUNK_ROOM),
        };
        if room == 0 {
            return None;
        }
        let count = self.len().min(room);
        let mut len = 0;
        let mut put = |bytes: &[u8]| {
            buffer[len..len + bytes.len()].copy_from_slice(bytes);
            len += bytes.len();
        };
        let bytes = &self.get()[..count];
        match framed {
            Framed::Raw => put(bytes),
            Framed::Chunked => {
                let (text, start) = http1::chunk_prefix(count);
                put(&text[start..]);
                put(bytes);
                put(b"\r\n");
            }
        }
        Some((count, len))
    }

    pub fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.bytes.len() {
            self.clear();
        }
    }

    /// Removes all bytes, and frees most of the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.start = 0;
        self.bytes.shrink_to(KEEP_MAX);
    }
}
