//! An HTTP/2 connection: settings, connection-level flow control, and closing.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use fields::message::FieldCollector;

use crate::decode::HpackDecoder;
use crate::encode::HpackEncoder;
use crate::flood::{Flood, FloodLimits, H2FloodCounts};
use crate::frame::{self, GOAWAY, PING, PREFACE, Reason, SETTINGS, STREAM_MAX, WINDOW_MAX, WINDOW_UPDATE};
use crate::parser::FrameParser;
use crate::rules;
use crate::stream::{H2Streams, Key};
use crate::windows::{STREAM_WINDOW, Windows, worth_telling};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum H2Role {
    Server,
    Client,
}

#[derive(Debug, Clone, Copy)]
pub struct H2Limits {
    /// Open streams, even if the peer allows more.
    pub streams: u32,
    /// Bytes that the peer may send on all streams together before any are read.
    pub connection_window: u32,
    /// Size of the fields of a head, counted as in RFC 9113 §6.5.2.
    pub head_bytes: usize,
    /// A larger head counts as long, from its arrival until its stream is released.
    pub short_head_bytes: usize,
    /// Sum of all long heads.
    pub long_heads_bytes: usize,
    pub floods: FloodLimits,
}

/// The current time, in ticks and in seconds. Both count from an arbitrary start.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Tenths of a second.
    pub tick: u32,
    /// For limits per second.
    pub second: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum H2Event {
    /// A request has arrived on a new stream. The caller must release it.
    Opened(Key),
    Readable(Key),
    Writable(Key),
    Reset(Key),
    Room,
    AllWritable,
    /// The peer accepts no more streams, and has not processed those after its last one.
    GoingAway,
}

/// A request that was rejected before it reached the caller, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct H2Refused {
    /// The status of the response; 0 if the stream was reset instead.
    pub status: u16,
    pub reason: Reason,
    pub is_too_large: bool,
    /// The broken rule, in words.
    pub wrong: String,
    /// Method, target and host, as far as they were parsed.
    pub glimpse: [Vec<u8>; 3],
}

/// Rejected requests that are kept for the log. Further ones are not logged.
pub(crate) const REFUSED_MAX: usize = 64;

/// A connection error: the connection has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct H2Broken {
    pub reason: Reason,
    pub cause: H2ErrorCause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum H2ErrorCause {
    /// The broken rule of the protocol.
    Malformed(&'static str),
    /// The peer has not completed a header block in time.
    Late,
    Flood(Flood),
}

impl H2Broken {
    /// The cause in words, as GOAWAY reports it to the peer.
    pub fn why(&self) -> &'static str {
        match self.cause {
            H2ErrorCause::Malformed(rule) => rule,
            H2ErrorCause::Late => "a header block did not end in time",
            H2ErrorCause::Flood(flood) => flood.why(),
        }
    }
}

impl From<Flood> for H2Broken {
    fn from(flood: Flood) -> Self {
        Self { reason: Reason::ENHANCE_YOUR_CALM, cause: H2ErrorCause::Flood(flood) }
    }
}

/// The peer's settings (RFC 9113 §6.5.2).
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerSettings {
    pub(crate) stream_window: i64,
    pub(crate) streams: u32,
    pub(crate) takes_upgrades: bool,
}

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
pub struct H2StateMachine {
    pub(crate) role: H2Role,
    pub(crate) limits: H2Limits,
    pub(crate) parser: FrameParser,
    pub(crate) decoder: HpackDecoder,
    pub(crate) encoder: HpackEncoder,
    pub(crate) fields: FieldCollector,
    pub(crate) floods: H2FloodCounts,
    /// When bytes last arrived from the peer.
    pub(crate) now: Now,
    pub(crate) streams: H2Streams,
    /// Open streams that count towards the limit.
    pub(crate) open: u32,
    /// Number of the last stream, whichever end opens streams.
    pub(crate) last: u32,
    pub(crate) refused: Vec<H2Refused>,
    /// The frame that caused the connection error, in words.
    pub(crate) offence: Option<Box<str>>,
    /// Memory of the long heads of held streams, in bytes.
    pub(crate) long_heads: usize,
    pub(crate) peer: PeerSettings,
    pub(crate) has_settings: bool,
    /// Whether our settings were sent.
    is_begun: bool,
    pub(crate) is_going_away: bool,
    pub(crate) closing: Closing,
    pub(crate) events: VecDeque<H2Event>,
    pub(crate) send_window: i64,
    /// Our flow-control window for the connection. `unread` counts bytes that have arrived and were not read.
    pub(crate) receive_window: i64,
    pub(crate) unread: i64,
    pub(crate) windows: Windows,
    /// The window of each stream that the peer has acknowledged; `stream_window_told` is one that it has not yet
    /// acknowledged.
    pub(crate) stream_window: i64,
    pub(crate) stream_window_told: Option<i64>,
    pub(crate) out: FramesOut,
}

