//! What costs a connection's sender nothing, or next to it: counted as it arrives, and bounded over a second.
//!
//! Some kinds have bounds of their own. All else that carries nothing (windows, frames that nobody knows, padding, what comes
//! on streams that are over) is overhead: what goes with requests and bodies is earned by them, and the rest is bounded.

use crate::frame::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Head, PING, PRIORITY, PUSH_PROMISE,
    RST_STREAM, SETTINGS,
};

/// What a peer keeps us busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flood {
    /// Requests that are reset before their responses have begun (CVE-2023-44487).
    Resets,
    /// Settings that change nothing.
    Settings,
    /// Pings, beyond those that accompany data: gRPC's ends measure the way with one for each frame that they receive.
    Pings,
    /// Priorities. They mean nothing any more (RFC 9113 §5.3.2), but browsers still send some.
    Priorities,
    /// DATA or CONTINUATION without a byte and without an end.
    EmptyFrames,
    /// Streams that are reset for what is wrong on them (CVE-2025-8671).
    Errors,
    /// Frames that carry nothing, beyond those that go with requests and bodies.
    Overhead,
    /// A header block in more frames, or of more bytes, than any head needs (CVE-2024-27316).
    HeaderBlock,
    /// More streams that are reset and not yet let go of than twice those that may be open.
    ResetStreams,
}

impl Flood {
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::Resets => "too many requests were cancelled",
            Self::Settings => "too many SETTINGS",
            Self::Pings => "too many PINGs",
            Self::Priorities => "too many PRIORITYs",
            Self::EmptyFrames => "too many empty frames",
            Self::Errors => "too many streams with errors",
            Self::Overhead => "too many frames that carry nothing",
            Self::HeaderBlock => "a header block of too many frames or bytes",
            Self::ResetStreams => "too many streams were reset",
        }
    }
}

/// How many of each kind a connection may send within a second, whatever else it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FloodLimits {
    /// [`Flood::Resets`]. A server's are not counted: it resets what it was asked for.
    pub resets: u32,
    /// [`Flood::Settings`].
    pub settings: u32,
    /// [`Flood::Pings`].
    pub pings: u32,
    /// [`Flood::Priorities`].
    pub priorities: u32,
    /// [`Flood::EmptyFrames`].
    pub empty_frames: u32,
    /// [`Flood::Errors`], of a client: what a server does wrong is bounded by what it was asked for.
    pub errors: u32,
    /// [`Flood::Overhead`], of a client: a server's connection carries the streams of many.
    pub overhead: u32,
}

impl FloodLimits {
    /// What no stranger needs more of.
    pub const DEFAULT: Self = Self {
        resets: 200,
        settings: 50,
        pings: 100,
        priorities: 500,
        empty_frames: 90,
        errors: 64,
        overhead: 1000,
    };

    /// How many of a kind there may be in a second; `None` where that has no bound over time.
    pub fn of(&self, flood: Flood) -> Option<u32> {
        match flood {
            Flood::Resets => Some(self.resets),
            Flood::Settings => Some(self.settings),
            Flood::Pings => Some(self.pings),
            Flood::Priorities => Some(self.priorities),
            Flood::EmptyFrames => Some(self.empty_frames),
            Flood::Errors => Some(self.errors),
            Flood::Overhead => Some(self.overhead),
            Flood::HeaderBlock | Flood::ResetStreams => None,
        }
    }

    /// So many times as much of each.
    #[must_use]
    pub fn times(self, factor: u32) -> Self {
        let Self { resets, settings, pings, priorities, empty_frames, errors, overhead } = self;
        let [resets, settings, pings, priorities, empty_frames, errors, overhead] =
            [resets, settings, pings, priorities, empty_frames, errors, overhead]
                .map(|limit| limit.saturating_mul(factor));
        Self { resets, settings, pings, priorities, empty_frames, errors, overhead }
    }
}

impl Default for FloodLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Kinds with a bound over time.
const KINDS: usize = Flood::Overhead as usize + 1;
/// More frames than are on their way at once, with the windows that we give.
const CARRIED_MAX: u32 = 1024;
/// Overhead that is earned and not used, at most: what goes with a window of 16 MiB that is opened a KiB at a time.
const EARNED_MAX: u32 = 1 << 16;
/// What a frame of a body earns that is sent: an update of either window, and as many for each KiB of it.
const EARNED_BY_FRAME: u32 = 2;
const BYTES_EARNING_ONE: usize = 512;
/// What a request earns: updates of its windows, a priority of the new kind (RFC 9218).
const EARNED_BY_REQUEST: u32 = 4;
/// What a frame of a body earns that was received.
const EARNED_BY_RECEIVED: u32 = 1;
/// A frame of a body that is shorter than this because its peer lets no more pass is overhead itself.
pub(crate) const CRUMB: usize = 256;

