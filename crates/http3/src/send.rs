//! Reading from streams, and writing to them.

use fields::compose::{self, Request, Response, Scheme, Untold};
use fields::message::{Framed, RequestKind};

use crate::code::Code;
use crate::connection::{Connection, Order, Role, Transport};
use crate::frame::{self, DATA};
use crate::stream::{Gone, Holder, Incoming, Key, Out, Outgoing, Payload};

/// What is gathered of a stream for one write to the transport. Longer bodies are given to it from where they are.
const GATHERED_MAX: usize = 1024;

/// Why a head cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteError {
    /// HTTP/3 cannot express the head.
    Untold,
    /// The head is larger than the peer allows (RFC 9114 §4.2.2).
    TooLarge,
    /// The stream has ended.
    Gone(Gone),
}

impl From<Untold> for WriteError {
    fn from(Untold: Untold) -> Self {
        Self::Untold
    }
}

/// What is read.
impl Connection {
    /// The length of the text that can be read from a stream; at first, that of the head.
    pub fn text_len(&self, key: Key) -> usize {
        self.streams.at(key).text.len()
    }

    /// Whether the peer has sent a part of a DATA frame, and not yet the rest.
    pub fn owes(&self, key: Key) -> bool {
        matches!(self.streams.at(key).payload, Payload::Data(_))
    }

    /// Whether bytes, the end or an error can be read from a stream.
    pub fn is_readable(&self, key: Key) -> bool {
        let stream = self.streams.at(key);
        !stream.text.is_empty()
            || !stream.body.is_empty()
            || stream.incoming == Incoming::Ended
            || stream.broken.is_some()
    }

