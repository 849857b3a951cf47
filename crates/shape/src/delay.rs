//! How late bytes come, and the line that they wait in.
//!
//! The line keeps their order and narrows nothing: pieces wait beside each other, not behind each other. It is filled by
//! its caller only while it has room, which is what bounds its memory.

use std::collections::VecDeque;

/// How delays vary around their mean.
#[derive(Debug, Clone, PartialEq)]
pub enum Jitter {
    /// They do not.
    None,
    /// Evenly, by at most this much to either side.
    Uniform {
        /// The most, in nanoseconds.
        spread_ns: u64,
    },
    /// As the sum of many small causes does.
    Normal {
        /// The standard deviation, in nanoseconds.
        deviation_ns: u64,
    },
    /// Mostly a little later, now and then very much: never earlier than the delay itself.
    Pareto {
        /// The mean of what comes on top, in nanoseconds.
        mean_ns: u64,
    },
    /// As it was measured: one after the other, from the beginning again at the end.
    Trace {
        /// Added to the delay, in nanoseconds; never empty.
        added_ns: Vec<i64>,
    },
}

/// The shape of the Pareto distribution: heavy, but with a finite mean and variance.
const PARETO_SHAPE: f64 = 2.5;
/// A Pareto draw is cut off at so many means.
const PARETO_MAX: f64 = 50.0;

/// A delay and how it varies.
#[derive(Debug, Clone, PartialEq)]
pub struct Delay {
    /// In nanoseconds.
    pub mean_ns: u64,
    /// Around it.
    pub jitter: Jitter,
}

impl Delay {
    /// The delay of piece number `index`, from 64 random bits that are its own.
    pub fn draw_ns(&self, index: u64, random: u64) -> u64 {
        let added = match &self.jitter {
            Jitter::None => 0.0,
            Jitter::Uniform { spread_ns } => (2.0 * unit(random) - 1.0) * *spread_ns as f64,
            Jitter::Normal { deviation_ns } => normal(random) * *deviation_ns as f64,
            Jitter::Pareto { mean_ns } => pareto(random) * *mean_ns as f64,
            Jitter::Trace { added_ns } => match added_ns.len() as u64 {
                0 => 0.0,
                len => added_ns[(index % len) as usize] as f64,
            },
        };
        // A cast of what is below 0 is 0.
        (self.mean_ns as f64 + added).round() as u64
    }
}

/// Above 0 and at most 1.
fn unit(random: u64) -> f64 {
    ((random >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// Box and Muller: from two halves of the random bits.
fn normal(random: u64) -> f64 {
    let half = |bits: u64| ((bits & 0xffff_ffff) + 1) as f64 / (1u64 << 32) as f64;
    (-2.0 * half(random).ln()).sqrt() * (std::f64::consts::TAU * half(random >> 32)).cos()
}

/// With a mean of 1, beginning at 0.
fn pareto(random: u64) -> f64 {
    let lomax = unit(random).powf(-1.0 / PARETO_SHAPE) - 1.0;
    (lomax * (PARETO_SHAPE - 1.0)).min(PARETO_MAX)
}

/// Bytes on their way, in order.
#[derive(Debug)]
pub struct DelayLine {
    pieces: VecDeque<Piece>,
    held_bytes: usize,
    bytes_max: usize,
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
        Self { pieces: VecDeque::new(), held_bytes: 0, bytes_max }
    }

    /// How much may be put in.
    pub fn room(&self) -> usize {
        self.bytes_max.saturating_sub(self.held_bytes)
    }

    /// Whether nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes that came at `now_ns` and leave `delay_ns` later, never before those that came before them.
    pub fn put(&mut self, bytes: Vec<u8>, now_ns: u64, delay_ns: u64) {
        if bytes.is_empty() {
            return;
        }
        let last = self.pieces.back().map_or(0, |piece| piece.due_ns);
        self.held_bytes += bytes.len();
        self.pieces.push_back(Piece { due_ns: now_ns.saturating_add(delay_ns).max(last), bytes, sent: 0 });
    }

    /// When the next bytes leave.
    pub fn due_ns(&self) -> Option<u64> {
        self.pieces.front().map(|piece| piece.due_ns)
    }

    /// Bytes that may leave now; empty where none may.
    pub fn due(&self, now_ns: u64) -> &[u8] {
        match self.pieces.front() {
            Some(piece) if piece.due_ns <= now_ns => &piece.bytes[piece.sent..],
            _ => &[],
        }
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

    const MS: u64 = 1_000_000;

    /// Random bits that are the same in every run.
    fn bits(index: u64) -> u64 {
        let mut bits = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn drawn(jitter: Jitter) -> Vec<f64> {
        let delay = Delay { mean_ns: 2_000 * MS, jitter };
        (0..100_000).map(|index| delay.draw_ns(index, bits(index)) as f64 / MS as f64).collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    fn deviation(values: &[f64]) -> f64 {
        let mean = mean(values);
        (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
    }

    #[test]
    fn delays_are_distributed_as_they_are_meant() {
        assert!(drawn(Jitter::None).iter().all(|&delay| delay == 2000.0));
        let uniform = drawn(Jitter::Uniform { spread_ns: 100 * MS });
        assert!(uniform.iter().all(|delay| (1900.0..=2100.0).contains(delay)));
        assert!((mean(&uniform) - 2000.0).abs() < 1.0 && (deviation(&uniform) - 57.7).abs() < 1.0);
        let normal = drawn(Jitter::Normal { deviation_ns: 100 * MS });
        assert!((mean(&normal) - 2000.0).abs() < 2.0 && (deviation(&normal) - 100.0).abs() < 2.0);
        let pareto = drawn(Jitter::Pareto { mean_ns: 100 * MS });
        assert!(pareto.iter().all(|&delay| delay >= 2000.0));
        assert!((mean(&pareto) - 2100.0).abs() < 5.0);
        let trace = Jitter::Trace { added_ns: vec![5 * MS as i64, -3000 * MS as i64] };
        assert_eq!(drawn(trace)[..4], [2005.0, 0.0, 2005.0, 0.0]);
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
}
