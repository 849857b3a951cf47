//! Pool of spare pipes for splice(2), one per worker.

use std::cell::RefCell;

use crate::tcp::Pipe;

#[derive(Default)]
pub struct Pipes {
    spare: RefCell<Vec<Pipe>>,
}

impl Pipes {
    // A pipe takes two descriptors and up to 1 MiB of the kernel's memory.
    const SPARE_MAX: usize = 16;

    /// An empty pipe. `None` if the process can open no more; bodies are then copied instead.
    pub fn take(&self) -> Option<Pipe> {
        self.spare.borrow_mut().pop().or_else(|| Pipe::new().ok())
    }

    /// Returns an empty pipe to the pool.
    pub fn give(&self, pipe: Pipe) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < Self::SPARE_MAX {
            spare.push(pipe);
        }
    }
}
