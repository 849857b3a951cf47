//! A single toxic in one direction of one connection: a queue of pieces, with the time at which each may pass. Times
//! count from an epoch of the caller's choice; nothing here waits.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use crate::delay_line::{LinkLoss, PACKET_BYTES};
use crate::draw::Draws;
use crate::toxic::{DirectionEnding, Effect};

/// Maximum number of bytes that wait in a stage without a delay.
const HELD_MAX: usize = 64 * 1024;
/// Maximum number of bytes that wait in a stage with a delay, like those in flight on a long link.
const DELAYED_MAX: usize = 32 << 20;
/// A rate-limited stage holds up to this time's worth of data, and at least `HELD_MAX`. A fast link then does not run
/// dry before the sender is read again.
const LINK_HELD_MS: u64 = 40;
const LINK_HELD_MAX: usize = 8 << 20;
/// A rate-limited stage passes at least this many pieces per second, so that data flows on a slow link.
const PIECES_PER_SECOND: u64 = 100;
/// A stage that is called late catches up with at most this much time.
const SLACK: Duration = Duration::from_millis(20);

/// Bytes in transit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TransitPiece {
    pub(crate) bytes: Bytes,
    /// When the bytes arrived, or left the previous stage.
    pub(crate) at: Duration,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StageStep {
    Pass(TransitPiece),
    End(DirectionEnding, Duration),
    /// Nothing passes until this time; `None` means until something arrives.
    Wait(Option<Duration>),
}

/// A toxic with the bytes that it holds.
#[derive(Debug)]
pub(crate) struct ToxicStage {
    /// The toxic's.
    pub(crate) id: u64,
    effect: Effect,
    began: Duration,
    /// The last time that a piece arrived or the effect changed.
    quiet_since: Duration,
    /// When the first dropped piece arrived, or the end if that came before.
    first_at: Option<Duration>,
    /// Whether the stage has dropped bytes.
    has_swallowed: bool,
    draws: Draws,
    input: VecDeque<TransitPiece>,
    held: usize,
    /// The end of the input, and when it arrived.
    ended: Option<(DirectionEnding, Duration)>,
    /// Whether the end has been passed on.
    pub(crate) is_done: bool,
    /// When the first piece passes, once that is decided.
    due: Option<Duration>,
    /// When the previous piece passed.
    free_at: Duration,
    passed: u64,
    /// The lengths that the first piece is cut into, in reverse order.
    cuts: Vec<usize>,
    /// The position of the next byte to corrupt, counted from the first byte that passed.
    next_exchange: Option<u64>,
    /// Number of bytes before the first lost packet of the first piece, once that is decided.
    ahead_of_loss: Option<usize>,
}

impl ToxicStage {
    pub(crate) fn new(id: u64, effect: Effect, began: Duration, draws: Draws) -> Self {
        Self {
            id,
            effect,
            began,
            quiet_since: began,
            first_at: None,
            has_swallowed: false,
            draws,
            input: VecDeque::new(),
            held: 0,
            ended: None,
            is_done: false,
            due: None,
            free_at: Duration::ZERO,
            passed: 0,
            cuts: Vec::new(),
            next_exchange: None,
            ahead_of_loss: None,
        }
    }

