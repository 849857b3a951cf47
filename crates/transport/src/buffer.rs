//! Read buffers with free space in front, so that one write sends a rewritten head, or a chunk's size line, with the
//! bytes behind it. Each worker has a pool of buffers, last in, first out.

use std::cell::RefCell;

/// Room in front of the read area: a head still fits before its body when the proxy's own fields make it longer.
const HEADROOM: usize = 256;
/// Room behind the read area, for the end of a chunk and of a body.
const TAILROOM: usize = 16;
/// Read area of the two buffers that an exchange on an HTTP/2 stream starts with. Small, because a connection has many
/// streams.
pub const TINY: usize = 512;
/// Read area of the two buffers that an exchange on a connection starts with: for heads and short bodies.
pub const SMALL: usize = 16 * 1024;
/// Read area of the buffers for long bodies that the proxy has to process.
pub const BULK: usize = 128 * 1024;
/// Read area of the buffers for long bodies that leave over an HTTP/2 stream.
pub const PIECE: usize = 96 * 1024;
/// The pooled sizes, and how many buffers of each are kept.
const SIZES: [usize; 4] = [TINY, SMALL, PIECE, BULK];
// Buffers beyond it go back to the allocator, so that a burst does not keep its memory.
const SPARE_MAX: usize = 64;
/// A waiting buffer with more bytes than this is not replaced by a smaller one: moving the bytes costs too much.
const WAITING_MAX: usize = 4096;

/// Bytes that have arrived and are not yet passed on.
pub struct Buffer {
    /// Initialised completely; `start..end` is filled.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// The read area with which the buffer was taken, and which it gets back after waiting.
    base: usize,
}

impl Buffer {
    /// Creates an empty buffer with this read area.
    pub fn new(read_area: usize) -> Self {
        let bytes = vec![0; HEADROOM + read_area + TAILROOM];
        Self { bytes, start: HEADROOM, end: HEADROOM, base: read_area }
    }

    /// Whether the buffer belongs to an HTTP/2 stream, and should be no larger than necessary.
    pub fn is_of_stream(&self) -> bool {
        self.base == TINY
    }

    /// Whether the read area of an exchange on a connection ([`SMALL`]) is full.
    pub fn has_filled_small(&self) -> bool {
        self.base == SMALL && self.read_area() == SMALL && self.end == HEADROOM + SMALL
    }

    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    pub fn len(&self) -> usize {
        self.end - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The free space for the next read. Empty if the buffer is full.
    pub fn spare(&mut self) -> &mut [u8] {
        // The tail stays free, so that the end of a chunk fits behind any read.
        let limit = self.bytes.len() - TAILROOM;
        &mut self.bytes[self.end.min(limit)..limit]
    }

    /// Marks `count` bytes as read into [`spare`](Self::spare).
    pub fn advance(&mut self, count: usize) {
        self.end += count;
        debug_assert!(self.end <= self.bytes.len());
    }

    pub fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
        // An empty buffer starts at the front again, with room for a head before it.
        if self.start == self.end {
            self.clear();
        }
    }

    pub fn clear(&mut self) {
        self.start = HEADROOM;
        self.end = HEADROOM;
    }

    /// Puts `head` in front of the unconsumed bytes. Returns `false` if there is no room.
    pub fn prepend(&mut self, head: &[u8]) -> bool {
        let Some(start) = self.start.checked_sub(head.len()) else { return false };
        self.bytes[start..self.start].copy_from_slice(head);
        self.start = start;
        true
    }

    /// Puts `head` in front of the unconsumed bytes, and grows the buffer if there is no room.
    pub fn push_front(&mut self, head: &[u8]) {
        if self.prepend(head) {
            return;
        }
        // Rare: long trailers before a pipelined request. A buffer of this size does not return to the pool.
        let mut larger = Buffer::new(self.read_area() + head.len());
        larger.base = self.base;
        larger.bytes[HEADROOM..HEADROOM + head.len()].copy_from_slice(head);
        larger.end = HEADROOM + head.len() + self.len();
        larger.bytes[HEADROOM + head.len()..larger.end].copy_from_slice(self.filled());
        *self = larger;
    }

