//! Handles received frames (RFC 9113 §5, §6), also if they arrive byte by byte.

use std::fmt::Display;

use fields::answer::{Answer, TOO_LARGE, UNTOLD};
use fields::message::{Framed, MessageOutline, Unfit};

use crate::connection::{Broken, Cause, Connection, Event, Now, REFUSED_MAX, Refused, Role};
use crate::flood::Flood;
use crate::frame::{
    self, ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEAD_LEN, HEADERS, Head, PADDED,
    PAYLOAD_MAX, PING, PREFACE, PRIORITY, PUSH_PROMISE, RST_STREAM, Reason, SETTINGS, WINDOW_MAX,
    WINDOW_UPDATE, WITH_PRIORITY,
};
use crate::parser::{Block, Data};
use crate::rules;
use crate::stream::{Incoming, Key, Outgoing};
use crate::windows::STREAM_WINDOW;
use http1::Glimpse;

/// From this many body bytes at once, memory is reserved for the announced rest.
const LARGE: usize = 4096;

/// What happens to a rejected request.
enum Refusal {
    Malformed,
    /// The request is rejected because of too many long heads; it may be sent again later.
    Later,
    Answered(&'static Answer),
}

/// The most frames of a header block.
pub const BLOCK_FRAMES_MAX: u32 = 16;
/// Padding that is worth a frame of its own.
const PADDING_MIN: usize = 64;
/// The most memory that is kept for incomplete frames.
const KEEP_MAX: usize = 256;

impl Connection {
    /// Processes received bytes up to the next event. Returns how many bytes were consumed. Call it until no bytes are
    /// left and there is no event: an event may remain after the last byte.
    pub fn receive(&mut self, bytes: &[u8], now: Now) -> Result<(usize, Option<Event>), Broken> {
        let mut rest = bytes;
        self.now = now;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok((bytes.len() - rest.len(), Some(event)));
            }
            if rest.is_empty() {
                return Ok((bytes.len(), None));
            }
            if self.parser.preface_left > 0 {
                self.skip_preface(&mut rest)?;
            } else if let Some(data) = self.parser.data {
                self.take_data(data, &mut rest).map_err(|broken| self.offended(broken, "a frame of DATA"))?;
            } else {
                self.take_frame(&mut rest)?;
            }
        }
    }

    fn skip_preface(&mut self, rest: &mut &[u8]) -> Result<(), Broken> {
        let left = &PREFACE[PREFACE.len() - self.parser.preface_left..];
        let count = left.len().min(rest.len());
        if rest[..count] != left[..count] {
            return Err(self.offended(rules::NO_PREFACE, "the first bytes"));
        }
        *rest = &rest[count..];
        self.parser.preface_left -= count;
        if self.parser.preface_left == 0 {
            self.begin();
        }
        Ok(())
    }

    /// Takes one frame, or what there is of it; of DATA only the head.
    fn take_frame(&mut self, rest: &mut &[u8]) -> Result<(), Broken> {
        if self.parser.held.is_empty() {
            self.parser.frame_since = self.now.tick;
            let len = match Head::parse(rest) {
                Some(head) => self.whole_len(head)?,
                None => usize::MAX,
            };
            if let Some((frame, behind)) = rest.split_at_checked(len) {
                *rest = behind;
                return self.frame(frame);
            }
        }
        // It takes two steps: the head says how much more is to come.
        let mut held = std::mem::take(&mut self.parser.held);
        loop {
            let wanted = match Head::parse(&held) {
                Some(head) => self.whole_len(head)?,
                None => HEAD_LEN,
            };
            if held.len() == wanted && wanted >= HEAD_LEN && Head::parse(&held).is_some() {
                let outcome = self.frame(&held);
                held.clear();
                held.shrink_to(KEEP_MAX);
                self.parser.held = held;
                return outcome;
            }
            let count = (wanted - held.len()).min(rest.len());
            held.extend_from_slice(&rest[..count]);
            *rest = &rest[count..];
            if held.len() < wanted {
                self.parser.held = held;
                return Ok(());
            }
        }
    }

    /// Notes the frame for which the connection ends, and the rule that it broke.
    #[cold]
    fn offended(&mut self, broken: Broken, by: impl Display) -> Broken {
        self.offence = Some(match broken.cause {
            Cause::Malformed(rule) => format!("{by}: {rule}").into(),
            Cause::Late | Cause::Flood(_) => by.to_string().into(),
        });
        broken
    }

    /// Counts something of a client's that carries nothing. A server's connection carries the streams of many.
    fn is_overhead(&mut self) -> Result<(), Broken> {
        Ok(self.floods.overhead(1, self.now.second)?)
    }

    /// How much of a frame is taken at once.
    fn whole_len(&mut self, head: Head) -> Result<usize, Broken> {
        // RFC 9113 §4.2.
        if head.len > PAYLOAD_MAX {
            return Err(self.offended(rules::TOO_LONG, head));
        }
        Ok(if head.kind == DATA { HEAD_LEN } else { HEAD_LEN + head.len })
    }

    /// Takes a whole frame, or the head of DATA.
    fn frame(&mut self, frame: &[u8]) -> Result<(), Broken> {
        let Some(head) = Head::parse(frame) else { return Ok(()) };
        self.framed(head, &frame[HEAD_LEN..]).map_err(|broken| self.offended(broken, head))
    }

    fn framed(&mut self, head: Head, payload: &[u8]) -> Result<(), Broken> {
        // RFC 9113 §3.4, §6.2: settings come first, and nothing in between the frames of a block.
        let is_in_turn = match &self.parser.block {
            Some(block) => head.kind == CONTINUATION && head.stream == block.stream,
            None => head.kind != CONTINUATION && (self.has_settings || head.kind == SETTINGS),
        };
        if !is_in_turn {
            return Err(rules::NOT_IN_TURN);
        }
        self.floods.note(&head, self.now.second)?;
        let is_of_stream = match head.kind {
            DATA | HEADERS | PRIORITY | RST_STREAM | PUSH_PROMISE => head.stream > 0,
            SETTINGS | PING | GOAWAY => head.stream == 0,
            _ => true,
        };
        if !is_of_stream {
            return Err(rules::WRONG_STREAM);
        }
        match head.kind {
            DATA => self.begin_data(head),
            HEADERS => self.headers(head, payload),
            CONTINUATION => self.continuation(head, payload),
            PRIORITY => priority(head, payload),
            RST_STREAM => self.reset_received(head, payload),
            SETTINGS => self.settings(head, payload),
            // RFC 9113 §8.4: we have said that we take none, and clients send none.
            PUSH_PROMISE => Err(rules::PUSHED),
            PING => self.ping(head, payload),
            GOAWAY => self.going_away(payload),
            WINDOW_UPDATE => self.window_update(head, payload),
            // RFC 9113 §5.5.
            _ => Ok(()),
        }
    }

    /// Handles SETTINGS (RFC 9113 §6.5).
    fn settings(&mut self, head: Head, payload: &[u8]) -> Result<(), Broken> {
        if head.has(ACK) {
            if !payload.is_empty() {
                return Err(rules::WRONG_SIZE);
            }
            self.settled();
            return Ok(());
        }
        if !payload.len().is_multiple_of(6) {
            return Err(rules::WRONG_SIZE);
        }
        self.set(payload)?;
        frame::push(self.out(), SETTINGS, ACK, 0, b"");
        Ok(())
    }

    /// Handles PING (RFC 9113 §6.7).
    fn ping(&mut self, head: Head, payload: &[u8]) -> Result<(), Broken> {
        if payload.len() != 8 {
            return Err(rules::WRONG_SIZE);
        }
        if head.has(ACK) {
            self.pong(payload);
        } else {
            frame::push(self.out(), PING, ACK, 0, payload);
        }
        Ok(())
    }

    /// Handles GOAWAY (RFC 9113 §6.8).
    fn going_away(&mut self, payload: &[u8]) -> Result<(), Broken> {
        if payload.len() < 8 {
            return Err(rules::WRONG_SIZE);
        }
        let last = frame::number(payload) & frame::STREAM_MAX;
        let reason = Reason(frame::number(&payload[4..]));
        self.is_going_away = true;
        if self.role == Role::Client {
            // What the peer has not seen may be sent elsewhere; after an error the rest is not going to be whole.
            let unseen = |id: u32| id > last;
            let gone: Vec<(Key, Reason)> = self
                .streams
                .named()
                .filter(|(_, stream)| !stream.is_closed())
                .filter_map(|(key, stream)| match (unseen(stream.id), reason) {
                    (true, _) => Some((key, Reason::REFUSED_STREAM)),
                    (false, Reason::NO_ERROR) => None,
                    (false, reason) => Some((key, reason)),
                })
                .collect();
            for (key, reason) in gone {
                self.break_off(key, reason);
                self.events.push_back(Event::Reset(key));
            }
        }
        self.events.push_back(Event::GoingAway);
        Ok(())
    }

    /// Handles WINDOW_UPDATE (RFC 9113 §6.9).
    fn window_update(&mut self, head: Head, payload: &[u8]) -> Result<(), Broken> {
        if payload.len() != 4 {
            return Err(rules::WRONG_SIZE);
        }
        let increment = i64::from(frame::number(payload) & frame::STREAM_MAX);
        if increment == 0 {
            return Err(rules::NO_INCREMENT);
        }
        if head.stream == 0 {
            self.send_window += increment;
            if self.send_window > WINDOW_MAX {
                return Err(rules::WINDOW_OVERFLOW);
            }
            self.events.push_back(Event::Room);
            return Ok(());
        }
        let Some(key) = self.known(head.stream)? else { return Ok(()) };
        let stream = self.streams.change(key);
        stream.send_window += increment;
        if stream.send_window > WINDOW_MAX {
            return self.provoked(key, Reason::FLOW_CONTROL_ERROR);
        }
        self.events.push_back(Event::Writable(key));
        Ok(())
    }

    /// Handles RST_STREAM (RFC 9113 §6.4).
    fn reset_received(&mut self, head: Head, payload: &[u8]) -> Result<(), Broken> {
        if payload.len() != 4 {
            return Err(rules::WRONG_SIZE);
        }
        let key = self.known(head.stream)?;
        // A server resets what we asked of it, and a response that has begun was worth its request.
        let is_early = key.is_none_or(|key| self.streams.at(key).outgoing == Outgoing::Head);
        if self.role == Role::Server && is_early {
            self.floods.count(Flood::Resets, self.now.second)?;
        }
        let Some(key) = key else { return Ok(()) };
        if self.streams.at(key).broken.is_some() {
            self.is_overhead()?;
        }
        self.break_off(key, Reason(frame::number(payload)));
        let incoming = &mut self.streams.change(key).incoming;
        if *incoming != Incoming::Ended {
            *incoming = Incoming::Reset;
        }
        self.events.push_back(Event::Reset(key));
        self.count_broken()
    }

    /// A client's streams that are over make room for others before they are let go of. All that may be open can be reset at
    /// once (RFC 9113 §5.4.2), and as many again while nobody has yet got round to those; more than that are not held.
    fn count_broken(&mut self) -> Result<(), Broken> {
        if self.role == Role::Client {
            return Ok(());
        }
        let broken = self.streams.named().filter(|(_, stream)| stream.broken.is_some()).count();
        if broken > 2 * self.limits.streams as usize { Err(Flood::ResetStreams.into()) } else { Ok(()) }
    }

    /// The stream of this number; `None` where it is over, and an error where it has not begun (RFC 9113 §5.1).
    fn known(&self, id: u32) -> Result<Option<Key>, Broken> {
        let is_ours = id % 2 == 1;
        if !is_ours || id > self.last {
            return Err(rules::STREAM_IDLE);
        }
        Ok(self.streams.find(id))
    }

    /// Whether something on a stream that is over may have been sent before the peer knew that it is: then it means nothing
    /// (RFC 9113 §5.1). A server is believed that: its connection carries the streams of many clients. What it wastes so it
    /// could waste as well on a stream that is not over, and its bytes count towards the window of the connection.
    fn may_still_come(&self, id: u32) -> bool {
        self.role == Role::Client || self.streams.may_have_been_reset(id)
    }

    /// RFC 9113 §6.1: the head of a DATA frame.
    fn begin_data(&mut self, head: Head) -> Result<(), Broken> {
        // RFC 9113 §6.9: what is dropped counts as well.
        if head.len as i64 > self.receive_window {
            return Err(rules::WINDOW_EXCEEDED);
        }
        if head.has(PADDED) && head.len == 0 {
            return Err(rules::NO_PAD_LENGTH);
        }
        let mut key = self.known(head.stream)?;
        match key.map(|key| self.streams.at(key)) {
            // RFC 9113 §6.8: what it has counts towards the window of the connection all the same.
            None if self.closing.ignores(head.stream) => {}
            Some(stream) if stream.incoming.is_closed() => return Err(rules::STREAM_OVER),
            Some(stream) if stream.broken.is_some() => key = None,
            Some(stream) if stream.incoming == Incoming::Body => {
                // RFC 9113 §6.9.1: an end without a byte needs no window; one may be negative (§6.9.2).
                if head.len > 0 && head.len as i64 > stream.receive_window {
                    self.provoked_by(key, Reason::FLOW_CONTROL_ERROR)?;
                    key = None;
                }
            }
            Some(_) => return Err(rules::NO_HEAD),
            None if self.may_still_come(head.stream) => {}
            None => return Err(rules::STREAM_OVER),
        }
        if key.is_none() {
            self.floods.is_useless(self.now.second)?;
        }
        let data =
            Data { key, left: head.len, padding: 0, ends: head.has(END_STREAM), is_padded: head.has(PADDED) };
        if data.left == 0 {
            return self.end_data(data);
        }
        self.parser.data = Some(data);
        Ok(())
    }

    /// Takes what there is of a DATA frame.
    fn take_data(&mut self, mut data: Data, rest: &mut &[u8]) -> Result<(), Broken> {
        // How much of it is here.
        let mut padding = 0;
        if data.is_padded {
            data.is_padded = false;
            data.padding = usize::from(rest[0]);
            data.left -= 1;
            *rest = &rest[1..];
            // RFC 9113 §6.1.
            if data.padding > data.left {
                return Err(rules::PADDING_TOO_LONG);
            }
            if data.padding == data.left && data.left < PADDING_MIN && !data.ends {
                // It holds no more than an empty one.
                self.floods.count(Flood::EmptyFrames, self.now.second)?;
            }
            if data.padding > data.left - data.padding {
                self.floods.is_useless(self.now.second)?;
            }
            padding = 1;
            self.received(&data, 1);
        }
        let body_left = data.left - data.padding;
        let (bytes, behind) = rest.split_at(body_left.min(rest.len()));
        *rest = behind;
        data.left -= bytes.len();
        self.received(&data, bytes.len());
        if let (Some(key), false) = (data.key, bytes.is_empty())
            && let Err(reason) = self.push_body(key, bytes)
        {
            self.provoked(key, reason)?;
            data.key = None;
        }
        if data.left == data.padding {
            let skipped = data.padding.min(rest.len());
            *rest = &rest[skipped..];
            data.padding -= skipped;
            data.left -= skipped;
            padding += skipped;
            self.received(&data, skipped);
        }
        // RFC 9113 §6.9: what nobody reads is given back at once, padding to its stream as well.
        self.give_connection();
        if let (Some(key), 1..) = (data.key, padding) {
            self.give_stream(key);
        }
        if data.left > 0 {
            self.parser.data = Some(data);
            return Ok(());
        }
        self.parser.data = None;
        self.end_data(data)
    }

    /// Subtracts received bytes from the windows.
    fn received(&mut self, data: &Data, count: usize) {
        self.receive_window -= count as i64;
        if let Some(key) = data.key {
            self.streams.change(key).receive_window -= count as i64;
        }
    }

    /// Puts bytes where they are read from; or says why the stream cannot go on.
    fn push_body(&mut self, key: Key, bytes: &[u8]) -> Result<(), Reason> {
        let stream = self.streams.change(key);
        if stream.broken.is_some() {
            return Ok(());
        }
        // RFC 9113 §8.1.1: a length that lies.
        if let Some(left) = &mut stream.content_left {
            match left.checked_sub(bytes.len() as u64) {
                Some(rest) => *left = rest,
                None => return Err(Reason::PROTOCOL_ERROR),
            }
        }
        // RFC 9113 §5.2: a peer that keeps to its windows does nothing wrong, however small its frames. Their bytes lie
        // together, so they take no more than the window; and there are no more frames than bytes in it, until it is read.
        let is_large = bytes.len() >= LARGE;
        let expected = stream.content_left.filter(|_| is_large).unwrap_or(0).min(u64::from(STREAM_WINDOW));
        stream.body.push(bytes, expected as usize);
        self.unread += bytes.len() as i64;
        self.events.push_back(Event::Readable(key));
        Ok(())
    }

    fn end_data(&mut self, data: Data) -> Result<(), Broken> {
        match data.key {
            Some(key) if data.ends => self.end_incoming(key),
            _ => Ok(()),
        }
    }

    /// The peer has said all that it wanted to on a stream.
    fn end_incoming(&mut self, key: Key) -> Result<(), Broken> {
        let stream = self.streams.change(key);
        if stream.broken.is_some() {
            return Ok(());
        }
        // RFC 9113 §8.1.1.
        if stream.content_left.is_some_and(|left| left > 0) {
            return self.provoked(key, Reason::PROTOCOL_ERROR);
        }
        if stream.framed == Framed::Chunked && stream.tail.is_empty() {
            stream.tail.extend_from_slice(b"0\r\n\r\n");
        }
        stream.incoming = Incoming::Ended;
        self.settle(key);
        self.events.push_back(Event::Readable(key));
        Ok(())
    }

    /// Handles HEADERS (RFC 9113 §6.2).
    fn headers(&mut self, head: Head, payload: &[u8]) -> Result<(), Broken> {
        let mut block = payload;
        if head.has(PADDED) {
            let (&padding, behind) = block.split_first().ok_or(rules::NO_PAD_LENGTH)?;
            let len = behind.len().checked_sub(usize::from(padding)).ok_or(rules::PADDING_TOO_LONG)?;
            block = &behind[..len];
        }
        if head.has(WITH_PRIORITY) {
            depends(head.stream, block)?;
            block = &block[5..];
        }
        if head.has(END_HEADERS) {
            return self.block(head.stream, head.has(END_STREAM), block);
        }
        self.parser.block = Some(Block {
            stream: head.stream,
            ends: head.has(END_STREAM),
            bytes: block.to_vec(),
            frames: 1,
            since: self.parser.frame_since,
        });
        Ok(())
    }

    /// Handles CONTINUATION (RFC 9113 §6.10).
    fn continuation(&mut self, head: Head, payload: &[u8]) -> Result<(), Broken> {
        let Some(block) = &mut self.parser.block else { return Ok(()) };
        block.frames += 1;
        // CVE-2024-27316: a block says more than it is long, hardly ever less.
        let limit = self.limits.head_bytes + PAYLOAD_MAX;
        if block.frames > BLOCK_FRAMES_MAX || block.bytes.len() + payload.len() > limit {
            return Err(Flood::HeaderBlock.into());
        }
        block.bytes.extend_from_slice(payload);
        if head.has(END_HEADERS)
            && let Some(block) = self.parser.block.take()
        {
            return self.block(block.stream, block.ends, &block.bytes);
        }
        Ok(())
    }

    /// Takes a whole header block. It is always decoded: later ones refer to it.
    fn block(&mut self, id: u32, ends: bool, block: &[u8]) -> Result<(), Broken> {
        self.fields.begin(self.limits.head_bytes);
        let fields = &mut self.fields;
        let decoded = self.decoder.decode(block, |name, value| fields.take(name, value));
        // RFC 9113 §4.3.
        decoded.map_err(|_| rules::UNREADABLE)?;
        if id.is_multiple_of(2) {
            return Err(rules::STREAM_NUMBER);
        }
        match self.streams.find(id) {
            Some(key) => match self.streams.at(key).incoming {
                Incoming::Ended | Incoming::Reset => Err(rules::STREAM_OVER),
                Incoming::Head | Incoming::Body if self.streams.at(key).broken.is_some() => {
                    self.is_overhead()
                }
                Incoming::Head => self.response(key, ends),
                Incoming::Body => self.trailers(key, ends),
            },
            None if id <= self.last && (self.closing.ignores(id) || self.may_still_come(id)) => {
                self.is_overhead()
            }
            None if id <= self.last => Err(rules::STREAM_OVER),
            None if self.role == Role::Client => Err(rules::UNASKED),
            None => self.request(id, ends),
        }
    }

    /// A request begins (RFC 9113 §5.1.1).
    fn request(&mut self, id: u32, ends: bool) -> Result<(), Broken> {
        self.last = id;
        if self.closing.ignores(id) {
            return self.is_overhead();
        }
        if self.open >= self.limits.streams {
            // RFC 9113 §5.1.2.
            self.push_reset(id, Reason::REFUSED_STREAM);
            let wrong = format!("more streams than the {} that may be open at once", self.limits.streams);
            self.note_refused(0, Reason::REFUSED_STREAM, wrong);
            return self.is_overhead();
        }
        let key = self.streams.add(id, self.stream_window, self.peer.stream_window);
        let stream = self.streams.change(key);
        let told = self.fields.request(ends, stream.text.tail());
        stream.incoming = if ends { Incoming::Ended } else { Incoming::Body };
        let long_head = stream.text.len().saturating_sub(self.limits.short_head_bytes);
        let long_heads = self.long_heads + long_head;
        // RFC 9113 §8.1.1: a body that is announced and does not come.
        let lies = |told: &MessageOutline| ends && told.content_length.is_some_and(|length| length > 0);
        let refusal = match told {
            Ok(told) if lies(&told) => Refusal::Malformed,
            Ok(_) if long_head > 0 && long_heads > self.limits.long_heads_bytes.max(long_head) => {
                Refusal::Later
            }
            Ok(MessageOutline { framed, content_length, .. }) => {
                stream.framed = framed;
                stream.content_left = content_length;
                stream.asks_for_upgrade = self.fields.asks_for_upgrade();
                stream.long_head = long_head;
                stream.is_counted = true;
                self.long_heads = long_heads;
                self.open += 1;
                self.floods.serves();
                self.events.push_back(Event::Opened(key));
                return Ok(());
            }
            Err(Unfit::Malformed) => Refusal::Malformed,
            Err(Unfit::TooLarge) => Refusal::Answered(&TOO_LARGE),
            Err(Unfit::Untold) => Refusal::Answered(&UNTOLD),
        };
        self.streams.remove(key);
        match refusal {
            Refusal::Malformed => {
                let is_liar = told.is_ok();
                let lie = "content-length tells of a body, and none comes (RFC 9113 §8.1.1)";
                let wrong = if is_liar { lie.to_owned() } else { self.fields.wrong() };
                self.note_refused(0, Reason::PROTOCOL_ERROR, wrong);
                return self.provoked_by_id(id, Reason::PROTOCOL_ERROR);
            }
            // It may come again.
            Refusal::Later => {
                self.push_reset(id, Reason::REFUSED_STREAM);
                let limit = self.limits.long_heads_bytes;
                let wrong = format!("the long heads of all streams are more than {limit} bytes");
                self.note_refused(0, Reason::REFUSED_STREAM, wrong);
                return self.is_overhead();
            }
            Refusal::Answered(answer) => {
                let call = self.fields.call();
                let status = self.refuse(id, answer, call.as_deref(), ends);
                let wrong = self.fields.wrong();
                self.note_refused(status, Reason::NO_ERROR, wrong);
            }
        }
        Ok(())
    }

    /// Notes a request that is refused, for whoever logs it.
    #[cold]
    fn note_refused(&mut self, status: u16, reason: Reason, wrong: String) {
        if self.refused.len() < REFUSED_MAX {
            self.refused.push(Refused {
                status,
                reason,
                is_too_large: self.fields.is_too_large(),
                wrong,
                glimpse: self.fields.glimpse(),
            });
        }
    }

    /// Releases a request that was reset before it was looked at. Its error is still logged.
    pub fn take_back(&mut self, key: Key) {
        let stream = self.streams.at(key);
        if let (Some(wrong), Some(reason)) = (&stream.wrong, stream.broken)
            && self.refused.len() < REFUSED_MAX
        {
            let Glimpse { method, target, .. } = Glimpse::of(stream.text.get());
            let glimpse = [method.to_vec(), target.to_vec(), Vec::new()];
            self.refused.push(Refused {
                status: 0,
                reason,
                is_too_large: false,
                wrong: wrong.to_string(),
                glimpse,
            });
        }
        self.release(key);
    }

    /// The head of a response.
    fn response(&mut self, key: Key, ends: bool) -> Result<(), Broken> {
        let stream = self.streams.change(key);
        match self.fields.response(ends, &stream.asked, stream.text.tail()) {
            // RFC 9113 §10.5: of interim responses a server may send any number, each of a few bytes that stand for many. What
            // nobody has read of them is no more than one head may be.
            Ok(MessageOutline { is_interim: true, .. }) if stream.text.len() > self.limits.head_bytes => {
                let limit = self.limits.head_bytes;
                let wrong = format!("interim responses are larger than limits.header_bytes, {limit} bytes");
                stream.wrong = Some(wrong.into());
                return self.provoked(key, Reason::ENHANCE_YOUR_CALM);
            }
            Ok(MessageOutline { is_interim: true, .. }) => self.events.push_back(Event::Readable(key)),
            Ok(MessageOutline { framed, content_length, .. }) => {
                stream.framed = framed;
                stream.content_left = content_length;
                stream.incoming = Incoming::Body;
                self.events.push_back(Event::Readable(key));
                if ends {
                    return self.end_incoming(key);
                }
            }
            Err(_) => {
                stream.wrong = Some(self.fields.wrong().into());
                return self.provoked(key, self.unfit_reason());
            }
        }
        Ok(())
    }

    /// The error code for resetting the stream of invalid fields. A head that is too large is no protocol error.
    fn unfit_reason(&self) -> Reason {
        if self.fields.is_too_large() { Reason::ENHANCE_YOUR_CALM } else { Reason::PROTOCOL_ERROR }
    }

    /// Handles trailers (RFC 9113 §8.1).
    fn trailers(&mut self, key: Key, ends: bool) -> Result<(), Broken> {
        let stream = self.streams.change(key);
        stream.tail.clear();
        if !ends || self.fields.trailers(&mut stream.tail).is_err() {
            let wrong = if ends {
                self.fields.wrong()
            } else {
                "a second head without the end of the stream (RFC 9113 §8.1)".to_owned()
            };
            stream.wrong = Some(format!("in the trailers: {wrong}").into());
            return self.provoked(key, self.unfit_reason());
        }
        // RFC 9113 §10.5.1: they wait for the body to be read, and count as long heads do.
        let long_tail = stream.tail.len().saturating_sub(self.limits.short_head_bytes);
        let long_heads = self.long_heads + long_tail;
        if long_tail > 0 && long_heads > self.limits.long_heads_bytes.max(stream.long_head + long_tail) {
            stream.tail = Vec::new();
            return self.provoked(key, Reason::ENHANCE_YOUR_CALM);
        }
        stream.long_head += long_tail;
        self.long_heads = long_heads;
        self.end_incoming(key)
    }

    /// Resets a stream because of the peer's error. Such resets are limited per second.
    pub(crate) fn provoked(&mut self, key: Key, reason: Reason) -> Result<(), Broken> {
        let stream = self.streams.change(key);
        let id = stream.id;
        if stream.wrong.is_none() {
            let left = stream.content_left.filter(|_| reason == Reason::PROTOCOL_ERROR);
            let wrong = match (reason, left) {
                (Reason::FLOW_CONTROL_ERROR, _) => "more than its window allows (RFC 9113 §6.9)".to_owned(),
                (_, Some(left)) => {
                    format!("content-length does not say what came: {left} bytes were left (RFC 9113 §8.1.1)")
                }
                _ => format!("the stream was reset with {reason}"),
            };
            stream.wrong = Some(wrong.into());
        }
        self.break_off(key, reason);
        self.events.push_back(Event::Reset(key));
        self.count_broken()?;
        self.provoked_by_id(id, reason)
    }

    fn provoked_by(&mut self, key: Option<Key>, reason: Reason) -> Result<(), Broken> {
        key.map_or(Ok(()), |key| self.provoked(key, reason))
    }

    fn provoked_by_id(&mut self, id: u32, reason: Reason) -> Result<(), Broken> {
        self.push_reset(id, reason);
        // RFC 9113 §5.4.2: it is an error of this stream, and others may be those of other users. What the peer makes us do so
        // is bounded over a second; what a server does wrong, by what it was asked for.
        match self.role {
            Role::Server => Ok(self.floods.count(Flood::Errors, self.now.second)?),
            Role::Client => Ok(()),
        }
    }

    /// Ends a stream early in both directions. Bytes that have arrived can still be read.
    pub(crate) fn break_off(&mut self, key: Key, reason: Reason) {
        let stream = self.streams.change(key);
        stream.broken = Some(reason);
        stream.outgoing = Outgoing::Ended;
        self.settle(key);
    }

    /// Stops counting a stream towards the limit, if the peer is done with it.
    pub(crate) fn settle(&mut self, key: Key) {
        let stream = self.streams.change(key);
        if stream.is_counted && stream.is_closed() {
            stream.is_counted = false;
            self.open -= 1;
        }
    }
}

/// Checks PRIORITY (RFC 9113 §6.3). Priorities are ignored, but must be well-formed.
fn priority(head: Head, payload: &[u8]) -> Result<(), Broken> {
    if payload.len() != 5 {
        return Err(rules::WRONG_SIZE);
    }
    depends(head.stream, payload)
}

fn depends(stream: u32, priority: &[u8]) -> Result<(), Broken> {
    if priority.len() < 5 {
        return Err(rules::WRONG_SIZE);
    }
    // RFC 7540 §5.3.1: a stream that depends on itself.
    if frame::number(priority) & frame::STREAM_MAX == stream {
        return Err(rules::DEPENDS_ON_ITSELF);
    }
    Ok(())
}
