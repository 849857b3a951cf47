//! Size of the flow-control windows: how much the peer may send before the proxy has read it (RFC 9113 §5.2).
//!
//! Windows start small. They double while a stream reads whole windows quickly, as over a long link, and shrink again
//! when none does. So a peer whose data is not read takes little memory.

use std::cell::Cell;
use std::rc::Rc;

/// Initial window of a stream, in bytes.
pub const STREAM_WINDOW: u32 = 64 * 1024;
/// The largest window: enough for 100 MB/s at a round trip of 50 ms, with a reserve.
const LARGEST: u32 = 8 << 20;
/// A window that is read within this many ticks may grow.
const QUICK: u32 = 3;
/// Windows shrink again when no stream has read one quickly for this many ticks.
const SLOW: u32 = 10;
/// Bytes that all connections of a worker together may allow beyond their initial windows.
const GRANTED_MAX: usize = 256 << 20;

/// The difference that justifies a WINDOW_UPDATE: half of an initial window, or an eighth of a large one, so that the
/// rest covers the round trip.
pub(crate) fn worth_telling(window: i64) -> i64 {
    (window / 8).max(i64::from(STREAM_WINDOW / 2))
}

pub(crate) struct Windows {
    /// Window of each stream: the intended one, and the one that was last announced to the peer.
    stream: Cell<u32>,
    told: Cell<u32>,
    /// The last tick at which a stream had read a whole window quickly.
    quick_at: Cell<u32>,
    /// Bytes that all connections of the worker allow beyond their initial windows.
    granted: Rc<Cell<usize>>,
    /// This connection's share of `granted`: the stream window, or, after the window shrank, the unread bytes within
    /// the old one.
    counted: Cell<usize>,
}

/// Bytes that one stream has read, and since when.
#[derive(Default)]
pub(crate) struct Taken {
    bytes: usize,
    since: u32,
}

impl Windows {
    pub(crate) fn new(granted: Rc<Cell<usize>>) -> Self {
        Self {
            stream: Cell::new(STREAM_WINDOW),
            told: Cell::new(STREAM_WINDOW),
            quick_at: Cell::default(),
            granted,
            counted: Cell::new(STREAM_WINDOW as usize),
        }
    }

    pub(crate) fn take(&self, taken: &mut Taken, count: usize, now: u32) {
        taken.bytes += count;
        let stream = self.stream.get();
        if taken.bytes < stream as usize {
            return;
        }
        if now - taken.since <= QUICK {
            self.quick_at.set(now);
            // The peer cannot have used a window that is not announced, so the speed says nothing about it yet.
            if stream < LARGEST && self.told.get() == stream {
                self.set(stream * 2);
            }
        }
        *taken = Taken { bytes: 0, since: now };
    }

    /// Records the unread bytes of all streams together.
    pub(crate) fn hold(&self, unread: i64) {
        let stream = self.stream.get() as usize;
        // After a window has shrunk, the peer may still have sent what the larger one allowed.
        if self.counted.get() > stream {
            self.count(stream.max(self.counted.get().min(unread.max(0) as usize)));
        }
    }

    /// The stream window to announce, at most `limit`, if it has changed.
    pub(crate) fn news(&self, limit: u32, now: u32) -> Option<u32> {
        if now - self.quick_at.get() > SLOW {
            self.set(STREAM_WINDOW);
        }
        self.set(self.stream.get().min(limit.max(STREAM_WINDOW)));
        (self.stream.get() != self.told.get()).then(|| self.stream.get())
    }

    pub(crate) fn told(&self, stream: u32) {
        self.told.set(stream);
    }

    /// Changes the window. It grows only within the worker's share; after shrinking, `hold` releases the memory.
    fn set(&self, stream: u32) {
        let counted = self.counted.get().max(stream as usize);
        if stream <= self.stream.get() || self.granted.get() + counted - self.counted.get() <= GRANTED_MAX {
            self.count(counted);
            self.stream.set(stream);
        }
    }

