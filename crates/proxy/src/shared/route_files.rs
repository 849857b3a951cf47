//! The files of a route, and the number that identifies them for workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct RouteFiles {
    /// Distinguishes the files of routes and plans in the workers' tables.
    pub(crate) id: u64,
    pub(crate) settings: Arc<config::Files>,
}

impl RouteFiles {
    pub(crate) fn new(settings: &Arc<config::Files>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), settings: Arc::clone(settings) }
    }

    /// Whether the settings are equal.
    pub(crate) fn is_of(&self, settings: &config::Files) -> bool {
        *self.settings == *settings
    }
}
