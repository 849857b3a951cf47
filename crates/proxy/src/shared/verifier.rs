//! Limits how many passwords are verified at once, over all workers and plans of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Maximum number of waiting requests, over all workers; further ones are rejected.
const LINE_MAX: usize = 256;

/// Limits running and waiting verifications. Shared by all plans of a process.
pub(crate) struct Verifier {
    turns: Arc<Semaphore>,
    in_line: AtomicUsize,
}

/// Half of the cores, so that the others continue to serve.
impl Default for Verifier {
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, std::num::NonZero::get);
        Self { turns: Arc::new(Semaphore::new((cores / 2).max(1))), in_line: AtomicUsize::new(0) }
    }
}

impl Verifier {
    /// Joins the queue; `None` if it is full.
    pub(crate) fn line_up(&self) -> Option<VerifierPermit<'_>> {
        VerifierPermit::take(&self.in_line)
    }

    /// Waits for the turn of a verification, which lasts until the permit is dropped.
    pub(crate) fn turn(&self) -> impl Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + use<> {
        Arc::clone(&self.turns).acquire_owned()
    }
}

/// Counts a waiting request until it is dropped.
pub(crate) struct VerifierPermit<'a>(&'a AtomicUsize);

impl<'a> VerifierPermit<'a> {
    fn take(in_line: &'a AtomicUsize) -> Option<Self> {
        let before = in_line.fetch_add(1, Ordering::Relaxed);
        // Beyond the limit, dropping the place takes the count back.
        let place = Self(in_line);
        (before < LINE_MAX).then_some(place)
    }
}

impl Drop for VerifierPermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