    fn count(&self, counted: usize) {
        self.granted.set(self.granted.get() + counted - self.counted.replace(counted));
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        // Returns the share of the connection; the initial window is not part of `granted`.
        self.count(STREAM_WINDOW as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads whole windows, each within this many ticks, and announces changes at once. Returns each window.
    fn windows_of(times: usize, ticks: u32, limit: u32) -> Vec<u32> {
        let windows = Windows::new(Rc::default());
        let (mut taken, mut now) = (Taken::default(), 0);
        let mut take = || {
            let told = windows.told.get();
            now += ticks;
            windows.take(&mut taken, told as usize, now);
            windows.told(windows.news(limit, now).unwrap_or(told));
            told / 1024
        };
        (0..times).map(|_| take()).collect()
    }

    #[test]
    fn a_window_grows_while_it_is_taken_quickly() {
        assert_eq!(windows_of(9, 1, u32::MAX), [64, 128, 256, 512, 1024, 2048, 4096, 8192, 8192]);
        assert_eq!(windows_of(4, 3, u32::MAX), [64, 128, 256, 512]);
        assert_eq!(windows_of(4, 4, u32::MAX), [64, 64, 64, 64]);
        assert_eq!(windows_of(4, 1, 256 * 1024), [64, 128, 256, 256]);
        assert_eq!(windows_of(4, 1, 0), [64, 64, 64, 64]);
    }

    #[test]
    fn an_unused_window_shrinks_again() {
        let granted = Rc::default();
        let windows = Windows::new(Rc::clone(&granted));
        windows.take(&mut Taken::default(), STREAM_WINDOW as usize, 1);
        assert_eq!(windows.news(u32::MAX, 1), Some(2 * STREAM_WINDOW));
        windows.told(2 * STREAM_WINDOW);
        assert_eq!((windows.news(u32::MAX, 11), granted.get()), (None, STREAM_WINDOW as usize));
        assert_eq!(windows.news(u32::MAX, 12), Some(STREAM_WINDOW));
        windows.hold(0);
        assert_eq!(granted.get(), 0);
    }

    #[test]
    fn bytes_in_a_larger_window_count_until_they_are_read() {
        const FIRST: usize = STREAM_WINDOW as usize;
        let granted = Rc::default();
        let windows = Windows::new(Rc::clone(&granted));
        let mut taken = Taken::default();
        for (now, window) in [(1, 2), (2, 4), (3, 8)] {
            windows.take(&mut taken, window * FIRST / 2, now);
            windows.told(windows.news(u32::MAX, now).expect("it has grown"));
        }
        let beyond = || granted.get() / FIRST;
        assert_eq!(beyond(), 7);
        // The window is small again, but the unread bytes fill the old one.
        assert_eq!(windows.news(u32::MAX, 99), Some(STREAM_WINDOW));
        for (unread, expected) in [(20, 7), (8, 7), (5, 4), (6, 4), (1, 0), (8, 0)] {
            windows.hold(unread * i64::from(STREAM_WINDOW));
            assert_eq!(beyond(), expected, "{unread} windows are held");
        }
        // Growing counts only bytes that are not counted yet.
        windows.told(STREAM_WINDOW);
        (0..2).for_each(|_| windows.take(&mut taken, FIRST, 99));
        assert_eq!((windows.news(u32::MAX, 99), beyond()), (Some(2 * STREAM_WINDOW), 1));
        drop(windows);
        assert_eq!(granted.get(), 0);
    }

    #[test]
    fn all_windows_together_have_a_limit() {
        let granted = Rc::new(Cell::new(GRANTED_MAX));
        let windows = Windows::new(Rc::clone(&granted));
        windows.take(&mut Taken::default(), STREAM_WINDOW as usize, 1);
        assert_eq!(windows.news(u32::MAX, 1), None);
        drop(windows);
        assert_eq!(granted.get(), GRANTED_MAX);
    }
}
