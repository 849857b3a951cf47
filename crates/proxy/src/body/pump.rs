//! The body pump: moves a body from source to sink, in any framing.
//!
//! Its state is in `Pump` and the buffer, so a run may be dropped at any wait and resumed. It holds one buffer at a
//! time, so a slow sink slows its source. Long bodies that need no examination move through a pipe inside the kernel
//! (splice).

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use grpc::TextDecoder;
use http1::{BodyFraming, ChunkError, ChunkLimits, ChunkRefusal, ChunkedDecoder, chunk_prefix};

use crate::body::ends::{Ends, PumpEnd, PumpSide};
use crate::body::filters::Filters;
use crate::body::tee::Tee;
use crate::shared::minimum_rate::RateProgress;
use transport::buffer::{BULK, Buffer, SMALL, TINY};
use transport::cold::poll_once;
use transport::deadline::Ticks;
use transport::endpoint::MessageEndpoint;
use transport::h2_stream::H2Stream;
use transport::pipes::Pipes;
use transport::tcp::{Follows, Pipe};

/// Minimum remaining length of a body to be spliced: below, filling and emptying a pipe costs more than the copy.
const SPLICE_MIN: u64 = 24 * 1024;
/// A long body is sent in pieces of at least this size, except the first and the last. Most of a piece's cost is its
/// system call and the wake-ups.
// Measured for 166 kB from servers over TLS: 3.8 writes a response, 8.1 without gathering.
const GATHERED: usize = 64 * 1024;
/// How long a piece waits for more bytes. After a wait in vain, the body's pieces are sent without waiting.
const GATHER_MAX: Ticks = Ticks(2);

/// The part of a body that was not read yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PumpSource {
    Ended,
    Length(u64),
    Chunked,
    UntilClose,
}

pub(crate) struct Pump {
    incoming: PumpSource,
    /// Whether the sink gets chunks, whatever the source's framing.
    is_chunked_out: bool,
    decoder: ChunkedDecoder,
    /// Bytes at the front of the buffer that are framed and ready to be written. Bytes after the body may follow them.
    unsent: usize,
    pipe: Option<Pipe>,
    in_pipe: usize,
    /// Whether the last read filled the buffer, so that the next one may use a larger buffer.
    fills: bool,
    /// Whether a piece waits for more bytes, to leave in one write.
    gathers: bool,
    /// Body bytes taken from the source so far, without framing.
    pub(crate) moved: u64,
    /// How many of them are in the current or last piece.
    piece: usize,
    /// If `moved` exceeds it, the pump stops with `Stop::TooLarge`.
    limit: u64,
    /// Offset of a deliberate cut; `u64::MAX` for none.
    cut_at: u64,
    is_cut: bool,
    /// The pump itself applies those that affect the body.
    filters: Filters,
    /// Copies the body for a mirror or another attempt.
    tee: Option<Box<Tee>>,
    /// Decodes the body from base64.
    text: Option<Box<TextDecoder>>,
}

/// Why a pump stopped before the end of the body.
#[derive(Debug)]
pub(crate) enum Stop {
    Source(PumpEnd),
    Sink(PumpEnd),
    /// The kept body cannot be read from its file.
    Unreadable(io::Error),
    Malformed(ChunkError),
    BadText,
    TooLarge,
    /// The body was cut on purpose, and its end was not sent.
    Cut,
}

impl Pump {
    pub(crate) fn new() -> Self {
        Self {
            incoming: PumpSource::Ended,
            is_chunked_out: false,
            decoder: ChunkedDecoder::default(),
            unsent: 0,
            pipe: None,
            in_pipe: 0,
            fills: false,
            moved: 0,
            gathers: false,
            piece: 0,
            limit: u64::MAX,
            cut_at: u64::MAX,
            is_cut: false,
            filters: Filters::default(),
            tee: None,
            text: None,
        }
    }

