//! Flood protection: counts frames that cost the peer next to nothing, and limits them per second.
//!
//! Some kinds have separate limits. All other frames that carry nothing (window updates, unknown frames, padding,
//! frames on ended streams) are overhead: requests and bodies earn an allowance for them, and the rest is limited.

use crate::frame::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, H2FrameHead, HEADERS, PING, PRIORITY, PUSH_PROMISE,
    RST_STREAM, SETTINGS,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flood {
    /// Requests that are reset before their response has begun (rapid reset, CVE-2023-44487).
    Resets,
    /// SETTINGS frames that change nothing.
    Settings,
    /// PING frames beyond those that accompany data. gRPC peers measure the round trip with one ping for each received
    /// frame.
    Pings,
    /// PRIORITY frames. They are obsolete (RFC 9113 §5.3.2), but some browsers still send a few.
    Priorities,
    /// DATA or CONTINUATION frames that are empty and end nothing.
    EmptyFrames,
    /// Streams that we reset because of the peer's errors (CVE-2025-8671).
    Errors,
    /// Frames that carry nothing, beyond the allowance that requests and bodies earn.
    Overhead,
    /// A header block in more frames, or of more bytes, than any head needs (CVE-2024-27316).
    HeaderBlock,
    /// Reset streams that are not yet released, more than twice as many as may be open.
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

/// Limits on cheap frames, per connection and second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FloodLimits {
    /// Applies to clients only: a server resets only streams that we opened.
    pub resets: u32,
    pub settings: u32,
    pub pings: u32,
    pub priorities: u32,
    pub empty_frames: u32,
    /// Applies to clients only: our requests limit a server's errors.
    pub errors: u32,
    /// Applies to clients only: a connection to a server carries the streams of many clients.
    pub overhead: u32,
}

impl FloodLimits {
    /// Limits that no well-behaved peer reaches.
    pub const DEFAULT: Self = Self {
        resets: 200,
        settings: 50,
        pings: 100,
        priorities: 500,
        empty_frames: 90,
        errors: 64,
        overhead: 1000,
    };

