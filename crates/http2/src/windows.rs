//! The windows of a connection of HTTP/2: what its peer may send before the path has taken any of it (RFC 9113 §5.2).
//!
//! They begin small, double while some stream takes whole windows in no time, as over a long link, and are small again
//! when none does. So a peer that sends what nobody takes fills little.

use std::cell::Cell;
use std::rc::Rc;

/// A stream's window at first.
pub const STREAM_WINDOW: u32 = 64 * 1024;
/// The largest: good for 100 MB/s over a link of 50 ms, with room to spare.
const LARGEST: u32 = 8 << 20;
/// A window that is taken within so many ticks may be larger.
const QUICK: u32 = 3;
/// Windows that nobody has taken for so many ticks are small again.
const SLOW: u32 = 10;
/// What all connections of a worker may be given beyond their first windows.
const GRANTED_MAX: usize = 256 << 20;

/// How much of a window the peer is told of at once: half of a first one; of a large one an eighth, so that the rest covers the
/// way there and back.
pub(crate) fn worth_telling(window: i64) -> i64 {
    (window / 8).max(i64::from(STREAM_WINDOW / 2))
}

/// The windows of one connection.
pub(crate) struct Windows {
    /// Each stream's, as it should be and as the peer was last told.
    stream: Cell<u32>,
    told: Cell<u32>,
    /// The tick at which a stream last took a whole window quickly.
    quick_at: Cell<u32>,
    /// Of all connections of the worker, beyond their first windows.
    granted: Rc<Cell<usize>>,
}

/// How much one stream has taken, since when.
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
        }
    }

    /// A stream has taken this much of what had arrived.
    pub(crate) fn take(&self, taken: &mut Taken, count: usize, now: u32) {
        taken.bytes += count;
        let stream = self.stream.get();
        if taken.bytes < stream as usize {
            return;
        }
        if now - taken.since <= QUICK {
            self.quick_at.set(now);
            if stream < LARGEST && self.told.get() == stream {
                self.set(stream * 2);
            }
        }
        *taken = Taken { bytes: 0, since: now };
    }

    /// What the peer is to be told of each stream's window, where that has changed; `limit` is the most that it may be.
    pub(crate) fn news(&self, limit: u32, now: u32) -> Option<u32> {
        if now - self.quick_at.get() > SLOW {
            self.set(STREAM_WINDOW);
        }
        self.set(self.stream.get().min(limit.max(STREAM_WINDOW)));
        (self.stream.get() != self.told.get()).then(|| self.stream.get())
    }

    /// The peer was told.
    pub(crate) fn told(&self, stream: u32) {
        self.told.set(stream);
    }

    /// Grows or shrinks, as far as the worker's share goes.
    fn set(&self, stream: u32) {
        let granted = self.granted.get() + stream as usize - self.stream.get() as usize;
        if granted <= GRANTED_MAX || stream < self.stream.get() {
            self.granted.set(granted);
            self.stream.set(stream);
        }
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        self.set(STREAM_WINDOW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes whole windows, each in so many ticks, and tells the peer at once; what each window was.
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
    fn a_window_that_nobody_takes_is_small_again() {
        let granted = Rc::default();
        let windows = Windows::new(Rc::clone(&granted));
        windows.take(&mut Taken::default(), STREAM_WINDOW as usize, 1);
        assert_eq!(windows.news(u32::MAX, 1), Some(2 * STREAM_WINDOW));
        windows.told(2 * STREAM_WINDOW);
        assert_eq!((windows.news(u32::MAX, 11), granted.get()), (None, STREAM_WINDOW as usize));
        assert_eq!((windows.news(u32::MAX, 12), granted.get()), (Some(STREAM_WINDOW), 0));
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
