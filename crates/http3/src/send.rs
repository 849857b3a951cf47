//! Reading from streams, and writing to them.

use fields::compose::{self, ComposedRequest, ComposedResponse, Untold, WireScheme};
use fields::message::{Framed, RequestKind};

use crate::code::H3Code;
use crate::connection::{FlushOrder, H3Role, H3StateMachine, Transport};
use crate::frame::{self, DATA};
use crate::stream::{H3Incoming, H3StreamGone, Holder, IncomingPayload, Key, Outgoing, StreamOut};

/// Bytes of a stream that are gathered for one write to the transport. Longer bodies are written directly, without a
/// copy.
const GATHERED_MAX: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteError {
    Untold,
    /// The head exceeds the peer's SETTINGS_MAX_FIELD_SECTION_SIZE (RFC 9114 §4.2.2). Another head can be written.
    TooLarge {
        /// Size of the head by the rules of that setting, in bytes.
        size: u64,
        limit: u64,
    },
    Gone(H3StreamGone),
}

impl From<Untold> for WriteError {
    fn from(Untold: Untold) -> Self {
        Self::Untold
    }
}

/// Reading.
impl H3StateMachine {
    /// Length of the text that can be read from a stream: first the head, then any later text.
    pub fn text_len(&self, key: Key) -> usize {
        self.streams.at(key).text.len()
    }

    /// Whether the peer has begun a DATA frame on a stream, and not sent all of it.
    pub fn owes(&self, key: Key) -> bool {
        matches!(self.streams.at(key).payload, IncomingPayload::Data(_))
    }

    /// Whether bytes, the end or an error can be read from a stream.
    pub fn is_readable(&self, key: Key) -> bool {
        let stream = self.streams.at(key);
        !stream.text.is_empty()
            || !stream.body.is_empty()
            || stream.incoming == H3Incoming::Ended
            || stream.broken.is_some()
    }

    /// Reads as many bytes as possible into `buffer`, which must not be empty. 0 is the end; `None` means that nothing
    /// has arrived yet.
    ///
    /// # Errors
    /// The message is incomplete.
    pub fn read(&mut self, key: Key, buffer: &mut [u8]) -> Result<Option<usize>, H3StreamGone> {
        let stream = self.streams.change(key);
        if stream.text.is_empty() {
            if !stream.body.is_empty() {
                return self.read_body(key, buffer).map(Some);
            }
            // The code tells the path whether the request may be sent elsewhere.
            if let Some(code) = stream.broken {
                return Err(code.into());
            }
            if stream.incoming != H3Incoming::Ended {
                return Ok(None);
            }
            if stream.framed == Framed::Raw {
                return Ok(Some(0));
            }
            // The end of the chunks, once.
            stream.framed = Framed::Raw;
            stream.text.take_over(&mut stream.tail);
        }
        Ok(Some(stream.text.read(buffer)))
    }

    fn read_body(&mut self, key: Key, buffer: &mut [u8]) -> Result<usize, H3StreamGone> {
        let stream = self.streams.at(key);
        // The buffer always has room for the framing, because the path reads bodies into empty buffers.
        let (count, len) = stream.body.copy_framed(stream.framed, buffer).ok_or(H3StreamGone::Broken)?;
        self.took_body(key, count);
        Ok(len)
    }

    /// Unread bytes of the body. Empty before the head is read, and for a body that is read as chunks.
    pub fn body(&self, key: Key) -> &[u8] {
        let stream = self.streams.at(key);
        if stream.text.is_empty() && stream.framed == Framed::Raw { stream.body.get() } else { b"" }
    }

    /// The most body bytes to wait for before reading.
    pub fn gathers(&self) -> usize {
        self.limits.body_bytes / 2
    }

    /// Whether `wanted` unread bytes of the body have arrived, or no more will come.
    pub fn has_of_body(&self, key: Key, wanted: usize) -> bool {
        let stream = self.streams.at(key);
        stream.body.len() >= wanted || stream.incoming == H3Incoming::Ended || stream.broken.is_some()
    }

    /// Removes the first `count` unread bytes of the body. The stream may accept more bytes then.
    pub fn took_body(&mut self, key: Key, count: usize) {
        self.streams.change(key).body.consume(count);
        self.unread -= count;
        self.want_again(key);
        self.want_all_again();
    }

    /// The peer's error, in words, for which the stream was reset.
    pub fn wrong(&self, key: Key) -> Option<&str> {
        self.streams.at(key).wrong.as_deref()
    }

