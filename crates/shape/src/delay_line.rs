//! Bytes that come late, in their order, as on a long link.
//!
//! The line narrows nothing: pieces wait beside each other, not behind each other. It is filled by its caller only while it
//! has room, which is what bounds its memory.

use std::collections::VecDeque;

use crate::delay::{Delay, unit};

/// What a link sends as one: of each of these some are lost.
pub(crate) const PACKET_BYTES: usize = 1460;

/// How late the bytes of a connection come one way.
#[derive(Debug, Clone, PartialEq)]
pub struct Latency {
    /// Of each piece.
    pub delay: Delay,
    /// Packets that have to be sent once more.
    pub loss: Option<Loss>,
}

/// Packets that have to be sent once more: what is behind them waits for that as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// How many of a million.
    pub per_million: u32,
    /// How long until such a packet has come after all, in nanoseconds.
    pub stall_ns: u64,
}

impl Latency {
    /// How late piece number `index` of so many bytes is, from 128 random bits that are its own.
    pub fn draw_ns(&self, index: u64, bytes: usize, random: [u64; 2]) -> u64 {
        let delay_ns = self.delay.draw_ns(index, random[0]);
        let Some(Loss { per_million, stall_ns }) = self.loss else { return delay_ns };
        let packets = bytes.div_ceil(PACKET_BYTES) as f64;
        let none_is_lost = (1.0 - f64::from(per_million) / 1e6).powf(packets);
        if unit(random[1]) > none_is_lost { delay_ns.saturating_add(stall_ns) } else { delay_ns }
    }
}

/// Bytes on their way, in order, and the end behind them.
#[derive(Debug)]
pub struct DelayLine {
    pieces: VecDeque<Piece>,
    held_bytes: usize,
    bytes_max: usize,
    /// When what was put in last is due.
    last_due_ns: u64,
    has_end: bool,
}

#[derive(Debug)]
struct Piece {
    due_ns: u64,
    bytes: Vec<u8>,
    sent: usize,
}

