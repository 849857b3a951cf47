//! Streams of requests: frames that are not whole, bytes that are unread, and bytes that are to be sent.

use fields::message::{Framed, RequestKind};
use fields::unread::Unread;

use crate::code::Code;
use crate::connection::{StreamId, Transport};
use crate::frame::HEAD_MAX;
use crate::priority::Priority;

/// Identifies a stream of a connection until it is released. Keys are reused.
pub type Key = usize;

/// Why a stream cannot be read or written any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// The peer has not processed the request, so it may be sent elsewhere (RFC 9114 §4.1.1).
    Untouched,
    /// The message was cut off, or cannot be expressed.
    Broken,
}

impl From<Code> for Gone {
    fn from(code: Code) -> Self {
        if code == Code::REQUEST_REJECTED { Self::Untouched } else { Self::Broken }
    }
}

/// What the peer will still send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Incoming {
    Head,
    Body,
    /// Only the end: the trailers have come.
    End,
    Ended,
}

/// What we still have to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outgoing {
    Head,
    Body,
    /// The message is whole; some of it may still have to be given to the transport.
    Ended,
    /// The transport knows of the end.
    Finished,
}

impl Outgoing {
    pub(crate) fn is_ended(self) -> bool {
        matches!(self, Self::Ended | Self::Finished)
    }
}

/// The payload that is being received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Payload {
    /// None: a frame header comes next.
    #[default]
    None,
    /// That of DATA, of which so many bytes are left.
    Data(u64),
    /// That of HEADERS.
    Section(u64),
    /// That of a frame that means nothing.
    Skipped(u64),
}

/// Who uses a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    /// Nobody yet: the head of the request has not come, or it is held back.
    Nobody,
    /// Whoever was told of it.
    Path,
    /// Nobody any more: it goes when what is left of it was sent.
    Rest,
}

pub(crate) struct Stream {
    pub(crate) id: StreamId,
    pub(crate) holder: Holder,
    pub(crate) incoming: Incoming,
    pub(crate) outgoing: Outgoing,
    /// The error code of an early end, whichever end caused it.
    pub(crate) broken: Option<Code>,
    /// The peer's error, in words.
    pub(crate) wrong: Option<Box<str>>,
    /// A frame header that is not whole.
    pub(crate) frame_head: FrameHead,
    pub(crate) payload: Payload,
    /// A field section that is not whole, or is blocked.
    pub(crate) section: Vec<u8>,
    /// The length of that as a whole.
    pub(crate) section_len: usize,
    /// How many insertions the blocked section waits for (RFC 9204 §2.1.2).
    pub(crate) blocked: Option<u64>,
    /// What has come behind a blocked section, and whether the stream ended with it.
    pub(crate) behind: Vec<u8>,
    pub(crate) has_end_behind: bool,
    /// The tick at which the stream began.
    pub(crate) since: u32,
    pub(crate) priority: Priority,
    /// Whether PRIORITY_UPDATE has said it, which counts more than the field.
    pub(crate) is_priority_updated: bool,
    pub(crate) framed: Framed,
    pub(crate) asked: RequestKind,
    /// Whether the client asked for another protocol on the stream.
    pub(crate) asks_for_upgrade: bool,
    /// Heads that are unread.
    pub(crate) text: Unread,
    /// Body bytes that are unread, without framing.
    pub(crate) body: Unread,
    /// The end of a chunked body, trailers included.
    pub(crate) tail: Vec<u8>,
    /// Whether a request is held back until it is known whether it has a body: its method has none as a rule.
    pub(crate) awaits_end: bool,
    /// How many bytes of the body are missing, if its length is known.
    pub(crate) content_left: Option<u64>,
    /// How much the head and trailers exceed the size that every stream may use.
    pub(crate) long_head: usize,
    /// Whether the transport was told to wait until some of the body is read.
    pub(crate) is_held_back: bool,
    /// What is to be sent before any bytes of a body.
    pub(crate) out: Out,
    /// Whether the stream waits for a flush.
    pub(crate) is_queued: bool,
    /// How many bytes the DATA frame under way still has.
    pub(crate) data_left: u64,
    /// Body bytes that were given to the transport.
    pub(crate) body_sent: u64,
}