    pub fn is_too_large(&self, key: Key) -> bool {
        let stream = self.streams.at(key);
        stream.broken == Some(H3Code::EXCESSIVE_LOAD) && stream.wrong.is_some()
    }

    pub fn reset_code(&self, key: Key) -> Option<H3Code> {
        let stream = self.streams.at(key);
        stream.broken.filter(|_| stream.wrong.is_none())
    }

    pub fn is_broken(&self, key: Key) -> bool {
        self.streams.at(key).broken.is_some()
    }
}

/// Writing.
impl H3StateMachine {
    pub fn wants_head(&self, key: Key) -> bool {
        self.streams.at(key).outgoing == Outgoing::Head
    }

    /// Writes the head at the start of `text`, and returns its length. With `is_last`, the stream ends if the head is
    /// all of `text`. `scheme` is the scheme of a request. The head leaves with the next write or flush.
    ///
    /// # Errors
    /// The head cannot be sent; nothing was written.
    pub fn write_head(
        &mut self,
        key: Key,
        text: &[u8],
        is_last: bool,
        scheme: WireScheme,
    ) -> Result<usize, WriteError> {
        if let Some(code) = self.streams.at(key).broken {
            return Err(WriteError::Gone(code.into()));
        }
        let len = compose::head_len(text).ok_or(WriteError::Untold)?;
        let (head, is_last) = (&text[..len], is_last && len == text.len());
        match self.role {
            H3Role::Server => self.write_response(key, &ComposedResponse::new(head)?, is_last)?,
            H3Role::Client => self.write_request(key, &ComposedRequest::new(head)?, is_last, scheme)?,
        }
        Ok(len)
    }

    fn write_response(
        &mut self,
        key: Key,
        response: &ComposedResponse<'_>,
        is_last: bool,
    ) -> Result<(), WriteError> {
        if self.streams.at(key).asks_for_upgrade && response.is_success() {
            self.deny_upgrade(key);
            return Ok(());
        }
        self.begin_section(key);
        let status = response.compose(&mut self.encoder);
        self.check_size()?;
        self.end_section(key);
        let is_interim = matches!(status, 100 | 102..=199);
        // After a 101, which becomes a 200, the stream carries the other protocol.
        let is_last = is_last && !is_interim && status != 101;
        let stream = self.streams.change(key);
        if !is_interim {
            stream.outgoing = if is_last { Outgoing::Ended } else { Outgoing::Body };
        }
        Ok(())
    }

    /// Rejects an upgrade. For CONNECT, any success means that there is a tunnel (RFC 9110 §9.3.6, RFC 9220 §3), so a
    /// server's success without a switch of protocols is not passed on.
    #[cold]
    fn deny_upgrade(&mut self, key: Key) {
        use compose::Encode;
        self.begin_section(key);
        self.encoder.field(b":status", b"502");
        self.encoder.field(b"content-length", b"0");
        self.end_section(key);
        self.streams.change(key).outgoing = Outgoing::Ended;
    }

    fn write_request(
        &mut self,
        key: Key,
        request: &ComposedRequest<'_>,
        is_last: bool,
        scheme: WireScheme,
    ) -> Result<(), WriteError> {
        let id = self.streams.at(key).id;
        // RFC 9114 §5.2: the server ignores the request. Another connection can take it.
        if self.goaway.is_some_and(|last| id >= last) {
            return Err(WriteError::Gone(H3StreamGone::Untouched));
        }
        self.begin_section(key);
        let asked = request.compose(scheme, self.peer.takes_upgrades, &mut self.encoder);
        self.check_size()?;
        self.end_section(key);
        // After an extended CONNECT, the stream carries the other protocol.
        let is_last = is_last && !matches!(asked, RequestKind::Upgrade { .. });
        let stream = self.streams.change(key);
        stream.asked = asked;
        stream.outgoing = if is_last { Outgoing::Ended } else { Outgoing::Body };
        Ok(())
    }

    /// RFC 9114 §4.2.2. Insertions for a section that is too large remain, and the peer gets them with the next one.
    fn check_size(&self) -> Result<(), WriteError> {
        let (size, limit) = (self.encoder.size() as u64, self.peer.section_bytes);
        if size > limit { Err(WriteError::TooLarge { size, limit }) } else { Ok(()) }
    }

