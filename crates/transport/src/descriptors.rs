//! Too few file descriptors: how that is recognised, and what to do.

use std::io::{self, ErrorKind};

/// What to do where files are too many.
pub const RAISE_LIMIT: &str = "; raise the limit of open files (ulimit -n)";

/// Whether the process, or the machine, has no descriptor or memory left for a socket.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let codes = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    error.kind() == ErrorKind::OutOfMemory
        || error.raw_os_error().is_some_and(|code| codes.iter().any(|errno| errno.raw_os_error() == code))
}
