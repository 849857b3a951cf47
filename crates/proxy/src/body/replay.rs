//! Sends a kept body to a server, as often as the request is tried.
//!
//! What fits the first write leaves with the head, like the first piece of any body; the rest goes on beside the response.

use std::cmp::min;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;

use ::files::{OpenFile, Waits};
use http1::Framing;

use crate::body::ends::{End, Ends, Side};
use crate::body::kept::{Content, KeptBody};
use crate::body::pump::Stop;
use crate::context::minimum_rate::Progress;
use transport::buffer::{BULK, Buffer, SMALL};
use transport::endpoint::Endpoint;
use transport::tcp::Follows;

/// A body up to this length is copied behind its head, and leaves in one write with it.
const LEADING_BYTES_MAX: u64 = 64 << 10;
/// So much of a file is sent before it is looked again whether the next bytes are in memory.
const WINDOW_BYTES: u64 = 1 << 20;

/// A kept body on its way to a server.
pub(crate) struct Replay {
    body: Rc<KeptBody>,
    /// What follows the body: the end of its chunks.
    tail: Vec<u8>,
    /// Whether the body left with its head.
    has_led: bool,
    /// How much of the body and its tail this attempt has sent.
    sent: u64,
    /// What earlier attempts have sent.
    sent_before: u64,
}

impl Replay {
    pub(crate) fn new(body: Rc<KeptBody>) -> Self {
        Self { body, tail: Vec::new(), has_led: false, sent: 0, sent_before: 0 }
    }

    /// How servers are told the length.
    pub(crate) fn framing(&self) -> Framing {
        if self.body.is_chunked { Framing::Chunked } else { Framing::Length(self.body.bytes) }
    }

    /// Writes what leaves with the head. `has_chunks` says whether chunked bodies have to be framed.
    pub(crate) fn lead(&mut self, has_chunks: bool, first_piece: &mut Vec<u8>) {
        let KeptBody { content, bytes, trailers, is_chunked, .. } = &*self.body;
        first_piece.clear();
        self.tail.clear();
        if *is_chunked && has_chunks {
            if *bytes > 0 {
                // RFC 9112 §7.1: one chunk is as good as many.
                first_piece.extend_from_slice(format!("{bytes:x}\r\n").as_bytes());
                self.tail.extend_from_slice(b"\r\n");
            }
            for part in [b"0\r\n", trailers.as_slice(), b"\r\n"] {
                self.tail.extend_from_slice(part);
            }
        }
        self.has_led = match content {
            Content::Memory(body) if *bytes <= LEADING_BYTES_MAX => {
                first_piece.extend_from_slice(body);
                first_piece.extend_from_slice(&self.tail);
                true
            }
            Content::Memory(_) | Content::File(_) => false,
        };
    }

    /// Begins anew, for the next attempt.
    pub(crate) fn restart(&mut self) {
        self.sent_before += std::mem::take(&mut self.sent);
    }

    /// Bytes that were sent besides what left with heads.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_before + self.sent
    }

    /// Whether nothing is left to be said to the server but its head and first piece.
    pub(crate) fn is_done_for(&self, sink: &Endpoint) -> bool {
        self.has_led && self.trailers_for(sink).is_empty()
    }

    fn trailers_for(&self, sink: &Endpoint) -> &[u8] {
        if sink.frames_itself() { &self.body.trailers } else { b"" }
    }

    /// Sends what is left of it. May be dropped at any wait, and called again.
    pub(crate) async fn run(&mut self, ends: &Ends<'_>) -> Result<(), Stop> {
        let mut progress = Progress::default();
        let body = Rc::clone(&self.body);
        let mut buffer = ends.worker.buffers.take_waiting(SMALL);
        while !self.has_led && self.sent < body.bytes {
            match &body.content {
                Content::Memory(bytes) => {
                    let left = &bytes[self.sent as usize..];
                    self.write(ends, &mut progress, left).await?;
                }
                Content::File(file) => self.file(ends, &mut progress, (&body, file), &mut buffer).await?,
            }
        }
        while !self.has_led
            && let Some(left) =
                self.tail.get((self.sent - body.bytes) as usize..).filter(|left| !left.is_empty())
        {
            let write = ends.sink.write(left, Follows::End);
            self.sent += ends.wait(Side::Sink, &mut progress, write).await.map_err(Stop::Sink)? as u64;
        }
        ends.sink.end(self.trailers_for(ends.sink)).map_err(|_| Stop::Sink(End::Gone))
    }

    /// Sends some of what is left of a file: from where the kernel has it, or through a buffer where records or frames go
    /// around its bytes.
    async fn file(
        &mut self,
        ends: &Ends<'_>,
        progress: &mut Progress,
        (body, file): (&KeptBody, &OpenFile),
        buffer: &mut Buffer,
    ) -> Result<(), Stop> {
        let window = self.sent..min(body.bytes, (self.sent / WINDOW_BYTES + 1) * WINDOW_BYTES);
        body.load(window.clone()).await.map_err(Stop::Unreadable)?;
        if let Some(tcp) = ends.sink.spliceable() {
            while self.sent < window.end {
                let (at, count) = (self.sent, (window.end - self.sent) as usize);
                let write = poll_fn(|context| tcp.poll_send_file(context, file, at, count));
                match ends.wait(Side::Sink, progress, write).await.map_err(Stop::Sink)? {
                    0 => return Err(Stop::Unreadable(io::ErrorKind::UnexpectedEof.into())),
                    count => self.sent += count as u64,
                }
            }
            return Ok(());
        }
        // Nothing is read for a stream that cannot send it.
        ends.wait(Side::Sink, progress, ends.sink.writable()).await.map_err(Stop::Sink)?;
        let wanted = min(window.end - window.start, ends.sink.room().clamp(SMALL, BULK) as u64) as usize;
        ends.worker.buffers.grow_to(buffer, wanted);
        let spare = buffer.spare();
        let wanted = wanted.min(spare.len());
        match file.read_at(&mut spare[..wanted], window.start, Waits::Maybe) {
            Ok(0) => return Err(Stop::Unreadable(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => buffer.advance(count),
            Err(error) => return Err(Stop::Unreadable(error)),
        }
        while !buffer.is_empty() {
            let count = self.write(ends, progress, buffer.filled()).await?;
            buffer.consume(count);
        }
        ends.worker.buffers.wait(buffer);
        Ok(())
    }

    /// Sends some bytes of the body.
    async fn write(&mut self, ends: &Ends<'_>, progress: &mut Progress, bytes: &[u8]) -> Result<usize, Stop> {
        let is_last = self.sent + bytes.len() as u64 == self.body.bytes;
        let is_end = is_last && self.tail.is_empty() && self.trailers_for(ends.sink).is_empty();
        let write = ends.sink.write(bytes, if is_end { Follows::End } else { Follows::More });
        let count = ends.wait(Side::Sink, progress, write).await.map_err(Stop::Sink)?;
        self.sent += count as u64;
        Ok(count)
    }
}
