//! An HTTP/2 connection: settings, connection-level flow control, and closing.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use fields::message::Fields;

use crate::decode::Decoder;
use crate::encode::Encoder;
use crate::flood::{Counts, Flood, FloodLimits};
use crate::frame::{self, GOAWAY, PING, PREFACE, Reason, SETTINGS, STREAM_MAX, WINDOW_MAX, WINDOW_UPDATE};
use crate::parser::Parser;
use crate::rules;
use crate::stream::{Key, Streams};
use crate::windows::{STREAM_WINDOW, Windows, worth_telling};

/// The role of this end of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The peer is a client, and sends requests.
    Server,
    /// The peer is a server, and gets requests.
    Client,
}

/// Resource limits of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most open streams, whatever the peer allows.
    pub streams: u32,
    /// The most bytes that the peer may send on all streams together before any are read.
    pub connection_window: u32,
    /// The most bytes of the fields of a head, counted as in RFC 9113 §6.5.2.
    pub head_bytes: usize,
    /// A head in transit that is larger than this counts as long.
    pub short_head_bytes: usize,
    /// The most bytes of all long heads together.
    pub long_heads_bytes: usize,
    /// Limits on frames that cost the peer next to nothing.
    pub floods: FloodLimits,
}

/// The current time, in ticks and in seconds. Both count from an arbitrary start.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Tenths of a second.
    pub tick: u32,
    /// Seconds, for limits per second.
    pub second: u32,
}

/// An event on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A request has arrived on a new stream, which is held until it is released.
    Opened(Key),
    /// Bytes, or the end, can be read from a stream.
    Readable(Key),
    /// A stream can be written to.
    Writable(Key),
    /// The peer has reset a stream.
    Reset(Key),
    /// The connection's flow-control window has room again.
    Room,
    /// Any stream may be writable.
    AllWritable,
    /// The peer accepts no more streams, and has not processed those after its last one.
    GoingAway,
}

/// A request that was rejected before it was passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The status of the response; 0 if the stream was reset instead.
    pub status: u16,
    /// The error code with which the stream was reset.
    pub reason: Reason,
    /// Whether the head is too large.
    pub is_too_large: bool,
    /// What was wrong, in words.
    pub wrong: String,
    /// Method, target and host, as far as they were read.
    pub glimpse: [Vec<u8>; 3],
}

/// The most rejected requests that are kept for the log. Further ones are not logged.
pub(crate) const REFUSED_MAX: usize = 64;

/// A connection error: the connection has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken {
    /// The error code for the peer.
    pub reason: Reason,
    /// The cause of the error.
    pub cause: Cause,
}

/// The cause of a connection error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The peer has broken this rule of the protocol.
    Malformed(&'static str),
    /// The peer has not completed a header block in time.
    Late,
    /// The peer floods the connection with useless frames.
    Flood(Flood),
}

impl Broken {
    /// The cause in words, as the peer is told.
    pub fn why(&self) -> &'static str {
        match self.cause {
            Cause::Malformed(rule) => rule,
            Cause::Late => "a header block did not end in time",
            Cause::Flood(flood) => flood.why(),
        }
    }
}

impl From<Flood> for Broken {
    fn from(flood: Flood) -> Self {
        Self { reason: Reason::ENHANCE_YOUR_CALM, cause: Cause::Flood(flood) }
    }
}

/// The peer's settings (RFC 9113 §6.5.2).
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerSettings {
    pub(crate) stream_window: i64,
    pub(crate) streams: u32,
    pub(crate) takes_upgrades: bool,
}

/// The progress of closing a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    No,
    /// A GOAWAY was sent, but the peer may not have seen it yet.
    Announced,
    /// The last stream was announced. Streams with a higher number are ignored (RFC 9113 §6.8).
    Last(u32),
}

impl Closing {
    /// Whether frames on this stream are ignored.
    pub(crate) fn ignores(self, id: u32) -> bool {
        matches!(self, Self::Last(last) if id > last)
    }
}

