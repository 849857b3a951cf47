//! Reading from streams, and writing to them.

use fields::compose::{self, ComposedRequest, ComposedResponse, Untold, WireScheme};
use fields::message::{Framed, RequestKind};

use crate::connection::{H2Role, H2StateMachine};
use crate::encode::EncodingBlock;
use crate::flood::CRUMB;
use crate::frame::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, H2FrameHead, HEAD_LEN, HEADERS, PAYLOAD_MAX,
    RST_STREAM, Reason, WINDOW_UPDATE,
};
use crate::stream::{H2Incoming, H2StreamGone, Key, Outgoing};
use crate::windows::worth_telling;

impl H2StateMachine {
    /// Reserves a stream for a request that is not written yet.
    pub fn open(&mut self) -> Key {
        self.streams.add(0, 0, 0)
    }

    /// Length of the text that can be read from a stream: first the head, then any later text.
    pub fn text_len(&self, key: Key) -> usize {
        self.streams.at(key).text.len()
    }

    /// Whether the peer has begun a DATA frame on a stream, and not sent all of it.
    pub fn owes(&self, key: Key) -> bool {
        self.parser.owes(key)
    }

    /// Whether bytes, the end or an error can be read from a stream.
    pub fn is_readable(&self, key: Key) -> bool {
        let stream = self.streams.at(key);
        !stream.text.is_empty()
            || !stream.body.is_empty()
            || stream.incoming == H2Incoming::Ended
            || stream.broken.is_some()
    }

    /// Reads as many bytes as possible into `buffer`, which must not be empty. 0 is the end; `None` means that nothing
    /// has arrived yet.
    pub fn read(&mut self, key: Key, buffer: &mut [u8], tick: u32) -> Result<Option<usize>, H2StreamGone> {
        let stream = self.streams.change(key);
        if stream.text.is_empty() {
            if !stream.body.is_empty() {
                return self.read_body(key, buffer, tick).map(Some);
            }
            // Before the check for a reset: a message that was complete can be read to its end (RFC 9113 §8.1).
            if stream.incoming == H2Incoming::Ended {
                if stream.framed == Framed::Raw {
                    return Ok(Some(0));
                }
                // The end of the chunks, once.
                stream.framed = Framed::Raw;
                stream.text.take_over(&mut stream.tail);
            } else {
                return stream.broken.map_or(Ok(None), |reason| Err(gone(reason)));
            }
        }
        Ok(Some(stream.text.read(buffer)))
    }

    /// Reads bytes of the body, and refills the flow-control windows accordingly.
    fn read_body(&mut self, key: Key, buffer: &mut [u8], tick: u32) -> Result<usize, H2StreamGone> {
        let stream = self.streams.at(key);
        // The buffer always has room for the framing, because the path reads bodies into empty buffers.
        let (count, len) = stream.body.copy_framed(stream.framed, buffer).ok_or(H2StreamGone::Broken)?;
        self.took_body(key, count, tick);
        Ok(len)
    }

    /// Unread bytes of the body. Empty before the head is read, and for a body that is read as chunks.
    pub fn body(&self, key: Key) -> &[u8] {
        let stream = self.streams.at(key);
        if stream.text.is_empty() && stream.framed == Framed::Raw { stream.body.get() } else { b"" }
    }

    /// The most body bytes to wait for before reading: the peer may send half of each window before it is refilled.
    pub fn gathers(&self) -> usize {
        (self.stream_window / 2).max(0) as usize
    }

    /// Whether `wanted` unread bytes of the body have arrived, or no more will come.
    pub fn has_of_body(&self, key: Key, wanted: usize) -> bool {
        let stream = self.streams.at(key);
        stream.body.len() >= wanted || stream.incoming == H2Incoming::Ended || stream.broken.is_some()
    }

    /// Removes the first `count` unread bytes of the body, and refills the flow-control windows accordingly.
    pub fn took_body(&mut self, key: Key, count: usize, tick: u32) {
        let stream = self.streams.change(key);
        stream.body.consume(count);
        self.unread -= count as i64;
        self.windows.take(&mut stream.taken, count, tick);
        self.windows.hold(self.unread);
        self.give_stream(key);
        self.give_connection();
    }

