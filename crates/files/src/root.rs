//! Opens files beneath a root, and nowhere else: the kernel resolves the path, and rejects any path that leaves the
//! root (openat2(2), RESOLVE_BENEATH).
//!
//! [`Waits::Never`] is for worker threads: if the kernel would have to read the disk, the call fails. A thread that may
//! wait repeats it (RESOLVE_CACHED, RWF_NOWAIT).

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};

/// Files up to this length, which fits a connection's buffer, are kept in memory while they are open.
pub const CONTENT_BYTES_MAX: u64 = 16 * 1024;
/// Attempts to open a path that another program changes at the same time.
const TRIES: usize = 4;

/// Whether a call may block on a disk or a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MayBlock {
    /// The call fails with [`OpenError::WouldWait`] instead.
    Never,
    Maybe,
}

/// A directory beneath which files are opened.
#[derive(Debug)]
pub struct Root(OwnedFd);

#[derive(Debug)]
pub enum OpenedPath {
    File(OpenFile),
    Directory,
}

#[derive(Debug)]
pub enum OpenError {
    NotFound,
    /// Clients may not have it: a symbolic link not to follow or out of the root, a device, a FIFO, a socket.
    Hidden,
    Forbidden,
    /// The process or the system has no file descriptor left.
    NoDescriptor,
    /// The call would block, under [`MayBlock::Never`].
    WouldWait,
    /// Any other error, such as a broken disk, or a kernel without openat2 (before Linux 5.6).
    Failed(io::Error),
}

impl From<Errno> for OpenError {
    fn from(error: Errno) -> Self {
        match error {
            // A name that the file system cannot store names no file.
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::ILSEQ => Self::NotFound,
            Errno::LOOP | Errno::XDEV | Errno::NXIO | Errno::NODEV => Self::Hidden,
            Errno::ACCESS | Errno::PERM => Self::Forbidden,
            Errno::MFILE | Errno::NFILE => Self::NoDescriptor,
            Errno::AGAIN => Self::WouldWait,
            other => Self::Failed(other.into()),
        }
    }
}

