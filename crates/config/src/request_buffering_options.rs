//! Request buffering: the option of a route, and the table with the bounds of the process.

use std::path::PathBuf;

use serde_json::{Value, json};
use toml::de::DeValue;

use crate::cache_options::FOLDER;
use crate::kind::{At, Kind, Located, Maybe, located, refuse_type};
use crate::range::{Count, Unit};
use crate::reader::Reader;
use crate::settings::{RequestBuffering, RequestBuffers};
use crate::table::{Inline, Page, Table, Written, element, key};

/// The parsed table `[request_buffering]`.
#[derive(Debug, Clone)]
pub(crate) struct BuffersWritten {
    memory: u64,
    disk: u64,
    path: Option<Located<PathBuf>>,
}

impl Default for BuffersWritten {
    fn default() -> Self {
        let RequestBuffers { memory_bytes, disk_bytes, .. } = RequestBuffers::default();
        Self { memory: memory_bytes, disk: disk_bytes, path: None }
    }
}

pub(crate) static BUFFERS: Table<BuffersWritten> = Table {
    options: &[
        &key(
            "memory",
            Count { range: 0..=1 << 44, unit: Unit::Bytes },
            |buffers: &mut BuffersWritten| &mut buffers.memory,
            "Memory of all buffered bodies together. Beyond it bodies go to disk, however short they are.",
        ),
        &key(
            "disk",
            Count { range: 0..=1 << 50, unit: Unit::Bytes },
            |buffers: &mut BuffersWritten| &mut buffers.disk,
            "Disk space of all buffered bodies together; beyond it 503. 0: no body goes to disk, so that those \
             longer than `memory` of the route get 413.",
        ),
        &key(
            "path",
            Maybe(At(FOLDER)),
            |buffers: &mut BuffersWritten| &mut buffers.path,
            "The directory of the files, which have no names there and end with the process. It should be on a \
             disk: `/tmp` often is in memory. Default: /var/tmp.",
        ),
    ],
};

impl BuffersWritten {
    /// The bounds that the options describe. Adds a mistake where the directory cannot be used.
    pub(crate) fn check(&self, reader: &mut Reader<'_>) {
        if let Some(Located { value, at }) = &self.path
            && self.disk > 0
            && !value.is_dir()
        {
            let mistake = reader.mistake(at, format!("path: {} is not a directory", value.display()));
            reader.add(mistake.expecting("a directory in which the proxy may create files"));
        }
    }

    /// The bounds that the options describe.
    pub(crate) fn meaning(self) -> RequestBuffers {
        let path = self.path.map_or_else(|| RequestBuffers::default().path, |path| path.value);
        RequestBuffers { memory_bytes: self.memory, disk_bytes: self.disk, path }
    }
}

impl From<&RequestBuffers> for BuffersWritten {
    fn from(buffers: &RequestBuffers) -> Self {
        let RequestBuffers { memory_bytes, disk_bytes, path } = buffers;
        let is_default = *path == RequestBuffers::default().path;
        let path = (!is_default).then(|| located(path.clone()));
        Self { memory: *memory_bytes, disk: *disk_bytes, path }
    }
}

/// The option of a route: `true`, `false`, or a table.
pub(crate) struct BufferingKind;

impl Kind<Option<RequestBuffering>> for BufferingKind {
    fn expected(&self) -> String {
        format!("true, false or {}", BUFFERING.expected())
    }

    fn brief(&self) -> String {
        "true, false or table".to_owned()
    }

    fn document(&self, page: &mut Page) {
        BUFFERING.document(page);
    }

    fn schema(&self) -> Value {
        json!({ "anyOf": [{ "type": "boolean" }, BUFFERING.schema()] })
    }

    fn read(&self, written: &Written<'_>, reader: &mut Reader<'_>) -> Option<Option<RequestBuffering>> {
        match written.value.get_ref() {
            DeValue::Boolean(is_on) => Some(is_on.then(RequestBuffering::default)),
            DeValue::Table(_) => BUFFERING.read(written, reader).map(|element| Some(element.value)),
            _ => {
                refuse_type(written, self.expected(), reader);
                None
            }
        }
    }

    fn print(&self, buffering: &Option<RequestBuffering>) -> Option<String> {
        let buffering = buffering.as_ref()?;
        if *buffering == RequestBuffering::default() {
            return Some("true".to_owned());
        }
        BUFFERING.print(&element(*buffering))
    }
}

const BUFFERING: Inline<RequestBuffering> = Inline {
    title: "request_buffering",
    example: "{ memory = \"256KiB\", max_size = \"100MB\" }",
    table: &Table {
        options: &[
            &key(
                "memory",
                Count { range: 0..=16 << 20, unit: Unit::Bytes },
                |buffering: &mut RequestBuffering| &mut buffering.memory_bytes,
                "A body up to this length stays in memory; a longer one goes to disk.",
            ),
            &key(
                "max_size",
                Maybe(Count { range: 0..=1 << 50, unit: Unit::Bytes }),
                |buffering: &mut RequestBuffering| &mut buffering.body_bytes_max,
                "The longest body; beyond it 413. Default: `limits.body_bytes`, or 1 GiB if that sets no limit.",
            ),
        ],
    },
};
