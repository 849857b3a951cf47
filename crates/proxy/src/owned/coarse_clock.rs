//! The kernel's coarse clock, at most a kernel tick late. Reading it costs a quarter of the exact clock.
//!
//! It can only prove that a duration has not passed; the exact clock measures how much has.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Maximum lateness: a kernel tick is at most 10 ms.
const BEHIND_NS: u64 = 20_000_000;

pub(crate) struct CoarseClock {
    epoch: Instant,
    /// `epoch` on the coarse clock.
    epoch_ns: u64,
}

impl CoarseClock {
    pub(crate) fn new() -> Self {
        Self { epoch: Instant::now(), epoch_ns: nanoseconds(ClockId::Monotonic) }
    }

    /// Whether a duration may have passed since a reading of the exact clock. If false, it has not.
    #[inline]
    pub(crate) fn may_have_passed(&self, duration: Duration, since: Instant) -> bool {
        let began = nanoseconds_of(since.saturating_duration_since(self.epoch));
        let now = nanoseconds(ClockId::MonotonicCoarse).saturating_sub(self.epoch_ns);
        // The coarse clock lags. Its lateness is added, so that a false result is certain.
        now + BEHIND_NS >= began.saturating_add(nanoseconds_of(duration))
    }
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// 2^64 nanoseconds are 584 years.
fn nanoseconds_of(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_passed_is_never_denied() {
        let clock = CoarseClock::new();
        for milliseconds in [0, 1, 30, 5000] {
            let now = Instant::now();
            let duration = Duration::from_millis(milliseconds);
            // The exact clock was read earlier.
            let since = now.checked_sub(duration);
            if let Some(since) = since.filter(|since| *since >= clock.epoch) {
                assert!(clock.may_have_passed(duration, since), "{milliseconds} ms");
            }
            assert!(clock.may_have_passed(Duration::ZERO, now));
            assert!(!clock.may_have_passed(Duration::from_secs(3600), now));
        }
        assert!(!clock.may_have_passed(Duration::MAX, Instant::now()));
    }
}
