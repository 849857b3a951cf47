//! Opens files beneath a root, and nowhere else: the kernel resolves the path, and refuses whatever leads out of the root
//! (openat2(2), RESOLVE_BENEATH).
//!
//! [`Waits::Never`] is for threads that must not be kept waiting: what is not in the kernel's memory is left to a thread
//! that may wait (RESOLVE_CACHED, RWF_NOWAIT).

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};

/// A file up to this length is kept in memory while it is open: one that fits the buffer of a connection.
pub const CONTENT_BYTES_MAX: u64 = 16 * 1024;
/// How often an opening begins anew that another program changed the path of meanwhile.
const TRIES: usize = 4;

/// Whether a step may wait for a disk or a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// It fails with [`OpenError::WouldWait`] instead.
    Never,
    /// It may.
    Maybe,
}

/// A directory beneath which files are opened.
#[derive(Debug)]
pub struct Root(OwnedFd);

/// What a path leads to.
#[derive(Debug)]
pub enum Opened {
    /// A regular file.
    File(OpenFile),
    /// A directory.
    Directory,
}

/// Why nothing was opened.
#[derive(Debug)]
pub enum OpenError {
    /// There is no such file.
    NotFound,
    /// What is there is not for clients: a symbolic link that is not followed or leads out of the root, a device, a FIFO,
    /// a socket.
    Hidden,
    /// The system does not permit it.
    Forbidden,
    /// The process or the system has no file descriptor left.
    NoDescriptor,
    /// It would have to wait, and must not.
    WouldWait,
    /// Anything else, such as a broken disk, or a kernel without openat2 (before Linux 5.6).
    Failed(io::Error),
}

impl From<Errno> for OpenError {
    fn from(error: Errno) -> Self {
        match error {
            // A name that the file system cannot have names no file.
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::ILSEQ => Self::NotFound,
            Errno::LOOP | Errno::XDEV | Errno::NXIO | Errno::NODEV => Self::Hidden,
            Errno::ACCESS | Errno::PERM => Self::Forbidden,
            Errno::MFILE | Errno::NFILE => Self::NoDescriptor,
            Errno::AGAIN => Self::WouldWait,
            other => Self::Failed(other.into()),
        }
    }
}

/// Properties of a file by which a changed one is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    /// The length.
    pub bytes: u64,
    /// When its content was changed, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// When anything about it was changed.
    pub(crate) changed_ns: i128,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl State {
    fn of(stat: &Stat) -> Self {
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

/// An open regular file.
#[derive(Debug)]
pub struct OpenFile {
    file: OwnedFd,
    state: State,
    /// All of it, where it is short.
    content: Option<Box<[u8]>>,
}

impl Root {
    /// Opens the directory. Its own path may lead over symbolic links.
    ///
    /// # Errors
    /// If it is no directory, or cannot be opened.
    pub fn open(path: &Path, waits: Waits) -> Result<Self, OpenError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(openat2(CWD, path, flags, Mode::empty(), cached(waits))?))
    }

    /// Opens what a relative path leads to. `links` permits symbolic links that stay beneath the root.
    ///
    /// # Errors
    /// If there is nothing that clients may have.
    pub fn file(&self, path: &[u8], links: bool, waits: Waits) -> Result<Opened, OpenError> {
        for _ in 0..TRIES {
            // A look first: to open a device, or a FIFO, may do something.
            let look = self.open_with(path, OFlags::PATH, links, waits)?;
            let stat = fstat(&look)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => return Ok(Opened::Directory),
                FileType::RegularFile => {}
                _ => return Err(OpenError::Hidden),
            }
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
            let file = self.open_with(path, flags, links, waits)?;
            let state = State::of(&fstat(&file)?);
            if state.is_of_same_file(&State::of(&stat)) {
                return OpenFile::new(file, state, waits).map(Opened::File);
            }
        }
        Err(OpenError::NotFound)
    }

    /// Opens a directory, to read it.
    pub(crate) fn directory(&self, path: &[u8], links: bool) -> Result<OwnedFd, OpenError> {
        self.open_with(path, OFlags::RDONLY | OFlags::DIRECTORY, links, Waits::Maybe)
    }

    /// The properties of what a path leads to.
    pub(crate) fn stat(&self, path: &[u8], links: bool) -> Result<Stat, OpenError> {
        Ok(fstat(&self.open_with(path, OFlags::PATH, links, Waits::Maybe)?)?)
    }

    fn open_with(&self, path: &[u8], flags: OFlags, links: bool, waits: Waits) -> Result<OwnedFd, OpenError> {
        let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | cached(waits);
        if !links {
            resolve |= ResolveFlags::NO_SYMLINKS;
        }
        for _ in 0..TRIES {
            match openat2(&self.0, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                // The kernel could not rule out that the path led out of the root while something was renamed.
                Err(Errno::AGAIN) if waits == Waits::Maybe => {}
                Err(Errno::INTR) => {}
                opened => return Ok(opened?),
            }
        }
        Err(OpenError::NotFound)
    }
}