#[derive(Default)]
pub(crate) struct FramesOut {
    pub(crate) bytes: Vec<u8>,
    pub(crate) sent: usize,
}

/// The default flow-control window (RFC 9113 §6.9.2).
const WINDOW_DEFAULT: i64 = 65_535;
/// The payload of the ping that shows whether the peer has seen a GOAWAY.
const FAREWELL: [u8; 8] = *b"farewell";

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;
const ENABLE_CONNECT_PROTOCOL: u16 = 8;

impl H2StateMachine {
    /// `granted` counts the bytes that all connections of a worker allow their peers beyond the default windows.
    pub fn new(role: H2Role, limits: H2Limits, granted: Rc<Cell<usize>>) -> Self {
        let floods = match role {
            H2Role::Server => limits.floods,
            // A connection to a server carries streams of many clients, and the server only answers our requests.
            H2Role::Client => FloodLimits { overhead: u32::MAX, ..limits.floods },
        };
        let mut connection = Self {
            role,
            limits,
            parser: FrameParser::new(role),
            decoder: HpackDecoder::default(),
            encoder: HpackEncoder::default(),
            fields: FieldCollector::default(),
            floods: H2FloodCounts::new(floods),
            now: Now { tick: 0, second: 0 },
            streams: H2Streams::default(),
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
            out: FramesOut::default(),
        };
        if role == H2Role::Client {
            connection.begin();
        }
        connection
    }