/// An HTTP/2 connection, without a socket.
pub struct Connection {
    pub(crate) role: Role,
    pub(crate) limits: Limits,
    pub(crate) parser: Parser,
    pub(crate) decoder: Decoder,
    pub(crate) encoder: Encoder,
    pub(crate) fields: Fields,
    pub(crate) floods: Counts,
    /// The last time that bytes arrived from the peer.
    pub(crate) now: Now,
    pub(crate) streams: Streams,
    /// The number of open streams that count towards the limit.
    pub(crate) open: u32,
    /// The number of the last stream, whichever end opens streams.
    pub(crate) last: u32,
    /// Rejected requests that are not yet logged.
    pub(crate) refused: Vec<Refused>,
    /// The frame that caused the connection error, in words.
    pub(crate) offence: Option<Box<str>>,
    /// The memory that the long heads of held streams take.
    pub(crate) long_heads: usize,
    pub(crate) peer: PeerSettings,
    pub(crate) has_settings: bool,
    /// Whether our settings were sent.
    is_begun: bool,
    pub(crate) is_going_away: bool,
    pub(crate) closing: Closing,
    pub(crate) events: VecDeque<Event>,
    /// The peer's flow-control window for the connection.
    pub(crate) send_window: i64,
    /// Our flow-control window for the connection; `unread` counts bytes that have arrived and were not read.
    pub(crate) receive_window: i64,
    pub(crate) unread: i64,
    pub(crate) windows: Windows,
    /// The window of each stream that the peer has acknowledged; `stream_window_told` is one that it has not.
    pub(crate) stream_window: i64,
    pub(crate) stream_window_told: Option<i64>,
    pub(crate) out: Out,
}

/// Frames to be sent.
#[derive(Default)]
pub(crate) struct Out {
    pub(crate) bytes: Vec<u8>,
    pub(crate) sent: usize,
}

/// The default flow-control window (RFC 9113 §6.9.2).
const WINDOW_DEFAULT: i64 = 65_535;
/// The payload of the ping that finds out whether the peer has seen a GOAWAY.
const FAREWELL: [u8; 8] = *b"farewell";

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;
const ENABLE_CONNECT_PROTOCOL: u16 = 8;

impl Connection {
    /// A new connection. `granted` counts the bytes that all connections of a worker allow their peers beyond the
    /// default windows.
    pub fn new(role: Role, limits: Limits, granted: Rc<Cell<usize>>) -> Self {
        let floods = match role {
            Role::Server => limits.floods,
            // A server's connection carries the streams of many, and it does what it was asked for.
            Role::Client => FloodLimits { overhead: u32::MAX, ..limits.floods },
        };
        let mut connection = Self {
            role,
            limits,
            parser: Parser::new(role),
            decoder: Decoder::default(),
            encoder: Encoder::default(),
            fields: Fields::default(),
            floods: Counts::new(floods),
            now: Now { tick: 0, second: 0 },
            streams: Streams::default(),
            open: 0,
            last: 0,
            refused: Vec::new(),
            offence: None,
            long_heads: 0,
            peer: PeerSettings { stream_window: WINDOW_DEFAULT, streams: u32::MAX, takes_upgrades: false },
            has_settings: false,
            is_begun: false,
            is_going_away: false,
            closing: Closing::No,
            events: VecDeque::new(),
            send_window: WINDOW_DEFAULT,
            receive_window: WINDOW_DEFAULT,
            unread: 0,
            windows: Windows::new(granted),
            stream_window: WINDOW_DEFAULT,
            stream_window_told: None,
            out: Out::default(),
        };
        if role == Role::Client {
            connection.begin();
        }
        connection
    }

    /// Sends our settings, once. A client sends them at once, a server when it knows that the connection is HTTP/2: by
    /// the preface, unless it was agreed before (RFC 9113 §3.4).
    pub fn begin(&mut self) {
        if std::mem::replace(&mut self.is_begun, true) {
            return;
        }
        let mut settings = Vec::with_capacity(64);
        let mut set = |setting: u16, value: u32| {
            settings.extend_from_slice(&setting.to_be_bytes());
            settings.extend_from_slice(&value.to_be_bytes());
        };
        match self.role {
            Role::Server => {
                set(MAX_CONCURRENT_STREAMS, self.limits.streams);
                set(ENABLE_CONNECT_PROTOCOL, 1);
            }
            Role::Client => set(ENABLE_PUSH, 0),
        }
        set(INITIAL_WINDOW_SIZE, STREAM_WINDOW);
        set(MAX_HEADER_LIST_SIZE, self.limits.head_bytes as u32);
        self.stream_window_told = Some(i64::from(STREAM_WINDOW));
        let out = &mut self.out.bytes;
        if self.role == Role::Client {
            out.extend_from_slice(PREFACE);
        }
        frame::push(out, SETTINGS, 0, 0, &settings);
        self.give_connection();
    }

