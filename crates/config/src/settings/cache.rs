//! Settings of the cache store.

use std::path::PathBuf;

use ipnet::IpNet;

/// The cache store, which all routes with `cache` share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheStore {
    /// The memory limit of the whole store.
    pub memory_bytes: u64,
    /// The largest response that is stored.
    pub object_bytes_max: u64,
    /// The disk store, which outlives the process; `None` without a disk.
    pub disk: Option<CacheDisk>,
    /// The networks whose requests with the method PURGE are obeyed. If empty, PURGE is not understood.
    pub purge_from: Vec<IpNet>,
}

/// The disk store behind the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheDisk {
    /// A folder that nothing else uses.
    pub path: PathBuf,
    /// The size limit.
    pub size_bytes: u64,
}

impl CacheStore {
    /// The default of `object_bytes_max`.
    pub(crate) const OBJECT_BYTES_MAX: u64 = 16 << 20;

    /// A store with this much memory, and defaults for the rest.
    pub fn of(memory_bytes: u64) -> Self {
        Self { memory_bytes, object_bytes_max: Self::OBJECT_BYTES_MAX, disk: None, purge_from: Vec::new() }
    }
}
