//! A link that sends datagrams in turn at its rate. Later ones wait in its queue; a full queue loses them (tail drop).

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limit::SECOND_NS;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bottleneck {
    /// Counts bytes of datagrams.
    pub rate_bytes_per_second: NonZeroU64,
    /// Maximum number of bytes on the link, including the datagram in transit. An idle link accepts any datagram.
    pub queue_bytes: u64,
}

/// A link in one direction, which all threads share.
#[derive(Debug)]
pub struct Queue {
    bottleneck: Bottleneck,
    /// Time at which the link becomes idle.
    free_ns: AtomicU64,
}

impl Queue {
    pub fn new(bottleneck: Bottleneck) -> Self {
        Self { bottleneck, free_ns: AtomicU64::new(0) }
    }

    pub fn bottleneck(&self) -> Bottleneck {
        self.bottleneck
    }

    /// Adds a datagram. Returns the time until its last byte has left; `None` if it is lost.
    pub fn take(&self, bytes: usize, now_ns: u64) -> Option<u64> {
        let bytes = bytes as u64;
        let sending_ns = self.time_ns(bytes);
        let take = |free_ns: u64| {
            let waiting_ns = free_ns.saturating_sub(now_ns);
            let has_room = waiting_ns == 0 || self.bytes_in(waiting_ns) + u128::from(bytes) <= self.most();
            has_room.then(|| now_ns.saturating_add(waiting_ns).saturating_add(sending_ns))
        };
        let before_ns = self.free_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(before_ns.saturating_sub(now_ns).saturating_add(sending_ns))
    }

    fn most(&self) -> u128 {
        u128::from(self.bottleneck.queue_bytes)
    }

    fn time_ns(&self, bytes: u64) -> u64 {
        let rate = u128::from(self.bottleneck.rate_bytes_per_second.get());
        let time = (u128::from(bytes) * u128::from(SECOND_NS)).div_ceil(rate);
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    fn bytes_in(&self, time_ns: u64) -> u128 {
        u128::from(time_ns) * u128::from(self.bottleneck.rate_bytes_per_second.get()) / u128::from(SECOND_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A link of 1 MB/s, which sends 1000 bytes in a millisecond.
    fn queue(queue_bytes: u64) -> Queue {
        let rate_bytes_per_second = NonZeroU64::new(1_000_000).expect("is not zero");
        Queue::new(Bottleneck { rate_bytes_per_second, queue_bytes })
    }

    #[test]
    fn datagrams_leave_one_after_the_other_and_those_without_room_are_lost() {
        let queue = queue(2_500);
        for (at_ms, bytes, leaves_ms) in [
            (0, 1_000, Some(1)),
            (0, 1_000, Some(2)),
            (0, 1_000, None),
            (0, 500, Some(2)),
            (0, 1, None),
            (1, 1_000, Some(3)),
            (1, 1, None),
            (2, 2_000, None),
            // An idle link sends a datagram larger than its queue.
            (100, 9_000, Some(109)),
            (108, 1_000, Some(110)),
            (200, 1_000, Some(201)),
        ] {
            let took = queue.take(bytes, at_ms * MS).map(|ns| (at_ms * MS + ns) / MS);
            assert_eq!(took, leaves_ms, "{bytes} bytes at {at_ms} ms");
        }
    }

    #[test]
    fn a_crowd_gets_exactly_the_rate() {
        let queue = queue(20_000);
        let (mut passed, mut last_ns) = (0_u64, 0_u64);
        // Three times the rate of the link, for two seconds.
        for at in 0..5_000_u64 {
            let now_ns = at * 400_000;
            if let Some(ns) = queue.take(1_200, now_ns) {
                assert!(now_ns + ns > last_ns, "in order");
                last_ns = now_ns + ns;
                passed += 1_200;
                assert!(ns <= 22 * MS, "a queue of 20 ms and the datagram itself");
            }
        }
        let sent = last_ns / 1_000;
        assert!(passed.abs_diff(sent) <= 1_200, "{passed} of {sent}");
        assert!((2_000_000..2_025_000).contains(&passed), "{passed}");
    }
}
