//! Buffers with room in front, so that a rewritten head or a chunk's size line leaves in one write with what
//! follows it; and the worker's stock of them, last in first out.

use std::cell::RefCell;

/// Room in front of what is read: a head that grows by the proxy's own fields still fits before its body.
const HEADROOM: usize = 1024;
/// Room behind it, never read into: what closes a chunk, and a body.
const TAILROOM: usize = 16;
/// Read area of the buffers that every exchange has two of: heads and short bodies.
pub(crate) const SMALL: usize = 16 * 1024;
/// Read area of the buffers for long bodies that have to be looked at.
pub(crate) const BULK: usize = 128 * 1024;
/// Spare buffers that a worker keeps of either size.
const SPARE_MAX: usize = 64;

/// Bytes that have arrived and are not yet passed on.
pub(crate) struct Buffer {
    /// Initialised as a whole; `start..end` is filled.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    pub(crate) fn new(read_area: usize) -> Self {
        Self { bytes: vec![0; HEADROOM + read_area + TAILROOM], start: HEADROOM, end: HEADROOM }
    }

    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Where the next bytes are read to; empty when the buffer is full.
    pub(crate) fn spare(&mut self) -> &mut [u8] {
        let limit = self.bytes.len() - TAILROOM;
        &mut self.bytes[self.end.min(limit)..limit]
    }

    /// `count` bytes were read into `spare`.
    pub(crate) fn advance(&mut self, count: usize) {
        self.end += count;
        debug_assert!(self.end <= self.bytes.len());
    }

    /// The first `count` bytes are done with.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            self.clear();
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.start = HEADROOM;
        self.end = HEADROOM;
    }

    /// Puts `head` in front of what is filled, if there is room.
    pub(crate) fn prepend(&mut self, head: &[u8]) -> bool {
        let Some(start) = self.start.checked_sub(head.len()) else { return false };
        self.bytes[start..self.start].copy_from_slice(head);
        self.start = start;
        true
    }

    /// Puts `head` in front of what is filled, and makes room for it where there is too little.
    pub(crate) fn push_front(&mut self, head: &[u8]) {
        if self.prepend(head) {
            return;
        }
        // Rare: long trailers before a pipelined request. The odd size is not pooled afterwards.
        let mut larger = Buffer::new(self.read_area() + head.len());
        larger.bytes[HEADROOM..HEADROOM + head.len()].copy_from_slice(head);
        larger.end = HEADROOM + head.len() + self.len();
        larger.bytes[HEADROOM + head.len()..larger.end].copy_from_slice(self.filled());
        *self = larger;
    }

    /// Puts `tail` behind what is filled, if there is room.
    pub(crate) fn append(&mut self, tail: &[u8]) -> bool {
        let Some(room) = self.bytes.get_mut(self.end..self.end + tail.len()) else { return false };
        room.copy_from_slice(tail);
        self.end += tail.len();
        true
    }

    /// Keeps only the first `count` filled bytes.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.end = self.end.min(self.start + count);
    }

    fn read_area(&self) -> usize {
        self.bytes.len() - HEADROOM - TAILROOM
    }

    /// Moves what is filled to the front, so that the whole read area is behind it.
    pub(crate) fn compact(&mut self) {
        if self.start > HEADROOM {
            self.bytes.copy_within(self.start..self.end, HEADROOM);
            self.end -= self.start - HEADROOM;
            self.start = HEADROOM;
        }
    }
}

/// The spare buffers of one worker.
#[derive(Default)]
pub(crate) struct Buffers {
    small: RefCell<Vec<Buffer>>,
    bulk: RefCell<Vec<Buffer>>,
}

impl Buffers {
    /// An empty buffer with a read area of `SMALL`.
    pub(crate) fn small(&self) -> Buffer {
        self.small.borrow_mut().pop().unwrap_or_else(|| Buffer::new(SMALL))
    }

    /// Exchanges a buffer for one with at least twice the read area, and moves what is filled.
    pub(crate) fn grow(&self, buffer: &mut Buffer) {
        let read_area = (buffer.read_area() * 2).max(BULK);
        let spare = if read_area == BULK { self.bulk.borrow_mut().pop() } else { None };
        let mut larger = spare.unwrap_or_else(|| Buffer::new(read_area));
        let count = buffer.len();
        larger.spare()[..count].copy_from_slice(buffer.filled());
        larger.advance(count);
        self.give(std::mem::replace(buffer, larger));
    }

    /// Exchanges an empty large buffer for a small one.
    pub(crate) fn shrink(&self, buffer: &mut Buffer) {
        debug_assert!(buffer.is_empty());
        if buffer.read_area() != SMALL {
            let large = std::mem::replace(buffer, self.small());
            self.give(large);
        }
    }

    /// Takes a buffer back.
    fn give(&self, mut buffer: Buffer) {
        buffer.clear();
        let stock = match buffer.read_area() {
            SMALL => &self.small,
            BULK => &self.bulk,
            _ => return,
        };
        let mut stock = stock.borrow_mut();
        if stock.len() < SPARE_MAX {
            stock.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_front_and_behind_leaves_as_one_slice() {
        let mut buffer = Buffer::new(SMALL);
        buffer.spare()[..4].copy_from_slice(b"data");
        buffer.advance(4);
        assert!(buffer.prepend(b"4\r\n") && buffer.append(b"\r\n0\r\n\r\n") && buffer.prepend(b"head "));
        assert_eq!(buffer.filled(), b"head 4\r\ndata\r\n0\r\n\r\n");
        assert!(!buffer.prepend(&[0; HEADROOM]));
    }

    #[test]
    fn a_full_buffer_still_takes_a_tail() {
        let mut buffer = Buffer::new(SMALL);
        let count = buffer.spare().len();
        assert_eq!(count, SMALL);
        buffer.advance(count);
        assert!(buffer.spare().is_empty());
        assert!(buffer.append(b"\r\n0\r\n\r\n"));
        assert!(buffer.spare().is_empty());
        assert!(!buffer.append(&[0; TAILROOM]));
    }

    #[test]
    fn growing_keeps_the_bytes_and_shrinking_gives_the_large_one_back() {
        let stock = Buffers::default();
        let mut buffer = stock.small();
        buffer.advance(SMALL);
        buffer.filled_mut()[SMALL - 1] = 7;
        stock.grow(&mut buffer);
        assert_eq!((buffer.len(), buffer.filled()[SMALL - 1]), (SMALL, 7));
        assert_eq!(buffer.spare().len(), BULK - SMALL);
        buffer.clear();
        stock.shrink(&mut buffer);
        assert_eq!(buffer.spare().len(), SMALL);
        assert_eq!((stock.small.borrow().len(), stock.bulk.borrow().len()), (0, 1));
    }
}
