//! Waits with a timeout.

use std::time::{Duration, Instant};

/// Limit of a single wait. Only a failing test reaches it, even on a machine that runs twenty programs.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Waits until a condition holds. Panics with `otherwise` after [`PATIENCE`].
///
/// For conditions that no socket reports, such as counters. Yields and does not sleep: the condition holds soon.
#[track_caller]
pub fn assert_soon(otherwise: &str, is_so: impl FnMut() -> bool) {
    assert!(holds_soon(is_so), "{otherwise}");
}

/// The patience of a test that waits in a loop.
pub struct Patience(Instant);

impl Patience {
    /// Starts now.
    #[expect(clippy::new_without_default, reason = "the time is no default")]
    pub fn new() -> Self {
        Self(Instant::now())
    }

    /// Lets other threads run. Panics with `otherwise` after [`PATIENCE`].
    #[track_caller]
    pub fn wait(&self, otherwise: &str) {
        assert!(self.0.elapsed() < PATIENCE, "{otherwise}");
        std::thread::yield_now();
    }
}

/// Waits until a condition holds, for at most [`PATIENCE`]. Returns whether it holds.
pub fn holds_soon(mut is_so: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() > PATIENCE {
            return false;
        }
        std::thread::yield_now();
    }
    true
}