    /// Puts `tail` behind the unconsumed bytes. Returns `false` if there is no room.
    pub fn append(&mut self, tail: &[u8]) -> bool {
        let Some(room) = self.bytes.get_mut(self.end..self.end + tail.len()) else { return false };
        room.copy_from_slice(tail);
        self.end += tail.len();
        true
    }

    pub fn truncate(&mut self, count: usize) {
        self.end = self.end.min(self.start + count);
    }

    fn read_area(&self) -> usize {
        self.bytes.len() - HEADROOM - TAILROOM
    }

    /// Moves the unconsumed bytes to the front, so that the free space behind them is as large as possible.
    pub fn compact(&mut self) {
        if self.start > HEADROOM {
            self.bytes.copy_within(self.start..self.end, HEADROOM);
            self.end -= self.start - HEADROOM;
            self.start = HEADROOM;
        }
    }
}

/// Drops half of the spare items beyond `wanted`, and the list's excess capacity.
pub fn shrink<T>(spare: &mut Vec<T>, wanted: usize) {
    let excess = spare.len().saturating_sub(wanted);
    if excess > 0 {
        // By halves, because the next second may need them again.
        spare.truncate(spare.len() - excess.div_ceil(2));
        spare.shrink_to(2 * spare.len());
    }
}

/// The pool of spare buffers of one worker.
#[derive(Default)]
pub struct Buffers {
    spare: [RefCell<Vec<Buffer>>; SIZES.len()],
    /// The memory of the last sent text, probably still in the core's cache.
    warm_text: RefCell<Vec<u8>>,
}

impl Buffers {
    /// Takes an empty buffer with this read area from the pool, or creates one.
    pub fn take(&self, read_area: usize) -> Buffer {
        let spare = self.spare_of(read_area).and_then(|spare| spare.borrow_mut().pop());
        let mut buffer = spare.unwrap_or_else(|| Buffer::new(read_area));
        buffer.base = read_area;
        buffer
    }

    /// Takes a small buffer for an exchange that waits. `base` is the read area with which the exchange starts.
    pub fn take_waiting(&self, base: usize) -> Buffer {
        let mut buffer = self.take(TINY);
        buffer.base = base;
        buffer
    }

    /// Replaces the buffer of a waiting exchange by a small one. The next exchange that reads gets the large one, which
    /// is still in the core's cache.
    pub fn wait(&self, buffer: &mut Buffer) {
        let wanted = if buffer.len() <= TINY { TINY } else { buffer.len() };
        // Many connections wait at once, and would hold a large buffer each.
        if buffer.read_area() > wanted && buffer.len() <= WAITING_MAX {
            self.exchange(buffer, wanted);
        }
    }

    /// Gives a buffer its initial read area back after the exchange has waited.
    #[inline]
    pub fn ready(&self, buffer: &mut Buffer) {
        if buffer.read_area() < buffer.base {
            self.exchange(buffer, buffer.base);
        }
    }

    /// Puts an empty text buffer into the pool, and takes the last one out.
    pub fn warm_text(&self, text: &mut Vec<u8>) {
        if text.is_empty() {
            // The memory of the last text is still in the core's cache, so writing the next one there misses it less.
            std::mem::swap(&mut *self.warm_text.borrow_mut(), text);
        }
    }

    /// Replaces a buffer by one with at least twice the read area, and moves the unconsumed bytes.
    pub fn grow(&self, buffer: &mut Buffer) {
        let wanted = buffer.read_area() * 2;
        // Directly to a pooled size: other sizes would be allocated and freed for each long head.
        let size = if wanted <= SMALL { SMALL } else { wanted.max(BULK) };
        self.exchange(buffer, if buffer.is_of_stream() { wanted } else { size });
    }

