//! One toxic in one direction of one connection: a queue of pieces, and when each may pass. Times count from an epoch
//! of the caller's choice; nothing here waits.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use crate::delay_line::{Loss, PACKET_BYTES};
use crate::draw::Draws;
use crate::toxic::{Effect, Ending};

/// The most bytes that wait in a stage that does not delay.
const HELD_MAX: usize = 64 * 1024;
/// The most bytes that wait in a stage that delays, like those in flight on a long link.
const DELAYED_MAX: usize = 32 << 20;
/// A rate-limited stage holds up to this time's worth of data, and at least `HELD_MAX`, so that a fast link does not
/// run dry before the sender is read again.
const LINK_HELD_MS: u64 = 40;
const LINK_HELD_MAX: usize = 8 << 20;
/// A rate-limited stage passes at least this many pieces per second, so that data flows on a slow link.
const PIECES_PER_SECOND: u64 = 100;
/// A stage that is called late catches up with at most this much time.
const SLACK: Duration = Duration::from_millis(20);

/// Bytes in transit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) bytes: Bytes,
    /// When the bytes arrived, or left the previous stage.
    pub(crate) at: Duration,
}

/// The next step of a stage.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A piece passes to the next stage.
    Pass(Piece),
    /// The stream has ended, at this time.
    End(Ending, Duration),
    /// Nothing passes until this time; `None` means until something arrives.
    Wait(Option<Duration>),
}

/// A toxic with the bytes that it holds.
#[derive(Debug)]
pub(crate) struct Stage {
    /// The identity of the toxic.
    pub(crate) id: u64,
    effect: Effect,
    /// When the toxic took effect.
    began: Duration,
    /// The last time that a piece arrived or the effect changed.
    quiet_since: Duration,
    /// When the first dropped piece arrived, or the end if that came before.
    first_at: Option<Duration>,
    /// Whether the stage has dropped bytes.
    has_swallowed: bool,
    draws: Draws,
    input: VecDeque<Piece>,
    held: usize,
    /// How the input has ended.
    ended: Option<(Ending, Duration)>,
    /// Whether the end has been passed on.
    pub(crate) is_done: bool,
    /// When the first piece passes, once that is decided.
    due: Option<Duration>,
    /// When the previous piece passed.
    free_at: Duration,
    /// The number of bytes that have passed.
    passed: u64,
    /// The lengths that the first piece is cut into, in reverse order.
    cuts: Vec<usize>,
    /// The position of the next byte to corrupt, counted from the first byte that passed.
    next_exchange: Option<u64>,
    /// How many bytes of the first piece precede its first lost packet, once that is decided.
    ahead_of_loss: Option<usize>,
}

impl Stage {
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

    /// Whether more pieces may be added.
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

    /// Whether no pieces wait.
    pub(crate) fn is_empty(&self) -> bool {
        self.input.is_empty()
    }

    pub(crate) fn push(&mut self, piece: Piece) {
        self.held += piece.bytes.len();
        self.input.push_back(piece);
    }

    pub(crate) fn end(&mut self, ending: Ending, at: Duration) {
        self.ended.get_or_insert((ending, at));
    }

    /// Returns what is passed to the next stage when this one is removed.
    pub(crate) fn dissolve(mut self) -> (VecDeque<Piece>, Option<(Ending, Duration)>) {
        let ended = match self.effect {
            // What it has swallowed is missing: nobody may go on as if nothing had been. A timeout closes anyway, as
            // Toxiproxy's does.
            Effect::Timeout { .. } => Some((Ending::Close, self.began)),
            Effect::HalfOpen { .. } if self.has_swallowed => Some((Ending::Close, self.began)),
            Effect::ResetPeer { .. } if self.has_swallowed => Some((Ending::Reset, self.began)),
            _ => self.ended,
        };
        if self.has_swallowed {
            self.forget();
        }
        if self.is_done { (VecDeque::new(), None) } else { (self.input, ended) }
    }

