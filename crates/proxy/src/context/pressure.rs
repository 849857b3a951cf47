//! Whether memory is short: set by the control thread, read by every request.

use std::sync::atomic::{AtomicBool, Ordering};

use telemetry::message;

/// The number of requests that each worker admits even when memory is short.
pub(crate) const ADMITTED_MIN: u64 = 16;
/// The share of the bound, in percent, below which there is enough again.
const ENOUGH_PERCENT: u64 = 95;

/// Whether memory is short.
#[derive(Debug, Default)]
pub struct Pressure(AtomicBool);

impl Pressure {
    /// Whether requests should be rejected.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Updates the state from the process's memory use and its limit.
    pub fn judge(&self, used_bytes: u64, limit_bytes: Option<u64>) {
        let Some(limit) = limit_bytes else { return self.0.store(false, Ordering::Relaxed) };
        let was_on = self.is_on();
        let is_on = used_bytes > if was_on { limit / 100 * ENOUGH_PERCENT } else { limit };
        self.0.store(is_on, Ordering::Relaxed);
        if is_on && !was_on {
            message::warn(&format!(
                "memory is short: {used_bytes} bytes of at most {limit} are in use, and most requests are rejected; \
                 [shed] memory sets the bound"
            ));
        } else if was_on && !is_on {
            message::info("memory is no longer short");
        }
    }
}