    /// Starts with a body in the framing `incoming`. Called before its first byte is framed.
    pub(crate) fn begin(&mut self, incoming: BodyFraming, is_chunked_out: bool, limit: Option<u64>) {
        self.incoming = match incoming {
            BodyFraming::None => PumpSource::Ended,
            BodyFraming::Length(length) => PumpSource::Length(length),
            BodyFraming::Chunked => PumpSource::Chunked,
            BodyFraming::UntilClose => PumpSource::UntilClose,
        };
        self.is_chunked_out = is_chunked_out;
        self.decoder.clear();
        self.unsent = 0;
        // A broken exchange has left bytes in the pipe, so it is discarded.
        if self.in_pipe > 0 {
            self.pipe = None;
            self.in_pipe = 0;
        }
        self.fills = false;
        self.moved = 0;
        // A body of unknown length is never held back: each event of a stream must leave at once.
        self.gathers = matches!(incoming, BodyFraming::Length(length) if length >= GATHERED as u64);
        self.piece = 0;
        self.limit = limit.unwrap_or(u64::MAX);
        self.cut_at = u64::MAX;
        self.is_cut = false;
        self.filters = Filters::default();
        self.tee = None;
        self.text = None;
    }

    /// Decodes the body from base64. Called after `begin`; the sink must frame the body itself.
    pub(crate) fn decode_text(&mut self) {
        debug_assert!(!self.is_chunked_out, "what is decoded leaves no room for chunks");
        self.text = Some(Box::default());
    }

    /// Copies the body from here on.
    pub(crate) fn copy_to(&mut self, tee: Option<Box<Tee>>) {
        self.tee = tee;
    }

    /// Stops copying the body for another attempt.
    pub(crate) fn forget(&mut self) {
        if let Some(tee) = self.tee.take() {
            self.tee = tee.forget();
        }
    }

