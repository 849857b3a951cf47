//! An HTTP/3 connection: its critical streams, settings, GOAWAY, and closing.

use std::collections::VecDeque;

use fields::message::FieldCollector;
use fields::protocol::MessageProtocol;

use crate::code::H3Code;
use crate::control::PeerStreams;
use crate::decode::QpackDecoder;
use crate::encode::QpackEncoder;
use crate::flood::{Flood, FloodLimits, H3FloodCounts};
use crate::frame::{self, CONTROL_STREAM, DECODER_STREAM, ENCODER_STREAM, GOAWAY, SETTINGS};
use crate::priority::Priority;
use crate::settings::H3Settings;
use crate::stream::{H3Incoming, H3StreamSlot, H3Streams, Holder, Key, Outgoing, StreamOut};
use crate::{rules, varint};

/// The ID of a QUIC stream (RFC 9000 §2.1).
pub type StreamId = u64;

/// RFC 9000 §2.1.
pub(crate) fn is_unidirectional(id: StreamId) -> bool {
    id & 0x2 != 0
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum H3Role {
    Server,
    Client,
}

/// The sending side of a QUIC connection's streams. All of them buffer the bytes that they accept.
pub trait Transport {
    /// Accepts the start of `bytes` for a stream, and returns how many bytes it accepted: fewer than all if it has no
    /// more room.
    fn write(&mut self, id: StreamId, bytes: &[u8]) -> usize;
    /// Ends a stream behind the bytes that were written.
    fn finish(&mut self, id: StreamId);
    /// Ends a stream early (RESET_STREAM).
    fn reset(&mut self, id: StreamId, code: H3Code);
    /// Asks the peer to stop sending on a stream (STOP_SENDING).
    fn stop(&mut self, id: StreamId, code: H3Code);
}

#[derive(Debug, Clone, Copy)]
pub struct H3Limits {
    /// Requests held at once. QUIC's own limit should be lower.
    pub streams: usize,
    /// Size of the fields of a head, counted as in RFC 9114 §4.2.2.
    pub head_bytes: usize,
    /// A larger head counts as long, from its arrival until its stream is released.
    pub short_head_bytes: usize,
    /// Sum of all long heads. Also the sum of all sections that are incomplete or blocked.
    pub long_heads_bytes: usize,
    /// Unread bytes of a body. Beyond them, the stream wants no more of the transport.
    pub body_bytes: usize,
    /// Sum of the unread bytes of all bodies.
    pub bodies_bytes: usize,
    /// Size of the dynamic table for the peer's fields (RFC 9204 §3.2.3).
    pub table_bytes: usize,
    /// Streams that may wait for insertions into that table (RFC 9204 §2.1.2).
    pub blocked_streams: usize,
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
pub enum H3Event {
    /// A request has arrived on a new stream. The caller must release it.
    Opened(Key),
    /// A request is held back: see [`H3StateMachine::end_awaited_since`].
    AwaitsEnd,
    Readable(Key),
    Reset(Key),
    /// A stream accepts more bytes than before: see [`H3StateMachine::wanted`].
    Wanted(StreamId),
    /// The client has changed the priority of a stream (RFC 9218 §7).
    Prioritized(Key),
    Begun,
    /// The peer accepts no more streams, and has not processed those after its last one.
    GoingAway,
}

/// A request that was rejected before it reached the caller, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct H3Refused {
    /// The status of the response; 0 if the stream was reset instead.
    pub status: u16,
    pub code: H3Code,
    pub is_too_large: bool,
    /// The broken rule, in words.
    pub wrong: String,
    /// Method, target and host, as far as they were parsed.
    pub glimpse: [Vec<u8>; 3],
}

/// Rejected requests that are kept for the log. Further ones are not logged.
pub(crate) const REFUSED_MAX: usize = 64;
/// Priorities that are kept for requests that have not arrived yet (RFC 9218 §7).
pub(crate) const EARLY_PRIORITIES_MAX: usize = 32;

/// A connection error: the connection has to end with this code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct H3Broken {
    pub code: H3Code,
    pub cause: H3ErrorCause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum H3ErrorCause {
    /// The broken rule of the protocol.
    Malformed(&'static str),
    Flood(Flood),
}

impl H3Broken {
    /// The cause in words, as CONNECTION_CLOSE reports it to the peer.
    pub fn why(&self) -> &'static str {
        match self.cause {
            H3ErrorCause::Malformed(rule) => rule,
            H3ErrorCause::Flood(flood) => flood.why(),
        }
    }
}

impl From<Flood> for H3Broken {
    fn from(flood: Flood) -> Self {
        Self { code: H3Code::EXCESSIVE_LOAD, cause: H3ErrorCause::Flood(flood) }
    }
}

/// RFC 9114 §5.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    No,
    /// A GOAWAY was sent, but the peer may not have seen it yet.
    Announced,
    /// Requests from this ID on are rejected.
    From(StreamId),
}

