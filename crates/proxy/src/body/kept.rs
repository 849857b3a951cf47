//! Bodies that are kept as a whole: in memory, or in a file without a name.
//!
//! Made from a request whose route has it buffered, and from the copy for a mirror. Whoever has one can read it again and
//! again (`replay`). Files are written and read by other threads where that may wait for a disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use ::files::OpenFile;
use config::RequestBuffers;
use rustix::fs::OFlags;

use crate::context::kept_bytes::{KeptBytes, Share};
use crate::context::worker::Worker;

/// Memory is taken in steps of this size.
const STEP_BYTES: usize = 16 << 10;

/// A whole body.
pub(crate) struct KeptBody {
    pub(crate) content: Content,
    pub(crate) bytes: u64,
    /// Its trailers, as lines.
    pub(crate) trailers: Vec<u8>,
    /// Whether it is sent in chunks where servers are told lengths that way.
    pub(crate) is_chunked: bool,
    /// None if the memory is counted elsewhere.
    _share: Option<Share>,
}

/// Where a body is.
pub(crate) enum Content {
    Memory(Vec<u8>),
    File(Arc<OpenFile>),
}

impl KeptBody {
    /// A body in memory that is not counted.
    pub(crate) fn in_memory(body: Vec<u8>, is_chunked: bool) -> Self {
        let bytes = body.len() as u64;
        Self { content: Content::Memory(body), bytes, trailers: Vec::new(), is_chunked, _share: None }
    }

    /// Whether it is on disk.
    pub(crate) fn is_in_file(&self) -> bool {
        matches!(self.content, Content::File(_))
    }

    /// Has a range of a file in memory, so that who sends it does not keep a worker waiting for a disk.
    pub(crate) async fn load(&self, range: Range<u64>) -> io::Result<()> {
        let (Content::File(file), Some(share)) = (&self.content, &self._share) else { return Ok(()) };
        if file.is_in_memory(range.clone()) {
            return Ok(());
        }
        let file = Arc::clone(file);
        elsewhere(share.all(), move || file.load(range)).await
    }
}

/// Why a body is not kept.
#[derive(Debug)]
pub(crate) enum Unkept {
    /// All bodies together take as much as they may.
    Full,
    /// It cannot be written.
    Failed(io::Error),
}

/// Keeps a body that arrives piece by piece.
pub(crate) struct Keeper {
    memory: Vec<u8>,
    /// More than this of it is not in memory.
    memory_max: u64,
    bounds: RequestBuffers,
    /// What was written, once it is more than fits the memory.
    file: Option<(File, u64)>,
    share: Share,
}

impl Keeper {
    pub(crate) fn new(
        worker: &Rc<Worker>,
        all: &Arc<KeptBytes>,
        bounds: &RequestBuffers,
        memory_max: u64,
    ) -> Self {
        let share = Share::new(worker, all);
        Self { memory: Vec::new(), memory_max, bounds: bounds.clone(), file: None, share }
    }

    /// Keeps the next bytes.
    pub(crate) async fn take(&mut self, bytes: &[u8]) -> Result<(), Unkept> {
        let fits = self.has_room(self.memory.len() + bytes.len());
        self.memory.extend_from_slice(bytes);
        if fits { Ok(()) } else { self.spill().await }
    }

    /// Makes room for so many bytes in memory, if they may be there.
    fn has_room(&mut self, total: usize) -> bool {
        if total > self.memory_max as usize {
            return false;
        }
        let capacity = self.memory.capacity();
        if total <= capacity {
            return true;
        }
        let wanted = total.max(2 * capacity).next_multiple_of(STEP_BYTES).min(self.memory_max as usize);
        let may_grow = self.share.grow_memory(wanted as u64, &self.bounds);
        if may_grow {
            self.memory.reserve_exact(wanted - self.memory.len());
        }
        may_grow
    }

    /// Writes what is in memory to the file.
    async fn spill(&mut self) -> Result<(), Unkept> {
        if !self.share.grow_disk(self.memory.len() as u64, &self.bounds) {
            return Err(Unkept::Full);
        }
        let memory = std::mem::take(&mut self.memory);
        let path = self.bounds.path.clone();
        let file = self.file.take();
        let (file, written, memory) =
            elsewhere(self.share.all(), move || write(file, path, memory)).await.map_err(Unkept::Failed)?;
        (self.file, self.memory) = (Some((file, written)), memory);
        Ok(())
    }

    /// The whole body.
    pub(crate) async fn end(mut self, trailers: &[u8]) -> Result<KeptBody, Unkept> {
        if self.file.is_some() && !self.memory.is_empty() {
            self.spill().await?;
        }
        let (content, bytes) = match self.file {
            None => {
                let bytes = self.memory.len() as u64;
                (Content::Memory(self.memory), bytes)
            }
            Some((file, written)) => {
                self.share.leave_memory();
                (Content::File(Arc::new(OpenFile::of(file).map_err(Unkept::Failed)?)), written)
            }
        };
        let is_chunked = !trailers.is_empty();
        Ok(KeptBody { content, bytes, trailers: trailers.to_vec(), is_chunked, _share: Some(self.share) })
    }
}

/// Writes a piece behind what is in the file, which is made if there is none. Gives the memory back, empty.
fn write(file: Option<(File, u64)>, path: PathBuf, mut memory: Vec<u8>) -> io::Result<(File, u64, Vec<u8>)> {
    let (file, at) = match file {
        Some(file) => file,
        None => (create(&path)?, 0),
    };
    file.write_all_at(&memory, at)?;
    let end = at + memory.len() as u64;
    memory.clear();
    Ok((file, end, memory))
}

/// A new file that has no name, and that nobody else may open.
fn create(directory: &Path) -> io::Result<File> {
    let nameless = (OFlags::TMPFILE | OFlags::EXCL).bits() as i32;
    let opened = OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(nameless).open(directory);
    // Not every file system can: there it has a name for a moment.
    opened.or_else(|_| tempfile::tempfile_in(directory))
}

/// Takes a step that may wait for a disk, on another thread.
async fn elsewhere<T: Send + 'static>(
    all: &KeptBytes,
    step: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    // It is never closed.
    let _turn = all.turns.acquire().await.map_err(io::Error::other)?;
    tokio::task::spawn_blocking(step).await.map_err(io::Error::from)?
}
