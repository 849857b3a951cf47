//! Streams of requests: incomplete frames, unread bytes and unsent bytes.

use fields::message::{Framed, RequestKind};
use fields::unread::Unread;

use crate::code::H3Code;
use crate::connection::{StreamId, Transport};
use crate::frame::HEAD_MAX;
use crate::priority::Priority;

/// Identifies a stream of a connection until it is released. Keys are reused.
pub type Key = usize;

/// Why a stream cannot be read or written any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum H3StreamGone {
    /// The peer has not processed the request, so it may be sent elsewhere (RFC 9114 §4.1.1).
    Untouched,
    /// The message was cut off, or cannot be expressed.
    Broken,
}

impl From<H3Code> for H3StreamGone {
    fn from(code: H3Code) -> Self {
        if code == H3Code::REQUEST_REJECTED { Self::Untouched } else { Self::Broken }
    }
}

/// The part of its message that the peer sends next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum H3Incoming {
    Head,
    Body,
    /// Only the end: the trailers have arrived.
    End,
    Ended,
}

/// The part of our message that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outgoing {
    Head,
    Body,
    /// The message is complete; the transport may not have accepted all of it.
    Ended,
    /// The transport has the end, too.
    Finished,
}

impl Outgoing {
    pub(crate) fn is_ended(self) -> bool {
        // `Ended` is a complete message whose last bytes the transport has not accepted yet.
        matches!(self, Self::Ended | Self::Finished)
    }
}

/// The remaining payload of the current frame, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum IncomingPayload {
    /// A frame header comes next.
    #[default]
    None,
    Data(u64),
    /// Payload of HEADERS.
    Section(u64),
    /// Payload of an unknown frame.
    Skipped(u64),
}

/// The user of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The request was not passed on: its head is incomplete, or it is held back.
    Nobody,
    /// The caller, which got `Event::Opened` or opened the stream.
    Path,
    /// The caller has released the stream; it is removed once its unsent bytes are sent.
    Rest,
}

pub(crate) struct H3StreamSlot {
    pub(crate) id: StreamId,
    pub(crate) holder: Holder,
    pub(crate) incoming: H3Incoming,
    pub(crate) outgoing: Outgoing,
    /// The error code of an early end, whichever end caused it.
    pub(crate) broken: Option<H3Code>,
    /// The peer's error, in words.
    pub(crate) wrong: Option<Box<str>>,
    pub(crate) frame_head: FrameHead,
    pub(crate) payload: IncomingPayload,
    /// A field section that is incomplete or blocked.
    pub(crate) section: Vec<u8>,
    /// Length of the complete section.
    pub(crate) section_len: usize,
    /// The number of insertions that the blocked section requires (RFC 9204 §2.1.2).
    pub(crate) blocked: Option<u64>,
    /// Bytes received behind a blocked section, and whether the stream ended with them.
    pub(crate) behind: Vec<u8>,
    pub(crate) has_end_behind: bool,
    /// The tick at which the stream began.
    pub(crate) since: u32,
    pub(crate) priority: Priority,
    /// Whether PRIORITY_UPDATE has set the priority, which overrides the field.
    pub(crate) is_priority_updated: bool,
    pub(crate) framed: Framed,
    pub(crate) asked: RequestKind,
    pub(crate) asks_for_upgrade: bool,
    pub(crate) text: Unread,
    /// Unread bytes, without framing.
    pub(crate) body: Unread,
    /// The end of a chunked body, trailers included.
    pub(crate) tail: Vec<u8>,
    /// Whether the request is held back until its end arrives, or more bytes. Its method usually has no body.
    pub(crate) awaits_end: bool,
    /// Missing bytes of the body, if its length is known.
    pub(crate) content_left: Option<u64>,
    /// Bytes of the head and trailers beyond the size that every stream may use.
    pub(crate) long_head: usize,
    /// Whether the stream accepts no bytes until some of the body is read.
    pub(crate) is_held_back: bool,
    /// Unsent bytes that come before any bytes of a body.
    pub(crate) out: StreamOut,
    pub(crate) is_queued: bool,
    /// Remaining bytes of the current DATA frame.
    pub(crate) data_left: u64,
    /// Body bytes that the transport has accepted.
    pub(crate) body_sent: u64,
}

impl H3StreamSlot {
    fn new(id: StreamId, since: u32) -> Self {
        Self {
            id,
            holder: Holder::Nobody,
            incoming: H3Incoming::Head,
            outgoing: Outgoing::Head,
            broken: None,
            wrong: None,
            frame_head: FrameHead::default(),
            payload: IncomingPayload::None,
            section: Vec::new(),
            section_len: 0,
            blocked: None,
            behind: Vec::new(),
            has_end_behind: false,
            since,
            priority: Priority::default(),
            is_priority_updated: false,
            framed: Framed::Raw,
            asked: RequestKind::Other,
            asks_for_upgrade: false,
            text: Unread::default(),
            body: Unread::default(),
            tail: Vec::new(),
            awaits_end: false,
            content_left: None,
            long_head: 0,
            is_held_back: false,
            out: StreamOut::default(),
            is_queued: false,
            data_left: 0,
            body_sent: 0,
        }
    }

