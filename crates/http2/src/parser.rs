//! Where a connection is in what arrives: the parts of a frame, a body and a header block that are not yet whole.

use crate::connection::Role;
use crate::frame::{CONTINUATION, DATA, HEADERS, Head, PREFACE};
use crate::stream::Key;

/// Where a connection is in what arrives.
pub(crate) struct Parser {
    /// Bytes of the preface that are to come.
    pub(crate) preface_left: usize,
    /// The front of a frame that is not yet whole.
    pub(crate) held: Vec<u8>,
    /// The tick at which the frame began that is held, or that was taken last.
    pub(crate) frame_since: u32,
    /// A body that is being received.
    pub(crate) data: Option<Data>,
    /// A header block that is not yet whole.
    pub(crate) block: Option<Block>,
}

/// The rest of a DATA frame.
#[derive(Clone, Copy)]
pub(crate) struct Data {
    /// `None` where the stream is gone, and its bytes are dropped.
    pub(crate) key: Option<Key>,
    pub(crate) left: usize,
    pub(crate) padding: usize,
    pub(crate) ends: bool,
    /// Whether the length of the padding is still to come.
    pub(crate) is_padded: bool,
}

/// A header block in more than one frame.
pub(crate) struct Block {
    pub(crate) stream: u32,
    pub(crate) ends: bool,
    pub(crate) bytes: Vec<u8>,
    pub(crate) frames: u32,
    /// The tick at which its first frame began.
    pub(crate) since: u32,
}

impl Parser {
    pub(crate) fn new(role: Role) -> Self {
        let preface_left = if role == Role::Server { PREFACE.len() } else { 0 };
        Self { preface_left, held: Vec::new(), frame_since: 0, data: None, block: None }
    }

    /// Whether a frame of a body has begun on a stream, and not ended.
    pub(crate) fn owes(&self, key: Key) -> bool {
        self.data.is_some_and(|data| data.key == Some(key))
    }

    /// A stream is let go of: what is to come of a frame that has begun is nobody's, whoever has its place by then.
    pub(crate) fn let_go(&mut self, key: Key) {
        if let Some(data) = &mut self.data
            && data.key == Some(key)
        {
            data.key = None;
        }
    }

    /// The tick at which a header block began that has not ended. The front of a frame counts as that of one unless it is known
    /// to be DATA, whose stream has time-outs of its own.
    pub(crate) fn head_since(&self) -> Option<u32> {
        if let Some(block) = &self.block {
            return Some(block.since);
        }
        let is_data = self.held.get(3).is_some_and(|kind| *kind == DATA);
        (!self.held.is_empty() && !is_data).then_some(self.frame_since)
    }

    /// That header block, in words.
    pub(crate) fn head_in_words(&self) -> String {
        let (stream, bytes) = match (&self.block, Head::parse(&self.held)) {
            (Some(block), _) => (block.stream, block.bytes.len()),
            (None, Some(head)) if matches!(head.kind, HEADERS | CONTINUATION) => {
                (head.stream, self.held.len())
            }
            _ => return format!("{} bytes of a frame", self.held.len()),
        };
        format!("{bytes} bytes of a header block on stream {stream}")
    }
}
