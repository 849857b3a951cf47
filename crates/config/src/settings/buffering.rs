//! Settings of request buffering.

use std::path::PathBuf;

/// Request bodies of a route are read as a whole before a server is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestBuffering {
    /// A body that is longer goes to disk.
    pub memory_bytes: u64,
    /// The longest body. Above: 413. `None` means the limit of the route on bodies, and
    /// [`BODY_BYTES_MAX`](Self::BODY_BYTES_MAX) without one.
    pub body_bytes_max: Option<u64>,
}

impl RequestBuffering {
    /// The longest body where no option sets a limit.
    pub const BODY_BYTES_MAX: u64 = 1 << 30;

    /// The longest body, where the limit on bodies is `body_bytes`: what fits no file is not kept either.
    pub fn bytes_max(&self, body_bytes: Option<u64>, buffers: &RequestBuffers) -> u64 {
        let wanted = self.body_bytes_max.or(body_bytes).unwrap_or(Self::BODY_BYTES_MAX);
        wanted.min(buffers.disk_bytes.max(self.memory_bytes))
    }
}

impl Default for RequestBuffering {
    fn default() -> Self {
        Self { memory_bytes: 64 << 10, body_bytes_max: None }
    }
}

/// What all buffered request bodies of the process may take together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestBuffers {
    /// The memory. Above: bodies go to disk.
    pub memory_bytes: u64,
    /// The space on disk. Above: 503.
    pub disk_bytes: u64,
    /// The directory of the files.
    pub path: PathBuf,
}

impl Default for RequestBuffers {
    fn default() -> Self {
        Self { memory_bytes: 256 << 20, disk_bytes: 8 << 30, path: PathBuf::from("/var/tmp") }
    }
}
