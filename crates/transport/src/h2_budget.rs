//! What a connection of HTTP/2 may hold for a client, whatever it does: one number, which is shared by its requests, by what it may
//! send before a server has taken it, and by the buffers in which that waits. What there is no room for waits.

use std::cell::Cell;

use http2::STREAM_WINDOW;

const KIB: usize = 1024;
/// What a connection holds at most: the rest of a mebibyte is for what is not counted.
const TOTAL: usize = 900 * KIB;
/// What each request holds of that, measured (`proxy/tests/http2_memory`).
const REQUEST: usize = 8 * KIB + 256;
/// The widest window for a client that sends bodies.
const WINDOW_MAX: u32 = 4 * STREAM_WINDOW;
/// What the path is lent for the body of a client: much for the first, then little, then nothing.
const LENDABLE: [usize; 2] = [128 * KIB, 16 * KIB];

/// What a connection may hold for a client.
#[derive(Debug, Default)]
pub struct Budget {
    /// What the path was lent for bodies.
    lent: Cell<usize>,
}

impl Budget {
    /// The window of streams, beside so many requests.
    pub(crate) fn window(&self, requests: usize) -> u32 {
        let left = self.left(requests) * 4 / 9;
        u32::try_from(left).unwrap_or(u32::MAX).clamp(STREAM_WINDOW, WINDOW_MAX)
    }

    /// How many requests may be served at once, while the client may send so much that nobody has read; one is, in any case.
    pub(crate) fn requests(&self, unread: usize) -> usize {
        (self.left(0).saturating_sub(in_memory(unread)) / REQUEST).max(1)
    }

    /// Lends the path room for the body of a request that has so much; how much it has then.
    pub(crate) fn lend(&self, had: usize, requests: usize, unread: usize) -> usize {
        if had > 0 {
            return had;
        }
        let left = self.left(requests).saturating_sub(in_memory(unread));
        let is_one_of_many = self.lent.get() > 0;
        let size = LENDABLE.into_iter().skip(usize::from(is_one_of_many)).find(|&size| size <= left);
        self.lent.set(self.lent.get() + size.unwrap_or(0));
        size.unwrap_or(0)
    }

    /// The path gives back what it was lent.
    pub(crate) fn give_back(&self, lent: usize) {
        self.lent.set(self.lent.get() - lent);
    }

    /// What is left beside so many requests, and what the path was lent.
    fn left(&self, requests: usize) -> usize {
        TOTAL.saturating_sub(requests * REQUEST + self.lent.get())
    }
}

/// What bytes take at most that have come and are unread: while their memory grows, by a quarter, both are there.
fn in_memory(bytes: usize) -> usize {
    bytes.saturating_mul(9) / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: usize = STREAM_WINDOW as usize;

    #[test]
    fn nearly_all_requests_of_a_client_are_served_that_sends_nothing_large() {
        let budget = Budget::default();
        assert!(budget.requests(0) >= 100);
        assert!(budget.requests(FIRST) >= 90, "{}", budget.requests(FIRST));
        assert_eq!((budget.window(1), budget.window(100)), (WINDOW_MAX, STREAM_WINDOW));
        // One with a wide window has fewer.
        assert!((38..60).contains(&budget.requests(WINDOW_MAX as usize)));
        assert_eq!(budget.requests(usize::MAX / 4), 1);
    }

    #[test]
    fn buffers_are_lent_as_long_as_there_is_room() {
        let budget = Budget::default();
        let first = budget.lend(0, 1, FIRST);
        assert_eq!((first, budget.lend(first, 1, FIRST)), (LENDABLE[0], LENDABLE[0]));
        let others: usize = (0..100).map(|_| budget.lend(0, 50, FIRST)).sum();
        assert!(others > 0 && others < TOTAL / 3, "{others}");
        assert_eq!(budget.lend(0, 50, FIRST), 0);
        budget.give_back(first + others);
        assert_eq!(budget.lend(0, 1, FIRST), LENDABLE[0]);
    }
}