    /// Decides what passes now.
    pub(crate) fn step(&mut self, now: Duration) -> Step {
        match self.effect {
            Effect::Latency { latency_ms, jitter_ms } => self.delayed(now, latency_ms, jitter_ms),
            Effect::Bandwidth { bytes_per_second } => self.at_rate(now, bytes_per_second),
            Effect::SlowClose { delay } => match (self.pop(), self.ended) {
                (Some(piece), _) => Step::Pass(piece),
                (None, Some((_, at))) if now < at + delay => Step::Wait(Some(at + delay)),
                (None, Some((ending, at))) => Step::End(ending, at + delay),
                (None, None) => Step::Wait(None),
            },
            Effect::Timeout { after } => self.timed_out(now, after),
            Effect::ResetPeer { after } => {
                let first = self.input.front().map(|piece| piece.at).or(self.ended.map(|(_, at)| at));
                self.forget();
                // What comes first decides, also when more comes and when the time becomes another.
                self.first_at = self.first_at.or(first);
                match self.first_at.map(|first| first + after) {
                    Some(due) if now >= due => Step::End(Ending::Reset, due),
                    due => Step::Wait(due),
                }
            }
            Effect::ResetAfter { after } => {
                let due = self.began + after;
                match (now >= due, self.pop()) {
                    (true, _) => Step::End(Ending::Reset, due),
                    (false, Some(piece)) => Step::Pass(piece),
                    (false, None) if self.ended.is_some() => self.at_end(),
                    (false, None) => Step::Wait(Some(due)),
                }
            }
            Effect::Slicer { average_bytes, variation_bytes, delay } => {
                self.sliced(now, average_bytes, variation_bytes, delay)
            }
            Effect::LimitData { bytes, ending } => self.limited(now, bytes, ending),
            Effect::HalfOpen { bytes } => {
                // Once a byte is missing none may follow, however many may pass by now.
                if self.passed >= bytes || self.has_swallowed {
                    self.forget();
                    return Step::Wait(None);
                }
                let left = usize::try_from(bytes - self.passed).unwrap_or(usize::MAX);
                self.take(left).map_or_else(|| self.at_end(), Step::Pass)
            }
            Effect::Corrupt { every_bytes } => {
                let before = self.passed;
                match self.take(usize::MAX) {
                    Some(piece) => Step::Pass(self.corrupted(piece, before, every_bytes)),
                    None => self.at_end(),
                }
            }
            Effect::SlowStart { delay } => {
                let due = self.began + delay;
                match (now >= due, self.input.is_empty(), self.ended) {
                    (false, true, None) => Step::Wait(None),
                    (false, ..) => Step::Wait(Some(due)),
                    (true, ..) => {
                        self.free_at = due;
                        let late = |piece: Piece| Step::Pass(Piece { at: piece.at.max(due), ..piece });
                        self.pop().map_or_else(|| self.at_end(), late)
                    }
                }
            }
            Effect::PacketLoss(loss) => self.lossy(now, loss),
        }
    }

    /// Swallows everything, and closes after a time without a piece: each has it begin anew, as Toxiproxy's does.
    fn timed_out(&mut self, now: Duration, after: Option<Duration>) -> Step {
        let last_at = self.input.back().map_or(self.quiet_since, |piece| piece.at);
        self.quiet_since = self.quiet_since.max(last_at);
        self.forget();
        let due = after.map(|after| self.quiet_since + after);
        match due {
            _ if self.ended.is_some() => self.at_end(),
            Some(due) if now >= due => Step::End(Ending::Close, due),
            due => Step::Wait(due),
        }
    }

