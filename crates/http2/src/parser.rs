//! Parser state between reads: an incomplete frame, a DATA frame in progress, an incomplete header block.

use crate::connection::H2Role;
use crate::frame::{CONTINUATION, DATA, H2FrameHead, HEADERS, PREFACE};
use crate::stream::Key;

pub(crate) struct FrameParser {
    /// Bytes of the preface that have not arrived yet.
    pub(crate) preface_left: usize,
    /// The start of an incomplete frame.
    pub(crate) held: Vec<u8>,
    /// The tick at which the incomplete frame, or the last complete one, began.
    pub(crate) frame_since: u32,
    pub(crate) data: Option<Data>,
    pub(crate) block: Option<SpannedBlock>,
}

/// The rest of a DATA frame.
#[derive(Clone, Copy)]
pub(crate) struct Data {
    /// `None` if the stream has ended; the bytes are dropped.
    pub(crate) key: Option<Key>,
    pub(crate) left: usize,
    pub(crate) padding: usize,
    pub(crate) ends: bool,
    /// Whether the length of the padding has not arrived yet.
    pub(crate) is_padded: bool,
}

/// A header block that spans several frames.
pub(crate) struct SpannedBlock {
    pub(crate) stream: u32,
    pub(crate) ends: bool,
    pub(crate) bytes: Vec<u8>,
    pub(crate) frames: u32,
    /// The tick at which the first frame of the block began.
    pub(crate) since: u32,
}

impl FrameParser {
    pub(crate) fn new(role: H2Role) -> Self {
        let preface_left = if role == H2Role::Server { PREFACE.len() } else { 0 };
        Self { preface_left, held: Vec::new(), frame_since: 0, data: None, block: None }
    }

    pub(crate) fn owes(&self, key: Key) -> bool {
        self.data.is_some_and(|data| data.key == Some(key))
    }

    /// Forgets a released stream. The rest of an incomplete DATA frame is dropped, even if the key is reused.
    pub(crate) fn let_go(&mut self, key: Key) {
        if let Some(data) = &mut self.data
            && data.key == Some(key)
        {
            data.key = None;
        }
    }

    /// The tick at which the incomplete header block began. An incomplete frame counts as a header block unless it is
    /// known to be DATA, which has a separate time-out.
    pub(crate) fn head_since(&self) -> Option<u32> {
        if let Some(block) = &self.block {
            return Some(block.since);
        }
        // Byte 3 is the kind. Until it has arrived, the frame may be a head.
        let is_data = self.held.get(3).is_some_and(|kind| *kind == DATA);
        (!self.held.is_empty() && !is_data).then_some(self.frame_since)
    }

    pub(crate) fn head_in_words(&self) -> String {
        let (stream, bytes) = match (&self.block, H2FrameHead::parse(&self.held)) {
            (Some(block), _) => (block.stream, block.bytes.len()),
            (None, Some(head)) if matches!(head.kind, HEADERS | CONTINUATION) => {
                (head.stream, self.held.len())
            }
            _ => return format!("{} bytes of a frame", self.held.len()),
        };
        format!("{bytes} bytes of a header block on stream {stream}")
    }
}