    /// Reads as many bytes as there are into `buffer`, which must not be empty. 0 is the end; `None` means that nothing
    /// has arrived yet.
    ///
    /// # Errors
    /// If the message is not whole.
    pub fn read(&mut self, key: Key, buffer: &mut [u8]) -> Result<Option<usize>, Gone> {
        let stream = self.streams.change(key);
        if stream.text.is_empty() {
            if !stream.body.is_empty() {
                return self.read_body(key, buffer).map(Some);
            }
            if let Some(code) = stream.broken {
                return Err(code.into());
            }
            if stream.incoming != Incoming::Ended {
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

    fn read_body(&mut self, key: Key, buffer: &mut [u8]) -> Result<usize, Gone> {
        let stream = self.streams.at(key);
        // The path reads bodies into empty buffers.
        let (count, len) = stream.body.copy_framed(stream.framed, buffer).ok_or(Gone::Broken)?;
        self.took_body(key, count);
        Ok(len)
    }

    /// Body bytes that have arrived and are unread. Empty before the head is read, and for a body that is read as
    /// chunks.
    pub fn body(&self, key: Key) -> &[u8] {
        let stream = self.streams.at(key);
        if stream.text.is_empty() && stream.framed == Framed::Raw { stream.body.get() } else { b"" }
    }

    /// The most body bytes to wait for before any are read.
    pub fn gathers(&self) -> usize {
        self.limits.body_bytes / 2
    }

    /// Whether `wanted` bytes of the body have arrived and are unread, or no more will come.
    pub fn has_of_body(&self, key: Key, wanted: usize) -> bool {
        let stream = self.streams.at(key);
        stream.body.len() >= wanted || stream.incoming == Incoming::Ended || stream.broken.is_some()
    }

    /// Removes the first `count` unread bytes of the body. More may be wanted then.
    pub fn took_body(&mut self, key: Key, count: usize) {
        self.streams.change(key).body.consume(count);
        self.unread -= count;
        self.want_again(key);
        self.want_all_again();
    }

    /// The peer's error on a stream that was reset for it, in words.
    pub fn wrong(&self, key: Key) -> Option<&str> {
        self.streams.at(key).wrong.as_deref()
    }

    /// Whether the stream was reset because its head was too large.
    pub fn is_too_large(&self, key: Key) -> bool {
        let stream = self.streams.at(key);
        stream.broken == Some(Code::EXCESSIVE_LOAD) && stream.wrong.is_some()
    }

    /// Whether the stream has ended early.
    pub fn is_broken(&self, key: Key) -> bool {
        self.streams.at(key).broken.is_some()
    }
}

/// What is written.
impl Connection {
    /// Whether a head has to be written next.
    pub fn wants_head(&self, key: Key) -> bool {
        self.streams.at(key).outgoing == Outgoing::Head
    }

    /// Writes the head at the start of `text`, and returns its length. With `is_last`, the stream ends if the head is
    /// all of `text`. A request goes to a server of this scheme. It leaves with the next write or flush.
    ///
    /// # Errors
    /// If the head cannot be sent; then nothing of it was.
    pub fn write_head(
        &mut self,
        key: Key,
        text: &[u8],
        is_last: bool,
        scheme: Scheme,
    ) -> Result<usize, WriteError> {
        if let Some(code) = self.streams.at(key).broken {
            return Err(WriteError::Gone(code.into()));
        }
        let len = compose::head_len(text).ok_or(WriteError::Untold)?;
        let (head, is_last) = (&text[..len], is_last && len == text.len());
        match self.role {
            Role::Server => self.write_response(key, &Response::of(head)?, is_last)?,
            Role::Client => self.write_request(key, &Request::of(head)?, is_last, scheme)?,
        }
        Ok(len)
    }

    fn write_response(&mut self, key: Key, response: &Response<'_>, is_last: bool) -> Result<(), WriteError> {
        if self.streams.at(key).asks_for_upgrade && response.is_success() {
            self.deny_upgrade(key);
            return Ok(());
        }
        self.begin_section(key);
        let status = response.compose(&mut self.encoder);
        self.check_size()?;
        self.end_section(key);
        let is_interim = matches!(status, 100 | 102..=199);
        let is_last = is_last && !is_interim && status != 101;
        let stream = self.streams.change(key);
        if !is_interim {
            stream.outgoing = if is_last { Outgoing::Ended } else { Outgoing::Body };
        }
        Ok(())
    }

    /// Rejects an upgrade to the client. Any success other than 101 would hand the stream to the other protocol (RFC
    /// 9110 §9.3.6, RFC 9220 §3), so the server's success is not passed on.
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
        request: &Request<'_>,
        is_last: bool,
        scheme: Scheme,
    ) -> Result<(), WriteError> {
        let id = self.streams.at(key).id;
        if self.goaway.is_some_and(|last| id >= last) {
            return Err(WriteError::Gone(Gone::Untouched));
        }
        self.begin_section(key);
        let asked = request.compose(scheme, self.peer.takes_upgrades, &mut self.encoder);
        self.check_size()?;
        self.end_section(key);
        let is_last = is_last && !matches!(asked, RequestKind::Upgrade { .. });
        let stream = self.streams.change(key);
        stream.asked = asked;
        stream.outgoing = if is_last { Outgoing::Ended } else { Outgoing::Body };
        Ok(())
    }

    /// RFC 9114 §4.2.2. What was inserted for the section stays, and goes to the peer with the next one.
    fn check_size(&self) -> Result<(), WriteError> {
        let is_too_large = self.encoder.size() as u64 > self.peer.section_bytes;
        if is_too_large { Err(WriteError::TooLarge) } else { Ok(()) }
    }

    /// Whether bytes of a body may be written.
    ///
    /// # Errors
    /// If the stream has ended.
    pub fn check_open(&self, key: Key) -> Result<(), Gone> {
        let stream = self.streams.at(key);
        match (stream.outgoing, stream.broken) {
            (Outgoing::Body, None) => Ok(()),
            (_, Some(code)) => Err(code.into()),
            (_, None) => Err(Gone::Broken),
        }
    }

    /// Gives the transport the start of `bytes` of a body, and returns how many it has taken: 0 while it has no room. Bytes
    /// that it has not taken have to be given again. With `is_last`, the stream ends if it takes all.
    pub fn write(&mut self, key: Key, bytes: &[u8], is_last: bool, transport: &mut impl Transport) -> usize {
        if self.check_open(key).is_err() {
            return 0;
        }
        let gathers = |out: &Out, count: usize| out.len() + count <= GATHERED_MAX;
        let stream = self.streams.change(key);
        if !gathers(&stream.out, bytes.len()) && !self.flush_stream(key, transport) {
            return 0;
        }
        let stream = self.streams.change(key);
        if stream.data_left == 0 && !bytes.is_empty() {
            // RFC 9114 §7.2.1.
            frame::push_head(&mut stream.out.bytes, DATA, bytes.len());
            stream.data_left = bytes.len() as u64;
        }
        let count = usize::try_from(stream.data_left).unwrap_or(usize::MAX).min(bytes.len());
        let count = if gathers(&stream.out, count) {
            // A head and a short body are one piece for the transport.
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

    /// How many body bytes the transport has taken.
    pub fn body_sent(&self, key: Key) -> u64 {
        self.streams.at(key).body_sent
    }

    /// Ends a stream, with trailers if there are any, unless it has ended. What is left of that goes with the next flush.
    ///
    /// # Errors
    /// If bytes that were to be given again are missing: the message is not whole, and the stream is reset.
    pub fn end(&mut self, key: Key, trailers: &[u8]) -> Result<(), Gone> {
        let stream = self.streams.change(key);
        if stream.outgoing != Outgoing::Body {
            return Ok(());
        }
        if stream.data_left > 0 {
            self.reset(key, Code::INTERNAL_ERROR);
            return Err(Gone::Broken);
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

    /// Resets a stream in both directions: tells the peer that the message is incomplete.
    pub fn reset(&mut self, key: Key, code: Code) {
        self.break_off(key, code);
    }

    /// Releases a stream. If it has not ended, it is reset; what is left of an ended one is still sent.
    pub fn release(&mut self, key: Key) {
        let stream = self.streams.change(key);
        if stream.broken.is_none() && !stream.outgoing.is_ended() {
            self.break_off(key, Code::REQUEST_CANCELLED);
        } else if stream.broken.is_none() && stream.incoming != Incoming::Ended {
            // RFC 9114 §4.1: a response that is whole needs no more of its request.
            let code = if self.role == Role::Server { Code::NO_ERROR } else { Code::REQUEST_CANCELLED };
            let id = stream.id;
            self.orders.push_back(Order::Stop(id, code));
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