    /// Sends our settings, once. A client sends them at once. A server waits until it knows that the connection is
    /// HTTP/2: from ALPN, or from the preface (RFC 9113 §3.4).
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
            H2Role::Server => {
                set(MAX_CONCURRENT_STREAMS, self.limits.streams);
                // RFC 8441 §3: a client may ask for a WebSocket on a stream only after this.
                set(ENABLE_CONNECT_PROTOCOL, 1);
            }
            // RFC 9113 §8.4: pushed responses belong to no request of a client of this proxy.
            H2Role::Client => set(ENABLE_PUSH, 0),
        }
        set(INITIAL_WINDOW_SIZE, STREAM_WINDOW);
        set(MAX_HEADER_LIST_SIZE, self.limits.head_bytes as u32);
        // RFC 9113 §6.9.2: until the peer acknowledges the settings, it counts with the default window.
        self.stream_window_told = Some(i64::from(STREAM_WINDOW));
        let out = &mut self.out.bytes;
        if self.role == H2Role::Client {
            out.extend_from_slice(PREFACE);
        }
        frame::push(out, SETTINGS, 0, 0, &settings);
        // RFC 9113 §6.9.2: SETTINGS do not change the window of the connection; only WINDOW_UPDATE does.
        self.give_connection();
    }

    pub fn held(&self) -> usize {
        self.streams.len()
    }

    pub fn has_begun(&self) -> bool {
        self.has_settings
    }

    pub fn takes_more(&self) -> bool {
        self.room_for_streams() > 0
    }

    pub fn room_for_streams(&self) -> usize {
        // RFC 9113 §5.1.1: stream numbers are not reused, so a connection may run out of them.
        if self.is_going_away || self.closing != Closing::No || self.last >= STREAM_MAX - 2 {
            return 0;
        }
        // Reserved streams count as held, although their requests are not written yet.
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
    pub fn head_is_late(&mut self) -> H2Broken {
        self.offence = Some(self.parser.head_in_words().into());
        H2Broken { reason: Reason::ENHANCE_YOUR_CALM, cause: H2ErrorCause::Late }
    }

    /// Takes the requests that were rejected since the last call, in order.
    pub fn take_refused(&mut self) -> Vec<H2Refused> {
        std::mem::take(&mut self.refused)
    }

    pub fn is_going_away(&self) -> bool {
        self.is_going_away
    }

    pub fn unsent(&self) -> &[u8] {
        &self.out.bytes[self.out.sent..]
    }

    /// Marks `count` bytes as sent. Returns the buffer once all of it is sent.
    pub fn sent(&mut self, count: usize) -> Option<Vec<u8>> {
        self.out.sent += count;
        if self.out.sent < self.out.bytes.len() {
            return None;
        }
        self.out.sent = 0;
        self.out.bytes.clear();
        // The buffer goes back to the caller: an idle connection keeps none.
        Some(std::mem::take(&mut self.out.bytes))
    }

    /// Whether the caller has to lend a buffer for outgoing frames.
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
            // RFC 9113 §6.8: the first GOAWAY permits all streams, because requests may be under way. The answer to
            // the ping shows that the peer has read it.
            self.go_away(STREAM_MAX, Reason::NO_ERROR, "");
            frame::push(self.out(), PING, 0, 0, &FAREWELL);
        }
    }

    /// Whether a GOAWAY has announced the last stream to the peer.
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
            // Servers open no streams, because push is disabled.
            (H2Role::Client, _) => 0,
            // RFC 9113 §6.8: a later GOAWAY may lower the last stream, never raise it.
            (H2Role::Server, Closing::Last(last)) => last,
            (H2Role::Server, _) => self.last,
        };
        self.go_away(last, reason, why);
    }

    fn go_away(&mut self, last: u32, reason: Reason, why: &str) {
        let [payload, code] = [last, reason.0].map(u32::to_be_bytes);
        // Programs that print the text may support only ASCII.
        let why = why.replace('§', "section ");
        frame::push(self.out(), GOAWAY, 0, 0, &[&payload, &code, why.as_bytes()].concat());
    }

    /// Changes the window of all streams, up to `limit`, if the speed of reading so far justifies it.
    pub fn adjust(&mut self, limit: u32, tick: u32) {
        if self.stream_window_told.is_some() {
            // The peer has not yet acknowledged the previous change.
            return;
        }
        let window = self.windows.news(limit, tick);
        // The window may have shrunk just now, and what is unread of the larger one still counts.
        self.windows.hold(self.unread);
        let Some(window) = window else { return };
        self.windows.told(window);
        self.stream_window_told = Some(i64::from(window));
        let [a, b, c, d] = window.to_be_bytes();
        let [kind_high, kind_low] = INITIAL_WINDOW_SIZE.to_be_bytes();
        frame::push(self.out(), SETTINGS, 0, 0, &[kind_high, kind_low, a, b, c, d]);
        // A stream cannot use a window that is larger than that of its connection.
        self.give_connection();
    }

    /// Applies the new stream windows once the peer has acknowledged our settings (RFC 9113 §6.9.2).
    pub(crate) fn settled(&mut self) {
        let Some(told) = self.stream_window_told.take() else { return };
        let change = told - self.stream_window;
        self.stream_window = told;
        // RFC 9113 §6.9.2: applies to open streams, too, and may leave a window negative.
        self.streams.named().for_each(|(_, stream)| stream.receive_window += change);
    }

    /// Applies the peer's settings (RFC 9113 §6.5.2).
    pub(crate) fn set(&mut self, settings: &[u8]) -> Result<(), H2Broken> {
        let mut stream_window = None;
        for setting in settings.chunks_exact(6) {
            let value = frame::number(&setting[2..]);
            match u16::from_be_bytes([setting[0], setting[1]]) {
                HEADER_TABLE_SIZE => self.encoder.resize(value as usize),
                ENABLE_PUSH if value > 1 || (value == 1 && self.role == H2Role::Client) => {
                    return Err(rules::BAD_SETTING);
                }
                MAX_CONCURRENT_STREAMS => self.peer.streams = value,
                // RFC 9113 §6.5.2.
                INITIAL_WINDOW_SIZE if i64::from(value) > WINDOW_MAX => {
                    return Err(rules::WINDOW_OVERFLOW);
                }
                INITIAL_WINDOW_SIZE => stream_window = Some(i64::from(value)),
                // A valid value has no effect: our frames are never larger than the minimum.
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
        // One frame has room for 2,730 settings, and applying each would change every stream: only the last window
        // counts.
        stream_window.map_or(Ok(()), |window| self.set_stream_window(window))
    }

    /// Changes the send windows of all streams (RFC 9113 §6.9.2).
    fn set_stream_window(&mut self, window: i64) -> Result<(), H2Broken> {
        let change = window - self.peer.stream_window;
        self.peer.stream_window = window;
        let mut is_too_wide = false;
        for (_, stream) in self.streams.named() {
            // RFC 9113 §6.9.2: may become negative. Then the stream waits until updates have made up for it.
            stream.send_window += change;
            is_too_wide |= stream.send_window > WINDOW_MAX;
        }
        if is_too_wide {
            return Err(rules::WINDOW_OVERFLOW);
        }
        // A single event, whatever the number of streams: settings are cheap to send.
        self.events.push_back(H2Event::AllWritable);
        Ok(())
    }

    pub fn room_of_connection(&self) -> usize {
        self.send_window.max(0) as usize
    }

    /// Refills the peer's connection window, if the difference justifies a frame, to at least the window of one stream.
    pub(crate) fn give_connection(&mut self) {
        let target = i64::from(self.limits.connection_window)
            .max(self.stream_window_told.unwrap_or(self.stream_window));
        // Unread bytes are not given back, so the window limits what the proxy holds.
        let owed = target - self.receive_window - self.unread;
        if owed >= worth_telling(target) {
            self.receive_window += owed;
            frame::push(self.out(), WINDOW_UPDATE, 0, 0, &(owed as u32).to_be_bytes());
        }
    }
}
