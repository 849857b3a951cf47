//! A worker's access log, and what it needs from requests.

use std::cell::{Cell, RefCell, RefMut};

use telemetry::{Needs, WorkerLog};

/// How many buffers for response heads a worker keeps, and their maximum size.
const HEADS_MAX: usize = 64;
const HEAD_BYTES_MAX: usize = 16 * 1024;

pub(crate) struct Logging {
    /// `None` if it is off.
    log: RefCell<Option<WorkerLog>>,
    needs: Cell<Needs>,
    /// Empty buffers for response heads, which the log may need.
    heads: RefCell<Vec<Vec<u8>>>,
}

impl Logging {
    pub(crate) fn new(log: Option<WorkerLog>) -> Self {
        // Copied, so that a request asks for the needs without borrowing the log.
        let needs = Cell::new(log.as_ref().map_or(Needs::NONE, WorkerLog::needs));
        Self { log: RefCell::new(log), needs, heads: RefCell::default() }
    }

    /// The data that the log needs from requests; nothing if it is off.
    pub(crate) fn needs(&self) -> Needs {
        self.needs.get()
    }

    /// `None` if it is off.
    pub(crate) fn borrow_mut(&self) -> RefMut<'_, Option<WorkerLog>> {
        self.log.borrow_mut()
    }

    /// Replaces the log. Returns the previous one.
    pub(crate) fn replace(&self, log: Option<WorkerLog>) -> Option<WorkerLog> {
        self.needs.set(log.as_ref().map_or(Needs::NONE, WorkerLog::needs));
        self.log.replace(log)
    }

    /// Returns a buffer for a response head.
    pub(crate) fn take_head(&self) -> Vec<u8> {
        self.heads.borrow_mut().pop().unwrap_or_default()
    }

    pub(crate) fn give_head(&self, head: Vec<u8>) {
        let mut heads = self.heads.borrow_mut();
        // A rare large head must not keep its memory.
        if heads.len() < HEADS_MAX && head.capacity() <= HEAD_BYTES_MAX {
            heads.push(head);
        }
    }
}
