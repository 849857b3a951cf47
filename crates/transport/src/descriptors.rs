//! Shortage of file descriptors: how to recognise it, and the advice for the operator.

use std::io::{self, ErrorKind};

/// Advice for messages about a shortage of file descriptors.
pub const RAISE_LIMIT: &str = "; raise the limit of open files (ulimit -n)";

/// Whether the process or the machine lacks a file descriptor, or memory, for another socket.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let codes = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    error.kind() == ErrorKind::OutOfMemory
        || error.raw_os_error().is_some_and(|code| codes.iter().any(|errno| errno.raw_os_error() == code))
}