/// What the frame with this head would be a flood of. Of resets and of what is wrong, only the stream can tell.
fn flood_of(head: &Head) -> Option<Flood> {
    Some(match head.kind {
        DATA if head.len == 0 && !head.has(END_STREAM) => Flood::EmptyFrames,
        CONTINUATION if head.len == 0 && !head.has(END_HEADERS) => Flood::EmptyFrames,
        PRIORITY => Flood::Priorities,
        SETTINGS if !head.has(ACK) => Flood::Settings,
        PING if !head.has(ACK) => Flood::Pings,
        DATA | HEADERS | CONTINUATION | RST_STREAM | PUSH_PROMISE => return None,
        // Windows, answers, farewells, and what nobody knows.
        _ => Flood::Overhead,
    })
}

/// What a connection has sent within this second.
pub(crate) struct Counts {
    limits: FloodLimits,
    second: u32,
    counts: [u32; KINDS],
    /// Frames with a part of a body in them, either way, that no ping has come for yet.
    carried: u32,
    /// Overhead that requests and bodies have earned.
    earned: u32,
    /// Whether what was sent broke a limit, which is said when something comes.
    is_over: bool,
}

impl Counts {
    pub(crate) fn new(limits: FloodLimits) -> Self {
        Self { limits, second: 0, counts: [0; KINDS], carried: 0, earned: 0, is_over: false }
    }

    /// Takes note of a frame that came in this second, which is counted from anywhere.
    pub(crate) fn note(&mut self, head: &Head, second: u32) -> Result<(), Flood> {
        if self.is_over {
            return Err(Flood::Overhead);
        }
        match flood_of(head) {
            Some(Flood::Pings) if self.carried > 0 => {
                self.carried -= 1;
                Ok(())
            }
            Some(Flood::Overhead) => self.overhead(1, second),
            Some(flood) => self.count(flood, second),
            None => {
                if head.kind == DATA {
                    self.carry(1);
                    self.earn(EARNED_BY_RECEIVED);
                }
                Ok(())
            }
        }
    }

    /// Counts one more of a kind in this second.
    pub(crate) fn count(&mut self, flood: Flood, second: u32) -> Result<(), Flood> {
        if second != self.second {
            self.second = second;
            self.counts = Default::default();
        }
        let (Some(count), Some(limit)) = (self.counts.get_mut(flood as usize), self.limits.of(flood)) else {
            return Ok(());
        };
        *count = count.saturating_add(1);
        if *count > limit { Err(flood) } else { Ok(()) }
    }

    /// Counts something that carries nothing, unless so much of that is earned.
    pub(crate) fn overhead(&mut self, cost: u32, second: u32) -> Result<(), Flood> {
        match self.earned.checked_sub(cost) {
            Some(left) => {
                self.earned = left;
                Ok(())
            }
            None => self.count(Flood::Overhead, second),
        }
    }

    /// The frame of a body that has just been noted is of no use to anybody: it earns nothing, and is overhead.
    pub(crate) fn is_useless(&mut self, second: u32) -> Result<(), Flood> {
        self.overhead(1 + EARNED_BY_RECEIVED, second)
    }

    /// Takes note of so many frames with so much of a body that are sent.
    pub(crate) fn sends(&mut self, frames: usize, bytes: usize) {
        self.carry(frames as u32);
        self.earn(EARNED_BY_FRAME + (bytes / BYTES_EARNING_ONE) as u32);
    }

    /// Takes note of one that is a crumb because the peer lets no more pass.
    #[cold]
    pub(crate) fn sends_crumb(&mut self, second: u32) {
        self.carry(1);
        self.is_over |= self.overhead(1, second).is_err();
    }

    /// A request has come.
    pub(crate) fn serves(&mut self) {
        self.earn(EARNED_BY_REQUEST);
    }

    fn carry(&mut self, frames: u32) {
        self.carried = (self.carried + frames).min(CARRIED_MAX);
    }