    /// Each piece at its time, none before one that came earlier.
    fn delayed(&mut self, now: Duration, latency_ms: i64, jitter_ms: i64) -> Step {
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

    /// Each piece up to its first packet that is lost at once, the rest once that has been sent again: TCP hands over
    /// nothing that is behind a gap.
    fn lossy(&mut self, now: Duration, loss: Loss) -> Step {
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
        if matches!(step, Step::Pass(_)) {
            // What is left of the piece begins with the packet that is lost.
            self.ahead_of_loss = (count < len).then_some(0);
        }
        step
    }

    /// Each piece once a link of this rate has sent it.
    fn at_rate(&mut self, now: Duration, bytes_per_second: u64) -> Step {
        let Some(piece) = self.input.front() else { return self.at_end() };
        if bytes_per_second == 0 {
            return Step::Wait(None);
        }
        let most = (bytes_per_second / PIECES_PER_SECOND).max(1);
        let count = piece.bytes.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        let takes = Duration::from_nanos((count as u64).saturating_mul(1_000_000_000) / bytes_per_second);
        let due = self.due.unwrap_or_else(|| self.free_at.max(piece.at) + takes);
        self.pass_at(now, due, count)
    }

    /// Passes up to `count` bytes of the first piece, once it is time.
    fn pass_at(&mut self, now: Duration, due: Duration, count: usize) -> Step {
        if now < due {
            self.due = Some(due);
            return Step::Wait(Some(due));
        }
        self.due = None;
        self.free_at = due.max(now.saturating_sub(SLACK));
        match self.take(count) {
            Some(piece) => Step::Pass(Piece { at: due, ..piece }),
            None => self.at_end(),
        }
    }

    fn sliced(&mut self, now: Duration, average: u64, variation: u64, delay: Duration) -> Step {
        let Some(piece) = self.input.front() else { return self.at_end() };
        let due = self.free_at.max(piece.at);
        if now < due {
            return Step::Wait(Some(due));
        }
        if self.cuts.is_empty() {
            let len = piece.bytes.len();
            self.cut(len as u64, average, variation);
        }
        let count = self.cuts.pop().unwrap_or(usize::MAX);
        self.free_at = due.max(now.saturating_sub(SLACK)) + delay;
        self.take(count).map_or_else(|| self.at_end(), |piece| Step::Pass(Piece { at: due, ..piece }))
    }

    /// Cuts `len` bytes in halves, more or less, until all are of the size that is wanted.
    fn cut(&mut self, len: u64, average: u64, variation: u64) {
        let mut uncut = vec![len];
        while let Some(len) = uncut.pop() {
            if len <= average.saturating_add(variation) {
                // At most 64 KiB came as one piece.
                self.cuts.push(len as usize);
                continue;
            }
            let shift = self.draws.next_in(-(variation as i64), variation as i64);
            // Half of more than the average and the variation is more than half the variation: it may still be passed.
            let first = (len as i64 / 2 + shift).clamp(1, len as i64 - 1) as u64;
            // What is put here last is cut, and passed on, last as well: `cuts` has its first one at its end.
            uncut.push(first);
            uncut.push(len - first);
        }
    }

    fn limited(&mut self, now: Duration, bytes: u64, ending: Ending) -> Step {
        let left = usize::try_from(bytes.saturating_sub(self.passed)).unwrap_or(usize::MAX);
        if left == 0 && (bytes > 0 || !self.input.is_empty()) {
            return Step::End(ending, now);
        }
        self.take(left).map_or_else(|| self.at_end(), Step::Pass)
    }

    /// One byte of each `every` is another; which, and what it becomes, is drawn.
    fn corrupted(&mut self, piece: Piece, before: u64, every: u64) -> Piece {
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
        Piece { bytes: Bytes::from(bytes), ..piece }
    }

    /// Which byte of a block is exchanged.
    fn exchange_in(&mut self, block: u64, every: u64) -> u64 {
        block + self.draws.next_in(0, i64::try_from(every).unwrap_or(i64::MAX)) as u64
    }

    fn at_end(&self) -> Step {
        match self.ended {
            // Not before what is ahead of it.
            Some((ending, at)) if self.input.is_empty() => Step::End(ending, at.max(self.free_at)),
            _ => Step::Wait(None),
        }
    }

    /// The first piece.
    fn pop(&mut self) -> Option<Piece> {
        self.take(usize::MAX)
    }

    /// Up to `count` bytes of the first piece.
    fn take(&mut self, count: usize) -> Option<Piece> {
        let first = self.input.front_mut()?;
        let taken = if count < first.bytes.len() {
            Piece { bytes: first.bytes.split_to(count), at: first.at }
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
