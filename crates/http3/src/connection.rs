//! An HTTP/3 connection: its own streams, what it is told and tells of, and closing.

use std::collections::VecDeque;

use fields::message::Fields;
use fields::protocol::Protocol;

use crate::code::Code;
use crate::control::PeerStreams;
use crate::decode::Decoder;
use crate::encode::Encoder;
use crate::flood::{Counts, Flood, FloodLimits};
use crate::frame::{self, CONTROL_STREAM, DECODER_STREAM, ENCODER_STREAM, GOAWAY, SETTINGS};
use crate::priority::Priority;
use crate::settings::Settings;
use crate::stream::{Holder, Incoming, Key, Out, Outgoing, Stream, Streams};
use crate::{rules, varint};

/// The ID of a stream of QUIC (RFC 9000 §2.1).
pub type StreamId = u64;

/// Whether a stream has one direction only (RFC 9000 §2.1).
pub(crate) fn is_unidirectional(id: StreamId) -> bool {
    id & 0x2 != 0
}

/// The role of this end of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The peer is a client, and sends requests.
    Server,
    /// The peer is a server, and gets requests.
    Client,
}

/// The streams of a QUIC connection, as far as they are sent on. All of them buffer what they take.
pub trait Transport {
    /// Takes the start of `bytes` for a stream, and returns how many bytes: fewer than all while there is no more room.
    fn write(&mut self, id: StreamId, bytes: &[u8]) -> usize;
    /// Ends a stream behind what was written.
    fn finish(&mut self, id: StreamId);
    /// Ends a stream early (RESET_STREAM).
    fn reset(&mut self, id: StreamId, code: Code);
    /// Tells the peer that nothing more is read of a stream (STOP_SENDING).
    fn stop(&mut self, id: StreamId, code: Code);
}

/// Resource limits of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most requests that are held at once. QUIC's own limit should be lower.
    pub streams: usize,
    /// The most bytes of the fields of a head, counted as in RFC 9114 §4.2.2.
    pub head_bytes: usize,
    /// A head in transit that is larger than this counts as long.
    pub short_head_bytes: usize,
    /// The most bytes of all long heads together, and of all sections that have not come as a whole or are blocked.
    pub long_heads_bytes: usize,
    /// The most unread bytes of a body. Until some are read, no more are wanted of the transport.
    pub body_bytes: usize,
    /// The most unread bytes of all bodies together.
    pub bodies_bytes: usize,
    /// The most bytes of the dynamic table for what the peer sends (RFC 9204 §3.2.3).
    pub table_bytes: usize,
    /// The most streams that may wait for insertions into that table (RFC 9204 §2.1.2).
    pub blocked_streams: usize,
    /// Limits on what costs the peer next to nothing.
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
    /// A request is held back: see [`Connection::end_awaited_since`].
    AwaitsEnd,
    /// Bytes, or the end, can be read from a stream.
    Readable(Key),
    /// A stream has ended early.
    Reset(Key),
    /// More is wanted of a stream than before: see [`Connection::wanted`].
    Wanted(StreamId),
    /// The client has changed the priority of a stream (RFC 9218 §7).
    Prioritized(Key),
    /// The peer's settings have arrived.
    Begun,
    /// The peer accepts no more streams, and has not processed those after its last one.
    GoingAway,
}

/// A request that was rejected before it was passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The status of the response; 0 if the stream was reset instead.
    pub status: u16,
    /// The error code with which the stream was reset.
    pub code: Code,
    /// Whether the head is too large.
    pub is_too_large: bool,
    /// What was wrong, in words.
    pub wrong: String,
    /// Method, target and host, as far as they were read.
    pub glimpse: [Vec<u8>; 3],
}

/// The most rejected requests that are kept for the log. Further ones are not logged.
pub(crate) const REFUSED_MAX: usize = 64;
/// The most priorities that are kept for requests that have not come (RFC 9218 §7).
pub(crate) const EARLY_PRIORITIES_MAX: usize = 32;

/// A connection error: the connection has to end with this code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken {
    /// The error code for the peer.
    pub code: Code,
    /// The cause of the error.
    pub cause: Cause,
}

/// The cause of a connection error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The peer has broken this rule of the protocol.
    Malformed(&'static str),
    /// The peer floods the connection with what means nothing.
    Flood(Flood),
}

impl Broken {
    /// The cause in words, as the peer is told.
    pub fn why(&self) -> &'static str {
        match self.cause {
            Cause::Malformed(rule) => rule,
            Cause::Flood(flood) => flood.why(),
        }
    }
}