    /// Replaces a buffer by one of the largest size, and moves the unconsumed bytes.
    pub fn widen(&self, buffer: &mut Buffer) {
        if buffer.read_area() < BULK {
            self.exchange(buffer, BULK);
        }
    }

    /// Replaces an empty buffer by one with a read area of `wanted` bytes, or of the largest size.
    pub fn grow_to(&self, buffer: &mut Buffer, wanted: usize) {
        debug_assert!(buffer.is_empty());
        let size = SIZES.into_iter().find(|&size| size >= wanted).unwrap_or(BULK);
        if size > buffer.read_area() {
            self.exchange(buffer, size);
        }
    }

    /// Replaces a buffer by one for `len` bytes, but no smaller than its initial read area or its unconsumed bytes.
    pub fn fit(&self, buffer: &mut Buffer, len: usize) {
        let len = len.max(buffer.len());
        let wanted = if len <= buffer.base { buffer.base } else { len };
        if wanted != buffer.read_area() {
            self.exchange(buffer, wanted);
        }
    }

    /// Replaces a buffer by one that has room only for its unconsumed bytes.
    pub fn park(&self, buffer: &mut Buffer) {
        let filled = buffer.len();
        self.exchange(buffer, filled);
    }

    /// Replaces a buffer by one with at least its initial read area.
    pub fn unpark(&self, buffer: &mut Buffer) {
        let wanted = buffer.base.max(buffer.len());
        if buffer.read_area() < wanted {
            self.exchange(buffer, wanted);
        }
    }

    /// Replaces an empty buffer by one with its initial read area.
    pub fn shrink(&self, buffer: &mut Buffer) {
        debug_assert!(buffer.is_empty());
        if buffer.read_area() != buffer.base {
            self.exchange(buffer, buffer.base);
        }
    }

    fn exchange(&self, buffer: &mut Buffer, read_area: usize) {
        let mut other = self.take(read_area);
        let count = buffer.len();
        // Only unconsumed bytes move, to the front, so this also compacts.
        other.spare()[..count].copy_from_slice(buffer.filled());
        other.advance(count);
        other.base = buffer.base;
        self.give(std::mem::replace(buffer, other));
    }

