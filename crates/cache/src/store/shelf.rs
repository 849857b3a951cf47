//! Interface to a place for long bodies outside the allocator, from which sockets are fed without a copy. The store
//! decides only when a body goes there.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// A place for long bodies.
pub trait Shelf: Debug + Send + Sync {
    /// Starts a body of at most `bytes_max` bytes. `None` if there is no room.
    fn begin(&self, bytes_max: u64) -> Option<Box<dyn Shelving>>;
}

/// A body that is being written to a shelf. If dropped, it is removed.
pub trait Shelving: Debug + Send {
    /// Appends bytes. Returns whether there was room; if not, the body cannot be shelved.
    fn append(&mut self, bytes: &[u8]) -> bool;

    /// Completes the body, which is immutable from now on. `None` if it cannot be kept after all.
    fn finish(self: Box<Self>) -> Option<Arc<dyn Shelved>>;
}

pub trait Shelved: Any + Debug + Send + Sync {
    fn bytes(&self) -> &[u8];
}

/// The unit of memory on a shelf.
const PAGE_BYTES: u64 = 4096;

/// The memory that the system and the shelf need per body: its mapping (200), page tree nodes (576 each), its handle,
/// and a page with the head.
const ENTRY_BYTES: u64 = 2560 + PAGE_BYTES;

/// All the memory that a body of this length takes on a shelf.
pub(crate) fn shelved_bytes(body_bytes: u64) -> u64 {
    body_bytes.next_multiple_of(PAGE_BYTES) + ENTRY_BYTES
}

/// Where a body is written while it arrives: it goes to the shelf once it turns out to be long.
#[derive(Debug)]
pub(crate) enum Placing {
    Short,
    OnShelf(Box<dyn Shelving>),
    /// The body is only in the allocator's memory.
    InParts,
}

impl Placing {
    /// The shelved body, if it is complete.
    pub(crate) fn finish(self) -> Option<Arc<dyn Shelved>> {
        match self {
            Self::OnShelf(shelving) => shelving.finish(),
            Self::Short | Self::InParts => None,
        }
    }
}

/// A body on the shelf, as bytes that can be shared.
pub(crate) struct HeldBody(pub(crate) Arc<dyn Shelved>);

impl AsRef<[u8]> for HeldBody {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}