/// A call of [`Transport`] that the next flush makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlushOrder {
    Reset(StreamId, H3Code),
    Stop(StreamId, H3Code),
}

/// Our critical streams: their IDs, and their unsent bytes.
#[derive(Default)]
pub(crate) struct OwnStreams {
    pub(crate) control: (StreamId, StreamOut),
    pub(crate) encoder: (StreamId, StreamOut),
    pub(crate) decoder: (StreamId, StreamOut),
}

pub struct H3StateMachine {
    pub(crate) role: H3Role,
    pub(crate) limits: H3Limits,
    pub(crate) decoder: QpackDecoder,
    pub(crate) encoder: QpackEncoder,
    pub(crate) fields: FieldCollector,
    /// Scratch memory for a field section.
    pub(crate) section: Vec<u8>,
    pub(crate) floods: H3FloodCounts,
    /// When bytes last arrived from the peer.
    pub(crate) now: Now,
    pub(crate) streams: H3Streams,
    /// The number of streams that wait for their first head.
    pub(crate) headless: usize,
    /// The lowest ID of requests that have not arrived yet.
    pub(crate) next: StreamId,
    pub(crate) own: OwnStreams,
    pub(crate) theirs: PeerStreams,
    pub(crate) refused: Vec<H3Refused>,
    /// The cause of the connection error, in words.
    pub(crate) offence: Option<Box<str>>,
    /// Memory of long heads, in bytes.
    pub(crate) long_heads: usize,
    /// Bytes of all sections that are incomplete or blocked.
    pub(crate) sections: usize,
    /// Unread bytes of all bodies.
    pub(crate) unread: usize,
    /// Whether `unread` has reached its limit.
    pub(crate) is_full: bool,
    pub(crate) peer: H3Settings,
    pub(crate) has_settings: bool,
    /// The ID of the last GOAWAY received.
    pub(crate) goaway: Option<u64>,
    /// The largest push ID that the client allows.
    pub(crate) max_push: Option<u64>,
    pub(crate) early_priorities: VecDeque<(StreamId, Priority)>,
    pub(crate) closing: Closing,
    pub(crate) events: VecDeque<H3Event>,
    pub(crate) orders: VecDeque<FlushOrder>,
    /// Streams that have something to send, or have to end.
    pub(crate) queue: VecDeque<Key>,
}

impl H3StateMachine {
    /// Creates a connection whose first three unidirectional streams (RFC 9114 §6.2) have these IDs.
    pub fn new(role: H3Role, limits: H3Limits, streams: [StreamId; 3]) -> Self {
        let floods = match role {
            H3Role::Server => limits.floods,
            // A connection to a server carries streams of many clients, and the server only answers our requests.
            H3Role::Client => limits.floods.of_many(),
        };
        let mut connection = Self {
            role,
            limits,
            decoder: QpackDecoder::new(limits.table_bytes),
            encoder: QpackEncoder::default(),
            fields: FieldCollector::new(MessageProtocol::Http3),
            section: Vec::new(),
            floods: H3FloodCounts::new(floods),
            now: Now { tick: 0, second: 0 },
            streams: H3Streams::default(),
            headless: 0,
            next: 0,
            own: OwnStreams::default(),
            theirs: PeerStreams::default(),
            refused: Vec::new(),
            offence: None,
            long_heads: 0,
            sections: 0,
            unread: 0,
            is_full: false,
            peer: H3Settings::default(),
            has_settings: false,
            goaway: None,
            max_push: None,
            early_priorities: VecDeque::new(),
            closing: Closing::No,
            events: VecDeque::new(),
            orders: VecDeque::new(),
            queue: VecDeque::new(),
        };
        connection.begin(streams);
        connection
    }

    /// Begins our critical streams: the control stream with our settings, and those of QPACK.
    fn begin(&mut self, [control, encoder, decoder]: [StreamId; 3]) {
        let settings = H3Settings {
            section_bytes: self.limits.head_bytes as u64,
            table_bytes: self.limits.table_bytes as u64,
            blocked_streams: self.limits.blocked_streams as u64,
            takes_upgrades: self.role == H3Role::Server,
        };
        let own = &mut self.own;
        (own.control.0, own.encoder.0, own.decoder.0) = (control, encoder, decoder);
        settings.push(self.role, &mut self.section);
        let out = &mut own.control.1.bytes;
        varint::push(out, CONTROL_STREAM);
        frame::push_head(out, SETTINGS, self.section.len());
        out.append(&mut self.section);
        varint::push(&mut own.encoder.1.bytes, ENCODER_STREAM);
        varint::push(&mut own.decoder.1.bytes, DECODER_STREAM);
    }