    fn give(&self, mut buffer: Buffer) {
        buffer.clear();
        if let Some(spare) = self.spare_of(buffer.read_area()) {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.push(buffer);
            }
        }
    }

    /// Drops half of the spare buffers of each size beyond `wanted`. Called once a second, so that the pool shrinks
    /// slowly.
    pub fn shrink_spare(&self, wanted: usize) {
        for spare in &self.spare {
            shrink(&mut spare.borrow_mut(), wanted);
        }
    }

    fn spare_of(&self, read_area: usize) -> Option<&RefCell<Vec<Buffer>>> {
        let at = SIZES.into_iter().position(|size| size == read_area)?;
        Some(&self.spare[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_before_and_behind_form_one_slice() {
        let mut buffer = Buffer::new(SMALL);
        buffer.spare()[..4].copy_from_slice(b"data");
        buffer.advance(4);
        assert!(buffer.prepend(b"4\r\n") && buffer.append(b"\r\n0\r\n\r\n") && buffer.prepend(b"head "));
        assert_eq!(buffer.filled(), b"head 4\r\ndata\r\n0\r\n\r\n");
        assert!(!buffer.prepend(&[0; HEADROOM]));
    }

    #[test]
    fn unused_spares_are_released_by_halves() {
        let stock = Buffers::default();
        let taken: Vec<Buffer> = (0..SPARE_MAX).map(|_| stock.take(SMALL)).collect();
        taken.into_iter().for_each(|buffer| stock.give(buffer));
        let spare = || stock.spare[1..].iter().map(|spare| spare.borrow().len()).sum::<usize>();
        let mut left = Vec::new();
        for wanted in [SPARE_MAX, 100, 60, 60, 60, 0, 0, 0, 0, 0, 0, 0] {
            stock.shrink_spare(wanted);
            left.push(spare());
        }
        assert_eq!(left, [64, 64, 62, 61, 60, 30, 15, 7, 3, 1, 0, 0]);
        assert!(stock.spare.iter().all(|spare| spare.borrow().capacity() == 0));
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
        let mut buffer = stock.take(SMALL);
        buffer.advance(SMALL);
        buffer.filled_mut()[SMALL - 1] = 7;
        stock.grow(&mut buffer);
        assert_eq!((buffer.len(), buffer.filled()[SMALL - 1]), (SMALL, 7));
        assert_eq!(buffer.spare().len(), BULK - SMALL);
        buffer.clear();
        stock.shrink(&mut buffer);
        assert_eq!(buffer.spare().len(), SMALL);
        assert_eq!(stock.spare.each_ref().map(|spare| spare.borrow().len()), [0, 0, 0, 1]);
    }

    #[test]
    fn the_buffer_that_was_used_last_is_used_again() {
        let stock = Buffers::default();
        let mut exchanges = [stock.take_waiting(SMALL), stock.take_waiting(SMALL)];
        let mut used = Vec::new();
        for at in [0, 1, 0] {
            let buffer = &mut exchanges[at];
            stock.ready(buffer);
            assert_eq!(buffer.read_area(), SMALL);
            used.push(buffer.spare().as_ptr());
            buffer.spare()[0] = b'x';
            buffer.advance(1);
            // Unread bytes stay with their exchange.
            stock.wait(buffer);
            assert_eq!((buffer.filled(), buffer.read_area()), (&b"x"[..], TINY));
            buffer.consume(1);
        }
        assert!(used.iter().all(|bytes| *bytes == used[0]), "{used:?}");
    }

    #[test]
    fn a_waiting_buffer_is_as_small_as_its_bytes() {
        let stock = Buffers::default();
        for (base, filled, waiting, ready) in [
            (SMALL, 0, TINY, SMALL),
            (SMALL, TINY, TINY, SMALL),
            (SMALL, TINY + 1, TINY + 1, SMALL),
            (SMALL, WAITING_MAX, WAITING_MAX, SMALL),
            (SMALL, WAITING_MAX + 1, SMALL, SMALL),
            (TINY, 3, TINY, TINY),
        ] {
            let mut buffer = stock.take(base);
            buffer.advance(filled);
            stock.wait(&mut buffer);
            assert_eq!((buffer.len(), buffer.read_area()), (filled, waiting));
            stock.ready(&mut buffer);
            assert_eq!((buffer.len(), buffer.read_area()), (filled, ready));
        }
    }

    #[test]
    fn the_text_that_was_sent_last_is_written_again() {
        let stock = Buffers::default();
        let mut exchanges = [Vec::new(), Vec::new()];
        for at in [0, 1, 0] {
            let text = &mut exchanges[at];
            stock.warm_text(text);
            text.extend_from_slice(b"GET / HTTP/1.1");
            // Unsent text stays with its exchange.
            stock.warm_text(text);
            assert_eq!(text, b"GET / HTTP/1.1");
            text.clear();
            stock.warm_text(text);
        }
        assert_eq!(exchanges.map(|text| text.capacity()), [0, 0], "one text does for all");
    }

    #[test]
    fn a_stream_has_no_more_than_it_needs() {
        let stock = Buffers::default();
        let mut buffer = stock.take(TINY);
        assert!(buffer.is_of_stream());
        for (wanted, got) in
            [(1, TINY), (TINY + 1, SMALL), (SMALL, SMALL), (SMALL + 1, PIECE), (usize::MAX, BULK), (0, BULK)]
        {
            stock.grow_to(&mut buffer, wanted);
            assert_eq!(buffer.spare().len(), got);
        }
        for (filled, got) in [(3000, 3000), (100, TINY)] {
            buffer.advance(filled - buffer.len().min(filled));
            buffer.truncate(filled);
            stock.fit(&mut buffer, 0);
            assert_eq!((buffer.len(), buffer.len() + buffer.spare().len()), (filled, got));
        }
        assert!(buffer.is_of_stream());
    }
}