impl From<Flood> for Broken {
    fn from(flood: Flood) -> Self {
        Self { code: Code::EXCESSIVE_LOAD, cause: Cause::Flood(flood) }
    }
}

/// The progress of closing a connection (RFC 9114 §5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    No,
    /// A GOAWAY was sent, but the peer may not have seen it yet.
    Announced,
    /// Requests from this ID on are rejected.
    From(StreamId),
}

/// What the transport is told at the next flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Reset(StreamId, Code),
    Stop(StreamId, Code),
}

/// Our critical streams: their IDs, and what is to be sent on them.
#[derive(Default)]
pub(crate) struct OwnStreams {
    pub(crate) control: (StreamId, Out),
    pub(crate) encoder: (StreamId, Out),
    pub(crate) decoder: (StreamId, Out),
}

/// An HTTP/3 connection, without a socket and without QUIC.
pub struct Connection {
    pub(crate) role: Role,
    pub(crate) limits: Limits,
    pub(crate) decoder: Decoder,
    pub(crate) encoder: Encoder,
    pub(crate) fields: Fields,
    /// Scratch memory for a field section.
    pub(crate) section: Vec<u8>,
    pub(crate) floods: Counts,
    /// The last time that something arrived from the peer.
    pub(crate) now: Now,
    pub(crate) streams: Streams,
    /// How many streams wait for their first head.
    pub(crate) headless: usize,
    /// Requests from this ID on have not come.
    pub(crate) next: StreamId,
    pub(crate) own: OwnStreams,
    pub(crate) theirs: PeerStreams,
    /// Rejected requests that are not yet logged.
    pub(crate) refused: Vec<Refused>,
    /// What caused the connection error, in words.
    pub(crate) offence: Option<Box<str>>,
    /// The memory that long heads take.
    pub(crate) long_heads: usize,
    /// The length of all sections that have not come as a whole, or are blocked.
    pub(crate) sections: usize,
    /// Unread bytes of all bodies.
    pub(crate) unread: usize,
    /// Whether they were as many as they may be.
    pub(crate) is_full: bool,
    pub(crate) peer: Settings,
    pub(crate) has_settings: bool,
    /// The ID of the last GOAWAY received.
    pub(crate) goaway: Option<u64>,
    /// The largest push ID that the client allows.
    pub(crate) max_push: Option<u64>,
    pub(crate) early_priorities: VecDeque<(StreamId, Priority)>,
    pub(crate) closing: Closing,
    pub(crate) events: VecDeque<Event>,
    pub(crate) orders: VecDeque<Order>,
    /// Streams that have something to send or to end.
    pub(crate) queue: VecDeque<Key>,
}