    /// Registers a stream that the peer has opened. Until then, bytes received on it are ignored.
    ///
    /// # Errors
    /// The peer must not open such a stream.
    pub fn accept(&mut self, id: StreamId, now: Now) -> Result<(), H3Broken> {
        self.now = now;
        if is_unidirectional(id) {
            self.theirs.accept(id);
            return Ok(());
        }
        if self.role == H3Role::Client {
            return Err(self.offended(rules::STREAM_CREATED, "a bidirectional stream"));
        }
        // RFC 9000 §2.1: every fourth ID is a bidirectional stream of the client.
        self.next = self.next.max(id + 4);
        let is_late = matches!(self.closing, Closing::From(last) if id >= last);
        if is_late || self.streams.len() >= self.limits.streams {
            // RFC 9114 §4.1.1, §5.2: the request was not processed.
            self.orders.push_back(FlushOrder::Reset(id, H3Code::REQUEST_REJECTED));
            self.orders.push_back(FlushOrder::Stop(id, H3Code::REQUEST_REJECTED));
            // RFC 9204 §2.2.2.2: its section is never decoded, so the encoder must not keep entries for it.
            self.decoder.cancel(id);
            // Late requests are normal while a connection closes, so they are not logged.
            if !is_late {
                let limit = self.limits.streams;
                self.fields.begin(0);
                self.note_refused(0, H3Code::REQUEST_REJECTED, format!("more than {limit} streams are held"));
            }
            return self
                .floods
                .count(Flood::Overhead, 1, now.second)
                .map_err(|flood| self.offended(flood.into(), "one request too many"));
        }
        let key = self.streams.add(id, now.tick);
        self.headless += 1;
        if let Some(at) = self.early_priorities.iter().position(|(early, _)| *early == id)
            && let Some((_, priority)) = self.early_priorities.remove(at)
        {
            let stream = self.streams.change(key);
            (stream.priority, stream.is_priority_updated) = (priority, true);
        }
        Ok(())
    }

    /// Registers a bidirectional stream that we have opened for a request to the server.
    pub fn open(&mut self, id: StreamId) -> Key {
        debug_assert!(self.role == H3Role::Client);
        let key = self.streams.add(id, self.now.tick);
        self.streams.change(key).holder = Holder::Path;
        key
    }

    /// How many more bytes a stream accepts now. The caller should read no more from the transport, so that QUIC's flow
    /// control slows the peer. Returns 0 if the stream has ended, or until [`H3Event::Wanted`].
    pub fn wanted(&mut self, id: StreamId) -> usize {
        if is_unidirectional(id) {
            return self.theirs.wanted(id);
        }
        let Some(key) = self.streams.find(id) else { return 0 };
        let (limits, unread) = (self.limits, self.unread);
        let stream = self.streams.change(key);
        if stream.is_deaf() {
            return 0;
        }
        let of_stream = limits.body_bytes.saturating_sub(stream.body.len());
        let of_all = limits.bodies_bytes.saturating_sub(unread);
        // Remembered, because reading another stream has to wake this one: see `want_all_again`.
        self.is_full |= of_all == 0;
        // Bytes behind a blocked section are held in addition to the body, so none are taken.
        let wanted = if stream.blocked.is_some() { 0 } else { of_stream.min(of_all) };
        stream.is_held_back = wanted == 0;
        wanted
    }

    /// Emits [`Event::Wanted`] for a stream if it accepts bytes again.
    pub(crate) fn want_again(&mut self, key: Key) {
        let (limits, unread) = (self.limits, self.unread);
        let stream = self.streams.change(key);
        // Half, so that a reader that takes little at once does not cause an update of the window each time.
        let has_room = stream.body.len() <= limits.body_bytes / 2 && unread < limits.bodies_bytes;
        if stream.is_held_back && has_room && stream.blocked.is_none() && !stream.is_deaf() {
            stream.is_held_back = false;
            self.events.push_back(H3Event::Wanted(stream.id));
        }
    }

