//! The response time of a server: a peak-sensitive moving average, shared by all workers in one atomic word.
//!
//! Peak EWMA as in Finagle (twitter.github.io/finagle, "Load balancing"): a slower response counts at once, a faster
//! one gradually, and without responses the value fades. Not a statistic for operators.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::time::{Time, micros};

/// The least response time of a failure, because a server that fails fast must not look fast; also the most.
// A refused connection takes microseconds. Without this, the broken server would attract all requests.
const FAILURE_MICROS: f32 = 1e6;
const FAILURE_MICROS_MAX: f32 = 1e9;

/// The remaining share at which a value is forgotten, after three times the memory.
const FORGOTTEN: f32 = 0.05;

/// The average in microseconds (`f32`) in the upper half, its time in units of 1.024 ms in the lower.
#[derive(Debug, Default)]
pub(crate) struct LatencyAverage(AtomicU64);

impl LatencyAverage {
    /// The average in microseconds, faded over `memory`; 0 if it is unknown or forgotten. A small rest would make a
    /// server look fast that got no requests for long.
    #[inline]
    pub(crate) fn micros(&self, now: Time, memory: Duration) -> f32 {
        let (average, at) = unpack(self.0.load(Relaxed));
        // Before the exponential, which is not cheap.
        if average == 0.0 {
            return 0.0;
        }
        let share = faded(at, now, memory);
        if share < FORGOTTEN { 0.0 } else { average * share }
    }

    pub(crate) fn forget(&self) {
        self.0.store(0, Relaxed);
    }

    pub(crate) fn answered(&self, latency: Duration, now: Time, memory: Duration) {
        // Zero means unknown.
        self.learn(micros(latency).max(1) as f32, now, memory);
    }

    pub(crate) fn failed(&self, now: Time, memory: Duration) {
        let known = self.micros(now, memory);
        // Doubles with each failure, so that a server that keeps failing falls behind any slow one.
        self.learn((2.0 * known).clamp(FAILURE_MICROS, FAILURE_MICROS_MAX), now, memory);
    }

    fn learn(&self, sample: f32, now: Time, memory: Duration) {
        let next = |word| {
            let (average, at) = unpack(word);
            let share = faded(at, now, memory);
            let faded = average * share;
            Some(pack(if sample > faded { sample } else { faded + sample * (1.0 - share) }, now))
        };
        // Average and time in one word, so that no reader sees a new average with an old time.
        let _ = self.0.fetch_update(Relaxed, Relaxed, next);
    }
}

/// The remaining share of a value: 1 at first, 1/e after `memory`.
fn faded(at: u32, now: Time, memory: Duration) -> f32 {
    // Wraps every 50 days. A time in the future comes from another worker's clock.
    let age = stamp(now).wrapping_sub(at);
    let age_micros = if age > u32::MAX / 2 { 0.0 } else { age as f32 * 1024.0 };
    (-age_micros / micros(memory).max(1) as f32).exp()
}

fn stamp(now: Time) -> u32 {
    (now.as_micros() >> 10) as u32
}

fn pack(average: f32, now: Time) -> u64 {
    u64::from(average.to_bits()) << 32 | u64::from(stamp(now))
}

fn unpack(word: u64) -> (f32, u32) {
    (f32::from_bits((word >> 32) as u32), word as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Duration = Duration::from_secs(10);

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    #[test]
    fn worse_is_believed_at_once_and_better_little_by_little() {
        let latency = LatencyAverage::default();
        assert_eq!(latency.micros(at(0), MEMORY), 0.0, "unknown");
        latency.answered(Duration::from_millis(1), at(0), MEMORY);
        assert_eq!(latency.micros(at(0), MEMORY), 1000.0);
        latency.answered(Duration::from_millis(50), at(1), MEMORY);
        assert_eq!(latency.micros(at(1), MEMORY), 50_000.0);
        for answer in 0..20_000 {
            latency.answered(Duration::from_millis(1), at(2 + answer), MEMORY);
        }
        let after_two_memories = latency.micros(at(20_002), MEMORY);
        assert!((7000.0..8500.0).contains(&after_two_memories), "{after_two_memories}");
    }

    #[test]
    fn without_answers_the_memory_fades() {
        let latency = LatencyAverage::default();
        latency.answered(Duration::from_secs(1), at(0), MEMORY);
        let later = latency.micros(at(10_000), MEMORY);
        assert!((later / 1e6 - 0.368).abs() < 0.001, "{later}");
        assert_eq!(latency.micros(at(0), MEMORY), 1e6, "nor does another clock matter that is behind");
        assert!(latency.micros(at(29_000), MEMORY) > 0.0);
        assert_eq!(latency.micros(at(30_000), MEMORY), 0.0, "nothing is known any more");
    }

    #[test]
    fn a_server_that_fails_fast_does_not_look_fast() {
        let latency = LatencyAverage::default();
        latency.failed(at(0), MEMORY);
        assert_eq!(latency.micros(at(0), MEMORY), 1e6);
        latency.failed(at(0), MEMORY);
        assert_eq!(latency.micros(at(0), MEMORY), 2e6, "and worse each time");
        for _ in 0..1000 {
            latency.failed(at(0), MEMORY);
        }
        assert!(latency.micros(at(0), MEMORY) <= 1e9, "up to a limit");
    }
}
