//! The one body pump: from either side to the other, whatever the framing of each.
//!
//! Its state lives in `Pump` and in the buffer, so a run may be dropped at any wait and taken up again. One buffer's
//! worth is under way at a time: a slow sink slows its source. Long bodies that nothing has to look at move through
//! a pipe inside the kernel.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use grpc::TextDecoder;
use http1::{ChunkError, ChunkLimits, ChunkRefusal, Chunked, Framing, chunk_prefix};

use crate::body::ends::{End, Ends, Side};
use crate::body::filters::Filters;
use crate::body::tee::Tee;
use crate::context::minimum_rate::Progress;
use crate::context::worker::Worker;
use transport::buffer::{BULK, Buffer, SMALL, TINY};
use transport::cold::poll_once;
use transport::deadline::Ticks;
use transport::endpoint::Endpoint;
use transport::h2_stream::Stream;
use transport::tcp::{Follows, Pipe};

/// A body whose remaining bytes are at least this many is spliced: below, the calls to fill and empty a pipe cost
/// more than the copy that they save.
const SPLICE_MIN: u64 = 24 * 1024;
/// A body of at least this length is sent on in pieces of at least this size, but for its first and its last: most of
/// what a piece costs is its system call and what that wakes.
const GATHERED: usize = 64 * 1024;
/// How long a piece waits for more. A body whose pieces wait in vain is sent on as it comes.
const GATHER_MAX: Ticks = Ticks(2);

/// What remains to be read of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Incoming {
    Ended,
    Length(u64),
    Chunked,
    UntilClose,
}

/// A body on its way.
pub(crate) struct Pump {
    incoming: Incoming,
    /// Whether it leaves in chunks, whatever it came in.
    is_chunked_out: bool,
    decoder: Chunked,
    /// Bytes at the front of the buffer that are framed and only have to be written; behind them may be what
    /// follows the body.
    unsent: usize,
    pipe: Option<Pipe>,
    in_pipe: usize,
    /// Whether the last read filled the buffer: the next may go into a larger one.
    fills: bool,
    /// Whether what is read waits for more, to leave in one write.
    gathers: bool,
    /// Body bytes taken from the source so far, without framing.
    pub(crate) moved: u64,
    /// How many of them are in the piece that is, or was last, to be written.
    piece: usize,
    /// More than this many is `Stop::TooLarge`.
    limit: u64,
    /// Where it is broken off on purpose; `u64::MAX` is nowhere.
    cut_at: u64,
    is_cut: bool,
    /// What changes the message on its way; of the body, the pump does.
    filters: Filters,
    /// What copies the body as it passes.
    tee: Option<Box<Tee>>,
    /// What decodes it from base64.
    text: Option<Box<TextDecoder>>,
}

/// Why a pump stopped before the end of the body.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The source failed or ended early.
    Source(End),
    /// The sink failed.
    Sink(End),
    /// What is kept of the body cannot be read.
    Unreadable(io::Error),
    /// The source's chunks are not valid.
    Malformed(ChunkError),
    /// The source's base64 is not valid.
    BadText,
    /// The body is larger than its limit.
    TooLarge,
    /// It was broken off on purpose, and nothing has been said of its end.
    Cut,
}

