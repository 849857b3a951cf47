//! Waits with a timeout.

use std::time::{Duration, Instant};

/// The longest wait for one event. Only a test that fails waits this long.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until a condition holds. Panics with `otherwise` after [`PATIENCE`].
///
/// For conditions that no socket reports, such as counters. The wait yields instead of sleeping, because the condition
/// holds soon.
#[track_caller]
pub fn assert_soon(otherwise: &str, is_so: impl FnMut() -> bool) {
    assert!(holds_soon(is_so), "{otherwise}");
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
