//! Handles bytes received on request streams (RFC 9114 §4.1, §7), even if they arrive byte by byte.

use std::fmt::Display;

use fields::answer::{FixedAnswer, TOO_LARGE, UNTOLD};
use fields::compose::Encode;
use fields::message::{Framed, MessageOutline, RequestKind, Unfit, rarely_has_body, take_back_body};
use http1::Glimpse;

use crate::code::H3Code;
use crate::connection::{
    FlushOrder, H3Broken, H3Event, H3Refused, H3Role, H3StateMachine, Now, REFUSED_MAX, StreamId,
    is_unidirectional,
};
use crate::decode::SectionOutcome;
use crate::flood::Flood;
use crate::frame::{self, DATA, H3FrameHead, HEADERS, PUSH_PROMISE};
use crate::priority::Priority;
use crate::rules;
use crate::stream::{H3Incoming, Holder, IncomingPayload, Key, Outgoing};

enum H3Refusal {
    Malformed(String),
    /// Too many long heads are held. The client may send the request again later.
    Later,
    Answered(&'static FixedAnswer),
}

impl H3StateMachine {
    /// Receives bytes of a stream: no more than [`wanted`](Self::wanted). `is_last` ends the stream behind them. Pass
    /// the end together with the last bytes if possible: without it, a request counts as one with a body.
    ///
    /// # Errors
    /// The connection has to end.
    pub fn receive(&mut self, id: StreamId, bytes: &[u8], is_last: bool, now: Now) -> Result<(), H3Broken> {
        self.now = now;
        if is_unidirectional(id) {
            return self.receive_unidirectional(id, bytes, is_last);
        }
        match self.streams.find(id) {
            Some(key) => self.take(key, bytes, is_last),
            // The stream was dropped, and bytes of it were still on their way.
            None => Ok(()),
        }
    }

    /// Handles RESET_STREAM.
    ///
    /// # Errors
    /// The connection has to end.
    pub fn reset_received(&mut self, id: StreamId, code: H3Code, now: Now) -> Result<(), H3Broken> {
        self.now = now;
        if is_unidirectional(id) {
            return self.unidirectional_closed(id);
        }
        let key = self.streams.find(id).filter(|&key| !self.streams.at(key).is_deaf());
        key.map_or(Ok(()), |key| self.cancelled(key, code))
    }

    /// Handles STOP_SENDING.
    ///
    /// # Errors
    /// The connection has to end.
    pub fn stop_received(&mut self, id: StreamId, code: H3Code, now: Now) -> Result<(), H3Broken> {
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
            // Bytes that the transport has accepted need not arrive.
            self.orders.push_back(FlushOrder::Reset(id, code));
            return Ok(());
        }
        if self.role == H3Role::Client && code == H3Code::NO_ERROR {
            // RFC 9114 §4.1: after a complete response, the rest of the request is not needed.
            stream.outgoing = Outgoing::Finished;
            stream.out.clear();
            self.orders.push_back(FlushOrder::Reset(id, H3Code::NO_ERROR));
            return Ok(());
        }
        self.cancelled(key, code)
    }

    /// Handles the cancellation of a request or a response by the peer.
    fn cancelled(&mut self, key: Key, code: H3Code) -> Result<(), H3Broken> {
        let stream = self.streams.at(key);
        let (id, holder) = (stream.id, stream.holder);
        // A server cancels only our requests. A cancellation after the response has begun is no rapid reset.
        let is_early = stream.outgoing == Outgoing::Head;
        self.break_off(key, code);
        match holder {
            Holder::Path => self.events.push_back(H3Event::Reset(key)),
            Holder::Nobody | Holder::Rest => self.drop_stream(key),
        }
        if is_early && self.role == H3Role::Server {
            let counted = self.floods.count(Flood::Resets, 1, self.now.second);
            counted.map_err(|flood| self.offended(flood.into(), format!("the end of stream {id}")))?;
        }
        Ok(())
    }

