//! Ways to other instances. Who carries what is exchanged is on the control side; this side knows neither Redis nor the way, and
//! waits for no room.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc::Sender;

/// A way to other instances.
#[derive(Debug)]
pub struct Way<T> {
    /// What is exchanged. Nobody waits for room.
    pub exchanges: Sender<T>,
    /// Whether others are reached.
    pub is_open: Arc<AtomicBool>,
}

impl<T> Clone for Way<T> {
    fn clone(&self) -> Self {
        Self { exchanges: self.exchanges.clone(), is_open: Arc::clone(&self.is_open) }
    }
}

/// Where what is exchanged leaves by the way of the moment.
#[derive(Debug)]
pub(super) struct Outlet<T>(Mutex<Option<Way<T>>>);

impl<T> Default for Outlet<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Outlet<T> {
    /// From now on it leaves this way.
    pub(super) fn lead(&self, way: Option<Way<T>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = way;
    }

    /// Sends something; `None` if others are not reached, or there is no room.
    pub(super) fn send(&self, exchange: T) -> Option<()> {
        let way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Way { exchanges, is_open } = way.as_ref()?;
        is_open.load(Ordering::Relaxed).then(|| exchanges.try_send(exchange).ok())?
    }
}
