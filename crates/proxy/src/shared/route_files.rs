//! The files of a route, and the number that identifies them for workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct RouteFiles {
    /// Distinguishes the files of routes and plans in the workers' tables.
    pub(crate) id: u64,
    pub(crate) settings: Arc<config::Files>,
    /// Extension of the scripts that the server of `else` runs.
    pub(crate) scripts: Option<Box<str>>,
}

impl RouteFiles {
    pub(crate) fn new(settings: &Arc<config::Files>, config: &config::Settings) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            settings: Arc::clone(settings),
            scripts: config.scripts_beside(settings).map(Box::from),
        }
    }

    /// Whether the settings are equal.
    pub(crate) fn is_of(&self, settings: &config::Files, config: &config::Settings) -> bool {
        *self.settings == *settings && self.scripts.as_deref() == config.scripts_beside(settings)
    }
}
