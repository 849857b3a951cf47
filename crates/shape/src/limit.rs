//! A rate limit: a rate, and whether unused time is saved for a burst.

use std::num::NonZeroU64;

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// Time that a link may catch up on after a moment without a sender. A shorter one could not be distinguished from the
/// time for fetching the next data.
const LINK_SLACK_NS: u64 = 1_000_000;
/// Duration of one grant to a stream. It is short, so that a shared limit is even over short windows.
const PIECE_NS: u64 = 1_000_000;
/// Duration of a grant at low rates, up to `LONG_PIECE_BYTES_MAX`: tiny segments cost more than they gain.
const LONG_PIECE_NS: u64 = 10_000_000;
const LONG_PIECE_BYTES_MAX: u64 = 1460;
/// Maximum size of a grant at any rate.
const PIECE_BYTES_MAX: u64 = 256 * 1024;

/// Whether a limit saves unused time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// Unused time is lost, as on a link.
    Link,
    /// Unused time is saved as credit for a burst.
    TokenBucket {
        /// Maximum credit. A new bucket starts with it.
        burst_bytes: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub rate_bytes_per_second: NonZeroU64,
    pub model: Model,
}

impl Limit {
    /// A link of this rate, without bursts.
    pub fn link(rate_bytes_per_second: NonZeroU64) -> Self {
        Self { rate_bytes_per_second, model: Model::Link }
    }

    /// Returns the size of one grant: small enough for an even rate over short windows, but no smaller.
    pub fn piece_bytes(&self) -> u64 {
        let lasting = |span_ns: u64| u64::try_from(self.bytes_in(span_ns)).unwrap_or(u64::MAX);
        let least = lasting(LONG_PIECE_NS).clamp(1, LONG_PIECE_BYTES_MAX);
        lasting(PIECE_NS).clamp(least, PIECE_BYTES_MAX)
    }

    pub(crate) fn bytes_in(&self, span_ns: u64) -> u128 {
        u128::from(self.rate_bytes_per_second.get()) * u128::from(span_ns) / u128::from(SECOND_NS)
    }

    /// Maximum credit while no sender waits, in bytes times nanoseconds per second.
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
