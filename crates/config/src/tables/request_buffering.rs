//! Request buffering: the option of routes, and the bounds of all routes together.

use std::path::PathBuf;

use crate::document::reader::Reader;
use crate::option::kind::{Located, Maybe, Switch, Switchable};
use crate::option::range::{Count, Unit};
use crate::option::table::{Inline, Placed, Table, key};
use crate::tables::cache::options::FOLDER;

/// Request bodies of a route are read as a whole before a server is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestBuffering {
    /// A body that is longer goes to disk.
    pub memory_bytes: u64,
    /// The longest body. Above: 413. `None` means the limit of the route on bodies, and
    /// [`BODY_BYTES_MAX`](Self::BODY_BYTES_MAX) without one.
    pub body_bytes_max: Option<u64>,
    /// Whether bodies are dropped as they arrive: servers get empty ones.
    pub discards: bool,
}

impl RequestBuffering {
    /// The longest body where no option sets a limit.
    pub const BODY_BYTES_MAX: u64 = 1 << 30;

    /// The settings where the option is `true`.
    pub const DEFAULT: Self = Self { memory_bytes: 64 << 10, body_bytes_max: None, discards: false };

    /// The longest body, where the limit on bodies is `body_bytes`: what fits no file is not kept either.
    pub fn bytes_max(&self, body_bytes: Option<u64>, buffers: &RequestBuffers) -> u64 {
        let wanted = self.body_bytes_max.or(body_bytes).unwrap_or(Self::BODY_BYTES_MAX);
        wanted.min(buffers.disk_bytes.max(self.memory_bytes))
    }
}

impl Default for RequestBuffering {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Bounds of all buffered request bodies of the process together.
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

pub(crate) static BUFFERS: Table<RequestBuffers> = Table {
    options: &[
        key!(
            "memory",
            Count { range: 0..=1 << 44, unit: Unit::Bytes },
            RequestBuffers.memory_bytes,
            "Memory of all buffered bodies together. Above it, even short bodies go to disk.",
        ),
        key!(
            "disk",
            Count { range: 0..=1 << 50, unit: Unit::Bytes },
            RequestBuffers.disk_bytes,
            "Disk space of all buffered bodies together; above it 503. 0: no body goes to disk, and bodies \
             longer than `memory` of the route get 413.",
        ),
        key!(
            "path",
            FOLDER,
            RequestBuffers.path,
            "The directory of the files, which have no names and are removed with the process. It should be \
             on a disk: `/tmp` often is in memory.",
        ),
    ],
};

/// Adds a mistake where the directory cannot be used.
pub(crate) fn check(buffers: &Placed<RequestBuffers>, reader: &mut Reader<'_>) {
    let RequestBuffers { disk_bytes, path, .. } = &buffers.value;
    if let Some(at) = buffers.at("path")
        && *disk_bytes > 0
        && !path.is_dir()
    {
        let mistake = reader.mistake(at, format!("path: {} is not a directory", path.display()));
        reader.add(mistake.expecting("a directory in which the proxy may create files"));
    }
}

/// The option of a route: `true`, `false`, or a table.
pub(crate) const BUFFERING: Switchable<RequestBuffering> = Switchable(Inline {
    title: "request_buffering",
    example: "{ memory = \"256KiB\", max_size = \"100MB\" }",
    table: &Table {
        options: &[
            key!(
                "memory",
                Count { range: 0..=16 << 20, unit: Unit::Bytes },
                RequestBuffering.memory_bytes,
                "A body up to this length stays in memory; a longer one goes to disk.",
            ),
            key!(
                "max_size",
                Maybe(Count { range: 0..=1 << 50, unit: Unit::Bytes }),
                RequestBuffering.body_bytes_max,
                "The longest body; above it 413. Default: `limits.body_bytes`, or 1 GiB if that sets no limit.",
            ),
            key!(
                "discard",
                Switch,
                RequestBuffering.discards,
                "Receives the body and drops it: the server gets an empty one, such as a server that only judges requests.",
            ),
        ],
    },
});

/// Converts the option of a route.
pub(crate) fn of_route(
    written: Option<&Located<Option<RequestBuffering>>>,
    reader: &mut Reader<'_>,
) -> Option<RequestBuffering> {
    let Located { value, at } = written?;
    let usual = RequestBuffering::DEFAULT.memory_bytes;
    if value.is_some_and(|buffering| buffering.discards && buffering.memory_bytes != usual) {
        let mistake =
            reader.mistake(at, "request_buffering: memory has no effect where bodies are discarded");
        reader.add(mistake.expecting("memory or discard"));
    }
    *value
}
