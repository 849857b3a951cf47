//! Times the pieces of a stream from its server: how long its client waited for the first, and the longest pause. Only
//! used while metrics are on, for responses of unknown length.

use std::cell::Cell;
use std::time::{Duration, Instant};

use telemetry::StreamCell;

pub(crate) struct StreamPieces<'a> {
    cell: &'a StreamCell,
    began: Instant,
    last: Cell<Option<Instant>>,
    longest: Cell<Duration>,
}

impl<'a> StreamPieces<'a> {
    pub(crate) fn new(cell: &'a StreamCell, began: Instant) -> Self {
        Self { cell, began, last: Cell::new(None), longest: Cell::default() }
    }

    /// Notes that a piece has arrived, or the end.
    pub(crate) fn piece(&self) {
        // Ticks are too coarse for the pauses of a stream.
        let now = Instant::now();
        match self.last.replace(Some(now)) {
            None => self.cell.first_byte.observe(now.duration_since(self.began)),
            Some(last) => self.longest.set(self.longest.get().max(now.duration_since(last))),
        }
    }
}

/// The time since the last piece also counts as a pause.
impl Drop for StreamPieces<'_> {
    fn drop(&mut self) {
        if let Some(last) = self.last.get() {
            self.cell.longest_gap.observe(self.longest.get().max(last.elapsed()));
        }
    }
}
