//! Handles what is received on the streams of requests (RFC 9114 §4.1, §7), also if it arrives byte by byte.

use std::fmt::Display;

use fields::answer::{Answer, TOO_LARGE, UNTOLD};
use fields::compose::Encode;
use fields::message::{Framed, MessageOutline, RequestKind, Unfit, rarely_has_body, take_back_body};
use http1::Glimpse;

use crate::code::Code;
use crate::connection::{
    Broken, Connection, Event, Now, Order, REFUSED_MAX, Refused, Role, StreamId, is_unidirectional,
};
use crate::decode::Decoded;
use crate::flood::Flood;
use crate::frame::{self, DATA, HEADERS, Head, PUSH_PROMISE};
use crate::priority::Priority;
use crate::rules;
use crate::stream::{Holder, Incoming, Key, Outgoing, Payload};

/// What happens to a rejected request.
enum Refusal {
    Malformed(String),
    /// The request is rejected because of too many long heads; it may be sent again later.
    Later,
    Answered(&'static Answer),
}

impl Connection {
    /// Takes bytes of a stream, which ends with them if `is_last`: no more than are wanted of it. A request whose end is not
    /// known to have come is read as one with a body, so it is worth looking for the end behind bytes first.
    ///
    /// # Errors
    /// If the connection has to end.
    pub fn receive(&mut self, id: StreamId, bytes: &[u8], is_last: bool, now: Now) -> Result<(), Broken> {
        self.now = now;
        if is_unidirectional(id) {
            return self.receive_unidirectional(id, bytes, is_last);
        }
        match self.streams.find(id) {
            Some(key) => self.take(key, bytes, is_last),
            None => Ok(()),
        }
    }

    /// Notes that the peer has ended a stream early (RESET_STREAM).
    ///
    /// # Errors
    /// If the connection has to end.
    pub fn reset_received(&mut self, id: StreamId, code: Code, now: Now) -> Result<(), Broken> {
        self.now = now;
        if is_unidirectional(id) {
            return self.unidirectional_closed(id);
        }
        let key = self.streams.find(id).filter(|&key| !self.streams.at(key).is_deaf());
        key.map_or(Ok(()), |key| self.cancelled(key, code))
    }

    /// Notes that the peer reads no more of a stream (STOP_SENDING).
    ///
    /// # Errors
    /// If the connection has to end.
    pub fn stop_received(&mut self, id: StreamId, code: Code, now: Now) -> Result<(), Broken> {
        self.now = now;
        if is_unidirectional(id) {
            return self.unidirectional_closed(id);
        }
        let Some(key) = self.streams.find(id) else { return Ok(()) };
        let stream = self.streams.change(key);
        if stream.broken.is_some() {
            return Ok(());
        }
        if stream.outgoing == Outgoing::Finished {
            // What the transport has taken need not arrive.
            self.orders.push_back(Order::Reset(id, code));
            return Ok(());
        }
        if self.role == Role::Client && code == Code::NO_ERROR {
            // RFC 9114 §4.1: a response that is whole needs no more of its request.
            stream.outgoing = Outgoing::Finished;
            stream.out.clear();
            self.orders.push_back(Order::Reset(id, Code::NO_ERROR));
            return Ok(());
        }
        self.cancelled(key, code)
    }

    /// The peer has cancelled a request or its response.
    fn cancelled(&mut self, key: Key, code: Code) -> Result<(), Broken> {
        let stream = self.streams.at(key);
        let (id, holder) = (stream.id, stream.holder);
        // A server cancels what we asked of it, and a response that has begun was worth its request.
        let is_early = stream.outgoing == Outgoing::Head;
        self.break_off(key, code);
        match holder {
            Holder::Path => self.events.push_back(Event::Reset(key)),
            Holder::Nobody | Holder::Rest => self.drop_stream(key),
        }
        if is_early && self.role == Role::Server {
            let counted = self.floods.count(Flood::Resets, 1, self.now.second);
            counted.map_err(|flood| self.offended(flood.into(), format!("the end of stream {id}")))?;
        }
        Ok(())
    }

