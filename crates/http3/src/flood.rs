//! Flood protection: counts events that cost the peer next to nothing, and limits them per second.
//!
//! QUIC's implementation limits packets, acknowledgments and window updates.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flood {
    /// Requests that are cancelled before their response has begun (rapid reset, CVE-2023-44487).
    Resets,
    /// Streams that we reset because of the peer's errors (CVE-2025-8671).
    Errors,
    Priorities,
    EmptyFrames,
    /// Insertions into the dynamic table: a byte can expand to an entry of the table's size.
    Insertions,
    /// Frames and streams that are ignored.
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
    /// Applies to clients only: a server cancels only our requests.
    pub resets: u32,
    /// Applies to clients only: our requests limit a server's errors.
    pub errors: u32,
    pub priorities: u32,
    pub empty_frames: u32,
    pub insertions: u32,
    pub overhead: u32,
}

impl FloodLimits {
    /// Limits that no well-behaved peer reaches.
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
        // Streams of many clients share one connection to a server, so ordinary use adds up.
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
    pub fn for_flood(&self, flood: Flood) -> u32 {
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

pub(crate) struct H3FloodCounts {
    limits: FloodLimits,
    second: u32,
    counts: [u32; KINDS],
}

impl H3FloodCounts {
    pub(crate) fn new(limits: FloodLimits) -> Self {
        Self { limits, second: 0, counts: [0; KINDS] }
    }

    /// Adds `times` to the count of a kind in this second.
    pub(crate) fn count(&mut self, flood: Flood, times: u32, second: u32) -> Result<(), Flood> {
        // A fixed second, not a sliding one: a burst of twice the limit may pass, for the price of one comparison.
        if self.second != second {
            self.second = second;
            self.counts = [0; KINDS];
        }
        let count = &mut self.counts[flood as usize];
        *count = count.saturating_add(times);
        if *count > self.limits.for_flood(flood) { Err(flood) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_begins_anew() {
        let mut counts = H3FloodCounts::new(FloodLimits { resets: 2, ..FloodLimits::DEFAULT });
        for (second, times, expected) in
            [(0, 2, Ok(())), (0, 1, Err(Flood::Resets)), (1, 2, Ok(())), (1, u32::MAX, Err(Flood::Resets))]
        {
            assert_eq!(counts.count(Flood::Resets, times, second), expected);
        }
        assert_eq!(counts.count(Flood::Errors, 1, 1), Ok(()));
    }
}