impl Connection {
    /// A new connection, whose first three unidirectional streams (RFC 9114 §6.2) have these IDs.
    pub fn new(role: Role, limits: Limits, streams: [StreamId; 3]) -> Self {
        let floods = match role {
            Role::Server => limits.floods,
            // A server's connection carries the streams of many, and it does what it was asked for.
            Role::Client => limits.floods.of_many(),
        };
        let mut connection = Self {
            role,
            limits,
            decoder: Decoder::new(limits.table_bytes),
            encoder: Encoder::default(),
            fields: Fields::new(Protocol::Http3),
            section: Vec::new(),
            floods: Counts::new(floods),
            now: Now { tick: 0, second: 0 },
            streams: Streams::default(),
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
            peer: Settings::default(),
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

    /// Begins our critical streams, the control stream with our settings.
    fn begin(&mut self, [control, encoder, decoder]: [StreamId; 3]) {
        let settings = Settings {
            section_bytes: self.limits.head_bytes as u64,
            table_bytes: self.limits.table_bytes as u64,
            blocked_streams: self.limits.blocked_streams as u64,
            takes_upgrades: self.role == Role::Server,
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

    /// Notes that the peer has opened a stream. Until then, what is received on it means nothing.
    ///
    /// # Errors
    /// If the peer opens no such streams.
    pub fn accept(&mut self, id: StreamId, now: Now) -> Result<(), Broken> {
        self.now = now;
        if is_unidirectional(id) {
            self.theirs.accept(id);
            return Ok(());
        }
        if self.role == Role::Client {
            return Err(self.offended(rules::STREAM_CREATED, "a bidirectional stream"));
        }
        self.next = self.next.max(id + 4);
        let is_late = matches!(self.closing, Closing::From(last) if id >= last);
        if is_late || self.streams.len() >= self.limits.streams {
            // RFC 9114 §4.1.1, §5.2: it was not looked at.
            self.orders.push_back(Order::Reset(id, Code::REQUEST_REJECTED));
            self.orders.push_back(Order::Stop(id, Code::REQUEST_REJECTED));
            self.decoder.cancel(id);
            if !is_late {
                let limit = self.limits.streams;
                self.fields.begin(0);
                self.note_refused(0, Code::REQUEST_REJECTED, format!("more than {limit} streams are held"));
            }
            return self
                .floods
                .count(Flood::Overhead, 1, now.second)
                .map_err(|flood| self.offended(flood.into(), "a request too many"));
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

    /// Uses a bidirectional stream that we have opened, for a request to the server.
    pub fn open(&mut self, id: StreamId) -> Key {
        debug_assert!(self.role == Role::Client);
        let key = self.streams.add(id, self.now.tick);
        self.streams.change(key).holder = Holder::Path;
        key
    }

    /// How many bytes of a stream are wanted now. The transport should be read for no more, so that its flow control slows
    /// the peer. 0 if the stream is over, or until [`Event::Wanted`] tells of more.
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
        self.is_full |= of_all == 0;
        let wanted = if stream.blocked.is_some() { 0 } else { of_stream.min(of_all) };
        stream.is_held_back = wanted == 0;
        wanted
    }

    /// Tells of a stream that is worth reading again, if it is.
    pub(crate) fn want_again(&mut self, key: Key) {
        let (limits, unread) = (self.limits, self.unread);
        let stream = self.streams.change(key);
        let has_room = stream.body.len() <= limits.body_bytes / 2 && unread < limits.bodies_bytes;
        if stream.is_held_back && has_room && stream.blocked.is_none() && !stream.is_deaf() {
            stream.is_held_back = false;
            self.events.push_back(Event::Wanted(stream.id));
        }
    }

    /// Tells of streams that were held back by the bodies of others.
    pub(crate) fn want_all_again(&mut self) {
        if !self.is_full || self.unread > self.limits.bodies_bytes / 2 {
            return;
        }
        self.is_full = false;
        let keys: Vec<Key> = self.streams.all().map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.want_again(key));
    }

    /// The next event, which may be one that a call of any kind has caused.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The key of the stream with this ID, if it is held.
    pub fn key(&self, id: StreamId) -> Option<Key> {
        self.streams.find(id)
    }

    /// The ID of the stream with this key.
    pub fn id(&self, key: Key) -> StreamId {
        self.streams.at(key).id
    }

    /// When the response is to be sent, compared with others.
    pub fn priority(&self, key: Key) -> Priority {
        self.streams.at(key).priority
    }

    /// The number of held streams, those included whose responses are not sent as a whole.
    pub fn held(&self) -> usize {
        self.streams.len()
    }

    /// How many bytes are held that came from the peer: of bodies that are unread, and of heads that are long or not whole. Whoever
    /// serves a request has a long head once more.
    pub fn holds(&self) -> usize {
        self.unread + self.sections + 2 * self.long_heads
    }

    /// Permits long heads, and those that have not come as a whole, so many bytes more than there are, at most `most` in all.
    pub fn limit_long_heads(&mut self, more: usize, most: usize) {
        self.limits.long_heads_bytes = most.min(self.long_heads.max(self.sections) + more);
    }

    /// Whether the peer's settings have arrived.
    pub fn has_begun(&self) -> bool {
        self.has_settings
    }

    /// Whether the peer accepts no more streams.
    pub fn is_going_away(&self) -> bool {
        self.goaway.is_some()
    }

    /// Whether another request may be sent.
    pub fn takes_more(&self) -> bool {
        self.goaway.is_none() && self.closing == Closing::No && self.streams.len() < self.limits.streams
    }

    /// What caused the connection error, in words.
    pub fn offence(&self) -> Option<&str> {
        self.offence.as_deref()
    }

    /// Whether requests were rejected since the last call of [`take_refused`](Self::take_refused).
    pub fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Takes the requests that were rejected since the last call, in order.
    pub fn take_refused(&mut self) -> Vec<Refused> {
        std::mem::take(&mut self.refused)
    }

    /// The tick at which the oldest stream began whose head has not come as a whole.
    pub fn head_since(&mut self) -> Option<u32> {
        if self.headless == 0 {
            return None;
        }
        self.streams.all().filter(|(_, stream)| stream.lacks_head()).map(|(_, stream)| stream.since).min()
    }

    /// The tick at which the oldest stream began whose request is held back until its end has come. A client may send the end
    /// in a datagram of its own; without it a GET would be one with a body, which no cache answers.
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

    /// Passes on the requests of streams that began up to this tick and whose end has not come: they have a body.
    pub fn ends_are_late(&mut self, since: u32) {
        let is_late = |stream: &Stream| stream.is_held_for_end() && stream.since <= since;
        let late: Vec<Key> =
            self.streams.all().filter(|(_, stream)| is_late(stream)).map(|(key, _)| key).collect();
        late.into_iter().for_each(|key| self.pass_on(key));
    }

    /// Resets the streams that began up to this tick and whose head has not come as a whole.
    pub fn heads_are_late(&mut self, since: u32) {
        let is_late = |stream: &Stream| stream.lacks_head() && stream.since <= since;
        let late: Vec<Key> =
            self.streams.all().filter(|(_, stream)| is_late(stream)).map(|(key, _)| key).collect();
        for key in late {
            let stream = self.streams.at(key);
            let wrong = format!("{} bytes of a head came in time", stream.section.len());
            self.fields.begin(0);
            self.note_refused(0, Code::REQUEST_CANCELLED, wrong);
            self.break_off(key, Code::REQUEST_CANCELLED);
            self.drop_stream(key);
        }
    }

    /// Closes gracefully (RFC 9114 §5.2): requests in progress finish, and no new ones are accepted once the peer had time to
    /// hear of it.
    pub fn close(&mut self) {
        if self.closing == Closing::No {
            self.closing = Closing::Announced;
            // A client announces a push ID, and takes none.
            let last = if self.role == Role::Server { varint::MAX - 3 } else { 0 };
            frame::push_number(&mut self.own.control.1.bytes, GOAWAY, last);
        }
    }

    /// Announces the last request (RFC 9114 §5.2), about a round trip after [`close`](Self::close). Later ones are rejected.
    pub fn tell_last(&mut self) {
        if self.closing == Closing::Announced {
            self.closing = Closing::From(self.next);
            if self.role == Role::Server {
                frame::push_number(&mut self.own.control.1.bytes, GOAWAY, self.next);
            }
        }
    }

    /// Whether the peer was told the last request in a GOAWAY.
    pub fn has_told_last(&self) -> bool {
        matches!(self.closing, Closing::From(_))
    }

    /// Gives the transport what there is to send and to tell, as much as it takes.
    pub fn flush(&mut self, transport: &mut impl Transport) {
        let own = &mut self.own;
        self.decoder.acknowledge(&mut own.decoder.1.bytes);
        for (id, out) in [&mut own.control, &mut own.encoder, &mut own.decoder] {
            out.send(*id, transport);
        }
        while let Some(order) = self.orders.pop_front() {
            match order {
                Order::Reset(id, code) => transport.reset(id, code),
                Order::Stop(id, code) => transport.stop(id, code),
            }
        }
        for _ in 0..self.queue.len() {
            let Some(key) = self.queue.pop_front() else { break };
            self.streams.change(key).is_queued = false;
            self.flush_stream(key, transport);
        }
    }

    /// Gives the transport what there is to send on a stream besides bytes of a body; whether that is all.
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

    /// Has a stream flushed.
    pub(crate) fn enqueue(&mut self, key: Key) {
        let stream = self.streams.change(key);
        if !std::mem::replace(&mut stream.is_queued, true) {
            self.queue.push_back(key);
        }
    }

    /// Whether there is something to flush.
    pub fn has_unsent(&self) -> bool {
        let own = &self.own;
        !self.queue.is_empty()
            || !self.orders.is_empty()
            || [&own.control, &own.encoder, &own.decoder].iter().any(|(_, out)| !out.is_empty())
            || self.decoder.has_news()
    }

    /// Forgets a stream that nobody uses any more.
    pub(crate) fn drop_stream(&mut self, key: Key) {
        let stream = self.streams.change(key);
        if stream.holder == Holder::Nobody {
            self.headless -= 1;
        }
        self.sections -= stream.section_len;
        self.long_heads -= stream.long_head;
        self.unread -= stream.body.len();
        if std::mem::take(&mut stream.is_queued) {
            self.queue.retain(|&other| other != key);
        }
        self.streams.remove(key);
        self.want_all_again();
    }

    /// Ends a stream early in both directions. Bytes that have arrived can still be read.
    pub(crate) fn break_off(&mut self, key: Key, code: Code) {
        self.break_off_as(key, code, code);
    }

    /// The same, where the peer is told another code.
    pub(crate) fn break_off_as(&mut self, key: Key, code: Code, told: Code) {
        let stream = self.streams.change(key);
        let id = stream.id;
        if stream.broken.is_none() {
            if stream.outgoing != Outgoing::Finished {
                self.orders.push_back(Order::Reset(id, told));
            }
            if stream.incoming != Incoming::Ended {
                self.orders.push_back(Order::Stop(id, told));
                // RFC 9204 §2.2.2.2.
                self.decoder.cancel(id);
            }
        }
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