impl DelayLine {
    /// One that has room for so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { pieces: VecDeque::new(), held_bytes: 0, bytes_max, last_due_ns: 0, has_end: false }
    }

    /// How much may be put in; nothing behind the end.
    pub fn room(&self) -> usize {
        if self.has_end { 0 } else { self.bytes_max.saturating_sub(self.held_bytes) }
    }

    /// Whether no bytes are on their way, and no end.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && !self.has_end
    }

    /// Bytes that came at `now_ns` and leave `delay_ns` later, never before those that came before them.
    pub fn put(&mut self, bytes: Vec<u8>, now_ns: u64, delay_ns: u64) {
        if bytes.is_empty() {
            return;
        }
        self.last_due_ns = now_ns.saturating_add(delay_ns).max(self.last_due_ns);
        self.held_bytes += bytes.len();
        self.pieces.push_back(Piece { due_ns: self.last_due_ns, bytes, sent: 0 });
    }

    /// Nothing comes behind what has come by `now_ns`, and that is known `delay_ns` later.
    pub fn end(&mut self, now_ns: u64, delay_ns: u64) {
        if !self.has_end {
            self.has_end = true;
            self.last_due_ns = now_ns.saturating_add(delay_ns).max(self.last_due_ns);
        }
    }

    /// When the next bytes leave, or the end is known.
    pub fn due_ns(&self) -> Option<u64> {
        let end = self.has_end.then_some(self.last_due_ns);
        self.pieces.front().map(|piece| piece.due_ns).or(end)
    }

    /// Bytes that may leave now; empty where none may.
    pub fn due(&self, now_ns: u64) -> &[u8] {
        match self.pieces.front() {
            Some(piece) if piece.due_ns <= now_ns => &piece.bytes[piece.sent..],
            _ => &[],
        }
    }

    /// Whether everything has left, and the end is known.
    pub fn is_over(&self, now_ns: u64) -> bool {
        self.has_end && self.pieces.is_empty() && self.last_due_ns <= now_ns
    }

    /// So many of those have left.
    pub fn sent(&mut self, count: usize) {
        let Some(piece) = self.pieces.front_mut() else { return };
        piece.sent += count;
        self.held_bytes -= count;
        if piece.sent >= piece.bytes.len() {
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delay::Jitter;
    use crate::draw::Draws;

    const MS: u64 = 1_000_000;

    /// Random bits that are the same in every run.
    fn bits(index: u64) -> u64 {
        Draws::new(index, &[]).next_u64()
    }

    #[test]
    fn pieces_leave_whole_in_order_and_never_early() {
        let delay = Delay { mean_ns: 50 * MS, jitter: Jitter::Uniform { spread_ns: 49 * MS } };
        let (mut line, mut out, mut wanted) = (DelayLine::new(usize::MAX), Vec::new(), Vec::new());
        let mut last_due = 0;
        for index in 0..1_000u64 {
            let bytes = vec![index as u8; 1 + index as usize % 7];
            wanted.extend_from_slice(&bytes);
            let delay_ns = delay.draw_ns(index, bits(index));
            line.put(bytes, index * MS, delay_ns);
            last_due = last_due.max(index * MS + delay_ns);
        }
        let mut now = 0;
        while let Some(due) = line.due_ns() {
            assert!(due >= now, "in order");
            assert!(line.due(due - 1).is_empty(), "not early");
            now = due;
            out.extend_from_slice(&line.due(now)[..1]);
            line.sent(1);
        }
        assert_eq!(out, wanted);
        assert_eq!(now, last_due);
        assert_eq!(line.room(), usize::MAX);
    }

    #[test]
    fn a_delay_narrows_nothing() {
        let mut line = DelayLine::new(1 << 20);
        // A kilobyte each millisecond, half a second late: all of it is on its way at once.
        for at in 0..500 {
            line.put(vec![0; 1_000], at * MS, 500 * MS);
        }
        assert_eq!(line.room(), (1 << 20) - 500_000);
        for at in 500..1_000 {
            assert_eq!(line.due(at * MS).len(), 1_000, "what came at {} ms leaves at {at} ms", at - 500);
            line.sent(1_000);
            assert!(line.due(at * MS).is_empty());
        }
        assert!(line.is_empty());
    }

    #[test]
    fn the_end_is_late_as_well() {
        let mut line = DelayLine::new(10);
        line.put(vec![0; 4], 0, 50 * MS);
        line.end(10 * MS, 20 * MS);
        assert_eq!((line.room(), line.due_ns()), (0, Some(50 * MS)));
        assert!(!line.is_over(60 * MS), "not before what was sent before it");
        assert_eq!(line.due(50 * MS).len(), 4);
        line.sent(4);
        assert!(!line.is_over(49 * MS) && line.is_over(50 * MS) && !line.is_empty());
        let mut line = DelayLine::new(10);
        line.end(10 * MS, 20 * MS);
        assert_eq!(
            (line.due_ns(), line.is_over(29 * MS), line.is_over(30 * MS)),
            (Some(30 * MS), false, true)
        );
    }

    #[test]
    fn as_many_packets_are_lost_as_is_meant() {
        let delay = Delay { mean_ns: 10 * MS, jitter: Jitter::None };
        for (per_million, bytes, least, most) in [
            (0, 1_000, 0, 0),
            (10_000, 1_460, 900, 1_100),
            (10_000, 14_600, 9_200, 9_900),
            (1_000_000, 1, 100_000, 100_000),
        ] {
            let loss = Loss { per_million, stall_ns: 300 * MS };
            let latency = Latency { delay: delay.clone(), loss: Some(loss) };
            let late = |index| latency.draw_ns(index, bytes, [0, bits(index)]) == 310 * MS;
            let lost = (0..100_000).filter(|&index| late(index)).count();
            assert!(
                (least..=most).contains(&lost),
                "{lost} of 100000 pieces of {bytes} bytes at {per_million}"
            );
        }
    }
}