    /// Changes the effect, also for pieces that already wait.
    pub(crate) fn become_effect(&mut self, effect: Effect, now: Duration) {
        if self.effect != effect {
            self.effect = effect;
            self.quiet_since = now;
            self.due = None;
            self.cuts.clear();
            self.ahead_of_loss = None;
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        let limit = match self.effect {
            Effect::Latency { .. } | Effect::SlowStart { .. } | Effect::PacketLoss(_) => DELAYED_MAX,
            Effect::Bandwidth { bytes_per_second } => {
                let held = bytes_per_second.saturating_mul(LINK_HELD_MS) / 1000;
                usize::try_from(held).unwrap_or(usize::MAX).clamp(HELD_MAX, LINK_HELD_MAX)
            }
            _ => HELD_MAX,
        };
        self.held < limit
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.input.is_empty()
    }

    pub(crate) fn push(&mut self, piece: TransitPiece) {
        self.held += piece.bytes.len();
        self.input.push_back(piece);
    }

    pub(crate) fn end(&mut self, ending: DirectionEnding, at: Duration) {
        self.ended.get_or_insert((ending, at));
    }

    /// Returns the rest to pass to the next stage when this one is removed.
    pub(crate) fn dissolve(mut self) -> (VecDeque<TransitPiece>, Option<(DirectionEnding, Duration)>) {
        let ended = match self.effect {
            // Swallowed bytes are missing, so the connection must not continue. A timeout closes it even without
            // missing bytes, as Toxiproxy's does.
            Effect::Timeout { .. } => Some((DirectionEnding::Close, self.began)),
            Effect::HalfOpen { .. } if self.has_swallowed => Some((DirectionEnding::Close, self.began)),
            Effect::ResetPeer { .. } if self.has_swallowed => Some((DirectionEnding::Reset, self.began)),
            _ => self.ended,
        };
        if self.has_swallowed {
            self.forget();
        }
        if self.is_done { (VecDeque::new(), None) } else { (self.input, ended) }
    }

    pub(crate) fn step(&mut self, now: Duration) -> StageStep {
        match self.effect {
            Effect::Latency { latency_ms, jitter_ms } => self.delayed(now, latency_ms, jitter_ms),
            Effect::Bandwidth { bytes_per_second } => self.at_rate(now, bytes_per_second),
            Effect::SlowClose { delay } => match (self.pop(), self.ended) {
                (Some(piece), _) => StageStep::Pass(piece),
                (None, Some((_, at))) if now < at + delay => StageStep::Wait(Some(at + delay)),
                (None, Some((ending, at))) => StageStep::End(ending, at + delay),
                (None, None) => StageStep::Wait(None),
            },
            Effect::Timeout { after } => self.timed_out(now, after),
            Effect::ResetPeer { after } => {
                let first = self.input.front().map(|piece| piece.at).or(self.ended.map(|(_, at)| at));
                self.forget();
                // The first arrival decides, even if more arrives or the time changes.
                self.first_at = self.first_at.or(first);
                match self.first_at.map(|first| first + after) {
                    Some(due) if now >= due => StageStep::End(DirectionEnding::Reset, due),
                    due => StageStep::Wait(due),
                }
            }
            Effect::ResetAfter { after } => {
                let due = self.began + after;
                match (now >= due, self.pop()) {
                    (true, _) => StageStep::End(DirectionEnding::Reset, due),
                    (false, Some(piece)) => StageStep::Pass(piece),
                    (false, None) if self.ended.is_some() => self.at_end(),
                    (false, None) => StageStep::Wait(Some(due)),
                }
            }
            Effect::Slicer { average_bytes, variation_bytes, delay } => {
                self.sliced(now, average_bytes, variation_bytes, delay)
            }
            Effect::LimitData { bytes, ending } => self.limited(now, bytes, ending),
            Effect::HalfOpen { bytes } => {
                // Once a byte is missing no other may follow, even if the limit was raised.
                if self.passed >= bytes || self.has_swallowed {
                    self.forget();
                    return StageStep::Wait(None);
                }
                let left = usize::try_from(bytes - self.passed).unwrap_or(usize::MAX);
                self.take(left).map_or_else(|| self.at_end(), StageStep::Pass)
            }
            Effect::Corrupt { every_bytes } => {
                let before = self.passed;
                match self.take(usize::MAX) {
                    Some(piece) => StageStep::Pass(self.corrupted(piece, before, every_bytes)),
                    None => self.at_end(),
                }
            }
            Effect::SlowStart { delay } => {
                let due = self.began + delay;
                match (now >= due, self.input.is_empty(), self.ended) {
                    (false, true, None) => StageStep::Wait(None),
                    (false, ..) => StageStep::Wait(Some(due)),
                    (true, ..) => {
                        self.free_at = due;
                        let late = |piece: TransitPiece| {
                            StageStep::Pass(TransitPiece { at: piece.at.max(due), ..piece })
                        };
                        self.pop().map_or_else(|| self.at_end(), late)
                    }
                }
            }
            Effect::PacketLoss(loss) => self.lossy(now, loss),
        }
    }

    /// Swallows everything, and closes after a time without a piece. Each piece restarts that time, as in Toxiproxy.
    fn timed_out(&mut self, now: Duration, after: Option<Duration>) -> StageStep {
        let last_at = self.input.back().map_or(self.quiet_since, |piece| piece.at);
        self.quiet_since = self.quiet_since.max(last_at);
        self.forget();
        let due = after.map(|after| self.quiet_since + after);
        match due {
            _ if self.ended.is_some() => self.at_end(),
            Some(due) if now >= due => StageStep::End(DirectionEnding::Close, due),
            due => StageStep::Wait(due),
        }
    }

    /// Passes each piece at its time, but never before an earlier one.
    fn delayed(&mut self, now: Duration, latency_ms: i64, jitter_ms: i64) -> StageStep {
        let Some(piece) = self.input.front() else { return self.at_end() };
        let due = match self.due {
            Some(due) => due,
            None => {
                let jitter_ms = self.draws.next_in(-jitter_ms, jitter_ms);
                let late_ms = u64::try_from(latency_ms.saturating_add(jitter_ms)).unwrap_or(0);
                (piece.at + Duration::from_millis(late_ms)).max(self.free_at)
            }
        };
        self.pass_at(now, due, usize::MAX)
    }

    /// Passes each piece up to its first lost packet at once, and the rest after the retransmission, because TCP
    /// delivers nothing behind a gap.
    fn lossy(&mut self, now: Duration, loss: LinkLoss) -> StageStep {
        let Some(piece) = self.input.front() else { return self.at_end() };
        let (at, len) = (piece.at, piece.bytes.len());
        let ahead = match self.ahead_of_loss {
            Some(ahead) => ahead,
            None => {
                let share = f64::from(loss.per_million) / 1e6;
                let packets = len.div_ceil(PACKET_BYTES);
                let lost = (0..packets).find(|_| self.draws.happens(share));
                lost.map_or(len, |lost| lost * PACKET_BYTES)
            }
        };
        self.ahead_of_loss = Some(ahead);
        let (due, count) = match ahead {
            0 => (at + Duration::from_nanos(loss.stall_ns), len),
            ahead => (at, ahead),
        };
        let due = self.due.unwrap_or(due.max(self.free_at));
        let step = self.pass_at(now, due, count);
        if matches!(step, StageStep::Pass(_)) {
            // The rest of the piece begins with the lost packet.
            self.ahead_of_loss = (count < len).then_some(0);
        }
        step
    }

    /// Passes each piece once a link of this rate has sent it.
    fn at_rate(&mut self, now: Duration, bytes_per_second: u64) -> StageStep {
        let Some(piece) = self.input.front() else { return self.at_end() };
        if bytes_per_second == 0 {
            return StageStep::Wait(None);
        }
        let most = (bytes_per_second / PIECES_PER_SECOND).max(1);
        let count = piece.bytes.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        let takes = Duration::from_nanos((count as u64).saturating_mul(1_000_000_000) / bytes_per_second);
        let due = self.due.unwrap_or_else(|| self.free_at.max(piece.at) + takes);
        self.pass_at(now, due, count)
    }

    /// Passes up to `count` bytes of the first piece, if `due` has come.
    fn pass_at(&mut self, now: Duration, due: Duration, count: usize) -> StageStep {
        if now < due {
            self.due = Some(due);
            return StageStep::Wait(Some(due));
        }
        self.due = None;
        self.free_at = due.max(now.saturating_sub(SLACK));
        match self.take(count) {
            Some(piece) => StageStep::Pass(TransitPiece { at: due, ..piece }),
            None => self.at_end(),
        }
    }

    fn sliced(&mut self, now: Duration, average: u64, variation: u64, delay: Duration) -> StageStep {
        let Some(piece) = self.input.front() else { return self.at_end() };
        let due = self.free_at.max(piece.at);
        if now < due {
            return StageStep::Wait(Some(due));
        }
        if self.cuts.is_empty() {
            let len = piece.bytes.len();
            self.cut(len as u64, average, variation);
        }
        let count = self.cuts.pop().unwrap_or(usize::MAX);
        self.free_at = due.max(now.saturating_sub(SLACK)) + delay;
        self.take(count)
            .map_or_else(|| self.at_end(), |piece| StageStep::Pass(TransitPiece { at: due, ..piece }))
    }

    /// Halves `len` bytes repeatedly, with variation, until all parts have the wanted size.
    fn cut(&mut self, len: u64, average: u64, variation: u64) {
        let mut uncut = vec![len];
        while let Some(len) = uncut.pop() {
            if len <= average.saturating_add(variation) {
                // A piece has at most 64 KiB.
                self.cuts.push(len as usize);
                continue;
            }
            let shift = self.draws.next_in(-(variation as i64), variation as i64);
            // A part of this size exceeds the average plus the variation, so its half exceeds half the variation.
            let first = (len as i64 / 2 + shift).clamp(1, len as i64 - 1) as u64;
            // The part pushed last is cut, and passed on, last: `cuts` has its first one at the end.
            uncut.push(first);
            uncut.push(len - first);
        }
    }

    fn limited(&mut self, now: Duration, bytes: u64, ending: DirectionEnding) -> StageStep {
        let left = usize::try_from(bytes.saturating_sub(self.passed)).unwrap_or(usize::MAX);
        if left == 0 && (bytes > 0 || !self.input.is_empty()) {
            return StageStep::End(ending, now);
        }
        self.take(left).map_or_else(|| self.at_end(), StageStep::Pass)
    }

    /// Changes one byte in each `every`. The position and the new value are drawn.
    fn corrupted(&mut self, piece: TransitPiece, before: u64, every: u64) -> TransitPiece {
        let mut bytes = Vec::from(piece.bytes);
        let end = before + bytes.len() as u64;
        loop {
            let block = |position: u64| position / every * every;
            let next = match self.next_exchange {
                Some(next) => next,
                None => self.exchange_in(block(before), every),
            };
            self.next_exchange = Some(next);
            if next >= end {
                break;
            }
            if let Some(byte) = next.checked_sub(before).and_then(|at| bytes.get_mut(at as usize)) {
                *byte ^= self.draws.next_in(1, 256) as u8;
            }
            self.next_exchange = Some(self.exchange_in(block(next) + every, every));
        }
        TransitPiece { bytes: Bytes::from(bytes), ..piece }
    }

    /// Draws the position of the byte to change in a block.
    fn exchange_in(&mut self, block: u64, every: u64) -> u64 {
        block + self.draws.next_in(0, i64::try_from(every).unwrap_or(i64::MAX)) as u64
    }

    fn at_end(&self) -> StageStep {
        match self.ended {
            // The end must not overtake earlier pieces.
            Some((ending, at)) if self.input.is_empty() => StageStep::End(ending, at.max(self.free_at)),
            _ => StageStep::Wait(None),
        }
    }

    fn pop(&mut self) -> Option<TransitPiece> {
        self.take(usize::MAX)
    }

    /// Takes up to `count` bytes of the first piece.
    fn take(&mut self, count: usize) -> Option<TransitPiece> {
        let first = self.input.front_mut()?;
        let taken = if count < first.bytes.len() {
            TransitPiece { bytes: first.bytes.split_to(count), at: first.at }
        } else {
            self.input.pop_front()?
        };
        self.held -= taken.bytes.len();
        self.passed += taken.bytes.len() as u64;
        Some(taken)
    }

    /// Drops everything that has arrived.
    fn forget(&mut self) {
        self.has_swallowed |= !self.input.is_empty();
        self.input.clear();
        self.held = 0;
    }
}
