//! Handles received frames (RFC 9113 §5, §6), even if they arrive byte by byte.

use std::fmt::Display;

use fields::answer::{FixedAnswer, TOO_LARGE, UNTOLD};
use fields::message::{Framed, MessageOutline, Unfit};

use crate::connection::{
    H2Broken, H2ErrorCause, H2Event, H2Refused, H2Role, H2StateMachine, Now, REFUSED_MAX,
};
use crate::flood::Flood;
use crate::frame::{
    self, ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, H2FrameHead, HEAD_LEN, HEADERS, PADDED,
    PAYLOAD_MAX, PING, PREFACE, PRIORITY, PUSH_PROMISE, RST_STREAM, Reason, SETTINGS, WINDOW_MAX,
    WINDOW_UPDATE, WITH_PRIORITY,
};
use crate::parser::{Data, SpannedBlock};
use crate::rules;
use crate::stream::{H2Incoming, Key, Outgoing};
use crate::windows::STREAM_WINDOW;
use http1::Glimpse;

/// From this many body bytes at once, memory is reserved for the announced rest.
// Reserving for a few bytes would give a slow sender memory for what it has only announced.
const LARGE: usize = 4096;

enum H2Refusal {
    Malformed,
    /// Too many long heads are held. The client may send the request again later.
    Later,
    Answered(&'static FixedAnswer),
}

pub const BLOCK_FRAMES_MAX: u32 = 16;
/// Shorter padding in an empty DATA frame counts as an empty frame.
const PADDING_MIN: usize = 64;
/// Memory that is kept for incomplete frames, in bytes.
const KEEP_MAX: usize = 256;

impl H2StateMachine {
    /// Processes received bytes up to the next event. Returns how many bytes were consumed. Call it until no bytes are
    /// left and there is no event: an event may remain after the last byte.
    pub fn receive(&mut self, bytes: &[u8], now: Now) -> Result<(usize, Option<H2Event>), H2Broken> {
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

    fn skip_preface(&mut self, rest: &mut &[u8]) -> Result<(), H2Broken> {
        let left = &PREFACE[PREFACE.len() - self.parser.preface_left..];
        let count = left.len().min(rest.len());
        // Compared as far as it has arrived, so that another protocol is recognized by its first bytes.
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

    /// Takes one frame, or as much of it as has arrived. Of DATA it takes only the header.
    fn take_frame(&mut self, rest: &mut &[u8]) -> Result<(), H2Broken> {
        if self.parser.held.is_empty() {
            self.parser.frame_since = self.now.tick;
            let len = match H2FrameHead::parse(rest) {
                Some(head) => self.whole_len(head)?,
                // Nothing is that long, so an incomplete header is held below.
                None => usize::MAX,
            };
            if let Some((frame, behind)) = rest.split_at_checked(len) {
                // The usual case: the frame is handled where it lies, without a copy.
                *rest = behind;
                return self.frame(frame);
            }
        }
        // The header shows how many more bytes to add.
        let mut held = std::mem::take(&mut self.parser.held);
        loop {
            let wanted = match H2FrameHead::parse(&held) {
                Some(head) => self.whole_len(head)?,
                None => HEAD_LEN,
            };
            if held.len() == wanted && wanted >= HEAD_LEN && H2FrameHead::parse(&held).is_some() {
                let outcome = self.frame(&held);
                held.clear();
                // An idle connection must not keep the memory of its largest frame.
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

    /// Records the frame that caused the connection error, and the broken rule.
    #[cold]
    fn offended(&mut self, broken: H2Broken, by: impl Display) -> H2Broken {
        self.offence = Some(match broken.cause {
            H2ErrorCause::Malformed(rule) => format!("{by}: {rule}").into(),
            H2ErrorCause::Late | H2ErrorCause::Flood(_) => by.to_string().into(),
        });
        broken
    }

    /// Counts a frame that carries nothing as overhead. Only clients are limited.
    fn is_overhead(&mut self) -> Result<(), H2Broken> {
        Ok(self.floods.overhead(1, self.now.second)?)
    }

    /// The length up to which a frame is taken as a whole: all of it, or only the header of DATA.
    fn whole_len(&mut self, head: H2FrameHead) -> Result<usize, H2Broken> {
        // RFC 9113 §4.2.
        if head.len > PAYLOAD_MAX {
            return Err(self.offended(rules::TOO_LONG, head));
        }
        Ok(if head.kind == DATA { HEAD_LEN } else { HEAD_LEN + head.len })
    }

    /// Handles a whole frame, or the header of DATA.
    fn frame(&mut self, frame: &[u8]) -> Result<(), H2Broken> {
        let Some(head) = H2FrameHead::parse(frame) else { return Ok(()) };
        self.framed(head, &frame[HEAD_LEN..]).map_err(|broken| self.offended(broken, head))
    }

    fn framed(&mut self, head: H2FrameHead, payload: &[u8]) -> Result<(), H2Broken> {
        // RFC 9113 §3.4, §6.2: SETTINGS comes first, and no other frame between those of a header block.
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
            // RFC 9113 §8.4: our settings disable push, and clients must not push.
            PUSH_PROMISE => Err(rules::PUSHED),
            PING => self.ping(head, payload),
            GOAWAY => self.going_away(payload),
            WINDOW_UPDATE => self.window_update(head, payload),
            // RFC 9113 §5.5.
            _ => Ok(()),
        }
    }

    /// Handles SETTINGS (RFC 9113 §6.5).
    fn settings(&mut self, head: H2FrameHead, payload: &[u8]) -> Result<(), H2Broken> {
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
        // RFC 9113 §6.5.3: the acknowledgment follows the change, so that the peer knows from where on it holds.
        self.set(payload)?;
        frame::push(self.out(), SETTINGS, ACK, 0, b"");
        Ok(())
    }

    /// Handles PING (RFC 9113 §6.7).
    fn ping(&mut self, head: H2FrameHead, payload: &[u8]) -> Result<(), H2Broken> {
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
    fn going_away(&mut self, payload: &[u8]) -> Result<(), H2Broken> {
        if payload.len() < 8 {
            return Err(rules::WRONG_SIZE);
        }
        let last = frame::number(payload) & frame::STREAM_MAX;
        let reason = Reason(frame::number(&payload[4..]));
        self.is_going_away = true;
        if self.role == H2Role::Client {
            // Requests that the peer has not seen may be sent elsewhere. After an error, the other responses will not
            // be completed.
            let unseen = |id: u32| id > last;
            let gone: Vec<(Key, Reason)> = self
                .streams
                .named()
                .filter(|(_, stream)| !stream.is_closed())
                .filter_map(|(key, stream)| match (unseen(stream.id), reason) {
                    (true, _) => Some((key, Reason::REFUSED_STREAM)),
                    // RFC 9113 §6.8: the peer still completes the streams up to its last one.
                    (false, Reason::NO_ERROR) => None,
                    (false, reason) => Some((key, reason)),
                })
                .collect();
            for (key, reason) in gone {
                self.break_off(key, reason);
                self.events.push_back(H2Event::Reset(key));
            }
        }
        self.events.push_back(H2Event::GoingAway);
        Ok(())
    }

    /// Handles WINDOW_UPDATE (RFC 9113 §6.9).
    fn window_update(&mut self, head: H2FrameHead, payload: &[u8]) -> Result<(), H2Broken> {
        if payload.len() != 4 {
            return Err(rules::WRONG_SIZE);
        }
        let increment = i64::from(frame::number(payload) & frame::STREAM_MAX);
        // RFC 9113 §6.9 asks for a stream error only. §5.4.1 permits to end the connection for any stream error.
        if increment == 0 {
            return Err(rules::NO_INCREMENT);
        }
        if head.stream == 0 {
            self.send_window += increment;
            if self.send_window > WINDOW_MAX {
                return Err(rules::WINDOW_OVERFLOW);
            }
            self.events.push_back(H2Event::Room);
            return Ok(());
        }
        let Some(key) = self.known(head.stream)? else { return Ok(()) };
        let stream = self.streams.change(key);
        stream.send_window += increment;
        if stream.send_window > WINDOW_MAX {
            // RFC 9113 §6.9.1: resetting the stream is enough, and spares the other streams.
            return self.provoked(key, Reason::FLOW_CONTROL_ERROR);
        }
        self.events.push_back(H2Event::Writable(key));
        Ok(())
    }

    /// Handles RST_STREAM (RFC 9113 §6.4).
    fn reset_received(&mut self, head: H2FrameHead, payload: &[u8]) -> Result<(), H2Broken> {
        if payload.len() != 4 {
            return Err(rules::WRONG_SIZE);
        }
        let key = self.known(head.stream)?;
        // A server resets only streams that we opened. A reset after the response has begun is no rapid reset.
        let is_early = key.is_none_or(|key| self.streams.at(key).outgoing == Outgoing::Head);
        if self.role == H2Role::Server && is_early {
            self.floods.count(Flood::Resets, self.now.second)?;
        }
        let Some(key) = key else { return Ok(()) };
        // The stream was already reset, so the frame carries nothing.
        if self.streams.at(key).broken.is_some() {
            self.is_overhead()?;
        }
        self.break_off(key, Reason(frame::number(payload)));
        let incoming = &mut self.streams.change(key).incoming;
        // RFC 9113 §8.1: a message that was complete before the reset is kept.
        if *incoming != H2Incoming::Ended {
            *incoming = H2Incoming::Reset;
        }
        self.events.push_back(H2Event::Reset(key));
        self.count_broken()
    }

    /// Limits reset streams that the caller has not released yet; they no longer count as open. A client may reset all
    /// open streams at once (RFC 9113 §5.4.2), and as many again before the caller releases the first.
    fn count_broken(&mut self) -> Result<(), H2Broken> {
        if self.role == H2Role::Client {
            return Ok(());
        }
        let broken = self.streams.named().filter(|(_, stream)| stream.broken.is_some()).count();
        if broken > 2 * self.limits.streams as usize { Err(Flood::ResetStreams.into()) } else { Ok(()) }
    }

    /// The stream with this number. `None` if it has ended; an error if it was never opened (RFC 9113 §5.1).
    fn known(&self, id: u32) -> Result<Option<Key>, H2Broken> {
        let is_ours = id % 2 == 1;
        if !is_ours || id > self.last {
            return Err(rules::STREAM_IDLE);
        }
        Ok(self.streams.find(id))
    }

    /// Whether the peer may have sent a frame on an ended stream before it knew of the end; such frames are ignored
    /// (RFC 9113 §5.1). Always assumed for a server, because its connection carries streams of many clients. The
    /// frames' bytes still count towards the connection window.
    fn may_still_come(&self, id: u32) -> bool {
        self.role == H2Role::Client || self.streams.may_have_been_reset(id)
    }

    /// RFC 9113 §6.1: handles the header of a DATA frame.
    fn begin_data(&mut self, head: H2FrameHead) -> Result<(), H2Broken> {
        // RFC 9113 §6.9: dropped bytes count as well.
        if head.len as i64 > self.receive_window {
            return Err(rules::WINDOW_EXCEEDED);
        }
        if head.has(PADDED) && head.len == 0 {
            return Err(rules::NO_PAD_LENGTH);
        }
        let mut key = self.known(head.stream)?;
        match key.map(|key| self.streams.at(key)) {
            // RFC 9113 §6.8: the bytes still count towards the connection window.
            None if self.closing.ignores(head.stream) => {}
            Some(stream) if stream.incoming.is_closed() => return Err(rules::STREAM_OVER),
            Some(stream) if stream.broken.is_some() => key = None,
            Some(stream) if stream.incoming == H2Incoming::Body => {
                // RFC 9113 §6.9.1: an empty final frame needs no window, which may be negative (§6.9.2).
                if head.len > 0 && head.len as i64 > stream.receive_window {
                    self.provoked_by(key, Reason::FLOW_CONTROL_ERROR)?;
                    key = None;
                }
            }
            Some(_) => return Err(rules::NO_HEAD),
            None if self.may_still_come(head.stream) => {}
            None => return Err(rules::STREAM_OVER),
        }
        // Bytes for an ended stream cost the sender nothing: the connection's window is refilled at once.
        if key.is_none() {
            self.floods.is_useless(self.now.second)?;
        }
        let data =
            Data { key, left: head.len, padding: 0, ends: head.has(END_STREAM), is_padded: head.has(PADDED) };
        // No payload follows that could end this frame.
        if data.left == 0 {
            return self.end_data(data);
        }
        self.parser.data = Some(data);
        Ok(())
    }

    /// Takes the bytes of a DATA frame that have arrived.
    fn take_data(&mut self, mut data: Data, rest: &mut &[u8]) -> Result<(), H2Broken> {
        // The part that has arrived.
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
                // A frame with only padding carries no more than an empty one.
                self.floods.count(Flood::EmptyFrames, self.now.second)?;
            }
            // A frame that is mostly padding takes work and moves little.
            if data.padding > data.left - data.padding {
                self.floods.is_useless(self.now.second)?;
            }
            // RFC 9113 §6.1: the length of the padding counts towards the windows, too.
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
        // RFC 9113 §6.9: bytes that are never read are given back at once; the stream gets its padding back, too.
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

    fn received(&mut self, data: &Data, count: usize) {
        self.receive_window -= count as i64;
        if let Some(key) = data.key {
            self.streams.change(key).receive_window -= count as i64;
        }
    }

    /// Appends body bytes for the reader. The error is the code with which to reset the stream.
    fn push_body(&mut self, key: Key, bytes: &[u8]) -> Result<(), Reason> {
        let stream = self.streams.change(key);
        if stream.broken.is_some() {
            return Ok(());
        }
        // RFC 9113 §8.1.1: more bytes than Content-Length announced.
        if let Some(left) = &mut stream.content_left {
            match left.checked_sub(bytes.len() as u64) {
                Some(rest) => *left = rest,
                None => {
                    stream.wrong = Some("the body is longer than content-length (RFC 9113 §8.1.1)".into());
                    return Err(Reason::PROTOCOL_ERROR);
                }
            }
        }
        // RFC 9113 §5.2: small frames within the window break no rule. Their bytes are stored contiguously, so they
        // take no more memory than the window; the window also limits the number of unread frames.
        let is_large = bytes.len() >= LARGE;
        let expected = stream.content_left.filter(|_| is_large).unwrap_or(0).min(u64::from(STREAM_WINDOW));
        let more_max = usize::try_from(stream.receive_window).unwrap_or(0);
        stream.body.push(bytes, expected as usize, more_max);
        self.unread += bytes.len() as i64;
        self.events.push_back(H2Event::Readable(key));
        Ok(())
    }

    fn end_data(&mut self, data: Data) -> Result<(), H2Broken> {
        match data.key {
            Some(key) if data.ends => self.end_incoming(key),
            _ => Ok(()),
        }
    }

    /// Handles the end of the peer's message on a stream.
    fn end_incoming(&mut self, key: Key) -> Result<(), H2Broken> {
        let stream = self.streams.change(key);
        if stream.broken.is_some() {
            return Ok(());
        }
        // RFC 9113 §8.1.1.
        if let Some(left @ 1..) = stream.content_left {
            let wrong = format!("the body is {left} bytes shorter than content-length (RFC 9113 §8.1.1)");
            stream.wrong = Some(wrong.into());
            return self.provoked(key, Reason::PROTOCOL_ERROR);
        }
        // The path reads the body as chunks, so it needs their end even if there are no trailers.
        if stream.framed == Framed::Chunked && stream.tail.is_empty() {
            stream.tail.extend_from_slice(b"0\r\n\r\n");
        }
        stream.incoming = H2Incoming::Ended;
        self.settle(key);
        self.events.push_back(H2Event::Readable(key));
        Ok(())
    }

    /// Handles HEADERS (RFC 9113 §6.2).
    fn headers(&mut self, head: H2FrameHead, payload: &[u8]) -> Result<(), H2Broken> {
        let mut block = payload;
        if head.has(PADDED) {
            let (&padding, behind) = block.split_first().ok_or(rules::NO_PAD_LENGTH)?;
            let len = behind.len().checked_sub(usize::from(padding)).ok_or(rules::PADDING_TOO_LONG)?;
            block = &behind[..len];
        }
        if head.has(WITH_PRIORITY) {
            // RFC 9113 §5.3.2: the scheme of priorities is obsolete, so a valid one is skipped.
            depends(head.stream, block)?;
            block = &block[5..];
        }
        if head.has(END_HEADERS) {
            return self.block(head.stream, head.has(END_STREAM), block);
        }
        self.parser.block = Some(SpannedBlock {
            stream: head.stream,
            ends: head.has(END_STREAM),
            // Only a block of several frames is copied.
            bytes: block.to_vec(),
            frames: 1,
            since: self.parser.frame_since,
        });
        Ok(())
    }

    /// Handles CONTINUATION (RFC 9113 §6.10).
    fn continuation(&mut self, head: H2FrameHead, payload: &[u8]) -> Result<(), H2Broken> {
        let Some(block) = &mut self.parser.block else { return Ok(()) };
        block.frames += 1;
        // CVE-2024-27316: fields are rarely smaller than their encoded block, so this limit suffices.
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

    /// Handles a whole header block. It is always decoded, because later blocks refer to it.
    fn block(&mut self, id: u32, ends: bool, block: &[u8]) -> Result<(), H2Broken> {
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
                H2Incoming::Ended | H2Incoming::Reset => Err(rules::STREAM_OVER),
                H2Incoming::Head | H2Incoming::Body if self.streams.at(key).broken.is_some() => {
                    self.is_overhead()
                }
                H2Incoming::Head => self.response(key, ends),
                H2Incoming::Body => self.trailers(key, ends),
            },
            None if id <= self.last && (self.closing.ignores(id) || self.may_still_come(id)) => {
                self.is_overhead()
            }
            None if id <= self.last => Err(rules::STREAM_OVER),
            None if self.role == H2Role::Client => Err(rules::UNASKED),
            None => self.request(id, ends),
        }
    }

    /// Handles a new request (RFC 9113 §5.1.1).
    fn request(&mut self, id: u32, ends: bool) -> Result<(), H2Broken> {
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
        stream.incoming = if ends { H2Incoming::Ended } else { H2Incoming::Body };
        let long_head = stream.text.len().saturating_sub(self.limits.short_head_bytes);
        let long_heads = self.long_heads + long_head;
        // RFC 9113 §8.1.1: Content-Length announces a body, but the stream has ended.
        let lies = |told: &MessageOutline| ends && told.content_length.is_some_and(|length| length > 0);
        let refusal = match told {
            Ok(told) if lies(&told) => H2Refusal::Malformed,
            // A head that alone exceeds the limit is accepted if no other long head is held.
            Ok(_) if long_head > 0 && long_heads > self.limits.long_heads_bytes.max(long_head) => {
                H2Refusal::Later
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
                self.events.push_back(H2Event::Opened(key));
                return Ok(());
            }
            Err(Unfit::Malformed) => H2Refusal::Malformed,
            Err(Unfit::TooLarge) => H2Refusal::Answered(&TOO_LARGE),
            Err(Unfit::Untold) => H2Refusal::Answered(&UNTOLD),
        };
        self.streams.remove(key);
        match refusal {
            H2Refusal::Malformed => {
                let is_liar = told.is_ok();
                let lie = "content-length announces a body, but none follows (RFC 9113 §8.1.1)";
                let wrong = if is_liar { lie.to_owned() } else { self.fields.wrong() };
                self.note_refused(0, Reason::PROTOCOL_ERROR, wrong);
                return self.provoked_by_id(id, Reason::PROTOCOL_ERROR);
            }
            // The client may send it again.
            H2Refusal::Later => {
                self.push_reset(id, Reason::REFUSED_STREAM);
                let limit = self.limits.long_heads_bytes;
                let wrong = format!("the long heads of all streams are more than {limit} bytes");
                self.note_refused(0, Reason::REFUSED_STREAM, wrong);
                return self.is_overhead();
            }
            H2Refusal::Answered(answer) => {
                let call = self.fields.call();
                let status = self.refuse(id, answer, call.as_deref(), ends);
                let wrong = self.fields.wrong();
                self.note_refused(status, Reason::NO_ERROR, wrong);
            }
        }
        Ok(())
    }

    /// Keeps a rejected request for the log.
    #[cold]
    fn note_refused(&mut self, status: u16, reason: Reason, wrong: String) {
        if self.refused.len() < REFUSED_MAX {
            self.refused.push(H2Refused {
                status,
                reason,
                is_too_large: self.fields.is_too_large(),
                wrong,
                glimpse: self.fields.glimpse(),
            });
        }
    }

    /// Releases a request that was reset before the caller handled it. Its error is still logged.
    pub fn take_back(&mut self, key: Key) {
        let stream = self.streams.at(key);
        if let (Some(wrong), Some(reason)) = (&stream.wrong, stream.broken)
            && self.refused.len() < REFUSED_MAX
        {
            let Glimpse { method, target, .. } = Glimpse::from_bytes(stream.text.get());
            let glimpse = [method.to_vec(), target.to_vec(), Vec::new()];
            self.refused.push(H2Refused {
                status: 0,
                reason,
                is_too_large: reason == Reason::ENHANCE_YOUR_CALM,
                wrong: wrong.to_string(),
                glimpse,
            });
        }
        self.release(key);
    }

    fn response(&mut self, key: Key, ends: bool) -> Result<(), H2Broken> {
        let stream = self.streams.change(key);
        match self.fields.response(ends, &stream.asked, stream.text.tail()) {
            // RFC 9113 §10.5: a server may send any number of interim responses, and a few bytes can expand to many.
            // Unread interim responses are limited to the size of one head.
            Ok(MessageOutline { is_interim: true, .. }) if stream.text.len() > self.limits.head_bytes => {
                let limit = self.limits.head_bytes;
                let wrong = format!("interim responses are larger than limits.header_bytes, {limit} bytes");
                stream.wrong = Some(wrong.into());
                return self.provoked(key, Reason::ENHANCE_YOUR_CALM);
            }
            Ok(MessageOutline { is_interim: true, .. }) => self.events.push_back(H2Event::Readable(key)),
            Ok(MessageOutline { framed, content_length, .. }) => {
                stream.framed = framed;
                stream.content_left = content_length;
                stream.incoming = H2Incoming::Body;
                self.events.push_back(H2Event::Readable(key));
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

    /// The error code for resetting a stream with invalid fields. A head that is too large is no protocol error.
    fn unfit_reason(&self) -> Reason {
        if self.fields.is_too_large() { Reason::ENHANCE_YOUR_CALM } else { Reason::PROTOCOL_ERROR }
    }

    /// Handles trailers (RFC 9113 §8.1).
    fn trailers(&mut self, key: Key, ends: bool) -> Result<(), H2Broken> {
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
        // RFC 9113 §10.5.1: trailers are held until the body is read, so they count like long heads.
        let long_tail = stream.tail.len().saturating_sub(self.limits.short_head_bytes);
        let long_heads = self.long_heads + long_tail;
        // As for heads: the limit does not reject a stream that is the only long one.
        if long_tail > 0 && long_heads > self.limits.long_heads_bytes.max(stream.long_head + long_tail) {
            stream.tail = Vec::new();
            let limit = self.limits.long_heads_bytes;
            stream.wrong = Some(format!("the long heads of all streams are more than {limit} bytes").into());
            return self.provoked(key, Reason::ENHANCE_YOUR_CALM);
        }
        stream.long_head += long_tail;
        self.long_heads = long_heads;
        self.end_incoming(key)
    }

    /// Resets a stream because of the peer's error. Such resets are limited per second.
    pub(crate) fn provoked(&mut self, key: Key, reason: Reason) -> Result<(), H2Broken> {
        let stream = self.streams.change(key);
        let id = stream.id;
        if stream.wrong.is_none() {
            let wrong = match reason {
                Reason::FLOW_CONTROL_ERROR => "more than its window allows (RFC 9113 §6.9)".to_owned(),
                _ => format!("the stream was reset with {reason}"),
            };
            stream.wrong = Some(wrong.into());
        }
        self.break_off(key, reason);
        self.events.push_back(H2Event::Reset(key));
        self.count_broken()?;
        self.provoked_by_id(id, reason)
    }

    fn provoked_by(&mut self, key: Option<Key>, reason: Reason) -> Result<(), H2Broken> {
        key.map_or(Ok(()), |key| self.provoked(key, reason))
    }

    fn provoked_by_id(&mut self, id: u32, reason: Reason) -> Result<(), H2Broken> {
        self.push_reset(id, reason);
        // RFC 9113 §5.4.2: this is a stream error; other streams may belong to other users. Resets that a client
        // provokes are limited per second; our requests limit those that a server provokes.
        match self.role {
            H2Role::Server => Ok(self.floods.count(Flood::Errors, self.now.second)?),
            H2Role::Client => Ok(()),
        }
    }

    /// Ends a stream early in both directions. Bytes that have arrived can still be read.
    pub(crate) fn break_off(&mut self, key: Key, reason: Reason) {
        let stream = self.streams.change(key);
        stream.broken = Some(reason);
        stream.outgoing = Outgoing::Ended;
        self.settle(key);
    }

    /// Stops counting a stream towards the limit once both ends have closed it.
    pub(crate) fn settle(&mut self, key: Key) {
        let stream = self.streams.change(key);
        if stream.is_counted && stream.is_closed() {
            stream.is_counted = false;
            self.open -= 1;
        }
    }
}

/// Checks PRIORITY (RFC 9113 §6.3). Priorities are ignored, but must be well-formed.
fn priority(head: H2FrameHead, payload: &[u8]) -> Result<(), H2Broken> {
    if payload.len() != 5 {
        return Err(rules::WRONG_SIZE);
    }
    depends(head.stream, payload)
}

fn depends(stream: u32, priority: &[u8]) -> Result<(), H2Broken> {
    if priority.len() < 5 {
        return Err(rules::WRONG_SIZE);
    }
    // RFC 7540 §5.3.1: a stream that depends on itself.
    if frame::number(priority) & frame::STREAM_MAX == stream {
        return Err(rules::DEPENDS_ON_ITSELF);
    }
    Ok(())
}
