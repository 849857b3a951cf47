//! A connection: what both ends have agreed on, its windows, and its end.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::decode::Decoder;
use crate::encode::Encoder;
use crate::flood::{Counts, Flood, FloodLimits};
use crate::frame::{self, GOAWAY, PING, PREFACE, Reason, SETTINGS, STREAM_MAX, WINDOW_MAX, WINDOW_UPDATE};
use crate::message::Fields;
use crate::parser::Parser;
use crate::rules;
use crate::stream::{Key, Streams};
use crate::windows::{STREAM_WINDOW, Windows, worth_telling};

/// Which end of a connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Requests come from the peer.
    Server,
    /// Requests go to the peer.
    Client,
}

/// What a connection may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Streams that may be open at once, whatever the peer allows.
    pub streams: u32,
    /// What the peer may send on all streams together before any of it is read.
    pub connection_window: u32,
    /// What the fields of a head may count (RFC 9113 §6.5.2).
    pub head_bytes: usize,
    /// What the text of a head may take as long as it is under way without being counted as a long one.
    pub short_head_bytes: usize,
    /// What all long heads may take together.
    pub long_heads_bytes: usize,
    /// What the peer may send of what costs it nothing.
    pub floods: FloodLimits,
}

/// When something happens, in ticks and in seconds that are counted from anywhere.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Ten of them are a second.
    pub tick: u32,
    /// For what is bounded over a second.
    pub second: u32,
}

/// What has happened on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A request has come on a stream, which is held from now on.
    Opened(Key),
    /// There is something to read on a stream, or its end.
    Readable(Key),
    /// There is room to write on a stream.
    Writable(Key),
    /// The peer has reset a stream.
    Reset(Key),
    /// There is room to write on all streams together.
    Room,
    /// There may be room to write on any stream.
    AllWritable,
    /// The peer takes no more streams; those that it has not seen are gone.
    GoingAway,
}

/// A request that was refused before anybody saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// What it was answered; 0 where its stream was reset.
    pub status: u16,
    /// What its stream was reset with.
    pub reason: Reason,
    /// Whether its head is larger than it may be.
    pub is_too_large: bool,
    /// What was wrong, in words.
    pub wrong: String,
    /// Its method, target and host as far as they were read.
    pub glimpse: [Vec<u8>; 3],
}

/// Requests that are refused and told of at once; of more nothing is told.
pub(crate) const REFUSED_MAX: usize = 64;

/// A connection has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken {
    /// What the peer is told.
    pub reason: Reason,
    /// Whose doing it was.
    pub cause: Cause,
}

/// Why a connection has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The peer has broken this rule of the protocol.
    Malformed(&'static str),
    /// It has begun a header block, and not ended it in time.
    Late,
    /// It keeps us busy with nothing.
    Flood(Flood),
}

impl Broken {
    /// Why, as the peer is told.
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

/// What the peer has set (RFC 9113 §6.5.2).
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerSettings {
    pub(crate) stream_window: i64,
    pub(crate) streams: u32,
    pub(crate) takes_upgrades: bool,
}

/// How far a connection is from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    No,
    /// The peer was told, and may not have heard it yet.
    Announced,
    /// Streams behind this one are ignored (RFC 9113 §6.8).
    Last(u32),
}

impl Closing {
    /// Whether nothing that comes on this stream means anything.
    pub(crate) fn ignores(self, id: u32) -> bool {
        matches!(self, Self::Last(last) if id > last)
    }
}

/// A connection of HTTP/2.
pub struct Connection {
    pub(crate) role: Role,
    pub(crate) limits: Limits,
    pub(crate) parser: Parser,
    pub(crate) decoder: Decoder,
    pub(crate) encoder: Encoder,
    pub(crate) fields: Fields,
    pub(crate) floods: Counts,
    /// When the peer was heard last.
    pub(crate) now: Now,
    pub(crate) streams: Streams,
    /// Streams that are open, of those that may be.
    pub(crate) open: u32,
    /// The last stream that the peer has begun, or that we have.
    pub(crate) last: u32,
    /// Requests that were refused here, and not yet told of.
    pub(crate) refused: Vec<Refused>,
    /// The frame for which the connection ends, in words.
    pub(crate) offence: Option<Box<str>>,
    /// What the long heads of streams that are held take.
    pub(crate) long_heads: usize,
    pub(crate) peer: PeerSettings,
    pub(crate) has_settings: bool,
    /// Our settings are said.
    is_begun: bool,
    pub(crate) is_going_away: bool,
    pub(crate) closing: Closing,
    pub(crate) events: VecDeque<Event>,
    /// What may be sent on all streams together.
    pub(crate) send_window: i64,
    /// What the peer may send on all streams together, and how much of what it has sent is not yet read.
    pub(crate) receive_window: i64,
    pub(crate) unread: i64,
    pub(crate) windows: Windows,
    /// Each stream's window as the peer has acknowledged it, and as it was told last where it has not.
    pub(crate) stream_window: i64,
    pub(crate) stream_window_told: Option<i64>,
    pub(crate) out: Out,
}

