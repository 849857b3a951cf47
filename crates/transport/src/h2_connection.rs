//! An HTTP/2 connection, shared by its streams and the task that drives it.
//!
//! Streams read and write without system calls. The driver receives for all streams, and sends their output together.
//! Streams take turns when the connection has too little room. So the bytes of a stream leave while they are in the
//! processor's cache, and waiting streams buffer next to nothing.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use http2::{
    H2Broken, H2Event, H2Limits, H2Role, H2StreamGone, Key, Now, PAYLOAD_MAX, Reason, WireScheme, WriteError,
};

use crate::buffer::PIECE;
use crate::connection::Connection;
use crate::deadline::Deadlines;
use crate::pipes::Pipes;
use crate::tcp::{Follows, Pipe};
use crate::waits::StreamWaits;

/// Gathered bytes from which on streams wait for their turn.
// Enough for one write; more would leave the core's cache before it is sent.
const GATHER_MAX: usize = PIECE;
/// Size of the buffer for gathered frames. Heads, and frames of the connection itself, come in addition.
const GATHER_BUFFER: usize = GATHER_MAX + 8 * 1024;
/// Unsent bytes up to which the driver continues to read: the streams' limit, and as much again for answers. If both
/// ends stopped reading as soon as they could not send, each would wait for the other.
const UNSENT_MAX: usize = 2 * GATHER_MAX;
/// Bytes that one stream sends from a pipe per turn. A pipe has room for more, in pages.
// A single stream must not hold up all others for longer.
const PIPE_MAX: usize = 256 * 1024;
/// Spare buffers for gathered frames that a worker keeps.
const SPARE_MAX: usize = 16;
/// Bytes that are received at once.
const RECEIVE_MAX: usize = 128 * 1024;
/// Reads that discard input after GOAWAY, before the connection is cut off.
// A client that goes on sending must not keep the connection for ever.
const REST_READS_MAX: usize = 64;
/// Receives before other tasks have their turn.
// A connection that always has more to read would otherwise starve all others of its worker.
const RECEIVES_PER_TURN: usize = 2;

/// Buffers and pipes that all HTTP/2 connections of a worker share. An idle connection holds no buffer.
pub struct Stock {
    received: RefCell<Box<[u8]>>,
    spare: RefCell<Vec<Vec<u8>>>,
    pipes: Pipes,
    /// Bytes that peers may send beyond their initial windows.
    granted: Rc<Cell<usize>>,
}

impl Stock {
    pub fn new() -> Rc<Self> {
        let received = RefCell::new(vec![0; RECEIVE_MAX].into_boxed_slice());
        Rc::new(Self { received, spare: RefCell::default(), pipes: Pipes::default(), granted: Rc::default() })
    }

    fn take(&self) -> Vec<u8> {
        self.spare.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(GATHER_BUFFER))
    }

    fn give(&self, buffer: Vec<u8>) {
        let mut spare = self.spare.borrow_mut();
        // A buffer that a long head has enlarged is not kept.
        if spare.len() < SPARE_MAX && (GATHER_BUFFER..=2 * GATHER_BUFFER).contains(&buffer.capacity()) {
            spare.push(buffer);
        }
    }
}

/// An HTTP/2 connection, shared by its streams and the task that drives it.
#[derive(Clone)]
pub struct H2Connection(Rc<H2Shared>);

struct H2Shared {
    connection: Connection,
    stock: Rc<Stock>,
    deadlines: Rc<Deadlines>,
    engine: RefCell<http2::H2StateMachine>,
    waits: StreamWaits,
    turns: RefCell<Turns>,
    /// Frames in transit from a pipe to the connection.
    piped: RefCell<Option<Piped>>,
    /// Number of streams that have something to send and cannot.
    stalled: Cell<usize>,
    driver: RefCell<Option<Waker>>,
    /// Whether the driver was already woken.
    is_stirred: Cell<bool>,
    /// Whether nothing more is received or sent.
    is_over: Cell<bool>,
    /// Whether no further streams are opened or accepted.
    is_left: Cell<bool>,
}

/// A protocol error of the peer.
pub struct H2Violation {
    /// Whether the error concerns one stream, rather than the whole connection.
    pub is_of_stream: bool,
    /// Whether the error is a head beyond the size limit.
    pub is_too_large: bool,
    pub text: String,
}