    fn take(&mut self, key: Key, bytes: &[u8], is_last: bool) -> Result<(), H3Broken> {
        let mut rest = bytes;
        loop {
            let stream = self.streams.change(key);
            // Checked after each frame, since a frame may end the stream.
            if stream.is_deaf() {
                return Ok(());
            }
            if stream.blocked.is_some() {
                // Frames behind the section cannot be handled before it: fields come before the body.
                stream.behind.extend_from_slice(rest);
                stream.has_end_behind |= is_last;
                return Ok(());
            }
            if rest.is_empty() {
                break;
            }
            match stream.payload {
                IncomingPayload::None => {
                    let Some(head) = stream.frame_head.take(&mut rest, H3FrameHead::parse) else { break };
                    let ends = is_last && rest.is_empty();
                    self.begin_frame_in(key, head, ends)
                        .map_err(|broken| self.offended_by(broken, head, key))?;
                }
                IncomingPayload::Data(left) => {
                    let bytes = split(&mut rest, left);
                    stream.payload = IncomingPayload::Data(left - bytes.len() as u64);
                    if left == bytes.len() as u64 {
                        stream.payload = IncomingPayload::None;
                    }
                    self.push_body(key, bytes).map_err(|broken| self.offended_by(broken, "DATA", key))?;
                }
                IncomingPayload::Section(left) => {
                    let bytes = split(&mut rest, left);
                    stream.section.extend_from_slice(bytes);
                    if left > bytes.len() as u64 {
                        stream.payload = IncomingPayload::Section(left - bytes.len() as u64);
                        continue;
                    }
                    stream.payload = IncomingPayload::None;
                    let ends = is_last && rest.is_empty();
                    self.section(key, ends).map_err(|broken| self.offended_by(broken, "HEADERS", key))?;
                }
                IncomingPayload::Skipped(left) => {
                    let count = split(&mut rest, left).len() as u64;
                    stream.payload = if count < left {
                        IncomingPayload::Skipped(left - count)
                    } else {
                        IncomingPayload::None
                    };
                }
            }
        }
        if is_last {
            self.end_incoming(key).map_err(|broken| self.offended_by(broken, "an end", key))
        } else {
            Ok(())
        }
    }

    fn offended_by(&mut self, broken: H3Broken, by: impl Display, key: Key) -> H3Broken {
        let id = self.streams.at(key).id;
        self.offended(broken, format!("{by} on stream {id}"))
    }

    /// Handles a frame header. `ends` says whether the stream ends with it.
    fn begin_frame_in(&mut self, key: Key, head: H3FrameHead, ends: bool) -> Result<(), H3Broken> {
        let is_tunnel = self.is_tunnel(key);
        let stream = self.streams.change(key);
        if head.is_of_http2() {
            return Err(rules::OF_HTTP2);
        }
        if head.is_of_control() {
            return Err(rules::NOT_ON_REQUEST);
        }
        match head.kind {
            DATA if stream.incoming != H3Incoming::Body => Err(rules::NOT_IN_TURN),
            // Some clients end a message with an empty frame. This is possible once per stream, so it is no flood.
            DATA if head.len == 0 && ends => Ok(()),
            DATA if head.len == 0 => Ok(self.floods.count(Flood::EmptyFrames, 1, self.now.second)?),
            DATA => {
                stream.payload = IncomingPayload::Data(head.len);
                self.pass_on_held(key);
                Ok(())
            }
            HEADERS if stream.incoming == H3Incoming::End => Err(rules::NOT_IN_TURN),
            // RFC 9114 §4.4.
            HEADERS if stream.incoming == H3Incoming::Body && is_tunnel => Err(rules::NOT_IN_TUNNEL),
            HEADERS if head.len > self.limits.head_bytes as u64 => self.section_too_large(key, head),
            // No byte will follow that completes an empty section.
            HEADERS if head.len == 0 => self.section(key, ends),
            HEADERS => self.begin_headers(key, head.len as usize),
            PUSH_PROMISE if self.role == H3Role::Server => Err(rules::NOT_FROM_THIS_SIDE),
            PUSH_PROMISE => Err(rules::PUSHED),
            // RFC 9114 §7.2.8, §9: unknown frames are skipped.
            _ => {
                if head.len > 0 {
                    stream.payload = IncomingPayload::Skipped(head.len);
                }
                self.is_overhead()
            }
        }
    }