    /// The number of held streams.
    pub fn held(&self) -> usize {
        self.streams.len()
    }

    /// Whether the peer's settings have arrived.
    pub fn has_begun(&self) -> bool {
        self.has_settings
    }

    /// Whether another stream can be opened.
    pub fn takes_more(&self) -> bool {
        self.room_for_streams() > 0
    }

    /// How many more streams can be opened now.
    pub fn room_for_streams(&self) -> usize {
        if self.is_going_away || self.closing != Closing::No || self.last >= STREAM_MAX - 2 {
            return 0;
        }
        let limit = self.limits.streams.min(self.peer.streams) as usize;
        limit.saturating_sub(self.held())
    }

    /// The frame that caused the connection error, in words.
    pub fn offence(&self) -> Option<&str> {
        self.offence.as_deref()
    }

    /// The tick at which the incomplete header block began, if there is one. No other frame may come before its end.
    pub fn head_since(&self) -> Option<u32> {
        self.parser.head_since()
    }

    /// Ends the connection because a header block was not completed in time.
    pub fn head_is_late(&mut self) -> Broken {
        self.offence = Some(self.parser.head_in_words().into());
        Broken { reason: Reason::ENHANCE_YOUR_CALM, cause: Cause::Late }
    }

    /// Takes the requests that were rejected since the last call, in order.
    pub fn take_refused(&mut self) -> Vec<Refused> {
        std::mem::take(&mut self.refused)
    }

    /// Whether the peer accepts no more streams.
    pub fn is_going_away(&self) -> bool {
        self.is_going_away
    }

    /// The bytes to send next.
    pub fn unsent(&self) -> &[u8] {
        &self.out.bytes[self.out.sent..]
    }

    /// Notes that `count` bytes were sent. Returns the buffer once all of it is sent.
    pub fn sent(&mut self, count: usize) -> Option<Vec<u8>> {
        self.out.sent += count;
        if self.out.sent < self.out.bytes.len() {
            return None;
        }
        self.out.sent = 0;
        self.out.bytes.clear();
        Some(std::mem::take(&mut self.out.bytes))
    }

    /// Whether a buffer for outgoing frames has to be lent.
    pub fn wants_buffer(&self) -> bool {
        self.out.bytes.capacity() == 0
    }