    /// Takes bytes of a request's stream.
    fn take(&mut self, key: Key, bytes: &[u8], is_last: bool) -> Result<(), Broken> {
        let mut rest = bytes;
        loop {
            let stream = self.streams.change(key);
            if stream.is_deaf() {
                return Ok(());
            }
            if stream.blocked.is_some() {
                stream.behind.extend_from_slice(rest);
                stream.has_end_behind |= is_last;
                return Ok(());
            }
            if rest.is_empty() {
                break;
            }
            match stream.payload {
                Payload::None => {
                    let Some(head) = stream.frame_head.take(&mut rest, Head::parse) else { break };
                    let ends = is_last && rest.is_empty();
                    self.begin_frame_in(key, head, ends)
                        .map_err(|broken| self.offended_by(broken, head, key))?;
                }
                Payload::Data(left) => {
                    let bytes = split(&mut rest, left);
                    stream.payload = Payload::Data(left - bytes.len() as u64);
                    if left == bytes.len() as u64 {
                        stream.payload = Payload::None;
                    }
                    self.push_body(key, bytes).map_err(|broken| self.offended_by(broken, "DATA", key))?;
                }
                Payload::Section(left) => {
                    let bytes = split(&mut rest, left);
                    stream.section.extend_from_slice(bytes);
                    if left > bytes.len() as u64 {
                        stream.payload = Payload::Section(left - bytes.len() as u64);
                        continue;
                    }
                    stream.payload = Payload::None;
                    let ends = is_last && rest.is_empty();
                    self.section(key, ends).map_err(|broken| self.offended_by(broken, "HEADERS", key))?;
                }
                Payload::Skipped(left) => {
                    let count = split(&mut rest, left).len() as u64;
                    stream.payload =
                        if count < left { Payload::Skipped(left - count) } else { Payload::None };
                }
            }
        }
        if is_last {
            self.end_incoming(key).map_err(|broken| self.offended_by(broken, "an end", key))
        } else {
            Ok(())
        }
    }

    fn offended_by(&mut self, broken: Broken, by: impl Display, key: Key) -> Broken {
        let id = self.streams.at(key).id;
        self.offended(broken, format!("{by} on stream {id}"))
    }

    /// A frame begins. `ends` says whether the stream ends with its header.
    fn begin_frame_in(&mut self, key: Key, head: Head, ends: bool) -> Result<(), Broken> {
        let is_tunnel = self.is_tunnel(key);
        let stream = self.streams.change(key);
        if head.is_of_http2() {
            return Err(rules::OF_HTTP2);
        }
        if head.is_of_control() {
            return Err(rules::NOT_ON_REQUEST);
        }
        match head.kind {
            DATA if stream.incoming != Incoming::Body => Err(rules::NOT_IN_TURN),
            // Some send the end of a message in an empty frame: once for each stream.
            DATA if head.len == 0 && ends => Ok(()),
            DATA if head.len == 0 => Ok(self.floods.count(Flood::EmptyFrames, 1, self.now.second)?),
            DATA => {
                stream.payload = Payload::Data(head.len);
                self.pass_on_held(key);
                Ok(())
            }
            HEADERS if stream.incoming == Incoming::End => Err(rules::NOT_IN_TURN),
            // RFC 9114 §4.4.
            HEADERS if stream.incoming == Incoming::Body && is_tunnel => Err(rules::NOT_IN_TUNNEL),
            HEADERS if head.len > self.limits.head_bytes as u64 => self.section_too_large(key, head),
            HEADERS if head.len == 0 => self.section(key, ends),
            HEADERS => self.begin_headers(key, head.len as usize),
            PUSH_PROMISE if self.role == Role::Server => Err(rules::NOT_FROM_THIS_SIDE),
            PUSH_PROMISE => Err(rules::PUSHED),
            // RFC 9114 §7.2.8, §9.
            _ => {
                if head.len > 0 {
                    stream.payload = Payload::Skipped(head.len);
                }
                self.is_overhead()
            }
        }
    }