    /// Refills the peer's window of a stream, if the difference justifies a frame.
    pub(crate) fn give_stream(&mut self, key: Key) {
        let stream = self.streams.change(key);
        let owed = self.stream_window - stream.receive_window - stream.body.len() as i64;
        let goes_on = stream.incoming == H2Incoming::Body && stream.broken.is_none();
        // If the window covers the rest of the body, the peer needs no update.
        let needs_more = stream.content_left.is_none_or(|left| left as i64 > stream.receive_window);
        if goes_on && needs_more && owed >= worth_telling(self.stream_window) {
            stream.receive_window += owed;
            let id = stream.id;
            frame::push(self.out(), WINDOW_UPDATE, 0, id, &(owed as u32).to_be_bytes());
        }
    }

    pub fn wants_head(&self, key: Key) -> bool {
        self.streams.at(key).outgoing == Outgoing::Head
    }

    /// Writes the head at the start of `text`, and returns its length. With `is_last`, the stream ends if the head is
    /// all of `text`. `scheme` is the scheme of a request.
    pub fn write_head(
        &mut self,
        key: Key,
        text: &[u8],
        is_last: bool,
        scheme: WireScheme,
    ) -> Result<usize, WriteError> {
        self.check(key)?;
        let len = compose::head_len(text).ok_or(WriteError::Untold)?;
        let (head, is_last) = (&text[..len], is_last && len == text.len());
        // The head is parsed before its block is begun: a begun block must be sent, or later blocks refer to fields
        // that the peer never saw.
        match self.role {
            H2Role::Server => self.write_response(key, &ComposedResponse::new(head)?, is_last),
            // RFC 9113 §6.8: no new streams after GOAWAY. Another connection can take the request.
            H2Role::Client if self.is_going_away => return Err(WriteError::Gone(H2StreamGone::Untouched)),
            H2Role::Client => self.write_request(key, &ComposedRequest::new(head)?, is_last, scheme),
        }
        Ok(len)
    }

    fn write_response(&mut self, key: Key, response: &ComposedResponse<'_>, is_last: bool) {
        if self.streams.at(key).asks_for_upgrade && response.is_success() {
            return self.deny_upgrade(key);
        }
        let start = self.begin_block();
        let status = response.compose(&mut self.encoding());
        let is_interim = matches!(status, 100 | 102..=199);
        // After a 101, which becomes a 200, the stream carries the other protocol.
        let is_last = is_last && !is_interim && status != 101;
        let stream = self.streams.change(key);
        if !is_interim {
            stream.outgoing = if is_last { Outgoing::Ended } else { Outgoing::Body };
        }
        let id = stream.id;
        self.end_block(start, id, is_last);
        self.settle(key);
    }

    /// Rejects an upgrade. For CONNECT, any success means that there is a tunnel (RFC 9110 §9.3.6, RFC 8441 §5), so a
    /// server's success without a switch of protocols is not passed on.
    #[cold]
    fn deny_upgrade(&mut self, key: Key) {
        let stream = self.streams.change(key);
        stream.outgoing = Outgoing::Ended;
        let id = stream.id;
        self.answer(id, "502", &[(b"content-length", b"0")], true);
        self.settle(key);
    }

    fn write_request(&mut self, key: Key, request: &ComposedRequest<'_>, is_last: bool, scheme: WireScheme) {
        let start = self.begin_block();
        let may_upgrade = self.peer.takes_upgrades;
        let asked = request.compose(scheme, may_upgrade, &mut self.encoding());
        // RFC 9113 §5.1.1: stream numbers increase in the order in which streams begin.
        self.last += if self.last == 0 { 1 } else { 2 };
        let id = self.last;
        // Only streams with a number follow changes of the windows, so the windows are set here, not in `open`.
        self.streams.name(key, id);
        // After an extended CONNECT, the stream carries the other protocol.
        let is_last = is_last && !matches!(asked, RequestKind::Upgrade { .. });
        let stream = self.streams.change(key);
        stream.asked = asked;
        stream.receive_window = self.stream_window;
        stream.send_window = self.peer.stream_window;
        stream.outgoing = if is_last { Outgoing::Ended } else { Outgoing::Body };
        self.end_block(start, id, is_last);
    }

    /// Sends the proxy's own response to a request that did not reach the caller.
    pub(crate) fn answer(&mut self, id: u32, status: &str, fields: &[(&[u8], &[u8])], has_ended: bool) {
        let start = self.begin_block();
        self.encoder.field(&mut self.out.bytes, b":status", status.as_bytes());
        for (name, value) in fields {
            self.encoder.field(&mut self.out.bytes, name, value);
        }
        self.end_block(start, id, true);
        if !has_ended {
            // RFC 9113 §8.1: the proxy does not need the rest of the request.
            self.push_reset(id, Reason::NO_ERROR);
        }
    }