/// File properties that reveal a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileState {
    pub bytes: u64,
    /// Time of the last change of the content, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// Time of the last change of content or metadata (ctime).
    pub(crate) changed_ns: i128,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl FileState {
    fn from_stat(stat: &Stat) -> Self {
        let ns = |seconds: i64, ns: u64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        Self {
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            modified_ns: ns(stat.st_mtime, stat.st_mtime_nsec),
            changed_ns: ns(stat.st_ctime, stat.st_ctime_nsec),
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }

    fn is_of_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

#[derive(Debug)]
pub struct OpenFile {
    file: OwnedFd,
    state: FileState,
    /// The whole content of a short file.
    content: Option<Box<[u8]>>,
}

impl Root {
    /// Opens the root directory. Its own path may contain symbolic links.
    ///
    /// # Errors
    /// If it is not a directory, or cannot be opened.
    pub fn open(path: &Path, waits: MayBlock) -> Result<Self, OpenError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(openat2(CWD, path, flags, Mode::empty(), cached(waits))?))
    }

    /// Opens a relative path. `links` permits symbolic links that stay beneath the root.
    ///
    /// # Errors
    /// If clients may have nothing at this path.
    pub fn file(&self, path: &[u8], links: bool, waits: MayBlock) -> Result<OpenedPath, OpenError> {
        for _ in 0..TRIES {
            // Look first with O_PATH, because opening a device or a FIFO may have effects.
            let look = self.open_with(path, OFlags::PATH, links, waits)?;
            let stat = fstat(&look)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => return Ok(OpenedPath::Directory),
                FileType::RegularFile => {}
                _ => return Err(OpenError::Hidden),
            }
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
            let file = self.open_with(path, flags, links, waits)?;
            let state = FileState::from_stat(&fstat(&file)?);
            if state.is_of_same_file(&FileState::from_stat(&stat)) {
                return OpenFile::new(file, state, waits).map(OpenedPath::File);
            }
        }
        Err(OpenError::NotFound)
    }

    /// Whether a relative path is a regular file beneath the root, perhaps behind symbolic links that stay there. The
    /// file itself may be unreadable for this process.
    ///
    /// # Errors
    /// If that cannot be found out.
    pub fn has_file(&self, path: &[u8], waits: MayBlock) -> Result<bool, OpenError> {
        match self.open_with(path, OFlags::PATH, true, waits) {
            Ok(file) => Ok(FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::RegularFile),
            Err(OpenError::NotFound | OpenError::Hidden) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn directory(&self, path: &[u8], links: bool) -> Result<OwnedFd, OpenError> {
        self.open_with(path, OFlags::RDONLY | OFlags::DIRECTORY, links, MayBlock::Maybe)
    }

    pub(crate) fn stat(&self, path: &[u8], links: bool) -> Result<Stat, OpenError> {
        Ok(fstat(&self.open_with(path, OFlags::PATH, links, MayBlock::Maybe)?)?)
    }

    fn open_with(
        &self,
        path: &[u8],
        flags: OFlags,
        links: bool,
        waits: MayBlock,
    ) -> Result<OwnedFd, OpenError> {
        let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | cached(waits);
        if !links {
            resolve |= ResolveFlags::NO_SYMLINKS;
        }
        for _ in 0..TRIES {
            match openat2(&self.0, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                // A rename at the same time: the kernel could not rule out that the path left the root.
                Err(Errno::AGAIN) if waits == MayBlock::Maybe => {}
                Err(Errno::INTR) => {}
                opened => return Ok(opened?),
            }
        }
        Err(OpenError::NotFound)
    }
}

fn cached(waits: MayBlock) -> ResolveFlags {
    match waits {
        MayBlock::Never => ResolveFlags::CACHED,
        MayBlock::Maybe => ResolveFlags::empty(),
    }
}

impl OpenFile {
    fn new(file: OwnedFd, state: FileState, waits: MayBlock) -> Result<Self, OpenError> {
        let content =
            if state.bytes <= CONTENT_BYTES_MAX { content(&file, state.bytes, waits)? } else { None };
        Ok(Self { file, state, content })
    }

    /// Takes over an open file.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn from_file(file: File) -> io::Result<Self> {
        let file = OwnedFd::from(file);
        let state = FileState::from_stat(&fstat(&file)?);
        Ok(Self { file, state, content: None })
    }

    #[must_use]
    pub fn state(&self) -> &FileState {
        &self.state
    }

    /// The whole content of a short file.
    #[must_use]
    pub fn content(&self) -> Option<&[u8]> {
        self.content.as_deref()
    }

    /// Reads into `buffer` from offset `at`; returns 0 at the end.
    ///
    /// # Errors
    /// Those of preadv2(2); `WouldBlock` with [`MayBlock::Never`] if the bytes are not in the page cache.
    pub fn read_at(&self, buffer: &mut [u8], at: u64, waits: MayBlock) -> io::Result<usize> {
        Ok(read(self.file.as_fd(), buffer, at, waits)?)
    }

    /// Whether these bytes are probably in the page cache: checks the first and the last.
    #[must_use]
    pub fn is_in_memory(&self, range: Range<u64>) -> bool {
        let probe = |at| self.read_at(&mut [0], at, MayBlock::Never);
        let is_there = |at| !probe(at).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        range.is_empty() || (is_there(range.end - 1) && is_there(range.start))
    }

    /// Reads these bytes into the page cache.
    ///
    /// # Errors
    /// Those of read(2).
    pub fn load(&self, range: Range<u64>) -> io::Result<()> {
        let mut scratch = vec![0; 64 * 1024];
        let mut at = range.start;
        while at < range.end {
            let wanted = (range.end - at).min(scratch.len() as u64) as usize;
            match self.read_at(&mut scratch[..wanted], at, MayBlock::Maybe)? {
                0 => break,
                count => at += count as u64,
            }
        }
        Ok(())
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Reads a short file; `None` if its length has changed meanwhile.
fn content(file: &OwnedFd, bytes: u64, waits: MayBlock) -> Result<Option<Box<[u8]>>, Errno> {
    // One more byte than expected, to notice a file that has grown.
    let mut content = vec![0; bytes as usize + 1];
    let mut len = 0;
    loop {
        match read(file.as_fd(), &mut content[len..], len as u64, waits)? {
            0 => break,
            count => len += count,
        }
        if len == content.len() {
            break;
        }
    }
    content.truncate(len);
    Ok((len as u64 == bytes).then(|| content.into_boxed_slice()))
}

fn read(file: BorrowedFd<'_>, buffer: &mut [u8], at: u64, waits: MayBlock) -> Result<usize, Errno> {
    if waits == MayBlock::Never {
        match preadv2(file, &mut [IoSliceMut::new(buffer)], at, ReadWriteFlags::NOWAIT) {
            // Not every file system supports RWF_NOWAIT.
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {}
            outcome => return outcome,
        }
    }
    loop {
        match pread(file, &mut *buffer, at) {
            Err(Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Opens a path, and returns a word for the result.
    fn kind(root: &Root, path: &str, links: bool) -> &'static str {
        match root.file(path.as_bytes(), links, MayBlock::Maybe) {
            Ok(OpenedPath::File(_)) => "file",
            Ok(OpenedPath::Directory) => "directory",
            Err(OpenError::NotFound) => "not found",
            Err(OpenError::Hidden) => "hidden",
            Err(OpenError::Forbidden) => "forbidden",
            Err(error) => panic!("{path}: {error:?}"),
        }
    }

    #[test]
    fn nothing_leads_out_of_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("root/in")).unwrap();
        fs::write(at("secret"), "secret").unwrap();
        fs::write(at("root/page"), "page").unwrap();
        fs::write(at("root/in/page"), "page").unwrap();
        for (target, link) in [
            ("../secret", "out"),
            ("..", "up"),
            ("/etc/passwd", "absolute"),
            ("page", "within"),
            ("in", "directory"),
            ("loop", "loop"),
            ("../root/page", "out-and-back"),
            ("/proc/self/root", "magic"),
            ("nowhere", "dangling"),
        ] {
            symlink(target, at("root").join(link)).unwrap();
        }
        let _socket = UnixListener::bind(at("root/socket")).unwrap();
        rustix::fs::mkfifoat(CWD, at("root/fifo"), Mode::RUSR | Mode::WUSR).unwrap();
        let root = Root::open(&at("root"), MayBlock::Maybe).unwrap();
        let long = "n".repeat(256);
        let deep = "d/".repeat(2100) + "x";
        for (path, without_links, with_links) in [
            (".", "directory", "directory"),
            ("page", "file", "file"),
            ("in", "directory", "directory"),
            ("in/page", "file", "file"),
            ("page/x", "not found", "not found"),
            ("missing", "not found", "not found"),
            (&long, "not found", "not found"),
            (&deep, "not found", "not found"),
            ("fifo", "hidden", "hidden"),
            ("socket", "hidden", "hidden"),
            ("within", "hidden", "file"),
            ("directory/page", "hidden", "file"),
            ("out", "hidden", "hidden"),
            ("up/secret", "hidden", "hidden"),
            ("absolute", "hidden", "hidden"),
            ("out-and-back", "hidden", "hidden"),
            ("loop", "hidden", "hidden"),
            ("magic/etc/passwd", "hidden", "hidden"),
            ("dangling", "hidden", "not found"),
            // The request's path is checked earlier; the kernel rejects these as well.
            ("../secret", "hidden", "hidden"),
            ("in/../../secret", "hidden", "hidden"),
            ("/etc/passwd", "hidden", "hidden"),
        ] {
            assert_eq!(kind(&root, path, false), without_links, "{path}");
            assert_eq!(kind(&root, path, true), with_links, "{path}, with links");
            let is_file = root.has_file(path.as_bytes(), MayBlock::Maybe).unwrap();
            assert_eq!(is_file, with_links == "file", "{path}");
        }
    }

    #[test]
    fn devices_are_not_opened() {
        let root = Root::open(Path::new("/dev"), MayBlock::Maybe).unwrap();
        for device in ["null", "zero", "full"] {
            assert_eq!(kind(&root, device, true), "hidden", "{device}");
        }
    }

    #[test]
    fn short_files_are_kept_and_changes_are_seen() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        let root = Root::open(directory.path(), MayBlock::Maybe).unwrap();
        let open = || match root.file(b"file", false, MayBlock::Maybe) {
            Ok(OpenedPath::File(file)) => file,
            other => panic!("{other:?}"),
        };
        fs::write(&file, "").unwrap();
        assert_eq!(open().content(), Some(&b""[..]));
        let most = vec![b'x'; CONTENT_BYTES_MAX as usize];
        fs::write(&file, &most).unwrap();
        let before = open();
        assert_eq!(before.content(), Some(most.as_slice()));
        assert_eq!(open().state(), before.state());
        fs::write(&file, [b'x'; CONTENT_BYTES_MAX as usize + 1]).unwrap();
        let long = open();
        assert!(long.content().is_none() && long.state() != before.state());
        let mut buffer = [0; 8];
        assert_eq!(long.read_at(&mut buffer, CONTENT_BYTES_MAX - 1, MayBlock::Maybe).unwrap(), 2);
        assert_eq!(long.read_at(&mut buffer, CONTENT_BYTES_MAX + 1, MayBlock::Maybe).unwrap(), 0);
        long.load(0..CONTENT_BYTES_MAX + 1).unwrap();
        assert!(long.is_in_memory(0..CONTENT_BYTES_MAX + 1) && long.is_in_memory(5..5));
        // Another file of the same name and content is a different file.
        fs::remove_file(&file).unwrap();
        fs::write(&file, [b'x'; CONTENT_BYTES_MAX as usize + 1]).unwrap();
        assert_ne!(open().state(), long.state());
    }
}
