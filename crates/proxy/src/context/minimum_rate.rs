//! The slowest that a client may be.

use std::time::Duration;

use transport::deadline::{TICK, Ticks};

/// Bytes moved, but fewer than the minimum.
#[derive(Debug)]
pub(crate) struct TooSlow;

/// How fast the watched side has been, over the time in which it was waited for.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) waited_ticks: u32,
    pub(crate) moved: u64,
    /// Whether the source owes what is waited for; a sink always does.
    pub(crate) is_owed: bool,
}

/// The slowest that a client may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MinimumRate {
    /// Waiting time after which the rate is judged.
    window: Ticks,
    /// Bytes that have to move in that time.
    bytes: u64,
}

impl MinimumRate {
    /// `None` where there is no minimum.
    pub(crate) fn new(bytes_per_second: u64, window: Duration) -> Option<Self> {
        let window = Ticks::from(window);
        let seconds = f64::from(window.0) * TICK.as_secs_f64();
        let bytes = (bytes_per_second as f64 * seconds) as u64;
        (bytes > 0).then_some(Self { window, bytes })
    }

    /// What is left of the window.
    pub(crate) fn left(self, progress: &Progress) -> Ticks {
        Ticks(self.window.0.saturating_sub(progress.waited_ticks).max(1))
    }

    pub(crate) fn judge(self, progress: &mut Progress) -> Result<(), TooSlow> {
        if progress.waited_ticks < self.window.0 {
            return Ok(());
        }
        let is_too_slow = progress.moved < self.bytes;
        *progress = Progress { is_owed: progress.is_owed, ..Progress::default() };
        if is_too_slow { Err(TooSlow) } else { Ok(()) }
    }
}
