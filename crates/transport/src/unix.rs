//! Unix sockets: listening, connecting, and the socket files.
//!
//! Connected Unix sockets are used like TCP connections: `Tcp` reads, writes and splices both.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::Errno;

/// Backlog of a listening socket: connections that wait to be accepted (the kernel allows at most net.core.somaxconn).
// With a full backlog, a client that does not block fails at once; over TCP the kernel would try again.
pub const BACKLOG: i32 = 4096;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

/// Default mode of the socket file: the process's user and group may connect.
pub const MODE: u32 = 0o660;
/// Pause before another attempt at a server whose backlog is full, because the kernel does not report when it has room.
const AGAIN: Duration = Duration::from_millis(10);

/// The file of a listening Unix socket. Dropping it removes the file, unless another file has taken its place.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// `None` if the file was missing.
    inode: Option<Inode>,
    /// Whether the file belongs to another process, which listens there.
    is_left: AtomicBool,
}

impl SocketFile {
    /// Takes ownership of the existing file.
    fn at(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            inode: Some(Inode::from_path(path)?),
            is_left: AtomicBool::new(false),
        })
    }

    /// The socket file of a process that hands its listeners over. The file belongs to that process until
    /// [`claim`](Self::claim), because the new process may fail to start. If the file was removed, only the socket
    /// remains.
    pub fn of_predecessor(path: &Path) -> Self {
        Self { path: path.to_owned(), inode: Inode::from_path(path).ok(), is_left: AtomicBool::new(true) }
    }

    /// Takes ownership of the file from another process.
    pub fn claim(&self) {
        self.is_left.store(false, Ordering::Relaxed);
    }

    /// Leaves ownership of the file to another process.
    pub fn leave(&self) {
        self.is_left.store(true, Ordering::Relaxed);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !self.is_left.load(Ordering::Relaxed)
            // By the inode: after an upgrade, another process may listen under this name.
            && Inode::from_path(&self.path).is_ok_and(|inode| Some(inode) == self.inode)
        {
            // If this fails, the file stays as a stale one, and the next process that listens there removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Identifies a file, even after a rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Inode {
    device: u64,
    number: u64,
    is_socket: bool,
}

impl Inode {
    fn from_path(path: &Path) -> io::Result<Self> {
        let found = fs::symlink_metadata(path)?;
        Ok(Self { device: found.dev(), number: found.ino(), is_socket: found.file_type().is_socket() })
    }
}

/// Listens on a Unix socket with the file mode `mode`: everyone with write permission may connect. Replaces a stale
/// socket file.
pub fn open(path: &Path, mode: u32) -> io::Result<(TcpListener, SocketFile)> {
    remove_stale(path)?;
    let (socket, address) = new(path)?;
    bind(&socket, &address)?;
    let file = SocketFile::at(path)?;
    // No client can connect yet, because the socket does not listen.
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    listen(&socket, BACKLOG)?;
    Ok((TcpListener::from(socket), file))
}

/// Removes a socket file if no process listens on it.
fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match Inode::from_path(path) {
        Ok(found) if found.is_socket => found,
        Ok(_) => {
            return Err(io::Error::new(
                ErrorKind::AlreadyExists,
                "a file that is not a socket has this path",
            ));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let (socket, address) = new(path)?;
    // Tried by connecting: a socket file does not show whether a process listens.
    match connect(&socket, &address) {
        Err(Errno::CONNREFUSED) => {}
        // Without permission it is unknown whether the file is in use.
        Err(error @ Errno::ACCESS) => return Err(error.into()),
        // A process listens, or is too busy to answer.
        _ => return Err(ErrorKind::AddrInUse.into()),
    }
    // Another process may have replaced the file meanwhile, and listens there.
    if Inode::from_path(path).is_ok_and(|inode| inode == found) { fs::remove_file(path) } else { Ok(()) }
}

/// Connects to a Unix socket. `sleep` waits between attempts while the server's backlog is full.
pub async fn reach(path: &Path, sleep: impl AsyncFn(Duration)) -> io::Result<TcpStream> {
    loop {
        let (socket, address) = new(path)?;
        match connect(&socket, &address) {
            Ok(()) => return Ok(TcpStream::from(socket)),
            // With a new socket each time, because a failed one is not connected later.
            Err(Errno::AGAIN) => sleep(AGAIN).await,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Creates a socket that is not connected, and its address.
fn new(path: &Path) -> io::Result<(OwnedFd, SocketAddrUnix)> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok((socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?, address))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_a_stale_socket_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let (first, file) = open(&path, MODE).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        assert_eq!(open(&path, MODE).unwrap_err().kind(), ErrorKind::AddrInUse);
        // Simulates a killed process.
        std::mem::forget(file);
        drop(first);
        let (second, file) = open(&path, MODE).unwrap();
        drop((second, file));
        assert!(!path.exists());
        fs::write(&path, "notes").unwrap();
        assert_eq!(open(&path, MODE).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"notes");
    }

    #[test]
    fn the_file_of_another_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let (_ours, file) = open(&path, MODE).unwrap();
        fs::remove_file(&path).unwrap();
        let _theirs = UnixListener::bind(&path).unwrap();
        drop(file);
        assert!(path.exists());
    }

    #[test]
    fn the_file_of_a_socket_that_was_passed_on_stays_until_it_is_claimed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let (_socket, _theirs) = open(&path, MODE).unwrap();
        drop(SocketFile::of_predecessor(&path));
        assert!(path.exists());
        let ours = SocketFile::of_predecessor(&path);
        ours.claim();
        drop(ours);
        assert!(!path.exists());
        let of_none = SocketFile::of_predecessor(&path);
        of_none.claim();
        fs::write(&path, "notes").unwrap();
        drop(of_none);
        assert!(path.exists());
    }

    #[test]
    fn a_path_that_is_too_long_is_refused() {
        let path = PathBuf::from(format!("/tmp/{}", "a".repeat(200)));
        assert_eq!(open(&path, MODE).unwrap_err().raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()));
    }
}
