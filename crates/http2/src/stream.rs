//! Streams: what has arrived on each and is not yet read, and what may still be sent.

use std::collections::VecDeque;

use crate::frame::Reason;
use crate::message::{Framed, RequestKind};
use crate::windows::Taken;

/// A stream of a connection, for as long as somebody holds it.
pub type Key = usize;

/// Why nothing more is read from a stream, or written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// The peer has done nothing for its request, which may be sent elsewhere (RFC 9113 §8.7).
    Untouched,
    /// A message was cut off, or cannot be said.
    Broken,
}

/// What is still to come from the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Incoming {
    Head,
    Body,
    Ended,
    /// The peer has reset it before its end.
    Reset,
}

impl Incoming {
    /// Whether the peer has closed the stream from its side: anything more on it breaks the protocol (RFC 9113 §5.1).
    pub(crate) fn is_closed(self) -> bool {
        matches!(self, Self::Ended | Self::Reset)
    }
}

/// What is still to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outgoing {
    Head,
    Body,
    Ended,
}

pub(crate) struct Stream {
    /// 0 as long as it has none.
    pub(crate) id: u32,
    /// Whether it is one of those that may be open at once.
    pub(crate) is_counted: bool,
    pub(crate) incoming: Incoming,
    pub(crate) outgoing: Outgoing,
    /// Why it ended early, by whosever hand.
    pub(crate) broken: Option<Reason>,
    /// What the peer did wrong on it, in words.
    pub(crate) wrong: Option<Box<str>>,
    pub(crate) framed: Framed,
    pub(crate) asked: RequestKind,
    /// Whether its client asked for another protocol on it.
    pub(crate) asks_for_upgrade: bool,
    /// Heads that are not yet read.
    pub(crate) text: Unread,
    /// Of the body, without framing.
    pub(crate) body: Unread,
    /// The end of a chunked body, with its trailers.
    pub(crate) tail: Vec<u8>,
    /// What is to come of the body, where its length is told.
    pub(crate) content_left: Option<u64>,
    /// What the lengths of its request's head and trailers count beyond what every stream has.
    pub(crate) long_head: usize,
    /// What the peer may send.
    pub(crate) receive_window: i64,
    pub(crate) taken: Taken,
    /// What it may be sent.
    pub(crate) send_window: i64,
    /// Bytes of DATA that were put into frames for it.
    pub(crate) body_sent: u64,
}

impl Stream {
    fn new(id: u32, receive_window: i64, send_window: i64) -> Self {
        Self {
            id,
            is_counted: false,
            incoming: Incoming::Head,
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

    /// Whether the peer has nothing more to do with it.
    pub(crate) fn is_closed(&self) -> bool {
        self.broken.is_some() || (self.incoming == Incoming::Ended && self.outgoing == Outgoing::Ended)
    }
}

/// Bytes that have arrived and are not yet read.
#[derive(Default)]
pub(crate) struct Unread {
    bytes: Vec<u8>,
    start: usize,
}

/// Memory that is kept by a place for streams.
const KEEP_MAX: usize = 512;

impl Unread {
    pub(crate) fn get(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends bytes, behind which so many more are expected.
    pub(crate) fn push(&mut self, bytes: &[u8], expected: usize) {
        let tail = self.tail();
        tail.reserve(bytes.len() + expected);
        tail.extend_from_slice(bytes);
    }

    /// Where more is appended. What was read does not pile up before what was not.
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        &mut self.bytes
    }

    /// Appends what is short, and takes over what is long: it is not held twice.
    pub(crate) fn take_over(&mut self, bytes: &mut Vec<u8>) {
        if self.is_empty() && bytes.len() > KEEP_MAX {
            *self = Self { bytes: std::mem::take(bytes), start: 0 };
        } else {
            self.push(bytes, 0);
        }
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.bytes.len() {
            self.clear();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.start = 0;
        self.bytes.shrink_to(KEEP_MAX);
    }
}

/// The streams of a connection. Their places are used again, with their memory.
#[derive(Default)]
pub(crate) struct Streams {
    /// The number of the stream in each place; 0 where there is none, or none yet.
    ids: Vec<u32>,
    places: Vec<Stream>,
    free: Vec<Key>,
    /// Numbers of streams that were reset here, the last of them: what the peer sent before it knew means nothing.
    reset: VecDeque<u32>,
    /// The highest of those that are no longer remembered.
    reset_before: u32,
}

/// Resets that are remembered one by one.
const RESETS_MAX: usize = 128;

impl Streams {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn add(&mut self, id: u32, receive_window: i64, send_window: i64) -> Key {
        let fresh = Stream::new(id, receive_window, send_window);
        match self.free.pop() {
            Some(key) => {
                let place = &mut self.places[key];
                let (text, body, tail) = (
                    std::mem::take(&mut place.text),
                    std::mem::take(&mut place.body),
                    std::mem::take(&mut place.tail),
                );
                *place = Stream { text, body, tail, ..fresh };
                self.ids[key] = id;
                key
            }
            None => {
                self.ids.push(id);
                self.places.push(fresh);
                self.places.len() - 1
            }
        }
    }

    /// The stream is nobody's any more.
    pub(crate) fn remove(&mut self, key: Key) {
        self.ids[key] = 0;
        let place = &mut self.places[key];
        place.text.clear();
        place.body.clear();
        place.tail.clear();
        place.tail.shrink_to(KEEP_MAX);
        self.free.push(key);
    }

    /// A stream gets its number.
    pub(crate) fn name(&mut self, key: Key, id: u32) {
        self.ids[key] = id;
        self.places[key].id = id;
    }

    pub(crate) fn find(&self, id: u32) -> Option<Key> {
        self.ids.iter().position(|&other| other == id)
    }

    pub(crate) fn at(&self, key: Key) -> &Stream {
        &self.places[key]
    }

    pub(crate) fn change(&mut self, key: Key) -> &mut Stream {
        &mut self.places[key]
    }

    /// All that have a number.
    pub(crate) fn named(&mut self) -> impl Iterator<Item = (Key, &mut Stream)> {
        self.places.iter_mut().enumerate().zip(&self.ids).filter(|(_, id)| **id > 0).map(|(place, _)| place)
    }

    pub(crate) fn remember_reset(&mut self, id: u32) {
        if self.reset.len() == RESETS_MAX {
            self.reset_before = self.reset_before.max(self.reset.pop_front().unwrap_or(0));
        }
        self.reset.push_back(id);
    }

    /// Whether it was reset here; of old ones it is no longer known, and nothing is held against the peer.
    pub(crate) fn may_have_been_reset(&self, id: u32) -> bool {
        id <= self.reset_before || self.reset.contains(&id)
    }
}
