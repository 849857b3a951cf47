//! For how long a request waits for its client or for servers. In the rest of its time the proxy holds it.
//!
//! A clock is read when an exchange begins to wait and when it goes on, only where somebody wants to know. How long an
//! event was there before the worker saw it is not known here.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

/// The waits of one exchange.
pub(crate) struct Waits {
    is_on: bool,
    /// Since when it waits.
    since: Cell<Option<Instant>>,
    /// When it last went on.
    resumed: Cell<Option<Instant>>,
    waited: Cell<Duration>,
}

/// Whether what a worker's exchange has just begun to wait for is the proxy itself.
#[derive(Default)]
pub(crate) struct Holding(Cell<bool>);

impl Waits {
    pub(crate) fn new(is_on: bool) -> Self {
        Self { is_on, since: Cell::new(None), resumed: Cell::new(None), waited: Cell::default() }
    }

    /// Runs an exchange, and notes its waits. It waits for others unless `holding` says that the proxy holds it.
    #[inline]
    pub(crate) async fn watch<T>(
        &self,
        holding: &Holding,
        mut exchange: Pin<&mut impl Future<Output = T>>,
    ) -> T {
        poll_fn(|context| {
            if !self.is_on {
                return exchange.as_mut().poll(context);
            }
            self.resume();
            holding.0.set(false);
            let polled = exchange.as_mut().poll(context);
            if polled.is_pending() && !holding.0.get() {
                self.since.set(Some(Instant::now()));
            }
            polled
        })
        .await
    }

    fn resume(&self) {
        if let Some(since) = self.since.take() {
            let now = Instant::now();
            self.waited.set(self.waited.get() + now.duration_since(since));
            self.resumed.set(Some(now));
        }
    }

    /// When the exchange last went on after a wait for others; `None` before the first one.
    pub(crate) fn resumed(&self) -> Option<Instant> {
        self.resumed.get()
    }

    /// How much of `duration`, the time of the whole exchange, the proxy has held it; `None` if nobody wants to know.
    pub(crate) fn held(&self, duration: Duration) -> Option<Duration> {
        self.is_on.then(|| duration.saturating_sub(self.waited.get()))
    }
}

impl Holding {
    /// The proxy lets the exchange wait.
    #[inline]
    pub(crate) fn hold(&self) {
        self.0.set(true);
    }

    /// Waits for something of the proxy's own: that counts as time that it holds the exchange.
    pub(crate) async fn during<T>(&self, step: impl Future<Output = T>) -> T {
        let mut step = pin!(step);
        poll_fn(|context| {
            let polled = step.as_mut().poll(context);
            if polled.is_pending() {
                self.hold();
            }
            polled
        })
        .await
    }
}
