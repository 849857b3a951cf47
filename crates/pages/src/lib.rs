//! Memory for zero-copy sends: an anonymous file in memory (memfd) that sendfile(2) reads.
//!
//! Each body has a range of the file, which is also mapped for reading. No page is written twice: unused pages return
//! to the system, and new bodies are appended. So bytes on their way to a slow client never change.

/// The page in front of a body.
mod front;
/// Detects huge pages, which cannot be given back in parts.
mod huge;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use cache::{Shelf, Shelved, Shelving};
use memmap2::{Mmap, MmapOptions};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use front::Front;

/// The file in memory, and the allocation of its ranges.
#[derive(Debug, Clone)]
pub struct Pages(Arc<PageMemory>);

#[derive(Debug)]
struct PageMemory {
    file: File,
    /// Start of the next range; it only grows.
    next: AtomicU64,
    ranges: AtomicU64,
}

/// Maximum number of ranges. A process may have 65,530 mappings by default, and other code needs some too.
const RANGES_MAX: u64 = 32_768;

impl Pages {
    /// Creates an empty file.
    ///
    /// # Errors
    /// If the system has no memory files or backs them with huge pages, or if the process has a file size limit.
    pub fn new() -> io::Result<Self> {
        if getrlimit(Resource::Fsize).current.is_some() {
            // A write beyond that limit kills the process.
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "the size of files is limited; `ulimit -f unlimited` lifts that",
            ));
        }
        if let Some(setting) = huge::setting() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("files in memory use huge pages; `echo advise > {setting}` disables that"),
            ));
        }
        let open = |flags| memfd_create("vanward-cache", flags | MemfdFlags::CLOEXEC);
        // Kernels before 6.3 do not know this flag, and do not ask for it either.
        let file = open(MemfdFlags::NOEXEC_SEAL).or_else(|_| open(MemfdFlags::empty()))?;
        let memory = PageMemory { file: file.into(), next: AtomicU64::new(0), ranges: AtomicU64::new(0) };
        Ok(Self(Arc::new(memory)))
    }
}

impl Shelf for Pages {
    fn begin(&self, bytes_max: u64) -> Option<Box<dyn Shelving>> {
        let bytes_max = bytes_max.checked_next_multiple_of(page_bytes())?;
        let whole_bytes = bytes_max.checked_add(page_bytes())?;
        if self.0.ranges.fetch_add(1, Relaxed) >= RANGES_MAX {
            self.0.ranges.fetch_sub(1, Relaxed);
            return None;
        }
        let start = self.0.next.fetch_add(whole_bytes, Relaxed);
        let range = Range { memory: Arc::clone(&self.0), start, bytes: 0 };
        Some(Box::new(RangeDraft { range, bytes_max }))
    }
}

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// A range of the file: a page for a head, and the body behind it. Dropping the range frees its pages.
#[derive(Debug)]
struct Range {
    memory: Arc<PageMemory>,
    start: u64,
    /// Length of the body.
    bytes: u64,
}

impl Range {
    fn body_start(&self) -> u64 {
        self.start + page_bytes()
    }

    /// Returns pages to the system. Bytes of them that are being sent stay unchanged.
    fn give_back(&self, from: u64, bytes: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.memory.file, flags, from, bytes)?)
    }

    /// Sends from `from` to the end of the body, as much as the socket takes.
    fn send(&self, socket: BorrowedFd<'_>, mut from: u64) -> Result<usize, Errno> {
        let left = (self.body_start() + self.bytes).saturating_sub(from);
        let count = usize::try_from(left).unwrap_or(usize::MAX);
        match rustix::fs::sendfile(socket, self.memory.file.as_fd(), Some(&mut from), count)? {
            0 => Err(Errno::IO),
            sent => Ok(sent),
        }
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // This cannot fail on such a file. If it did, the pages would be freed with the file.
        let _ = self.give_back(self.start, page_bytes() + self.bytes.next_multiple_of(page_bytes()));
        self.memory.ranges.fetch_sub(1, Relaxed);
    }
}

/// A body that is being written.
#[derive(Debug)]
struct RangeDraft {
    range: Range,
    bytes_max: u64,
}

impl Shelving for RangeDraft {
    fn append(&mut self, bytes: &[u8]) -> bool {
        let range = &mut self.range;
        if bytes.len() as u64 > self.bytes_max - range.bytes {
            return false;
        }
        let at = range.body_start() + range.bytes;
        // Bytes written before an error are freed with the range.
        range.bytes += bytes.len() as u64;
        range.memory.file.write_all_at(bytes, at).is_ok()
    }

    #[expect(unsafe_code, reason = "there is no other way to map a file")]
    fn finish(self: Box<Self>) -> Option<Arc<dyn Shelved>> {
        let Range { ref memory, bytes, .. } = self.range;
        let mut options = MmapOptions::new();
        // Populates all of the mapping at once, so that it counts as memory of the process.
        let options = options.offset(self.range.body_start()).len(usize::try_from(bytes).ok()?).populate();
        // SAFETY: mapped bytes never change and never disappear while they are mapped. Only this crate has the file,
        // which has no name. Each range is allocated once, and only its draft, which ends here, writes the body.
        // `Range` frees the pages; a `Region` drops it after its mapping. The page for a head is not mapped. The file
        // is never shortened.
        let map = unsafe { options.map(&memory.file) }.ok()?;
        Some(Arc::new(Region { map, range: self.range, front: Front::default() }))
    }
}

#[derive(Debug)]
pub struct Region {
    /// Declared before the range, so that the mapping is dropped before its pages are freed.
    map: Mmap,
    range: Range,
    front: Front,
}

impl Shelved for Region {
    fn bytes(&self) -> &[u8] {
        &self.map
    }
}

impl Region {
    /// Sends the body from `offset` on, without a copy. Returns how many bytes the socket took, at least one.
    ///
    /// # Errors
    /// Those of sendfile(2); `Errno::IO` if no bytes are left.
    pub fn send(&self, socket: BorrowedFd<'_>, offset: u64) -> Result<usize, Errno> {
        self.range.send(socket, self.range.body_start() + offset)
    }

    /// Sends a head and the whole body behind it, without a copy, and returns how many bytes the socket took. Returns
    /// `None` if the head is not stored in front of the body: the caller then sends it separately. It is stored when
    /// two calls in a row ask for it.
    ///
    /// # Errors
    /// Those of sendfile(2).
    pub fn send_with(&self, socket: BorrowedFd<'_>, head: &[u8]) -> Option<Result<usize, Errno>> {
        let send = || self.range.send(socket, self.range.body_start() - head.len() as u64);
        self.front.with(&self.range, head, send)
    }
}

#[cfg(test)]
mod tests;
