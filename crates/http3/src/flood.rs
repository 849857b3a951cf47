//! Flood protection: counts what costs the peer next to nothing, and limits it per second.
//!
//! Packets, acknowledgments and windows are QUIC's, whose implementation limits them.

/// A kind of flood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flood {
    /// Requests that are cancelled before their response has begun (rapid reset, CVE-2023-44487).
    Resets,
    /// Streams that we reset because of the peer's errors (CVE-2025-8671).
    Errors,
    /// PRIORITY_UPDATE frames.
    Priorities,
    /// DATA frames without a byte.
    EmptyFrames,
    /// Insertions into the dynamic table: a byte can stand for an entry of all its size.
    Insertions,
    /// Frames and streams that mean nothing.
    Overhead,
}

impl Flood {
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::Resets => "too many requests were cancelled",
            Self::Errors => "too many streams with errors",
            Self::Priorities => "too many PRIORITY_UPDATEs",
            Self::EmptyFrames => "too many empty frames",
            Self::Insertions => "too many insertions into the dynamic table",
            Self::Overhead => "too many frames and streams that mean nothing",
        }
    }
}

/// Limits per connection and second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FloodLimits {
    /// Limit on [`Flood::Resets`]. Applies to clients only: a server only cancels what we asked for.
    pub resets: u32,
    /// Limit on [`Flood::Errors`]. Applies to clients only: a server's errors are limited by our requests.
    pub errors: u32,
    /// Limit on [`Flood::Priorities`].
    pub priorities: u32,
    /// Limit on [`Flood::EmptyFrames`].
    pub empty_frames: u32,
    /// Limit on [`Flood::Insertions`].
    pub insertions: u32,
    /// Limit on [`Flood::Overhead`].
    pub overhead: u32,
}

impl FloodLimits {
    /// Limits that any well-behaved peer stays below.
    pub const DEFAULT: Self = Self {
        resets: 200,
        errors: 64,
        priorities: 500,
        empty_frames: 90,
        insertions: 10_000,
        overhead: 1000,
    };

    /// Limits on a server, whose connection carries the requests of many clients.
    pub(crate) fn of_many(self) -> Self {
        const MANY: u32 = 16;
        Self {
            resets: u32::MAX,
            errors: u32::MAX,
            priorities: self.priorities,
            empty_frames: self.empty_frames.saturating_mul(MANY),
            insertions: self.insertions.saturating_mul(MANY),
            overhead: self.overhead.saturating_mul(MANY),
        }
    }

    /// The limit on a kind of flood per second.
    pub fn of(&self, flood: Flood) -> u32 {
        match flood {
            Flood::Resets => self.resets,
            Flood::Errors => self.errors,
            Flood::Priorities => self.priorities,
            Flood::EmptyFrames => self.empty_frames,
            Flood::Insertions => self.insertions,
            Flood::Overhead => self.overhead,
        }
    }
}

impl Default for FloodLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

const KINDS: usize = Flood::Overhead as usize + 1;

/// What was counted in the current second.
pub(crate) struct Counts {
    limits: FloodLimits,
    second: u32,
    counts: [u32; KINDS],
}

impl Counts {
    pub(crate) fn new(limits: FloodLimits) -> Self {
        Self { limits, second: 0, counts: [0; KINDS] }
    }

    /// Counts so many of a kind in this second.
    pub(crate) fn count(&mut self, flood: Flood, times: u32, second: u32) -> Result<(), Flood> {
        if self.second != second {
            self.second = second;
            self.counts = [0; KINDS];
        }
        let count = &mut self.counts[flood as usize];
        *count = count.saturating_add(times);
        if *count > self.limits.of(flood) { Err(flood) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_begins_anew() {
        let mut counts = Counts::new(FloodLimits { resets: 2, ..FloodLimits::DEFAULT });
        for (second, times, expected) in
            [(0, 2, Ok(())), (0, 1, Err(Flood::Resets)), (1, 2, Ok(())), (1, u32::MAX, Err(Flood::Resets))]
        {
            assert_eq!(counts.count(Flood::Resets, times, second), expected);
        }
        assert_eq!(counts.count(Flood::Errors, 1, 1), Ok(()));
    }
}
