//! What is stored of responses, and how much.

use std::path::PathBuf;

use ipnet::IpNet;

/// The store that all routes with `cache` share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheStore {
    /// All memory that it takes.
    pub memory_bytes: u64,
    /// The largest response that is stored.
    pub object_bytes_max: u64,
    /// Where responses are kept that outlive the process; `None` is nowhere.
    pub disk: Option<CacheDisk>,
    /// Whose requests with the method PURGE are obeyed; of nobody, they are not understood.
    pub purge_from: Vec<IpNet>,
}

/// What lies behind the memory of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheDisk {
    /// A folder of its own.
    pub path: PathBuf,
    /// What it may take.
    pub size_bytes: u64,
}

impl CacheStore {
    /// Unless written.
    pub(crate) const OBJECT_BYTES_MAX: u64 = 16 << 20;

    /// So much memory, and the rest at its default.
    pub fn of(memory_bytes: u64) -> Self {
        Self { memory_bytes, object_bytes_max: Self::OBJECT_BYTES_MAX, disk: None, purge_from: Vec::new() }
    }
}