    /// Whether a stream carries another protocol.
    fn is_tunnel(&self, key: Key) -> bool {
        let stream = self.streams.at(key);
        match self.role {
            Role::Server => stream.asks_for_upgrade,
            Role::Client => {
                matches!(stream.asked, RequestKind::Upgrade { .. }) && stream.framed == Framed::Raw
            }
        }
    }

    /// A field section that is longer than its fields may be (RFC 9114 §4.2.2). It is not read.
    #[cold]
    fn section_too_large(&mut self, key: Key, head: Head) -> Result<(), Broken> {
        let limit = self.limits.head_bytes;
        let wrong =
            format!("a field section of {} bytes is more than limits.header_bytes, {limit} bytes", head.len);
        self.fields.begin(0);
        if self.streams.at(key).holder != Holder::Nobody {
            return self.provoked(key, Code::EXCESSIVE_LOAD, wrong);
        }
        self.refuse(key, &TOO_LARGE, None, wrong);
        Ok(())
    }

    /// A field section begins. Those that have not come, or are blocked, are bounded together.
    fn begin_headers(&mut self, key: Key, len: usize) -> Result<(), Broken> {
        let limit = self.limits.long_heads_bytes;
        if self.sections + len > limit.max(len) {
            let wrong = format!("the heads of all streams that have not come are more than {limit} bytes");
            self.give_up(key, Code::REQUEST_REJECTED, wrong);
            return self.is_overhead();
        }
        self.sections += len;
        let stream = self.streams.change(key);
        stream.payload = Payload::Section(len as u64);
        stream.section_len = len;
        Ok(())
    }

    /// A whole field section has come, and the stream ends behind it if `ends`.
    fn section(&mut self, key: Key, ends: bool) -> Result<(), Broken> {
        let mut section = std::mem::take(&mut self.streams.change(key).section);
        let id = self.streams.at(key).id;
        self.fields.begin(self.limits.head_bytes);
        let (fields, mut priority) = (&mut self.fields, None);
        let decoded = self.decoder.decode(id, &section, |name, value| {
            if name == b"priority" {
                priority = Some(Priority::parse(value));
            }
            fields.take(name, value);
        });
        match decoded.map_err(|_| rules::UNREADABLE)? {
            Decoded::Whole => {}
            Decoded::Blocked(required) => return self.block(key, section, required),
        }
        section.clear();
        let stream = self.streams.change(key);
        self.sections -= std::mem::take(&mut stream.section_len);
        stream.section = section;
        if let Some(priority) = priority.filter(|_| !stream.is_priority_updated) {
            stream.priority = priority;
        }
        match (stream.incoming, self.role) {
            (Incoming::Head, Role::Server) => self.request(key, ends),
            (Incoming::Head, Role::Client) => self.response(key, ends),
            _ => self.trailers(key),
        }
    }

    /// A section waits for insertions (RFC 9204 §2.1.2).
    fn block(&mut self, key: Key, section: Vec<u8>, required: u64) -> Result<(), Broken> {
        let stream = self.streams.change(key);
        (stream.section, stream.blocked) = (section, Some(required));
        let blocked = self.streams.all().filter(|(_, stream)| stream.blocked.is_some()).count();
        if blocked > self.limits.blocked_streams {
            return Err(rules::TOO_MANY_BLOCKED);
        }
        Ok(())
    }

    /// Goes on with a stream whose section can be decoded.
    pub(crate) fn unblock_stream(&mut self, key: Key) -> Result<(), Broken> {
        let stream = self.streams.change(key);
        stream.blocked = None;
        let behind = std::mem::take(&mut stream.behind);
        let has_end = std::mem::take(&mut stream.has_end_behind);
        self.section(key, has_end && behind.is_empty())
            .map_err(|broken| self.offended_by(broken, "HEADERS", key))?;
        self.take(key, &behind, has_end)?;
        self.want_again(key);
        Ok(())
    }