    /// Whether all bytes taken so far are kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.tee.as_ref().is_some_and(|tee| tee.kept().is_some())
    }

    /// Writes all bytes taken so far to `out`, framed for the sink, and discards what was not sent of them.
    pub(crate) fn repeat(&mut self, buffer: &mut Buffer, out: &mut Vec<u8>) {
        let kept = self.tee.as_ref().and_then(|tee| tee.kept()).unwrap_or_default();
        out.clear();
        if !self.is_chunked_out {
            out.extend_from_slice(kept);
        } else if !kept.is_empty() {
            let (size, start) = chunk_prefix(kept.len());
            [&size[start..], kept, b"\r\n"].iter().for_each(|part| out.extend_from_slice(part));
        }
        // The end was taken from the source, too. Without it the server would wait for the rest of the body (RFC
        // 9112 §7.1).
        if self.is_chunked_out && self.incoming == PumpSource::Ended {
            [b"0\r\n", self.decoder.trailers(), b"\r\n"].iter().for_each(|part| out.extend_from_slice(part));
        }
        self.sent(buffer, self.unsent);
    }

    /// Applies filters to the body. Called after `begin`, before the first byte is taken.
    pub(crate) fn filter(&mut self, filters: Filters) {
        if let Some(bytes) = filters.cut_after() {
            self.cut_after(bytes);
        }
        self.filters = filters;
    }

    pub(crate) fn filters(&self) -> &Filters {
        &self.filters
    }

    /// Cuts the body after so many bytes, if it is longer.
    fn cut_after(&mut self, bytes: u64) {
        match &mut self.incoming {
            PumpSource::Ended => {}
            // The body is short enough. It is not cut, so the fault does not count as injected.
            PumpSource::Length(left) if *left <= bytes => {}
            PumpSource::Length(left) => {
                self.is_cut = true;
                *left = bytes;
                if bytes == 0 {
                    self.incoming = PumpSource::Ended;
                }
            }
            // The length is unknown: `up_to_cut` compares while the body arrives.
            PumpSource::Chunked | PumpSource::UntilClose => self.cut_at = bytes,
        }
    }

    /// Returns how many of the next `len` bytes are sent before the cut.
    fn up_to_cut(&mut self, len: usize) -> usize {
        let left = self.cut_at - self.moved;
        if len as u64 <= left {
            return len;
        }
        self.is_cut = true;
        self.incoming = PumpSource::Ended;
        left as usize
    }

    pub(crate) fn incoming(&self) -> PumpSource {
        self.incoming
    }

    /// The position in the source: body bytes, and whether the end was reached.
    pub(crate) fn taken(&self) -> (u64, bool) {
        (self.moved, self.incoming == PumpSource::Ended)
    }

    /// Body bytes that the sink has taken, without framing. May be a few too low if the sink took part of a chunk's
    /// end.
    pub(crate) fn passed_on(&self) -> u64 {
        self.moved - (self.unsent.min(self.piece) + self.in_pipe) as u64
    }

    /// Whether the whole body was taken from its source and written.
    pub(crate) fn is_done(&self) -> bool {
        self.incoming == PumpSource::Ended && self.unsent == 0 && self.in_pipe == 0
    }

    /// Whether nothing of the body is left for the sink, including trailers that it takes separately.
    pub(crate) fn is_done_for(&self, sink: &MessageEndpoint) -> bool {
        self.is_done() && !self.has_trailers_for(sink)
    }

    fn has_trailers_for(&self, sink: &MessageEndpoint) -> bool {
        sink.frames_itself() && !self.decoder.trailers().is_empty()
    }

    /// Returns, once, why the chunks were rejected.
    pub(crate) fn take_refusal(&mut self) -> Option<Box<ChunkRefusal>> {
        self.decoder.take_refusal()
    }

    /// The trailers that pass the filters, as lines; complete once the body has ended.
    pub(crate) fn trailers(&self) -> &[u8] {
        self.decoder.trailers()
    }

    /// Bytes at the front of the buffer that are ready to be written.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent
    }

    /// Notes that the caller has written `count` of the unsent bytes, or moved them elsewhere.
    pub(crate) fn sent(&mut self, buffer: &mut Buffer, count: usize) {
        self.unsent -= count;
        buffer.consume(count);
    }

    /// Puts a head before the unsent bytes, to leave in one write. Returns false if it does not fit.
    pub(crate) fn lead_with(&mut self, buffer: &mut Buffer, head: &[u8]) -> bool {
        let fits = buffer.prepend(head);
        if fits {
            self.unsent += head.len();
        }
        fits
    }

    /// Frames the bytes in the buffer for the sink. Called when nothing is unsent.
    pub(crate) fn take_in(&mut self, buffer: &mut Buffer) -> Result<(), Stop> {
        debug_assert_eq!(self.unsent, 0);
        match self.incoming {
            PumpSource::Ended => return Ok(()),
            // Base64 shrinks in place. The announced length counts encoded bytes, so the sink must frame the
            // decoded ones.
            PumpSource::Length(left) if self.text.is_some() => {
                let count = left.min(buffer.len() as u64);
                self.incoming =
                    if left == count { PumpSource::Ended } else { PumpSource::Length(left - count) };
                let data = self.decode(buffer, count as usize)?;
                self.moved += data as u64;
                self.copy(buffer.filled(), data);
                self.frame(buffer, data, count as usize, false);
            }
            PumpSource::Length(left) => {
                let count = left.min(buffer.len() as u64);
                self.incoming =
                    if left == count { PumpSource::Ended } else { PumpSource::Length(left - count) };
                self.moved += count;
                self.unsent = count as usize;
                self.piece = count as usize;
                self.copy(buffer.filled(), self.unsent);
            }
            PumpSource::UntilClose => {
                let data = self.up_to_cut(buffer.len());
                self.moved += data as u64;
                self.frame(buffer, data, buffer.len(), false);
            }
            PumpSource::Chunked => {
                let decoded = self
                    .decoder
                    .decode(buffer.filled_mut(), &ChunkLimits::default())
                    .map_err(Stop::Malformed)?;
                if decoded.done {
                    self.incoming = PumpSource::Ended;
                    // Removed once, at the end of the body, so that no later step has to ask for the filters again.
                    if !self.filters.is_empty() {
                        self.decoder.retain_trailers(|name| !self.filters.omits_trailer(name));
                    }
                }
                let data = self.decode(buffer, decoded.data)?;
                let data = self.up_to_cut(data);
                self.moved += data as u64;
                self.copy(buffer.filled(), data);
                // A cut body gets no last chunk: its client must see that it is incomplete.
                self.frame(buffer, data, decoded.consumed, decoded.done && !self.is_cut);
            }
        }
        if self.moved > self.limit { Err(Stop::TooLarge) } else { Ok(()) }
    }

    /// Decodes the first `count` body bytes from base64, if necessary. Returns their new length.
    #[inline]
    fn decode(&mut self, buffer: &mut Buffer, count: usize) -> Result<usize, Stop> {
        let Some(text) = &mut self.text else { return Ok(count) };
        let data = text.decode(&mut buffer.filled_mut()[..count]).map_err(|_| Stop::BadText)?;
        if self.incoming == PumpSource::Ended && !text.is_whole() { Err(Stop::BadText) } else { Ok(data) }
    }

    /// Copies the first `count` body bytes, if a copy is wanted.
    #[inline]
    fn copy(&mut self, bytes: &[u8], count: usize) {
        if let Some(tee) = self.tee.take() {
            self.tee = tee.take(&bytes[..count], self.incoming == PumpSource::Ended);
        }
    }

    /// Puts chunk framing around the first `data` bytes of the `consumed` ones. Later bytes stay behind.
    fn frame(&mut self, buffer: &mut Buffer, data: usize, consumed: usize, is_last: bool) {
        let behind = buffer.len() - consumed;
        let trailers = if is_last { self.decoder.trailers() } else { b"" };
        let data_end: &[u8] = if data > 0 { b"\r\n" } else { b"" };
        let body_end: &[&[u8]] = if is_last { &[b"0\r\n", trailers, b"\r\n"] } else { &[] };
        let tail = |out: bool| std::iter::once(data_end).chain(body_end.iter().copied()).filter(move |_| out);
        let tail_len: usize = tail(self.is_chunked_out).map(<[u8]>::len).sum();
        if behind == 0 {
            buffer.truncate(data);
        } else if data == 0 {
            // Framing without data: later bytes stay where they are.
            buffer.consume(consumed);
        } else {
            // Moves the data up to the later bytes, leaving room for the chunk's tail: the source's framing there was
            // at least as long.
            let gap = consumed - data - tail_len;
            buffer.filled_mut().copy_within(..data, gap);
            buffer.consume(gap);
            let mut at = data;
            for part in tail(self.is_chunked_out) {
                buffer.filled_mut()[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
        }
        self.unsent = data + tail_len;
        self.piece = data;
        if !self.is_chunked_out {
            return;
        }
        if behind == 0 {
            for part in tail(true) {
                // The decoder limits trailers to less than any buffer.
                assert!(buffer.append(part), "a chunk's tail fits behind what was read");
            }
        } else if data == 0 && is_last {
            // Later bytes follow, so the end goes before them, written from back to front.
            for part in [b"\r\n".as_slice(), trailers, b"0\r\n"] {
                buffer.push_front(part);
            }
        }
        if data > 0 {
            let (text, start) = chunk_prefix(data);
            assert!(buffer.prepend(&text[start..]), "a size line fits before what was read");
            self.unsent += text.len() - start;
        }
    }

    /// Handles the end of the source: right for a body until close, an error for any other.
    fn source_ended(&mut self, buffer: &mut Buffer) -> Result<(), Stop> {
        // RFC 9112 §8: a body with a length or chunks that ends early is incomplete.
        if self.incoming != PumpSource::UntilClose {
            return Err(Stop::Source(PumpEnd::Gone));
        }
        self.incoming = PumpSource::Ended;
        if self.is_chunked_out {
            buffer.clear();
            assert!(buffer.append(b"0\r\n\r\n"), "an empty buffer has room");
            self.unsent = buffer.len();
        }
        Ok(())
    }

    /// Writes a body that has arrived completely, without a wait and regardless of its pace. Returns `None` if `run`
    /// must continue.
    pub(crate) fn run_at_once(
        &mut self,
        sink: &MessageEndpoint,
        buffer: &mut Buffer,
        closes_sink: bool,
    ) -> Option<Result<(), Stop>> {
        // A cut body must not get its end, and trailers leave in a separate frame: `run` does both.
        if self.incoming != PumpSource::Ended
            || self.unsent == 0
            || self.is_cut
            || self.has_trailers_for(sink)
        {
            return None;
        }
        let follows = if closes_sink { Follows::Close } else { Follows::End };
        let written =
            poll_once(|context| sink.poll_write(context, &buffer.filled()[..self.unsent], follows))?;
        let Ok(count) = written else { return Some(Err(Stop::Sink(PumpEnd::Gone))) };
        self.sent(buffer, count);
        (self.unsent == 0).then(|| sink.end(b"").map_err(|_| Stop::Sink(PumpEnd::Gone)))
    }

    /// Moves the body until it has ended and is written. Called for each body that `run_at_once` could not finish;
    /// bytes after the body stay in the buffer.
    pub(crate) async fn run(&mut self, ends: &Ends<'_>, buffer: &mut Buffer) -> Result<(), Stop> {
        let mut progress = RateProgress::default();
        // The first piece waits for nothing: it only takes what has already arrived.
        if self.gathers && buffer.has_filled_small() && self.may_gather(ends) {
            self.gather(ends, buffer, &mut progress, Ticks(0)).await?;
        }
        loop {
            if self.unsent > 0 {
                // Asked for each write, because a reload or an operator may set a rate while the body moves.
                let allowed = ends.allowance(self.unsent).await;
                let count = self.write(ends, buffer, allowed, &mut progress).await.map_err(Stop::Sink)?;
                ends.pace.sent(count);
                self.sent(buffer, count);
            } else if let Some(pipe) = self.pipe.as_ref().filter(|_| self.in_pipe > 0) {
                let len = ends.allowance(self.in_pipe).await;
                // Only a part of the pipe may leave now, so the kernel must not wait for more.
                let follows = if len < self.in_pipe { Follows::Nothing } else { self.follows(ends) };
                let write = poll_fn(|context| ends.sink.poll_splice_from(context, pipe, len, follows));
                let count = ends.wait(PumpSide::Sink, &mut progress, write).await.map_err(Stop::Sink)?;
                ends.pace.sent(count);
                self.in_pipe -= count;
            } else if self.incoming == PumpSource::Ended {
                break;
            } else if !buffer.is_empty() {
                self.take_in(buffer)?;
            } else {
                progress.is_owed = ends.minimum_rate.is_none() || self.is_owed_by(ends.source);
                if ends.sink.frames_itself() || buffer.is_of_stream() || ends.is_tunnel {
                    self.make_way(ends, buffer, &mut progress).await?;
                }
                self.read(ends, buffer, &mut progress).await?;
            }
        }
        self.give_pipe(ends.pipes);
        // Without its end, the sink sees a truncated body, which is the purpose of the fault.
        if self.is_cut {
            return Err(Stop::Cut);
        }
        ends.sink.end(self.decoder.trailers()).map_err(|_| Stop::Sink(PumpEnd::Gone))
    }

    /// Takes the next bytes of a body that is not passed on yet, reading them first if none are buffered. While it
    /// waits, it holds no buffer.
    pub(crate) async fn receive(
        &mut self,
        ends: &Ends<'_>,
        buffer: &mut Buffer,
        progress: &mut RateProgress,
    ) -> Result<(), Stop> {
        if buffer.is_empty() {
            progress.is_owed = ends.minimum_rate.is_none() || self.is_owed_by(ends.source);
            ends.buffers.wait(buffer);
            ends.wait(PumpSide::Source, progress, ends.source.readable()).await.map_err(Stop::Source)?;
            let left = if let PumpSource::Length(left) = self.incoming { left } else { 0 };
            ends.buffers.grow_to(buffer, if left > SMALL as u64 { BULK } else { SMALL });
            let count = ends.wait(PumpSide::Source, progress, ends.source.read(buffer.spare())).await;
            match count.map_err(Stop::Source)? {
                0 => return self.source_ended(buffer),
                count => buffer.advance(count),
            }
        }
        self.take_in(buffer)
    }

    /// Whether the source owes announced bytes, rather than just pausing.
    fn is_owed_by(&self, source: &MessageEndpoint) -> bool {
        match self.incoming {
            PumpSource::Length(_) => true,
            // Within a chunk, or a frame of a stream, bytes are owed. Between them a client may pause, as a gRPC
            // stream does.
            PumpSource::Chunked => self.decoder.is_within() || source.owes(),
            PumpSource::Ended | PumpSource::UntilClose => false,
        }
    }

    /// Returns what follows the unsent bytes.
    fn follows(&self, ends: &Ends<'_>) -> Follows {
        if self.is_cut {
            Follows::Nothing
        } else if self.incoming == PumpSource::Ended {
            match (self.has_trailers_for(ends.sink), ends.closes_sink) {
                // Trailers end the stream in a separate frame, so the last data must not end it.
                (true, _) => Follows::More,
                (false, true) => Follows::Close,
                (false, false) => Follows::End,
            }
        } else if matches!(self.incoming, PumpSource::Length(_))
            && (self.will_splice(ends) || self.lender(ends).is_some_and(|source| source.lendable() > 0))
        {
            // Spliced or lent bytes will fill the same segments.
            Follows::More
        } else {
            Follows::Nothing
        }
    }

    /// Writes up to `allowed` of the unsent bytes. While a stream must wait, its memory is reduced to these bytes.
    async fn write(
        &self,
        ends: &Ends<'_>,
        buffer: &mut Buffer,
        allowed: usize,
        progress: &mut RateProgress,
    ) -> Result<usize, PumpEnd> {
        let follows = if allowed < self.unsent { Follows::Nothing } else { self.follows(ends) };
        if buffer.is_of_stream() {
            let bytes = &buffer.filled()[..allowed];
            // Tried first: usually the window is open, and the buffer need not shrink.
            let at_once = poll_fn(|context| Poll::Ready(ends.sink.poll_write(context, bytes, follows))).await;
            if let Poll::Ready(written) = at_once {
                let count = written.map_err(|_| PumpEnd::Gone)?;
                // Bytes that leave at once count as moved, or the next wait would make a fast client look slow.
                if ends.paced == Some(PumpSide::Sink) {
                    progress.moved += count as u64;
                }
                return Ok(count);
            }
            ends.buffers.fit(buffer, 0);
        }
        let write = ends.sink.write(&buffer.filled()[..allowed], follows);
        ends.wait(PumpSide::Sink, progress, write).await
    }

    /// Waits until both sides are ready, holding no buffer, because a connection may have many streams.
    async fn make_way(
        &mut self,
        ends: &Ends<'_>,
        buffer: &mut Buffer,
        progress: &mut RateProgress,
    ) -> Result<(), Stop> {
        let is_ready = poll_fn(|context| {
            let is_readable = ends.source.poll_readable(context).is_ready();
            Poll::Ready(is_readable && ends.sink.poll_writable(context).is_ready())
        });
        if !is_ready.await {
            ends.buffers.shrink(buffer);
            // A quiet body is probably a slow stream: its pipe serves others, and pieces are copied until one is
            // long again.
            if self.incoming == PumpSource::UntilClose {
                self.fills = false;
                self.give_pipe(ends.pipes);
            }
            ends.wait(PumpSide::Source, progress, ends.source.readable()).await.map_err(Stop::Source)?;
            ends.wait(PumpSide::Sink, progress, ends.sink.writable()).await.map_err(Stop::Sink)?;
        }
        if ends.is_tunnel {
            ends.buffers.grow_to(buffer, SMALL);
        }
        Ok(())
    }

    /// Reads the next bytes: through a pipe, by borrowing them from the source, or into the buffer. Called by `run`
    /// when nothing is left to write.
    async fn read(
        &mut self,
        ends: &Ends<'_>,
        buffer: &mut Buffer,
        progress: &mut RateProgress,
    ) -> Result<(), Stop> {
        if self.will_splice(ends)
            && self.has_pipe(ends.pipes)
            && let (Some(pipe), Some(source)) = (&self.pipe, ends.spliceable())
        {
            let left = if let PumpSource::Length(left) = self.incoming { left } else { u64::MAX };
            let limit = left.min(ends.sink.pipe_room() as u64) as usize;
            let read = source.splice_into(pipe, limit);
            let count = ends.wait(PumpSide::Source, progress, read).await.map_err(Stop::Source)?;
            return self.spliced(buffer, count);
        }
        if let Some(source) = self.lender(ends) {
            ends.wait(PumpSide::Source, progress, ends.source.readable()).await.map_err(Stop::Source)?;
            // The first piece leaves at once, because the client may act on it. Later ones are gathered for fewer
            // writes.
            if self.gathers && self.moved > 0 {
                let left = if let PumpSource::Length(left) = self.incoming { left } else { 0 };
                let wanted = GATHERED.min(usize::try_from(left).unwrap_or(GATHERED));
                let gathered = poll_fn(|context| source.poll_lendable(context, wanted));
                self.gathers = ends.deadline.within(GATHER_MAX, gathered).await.is_ok();
            }
            if source.lendable() > 0 {
                return self.lend(ends, source, progress).await;
            }
        }
        // Bytes that a stream cannot send stay here, so little more than that is read.
        let room = ends.sink.room().max(TINY);
        let is_long = matches!(self.incoming, PumpSource::Length(left) if left > SMALL as u64);
        if self.fills || (is_long && ends.sink.frames_itself()) {
            // More than a buffer has arrived: continue in large pieces.
            let wanted = if is_long { BULK } else { 2 * buffer.spare().len() };
            ends.buffers.grow_to(buffer, wanted.min(room).min(ends.source.lend().max(TINY)));
        }
        let spare = buffer.spare();
        let limit = spare.len().min(room);
        let read = ends.source.read(&mut spare[..limit]);
        let count = ends.wait(PumpSide::Source, progress, read).await.map_err(Stop::Source)?;
        if count == 0 {
            return self.source_ended(buffer);
        }
        buffer.advance(count);
        self.fills = buffer.spare().is_empty();
        self.take_in(buffer)?;
        if self.gathers && self.may_gather(ends) {
            self.gather(ends, buffer, progress, GATHER_MAX).await?;
        }
        Ok(())
    }

    /// Returns the source if the arrived bytes can be written without a copy, because nothing examines them.
    fn lender<'a>(&self, ends: &Ends<'a>) -> Option<&'a H2Stream> {
        let MessageEndpoint::Stream(source) = ends.source else { return None };
        // Only within the limit: lent bytes are not checked against it one by one.
        let is_known = matches!(self.incoming, PumpSource::Length(left) if left <= self.limit - self.moved);
        let is_plain = is_known && !self.is_chunked_out && !ends.sink.frames_itself() && !self.is_looked_at();
        (is_plain && ends.pace.is_wide(&ends.place)).then_some(source)
    }

    /// Writes the arrived bytes without a copy, from the buffer of the source's stream.
    async fn lend(
        &mut self,
        ends: &Ends<'_>,
        source: &H2Stream,
        progress: &mut RateProgress,
    ) -> Result<(), Stop> {
        let PumpSource::Length(left) = self.incoming else { return Ok(()) };
        let limit = usize::try_from(left).unwrap_or(usize::MAX);
        let write = poll_fn(|context| {
            source.poll_lend(limit, |bytes| {
                let follows = match bytes.len() as u64 == left && !self.is_cut {
                    true if ends.closes_sink => Follows::Close,
                    true => Follows::End,
                    false => Follows::Nothing,
                };
                ends.sink.poll_write(context, bytes, follows)
            })
        });
        // A lent piece is read and written in one step, so it counts for the source's rate here.
        let count = ends.wait(PumpSide::Sink, progress, write).await.map_err(Stop::Sink)?;
        if ends.paced == Some(PumpSide::Source) {
            progress.moved += count as u64;
        }
        ends.pace.sent(count);
        self.moved += count as u64;
        let left = left - count as u64;
        self.incoming = if left == 0 { PumpSource::Ended } else { PumpSource::Length(left) };
        Ok(())
    }

    /// Whether something examines the bytes of the body.
    fn is_looked_at(&self) -> bool {
        self.tee.is_some() || self.text.is_some()
    }

    /// Whether bytes of the body wait for more, to leave in one write.
    fn may_gather(&self, ends: &Ends<'_>) -> bool {
        matches!(self.incoming, PumpSource::Length(_))
            && !ends.sink.frames_itself()
            && !self.will_splice(ends)
            && !self.is_looked_at()
            && ends.source.lend() >= BULK
    }

    /// Reads more of the body behind the unsent bytes until a write is worthwhile. Each read waits for at most
    /// `patience`. The next read reports an end.
    async fn gather(
        &mut self,
        ends: &Ends<'_>,
        buffer: &mut Buffer,
        progress: &mut RateProgress,
        patience: Ticks,
    ) -> Result<(), Stop> {
        ends.buffers.widen(buffer);
        while let PumpSource::Length(left) = self.incoming
            && self.unsent < GATHERED
        {
            let read = ends.source.read(buffer.spare());
            let Ok(read) = ends.deadline.within(patience, read).await else {
                // The source is slow: its pieces are sent without waiting.
                // A try without patience says nothing about the source.
                self.gathers = patience == Ticks(0);
                break;
            };
            // The next read meets the error or the end again, after the unsent bytes have left.
            let Ok(count @ 1..) = read else { break };
            buffer.advance(count);
            let body = left.min(count as u64);
            if ends.paced == Some(PumpSide::Source) {
                progress.moved += body;
            }
            self.incoming = if left == body { PumpSource::Ended } else { PumpSource::Length(left - body) };
            self.moved += body;
            self.unsent += body as usize;
            self.piece += body as usize;
        }
        if self.moved > self.limit { Err(Stop::TooLarge) } else { Ok(()) }
    }

    /// Counts bytes that were moved into the pipe.
    fn spliced(&mut self, buffer: &mut Buffer, count: usize) -> Result<(), Stop> {
        if count == 0 {
            return self.source_ended(buffer);
        }
        self.in_pipe = count;
        self.moved += count as u64;
        if let PumpSource::Length(left) = self.incoming {
            let left = left - count as u64;
            self.incoming = if left == 0 { PumpSource::Ended } else { PumpSource::Length(left) };
        } else {
            // A trickle is cheaper to copy.
            self.fills = count as u64 >= SPLICE_MIN;
        }
        Ok(())
    }

    /// Whether the rest is long, unchanged, and needs no examination.
    pub(crate) fn will_splice(&self, ends: &Ends<'_>) -> bool {
        let is_long = match self.incoming {
            PumpSource::Length(left) => left >= SPLICE_MIN,
            // The length is unknown; the last piece was long.
            PumpSource::UntilClose => self.fills && self.cut_at == u64::MAX,
            PumpSource::Chunked | PumpSource::Ended => false,
        };
        is_long && !self.is_chunked_out && !self.is_looked_at() && ends.spliceable().is_some()
    }

    fn give_pipe(&mut self, pipes: &Pipes) {
        // A pipe that still holds bytes must not serve another body.
        if let Some(pipe) = self.pipe.take_if(|_| self.in_pipe == 0) {
            pipes.give(pipe);
        }
    }

    fn has_pipe(&mut self, pipes: &Pipes) -> bool {
        if self.pipe.is_none() {
            self.pipe = pipes.take();
        }
        self.pipe.is_some()
    }
}
