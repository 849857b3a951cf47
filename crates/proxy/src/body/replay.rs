//! Sends a kept body to a server, once per attempt.
//!
//! The part that fits the first write is sent with the head, like the first piece of any body. The rest is sent while
//! the response may already arrive.

use std::cmp::min;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;

use ::files::{MayBlock, OpenFile};
use http1::BodyFraming;

use crate::body::ends::{Ends, PumpEnd, PumpSide};
use crate::body::kept::{KeptBody, KeptContent};
use crate::body::pump::Stop;
use crate::shared::minimum_rate::RateProgress;
use transport::buffer::{BULK, Buffer, SMALL};
use transport::endpoint::MessageEndpoint;
use transport::tcp::Follows;

/// Up to this length, a body is copied behind its head, and leaves in one write with it.
const LEADING_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a file that are sent between checks that the next ones are in memory.
const WINDOW_BYTES: u64 = 1 << 20;

/// A kept body on its way to a server.
pub(crate) struct Replay {
    body: Rc<KeptBody>,
    /// The end of the chunked body.
    tail: Vec<u8>,
    /// Whether the body was sent with the head.
    has_led: bool,
    /// Bytes of the body and its tail sent in this attempt.
    sent: u64,
    /// Bytes sent in earlier attempts.
    sent_before: u64,
}

impl Replay {
    pub(crate) fn new(body: Rc<KeptBody>) -> Self {
        Self { body, tail: Vec::new(), has_led: false, sent: 0, sent_before: 0 }
    }

    /// `needs_length`: the server gets no body without one (FastCGI).
    pub(crate) fn framing(&self, needs_length: bool) -> BodyFraming {
        if self.body.is_chunked && !needs_length {
            BodyFraming::Chunked
        } else {
            BodyFraming::Length(self.body.bytes)
        }
    }

    /// Writes the part that leaves with the head. `has_chunks`: chunked bodies must be framed (HTTP/1).
    pub(crate) fn lead(&mut self, has_chunks: bool, first_piece: &mut Vec<u8>) {
        let KeptBody { content, bytes, trailers, is_chunked, .. } = &*self.body;
        first_piece.clear();
        self.tail.clear();
        if *is_chunked && has_chunks {
            if *bytes > 0 {
                // RFC 9112 §7.1: one chunk suffices.
                first_piece.extend_from_slice(format!("{bytes:x}\r\n").as_bytes());
                self.tail.extend_from_slice(b"\r\n");
            }
            for part in [b"0\r\n", trailers.as_slice(), b"\r\n"] {
                self.tail.extend_from_slice(part);
            }
        }
        self.has_led = match content {
            KeptContent::Memory(body) if *bytes <= LEADING_BYTES_MAX => {
                first_piece.extend_from_slice(body);
                first_piece.extend_from_slice(&self.tail);
                true
            }
            KeptContent::Memory(_) | KeptContent::File(_) => false,
        };
    }

    /// The body, unless it is in a file.
    pub(crate) fn in_memory(&self) -> Option<&[u8]> {
        match &self.body.content {
            KeptContent::Memory(body) => Some(body),
            KeptContent::File(_) => None,
        }
    }

    /// Restarts for the next attempt.
    pub(crate) fn restart(&mut self) {
        self.sent_before += std::mem::take(&mut self.sent);
    }

    /// Bytes sent, except those that left with heads.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_before + self.sent
    }

    /// Whether the server gets nothing besides the head and the first piece.
    pub(crate) fn is_done_for(&self, sink: &MessageEndpoint) -> bool {
        self.has_led && self.trailers_for(sink).is_empty()
    }

    fn trailers_for(&self, sink: &MessageEndpoint) -> &[u8] {
        if sink.frames_itself() { &self.body.trailers } else { b"" }
    }

    /// Sends the rest. May be dropped at any wait, and called again.
    pub(crate) async fn run(&mut self, ends: &Ends<'_>) -> Result<(), Stop> {
        let mut progress = RateProgress::default();
        let body = Rc::clone(&self.body);
        let mut buffer = ends.buffers.take_waiting(SMALL);
        while !self.has_led && self.sent < body.bytes {
            match &body.content {
                KeptContent::Memory(bytes) => {
                    let left = &bytes[self.sent as usize..];
                    self.write(ends, &mut progress, left).await?;
                }
                KeptContent::File(file) => self.file(ends, &mut progress, &body, file, &mut buffer).await?,
            }
        }
        while !self.has_led
            && let Some(left) =
                self.tail.get((self.sent - body.bytes) as usize..).filter(|left| !left.is_empty())
        {
            let write = ends.sink.write(left, Follows::End);
            self.sent += ends.wait(PumpSide::Sink, &mut progress, write).await.map_err(Stop::Sink)? as u64;
        }
        ends.sink.end(self.trailers_for(ends.sink)).map_err(|_| Stop::Sink(PumpEnd::Gone))
    }

    /// Sends some of the rest of a file: by sendfile, or through a buffer if TLS records or frames are needed.
    async fn file(
        &mut self,
        ends: &Ends<'_>,
        progress: &mut RateProgress,
        body: &KeptBody,
        file: &OpenFile,
        buffer: &mut Buffer,
    ) -> Result<(), Stop> {
        let window = self.sent..min(body.bytes, (self.sent / WINDOW_BYTES + 1) * WINDOW_BYTES);
        body.load(window.clone()).await.map_err(Stop::Unreadable)?;
        if let Some(tcp) = ends.sink.spliceable() {
            while self.sent < window.end {
                let (at, count) = (self.sent, (window.end - self.sent) as usize);
                let write = poll_fn(|context| tcp.poll_send_file(context, file, at, count));
                match ends.wait(PumpSide::Sink, progress, write).await.map_err(Stop::Sink)? {
                    // The file has all bytes of the body, so an early end means that it is damaged.
                    0 => return Err(Stop::Unreadable(io::ErrorKind::UnexpectedEof.into())),
                    count => self.sent += count as u64,
                }
            }
            return Ok(());
        }
        // Reads nothing that the stream cannot send.
        ends.wait(PumpSide::Sink, progress, ends.sink.writable()).await.map_err(Stop::Sink)?;
        let wanted = min(window.end - window.start, ends.sink.room().clamp(SMALL, BULK) as u64) as usize;
        ends.buffers.grow_to(buffer, wanted);
        let spare = buffer.spare();
        let wanted = wanted.min(spare.len());
        match file.read_at(&mut spare[..wanted], window.start, MayBlock::Maybe) {
            Ok(0) => return Err(Stop::Unreadable(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => buffer.advance(count),
            Err(error) => return Err(Stop::Unreadable(error)),
        }
        while !buffer.is_empty() {
            let count = self.write(ends, progress, buffer.filled()).await?;
            buffer.consume(count);
        }
        // The buffer is returned before the next wait, so a slow server holds none.
        ends.buffers.wait(buffer);
        Ok(())
    }

    async fn write(
        &mut self,
        ends: &Ends<'_>,
        progress: &mut RateProgress,
        bytes: &[u8],
    ) -> Result<usize, Stop> {
        let is_last = self.sent + bytes.len() as u64 == self.body.bytes;
        // `More` lets the kernel fill the segment with the bytes that follow.
        let is_end = is_last && self.tail.is_empty() && self.trailers_for(ends.sink).is_empty();
        let write = ends.sink.write(bytes, if is_end { Follows::End } else { Follows::More });
        let count = ends.wait(PumpSide::Sink, progress, write).await.map_err(Stop::Sink)?;
        self.sent += count as u64;
        Ok(count)
    }
}