fn cached(waits: Waits) -> ResolveFlags {
    match waits {
        Waits::Never => ResolveFlags::CACHED,
        Waits::Maybe => ResolveFlags::empty(),
    }
}

impl OpenFile {
    fn new(file: OwnedFd, state: State, waits: Waits) -> Result<Self, OpenError> {
        let content =
            if state.bytes <= CONTENT_BYTES_MAX { content(&file, state.bytes, waits)? } else { None };
        Ok(Self { file, state, content })
    }

    /// A file that somebody else has opened.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn of(file: File) -> io::Result<Self> {
        let file = OwnedFd::from(file);
        let state = State::of(&fstat(&file)?);
        Ok(Self { file, state, content: None })
    }

    /// Its properties when it was opened.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// All of it, where it is short.
    #[must_use]
    pub fn content(&self) -> Option<&[u8]> {
        self.content.as_deref()
    }

    /// Reads into `buffer` from a place on; 0 is the end.
    ///
    /// # Errors
    /// Those of preadv2(2); `WouldBlock` with [`Waits::Never`] if the bytes are not in memory.
    pub fn read_at(&self, buffer: &mut [u8], at: u64, waits: Waits) -> io::Result<usize> {
        Ok(read(self.file.as_fd(), buffer, at, waits)?)
    }

    /// Whether these bytes are likely to be in memory: the first and the last of them are.
    #[must_use]
    pub fn is_in_memory(&self, range: Range<u64>) -> bool {
        let probe = |at| self.read_at(&mut [0], at, Waits::Never);
        let is_there = |at| !probe(at).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        range.is_empty() || (is_there(range.end - 1) && is_there(range.start))
    }

    /// Reads these bytes, so that they are in memory.
    ///
    /// # Errors
    /// Those of read(2).
    pub fn load(&self, range: Range<u64>) -> io::Result<()> {
        let mut scratch = vec![0; 64 * 1024];
        let mut at = range.start;
        while at < range.end {
            let wanted = (range.end - at).min(scratch.len() as u64) as usize;
            match self.read_at(&mut scratch[..wanted], at, Waits::Maybe)? {
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

/// All of a short file; `None` where it has another length by now.
fn content(file: &OwnedFd, bytes: u64, waits: Waits) -> Result<Option<Box<[u8]>>, Errno> {
    // One more than there is: what has grown is noticed as well.
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

fn read(file: BorrowedFd<'_>, buffer: &mut [u8], at: u64, waits: Waits) -> Result<usize, Errno> {
    if waits == Waits::Never {
        match preadv2(file, &mut [IoSliceMut::new(buffer)], at, ReadWriteFlags::NOWAIT) {
            // Not every file system can say whether it would wait.
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

    /// What a path leads to, in a word.
    fn kind(root: &Root, path: &str, links: bool) -> &'static str {
        match root.file(path.as_bytes(), links, Waits::Maybe) {
            Ok(Opened::File(_)) => "file",
            Ok(Opened::Directory) => "directory",
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
        let root = Root::open(&at("root"), Waits::Maybe).unwrap();
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
            // The path of a request is checked before; the kernel refuses these as well.
            ("../secret", "hidden", "hidden"),
            ("in/../../secret", "hidden", "hidden"),
            ("/etc/passwd", "hidden", "hidden"),
        ] {
            assert_eq!(kind(&root, path, false), without_links, "{path}");
            assert_eq!(kind(&root, path, true), with_links, "{path}, with links");
        }
    }

    #[test]
    fn devices_are_not_opened() {
        let root = Root::open(Path::new("/dev"), Waits::Maybe).unwrap();
        for device in ["null", "zero", "full"] {
            assert_eq!(kind(&root, device, true), "hidden", "{device}");
        }
    }

    #[test]
    fn short_files_are_kept_and_changes_are_seen() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        let root = Root::open(directory.path(), Waits::Maybe).unwrap();
        let open = || match root.file(b"file", false, Waits::Maybe) {
            Ok(Opened::File(file)) => file,
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
        assert_eq!(long.read_at(&mut buffer, CONTENT_BYTES_MAX - 1, Waits::Maybe).unwrap(), 2);
        assert_eq!(long.read_at(&mut buffer, CONTENT_BYTES_MAX + 1, Waits::Maybe).unwrap(), 0);
        long.load(0..CONTENT_BYTES_MAX + 1).unwrap();
        assert!(long.is_in_memory(0..CONTENT_BYTES_MAX + 1) && long.is_in_memory(5..5));
        // Another file with the same name and the same content is another one.
        fs::remove_file(&file).unwrap();
        fs::write(&file, [b'x'; CONTENT_BYTES_MAX as usize + 1]).unwrap();
        assert_ne!(open().state(), long.state());
    }
}