    /// A request has come (RFC 9114 §4.3.1).
    fn request(&mut self, key: Key, ends: bool) -> Result<(), Broken> {
        let stream = self.streams.change(key);
        let told = self.fields.request(ends, stream.text.tail());
        let long_head = stream.text.len().saturating_sub(self.limits.short_head_bytes);
        let long_heads = self.long_heads + long_head;
        // RFC 9114 §4.1.2: a body that is announced and does not come.
        let lies = |told: &MessageOutline| ends && told.content_length.is_some_and(|length| length > 0);
        let refusal = match told {
            Ok(told) if lies(&told) => Refusal::Malformed(
                "content-length tells of a body, and none comes (RFC 9114 §4.1.2)".to_owned(),
            ),
            Ok(_) if long_head > 0 && long_heads > self.limits.long_heads_bytes.max(long_head) => {
                Refusal::Later
            }
            Ok(MessageOutline { framed, content_length, .. }) => {
                (stream.framed, stream.content_left) = (framed, content_length);
                stream.asks_for_upgrade = self.fields.asks_for_upgrade();
                stream.long_head = long_head;
                stream.incoming = Incoming::Body;
                self.long_heads = long_heads;
                if framed == Framed::Chunked && rarely_has_body(stream.text.get()) {
                    stream.awaits_end = true;
                    self.events.push_back(Event::AwaitsEnd);
                } else {
                    self.pass_on(key);
                }
                return Ok(());
            }
            Err(Unfit::Malformed) => Refusal::Malformed(self.fields.wrong()),
            Err(Unfit::TooLarge) => Refusal::Answered(&TOO_LARGE),
            Err(Unfit::Untold) => Refusal::Answered(&UNTOLD),
        };
        match refusal {
            Refusal::Malformed(wrong) => {
                self.give_up(key, Code::MESSAGE_ERROR, wrong);
                Ok(self.floods.count(Flood::Errors, 1, self.now.second)?)
            }
            Refusal::Later => {
                let limit = self.limits.long_heads_bytes;
                let wrong = format!("the long heads of all streams are more than {limit} bytes");
                self.give_up(key, Code::REQUEST_REJECTED, wrong);
                self.is_overhead()
            }
            Refusal::Answered(answer) => {
                let (call, wrong) = (self.fields.call(), self.fields.wrong());
                self.refuse(key, answer, call.as_deref(), wrong);
                Ok(())
            }
        }
    }

    /// Passes on a request.
    pub(crate) fn pass_on(&mut self, key: Key) {
        self.streams.change(key).holder = Holder::Path;
        self.headless -= 1;
        self.events.push_back(Event::Opened(key));
    }

    /// Passes on a request that was held back, since its end has not come and something else has.
    fn pass_on_held(&mut self, key: Key) {
        if self.streams.at(key).is_held_for_end() {
            self.pass_on(key);
        }
    }

    /// Resets a stream whose request was not passed on. One that was is reset for its holder to see.
    fn give_up(&mut self, key: Key, code: Code, wrong: String) {
        self.break_off(key, code);
        if self.streams.at(key).holder == Holder::Nobody {
            self.note_refused(0, code, wrong);
            self.streams.change(key).holder = Holder::Rest;
            self.headless -= 1;
            self.enqueue(key);
        } else {
            self.streams.change(key).wrong = Some(wrong.into());
            self.events.push_back(Event::Reset(key));
        }
    }

    /// Answers a request that is not passed on, and lets go of its stream.
    #[cold]
    fn refuse(&mut self, key: Key, answer: &Answer, call: Option<&[u8]>, wrong: String) {
        let (status, fields) = answer.form(call);
        self.begin_section(key);
        self.encoder.field(b":status", status.as_bytes());
        for (name, value) in fields {
            self.encoder.field(name, value);
        }
        self.end_section(key);
        let stream = self.streams.change(key);
        stream.outgoing = Outgoing::Ended;
        stream.holder = Holder::Rest;
        stream.text.clear();
        let id = stream.id;
        self.headless -= 1;
        // RFC 9114 §4.1: the rest of the request is not wanted.
        self.orders.push_back(Order::Stop(id, Code::NO_ERROR));
        self.decoder.cancel(id);
        self.note_refused(status.parse().unwrap_or(0), Code::NO_ERROR, wrong);
    }

