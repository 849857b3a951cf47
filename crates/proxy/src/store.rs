//! Stored responses, shared by all workers: memory, disk, dictionaries; purges, and their propagation.
//!
//! The crate `cache` decides what may be stored, and stores it. This folder does not know requests.

/// The disk store behind the memory.
pub(crate) mod tier;
/// Purges of stored responses.
mod purges;
/// Passes purges on to the next process.
pub(crate) mod successor;
/// Passes purges on to other instances.
mod others;
/// Stored responses that are dictionaries for later ones.
pub(crate) mod dictionaries;
/// The state of the store, for metrics and the admin API.
mod state;

use std::sync::{Arc, OnceLock};

use ::cache::{Behind, CacheKey, Hot, KeySecret, MemoryStore, StoreSettings};
use config::CacheStore;
use pages::Pages;
use telemetry::message;

use crate::shared::secret;
use dictionaries::Dictionaries;
use others::Others;
pub use others::{Publication, Ways, purge_of_everything};
pub use purges::Purging;
pub(crate) use purges::unix_ms;
use successor::Successor;
use tier::SecondTier;

/// The store of responses, and the secret of its keys.
#[derive(Clone)]
pub struct Cache {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) secret: KeySecret,
    pub(crate) second_tier: SecondTier,
    pub(crate) successor: Arc<Successor>,
    pub(crate) others: Arc<Others>,
    pub(crate) dictionaries: Arc<Dictionaries>,
    /// Copies of responses that other instances own; unset until there are other instances.
    pub(crate) hot: Arc<OnceLock<Hot>>,
}

impl Cache {
    pub(crate) fn new(settings: &CacheStore) -> Self {
        let CacheStore { memory_bytes, object_bytes_max, ref disk, .. } = *settings;
        let second_tier = SecondTier::open(disk.as_ref());
        let fresh = || KeySecret::new(u128::from_le_bytes(secret::secret()));
        // Keys of the disk are hashed by its secret, which outlives the process.
        let secret = second_tier.secret().unwrap_or_else(fresh);
        let behind = second_tier.tier().map(|tier| Arc::clone(tier) as Arc<dyn Behind>);
        let settings = StoreSettings { memory_bytes, object_bytes_max };
        let mut store = MemoryStore::new(settings, behind);
        // Bodies in such pages are sent without a copy (sendfile).
        match Pages::new() {
            Ok(pages) => store = store.with_shelf(Arc::new(pages)),
            Err(error) => message::warn(&format!("cached bodies are copied for each connection: {error}")),
        }
        Self {
            store: Arc::new(store),
            secret,
            second_tier,
            successor: Arc::default(),
            others: Arc::default(),
            dictionaries: Arc::default(),
            hot: Arc::default(),
        }
    }

    /// The secret from which the secrets of cache spaces derive.
    pub fn secret(&self) -> KeySecret {
        self.secret
    }

    /// Whether anything is stored under a key, or may be on the disk.
    pub(crate) fn has(&self, key: CacheKey) -> bool {
        self.store.holds(key) || self.second_tier.tier().is_some_and(|tier| tier.has(key))
    }

    /// Leaves the disk store to another process.
    pub fn leave(&self) {
        if let Some(tier) = self.second_tier.tier() {
            tier.close();
        }
    }

    /// Writes pending responses to the disk, at the end of the process.
    pub fn finish(&self) {
        if let Some(tier) = self.second_tier.tier() {
            tier.finish();
        }
    }
}