impl Pump {
    pub(crate) fn new() -> Self {
        Self {
            incoming: Incoming::Ended,
            is_chunked_out: false,
            decoder: Chunked::default(),
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

    /// Starts on a body that comes in one framing and leaves in chunks or as it is.
    pub(crate) fn begin(&mut self, incoming: Framing, is_chunked_out: bool, limit: Option<u64>) {
        self.incoming = match incoming {
            Framing::None => Incoming::Ended,
            Framing::Length(length) => Incoming::Length(length),
            Framing::Chunked => Incoming::Chunked,
            Framing::UntilClose => Incoming::UntilClose,
        };
        self.is_chunked_out = is_chunked_out;
        self.decoder.clear();
        self.unsent = 0;
        // What a broken exchange left in a pipe is of no more use, and neither is the pipe.
        if self.in_pipe > 0 {
            self.pipe = None;
            self.in_pipe = 0;
        }
        self.fills = false;
        self.moved = 0;
        self.gathers = matches!(incoming, Framing::Length(length) if length >= GATHERED as u64);
        self.piece = 0;
        self.limit = limit.unwrap_or(u64::MAX);
        self.cut_at = u64::MAX;
        self.is_cut = false;
        self.filters = Filters::default();
        self.tee = None;
        self.text = None;
    }

    /// Decodes the body from base64. For one that has begun, and whose sink frames it.
    pub(crate) fn decode_text(&mut self) {
        debug_assert!(!self.is_chunked_out, "what is decoded leaves no room for chunks");
        self.text = Some(Box::default());
    }

    /// Copies the body as it passes, from here on.
    pub(crate) fn copy_to(&mut self, tee: Option<Box<Tee>>) {
        self.tee = tee;
    }

    /// Keeps no copy of what passes for another attempt.
    pub(crate) fn forget(&mut self) {
        if let Some(tee) = self.tee.take() {
            self.tee = tee.forget();
        }
    }

    /// Whether all that has been taken of the body is kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.tee.as_ref().is_some_and(|tee| tee.kept().is_some())
    }

    /// Writes all that has been taken of the body, framed for the sink, to `out`, and gives up what is not sent of it.
    pub(crate) fn repeat(&mut self, buffer: &mut Buffer, out: &mut Vec<u8>) {
        let kept = self.tee.as_ref().and_then(|tee| tee.kept()).unwrap_or_default();
        out.clear();
        if !self.is_chunked_out {
            out.extend_from_slice(kept);
        } else if !kept.is_empty() {
            let (size, start) = chunk_prefix(kept.len());
            [&size[start..], kept, b"\r\n"].iter().for_each(|part| out.extend_from_slice(part));
        }
        if self.is_chunked_out && self.incoming == Incoming::Ended {
            [b"0\r\n", self.decoder.trailers(), b"\r\n"].iter().for_each(|part| out.extend_from_slice(part));
        }
        self.sent(buffer, self.unsent);
    }

    /// Passes the body through these filters. For one that has begun, and of which nothing is taken yet.
    pub(crate) fn filter(&mut self, filters: Filters) {
        if let Some(bytes) = filters.cut_after() {
            self.cut_after(bytes);
        }
        self.filters = filters;
    }

    /// What changes the message.
    pub(crate) fn filters(&self) -> &Filters {
        &self.filters
    }

    /// Breaks the body off after so many bytes, if it has more.
    fn cut_after(&mut self, bytes: u64) {
        match &mut self.incoming {
            Incoming::Ended => {}
            Incoming::Length(left) if *left <= bytes => {}
            Incoming::Length(left) => {
                self.is_cut = true;
                *left = bytes;
                if bytes == 0 {
                    self.incoming = Incoming::Ended;
                }
            }
            Incoming::Chunked | Incoming::UntilClose => self.cut_at = bytes,
        }
    }

    /// So much of these bytes, that come next, is sent.
    fn up_to_cut(&mut self, len: usize) -> usize {
        let left = self.cut_at - self.moved;
        if len as u64 <= left {
            return len;
        }
        self.is_cut = true;
        self.incoming = Incoming::Ended;
        left as usize
    }

    /// What is still to come of it.
    pub(crate) fn incoming(&self) -> Incoming {
        self.incoming
    }

    /// How far its source was read: data, and whether the end, which is no data, was met as well.
    pub(crate) fn taken(&self) -> (u64, bool) {
        (self.moved, self.incoming == Incoming::Ended)
    }

    /// Bytes of the body that the sink has taken, without framing. Of a piece with a chunk's end behind it that is not all
    /// taken, a few may be missing.
    pub(crate) fn passed_on(&self) -> u64 {
        self.moved - (self.unsent.min(self.piece) + self.in_pipe) as u64
    }

    /// Whether the whole body was taken from its source and has been written.
    pub(crate) fn is_done(&self) -> bool {
        self.incoming == Incoming::Ended && self.unsent == 0 && self.in_pipe == 0
    }

    /// Whether nothing of the body is left to be said to the sink: trailers are, where it is told those apart.
    pub(crate) fn is_done_for(&self, sink: &Endpoint) -> bool {
        self.is_done() && !self.has_trailers_for(sink)
    }

    fn has_trailers_for(&self, sink: &Endpoint) -> bool {
        sink.frames_itself() && !self.decoder.trailers().is_empty()
    }

    /// Why its chunks are refused, if they are; told once.
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

    /// The caller has written `count` of the unsent bytes, or has put them elsewhere to be written.
    pub(crate) fn sent(&mut self, buffer: &mut Buffer, count: usize) {
        self.unsent -= count;
        buffer.consume(count);
    }

    /// Puts a head before the unsent bytes, to leave in one write with them. False where it does not fit.
    pub(crate) fn lead_with(&mut self, buffer: &mut Buffer, head: &[u8]) -> bool {
        let fits = buffer.prepend(head);
        if fits {
            self.unsent += head.len();
        }
        fits
    }

    /// Frames what has arrived in the buffer, for the sink. Called with nothing unsent.
    pub(crate) fn take_in(&mut self, buffer: &mut Buffer) -> Result<(), Stop> {
        debug_assert_eq!(self.unsent, 0);
        match self.incoming {
            Incoming::Ended => return Ok(()),
            Incoming::Length(left) if self.text.is_some() => {
                let count = left.min(buffer.len() as u64);
                self.incoming = if left == count { Incoming::Ended } else { Incoming::Length(left - count) };
                let data = self.decode(buffer, count as usize)?;
                self.moved += data as u64;
                self.copy(buffer.filled(), data);
                self.frame(buffer, data, count as usize, false);
            }
            Incoming::Length(left) => {
                let count = left.min(buffer.len() as u64);
                self.incoming = if left == count { Incoming::Ended } else { Incoming::Length(left - count) };
                self.moved += count;
                self.unsent = count as usize;
                self.piece = count as usize;
                self.copy(buffer.filled(), self.unsent);
            }
            Incoming::UntilClose => {
                let data = self.up_to_cut(buffer.len());
                self.moved += data as u64;
                self.frame(buffer, data, buffer.len(), false);
            }
            Incoming::Chunked => {
                let decoded = self
                    .decoder
                    .decode(buffer.filled_mut(), &ChunkLimits::default())
                    .map_err(Stop::Malformed)?;
                if decoded.done {
                    self.incoming = Incoming::Ended;
                    if !self.filters.is_empty() {
                        self.decoder.retain_trailers(|name| !self.filters.omits_trailer(name));
                    }
                }
                let data = self.decode(buffer, decoded.data)?;
                let data = self.up_to_cut(data);
                self.moved += data as u64;
                self.copy(buffer.filled(), data);
                self.frame(buffer, data, decoded.consumed, decoded.done && !self.is_cut);
            }
        }
        if self.moved > self.limit { Err(Stop::TooLarge) } else { Ok(()) }
    }

    /// Decodes the first `count` bytes, which are the body's, if they are base64. Returns how many they are then.
    #[inline]
    fn decode(&mut self, buffer: &mut Buffer, count: usize) -> Result<usize, Stop> {
        let Some(text) = &mut self.text else { return Ok(count) };
        let data = text.decode(&mut buffer.filled_mut()[..count]).map_err(|_| Stop::BadText)?;
        if self.incoming == Incoming::Ended && !text.is_whole() { Err(Stop::BadText) } else { Ok(data) }
    }

    /// Copies the first `count` bytes, which are the body's, for whoever wants a copy.
    #[inline]
    fn copy(&mut self, bytes: &[u8], count: usize) {
        if let Some(tee) = self.tee.take() {
            self.tee = tee.take(&bytes[..count], self.incoming == Incoming::Ended);
        }
    }

    /// Puts chunk framing around the first `data` bytes, of `consumed` that were the source's; what is behind those
    /// stays behind.
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
            buffer.consume(consumed);
        } else {
            // The data moves up to what is behind, with just the tail's length between: its source framed it with at
            // least as many bytes there.
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
                // Trailers of a size that fits nowhere are limited by the decoder to less than any buffer.
                assert!(buffer.append(part), "a chunk's tail fits behind what was read");
            }
        } else if data == 0 && is_last {
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

    /// The source has ended: right for a body that goes on until then, early for every other.
    fn source_ended(&mut self, buffer: &mut Buffer) -> Result<(), Stop> {
        if self.incoming != Incoming::UntilClose {
            return Err(Stop::Source(End::Gone));
        }
        self.incoming = Incoming::Ended;
        if self.is_chunked_out {
            buffer.clear();
            assert!(buffer.append(b"0\r\n\r\n"), "an empty buffer has room");
            self.unsent = buffer.len();
        }
        Ok(())
    }

    /// Writes a body that is all here, without a wait and whatever its pace; `None` where `run` has to go on.
    pub(crate) fn run_at_once(
        &mut self,
        sink: &Endpoint,
        buffer: &mut Buffer,
        closes_sink: bool,
    ) -> Option<Result<(), Stop>> {
        if self.incoming != Incoming::Ended || self.unsent == 0 || self.is_cut || self.has_trailers_for(sink)
        {
            return None;
        }
        let follows = if closes_sink { Follows::Close } else { Follows::End };
        let written =
            poll_once(|context| sink.poll_write(context, &buffer.filled()[..self.unsent], follows))?;
        let Ok(count) = written else { return Some(Err(Stop::Sink(End::Gone))) };
        self.sent(buffer, count);
        (self.unsent == 0).then(|| sink.end(b"").map_err(|_| Stop::Sink(End::Gone)))
    }

    /// Moves the body until it has ended and is written. What follows it stays in the buffer.
    pub(crate) async fn run(&mut self, ends: &Ends<'_>, buffer: &mut Buffer) -> Result<(), Stop> {
        let mut progress = Progress::default();
        if self.gathers && buffer.has_filled_small() && self.may_gather(ends) {
            self.gather(ends, buffer, &mut progress, Ticks(0)).await?;
        }
        loop {
            if self.unsent > 0 {
                let allowed = ends.allowance(self.unsent).await;
                let count = self.write(ends, buffer, allowed, &mut progress).await.map_err(Stop::Sink)?;
                ends.pace.sent(count);
                self.sent(buffer, count);
            } else if let Some(pipe) = self.pipe.as_ref().filter(|_| self.in_pipe > 0) {
                let len = ends.allowance(self.in_pipe).await;
                let follows = if len < self.in_pipe { Follows::Nothing } else { self.follows(ends) };
                let write = poll_fn(|context| ends.sink.poll_splice_from(context, pipe, len, follows));
                let count = ends.wait(Side::Sink, &mut progress, write).await.map_err(Stop::Sink)?;
                ends.pace.sent(count);
                self.in_pipe -= count;
            } else if self.incoming == Incoming::Ended {
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
        self.give_pipe(ends.worker);
        if self.is_cut {
            return Err(Stop::Cut);
        }
        ends.sink.end(self.decoder.trailers()).map_err(|_| Stop::Sink(End::Gone))
    }

    /// Takes in what comes next of a body that is not passed on yet; reads it first if nothing of it is here. Who waits for
    /// its client meanwhile holds no buffer of any size.
    pub(crate) async fn receive(
        &mut self,
        ends: &Ends<'_>,
        buffer: &mut Buffer,
        progress: &mut Progress,
    ) -> Result<(), Stop> {
        if buffer.is_empty() {
            progress.is_owed = ends.minimum_rate.is_none() || self.is_owed_by(ends.source);
            ends.worker.buffers.wait(buffer);
            ends.wait(Side::Source, progress, ends.source.readable()).await.map_err(Stop::Source)?;
            let left = if let Incoming::Length(left) = self.incoming { left } else { 0 };
            ends.worker.buffers.grow_to(buffer, if left > SMALL as u64 { BULK } else { SMALL });
            let count = ends.wait(Side::Source, progress, ends.source.read(buffer.spare())).await;
            match count.map_err(Stop::Source)? {
                0 => return self.source_ended(buffer),
                count => buffer.advance(count),
            }
        }
        self.take_in(buffer)
    }

    /// Whether the source has announced bytes that it has not sent: then it is not just quiet.
    fn is_owed_by(&self, source: &Endpoint) -> bool {
        match self.incoming {
            Incoming::Length(_) => true,
            Incoming::Chunked => self.decoder.is_within() || source.owes(),
            Incoming::Ended | Incoming::UntilClose => false,
        }
    }

    /// What comes behind the unsent bytes.
    fn follows(&self, ends: &Ends<'_>) -> Follows {
        if self.is_cut {
            Follows::Nothing
        } else if self.incoming == Incoming::Ended {
            match (self.has_trailers_for(ends.sink), ends.closes_sink) {
                (true, _) => Follows::More,
                (false, true) => Follows::Close,
                (false, false) => Follows::End,
            }
        } else if matches!(self.incoming, Incoming::Length(_))
            && (self.will_splice(ends) || self.lender(ends).is_some_and(|source| source.lendable() > 0))
        {
            // What is about to be spliced, or written from where it is, fills the same segments.
            Follows::More
        } else {
            Follows::Nothing
        }
    }

    /// Writes some of what is unsent, as much as is allowed. A stream that has to wait for that holds no more memory than
    /// it takes.
    async fn write(
        &self,
        ends: &Ends<'_>,
        buffer: &mut Buffer,
        allowed: usize,
        progress: &mut Progress,
    ) -> Result<usize, End> {
        let follows = if allowed < self.unsent { Follows::Nothing } else { self.follows(ends) };
        if buffer.is_of_stream() {
            let bytes = &buffer.filled()[..allowed];
            let at_once = poll_fn(|context| Poll::Ready(ends.sink.poll_write(context, bytes, follows))).await;
            if let Poll::Ready(written) = at_once {
                let count = written.map_err(|_| End::Gone)?;
                if ends.paced == Some(Side::Sink) {
                    progress.moved += count as u64;
                }
                return Ok(count);
            }
            ends.worker.buffers.fit(buffer, 0);
        }
        let write = ends.sink.write(&buffer.filled()[..allowed], follows);
        ends.wait(Side::Sink, progress, write).await
    }

    /// Waits until both sides are ready, and holds nothing meanwhile: a stream may be one of many.
    async fn make_way(
        &mut self,
        ends: &Ends<'_>,
        buffer: &mut Buffer,
        progress: &mut Progress,
    ) -> Result<(), Stop> {
        let is_ready = poll_fn(|context| {
            let is_readable = ends.source.poll_readable(context).is_ready();
            Poll::Ready(is_readable && ends.sink.poll_writable(context).is_ready())
        });
        if !is_ready.await {
            ends.worker.buffers.shrink(buffer);
            if self.incoming == Incoming::UntilClose {
                self.fills = false;
                self.give_pipe(ends.worker);
            }
            ends.wait(Side::Source, progress, ends.source.readable()).await.map_err(Stop::Source)?;
            ends.wait(Side::Sink, progress, ends.sink.writable()).await.map_err(Stop::Sink)?;
        }
        if ends.is_tunnel {
            ends.worker.buffers.grow_to(buffer, SMALL);
        }
        Ok(())
    }

    async fn read(
        &mut self,
        ends: &Ends<'_>,
        buffer: &mut Buffer,
        progress: &mut Progress,
    ) -> Result<(), Stop> {
        if self.will_splice(ends)
            && self.has_pipe(ends.worker)
            && let (Some(pipe), Some(source)) = (&self.pipe, ends.spliceable())
        {
            let left = if let Incoming::Length(left) = self.incoming { left } else { u64::MAX };
            let limit = left.min(ends.sink.pipe_room() as u64) as usize;
            let read = source.splice_into(pipe, limit);
            let count = ends.wait(Side::Source, progress, read).await.map_err(Stop::Source)?;
            return self.spliced(buffer, count);
        }
        if let Some(source) = self.lender(ends) {
            ends.wait(Side::Source, progress, ends.source.readable()).await.map_err(Stop::Source)?;
            if self.gathers && self.moved > 0 {
                let left = if let Incoming::Length(left) = self.incoming { left } else { 0 };
                let wanted = GATHERED.min(usize::try_from(left).unwrap_or(GATHERED));
                let gathered = poll_fn(|context| source.poll_lendable(context, wanted));
                self.gathers = ends.deadline.within(GATHER_MAX, gathered).await.is_ok();
            }
            if source.lendable() > 0 {
                return self.lend(ends, source, progress).await;
            }
            // What has come is the end.
        }
        // What a stream cannot send on stays here: more than a little of that is not read.
        let room = ends.sink.room().max(TINY);
        let is_long = matches!(self.incoming, Incoming::Length(left) if left > SMALL as u64);
        if self.fills || (is_long && ends.sink.frames_itself()) {
            // More than the buffer takes at once: go on in large pieces.
            let wanted = if is_long { BULK } else { 2 * buffer.spare().len() };
            ends.worker.buffers.grow_to(buffer, wanted.min(room).min(ends.source.lend().max(TINY)));
        }
        let spare = buffer.spare();
        let limit = spare.len().min(room);
        let read = ends.source.read(&mut spare[..limit]);
        let count = ends.wait(Side::Source, progress, read).await.map_err(Stop::Source)?;
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

    /// The source, where what has arrived of the body can be written from where it is: nothing has to look at it.
    fn lender<'a>(&self, ends: &Ends<'a>) -> Option<&'a Stream> {
        let Endpoint::Stream(source) = ends.source else { return None };
        let is_known = matches!(self.incoming, Incoming::Length(left) if left <= self.limit - self.moved);
        let is_plain = is_known && !self.is_chunked_out && !ends.sink.frames_itself() && !self.is_looked_at();
        (is_plain && ends.pace.is_wide(&ends.place)).then_some(source)
    }

    /// Writes what has arrived of the body, from where it is.
    async fn lend(&mut self, ends: &Ends<'_>, source: &Stream, progress: &mut Progress) -> Result<(), Stop> {
        let Incoming::Length(left) = self.incoming else { return Ok(()) };
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
        let count = ends.wait(Side::Sink, progress, write).await.map_err(Stop::Sink)?;
        if ends.paced == Some(Side::Source) {
            progress.moved += count as u64;
        }
        ends.pace.sent(count);
        self.moved += count as u64;
        let left = left - count as u64;
        self.incoming = if left == 0 { Incoming::Ended } else { Incoming::Length(left) };
        Ok(())
    }

    /// Whether something looks at the bytes of the body.
    fn is_looked_at(&self) -> bool {
        self.tee.is_some() || self.text.is_some()
    }

    /// Whether what has been read of a body waits for more of it, to leave in one write.
    fn may_gather(&self, ends: &Ends<'_>) -> bool {
        matches!(self.incoming, Incoming::Length(_))
            && !ends.sink.frames_itself()
            && !self.will_splice(ends)
            && !self.is_looked_at()
            && ends.source.lend() >= BULK
    }

    /// Reads more of a body behind what is unsent of it, until that is worth a write; each time waits at most for
    /// `patience`. An end is told by the next read.
    async fn gather(
        &mut self,
        ends: &Ends<'_>,
        buffer: &mut Buffer,
        progress: &mut Progress,
        patience: Ticks,
    ) -> Result<(), Stop> {
        ends.worker.buffers.widen(buffer);
        while let Incoming::Length(left) = self.incoming
            && self.unsent < GATHERED
        {
            let read = ends.source.read(buffer.spare());
            let Ok(read) = ends.deadline.within(patience, read).await else {
                // A body that comes slowly is sent on as it comes.
                self.gathers = patience == Ticks(0);
                break;
            };
            let Ok(count @ 1..) = read else { break };
            buffer.advance(count);
            let body = left.min(count as u64);
            if ends.paced == Some(Side::Source) {
                progress.moved += body;
            }
            self.incoming = if left == body { Incoming::Ended } else { Incoming::Length(left - body) };
            self.moved += body;
            self.unsent += body as usize;
            self.piece += body as usize;
        }
        if self.moved > self.limit { Err(Stop::TooLarge) } else { Ok(()) }
    }

    /// `count` bytes have come into the pipe.
    fn spliced(&mut self, buffer: &mut Buffer, count: usize) -> Result<(), Stop> {
        if count == 0 {
            return self.source_ended(buffer);
        }
        self.in_pipe = count;
        self.moved += count as u64;
        if let Incoming::Length(left) = self.incoming {
            let left = left - count as u64;
            self.incoming = if left == 0 { Incoming::Ended } else { Incoming::Length(left) };
        } else {
            // What trickles is better copied.
            self.fills = count as u64 >= SPLICE_MIN;
        }
        Ok(())
    }

    /// Whether what remains is long, leaves as it came, and nothing has to look at it.
    pub(crate) fn will_splice(&self, ends: &Ends<'_>) -> bool {
        let is_long = match self.incoming {
            Incoming::Length(left) => left >= SPLICE_MIN,
            // Nobody knows; the last piece was.
            Incoming::UntilClose => self.fills && self.cut_at == u64::MAX,
            Incoming::Chunked | Incoming::Ended => false,
        };
        is_long && !self.is_chunked_out && !self.is_looked_at() && ends.spliceable().is_some()
    }

    fn give_pipe(&mut self, worker: &Worker) {
        if let Some(pipe) = self.pipe.take_if(|_| self.in_pipe == 0) {
            worker.pipes.give(pipe);
        }
    }

    fn has_pipe(&mut self, worker: &Worker) -> bool {
        if self.pipe.is_none() {
            self.pipe = worker.pipes.take();
        }
        self.pipe.is_some()
    }
}
