//! Complete bodies, in memory or in a nameless file.
//!
//! Made by request buffering, and from the copy for a mirror. A body can be sent repeatedly (`replay`). Other threads
//! write and read files where a disk may block.

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

use crate::shared::kept_bytes::{KeptByteCounter, KeptBytes, KeptShare};

/// Memory is reserved in steps of this size.
const STEP_BYTES: usize = 16 << 10;

pub(crate) struct KeptBody {
    pub(crate) content: KeptContent,
    pub(crate) bytes: u64,
    /// As lines.
    pub(crate) trailers: Vec<u8>,
    /// Whether HTTP/1 servers get the body in chunks.
    pub(crate) is_chunked: bool,
    /// `None` if the memory is counted elsewhere.
    _share: Option<KeptShare>,
}

pub(crate) enum KeptContent {
    Memory(Vec<u8>),
    File(Arc<OpenFile>),
}

impl KeptBody {
    /// Creates a body in memory that does not count against the limits.
    pub(crate) fn in_memory(body: Vec<u8>, is_chunked: bool) -> Self {
        let bytes = body.len() as u64;
        Self { content: KeptContent::Memory(body), bytes, trailers: Vec::new(), is_chunked, _share: None }
    }

    pub(crate) fn is_in_file(&self) -> bool {
        matches!(self.content, KeptContent::File(_))
    }

    /// Loads a range of the file into the page cache, so that sending it does not block the worker.
    pub(crate) async fn load(&self, range: Range<u64>) -> io::Result<()> {
        let (KeptContent::File(file), Some(share)) = (&self.content, &self._share) else { return Ok(()) };
        // Usually the pages are still in memory, and no thread is needed.
        if file.is_in_memory(range.clone()) {
            return Ok(());
        }
        let file = Arc::clone(file);
        elsewhere(share.all(), move || file.load(range)).await
    }
}

#[derive(Debug)]
pub(crate) enum Unkept {
    /// All kept bodies together have reached their limit.
    Full,
    /// The file cannot be written.
    Failed(io::Error),
}

/// Keeps a body that arrives piece by piece.
pub(crate) struct BodyKeeper {
    memory: Vec<u8>,
    /// Bytes that are kept in memory; a longer body goes to a file.
    memory_max: u64,
    bounds: RequestBuffers,
    /// The file and its length, once the body exceeds the memory.
    file: Option<(File, u64)>,
    share: KeptShare,
}

impl BodyKeeper {
    pub(crate) fn new(
        owner: Rc<dyn KeptByteCounter>,
        all: &Arc<KeptBytes>,
        bounds: &RequestBuffers,
        memory_max: u64,
    ) -> Self {
        let share = KeptShare::new(owner, all);
        Self { memory: Vec::new(), memory_max, bounds: bounds.clone(), file: None, share }
    }

    pub(crate) async fn take(&mut self, bytes: &[u8]) -> Result<(), Unkept> {
        // Appended even if it does not fit: the memory then goes to the file as a whole.
        let fits = self.has_room(self.memory.len() + bytes.len());
        self.memory.extend_from_slice(bytes);
        if fits { Ok(()) } else { self.spill().await }
    }

    /// Reserves memory up to `total` bytes, if that is permitted.
    fn has_room(&mut self, total: usize) -> bool {
        if total > self.memory_max as usize {
            return false;
        }
        let capacity = self.memory.capacity();
        if total <= capacity {
            return true;
        }
        // Doubling keeps the copies per byte constant. The exact reservation keeps the counted and the real memory
        // equal.
        let wanted = total.max(2 * capacity).next_multiple_of(STEP_BYTES).min(self.memory_max as usize);
        let may_grow = self.share.grow_memory(wanted as u64, &self.bounds);
        if may_grow {
            self.memory.reserve_exact(wanted - self.memory.len());
        }
        may_grow
    }

    /// Appends the bytes in memory to the file.
    async fn spill(&mut self) -> Result<(), Unkept> {
        // Disk space is reserved before the write, so that all bodies together never exceed the limit.
        if !self.share.grow_disk(self.memory.len() as u64, &self.bounds) {
            return Err(Unkept::Full);
        }
        // The memory travels to the writing thread and back, so that its capacity is used again.
        let memory = std::mem::take(&mut self.memory);
        let path = self.bounds.path.clone();
        let file = self.file.take();
        let (file, written, memory) =
            elsewhere(self.share.all(), move || write(file, path, memory)).await.map_err(Unkept::Failed)?;
        (self.file, self.memory) = (Some((file, written)), memory);
        Ok(())
    }

    /// Ends the body. One that has begun in a file ends there, so that no memory stays in use.
    pub(crate) async fn end(mut self, trailers: &[u8]) -> Result<KeptBody, Unkept> {
        if self.file.is_some() && !self.memory.is_empty() {
            self.spill().await?;
        }
        let (content, bytes) = match self.file {
            None => {
                let bytes = self.memory.len() as u64;
                (KeptContent::Memory(self.memory), bytes)
            }
            Some((file, written)) => {
                // The body is complete in its file, so its memory is free for other bodies.
                self.share.leave_memory();
                (KeptContent::File(Arc::new(OpenFile::from_file(file).map_err(Unkept::Failed)?)), written)
            }
        };
        // RFC 9112 §7.1.2: only a chunked body has a place for trailers.
        let is_chunked = !trailers.is_empty();
        Ok(KeptBody { content, bytes, trailers: trailers.to_vec(), is_chunked, _share: Some(self.share) })
    }
}

/// Appends a piece to the file, which is created if there is none. Returns the memory, emptied.
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

/// Creates a file without a name, which no other process can open.
fn create(directory: &Path) -> io::Result<File> {
    // O_EXCL: the file can never be linked into a directory (open(2)), so its content stays private.
    let nameless = (OFlags::TMPFILE | OFlags::EXCL).bits() as i32;
    let opened = OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(nameless).open(directory);
    // Some file systems lack nameless files: there it has a name briefly.
    opened.or_else(|_| tempfile::tempfile_in(directory))
}

/// Runs a step that may block on a disk on another thread.
async fn elsewhere<T: Send + 'static>(
    all: &KeptBytes,
    step: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    // The semaphore is never closed.
    let _turn = all.turns.acquire().await.map_err(io::Error::other)?;
    tokio::task::spawn_blocking(step).await.map_err(io::Error::from)?
}
