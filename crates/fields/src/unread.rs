//! Bytes of a stream between the connection and whoever reads the stream.

use crate::message::Framed;

/// Room for the size line of a chunk and its end.
const CHUNK_ROOM: usize = 24;

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

    /// Moves as many bytes into `buffer` as it has room for, and returns their number.
    pub fn read(&mut self, buffer: &mut [u8]) -> usize {
        let count = self.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.get()[..count]);
        self.consume(count);
        count
    }

    /// Copies bytes of a body into `buffer`, as one chunk if the body is chunked. They stay unread. Returns how many bytes
    /// of the body were copied, and how many `buffer` has with their framing; `None` if it has no room for any.
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