/// The order in which streams may continue to send.
#[derive(Default)]
struct Turns {
    waiting: VecDeque<Key>,
    /// The stream whose turn it is, until the driver runs again.
    current: Option<Key>,
}

/// Frames in a pipe, whose bodies the proxy has not copied: complete frames, except that the last may continue in the
/// gathered bytes.
struct Piped {
    pipe: Pipe,
    left: usize,
    /// Gathered bytes to send before the pipe; the others are sent after it.
    before: usize,
}

pub enum H2ConnectionEnd {
    /// The peer closed the connection, or the connection broke.
    Closed,
    /// The peer violated the protocol or a limit. GOAWAY reports it.
    Broken(H2Broken),
}

impl H2Connection {
    /// Creates a connection. Its owner has to poll [`Self::poll_drive`].
    pub fn new(
        stock: Rc<Stock>,
        deadlines: Rc<Deadlines>,
        connection: Connection,
        role: H2Role,
        limits: H2Limits,
    ) -> Self {
        let engine = http2::H2StateMachine::new(role, limits, Rc::clone(&stock.granted));
        Self(Rc::new(H2Shared {
            connection,
            stock,
            deadlines,
            engine: RefCell::new(engine),
            waits: StreamWaits::default(),
            turns: RefCell::default(),
            piped: RefCell::default(),
            stalled: Cell::default(),
            driver: RefCell::default(),
            is_stirred: Cell::default(),
            is_over: Cell::default(),
            is_left: Cell::default(),
        }))
    }

