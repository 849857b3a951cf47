//! The page in front of a body: it holds a head that is sent repeatedly, so that one call sends both.

use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{RwLock, TryLockError};

use crate::{Range, page_bytes};

/// The head that is stored directly in front of a body.
#[derive(Debug, Default)]
pub(crate) struct Front(RwLock<Lying>);

#[derive(Debug, Default)]
struct Lying {
    head: Vec<u8>,
    /// The last head that was asked for and did not lie there, as a hash.
    missed: u64,
}

impl Front {
    /// Calls `send` if `head` is stored in front of the body; `None` if not. The head is stored when it is asked for
    /// twice in succession: heads change each second, and a head that is sent once is not worth the write.
    pub(crate) fn with<T>(&self, range: &Range, head: &[u8], send: impl FnOnce() -> T) -> Option<T> {
        match self.0.try_read() {
            Ok(lying) if lying.head == head => return Some(send()),
            Err(TryLockError::Poisoned(_)) => return None,
            // Who writes is not waited for.
            _ => {}
        }
        if !self.put(range, head) {
            return None;
        }
        let lying = self.0.try_read().ok()?;
        (lying.head == head).then(send)
    }

    /// Says whether the head lies there now.
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

/// Writes a head right before the body, on a page of its own: one that is still on its way to a client stays as it is.
fn write(range: &Range, head: &[u8]) -> io::Result<()> {
    if head.len() as u64 > page_bytes() {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    range.give_back(range.start, page_bytes())?;
    range.memory.file.write_all_at(head, range.body_start() - head.len() as u64)
}