    /// Whether bytes of a body may be written.
    ///
    /// # Errors
    /// The stream has ended.
    pub fn check_open(&self, key: Key) -> Result<(), H3StreamGone> {
        let stream = self.streams.at(key);
        match (stream.outgoing, stream.broken) {
            (Outgoing::Body, None) => Ok(()),
            (_, Some(code)) => Err(code.into()),
            (_, None) => Err(H3StreamGone::Broken),
        }
    }

    /// Gives the transport the start of `bytes` of a body, and returns how many it accepted: 0 while it has no room.
    /// The caller must give the remaining bytes again. With `is_last`, the stream ends if all were accepted.
    pub fn write(&mut self, key: Key, bytes: &[u8], is_last: bool, transport: &mut impl Transport) -> usize {
        if self.check_open(key).is_err() {
            return 0;
        }
        let gathers = |out: &StreamOut, count: usize| out.len() + count <= GATHERED_MAX;
        let stream = self.streams.change(key);
        if !gathers(&stream.out, bytes.len()) && !self.flush_stream(key, transport) {
            return 0;
        }
        let stream = self.streams.change(key);
        if stream.data_left == 0 && !bytes.is_empty() {
            // RFC 9114 §7.2.1. Announces all bytes, although the transport may accept fewer now: a frame for each
            // part would cost a header each.
            frame::push_head(&mut stream.out.bytes, DATA, bytes.len());
            stream.data_left = bytes.len() as u64;
        }
        let count = usize::try_from(stream.data_left).unwrap_or(usize::MAX).min(bytes.len());
        let count = if gathers(&stream.out, count) {
            // A head and a short body are one write to the transport.
            stream.out.bytes.extend_from_slice(&bytes[..count]);
            count
        } else if self.flush_stream(key, transport) {
            transport.write(self.streams.at(key).id, &bytes[..count])
        } else {
            0
        };
        let stream = self.streams.change(key);
        stream.data_left -= count as u64;
        stream.body_sent += count as u64;
        if is_last && count == bytes.len() {
            stream.outgoing = Outgoing::Ended;
        }
        self.flush_stream(key, transport);
        count
    }

    pub fn body_sent(&self, key: Key) -> u64 {
        self.streams.at(key).body_sent
    }

    /// Ends a stream, with trailers if there are any. Does nothing if the stream has ended. The rest leaves with the
    /// next flush.
    ///
    /// # Errors
    /// Bytes that had to be given again are missing: the message is incomplete, and the stream is reset.
    pub fn end(&mut self, key: Key, trailers: &[u8]) -> Result<(), H3StreamGone> {
        let stream = self.streams.change(key);
        if stream.outgoing != Outgoing::Body {
            return Ok(());
        }
        if stream.data_left > 0 {
            // The announced frame cannot be completed or shortened.
            self.reset(key, H3Code::INTERNAL_ERROR);
            return Err(H3StreamGone::Broken);
        }
        if !trailers.is_empty() {
            self.begin_section(key);
            compose::trailers(trailers, &mut self.encoder);
            self.end_section(key);
        }
        self.streams.change(key).outgoing = Outgoing::Ended;
        self.enqueue(key);
        Ok(())
    }

    /// Resets a stream in both directions, so that the peer sees an incomplete message.
    pub fn reset(&mut self, key: Key, code: H3Code) {
        self.break_off(key, code);
    }

    /// Releases a stream. If it has not ended, it is reset; the unsent bytes of an ended one are still sent.
    pub fn release(&mut self, key: Key) {
        let stream = self.streams.change(key);
        if stream.broken.is_none() && !stream.outgoing.is_ended() {
            self.break_off(key, H3Code::REQUEST_CANCELLED);
        } else if stream.broken.is_none() && stream.incoming != H3Incoming::Ended {
            // RFC 9114 §4.1: after a complete response, the rest of the request is not needed.
            let code = if self.role == H3Role::Server { H3Code::NO_ERROR } else { H3Code::REQUEST_CANCELLED };
            let id = stream.id;
            self.orders.push_back(FlushOrder::Stop(id, code));
            self.decoder.cancel(id);
        }
        let stream = self.streams.change(key);
        if stream.outgoing != Outgoing::Ended {
            return self.drop_stream(key);
        }
        stream.holder = Holder::Rest;
        let unread = stream.body.len();
        stream.body.clear();
        self.unread -= unread;
        self.enqueue(key);
        self.want_all_again();
    }
}