    fn earn(&mut self, earned: u32) {
        self.earned = (self.earned + earned).min(EARNED_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{GOAWAY, WINDOW_UPDATE};

    fn head(kind: u8, flags: u8, len: usize) -> Head {
        Head { len, kind, flags, stream: 1 }
    }

    fn counts() -> Counts {
        Counts::new(FloodLimits::DEFAULT)
    }

    #[test]
    fn each_kind_has_its_limit_within_a_second() {
        let rows = [
            (head(SETTINGS, 0, 0), Some((50, Flood::Settings))),
            (head(PING, 0, 8), Some((100, Flood::Pings))),
            (head(PRIORITY, 0, 5), Some((500, Flood::Priorities))),
            (head(DATA, 0, 0), Some((90, Flood::EmptyFrames))),
            (head(CONTINUATION, 0, 0), Some((90, Flood::EmptyFrames))),
            (head(SETTINGS, ACK, 0), Some((1000, Flood::Overhead))),
            (head(PING, ACK, 8), Some((1000, Flood::Overhead))),
            (head(WINDOW_UPDATE, 0, 4), Some((1000, Flood::Overhead))),
            (head(GOAWAY, 0, 8), Some((1000, Flood::Overhead))),
            (head(0xf0, 0, 1), Some((1000, Flood::Overhead))),
            (head(DATA, END_STREAM, 0), None),
            (head(CONTINUATION, END_HEADERS, 0), None),
            (head(DATA, 0, 1), None),
        ];
        for (head, limit) in rows {
            for factor in [1, 3] {
                let mut counts = Counts::new(FloodLimits::DEFAULT.times(factor));
                let mut tripped = None;
                for second in 0..3 {
                    for at in 0..3500 {
                        if let Err(flood) = counts.note(&head, second) {
                            tripped = tripped.or(Some((second, at, flood)));
                        }
                    }
                }
                assert_eq!(tripped, limit.map(|(count, flood)| (0, count * factor, flood)), "{head:?}");
                // In the next second all is well again.
                assert_eq!(counts.note(&head, 9), Ok(()));
            }
        }
    }

    #[test]
    fn a_ping_for_each_frame_of_data_is_no_flood() {
        let ping = head(PING, 0, 8);
        let mut counts = counts();
        for _ in 0..1000 {
            assert_eq!(counts.note(&head(DATA, 0, 9), 0), Ok(()));
            assert_eq!(counts.note(&ping, 0), Ok(()));
            counts.sends(1, 9);
            assert_eq!(counts.note(&ping, 0), Ok(()));
        }
        // However much was carried, what may follow has an end.
        (0..1_000_000).for_each(|_| counts.sends(2, 20_000));
        let taken = (0..1_000_000).take_while(|_| counts.note(&ping, 0).is_ok()).count();
        assert_eq!(taken, CARRIED_MAX as usize + 100);
    }

    #[test]
    fn what_goes_with_requests_and_bodies_is_earned() {
        let update = head(WINDOW_UPDATE, 0, 4);
        let mut counts = counts();
        for _ in 0..10_000 {
            counts.serves();
            (0..4).for_each(|_| assert_eq!(counts.note(&update, 0), Ok(())));
            // Both windows are opened for each frame, however short, or for each KiB of it.
            for (bytes, updates) in [(1, 2), (1024, 4), (16_384, 34)] {
                counts.sends(1, bytes);
                (0..updates).for_each(|_| assert_eq!(counts.note(&update, 0), Ok(())));
            }
        }
        // Also much later, but not without end.
        (0..10_000).for_each(|_| counts.sends(1, 16_384));
        let taken = (0..1_000_000).take_while(|_| counts.note(&update, 9).is_ok()).count();
        assert_eq!(taken, EARNED_MAX as usize + 1000);
    }

    #[test]
    fn crumbs_cost_more_than_they_earn() {
        let update = head(WINDOW_UPDATE, 0, 4);
        let mut counts = counts();
        let mut crumbs = 0;
        while counts.note(&update, 0).is_ok() {
            counts.sends_crumb(0);
            crumbs += 1;
        }
        assert_eq!(crumbs, 500);
        // Crumbs alone are told of with whatever comes next.
        let mut counts = Counts::new(FloodLimits::DEFAULT);
        (0..1001).for_each(|_| counts.sends_crumb(0));
        assert_eq!(counts.note(&head(HEADERS, 0, 1), 1), Err(Flood::Overhead));
    }
}