    /// The protocol state, for the task that drives the connection.
    pub fn engine(&self) -> std::cell::RefMut<'_, http2::H2StateMachine> {
        self.0.engine.borrow_mut()
    }

    /// Whether the connection has ended: nothing more is received or sent.
    pub fn is_over(&self) -> bool {
        self.0.is_over.get()
    }

    /// Whether the connection has ended, or the peer accepts no further streams (GOAWAY).
    pub fn is_ending(&self) -> bool {
        self.is_over() || self.0.engine.borrow().is_going_away()
    }

    /// Whether the TLS keys have reached their encryption limit: the connection must take no further streams.
    pub fn is_key_exhausted(&self) -> bool {
        self.0.connection.is_key_exhausted()
    }

    /// Opens and accepts no further streams: the connection ends with its last stream.
    pub fn leave(&self) {
        self.0.is_left.set(true);
        self.stir();
    }

    /// Whether [`leave`](Self::leave) was called.
    pub fn is_left(&self) -> bool {
        self.0.is_left.get()
    }

    fn now(&self) -> Now {
        Now { tick: self.0.deadlines.now(), second: self.0.deadlines.second() }
    }

    /// Processes bytes that were read before the connection was known to be HTTP/2. Adds new streams to `opened`.
    pub fn take_in(&self, bytes: &[u8], opened: &mut Vec<Key>) -> Result<(), H2ConnectionEnd> {
        let mut rest = bytes;
        loop {
            let (count, event) = self.engine().receive(rest, self.now()).map_err(H2ConnectionEnd::Broken)?;
            rest = &rest[count..];
            match event {
                Some(H2Event::Opened(key)) => opened.push(key),
                Some(H2Event::Reset(key)) if opened.contains(&key) => {
                    // The client reset it before the proxy handled it (CVE-2023-44487).
                    opened.retain(|&other| other != key);
                    self.engine().take_back(key);
                }
                Some(event) => self.happened(event),
                None => return Ok(()),
            }
        }
    }

    fn happened(&self, event: H2Event) {
        let waits = &self.0.waits;
        match event {
            H2Event::Readable(key) => waits.wake(key, |wait| wait.to_read),
            H2Event::Writable(key) => waits.wake(key, |wait| wait.to_write),
            // Whatever the stream waits for, it does not come any more.
            H2Event::Reset(key) => waits.wake(key, |wait| wait.to_read || wait.to_write || wait.for_reset),
            H2Event::AllWritable => waits.wake_all(|wait| wait.to_write),
            // The driver gives turns.
            H2Event::Opened(_) | H2Event::Room | H2Event::GoingAway => {}
        }
    }

    /// Drives the connection: receives, sends, and gives streams their turn to write. Ready when the connection has
    /// ended. Adds new requests to `opened`.
    pub fn poll_drive(
        &self,
        context: &mut Context<'_>,
        limit: u32,
        opened: &mut Vec<Key>,
    ) -> Poll<H2ConnectionEnd> {
        match &mut *self.0.driver.borrow_mut() {
            // `clone_from` keeps the old waker if it would wake the same task.
            Some(driver) => driver.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        self.0.is_stirred.set(false);
        for at in 0..=RECEIVES_PER_TURN {
            if at == RECEIVES_PER_TURN {
                // There may be more to read: the driver runs again after the other tasks.
                self.stir();
            } else if let Poll::Ready(outcome) = self.poll_receive(context, opened) {
                if let Err(end) = outcome {
                    return Poll::Ready(end);
                }
                continue;
            }
            break;
        }
        self.engine().adjust(limit, self.0.deadlines.now());
        if let Poll::Ready(Err(_)) = self.poll_send(context) {
            return Poll::Ready(H2ConnectionEnd::Closed);
        }
        self.next_turn();
        Poll::Pending
    }

    fn poll_receive(
        &self,
        context: &mut Context<'_>,
        opened: &mut Vec<Key>,
    ) -> Poll<Result<(), H2ConnectionEnd>> {
        if self.engine().unsent().len() >= UNSENT_MAX {
            // The peer does not read, so no more answers are gathered. Reading continues once it accepts bytes.
            ready!(self.poll_send(context)).map_err(|_| H2ConnectionEnd::Closed)?;
        }
        let received = &mut self.0.stock.received.borrow_mut()[..];
        Poll::Ready(match ready!(self.0.connection.poll_read(context, received)) {
            Ok(count) if count > 0 => self.take_in(&received[..count], opened),
            // The peer's end and an error of the socket mean the same for all streams.
            _ => Err(H2ConnectionEnd::Closed),
        })
    }

    fn poll_send(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut engine = self.engine();
        let mut piped = self.0.piped.borrow_mut();
        // Frames in the pipe come before the gathered bytes behind them.
        if let Some(piped) = &mut *piped {
            ready!(self.poll_send_piped(context, &mut engine, piped))?;
        }
        if let Some(Piped { pipe, .. }) = piped.take() {
            self.0.stock.pipes.give(pipe);
        }
        while !engine.unsent().is_empty() {
            let count = ready!(self.0.connection.poll_write(context, engine.unsent(), Follows::Nothing))?;
            if let Some(buffer) = engine.sent(count) {
                self.0.stock.give(buffer);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the frames in a pipe, after the bytes that were gathered before them.
    fn poll_send_piped(
        &self,
        context: &mut Context<'_>,
        engine: &mut http2::H2StateMachine,
        piped: &mut Piped,
    ) -> Poll<io::Result<()>> {
        while piped.before > 0 {
            let bytes = &engine.unsent()[..piped.before];
            // The pipe follows at once, so the kernel may fill the segment.
            let count = ready!(self.0.connection.poll_write(context, bytes, Follows::More))?;
            piped.before -= count;
            if let Some(buffer) = engine.sent(count) {
                self.0.stock.give(buffer);
            }
        }
        while piped.left > 0 {
            let follows = if engine.unsent().is_empty() { Follows::Nothing } else { Follows::More };
            let moved = self.0.connection.poll_splice_from(context, &piped.pipe, piped.left, follows);
            piped.left -= ready!(moved)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Gives the turn to the stream that has waited longest, if there is room. The next run of the driver, after that
    /// stream's task, sees whether it wrote.
    fn next_turn(&self) {
        let turns = &mut *self.0.turns.borrow_mut();
        turns.current = None;
        // Waking a stream that cannot write would only make it wait again.
        if self.room_now() == 0 {
            return;
        }
        if let Some(key) = turns.waiting.pop_front() {
            turns.current = Some(key);
            self.0.waits.wake(key, |_| true);
            self.stir();
        }
    }

    /// Bytes that all streams together may write now.
    fn room_now(&self) -> usize {
        if self.0.piped.borrow().is_some() {
            return 0;
        }
        let engine = self.0.engine.borrow();
        engine.room_of_connection().min(GATHER_MAX.saturating_sub(engine.unsent().len()))
    }

    pub fn stir(&self) {
        // A wake-up costs a look at the task, so streams that write in one turn share it.
        if !self.0.is_stirred.replace(true)
            && let Some(driver) = &*self.0.driver.borrow()
        {
            driver.wake_by_ref();
        }
    }

    fn stir_to_send(&self) {
        if !self.0.engine.borrow().unsent().is_empty() {
            self.stir();
        }
    }

    /// Ends the connection: sends `reason` to the peer, if there is one, and wakes every stream.
    pub fn finish(&self, reason: Option<Reason>, why: &str) {
        if let Some(reason) = reason {
            self.engine().abort(reason, why);
        }
        // Bytes that the kernel does not accept at once are lost, like the connection.
        // GOAWAY should arrive before the end of the connection (RFC 9113 §6.8).
        let _ = self.poll_send(&mut Context::from_waker(Waker::noop()));
        self.0.is_over.set(true);
        self.0.waits.wake_all(|_| true);
        // Fails if the peer has already closed, which does no harm.
        let _ = self.0.connection.shutdown_write();
    }
}

impl H2Connection {
    /// Reads and discards input until the peer closes, or up to a limit of reads, which `reads` counts.
    pub fn poll_rest(&self, context: &mut Context<'_>, reads: &mut usize) -> Poll<()> {
        let received = &mut self.0.stock.received.borrow_mut()[..];
        while *reads < REST_READS_MAX
            && let Ok(1..) = ready!(self.0.connection.poll_read(context, received))
        {
            *reads += 1;
        }
        Poll::Ready(())
    }
}

/// Methods for streams.
impl H2Connection {
    /// Registers a stream that an exchange uses from now on.
    pub fn hold(&self, key: Key) {
        self.0.waits.hold(key);
    }

    /// Releases a stream whose exchange has ended.
    pub fn release(&self, key: Key) {
        self.0.waits.release(key);
        let turns = &mut *self.0.turns.borrow_mut();
        // Keys are used again: the next stream must not get the turn of this one.
        turns.waiting.retain(|&other| other != key);
        turns.current = turns.current.filter(|&current| current != key);
        let is_over = self.is_over();
        let mut engine = self.engine();
        engine.release(key);
        // The driver may wait for the last stream to end.
        let is_last = engine.held() == 0;
        drop(engine);
        if !is_over && is_last {
            self.stir();
        }
        self.stir_to_send();
    }

    /// Length of the stream's text that can be read.
    pub fn text_len(&self, key: Key) -> usize {
        self.0.engine.borrow().text_len(key)
    }

    /// The peer's protocol error on a stream, or on the whole connection.
    pub fn wrong(&self, key: Key) -> Option<H2Violation> {
        let engine = self.0.engine.borrow();
        if let Some(text) = engine.wrong(key) {
            return Some(H2Violation {
                is_of_stream: true,
                is_too_large: engine.is_too_large(key),
                text: text.to_owned(),
            });
        }
        let text = format!("the connection ended for {}", engine.offence()?);
        Some(H2Violation { is_of_stream: false, is_too_large: false, text })
    }

    pub fn reset_reason(&self, key: Key) -> Option<Reason> {
        self.0.engine.borrow().reset_reason(key)
    }

    /// Body bytes of the stream that left or are about to.
    pub fn body_sent(&self, key: Key) -> u64 {
        self.0.engine.borrow().body_sent(key, self.is_over())
    }

    /// Whether the peer has begun a DATA frame on the stream, and not sent all of it.
    pub fn owes(&self, key: Key) -> bool {
        self.0.engine.borrow().owes(key)
    }

    /// Makes the close a reset if the peer has not accepted all bytes. Otherwise the kernel keeps them as long as the
    /// peer answers probes.
    pub fn reset_if_unsent(&self) {
        if !self.0.engine.borrow().unsent().is_empty() || self.0.piped.borrow().is_some() {
            self.0.connection.reset_on_drop();
        }
    }

    /// Whether the next write on the stream must be the head of a message.
    pub fn wants_head(&self, key: Key) -> bool {
        self.0.engine.borrow().wants_head(key)
    }

    /// Ready when [`Self::poll_read`] has bytes for the stream, or its end.
    pub fn poll_readable(&self, context: &mut Context<'_>, key: Key) -> Poll<()> {
        if self.is_over() || self.0.engine.borrow().is_readable(key) {
            return Poll::Ready(());
        }
        self.0.waits.for_key(key, context).to_read = true;
        Poll::Pending
    }

    /// Reads HTTP/1.1 text from a stream; 0 is the end.
    pub fn poll_read(
        &self,
        context: &mut Context<'_>,
        key: Key,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, H2StreamGone>> {
        let read = self.engine().read(key, buffer, self.0.deadlines.now())?;
        match read {
            Some(count) => {
                self.stir_to_send();
                Poll::Ready(Ok(count))
            }
            None if self.is_over() => Poll::Ready(Err(H2StreamGone::Broken)),
            None => {
                self.0.waits.for_key(key, context).to_read = true;
                Poll::Pending
            }
        }
    }

    /// Body bytes that [`poll_lend`](Self::poll_lend) can lend now.
    pub fn lendable(&self, key: Key) -> usize {
        self.0.engine.borrow().body(key).len()
    }

    /// Ready when `wanted` bytes of a body (at most half a window) can be lent, or when no more will come.
    pub fn poll_lendable(&self, context: &mut Context<'_>, key: Key, wanted: usize) -> Poll<()> {
        let engine = self.0.engine.borrow();
        // More than half a window never comes, because the peer waits for an update then.
        if self.is_over() || engine.has_of_body(key, wanted.min(engine.gathers())) {
            return Poll::Ready(());
        }
        self.0.waits.for_key(key, context).to_read = true;
        Poll::Pending
    }

    /// Lends at most `limit` bytes of a received body to `write`, which returns how many it took.
    pub fn poll_lend(
        &self,
        key: Key,
        limit: usize,
        write: impl FnOnce(&[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let mut engine = self.engine();
        let bytes = engine.body(key);
        let count = ready!(write(&bytes[..bytes.len().min(limit)]))?;
        engine.took_body(key, count, self.0.deadlines.now());
        // `stir_to_send` looks at the protocol state itself.
        drop(engine);
        self.stir_to_send();
        Poll::Ready(Ok(count))
    }

    /// Ready once the stream is reset or the connection has ended.
    pub fn poll_gone(&self, context: &mut Context<'_>, key: Key) -> Poll<()> {
        if self.is_over() || self.0.engine.borrow().is_broken(key) {
            return Poll::Ready(());
        }
        self.0.waits.for_key(key, context).for_reset = true;
        Poll::Pending
    }

    /// Writes the head at the front of `text`, and as much of the body behind it as fits. Returns the number of bytes
    /// written.
    pub fn write_head(
        &self,
        key: Key,
        text: &[u8],
        is_last: bool,
        scheme: WireScheme,
    ) -> Result<usize, WriteError> {
        if self.is_over() {
            return Err(WriteError::Gone(H2StreamGone::Broken));
        }
        // An idle connection has no buffer, so it gets one before the first frame.
        self.lend();
        let len = self.engine().write_head(key, text, is_last, scheme)?;
        let rest = &text[len..];
        self.stir();
        // After an interim response another head follows, not a body.
        if rest.is_empty() || self.wants_head(key) || !self.may_go(key) {
            return Ok(len);
        }
        let room = self.room(key).map_err(WriteError::Gone)?;
        Ok(len + self.engine().write(key, rest, room, is_last))
    }

    /// Ready when the stream's turn has come. Returns the number of bytes that can be written, at least one.
    pub fn poll_room(&self, context: &mut Context<'_>, key: Key) -> Poll<Result<usize, H2StreamGone>> {
        let of_stream = self.0.engine.borrow().room(key)?;
        if self.is_over() {
            return Poll::Ready(Err(H2StreamGone::Broken));
        }
        let may_go = self.may_go(key);
        if of_stream > 0 && may_go {
            return Poll::Ready(Ok(of_stream.min(self.room_now())));
        }
        // A stream whose window is closed must not hold the turn: it waits for its window first.
        if of_stream > 0 {
            self.wait_for_turn(context, key);
        }
        self.0.waits.for_key(key, context).to_write = true;
        Poll::Pending
    }

    fn wait_for_turn(&self, context: &Context<'_>, key: Key) {
        let waiting = &mut self.0.turns.borrow_mut().waiting;
        // Once per stream, or those that are polled often would get more turns.
        if !waiting.contains(&key) {
            waiting.push_back(key);
        }
        self.0.waits.for_key(key, context).to_write = true;
    }

    /// Whether a stream need not wait for others.
    fn may_go(&self, key: Key) -> bool {
        let turns = self.0.turns.borrow();
        let is_next = turns.current.map_or(turns.waiting.is_empty(), |current| current == key);
        is_next && self.room_now() > 0
    }

    /// Bytes that can be written on a stream now.
    pub fn room(&self, key: Key) -> Result<usize, H2StreamGone> {
        Ok(self.0.engine.borrow().room(key)?.min(self.room_now()))
    }

    /// Writes the start of `bytes`, at most `room` bytes. Returns the number of bytes written.
    pub fn write(&self, key: Key, bytes: &[u8], room: usize, is_last: bool) -> usize {
        self.lend();
        let count = self.engine().write(key, bytes, room, is_last);
        self.stir();
        count
    }

    /// Whether the kernel can move bodies from a pipe to the connection (splice).
    pub fn takes_pipes(&self) -> bool {
        self.0.connection.as_tcp().is_some()
    }

    /// The most bytes to put into a pipe for a stream, by the windows of the stream and of the connection.
    pub fn pipe_room(&self, key: Key) -> usize {
        let engine = self.0.engine.borrow();
        engine.room(key).unwrap_or(0).min(engine.room_of_connection()).clamp(1, PIPE_MAX)
    }

    /// Sends at least one byte from a pipe in DATA frames. With `is_last`, the stream ends with the last of `len`
    /// bytes. A second pipe assembles the frames, so that the kernel sends them together.
    pub fn poll_splice(
        &self,
        context: &mut Context<'_>,
        key: Key,
        source: &Pipe,
        len: usize,
        is_last: bool,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_room(context, key)).map_err(|_| io::ErrorKind::ConnectionReset)?;
        let count = len.min(self.pipe_room(key));
        let is_last = is_last && count == len;
        let mut engine = self.engine();
        // Without a pipe, as when descriptors are short, bodies are copied instead.
        let pipe = self.0.stock.pipes.take();
        let before = engine.unsent().len();
        let (mut left, mut piped) = (count, 0);
        while left > 0 {
            let body = left.min(PAYLOAD_MAX);
            left -= body;
            let head = engine.begin_frame(key, body, is_last && left == 0);
            // Once a frame continues in the gathered bytes, the frames after it go there too.
            let is_whole = engine.unsent().len() == before;
            piped += self.put_frame(&mut engine, &head, source, body, pipe.as_ref().filter(|_| is_whole))?;
        }
        if let Some(pipe) = pipe.filter(|_| piped > 0) {
            *self.0.piped.borrow_mut() = Some(Piped { pipe, left: piped, before });
        }
        drop(engine);
        self.stir();
        Poll::Ready(Ok(count))
    }

    /// Puts a frame into a pipe, and gathers the rest that does not fit. Returns the bytes in the pipe.
    fn put_frame(
        &self,
        engine: &mut http2::H2StateMachine,
        head: &[u8],
        source: &Pipe,
        body: usize,
        pipe: Option<&Pipe>,
    ) -> io::Result<usize> {
        let head_put = pipe.map_or(0, |pipe| pipe.put(head));
        engine.push_frame(&head[head_put..]);
        let mut left = body;
        while let Some(pipe) = pipe.filter(|_| left > 0 && head_put == head.len()) {
            match source.move_on(pipe, left) {
                0 => break,
                count => left -= count,
            }
        }
        let moved = body - left;
        let received = &mut self.0.stock.received.borrow_mut()[..];
        while left > 0 {
            let count = source.take(&mut received[..left])?;
            // The pipe had to contain `len` bytes; a header has promised them to the peer.
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            engine.push_frame(&received[..count]);
            left -= count;
        }
        Ok(head_put + moved)
    }

    /// Ends the stream's outgoing message. `trailers` are HTTP/1.1 field lines, or empty.
    ///
    /// # Errors
    /// The stream has ended.
    pub fn end(&self, key: Key, trailers: &[u8]) -> Result<(), H2StreamGone> {
        let outcome = self.engine().end(key, trailers);
        self.stir_to_send();
        outcome
    }

    /// Sends RST_STREAM (RFC 9113 §6.4).
    pub fn reset(&self, key: Key, reason: Reason) {
        self.engine().reset(key, reason);
        self.stir_to_send();
    }

    /// Whether some stream has data to send and no room.
    pub fn has_stalled(&self) -> bool {
        self.0.stalled.get() > 0
    }

    /// Counts a stream that begins, or ceases, to have data to send and no room.
    pub fn stall(&self, is_stalled: bool) {
        let stalled = self.0.stalled.get();
        self.0.stalled.set(if is_stalled { stalled + 1 } else { stalled - 1 });
    }

    fn lend(&self) {
        let mut engine = self.engine();
        if engine.wants_buffer() {
            engine.lend(self.0.stock.take());
        }
    }
}