impl Stream {
    fn new(id: StreamId, since: u32) -> Self {
        Self {
            id,
            holder: Holder::Nobody,
            incoming: Incoming::Head,
            outgoing: Outgoing::Head,
            broken: None,
            wrong: None,
            frame_head: FrameHead::default(),
            payload: Payload::None,
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
            out: Out::default(),
            is_queued: false,
            data_left: 0,
            body_sent: 0,
        }
    }

    /// Whether the head of its request has not come.
    pub(crate) fn lacks_head(&self) -> bool {
        self.holder == Holder::Nobody && !self.awaits_end
    }

    /// Whether its request is held back until the end has come.
    pub(crate) fn is_held_for_end(&self) -> bool {
        self.holder == Holder::Nobody && self.awaits_end
    }

    /// Whether what the peer sends is not taken any more.
    pub(crate) fn is_deaf(&self) -> bool {
        self.broken.is_some() || self.holder == Holder::Rest || self.incoming == Incoming::Ended
    }
}

/// A frame header that has not come as a whole.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FrameHead {
    bytes: [u8; HEAD_MAX],
    len: usize,
}

impl FrameHead {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes bytes until `parse` understands them. Takes them all if it does not.
    pub(crate) fn take<T>(
        &mut self,
        rest: &mut &[u8],
        parse: impl Fn(&[u8]) -> Option<(T, usize)>,
    ) -> Option<T> {
        if self.len == 0
            && let Some((parsed, len)) = parse(rest)
        {
            *rest = &rest[len..];
            return Some(parsed);
        }
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

/// Bytes that are to be sent on a stream.
#[derive(Default)]
pub(crate) struct Out {
    pub(crate) bytes: Vec<u8>,
    sent: usize,
}

/// The most memory that an empty one keeps.
const KEEP_MAX: usize = 512;

impl Out {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Gives the transport as much as it takes; whether that is all.
    pub(crate) fn send(&mut self, id: StreamId, transport: &mut impl Transport) -> bool {
        if self.is_empty() {
            return true;
        }
        self.sent += transport.write(id, &self.bytes[self.sent..]);
        if self.sent < self.bytes.len() {
            return false;
        }
        self.clear();
        true
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEEP_MAX);
        self.sent = 0;
    }
}

/// The streams of requests of a connection. Slots are reused with their memory.
#[derive(Default)]
pub(crate) struct Streams {
    /// The ID of the stream in each slot; `EMPTY` if there is none.
    ids: Vec<StreamId>,
    places: Vec<Stream>,
    free: Vec<Key>,
}

/// No ID of a stream.
const EMPTY: StreamId = StreamId::MAX;

impl Streams {
    /// The number of streams.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn add(&mut self, id: StreamId, since: u32) -> Key {
        let fresh = Stream::new(id, since);
        match self.free.pop() {
            Some(key) => {
                let place = &mut self.places[key];
                let (text, body) = (std::mem::take(&mut place.text), std::mem::take(&mut place.body));
                let (section, tail) = (std::mem::take(&mut place.section), std::mem::take(&mut place.tail));
                let out = std::mem::take(&mut place.out);
                *place = Stream { text, body, section, tail, out, ..fresh };
                self.ids[key] = id;
                key
            }
            None => {
                // Most connections have few streams at once; a vector would begin with four places.
                if self.places.len() == self.places.capacity() {
                    self.places.reserve_exact(self.places.len().max(1));
                }
                self.ids.push(id);
                self.places.push(fresh);
                self.places.len() - 1
            }
        }
    }

    /// Removes a released stream.
    pub(crate) fn remove(&mut self, key: Key) {
        self.ids[key] = EMPTY;
        let place = &mut self.places[key];
        place.text.clear();
        place.body.clear();
        place.out.clear();
        place.behind = Vec::new();
        for bytes in [&mut place.section, &mut place.tail] {
            bytes.clear();
            bytes.shrink_to(KEEP_MAX);
        }
        self.free.push(key);
    }

    pub(crate) fn find(&self, id: StreamId) -> Option<Key> {
        self.ids.iter().position(|&other| other == id)
    }

    pub(crate) fn at(&self, key: Key) -> &Stream {
        &self.places[key]
    }

    pub(crate) fn change(&mut self, key: Key) -> &mut Stream {
        &mut self.places[key]
    }

    /// All streams.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = (Key, &mut Stream)> {
        self.places
            .iter_mut()
            .enumerate()
            .zip(&self.ids)
            .filter(|(_, id)| **id != EMPTY)
            .map(|(place, _)| place)
    }
}
