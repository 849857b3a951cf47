//! Whether memory is short: set by the control thread, read by every request. Also counts datagrams between workers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use telemetry::message;

/// The number of requests that each worker admits even if memory is short.
pub(crate) const ADMITTED_MIN: u64 = 16;
/// Percentage of a limit below which the pressure ends.
const ENOUGH_PERCENT: u64 = 95;

/// Maximum number of QUIC datagrams between workers.
const STRAYS_MAX: usize = 4096;

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

    /// Whether clients are refused, because the limit of connections is reached.
    pub fn is_crowded(&self) -> bool {
        self.is_crowded.load(Ordering::Relaxed)
    }

    /// Notes that a client is refused because there are `limit` connections. Logs the first time.
    #[cold]
    pub(crate) fn refuse(&self, limit: usize) {
        if !self.is_crowded.swap(true, Ordering::Relaxed) {
            message::warn(&format!(
                "clients are refused: there are {limit} connections, as many as limits.connections allows"
            ));
        }
    }

    /// Notes that a client is accepted beside so many connections. Logs the end of refusals, once there is some room.
    #[inline]
    pub(crate) fn accept(&self, connections: usize, limit: usize) {
        // Usually no client is refused, and nothing is computed.
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

    /// Counts a datagram between workers; false if there are too many.
    pub(crate) fn begin_stray(&self) -> bool {
        // Counted before the comparison, so that all workers together stay within the limit.
        let has_room = self.strays.fetch_add(1, Ordering::Relaxed) < STRAYS_MAX;
        if !has_room {
            self.end_stray();
        }
        has_room
    }

    /// Notes that such a datagram has arrived, or is lost.
    pub(crate) fn end_stray(&self) {
        self.strays.fetch_sub(1, Ordering::Relaxed);
    }

    /// Updates the state from the process's memory use and its limit.
    pub fn judge(&self, used_bytes: u64, limit_bytes: Option<u64>) {
        let Some(limit) = limit_bytes else { return self.is_on.store(false, Ordering::Relaxed) };
        let was_on = self.is_on();
        // Once on, it stays until memory is clearly below the limit, so that it does not change with every request.
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