    /// Notes a request that is refused, for whoever logs it.
    #[cold]
    pub(crate) fn note_refused(&mut self, status: u16, code: Code, wrong: String) {
        if self.refused.len() < REFUSED_MAX {
            let is_too_large = self.fields.is_too_large() || status == 431;
            self.refused.push(Refused { status, code, is_too_large, wrong, glimpse: self.fields.glimpse() });
        }
    }

    /// Releases a request that was reset before it was looked at. Its error is still logged.
    pub fn take_back(&mut self, key: Key) {
        let stream = self.streams.at(key);
        if let (Some(wrong), Some(code)) = (&stream.wrong, stream.broken)
            && self.refused.len() < REFUSED_MAX
        {
            let Glimpse { method, target, .. } = Glimpse::of(stream.text.get());
            let glimpse = [method.to_vec(), target.to_vec(), Vec::new()];
            let wrong = wrong.to_string();
            self.refused.push(Refused { status: 0, code, is_too_large: false, wrong, glimpse });
        }
        self.release(key);
    }

    /// The head of a response has come (RFC 9114 §4.3.2).
    fn response(&mut self, key: Key, ends: bool) -> Result<(), Broken> {
        let stream = self.streams.change(key);
        match self.fields.response(ends, &stream.asked, stream.text.tail()) {
            // RFC 9114 §4.1: of interim responses a server may send any number, each of a few bytes that stand for many. What
            // nobody has read of them is no more than one head may be.
            Ok(MessageOutline { is_interim: true, .. }) if stream.text.len() > self.limits.head_bytes => {
                let limit = self.limits.head_bytes;
                let wrong = format!("interim responses are larger than limits.header_bytes, {limit} bytes");
                return self.provoked(key, Code::EXCESSIVE_LOAD, wrong);
            }
            Ok(MessageOutline { is_interim: true, .. }) => {}
            Ok(MessageOutline { framed, content_length, .. }) => {
                (stream.framed, stream.content_left) = (framed, content_length);
                stream.incoming = Incoming::Body;
            }
            Err(_) => {
                let wrong = self.fields.wrong();
                return self.provoked(key, self.unfit_code(), wrong);
            }
        }
        self.events.push_back(Event::Readable(key));
        Ok(())
    }

    /// Trailers have come (RFC 9114 §4.1).
    fn trailers(&mut self, key: Key) -> Result<(), Broken> {
        self.pass_on_held(key);
        let stream = self.streams.change(key);
        stream.tail.clear();
        if self.fields.trailers(&mut stream.tail).is_err() {
            let wrong = format!("in the trailers: {}", self.fields.wrong());
            return self.provoked(key, self.unfit_code(), wrong);
        }
        // They wait for the body to be read, and count as long heads do.
        let long_tail = stream.tail.len().saturating_sub(self.limits.short_head_bytes);
        let long_heads = self.long_heads + long_tail;
        let limit = self.limits.long_heads_bytes;
        if long_tail > 0 && long_heads > limit.max(stream.long_head + long_tail) {
            stream.tail = Vec::new();
            let wrong = format!("the long heads of all streams are more than {limit} bytes");
            return self.provoked(key, Code::EXCESSIVE_LOAD, wrong);
        }
        stream.long_head += long_tail;
        stream.incoming = Incoming::End;
        self.long_heads = long_heads;
        Ok(())
    }

    /// The error code for resetting the stream of invalid fields. A head that is too large is no protocol error.
    fn unfit_code(&self) -> Code {
        if self.fields.is_too_large() { Code::EXCESSIVE_LOAD } else { Code::MESSAGE_ERROR }
    }