    /// Emits [`Event::Wanted`] for streams that the bodies of other streams held back.
    pub(crate) fn want_all_again(&mut self) {
        // Looking at all streams is worth it only for a good piece of room.
        if !self.is_full || self.unread > self.limits.bodies_bytes / 2 {
            return;
        }
        self.is_full = false;
        let keys: Vec<Key> = self.streams.all().map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.want_again(key));
    }

    /// The next event. Any call may have caused it.
    pub fn next_event(&mut self) -> Option<H3Event> {
        self.events.pop_front()
    }

    pub fn key(&self, id: StreamId) -> Option<Key> {
        self.streams.find(id)
    }

    pub fn id(&self, key: Key) -> StreamId {
        self.streams.at(key).id
    }

    pub fn priority(&self, key: Key) -> Priority {
        self.streams.at(key).priority
    }

    /// The number of held streams, including those whose responses are not completely sent.
    pub fn held(&self) -> usize {
        self.streams.len()
    }

    /// Bytes from the peer that are held: unread bodies, and heads that are long or incomplete. Long heads count twice,
    /// because the caller copies the head while it serves the request.
    pub fn holds(&self) -> usize {
        self.unread + self.sections + 2 * self.long_heads
    }

    /// Limits the sum of long and incomplete heads to `more` bytes beyond the current sum, and to `most`.
    pub fn limit_long_heads(&mut self, more: usize, most: usize) {
        self.limits.long_heads_bytes = most.min(self.long_heads.max(self.sections) + more);
    }

    pub fn has_begun(&self) -> bool {
        self.has_settings
    }

    pub fn is_going_away(&self) -> bool {
        self.goaway.is_some()
    }

    pub fn takes_more(&self) -> bool {
        self.goaway.is_none() && self.closing == Closing::No && self.streams.len() < self.limits.streams
    }

    /// The cause of the connection error, in words.
    pub fn offence(&self) -> Option<&str> {
        self.offence.as_deref()
    }

    /// Whether requests were rejected since the last call of [`take_refused`](Self::take_refused).
    pub fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Takes the requests that were rejected since the last call, in order.
    pub fn take_refused(&mut self) -> Vec<H3Refused> {
        std::mem::take(&mut self.refused)
    }

    /// The tick at which the oldest stream with an incomplete head began.
    pub fn head_since(&mut self) -> Option<u32> {
        if self.headless == 0 {
            return None;
        }
        self.streams.all().filter(|(_, stream)| stream.lacks_head()).map(|(_, stream)| stream.since).min()
    }

    /// The tick at which the oldest stream began whose request is held back until its end arrives. A client may send
    /// the end in a separate datagram; without it, a GET would count as one with a body, which no cache answers.
    pub fn end_awaited_since(&mut self) -> Option<u32> {
        if self.headless == 0 {
            return None;
        }
        self.streams
            .all()
            .filter(|(_, stream)| stream.is_held_for_end())
            .map(|(_, stream)| stream.since)
            .min()
    }

    /// Passes on the requests of streams that began up to this tick and whose end has not arrived: they have a body.
    pub fn ends_are_late(&mut self, since: u32) {
        let is_late = |stream: &H3StreamSlot| stream.is_held_for_end() && stream.since <= since;
        let late: Vec<Key> =
            self.streams.all().filter(|(_, stream)| is_late(stream)).map(|(key, _)| key).collect();
        late.into_iter().for_each(|key| self.pass_on(key));
    }

    /// Resets the streams that began up to this tick and whose head is incomplete.
    pub fn heads_are_late(&mut self, since: u32) {
        let is_late = |stream: &H3StreamSlot| stream.lacks_head() && stream.since <= since;
        let late: Vec<Key> =
            self.streams.all().filter(|(_, stream)| is_late(stream)).map(|(key, _)| key).collect();
        for key in late {
            let stream = self.streams.at(key);
            let wrong = format!("only {} bytes of the head arrived in time", stream.section.len());
            self.fields.begin(0);
            self.note_refused(0, H3Code::REQUEST_CANCELLED, wrong);
            self.break_off(key, H3Code::REQUEST_CANCELLED);
            self.drop_stream(key);
        }
    }

    /// Closes gracefully (RFC 9114 §5.2): requests in progress finish. New ones are rejected once the peer has had time
    /// to receive GOAWAY; see [`tell_last`](Self::tell_last).
    pub fn close(&mut self) {
        if self.closing == Closing::No {
            self.closing = Closing::Announced;
            // A client's GOAWAY carries a push ID; 0, because it accepts no push.
            let last = if self.role == H3Role::Server { varint::MAX - 3 } else { 0 };
            // RFC 9114 §5.2: the highest ID permits all requests, because some may be under way.
            frame::push_number(&mut self.own.control.1.bytes, GOAWAY, last);
        }
    }

    /// Announces the last request (RFC 9114 §5.2), about a round trip after [`close`](Self::close). Later ones are
    /// rejected.
    pub fn tell_last(&mut self) {
        if self.closing == Closing::Announced {
            self.closing = Closing::From(self.next);
            if self.role == H3Role::Server {
                frame::push_number(&mut self.own.control.1.bytes, GOAWAY, self.next);
            }
        }
    }

    /// Whether a GOAWAY has announced the last request to the peer.
    pub fn has_told_last(&self) -> bool {
        matches!(self.closing, Closing::From(_))
    }

    /// Gives the transport everything that is unsent, as far as it accepts it.
    pub fn flush(&mut self, transport: &mut impl Transport) {
        let own = &mut self.own;
        // Critical streams go first: a section that refers to an insertion is blocked until the insertion arrives.
        self.decoder.acknowledge(&mut own.decoder.1.bytes);
        for (id, out) in [&mut own.control, &mut own.encoder, &mut own.decoder] {
            out.send(*id, transport);
        }
        while let Some(order) = self.orders.pop_front() {
            match order {
                FlushOrder::Reset(id, code) => transport.reset(id, code),
                FlushOrder::Stop(id, code) => transport.stop(id, code),
            }
        }
        // Each stream once, because one without room in the transport goes back into the queue.
        for _ in 0..self.queue.len() {
            let Some(key) = self.queue.pop_front() else { break };
            self.streams.change(key).is_queued = false;
            self.flush_stream(key, transport);
        }
    }

    /// Gives the transport the unsent bytes of a stream, except body bytes. Returns whether it accepted all.
    pub(crate) fn flush_stream(&mut self, key: Key, transport: &mut impl Transport) -> bool {
        let stream = self.streams.change(key);
        if !stream.out.send(stream.id, transport) {
            self.enqueue(key);
            return false;
        }
        if stream.outgoing == Outgoing::Ended && stream.broken.is_none() {
            stream.outgoing = Outgoing::Finished;
            transport.finish(stream.id);
        }
        if stream.holder == Holder::Rest {
            self.drop_stream(key);
        }
        true
    }

    /// Queues a stream for the next flush.
    pub(crate) fn enqueue(&mut self, key: Key) {
        let stream = self.streams.change(key);
        if !std::mem::replace(&mut stream.is_queued, true) {
            self.queue.push_back(key);
        }
    }

    pub fn has_unsent(&self) -> bool {
        let own = &self.own;
        !self.queue.is_empty()
            || !self.orders.is_empty()
            || [&own.control, &own.encoder, &own.decoder].iter().any(|(_, out)| !out.is_empty())
            || self.decoder.has_news()
    }

    /// Removes a stream that is no longer used.
    pub(crate) fn drop_stream(&mut self, key: Key) {
        let stream = self.streams.change(key);
        if stream.holder == Holder::Nobody {
            self.headless -= 1;
        }
        self.sections -= stream.section_len;
        self.long_heads -= stream.long_head;
        self.unread -= stream.body.len();
        if std::mem::take(&mut stream.is_queued) {
            // Keys are used again: an old entry would flush another stream.
            self.queue.retain(|&other| other != key);
        }
        self.streams.remove(key);
        self.want_all_again();
    }

    /// Ends a stream early in both directions. Bytes that have arrived can still be read.
    pub(crate) fn break_off(&mut self, key: Key, code: H3Code) {
        self.break_off_as(key, code, code);
    }

    /// As `break_off`, but sends the peer another code.
    pub(crate) fn break_off_as(&mut self, key: Key, code: H3Code, told: H3Code) {
        let stream = self.streams.change(key);
        let id = stream.id;
        if stream.broken.is_none() {
            if stream.outgoing != Outgoing::Finished {
                self.orders.push_back(FlushOrder::Reset(id, told));
            }
            if stream.incoming != H3Incoming::Ended {
                self.orders.push_back(FlushOrder::Stop(id, told));
                // RFC 9204 §2.2.2.2.
                self.decoder.cancel(id);
            }
        }
        // Bytes that have arrived stay readable; only what is unsent or incomplete is dropped.
        stream.broken = Some(code);
        stream.outgoing = Outgoing::Finished;
        stream.out.clear();
        stream.data_left = 0;
        stream.blocked = None;
        self.sections -= std::mem::take(&mut stream.section_len);
        stream.section.clear();
        stream.behind = Vec::new();
    }
}