    /// `None` if the kind has no limit per second.
    pub fn for_flood(&self, flood: Flood) -> Option<u32> {
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

    #[must_use]
    pub fn times(self, factor: u32) -> Self {
        // Named one by one: a new limit that is missing here does not compile.
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

/// The number of kinds with a limit per second.
const KINDS: usize = Flood::Overhead as usize + 1;
/// Exceeds the number of frames in transit at once, given the windows that we announce.
const CARRIED_MAX: u32 = 1024;
/// The most unused allowance: enough to open a window of 16 MiB in steps of 1 KiB.
const EARNED_MAX: u32 = 1 << 16;
/// The allowance per sent DATA frame: an update of either window. Each KiB earns as many.
const EARNED_BY_FRAME: u32 = 2;
const BYTES_EARNING_ONE: usize = 512;
/// The allowance per request: window updates, and a PRIORITY_UPDATE (RFC 9218).
const EARNED_BY_REQUEST: u32 = 4;
const EARNED_BY_RECEIVED: u32 = 1;
/// A DATA frame shorter than this counts as overhead if the peer's window is the reason for its length.
pub(crate) const CRUMB: usize = 256;

/// The kind of flood that a frame with this header may be part of. Resets and stream errors are counted elsewhere.
fn flood_of(head: &H2FrameHead) -> Option<Flood> {
    Some(match head.kind {
        // An empty frame that ends the stream is how many clients end a body.
        DATA if head.len == 0 && !head.has(END_STREAM) => Flood::EmptyFrames,
        CONTINUATION if head.len == 0 && !head.has(END_HEADERS) => Flood::EmptyFrames,
        PRIORITY => Flood::Priorities,
        SETTINGS if !head.has(ACK) => Flood::Settings,
        PING if !head.has(ACK) => Flood::Pings,
        DATA | HEADERS | CONTINUATION | RST_STREAM | PUSH_PROMISE => return None,
        // WINDOW_UPDATE, GOAWAY, and unknown kinds.
        _ => Flood::Overhead,
    })
}

pub(crate) struct H2FloodCounts {
    limits: FloodLimits,
    second: u32,
    counts: [u32; KINDS],
    /// DATA frames in either direction that no PING has been counted against yet.
    carried: u32,
    /// The allowance of overhead that requests and bodies have earned.
    earned: u32,
    /// Whether frames that we sent broke a limit. The next received frame reports it.
    is_over: bool,
}

impl H2FloodCounts {
    pub(crate) fn new(limits: FloodLimits) -> Self {
        Self { limits, second: 0, counts: [0; KINDS], carried: 0, earned: 0, is_over: false }
    }

    /// Counts a received frame. `second` counts from an arbitrary start.
    pub(crate) fn note(&mut self, head: &H2FrameHead, second: u32) -> Result<(), Flood> {
        // A flood that writing has noticed: `sends_crumb` cannot end the connection itself.
        if self.is_over {
            return Err(Flood::Overhead);
        }
        match flood_of(head) {
            // gRPC measures the path with a ping for each received frame: more than 100 a second are normal.
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

    pub(crate) fn count(&mut self, flood: Flood, second: u32) -> Result<(), Flood> {
        // A fixed second, not a sliding one: a burst of twice the limit may pass, for the price of one comparison.
        if second != self.second {
            self.second = second;
            self.counts = Default::default();
        }
        let (Some(count), Some(limit)) = (self.counts.get_mut(flood as usize), self.limits.for_flood(flood))
        else {
            return Ok(());
        };
        *count = count.saturating_add(1);
        if *count > limit { Err(flood) } else { Ok(()) }
    }

    /// Counts overhead, unless the earned allowance covers it.
    pub(crate) fn overhead(&mut self, cost: u32, second: u32) -> Result<(), Flood> {
        match self.earned.checked_sub(cost) {
            Some(left) => {
                self.earned = left;
                Ok(())
            }
            None => self.count(Flood::Overhead, second),
        }
    }

    /// Counts the last noted DATA frame as useless: it is overhead, and earns nothing.
    pub(crate) fn is_useless(&mut self, second: u32) -> Result<(), Flood> {
        // `note` has credited the frame before its content was known.
        self.overhead(1 + EARNED_BY_RECEIVED, second)
    }

    /// Counts sent DATA frames, with the sum of their bytes.
    pub(crate) fn sends(&mut self, frames: usize, bytes: usize) {
        self.carry(frames as u32);
        self.earn(EARNED_BY_FRAME + (bytes / BYTES_EARNING_ONE) as u32);
    }

    /// Counts a sent DATA frame that is tiny because of the peer's window.
    #[cold]
    pub(crate) fn sends_crumb(&mut self, second: u32) {
        self.carry(1);
        // Only noted here, because the writing side has no way to end the connection.
        self.is_over |= self.overhead(1, second).is_err();
    }

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

    fn head(kind: u8, flags: u8, len: usize) -> H2FrameHead {
        H2FrameHead { len, kind, flags, stream: 1 }
    }

    fn counts() -> H2FloodCounts {
        H2FloodCounts::new(FloodLimits::DEFAULT)
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
                let mut counts = H2FloodCounts::new(FloodLimits::DEFAULT.times(factor));
                let mut tripped = None;
                for second in 0..3 {
                    for at in 0..3500 {
                        if let Err(flood) = counts.note(&head, second) {
                            tripped = tripped.or(Some((second, at, flood)));
                        }
                    }
                }
                assert_eq!(tripped, limit.map(|(count, flood)| (0, count * factor, flood)), "{head:?}");
                // The next second starts with new counts.
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
        // The allowance is limited, however many frames were carried.
        (0..1_000_000).for_each(|_| counts.sends(2, 20_000));
        let taken = (0..1_000_000).take_while(|_| counts.note(&ping, 0).is_ok()).count();
        assert_eq!(taken, CARRIED_MAX as usize + 100);
    }

    #[test]
    fn requests_and_bodies_earn_an_allowance() {
        let update = head(WINDOW_UPDATE, 0, 4);
        let mut counts = counts();
        for _ in 0..10_000 {
            counts.serves();
            (0..4).for_each(|_| assert_eq!(counts.note(&update, 0), Ok(())));
            // A peer may update both windows for each frame, however short, or for each KiB.
            for (bytes, updates) in [(1, 2), (1024, 4), (16_384, 34)] {
                counts.sends(1, bytes);
                (0..updates).for_each(|_| assert_eq!(counts.note(&update, 0), Ok(())));
            }
        }
        // The allowance lasts, but it is limited.
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
        // Crumbs alone are reported with the next received frame.
        let mut counts = H2FloodCounts::new(FloodLimits::DEFAULT);
        (0..1001).for_each(|_| counts.sends_crumb(0));
        assert_eq!(counts.note(&head(HEADERS, 0, 1), 1), Err(Flood::Overhead));
    }
}