    /// Reserves room for a frame header, and returns its position. The block must be sent from here on, because the
    /// encoder assumes that the peer sees its output, such as changes of the table size.
    fn begin_block(&mut self) -> usize {
        let start = self.out.bytes.len();
        self.out.bytes.extend_from_slice(&[0; HEAD_LEN]);
        self.encoder.begin(&mut self.out.bytes);
        start
    }

    fn encoding(&mut self) -> EncodingBlock<'_> {
        EncodingBlock { encoder: &mut self.encoder, block: &mut self.out.bytes }
    }

    /// Writes the frame header before a finished block, and splits the block if it exceeds one frame.
    fn end_block(&mut self, start: usize, id: u32, is_last: bool) {
        let out = &mut self.out.bytes;
        let body = start + HEAD_LEN;
        let rest =
            // Only a head beyond 16 KiB is copied once more.
            if out.len() - body > PAYLOAD_MAX { out.split_off(body + PAYLOAD_MAX) } else { Vec::new() };
        let mut flags = if is_last { END_STREAM } else { 0 };
        if rest.is_empty() {
            flags |= END_HEADERS;
        }
        let head = H2FrameHead { len: out.len() - body, kind: HEADERS, flags, stream: id };
        out[start..body].copy_from_slice(&head.bytes());
        let mut pieces = rest.chunks(PAYLOAD_MAX).peekable();
        while let Some(piece) = pieces.next() {
            let flags = if pieces.peek().is_none() { END_HEADERS } else { 0 };
            frame::push(out, CONTINUATION, flags, id, piece);
        }
    }

    /// Body bytes that the stream's window allows now. Ignores the connection window.
    pub fn room(&self, key: Key) -> Result<usize, H2StreamGone> {
        let stream = self.streams.at(key);
        match (stream.outgoing, stream.broken) {
            (Outgoing::Body, _) => Ok(stream.send_window.max(0) as usize),
            (_, Some(reason)) => Err(gone(reason)),
            (_, None) => Err(H2StreamGone::Broken),
        }
    }

    /// Writes at most `room` bytes, and returns how many were written. With `is_last`, the stream ends if all of
    /// `bytes` were.
    pub fn write(&mut self, key: Key, bytes: &[u8], room: usize, is_last: bool) -> usize {
        let stream = self.streams.change(key);
        let count = bytes.len().min(room);
        let is_last = is_last && count == bytes.len();
        stream.send_window -= count as i64;
        stream.body_sent += count as u64;
        self.send_window -= count as i64;
        if is_last {
            stream.outgoing = Outgoing::Ended;
        }
        let id = stream.id;
        let mut pieces = bytes[..count].chunks(PAYLOAD_MAX).peekable();
        while let Some(piece) = pieces.next() {
            let flags = if is_last && pieces.peek().is_none() { END_STREAM } else { 0 };
            frame::push(&mut self.out.bytes, DATA, flags, id, piece);
        }
        if is_last {
            self.settle(key);
        }
        if count > 0 {
            self.has_sent(key, count, count < bytes.len());
        }
        count
    }

    /// The peer's error, in words, for which the stream was reset.
    pub fn wrong(&self, key: Key) -> Option<&str> {
        self.streams.at(key).wrong.as_deref()
    }

    pub fn is_too_large(&self, key: Key) -> bool {
        self.streams.at(key).broken == Some(Reason::ENHANCE_YOUR_CALM)
    }

    pub fn reset_reason(&self, key: Key) -> Option<Reason> {
        let stream = self.streams.at(key);
        stream.broken.filter(|_| stream.wrong.is_none())
    }

    /// Body bytes that were put into frames. If `is_over`, bytes that were not sent are subtracted.
    pub fn body_sent(&self, key: Key, is_over: bool) -> u64 {
        let stream = self.streams.at(key);
        let unsent = if is_over { self.unsent_of(stream.id) } else { 0 };
        stream.body_sent.saturating_sub(unsent)
    }

    fn unsent_of(&self, id: u32) -> u64 {
        let (mut at, mut unsent) = (0, 0);
        // Unsent output begins with a frame header.
        while let Some(head) = self.out.bytes.get(at..).and_then(H2FrameHead::parse) {
            let end = at + HEAD_LEN + head.len;
            if head.kind == DATA && head.stream == id {
                unsent += end.saturating_sub(self.out.sent.max(at + HEAD_LEN)) as u64;
            }
            at = end;
        }
        unsent
    }

    /// Starts a DATA frame of `count` bytes, for which there is room, and returns its header. The caller sends the
    /// header and the bytes itself. With `is_last`, the stream ends with the frame.
    pub fn begin_frame(&mut self, key: Key, count: usize, is_last: bool) -> [u8; HEAD_LEN] {
        debug_assert!(count <= PAYLOAD_MAX);
        let stream = self.streams.change(key);
        stream.send_window -= count as i64;
        stream.body_sent += count as u64;
        self.send_window -= count as i64;
        let flags = if is_last { END_STREAM } else { 0 };
        let head = H2FrameHead { len: count, kind: DATA, flags, stream: stream.id };
        if is_last {
            stream.outgoing = Outgoing::Ended;
            self.settle(key);
        }
        self.has_sent(key, count, !is_last);
        head.bytes()
    }

    /// Counts body bytes put into frames. `has_more` says whether more bytes are waiting.
    fn has_sent(&mut self, key: Key, count: usize, has_more: bool) {
        let is_shut = || self.send_window <= 0 || self.streams.at(key).send_window <= 0;
        // RFC 9113 §10.5: windows of a few bytes make us send a frame for each.
        if count < CRUMB && has_more && is_shut() {
            self.floods.sends_crumb(self.now.second);
        } else {
            self.floods.sends(count.div_ceil(PAYLOAD_MAX), count);
        }
    }

    pub fn push_frame(&mut self, bytes: &[u8]) {
        self.out.bytes.extend_from_slice(bytes);
    }

    /// Ends a stream, with trailers if there are any. Does nothing if the stream has ended.
    pub fn end(&mut self, key: Key, trailers: &[u8]) -> Result<(), H2StreamGone> {
        let stream = self.streams.change(key);
        if stream.outgoing != Outgoing::Body {
            return Ok(());
        }
        stream.outgoing = Outgoing::Ended;
        let id = stream.id;
        if trailers.is_empty() {
            frame::push(&mut self.out.bytes, DATA, END_STREAM, id, b"");
        } else {
            let start = self.begin_block();
            compose::trailers(trailers, &mut self.encoding());
            self.end_block(start, id, true);
        }
        self.settle(key);
        Ok(())
    }

    /// Resets a stream, so that the peer sees an incomplete message.
    pub fn reset(&mut self, key: Key, reason: Reason) {
        let stream = self.streams.at(key);
        // The peer knows no stream without a number.
        if stream.id > 0 && !stream.is_closed() {
            self.push_reset(stream.id, reason);
        }
        self.break_off(key, reason);
    }

    pub(crate) fn push_reset(&mut self, id: u32, reason: Reason) {
        // RFC 9113 §5.1: frames that cross the reset on their way are no error.
        self.streams.remember_reset(id);
        frame::push(&mut self.out.bytes, RST_STREAM, 0, id, &reason.0.to_be_bytes());
    }

    pub fn is_broken(&self, key: Key) -> bool {
        self.streams.at(key).broken.is_some()
    }

    /// Releases a stream. If it has not ended, it is reset.
    pub fn release(&mut self, key: Key) {
        let stream = self.streams.at(key);
        if stream.id > 0 && !stream.is_closed() {
            let has_answered = self.role == H2Role::Server && stream.outgoing == Outgoing::Ended;
            // RFC 9113 §8.1: after a complete response, the rest of the request is not needed.
            let reason = if has_answered { Reason::NO_ERROR } else { Reason::CANCEL };
            self.reset(key, reason);
        }
        let stream = self.streams.at(key);
        self.unread -= stream.body.len() as i64;
        self.windows.hold(self.unread);
        self.long_heads -= stream.long_head;
        // The slot is used again: the rest of a DATA frame must not become the body of the next stream.
        self.parser.let_go(key);
        self.streams.remove(key);
        // Bytes that were never read count as read now; without this the window would shrink with each released
        // stream.
        self.give_connection();
    }

    fn check(&self, key: Key) -> Result<(), WriteError> {
        self.streams.at(key).broken.map_or(Ok(()), |reason| Err(WriteError::Gone(gone(reason))))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteError {
    Untold,
    Gone(H2StreamGone),
}

impl From<Untold> for WriteError {
    fn from(Untold: Untold) -> Self {
        Self::Untold
    }
}

/// Classifies a reset: a request that the peer refused may be sent elsewhere (RFC 9113 §8.7).
fn gone(reason: Reason) -> H2StreamGone {
    if reason == Reason::REFUSED_STREAM { H2StreamGone::Untouched } else { H2StreamGone::Broken }
}