    pub(crate) fn lacks_head(&self) -> bool {
        self.holder == Holder::Nobody && !self.awaits_end
    }

    pub(crate) fn is_held_for_end(&self) -> bool {
        self.holder == Holder::Nobody && self.awaits_end
    }

    /// Whether bytes from the peer are ignored.
    pub(crate) fn is_deaf(&self) -> bool {
        self.broken.is_some() || self.holder == Holder::Rest || self.incoming == H3Incoming::Ended
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FrameHead {
    bytes: [u8; HEAD_MAX],
    len: usize,
}

impl FrameHead {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes bytes until `parse` succeeds, or all of them.
    pub(crate) fn take<T>(
        &mut self,
        rest: &mut &[u8],
        parse: impl Fn(&[u8]) -> Option<(T, usize)>,
    ) -> Option<T> {
        // The usual case: the whole header is here, and is read without a copy.
        if self.len == 0
            && let Some((parsed, len)) = parse(rest)
        {
            *rest = &rest[len..];
            return Some(parsed);
        }
        // The array holds the longest header, so `parse` succeeds at the latest when it is full.
        let room = &mut self.bytes[self.len..];
        let count = room.len().min(rest.len());
        room[..count].copy_from_slice(&rest[..count]);
        match parse(&self.bytes[..self.len + count]) {
            Some((parsed, len)) => {
                *rest = &rest[len - self.len..];
                self.len = 0;
                Some(parsed)
            }
            None => {
                *rest = &rest[count..];
                self.len += count;
                None
            }
        }
    }
}

#[derive(Default)]
pub(crate) struct StreamOut {
    pub(crate) bytes: Vec<u8>,
    sent: usize,
}

/// Memory that an empty buffer keeps, in bytes.
const KEEP_MAX: usize = 512;

impl StreamOut {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether the transport accepted everything.
    pub(crate) fn send(&mut self, id: StreamId, transport: &mut impl Transport) -> bool {
        if self.is_empty() {
            return true;
        }
        self.sent += transport.write(id, &self.bytes[self.sent..]);
        // The sent part stays in front: moving the rest would cost more than its memory.
        if self.sent < self.bytes.len() {
            return false;
        }
        self.clear();
        true
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        // An idle stream must not keep the memory of its largest head.
        self.bytes.shrink_to(KEEP_MAX);
        self.sent = 0;
    }
}

/// The streams of requests of a connection. Slots are reused with their memory.
#[derive(Default)]
pub(crate) struct H3Streams {
    /// The ID of the stream in each slot; `EMPTY` if there is none.
    ids: Vec<StreamId>,
    places: Vec<H3StreamSlot>,
    free: Vec<Key>,
}

// 0 is the ID of a client's first request.
const EMPTY: StreamId = StreamId::MAX;

impl H3Streams {
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn add(&mut self, id: StreamId, since: u32) -> Key {
        let fresh = H3StreamSlot::new(id, since);
        match self.free.pop() {
            Some(key) => {
                let place = &mut self.places[key];
                let (text, body) = (std::mem::take(&mut place.text), std::mem::take(&mut place.body));
                let (section, tail) = (std::mem::take(&mut place.section), std::mem::take(&mut place.tail));
                let out = std::mem::take(&mut place.out);
                // The buffers of the last stream in this slot are reused, so that most streams allocate nothing.
                *place = H3StreamSlot { text, body, section, tail, out, ..fresh };
                self.ids[key] = id;
                key
            }
            None => {
                // Most connections have few streams at once; a vector would start with four slots.
                if self.places.len() == self.places.capacity() {
                    self.places.reserve_exact(self.places.len().max(1));
                }
                self.ids.push(id);
                self.places.push(fresh);
                self.places.len() - 1
            }
        }
    }

    pub(crate) fn remove(&mut self, key: Key) {
        self.ids[key] = EMPTY;
        let place = &mut self.places[key];
        place.text.clear();
        place.body.clear();
        place.out.clear();
        // Rarely used, so its memory is not worth keeping.
        place.behind = Vec::new();
        for bytes in [&mut place.section, &mut place.tail] {
            bytes.clear();
            bytes.shrink_to(KEEP_MAX);
        }
        self.free.push(key);
    }

    pub(crate) fn find(&self, id: StreamId) -> Option<Key> {
        // A linear search over the IDs alone, which lie in a few cache lines.
        self.ids.iter().position(|&other| other == id)
    }

    pub(crate) fn at(&self, key: Key) -> &H3StreamSlot {
        &self.places[key]
    }

    pub(crate) fn change(&mut self, key: Key) -> &mut H3StreamSlot {
        &mut self.places[key]
    }

    pub(crate) fn all(&mut self) -> impl Iterator<Item = (Key, &mut H3StreamSlot)> {
        self.places
            .iter_mut()
            .enumerate()
            .zip(&self.ids)
            .filter(|(_, id)| **id != EMPTY)
            .map(|(place, _)| place)
    }
}
