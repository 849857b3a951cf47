//! Channels to other instances. The control side carries the messages (by Redis); the request path never waits for
//! room.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc::Sender;

/// A channel to other instances.
#[derive(Debug)]
pub struct InstanceWay<T> {
    /// Bounded. Senders do not wait for room.
    pub exchanges: Sender<T>,
    /// Whether other instances are reachable.
    pub is_open: Arc<AtomicBool>,
}

impl<T> Clone for InstanceWay<T> {
    fn clone(&self) -> Self {
        Self { exchanges: self.exchanges.clone(), is_open: Arc::clone(&self.is_open) }
    }
}

/// Sends messages on the current channel.
#[derive(Debug)]
pub(super) struct Outlet<T>(Mutex<Option<InstanceWay<T>>>);

impl<T> Default for Outlet<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Outlet<T> {
    pub(super) fn lead(&self, way: Option<InstanceWay<T>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = way;
    }

    /// Sends a message; `None` if other instances are not reachable, or there is no room.
    pub(super) fn send(&self, exchange: T) -> Option<()> {
        let way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let InstanceWay { exchanges, is_open } = way.as_ref()?;
        // A stale flag costs one message, which is lost or not sent. The request goes on in both cases.
        is_open.load(Ordering::Relaxed).then(|| exchanges.try_send(exchange).ok())?
    }
}
