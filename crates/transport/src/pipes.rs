//! The spare pipes of one worker, for splice(2).

use std::cell::RefCell;

use crate::tcp::Pipe;

/// The spare pipes of one worker.
#[derive(Default)]
pub struct Pipes {
    spare: RefCell<Vec<Pipe>>,
}

impl Pipes {
    /// Pipes kept for reuse.
    const SPARE_MAX: usize = 16;

    /// An empty pipe; `None` where the process can have no more, and bodies are copied instead.
    pub fn take(&self) -> Option<Pipe> {
        self.spare.borrow_mut().pop().or_else(|| Pipe::new().ok())
    }

    /// Takes an empty pipe back.
    pub fn give(&self, pipe: Pipe) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < Self::SPARE_MAX {
            spare.push(pipe);
        }
    }
}
