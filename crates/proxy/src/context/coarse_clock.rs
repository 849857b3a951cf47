//! The kernel's coarse clock: a few words of memory, at most a tick of the kernel behind. It costs a quarter of the exact one.
//!
//! It tells only that so much time has not passed: whoever wants to know how much has reads the exact one.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// How far it may be behind: a tick of the kernel is at most 10 ms.
const BEHIND_NS: u64 = 20_000_000;

/// The clock of a worker.
pub(crate) struct CoarseClock {
    epoch: Instant,
    /// The same moment, as the kernel counts.
    epoch_ns: u64,
}

impl CoarseClock {
    pub(crate) fn new() -> Self {
        Self { epoch: Instant::now(), epoch_ns: nanoseconds(ClockId::Monotonic) }
    }

    /// Whether that much time may have passed since a reading of the exact clock. If not, it has not.
    #[inline]
    pub(crate) fn may_have_passed(&self, duration: Duration, since: Instant) -> bool {
        let began = nanoseconds_of(since.saturating_duration_since(self.epoch));
        let now = nanoseconds(ClockId::MonotonicCoarse).saturating_sub(self.epoch_ns);
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
            // An exact clock says so: it was read before.
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
