//! Limits the memory and disk space of all kept bodies of a process, and counts each one's share.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use config::RequestBuffers;
use telemetry::Counters;
use tokio::sync::Semaphore;

/// How many threads write and read files of bodies at once.
const THREADS_MAX: usize = 16;

/// Shared by all plans of a process.
pub(crate) struct KeptBytes {
    memory: AtomicU64,
    disk: AtomicU64,
    pub(crate) turns: Semaphore,
}

impl Default for KeptBytes {
    fn default() -> Self {
        Self { memory: AtomicU64::new(0), disk: AtomicU64::new(0), turns: Semaphore::new(THREADS_MAX) }
    }
}

/// A worker, whose counters include kept bytes.
pub(crate) trait KeptByteCounter {
    fn counters(&self) -> &Counters;
}

/// The memory and disk space of a body. Dropping it returns them.
pub(crate) struct KeptShare {
    owner: Rc<dyn KeptByteCounter>,
    all: Arc<KeptBytes>,
    memory_bytes: u64,
    disk_bytes: u64,
}

impl KeptShare {
    pub(crate) fn new(owner: Rc<dyn KeptByteCounter>, all: &Arc<KeptBytes>) -> Self {
        Self { owner, all: Arc::clone(all), memory_bytes: 0, disk_bytes: 0 }
    }

    pub(crate) fn all(&self) -> &KeptBytes {
        &self.all
    }

    /// Grows to `total_bytes` of memory. Returns false if the limit does not permit it.
    pub(crate) fn grow_memory(&mut self, total_bytes: u64, bounds: &RequestBuffers) -> bool {
        let more = total_bytes.saturating_sub(self.memory_bytes);
        let is_there = take(&self.all.memory, more, bounds.memory_bytes);
        if is_there {
            self.memory_bytes += more;
            self.owner.counters().request_buffer_memory_bytes.add(more);
        }
        is_there
    }

    /// Adds `more` bytes on disk. Returns false if the limit does not permit it.
    pub(crate) fn grow_disk(&mut self, more: u64, bounds: &RequestBuffers) -> bool {
        let is_there = take(&self.all.disk, more, bounds.disk_bytes);
        if is_there {
            self.disk_bytes += more;
            self.owner.counters().request_buffer_disk_bytes.add(more);
        }
        is_there
    }

    pub(crate) fn leave_memory(&mut self) {
        let bytes = std::mem::take(&mut self.memory_bytes);
        self.all.memory.fetch_sub(bytes, Ordering::Relaxed);
        self.owner.counters().request_buffer_memory_bytes.subtract(bytes);
    }
}

impl Drop for KeptShare {
    fn drop(&mut self) {
        self.leave_memory();
        self.all.disk.fetch_sub(self.disk_bytes, Ordering::Relaxed);
        self.owner.counters().request_buffer_disk_bytes.subtract(self.disk_bytes);
    }
}

/// Adds `more` unless that exceeds the bound.
fn take(taken: &AtomicU64, more: u64, bound: u64) -> bool {
    // Adding nothing is permitted even above the bound, which a reload may have lowered.
    let within = |taken: u64| taken.checked_add(more).filter(|total| more == 0 || *total <= bound);
    taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_more_than_there_is() {
        let taken = AtomicU64::new(0);
        for (more, expected, total) in
            [(60, true, 60), (41, false, 60), (40, true, 100), (0, true, 100), (1, false, 100)]
        {
            assert_eq!((take(&taken, more, 100), taken.load(Ordering::Relaxed)), (expected, total), "{more}");
        }
        // The bound was lowered meanwhile, and a huge request does not overflow.
        assert!(take(&taken, 0, 50) && !take(&taken, 1, 50) && !take(&taken, u64::MAX, u64::MAX));
    }
}
