//! Delay line: bytes leave later than they arrived, in order, as on a long link.
//!
//! It does not limit the rate: pieces wait in parallel. To bound its memory, the caller adds bytes only if there is
//! room.

use std::collections::VecDeque;

use crate::delay::{Delay, unit};

/// Size of an emulated packet, the unit of packet loss.
pub(crate) const PACKET_BYTES: usize = 1460;

/// The latency of a connection in one direction.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkLatency {
    /// The delay of each piece.
    pub delay: Delay,
    pub loss: Option<LinkLoss>,
}

/// Emulated packet loss. A lost packet is sent again, and the bytes behind it wait for it, as in TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkLoss {
    pub per_million: u32,
    /// Additional delay of a lost packet.
    pub stall_ns: u64,
}

impl LinkLatency {
    /// Returns the delay of piece number `index`, of `bytes` bytes. Nothing else may use the 128 bits of `random`.
    pub fn draw_ns(&self, index: u64, bytes: usize, random: [u64; 2]) -> u64 {
        let delay_ns = self.delay.draw_ns(index, random[0]);
        let Some(LinkLoss { per_million, stall_ns }) = self.loss else { return delay_ns };
        let packets = bytes.div_ceil(PACKET_BYTES) as f64;
        let none_is_lost = (1.0 - f64::from(per_million) / 1e6).powf(packets);
        if unit(random[1]) > none_is_lost { delay_ns.saturating_add(stall_ns) } else { delay_ns }
    }
}

impl LinkLatency {
    /// Whether datagram number `index` is lost, and its delay. A lost one stays lost: its sender has to repeat it.
    pub fn draw_datagram(&self, index: u64, bytes: usize, random: [u64; 2]) -> (bool, u64) {
        let Some(LinkLoss { per_million, .. }) = self.loss else {
            return (false, self.delay.draw_ns(index, random[0]));
        };
        let packets = bytes.div_ceil(PACKET_BYTES) as f64;
        let none_is_lost = (1.0 - f64::from(per_million) / 1e6).powf(packets);
        (unit(random[1]) > none_is_lost, self.delay.draw_ns(index, random[0]))
    }
}

/// Delayed bytes in order, followed by the end of the stream.
#[derive(Debug)]
pub struct DelayLine {
    pieces: VecDeque<DelayedPiece>,
    held_bytes: usize,
    bytes_max: usize,
    last_due_ns: u64,
    has_end: bool,
}

#[derive(Debug)]
struct DelayedPiece {
    due_ns: u64,
    bytes: Vec<u8>,
    sent: usize,
}

impl DelayLine {
    pub fn new(bytes_max: usize) -> Self {
        Self { pieces: VecDeque::new(), held_bytes: 0, bytes_max, last_due_ns: 0, has_end: false }
    }

    /// Returns how many bytes may be added; 0 after the end.
    pub fn room(&self) -> usize {
        if self.has_end { 0 } else { self.bytes_max.saturating_sub(self.held_bytes) }
    }

    /// Whether neither bytes nor the end of the stream are in transit.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && !self.has_end
    }

    /// Adds bytes that arrived at `now_ns` and leave `delay_ns` later, but never before earlier bytes.
    pub fn put(&mut self, bytes: Vec<u8>, now_ns: u64, delay_ns: u64) {
        if bytes.is_empty() {
            return;
        }
        self.last_due_ns = now_ns.saturating_add(delay_ns).max(self.last_due_ns);
        self.held_bytes += bytes.len();
        self.pieces.push_back(DelayedPiece { due_ns: self.last_due_ns, bytes, sent: 0 });
    }

    /// Ends the stream. The reader gets the end after `delay_ns`.
    pub fn end(&mut self, now_ns: u64, delay_ns: u64) {
        if !self.has_end {
            self.has_end = true;
            self.last_due_ns = now_ns.saturating_add(delay_ns).max(self.last_due_ns);
        }
    }

    /// Returns when the next bytes leave, or when the end is delivered.
    pub fn due_ns(&self) -> Option<u64> {
        let end = self.has_end.then_some(self.last_due_ns);
        self.pieces.front().map(|piece| piece.due_ns).or(end)
    }

    /// Returns the bytes that may leave now; may be empty.
    pub fn due(&self, now_ns: u64) -> &[u8] {
        match self.pieces.front() {
            Some(piece) if piece.due_ns <= now_ns => &piece.bytes[piece.sent..],
            _ => &[],
        }
    }

    /// Whether all bytes have left, and the end has been delivered.
    pub fn is_over(&self, now_ns: u64) -> bool {
        self.has_end && self.pieces.is_empty() && self.last_due_ns <= now_ns
    }

    /// Removes `count` bytes that have left.
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
        // A kilobyte each millisecond, half a second late: all of it is in transit at once.
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
            let loss = LinkLoss { per_million, stall_ns: 300 * MS };
            let latency = LinkLatency { delay: delay.clone(), loss: Some(loss) };
            let late = |index| latency.draw_ns(index, bytes, [0, bits(index)]) == 310 * MS;
            let lost = (0..100_000).filter(|&index| late(index)).count();
            assert!(
                (least..=most).contains(&lost),
                "{lost} of 100000 pieces of {bytes} bytes at {per_million}"
            );
        }
    }
}
