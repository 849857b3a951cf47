//! Where long bodies may lie instead of in the allocator's memory: a place that sockets are fed from without a copy. The
//! store only says when a body goes there; what such a place is, its caller knows.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// A place for long bodies.
pub trait Shelf: Debug + Send + Sync {
    /// Begins a body of at most so many bytes; `None` where there is no room.
    fn begin(&self, bytes_max: u64) -> Option<Box<dyn Shelving>>;
}

/// A body on its way to the shelf. Dropped, nothing of it stays there.
pub trait Shelving: Debug + Send {
    /// Appends more of it; says whether there was room. Without, it goes nowhere.
    fn append(&mut self, bytes: &[u8]) -> bool;

    /// It is whole, and changes no more; `None` where it cannot be kept after all.
    fn finish(self: Box<Self>) -> Option<Arc<dyn Shelved>>;
}

/// A body on the shelf.
pub trait Shelved: Any + Debug + Send + Sync {
    /// All of it.
    fn bytes(&self) -> &[u8];
}

/// What it takes is whole pages.
const PAGE_BYTES: u64 = 4096;

/// What the system and the shelf keep of one beside its body: its mapping (200), nodes of the tree that its pages hang on (576
/// each), what stands for it here, and a page with the head that goes with it.
const ENTRY_BYTES: u64 = 2560 + PAGE_BYTES;

/// All memory that a body of this length takes on a shelf.
pub(crate) fn shelved_bytes(body_bytes: u64) -> u64 {
    body_bytes.next_multiple_of(PAGE_BYTES) + ENTRY_BYTES
}

/// A body as it comes: long ones go to the shelf from where they turn out to be long.
#[derive(Debug)]
pub(crate) enum Placing {
    /// It may become long.
    Short,
    OnShelf(Box<dyn Shelving>),
    /// It is in the allocator's memory alone.
    InParts,
}

impl Placing {
    /// The shelved body, if all of it is there.
    pub(crate) fn finish(self) -> Option<Arc<dyn Shelved>> {
        match self {
            Self::OnShelf(shelving) => shelving.finish(),
            Self::Short | Self::InParts => None,
        }
    }
}

/// A body on the shelf as bytes that can be shared.
pub(crate) struct Held(pub(crate) Arc<dyn Shelved>);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}
