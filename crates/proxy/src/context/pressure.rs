//! Whether memory is short: set by the control thread, read by every request. And what is on its way between workers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use telemetry::message;

/// The number of requests that each worker admits even when memory is short.
pub(crate) const ADMITTED_MIN: u64 = 16;
/// The share of the bound, in percent, below which there is enough again.
const ENOUGH_PERCENT: u64 = 95;

/// Datagrams of QUIC on their way from one worker to another.
const STRAYS_MAX: usize = 4096;

/// Whether memory is short.
#[derive(Debug, Default)]
pub struct Pressure {
    is_on: AtomicBool,
    /// Whether the limit of client connections is reached.
    is_crowded: AtomicBool,
    strays: AtomicUsize,
}

impl Pressure {
    /// Whether requests should be rejected.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Whether clients are refused.
    pub fn is_crowded(&self) -> bool {
        self.is_crowded.load(Ordering::Relaxed)
    }

    /// A client is refused, because there are `limit` connections already. Tells the first time.
    #[cold]
    pub(crate) fn refuse(&self, limit: usize) {
        if !self.is_crowded.swap(true, Ordering::Relaxed) {
            message::warn(&format!(
                "clients are refused: there are {limit} connections, as many as limits.connections allows"
            ));
        }
    }

    /// A client is accepted beside so many connections. Tells if that is possible again, once there is some room.
    #[inline]
    pub(crate) fn accept(&self, connections: usize, limit: usize) {
        if self.is_crowded()
            && connections.saturating_mul(100) < limit.saturating_mul(ENOUGH_PERCENT as usize)
        {
            self.settle();
        }
    }

    #[cold]
    fn settle(&self) {
        if self.is_crowded.swap(false, Ordering::Relaxed) {
            message::info("clients are no longer refused");
        }
    }

    /// Counts a datagram that a worker passes on to another; false if there are too many.
    pub(crate) fn begin_stray(&self) -> bool {
        let has_room = self.strays.fetch_add(1, Ordering::Relaxed) < STRAYS_MAX;
        if !has_room {
            self.end_stray();
        }
        has_room
    }

    /// One of them has arrived, or is lost.
    pub(crate) fn end_stray(&self) {
        self.strays.fetch_sub(1, Ordering::Relaxed);
    }

    /// Updates the state from the process's memory use and its limit.
    pub fn judge(&self, used_bytes: u64, limit_bytes: Option<u64>) {
        let Some(limit) = limit_bytes else { return self.is_on.store(false, Ordering::Relaxed) };
        let was_on = self.is_on();
        let is_on = used_bytes > if was_on { limit / 100 * ENOUGH_PERCENT } else { limit };
        self.is_on.store(is_on, Ordering::Relaxed);
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