    /// Lends an empty buffer for outgoing frames.
    pub fn lend(&mut self, buffer: Vec<u8>) {
        debug_assert!(self.wants_buffer() && buffer.is_empty());
        self.out.bytes = buffer;
    }

    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out.bytes
    }

    /// Closes gracefully (RFC 9113 §6.8): requests in progress finish, and no new ones are accepted.
    pub fn close(&mut self) {
        if self.closing == Closing::No {
            self.closing = Closing::Announced;
            self.go_away(STREAM_MAX, Reason::NO_ERROR, "");
            frame::push(self.out(), PING, 0, 0, &FAREWELL);
        }
    }

    /// Whether the peer was told the last stream in a GOAWAY.
    pub fn has_told_last(&self) -> bool {
        matches!(self.closing, Closing::Last(_))
    }

    /// Handles the answer to a ping. After the farewell ping, the peer knows that the connection is closing.
    pub(crate) fn pong(&mut self, payload: &[u8]) {
        if payload == FAREWELL {
            self.tell_last();
        }
    }

    /// Announces the last stream (RFC 9113 §6.8), once the peer has seen the first GOAWAY or had time to. Later streams
    /// are ignored.
    pub fn tell_last(&mut self) {
        if self.closing == Closing::Announced {
            self.closing = Closing::Last(self.last);
            self.go_away(self.last, Reason::NO_ERROR, "");
        }
    }

    /// Sends a GOAWAY with an error code, and an explanation if `why` is not empty.
    pub fn abort(&mut self, reason: Reason, why: &str) {
        let last = match (self.role, self.closing) {
            (Role::Client, _) => 0,
            // RFC 9113 §6.8: which stream is the last may be put lower, never higher.
            (Role::Server, Closing::Last(last)) => last,
            (Role::Server, _) => self.last,
        };
        self.go_away(last, reason, why);
    }

    fn go_away(&mut self, last: u32, reason: Reason, why: &str) {
        let [payload, code] = [last, reason.0].map(u32::to_be_bytes);
        // Whoever shows it may know ASCII alone.
        let why = why.replace('§', "section ");
        frame::push(self.out(), GOAWAY, 0, 0, &[&payload, &code, why.as_bytes()].concat());
    }

    /// Changes the window of all streams, up to `limit`, if the speed of reading so far asks for it.
    pub fn adjust(&mut self, limit: u32, tick: u32) {
        if self.stream_window_told.is_some() {
            // The peer has not yet acknowledged what it was told last.
            return;
        }
        let window = self.windows.news(limit, tick);
        self.windows.hold(self.unread);
        let Some(window) = window else { return };
        self.windows.told(window);
        self.stream_window_told = Some(i64::from(window));
        let [a, b, c, d] = window.to_be_bytes();
        let [kind_high, kind_low] = INITIAL_WINDOW_SIZE.to_be_bytes();
        frame::push(self.out(), SETTINGS, 0, 0, &[kind_high, kind_low, a, b, c, d]);
        self.give_connection();
    }

    /// Applies the new stream windows once the peer has acknowledged our settings (RFC 9113 §6.9.2).
    pub(crate) fn settled(&mut self) {
        let Some(told) = self.stream_window_told.take() else { return };
        let change = told - self.stream_window;
        self.stream_window = told;
        self.streams.named().for_each(|(_, stream)| stream.receive_window += change);
    }

    /// Applies the peer's settings (RFC 9113 §6.5.2).
    pub(crate) fn set(&mut self, settings: &[u8]) -> Result<(), Broken> {
        let mut stream_window = None;
        for setting in settings.chunks_exact(6) {
            let value = frame::number(&setting[2..]);
            match u16::from_be_bytes([setting[0], setting[1]]) {
                HEADER_TABLE_SIZE => self.encoder.resize(value as usize),
                ENABLE_PUSH if value > 1 || (value == 1 && self.role == Role::Client) => {
                    return Err(rules::BAD_SETTING);
                }
                MAX_CONCURRENT_STREAMS => self.peer.streams = value,
                // RFC 9113 §6.5.2.
                INITIAL_WINDOW_SIZE if i64::from(value) > WINDOW_MAX => {
                    return Err(rules::WINDOW_OVERFLOW);
                }
                INITIAL_WINDOW_SIZE => stream_window = Some(i64::from(value)),
                MAX_FRAME_SIZE if !(1 << 14..1 << 24).contains(&value) => {
                    return Err(rules::BAD_SETTING);
                }
                // RFC 8441 §3.
                ENABLE_CONNECT_PROTOCOL if value > 1 => return Err(rules::BAD_SETTING),
                ENABLE_CONNECT_PROTOCOL => self.peer.takes_upgrades = value == 1,
                _ => {}
            }
        }
        self.has_settings = true;
        // One frame has room for 2,730 of them, and each would change every stream: the last one counts.
        stream_window.map_or(Ok(()), |window| self.set_stream_window(window))
    }

    /// Changes the send windows of all streams (RFC 9113 §6.9.2).
    fn set_stream_window(&mut self, window: i64) -> Result<(), Broken> {
        let change = window - self.peer.stream_window;
        self.peer.stream_window = window;
        let mut is_too_wide = false;
        for (_, stream) in self.streams.named() {
            stream.send_window += change;
            is_too_wide |= stream.send_window > WINDOW_MAX;
        }
        if is_too_wide {
            return Err(rules::WINDOW_OVERFLOW);
        }
        self.events.push_back(Event::AllWritable);
        Ok(())
    }

    /// How many bytes the peer's connection window allows.
    pub fn room_of_connection(&self) -> usize {
        self.send_window.max(0) as usize
    }

    /// Refills the peer's connection window, if that is worth a frame, to at least the window of one stream.
    pub(crate) fn give_connection(&mut self) {
        let target = i64::from(self.limits.connection_window)
            .max(self.stream_window_told.unwrap_or(self.stream_window));
        let owed = target - self.receive_window - self.unread;
        if owed >= worth_telling(target) {
            self.receive_window += owed;
            frame::push(self.out(), WINDOW_UPDATE, 0, 0, &(owed as u32).to_be_bytes());
        }
    }
}
