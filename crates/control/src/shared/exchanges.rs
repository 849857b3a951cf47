//! Exchanges of workers with other instances: a channel that is open while Redis is reachable. Requests never wait
//! for room in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proxy::context::plan::InstanceWay;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{Receiver, channel};

use super::engine::Engine;

/// Maximum time for Redis while a request waits. A slower answer costs more than it saves.
pub(super) const ANSWER_MAX: Duration = Duration::from_millis(20);
/// Maximum number of exchanges in the channel, and of those under way.
const WAITING_MAX: usize = 1024;

/// The channel from workers to other instances.
pub(super) struct Exchanges<T> {
    way: InstanceWay<T>,
    waiting: Receiver<T>,
}

/// The channel is open until this is dropped.
struct OpenWay<'a>(&'a AtomicBool);

impl Drop for OpenWay<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl<T: 'static> Exchanges<T> {
    pub(super) fn new() -> Self {
        let (exchanges, waiting) = channel(WAITING_MAX);
        Self { way: InstanceWay { exchanges, is_open: Arc::default() }, waiting }
    }

    pub(super) fn way(&self) -> InstanceWay<T> {
        self.way.clone()
    }

    pub(super) async fn go_on<Done: Future<Output = ()> + 'static>(
        &mut self,
        engine: &Arc<Engine>,
        exchange: impl Fn(Arc<Engine>, T) -> Done,
    ) -> String {
        let Self { waiting, way } = self;
        way.is_open.store(true, Ordering::Relaxed);
        let _open = OpenWay(&way.is_open);
        let room = Arc::new(Semaphore::new(WAITING_MAX));
        while let Some(one) = waiting.recv().await {
            // Without room, a look-up finds nothing, and a value is not shared.
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