    /// Whether a stream carries another protocol.
    fn is_tunnel(&self, key: Key) -> bool {
        let stream = self.streams.at(key);
        match self.role {
            H3Role::Server => stream.asks_for_upgrade,
            H3Role::Client => {
                matches!(stream.asked, RequestKind::Upgrade { .. }) && stream.framed == Framed::Raw
            }
        }
    }

    /// Handles a field section that is longer than its fields may be (RFC 9114 §4.2.2). It is not read.
    #[cold]
    fn section_too_large(&mut self, key: Key, head: H3FrameHead) -> Result<(), H3Broken> {
        let limit = self.limits.head_bytes;
        let wrong =
            format!("a field section of {} bytes is more than limits.header_bytes, {limit} bytes", head.len);
        self.fields.begin(0);
        if self.streams.at(key).holder != Holder::Nobody {
            return self.provoked(key, H3Code::EXCESSIVE_LOAD, wrong);
        }
        self.refuse(key, &TOO_LARGE, None, wrong);
        Ok(())
    }

    /// Begins a field section. A common limit holds for all sections that are incomplete or blocked.
    fn begin_headers(&mut self, key: Key, len: usize) -> Result<(), H3Broken> {
        let limit = self.limits.long_heads_bytes;
        // A section that alone exceeds the limit is accepted if no other is held.
        if self.sections + len > limit.max(len) {
            let wrong = format!("the unfinished heads of all streams are more than {limit} bytes");
            self.give_up(key, H3Code::REQUEST_REJECTED, wrong);
            return self.is_overhead();
        }
        self.sections += len;
        let stream = self.streams.change(key);
        stream.payload = IncomingPayload::Section(len as u64);
        stream.section_len = len;
        Ok(())
    }