    /// Puts bytes of a body where they are read from.
    fn push_body(&mut self, key: Key, bytes: &[u8]) -> Result<(), Broken> {
        let stream = self.streams.change(key);
        // RFC 9114 §4.1.2: a length that lies.
        if let Some(left) = &mut stream.content_left {
            match left.checked_sub(bytes.len() as u64) {
                Some(rest) => *left = rest,
                None => {
                    let wrong = "the body is longer than content-length (RFC 9114 §4.1.2)".to_owned();
                    return self.provoked(key, Code::MESSAGE_ERROR, wrong);
                }
            }
        }
        stream.body.push(bytes, 0);
        self.unread += bytes.len();
        self.events.push_back(Event::Readable(key));
        Ok(())
    }

    /// The peer has said all that it wanted to on a stream.
    fn end_incoming(&mut self, key: Key) -> Result<(), Broken> {
        let stream = self.streams.change(key);
        if stream.is_deaf() {
            return Ok(());
        }
        // RFC 9114 §7.1.
        if !stream.frame_head.is_empty() || stream.payload != Payload::None {
            return Err(rules::CUT_OFF);
        }
        if stream.incoming == Incoming::Head {
            // RFC 9114 §4.1, §4.1.2. The end was read, so nobody needs to be told to stop.
            stream.incoming = Incoming::Ended;
            let wrong = "the stream ended before a head had come (RFC 9114 §4.1)".to_owned();
            if self.role == Role::Client {
                return self.provoked(key, Code::MESSAGE_ERROR, wrong);
            }
            self.fields.begin(0);
            self.give_up(key, Code::REQUEST_INCOMPLETE, wrong);
            return Ok(self.floods.count(Flood::Errors, 1, self.now.second)?);
        }
        stream.incoming = Incoming::Ended;
        if let Some(left @ 1..) = stream.content_left {
            let wrong = format!("the body is {left} bytes shorter than content-length (RFC 9114 §4.1.2)");
            return self.provoked(key, Code::MESSAGE_ERROR, wrong);
        }
        if stream.is_held_for_end() {
            take_back_body(stream.text.tail());
            stream.framed = Framed::Raw;
            self.pass_on(key);
        } else if stream.framed == Framed::Chunked && stream.tail.is_empty() {
            stream.tail.extend_from_slice(b"0\r\n\r\n");
        }
        self.events.push_back(Event::Readable(key));
        Ok(())
    }

    /// Resets a stream because of the peer's error. Such resets are limited per second.
    fn provoked(&mut self, key: Key, code: Code, wrong: String) -> Result<(), Broken> {
        self.streams.change(key).wrong = Some(wrong.into());
        self.break_off(key, code);
        self.events.push_back(Event::Reset(key));
        // It is an error of this stream, and others may be those of other users. What the peer makes us do so is bounded over a
        // second; what a server does wrong, by what it was asked for.
        Ok(self.floods.count(Flood::Errors, 1, self.now.second)?)
    }

    /// Leaves room for a section, whose fields go to the encoder.
    pub(crate) fn begin_section(&mut self, key: Key) {
        let may_insert = self.own.encoder.1.is_empty();
        self.encoder.begin(self.streams.at(key).id, may_insert);
    }

    /// Puts the section that the encoder has into a frame.
    pub(crate) fn end_section(&mut self, key: Key) {
        self.section.clear();
        self.encoder.end(&mut self.section);
        self.encoder.take_instructions(&mut self.own.encoder.1.bytes);
        let out = &mut self.streams.change(key).out.bytes;
        frame::push_head(out, HEADERS, self.section.len());
        out.extend_from_slice(&self.section);
        self.enqueue(key);
    }
}

/// Splits off at most `left` bytes.
fn split<'a>(rest: &mut &'a [u8], left: u64) -> &'a [u8] {
    let count = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
    let (bytes, behind) = rest.split_at(count);
    *rest = behind;
    bytes
}
