//! The minimum rate at which a client must send and receive.

use std::time::Duration;

use transport::deadline::{TICK, Ticks};

/// Error: bytes moved, but more slowly than the minimum rate.
#[derive(Debug)]
pub(crate) struct TooSlow;

/// The progress of the watched side, while the other side waited for it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RateProgress {
    pub(crate) waited_ticks: u32,
    pub(crate) moved: u64,
    /// Whether the source owes the awaited bytes; a sink always does.
    pub(crate) is_owed: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct MinimumRate {
    /// Waiting time after which the rate is judged.
    window: Ticks,
    /// Bytes that must move in that time.
    bytes: u64,
}

impl MinimumRate {
    /// Creates a minimum rate; `None` if it is zero.
    pub(crate) fn new(bytes_per_second: u64, window: Duration) -> Option<Self> {
        let window = Ticks::from(window);
        let seconds = f64::from(window.0) * TICK.as_secs_f64();
        let bytes = (bytes_per_second as f64 * seconds) as u64;
        (bytes > 0).then_some(Self { window, bytes })
    }

    /// The remaining time of the window.
    pub(crate) fn left(self, progress: &RateProgress) -> Ticks {
        // At least a tick, so that the wait can make progress.
        Ticks(self.window.0.saturating_sub(progress.waited_ticks).max(1))
    }

    /// Checks the rate once the window is over, and begins the next one.
    pub(crate) fn judge(self, progress: &mut RateProgress) -> Result<(), TooSlow> {
        if progress.waited_ticks < self.window.0 {
            return Ok(());
        }
        let is_too_slow = progress.moved < self.bytes;
        // A fast window earns nothing for the next one.
        *progress = RateProgress { is_owed: progress.is_owed, ..RateProgress::default() };
        if is_too_slow { Err(TooSlow) } else { Ok(()) }
    }
}