    /// Handles a complete field section. `ends` says whether the stream ends behind it.
    fn section(&mut self, key: Key, ends: bool) -> Result<(), H3Broken> {
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
            SectionOutcome::Whole => {}
            SectionOutcome::Blocked(required) => return self.block(key, section, required),
        }
        section.clear();
        let stream = self.streams.change(key);
        self.sections -= std::mem::take(&mut stream.section_len);
        stream.section = section;
        // RFC 9218 §7.2: a PRIORITY_UPDATE that arrived before its request applies instead of the field.
        if let Some(priority) = priority.filter(|_| !stream.is_priority_updated) {
            stream.priority = priority;
        }
        match (stream.incoming, self.role) {
            (H3Incoming::Head, H3Role::Server) => self.request(key, ends),
            (H3Incoming::Head, H3Role::Client) => self.response(key, ends),
            _ => self.trailers(key),
        }
    }

    /// Holds a section that waits for insertions (RFC 9204 §2.1.2).
    fn block(&mut self, key: Key, section: Vec<u8>, required: u64) -> Result<(), H3Broken> {
        let stream = self.streams.change(key);
        (stream.section, stream.blocked) = (section, Some(required));
        let blocked = self.streams.all().filter(|(_, stream)| stream.blocked.is_some()).count();
        if blocked > self.limits.blocked_streams {
            return Err(rules::TOO_MANY_BLOCKED);
        }
        Ok(())
    }

    /// Continues a stream whose section can be decoded now.
    pub(crate) fn unblock_stream(&mut self, key: Key) -> Result<(), H3Broken> {
        let stream = self.streams.change(key);
        stream.blocked = None;
        let behind = std::mem::take(&mut stream.behind);
        let has_end = std::mem::take(&mut stream.has_end_behind);
        self.section(key, has_end && behind.is_empty())
            .map_err(|broken| self.offended_by(broken, "HEADERS", key))?;
        self.take(key, &behind, has_end)?;
        // While the section was blocked, `wanted` asked for nothing.
        self.want_again(key);
        Ok(())
    }

    /// Handles a request (RFC 9114 §4.3.1).
    fn request(&mut self, key: Key, ends: bool) -> Result<(), H3Broken> {
        let stream = self.streams.change(key);
        let told = self.fields.request(ends, stream.text.tail());
        let long_head = stream.text.len().saturating_sub(self.limits.short_head_bytes);
        let long_heads = self.long_heads + long_head;
        // RFC 9114 §4.1.2: Content-Length announces a body, but the stream has ended.
        let lies = |told: &MessageOutline| ends && told.content_length.is_some_and(|length| length > 0);
        let refusal = match told {
            Ok(told) if lies(&told) => H3Refusal::Malformed(
                "content-length announces a body, but none follows (RFC 9114 §4.1.2)".to_owned(),
            ),
            // A head that alone exceeds the limit is accepted if no other long head is held.
            Ok(_) if long_head > 0 && long_heads > self.limits.long_heads_bytes.max(long_head) => {
                H3Refusal::Later
            }
            Ok(MessageOutline { framed, content_length, .. }) => {
                (stream.framed, stream.content_left) = (framed, content_length);
                stream.asks_for_upgrade = self.fields.asks_for_upgrade();
                stream.long_head = long_head;
                stream.incoming = H3Incoming::Body;
                self.long_heads = long_heads;
                // The end may follow in a separate datagram: see `end_awaited_since`.
                if framed == Framed::Chunked && rarely_has_body(stream.text.get()) {
                    stream.awaits_end = true;
                    self.events.push_back(H3Event::AwaitsEnd);
                } else {
                    self.pass_on(key);
                }
                return Ok(());
            }
            Err(Unfit::Malformed) => H3Refusal::Malformed(self.fields.wrong()),
            Err(Unfit::TooLarge) => H3Refusal::Answered(&TOO_LARGE),
            Err(Unfit::Untold) => H3Refusal::Answered(&UNTOLD),
        };
        match refusal {
            H3Refusal::Malformed(wrong) => {
                self.give_up(key, H3Code::MESSAGE_ERROR, wrong);
                Ok(self.floods.count(Flood::Errors, 1, self.now.second)?)
            }
            H3Refusal::Later => {
                let limit = self.limits.long_heads_bytes;
                let wrong = format!("the long heads of all streams are more than {limit} bytes");
                self.give_up(key, H3Code::REQUEST_REJECTED, wrong);
                self.is_overhead()
            }
            H3Refusal::Answered(answer) => {
                let (call, wrong) = (self.fields.call(), self.fields.wrong());
                self.refuse(key, answer, call.as_deref(), wrong);
                Ok(())
            }
        }
    }

    pub(crate) fn pass_on(&mut self, key: Key) {
        self.streams.change(key).holder = Holder::Path;
        self.headless -= 1;
        self.events.push_back(H3Event::Opened(key));
    }

    /// Passes on a request that was held back: more than its end has arrived.
    fn pass_on_held(&mut self, key: Key) {
        if self.streams.at(key).is_held_for_end() {
            self.pass_on(key);
        }
    }

    /// Resets a stream. If its request was not passed on, the stream is removed; otherwise its holder sees the reset.
    fn give_up(&mut self, key: Key, code: H3Code, wrong: String) {
        self.break_off(key, code);
        if self.streams.at(key).holder == Holder::Nobody {
            self.note_refused(0, code, wrong);
            self.streams.change(key).holder = Holder::Rest;
            self.headless -= 1;
            self.enqueue(key);
        } else {
            self.streams.change(key).wrong = Some(wrong.into());
            self.events.push_back(H3Event::Reset(key));
        }
    }

    /// Answers a request that is not passed on, and releases its stream.
    #[cold]
    fn refuse(&mut self, key: Key, answer: &FixedAnswer, call: Option<&[u8]>, wrong: String) {
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
        // RFC 9114 §4.1: the proxy does not need the rest of the request.
        self.orders.push_back(FlushOrder::Stop(id, H3Code::NO_ERROR));
        self.decoder.cancel(id);
        self.note_refused(status.parse().unwrap_or(0), H3Code::NO_ERROR, wrong);
    }

    /// Keeps a rejected request for the log.
    #[cold]
    pub(crate) fn note_refused(&mut self, status: u16, code: H3Code, wrong: String) {
        if self.refused.len() < REFUSED_MAX {
            let is_too_large = self.fields.is_too_large() || status == 431;
            self.refused.push(H3Refused {
                status,
                code,
                is_too_large,
                wrong,
                glimpse: self.fields.glimpse(),
            });
        }
    }

    /// Releases a request that was reset before the caller handled it. Its error is still logged.
    pub fn take_back(&mut self, key: Key) {
        let stream = self.streams.at(key);
        if let (Some(wrong), Some(code)) = (&stream.wrong, stream.broken)
            && self.refused.len() < REFUSED_MAX
        {
            let Glimpse { method, target, .. } = Glimpse::from_bytes(stream.text.get());
            let glimpse = [method.to_vec(), target.to_vec(), Vec::new()];
            let wrong = wrong.to_string();
            let is_too_large = code == H3Code::EXCESSIVE_LOAD;
            self.refused.push(H3Refused { status: 0, code, is_too_large, wrong, glimpse });
        }
        self.release(key);
    }

    /// Handles the head of a response (RFC 9114 §4.3.2).
    fn response(&mut self, key: Key, ends: bool) -> Result<(), H3Broken> {
        let stream = self.streams.change(key);
        match self.fields.response(ends, &stream.asked, stream.text.tail()) {
            // RFC 9114 §4.1: a server may send any number of interim responses, and a few bytes can expand to many.
            // Unread interim responses are limited to the size of one head.
            Ok(MessageOutline { is_interim: true, .. }) if stream.text.len() > self.limits.head_bytes => {
                let limit = self.limits.head_bytes;
                let wrong = format!("interim responses are larger than limits.header_bytes, {limit} bytes");
                return self.provoked(key, H3Code::EXCESSIVE_LOAD, wrong);
            }
            Ok(MessageOutline { is_interim: true, .. }) => {}
            Ok(MessageOutline { framed, content_length, .. }) => {
                (stream.framed, stream.content_left) = (framed, content_length);
                stream.incoming = H3Incoming::Body;
            }
            Err(_) => {
                let wrong = self.fields.wrong();
                return self.provoked(key, self.unfit_code(), wrong);
            }
        }
        self.events.push_back(H3Event::Readable(key));
        Ok(())
    }

    /// Handles trailers (RFC 9114 §4.1).
    fn trailers(&mut self, key: Key) -> Result<(), H3Broken> {
        self.pass_on_held(key);
        let stream = self.streams.change(key);
        stream.tail.clear();
        if self.fields.trailers(&mut stream.tail).is_err() {
            let wrong = format!("in the trailers: {}", self.fields.wrong());
            return self.provoked(key, self.unfit_code(), wrong);
        }
        // Trailers are held until the body is read, so they count like long heads.
        let long_tail = stream.tail.len().saturating_sub(self.limits.short_head_bytes);
        let long_heads = self.long_heads + long_tail;
        let limit = self.limits.long_heads_bytes;
        // As for heads: the limit does not reject a stream that is the only long one.
        if long_tail > 0 && long_heads > limit.max(stream.long_head + long_tail) {
            stream.tail = Vec::new();
            let wrong = format!("the long heads of all streams are more than {limit} bytes");
            return self.provoked(key, H3Code::EXCESSIVE_LOAD, wrong);
        }
        stream.long_head += long_tail;
        stream.incoming = H3Incoming::End;
        self.long_heads = long_heads;
        Ok(())
    }

    /// The error code for resetting a stream with invalid fields. A head that is too large is no protocol error.
    fn unfit_code(&self) -> H3Code {
        if self.fields.is_too_large() { H3Code::EXCESSIVE_LOAD } else { H3Code::MESSAGE_ERROR }
    }

    /// Appends body bytes for the reader.
    fn push_body(&mut self, key: Key, bytes: &[u8]) -> Result<(), H3Broken> {
        let stream = self.streams.change(key);
        // RFC 9114 §4.1.2: more bytes than Content-Length announced.
        if let Some(left) = &mut stream.content_left {
            match left.checked_sub(bytes.len() as u64) {
                Some(rest) => *left = rest,
                None => {
                    let wrong = "the body is longer than content-length (RFC 9114 §4.1.2)".to_owned();
                    return self.provoked(key, H3Code::MESSAGE_ERROR, wrong);
                }
            }
        }
        // Content-Length reserves nothing: the sender alone would decide how much memory its connection takes.
        stream.body.push(bytes, 0, usize::MAX);
        self.unread += bytes.len();
        self.events.push_back(H3Event::Readable(key));
        Ok(())
    }

    /// Handles the end of the peer's message on a stream.
    fn end_incoming(&mut self, key: Key) -> Result<(), H3Broken> {
        let stream = self.streams.change(key);
        if stream.is_deaf() {
            return Ok(());
        }
        // RFC 9114 §7.1.
        if !stream.frame_head.is_empty() || stream.payload != IncomingPayload::None {
            return Err(rules::CUT_OFF);
        }
        if stream.incoming == H3Incoming::Head {
            // RFC 9114 §4.1, §4.1.2. The end was read, so STOP_SENDING is not needed.
            stream.incoming = H3Incoming::Ended;
            let wrong = "the stream ended before its head was complete (RFC 9114 §4.1)".to_owned();
            if self.role == H3Role::Client {
                return self.provoked(key, H3Code::MESSAGE_ERROR, wrong);
            }
            self.fields.begin(0);
            self.give_up(key, H3Code::REQUEST_INCOMPLETE, wrong);
            return Ok(self.floods.count(Flood::Errors, 1, self.now.second)?);
        }
        stream.incoming = H3Incoming::Ended;
        if let Some(left @ 1..) = stream.content_left {
            let wrong = format!("the body is {left} bytes shorter than content-length (RFC 9114 §4.1.2)");
            return self.provoked(key, H3Code::MESSAGE_ERROR, wrong);
        }
        if stream.is_held_for_end() {
            take_back_body(stream.text.tail());
            stream.framed = Framed::Raw;
            self.pass_on(key);
        } else if stream.framed == Framed::Chunked && stream.tail.is_empty() {
            stream.tail.extend_from_slice(b"0\r\n\r\n");
        }
        self.events.push_back(H3Event::Readable(key));
        Ok(())
    }

    /// Resets a stream because of the peer's error. Such resets are limited per second.
    fn provoked(&mut self, key: Key, code: H3Code, wrong: String) -> Result<(), H3Broken> {
        self.streams.change(key).wrong = Some(wrong.into());
        self.break_off(key, code);
        self.events.push_back(H3Event::Reset(key));
        // A stream error only, because other streams may belong to other users. Resets that a client provokes are
        // limited per second; our requests limit those that a server provokes.
        Ok(self.floods.count(Flood::Errors, 1, self.now.second)?)
    }

    /// Starts a section; its fields go to the encoder.
    pub(crate) fn begin_section(&mut self, key: Key) {
        // RFC 9204 §2.1.3: a section must not need instructions that flow control holds back.
        let may_insert = self.own.encoder.1.is_empty();
        self.encoder.begin(self.streams.at(key).id, may_insert);
    }

    /// Writes the encoder's section as a frame.
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
