//! A rate limit: a rate, and whether unused time is saved for a burst.

use std::num::NonZeroU64;

/// Nanoseconds per second.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// The time that a link may catch up on after a moment without a sender: less could not be distinguished from the time
/// for fetching the next data.
const LINK_SLACK_NS: u64 = 1_000_000;
/// The duration of one grant to a stream, so that a shared limit is even over short windows.
const PIECE_NS: u64 = 1_000_000;
/// The duration of a grant at low rates, up to `LONG_PIECE_BYTES_MAX`: tiny segments cost more than they gain.
const LONG_PIECE_NS: u64 = 10_000_000;
const LONG_PIECE_BYTES_MAX: u64 = 1460;
/// The largest grant at any rate.
const PIECE_BYTES_MAX: u64 = 256 * 1024;

/// What becomes of time in which nothing is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// Unused time is lost, as on a link.
    Link,
    /// Unused time is saved as credit for a burst.
    TokenBucket {
        /// The most bytes that are saved. A new bucket starts with them.
        burst_bytes: u64,
    },
}

/// A rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The rate, in bytes per second.
    pub rate_bytes_per_second: NonZeroU64,
    /// Whether unused time is saved.
    pub model: Model,
}

impl Limit {
    /// A link of this rate, without bursts.
    pub fn link(rate_bytes_per_second: NonZeroU64) -> Self {
        Self { rate_bytes_per_second, model: Model::Link }
    }

    /// How many bytes one stream is granted at once: small enough for an even rate over short windows, but no smaller.
    pub fn piece_bytes(&self) -> u64 {
        let lasting = |span_ns: u64| u64::try_from(self.bytes_in(span_ns)).unwrap_or(u64::MAX);
        let least = lasting(LONG_PIECE_NS).clamp(1, LONG_PIECE_BYTES_MAX);
        lasting(PIECE_NS).clamp(least, PIECE_BYTES_MAX)
    }

    pub(crate) fn bytes_in(&self, span_ns: u64) -> u128 {
        u128::from(self.rate_bytes_per_second.get()) * u128::from(span_ns) / u128::from(SECOND_NS)
    }

    /// The most credit that is kept while no sender waits, in bytes times nanoseconds per second.
    pub(crate) fn saved_max(&self) -> u128 {
        match self.model {
            Model::Link => u128::from(self.rate_bytes_per_second.get()) * u128::from(LINK_SLACK_NS),
            Model::TokenBucket { burst_bytes } => u128::from(burst_bytes) * u128::from(SECOND_NS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_short_in_time_and_not_tiny() {
        for (rate, piece) in [
            (1, 1),
            (5_000, 50),
            (100_000, 1_000),
            (1_000_000, 1_460),
            (10_000_000, 10_000),
            (1_000_000_000, 256 * 1024),
            (u64::MAX, 256 * 1024),
        ] {
            assert_eq!(Limit::link(NonZeroU64::new(rate).unwrap()).piece_bytes(), piece, "at {rate} bytes/s");
        }
    }
}
