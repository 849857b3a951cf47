//! The page in front of a body. It holds a head that is sent repeatedly, so that one call sends head and body.

use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{RwLock, TryLockError};

use crate::{Range, page_bytes};

#[derive(Debug, Default)]
pub(crate) struct Front(RwLock<Lying>);

#[derive(Debug, Default)]
struct Lying {
    head: Vec<u8>,
    /// Hash of the last head that was requested and not stored here.
    missed: u64,
}

impl Front {
    /// Calls `send` if `head` is stored in front of the body; returns `None` if not.
    ///
    /// The head is stored when two calls in a row ask for it. Heads change each second, and a head that is sent once
    /// does not pay for the write.
    pub(crate) fn with<T>(&self, range: &Range, head: &[u8], send: impl FnOnce() -> T) -> Option<T> {
        match self.0.try_read() {
            Ok(lying) if lying.head == head => return Some(send()),
            Err(TryLockError::Poisoned(_)) => return None,
            // Another thread writes the page: do not wait for it.
            _ => {}
        }
        if !self.put(range, head) {
            return None;
        }
        let lying = self.0.try_read().ok()?;
        (lying.head == head).then(send)
    }

    /// Stores the head. Returns whether it is stored now.
    fn put(&self, range: &Range, head: &[u8]) -> bool {
        let Ok(mut lying) = self.0.try_write() else { return false };
        let mut hasher = DefaultHasher::new();
        hasher.write(head);
        let asked = hasher.finish();
        if lying.missed != asked {
            lying.missed = asked;
            return false;
        }
        lying.head.clear();
        let is_written = write(range, head).is_ok();
        if is_written {
            lying.head.extend_from_slice(head);
        }
        is_written
    }
}

/// Writes a head directly before the body, on a new page, because the old page may still be on its way to a client.
fn write(range: &Range, head: &[u8]) -> io::Result<()> {
    if head.len() as u64 > page_bytes() {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    range.give_back(range.start, page_bytes())?;
    range.memory.file.write_all_at(head, range.body_start() - head.len() as u64)
}
