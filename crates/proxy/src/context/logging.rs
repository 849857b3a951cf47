//! The access log as a worker has it, and what it needs of requests.

use std::cell::{Cell, RefCell, RefMut};

use telemetry::{Needs, WorkerLog};

/// Buffers for heads of responses that a worker keeps, and how large those may be.
const HEADS_MAX: usize = 64;
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The access log of a worker.
pub(crate) struct Logging {
    /// `None` if it is off.
    log: RefCell<Option<WorkerLog>>,
    needs: Cell<Needs>,
    /// Empty buffers for heads of responses, which the log may need.
    heads: RefCell<Vec<Vec<u8>>>,
}

impl Logging {
    pub(crate) fn new(log: Option<WorkerLog>) -> Self {
        let needs = Cell::new(log.as_ref().map_or(Needs::NONE, WorkerLog::needs));
        Self { log: RefCell::new(log), needs, heads: RefCell::default() }
    }

    /// What the log needs of requests; nothing if it is off.
    pub(crate) fn needs(&self) -> Needs {
        self.needs.get()
    }

    /// The log, to write to it; `None` if it is off.
    pub(crate) fn borrow_mut(&self) -> RefMut<'_, Option<WorkerLog>> {
        self.log.borrow_mut()
    }

    /// Replaces the log. Returns the last one.
    pub(crate) fn replace(&self, log: Option<WorkerLog>) -> Option<WorkerLog> {
        self.needs.set(log.as_ref().map_or(Needs::NONE, WorkerLog::needs));
        self.log.replace(log)
    }

    /// A buffer for the head of a response.
    pub(crate) fn take_head(&self) -> Vec<u8> {
        self.heads.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes such a buffer back.
    pub(crate) fn give_head(&self, head: Vec<u8>) {
        let mut heads = self.heads.borrow_mut();
        if heads.len() < HEADS_MAX && head.capacity() <= HEAD_BYTES_MAX {
            heads.push(head);
        }
    }
}
