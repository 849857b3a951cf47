//! Changes of maps that several instances make together.

use std::sync::atomic::{AtomicU64, Ordering};

use proxy::shared::live_maps::{LiveMaps, MapRefusal, SharedChange, SharedState};
use telemetry::message;

use crate::StartError;
use crate::admin::maps::now_ms;
use crate::change::Control;

/// A change of a map for all instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedMapOrder {
    Change(Vec<SharedChange>),
    /// Replaces all entries by those of a text.
    Replace(Vec<u8>),
    Reset,
}

/// Makes a change of the named map on all instances. Blocks until this one has it. An error says why none has it.
pub type ShareMap = Box<dyn Fn(&str, SharedMapOrder) -> Result<(), String> + Send + Sync>;

/// Maps that instances share.
pub(crate) struct MapSharing {
    pub(crate) share: ShareMap,
    /// Up to when the maps have the shared state, in seconds since 1970; 0 before the first time.
    as_of: AtomicU64,
}

impl MapSharing {
    pub(crate) fn new(share: ShareMap) -> Self {
        Self { share, as_of: AtomicU64::new(0) }
    }

    /// Up to when the maps have the shared state, in seconds since 1970; `None` before the first time.
    pub(crate) fn as_of(&self) -> Option<u64> {
        Some(self.as_of.load(Ordering::Relaxed)).filter(|as_of| *as_of > 0)
    }

    pub(crate) fn note(&self, as_of: u64) {
        self.as_of.store(as_of, Ordering::Relaxed);
    }
}

/// Why a change of a map is not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MapFailure {
    #[error("{0}")]
    Refused(#[from] MapRefusal),
    #[error("{0}")]
    Leaving(#[from] StartError),
    #[error(
        "map.{name} is shared with other instances, and nothing has changed here: {why}; `--here` changes this instance alone"
    )]
    NotShared { name: String, why: String },
}

impl Control {
    /// Changes a map: on this instance by `here`, or on all by the order that `shared` gives. Returns the number of changes.
    /// Blocks, as `change` does.
    pub(crate) fn change_map(
        &self,
        name: &str,
        is_here: bool,
        here: impl FnOnce(&LiveMaps) -> Result<usize, MapRefusal>,
        shared: impl FnOnce(&LiveMaps) -> Result<(SharedMapOrder, usize), MapRefusal>,
    ) -> Result<usize, MapFailure> {
        let Some(sharing) = self.map_sharing.as_ref().filter(|_| !is_here) else {
            return Ok(self.change_maps(here)??);
        };
        // Others may change maps before all have this change: it must not hold their turn.
        let (order, changes) = self.change_maps(shared)??;
        let refused = |why| MapFailure::NotShared { name: name.to_owned(), why };
        (sharing.share)(name, order).map_err(refused)?;
        Ok(changes)
    }

    /// Takes the state of a map that instances share. Blocks, as `change` does.
    pub(crate) fn take_map(&self, name: &str, state: SharedState) {
        self.warn_of_map(name, self.change_maps(|maps| maps.take_shared(name, state, now_ms())));
    }

    /// Takes changes of a map that all instances make. Blocks, as `change` does.
    pub(crate) fn take_map_changes(&self, name: &str, changes: &[SharedChange]) {
        self.warn_of_map(name, self.change_maps(|maps| maps.take_shared_changes(name, changes, now_ms())));
    }

    /// An ending proxy needs no entries.
    fn warn_of_map(&self, name: &str, left_out: Result<Vec<String>, StartError>) {
        let left_out = left_out.unwrap_or_default();
        if let Some(first) = left_out.first() {
            let more = match left_out.len() {
                1 => String::new(),
                count => format!(" (and {} more)", count - 1),
            };
            message::warn(&format!("map.{name}, as other instances have it: {first}{more}"));
        }
    }
}
