//! Exchanges of workers with other instances: a way that is open while Redis is reached, and no request that waits for room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proxy::context::plan::Way;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{Receiver, channel};

use super::engine::Engine;

/// How long Redis has while a request waits: one that is slower costs more than it saves.
pub(super) const ANSWER_MAX: Duration = Duration::from_millis(20);
/// What waits for Redis, and what is under way, at most.
const WAITING_MAX: usize = 1024;

/// The way of workers to other instances.
pub(super) struct Exchanges<T> {
    way: Way<T>,
    waiting: Receiver<T>,
}

/// The way is open until this is dropped.
struct Open<'a>(&'a AtomicBool);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl<T: 'static> Exchanges<T> {
    pub(super) fn new() -> Self {
        let (exchanges, waiting) = channel(WAITING_MAX);
        Self { way: Way { exchanges, is_open: Arc::default() }, waiting }
    }

    /// The way to this one.
    pub(super) fn way(&self) -> Way<T> {
        self.way.clone()
    }

    /// Has what comes done over a connection, until that is dropped.
    pub(super) async fn go_on<Done: Future<Output = ()> + 'static>(
        &mut self,
        engine: &Arc<Engine>,
        exchange: impl Fn(Arc<Engine>, T) -> Done,
    ) -> String {
        let Self { waiting, way } = self;
        way.is_open.store(true, Ordering::Relaxed);
        let _open = Open(&way.is_open);
        let room = Arc::new(Semaphore::new(WAITING_MAX));
        while let Some(one) = waiting.recv().await {
            // Without room a look-up finds nothing, and others ask for themselves.
            let Ok(permit) = Arc::clone(&room).try_acquire_owned() else { continue };
            let done = exchange(Arc::clone(engine), one);
            tokio::task::spawn_local(async move {
                done.await;
                drop(permit);
            });
        }
        "the proxy ends".to_owned()
    }
}
