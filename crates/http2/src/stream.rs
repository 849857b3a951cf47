//! Streams: unread bytes, and flow control for both directions.

use std::collections::VecDeque;

use fields::message::{Framed, RequestKind};
use fields::unread::Unread;

use crate::frame::Reason;
use crate::windows::Taken;

/// Identifies a stream of a connection until it is released. Keys are reused.
pub type Key = usize;

/// Why a stream cannot be read or written any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum H2StreamGone {
    /// The peer has not processed the request, so it may be sent elsewhere (RFC 9113 §8.7).
    Untouched,
    /// The message was cut off, or cannot be expressed.
    Broken,
}

/// The part of its message that the peer sends next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum H2Incoming {
    Head,
    Body,
    Ended,
    Reset,
}

impl H2Incoming {
    /// Whether the peer has closed its side of the stream. Further frames break the protocol (RFC 9113 §5.1).
    pub(crate) fn is_closed(self) -> bool {
        matches!(self, Self::Ended | Self::Reset)
    }
}

/// The part of our message that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outgoing {
    Head,
    Body,
    Ended,
}

pub(crate) struct H2StreamSlot {
    /// 0 before a number is assigned.
    pub(crate) id: u32,
    /// Whether the stream counts towards the limit on open streams.
    pub(crate) is_counted: bool,
    pub(crate) incoming: H2Incoming,
    pub(crate) outgoing: Outgoing,
    /// The error code of an early end, whichever end caused it.
    pub(crate) broken: Option<Reason>,
    /// The peer's error, in words.
    pub(crate) wrong: Option<Box<str>>,
    pub(crate) framed: Framed,
    pub(crate) asked: RequestKind,
    pub(crate) asks_for_upgrade: bool,
    pub(crate) text: Unread,
    /// Unread bytes, without framing.
    pub(crate) body: Unread,
    /// The end of a chunked body, trailers included.
    pub(crate) tail: Vec<u8>,
    /// Missing bytes of the body, if its length is known.
    pub(crate) content_left: Option<u64>,
    /// Bytes of the request's head and trailers beyond the size that every stream may use.
    pub(crate) long_head: usize,
    /// Bytes that the peer may send.
    pub(crate) receive_window: i64,
    pub(crate) taken: Taken,
    /// Bytes that may be sent to the peer.
    pub(crate) send_window: i64,
    pub(crate) body_sent: u64,
}

impl H2StreamSlot {
    fn new(id: u32, receive_window: i64, send_window: i64) -> Self {
        Self {
            id,
            is_counted: false,
            incoming: H2Incoming::Head,
            outgoing: Outgoing::Head,
            broken: None,
            wrong: None,
            framed: Framed::Raw,
            asked: RequestKind::Other,
            asks_for_upgrade: false,
            text: Unread::default(),
            body: Unread::default(),
            tail: Vec::new(),
            content_left: None,
            long_head: 0,
            receive_window,
            taken: Taken::default(),
            send_window,
            body_sent: 0,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.broken.is_some() || (self.incoming == H2Incoming::Ended && self.outgoing == Outgoing::Ended)
    }
}

/// The most slots that are added at once: 64 and these are the usual limit of 100 streams.
const GROWTH_MAX: usize = 36;

/// Memory that a released stream's slot keeps, in bytes.
const KEEP_MAX: usize = 512;

/// The streams of a connection. Slots are reused with their memory.
#[derive(Default)]
pub(crate) struct H2Streams {
    /// The stream number in each slot; 0 if the slot is empty, or no number is assigned yet.
    ids: Vec<u32>,
    places: Vec<H2StreamSlot>,
    free: Vec<Key>,
    /// Numbers of the streams that we reset last. Frames that the peer sent before it knew are ignored.
    reset: VecDeque<u32>,
    /// Highest number among the resets that are no longer remembered.
    reset_before: u32,
}

/// Resets that are remembered individually.
// More need no memory each: `reset_before` covers them.
const RESETS_MAX: usize = 128;

impl H2Streams {
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn add(&mut self, id: u32, receive_window: i64, send_window: i64) -> Key {
        let fresh = H2StreamSlot::new(id, receive_window, send_window);
        match self.free.pop() {
            Some(key) => {
                let place = &mut self.places[key];
                let (text, body, tail) = (
                    std::mem::take(&mut place.text),
                    std::mem::take(&mut place.body),
                    std::mem::take(&mut place.tail),
                );
                // The buffers of the last stream in this slot are reused, so that most streams allocate nothing.
                *place = H2StreamSlot { text, body, tail, ..fresh };
                self.ids[key] = id;
                key
            }
            None => {
                // Most connections have few streams at once; a vector would start with four slots. From 64 streams on, it
                // would have 128 slots, of which the usual limit needs 100.
                if self.places.len() == self.places.capacity() {
                    self.places.reserve_exact(self.places.len().clamp(1, GROWTH_MAX));
                }
                self.ids.push(id);
                self.places.push(fresh);
                self.places.len() - 1
            }
        }
    }

    pub(crate) fn remove(&mut self, key: Key) {
        self.ids[key] = 0;
        let place = &mut self.places[key];
        place.text.clear();
        place.body.clear();
        place.tail.clear();
        // A slot must not keep the memory of the longest trailers.
        place.tail.shrink_to(KEEP_MAX);
        self.free.push(key);
    }

    pub(crate) fn name(&mut self, key: Key, id: u32) {
        self.ids[key] = id;
        self.places[key].id = id;
    }

    pub(crate) fn find(&self, id: u32) -> Option<Key> {
        // A linear search over the numbers alone, which lie in a few cache lines.
        self.ids.iter().position(|&other| other == id)
    }

    pub(crate) fn at(&self, key: Key) -> &H2StreamSlot {
        &self.places[key]
    }

    pub(crate) fn change(&mut self, key: Key) -> &mut H2StreamSlot {
        &mut self.places[key]
    }

    pub(crate) fn named(&mut self) -> impl Iterator<Item = (Key, &mut H2StreamSlot)> {
        self.places.iter_mut().enumerate().zip(&self.ids).filter(|(_, id)| **id > 0).map(|(place, _)| place)
    }

    pub(crate) fn remember_reset(&mut self, id: u32) {
        if self.reset.len() == RESETS_MAX {
            // A connection to a server may reset many streams at once. Late frames must not end it for all other
            // clients.
            self.reset_before = self.reset_before.max(self.reset.pop_front().unwrap_or(0));
        }
        self.reset.push_back(id);
    }

    /// Whether we may have reset the stream. For old streams that is unknown, and assumed in the peer's favour.
    pub(crate) fn may_have_been_reset(&self, id: u32) -> bool {
        id <= self.reset_before || self.reset.contains(&id)
    }
}