/// Frames that are to be sent.
#[derive(Default)]
pub(crate) struct Out {
    pub(crate) bytes: Vec<u8>,
    pub(crate) sent: usize,
}

/// RFC 9113 §6.9.2.
const WINDOW_DEFAULT: i64 = 65_535;
/// What pings that ask whether the peer has heard of the end carry.
const FAREWELL: [u8; 8] = *b"farewell";

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;
const ENABLE_CONNECT_PROTOCOL: u16 = 8;

impl Connection {
    /// A fresh connection. `granted` counts what all connections of its owner let
    /// their peers send beyond the first windows.
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

    /// Says our settings, once. RFC 9113 §3.4: a client does so at once, a server when it knows that this is a connection
    /// of HTTP/2: by its preface, if it was not agreed on before.
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

    /// How many streams are held.
    pub fn held(&self) -> usize {
        self.streams.len()
    }

    /// Whether the peer has said how it wants to be spoken to.
    pub fn has_begun(&self) -> bool {
        self.has_settings
    }

    /// Whether one more stream may be begun.
    pub fn takes_more(&self) -> bool {
        self.room_for_streams() > 0
    }

    /// How many more streams may be begun now.
    pub fn room_for_streams(&self) -> usize {
        if self.is_going_away || self.closing != Closing::No || self.last >= STREAM_MAX - 2 {
            return 0;
        }
        let limit = self.limits.streams.min(self.peer.streams) as usize;
        limit.saturating_sub(self.held())
    }

    /// The frame for which the connection has to end, in words.
    pub fn offence(&self) -> Option<&str> {
        self.offence.as_deref()
    }

    /// The tick at which a header block began that has not ended, if there is one. Nothing else can come before its end.
    pub fn head_since(&self) -> Option<u32> {
        self.parser.head_since()
    }

    /// That block took too long: why the connection ends.
    pub fn head_is_late(&mut self) -> Broken {
        self.offence = Some(self.parser.head_in_words().into());
        Broken { reason: Reason::ENHANCE_YOUR_CALM, cause: Cause::Late }
    }

    /// Requests that were refused since this was asked last, the first of them.
    pub fn take_refused(&mut self) -> Vec<Refused> {
        std::mem::take(&mut self.refused)
    }

    /// Whether the peer takes no more streams.
    pub fn is_going_away(&self) -> bool {
        self.is_going_away
    }

    /// What is to be sent, from where sending has come to.
    pub fn unsent(&self) -> &[u8] {
        &self.out.bytes[self.out.sent..]
    }

    /// So much of it is sent. What remains is the buffer, once it is empty.
    pub fn sent(&mut self, count: usize) -> Option<Vec<u8>> {
        self.out.sent += count;
        if self.out.sent < self.out.bytes.len() {
            return None;
        }
        self.out.sent = 0;
        self.out.bytes.clear();
        Some(std::mem::take(&mut self.out.bytes))
    }

    /// Whether frames that come next have no memory yet.
    pub fn wants_buffer(&self) -> bool {
        self.out.bytes.capacity() == 0
    }

    /// Lends memory for frames.
    pub fn lend(&mut self, buffer: Vec<u8>) {
        debug_assert!(self.wants_buffer() && buffer.is_empty());
        self.out.bytes = buffer;
    }

    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out.bytes
    }

    /// RFC 9113 §6.8: what is under way is finished, and nothing else begun.
    pub fn close(&mut self) {
        if self.closing == Closing::No {
            self.closing = Closing::Announced;
            self.go_away(STREAM_MAX, Reason::NO_ERROR, "");
            frame::push(self.out(), PING, 0, 0, &FAREWELL);
        }
    }

    /// Whether the peer has been told which stream is the last one.
    pub fn has_told_last(&self) -> bool {
        matches!(self.closing, Closing::Last(_))
    }

    /// The peer has answered a ping: what it sends from now on it has sent knowing of the end.
    pub(crate) fn pong(&mut self, payload: &[u8]) {
        if payload == FAREWELL {
            self.tell_last();
        }
    }

    /// RFC 9113 §6.8: the peer has heard of the end, or has had time enough to. What it begins from now on is ignored.
    pub fn tell_last(&mut self) {
        if self.closing == Closing::Announced {
            self.closing = Closing::Last(self.last);
            self.go_away(self.last, Reason::NO_ERROR, "");
        }
    }

    /// Tells the peer why the connection ends here and now, in words as well where there are any.
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

    /// Sets each stream's window anew where what was read so far says so, to at most `limit`.
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

    /// The peer has acknowledged our settings: its streams' windows are what it was told (RFC 9113 §6.9.2).
    pub(crate) fn settled(&mut self) {
        let Some(told) = self.stream_window_told.take() else { return };
        let change = told - self.stream_window;
        self.stream_window = told;
        self.streams.named().for_each(|(_, stream)| stream.receive_window += change);
    }

    /// RFC 9113 §6.5.2: what the peer has set.
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

    /// RFC 9113 §6.9.2.
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

    /// What may be sent on all streams together.
    pub fn room_of_connection(&self) -> usize {
        self.send_window.max(0) as usize
    }

    /// Lets the peer send more on all streams together, where there is enough to tell: as much as it may send anyway.
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
