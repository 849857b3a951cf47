//! An HTTP/2 connection, shared by its streams and the task that drives it.
//!
//! Streams read and write without system calls; the driver receives for all streams, and sends their output together.
//! Streams take turns when the connection has too little room: then the bytes read for a stream are still in the
//! processor's cache when they leave, and a stream that cannot send buffers next to nothing.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use http2::{Broken, Event, Gone, Key, Limits, Now, PAYLOAD_MAX, Reason, Role, Scheme, WriteError};

use crate::buffer::PIECE;
use crate::connection::Connection;
use crate::deadline::Deadlines;
use crate::pipes::Pipes;
use crate::tcp::{Follows, Pipe};
use crate::waits::Waits;

/// Frames that are gathered before a stream has to wait for its turn.
const GATHER_MAX: usize = PIECE;
/// Memory for gathered frames: heads come on top, as do answers of the connection itself.
const GATHER_BUFFER: usize = GATHER_MAX + 8 * 1024;
/// Frames that are not taken by a peer which is still read: what streams gather, and as much again for answers. Two ends that
/// both send all they can would otherwise each wait for the other to read.
const UNSENT_MAX: usize = 2 * GATHER_MAX;
/// What one stream sends out of a pipe before others have their turn: a pipe has room for more, in pages.
const PIPE_MAX: usize = 256 * 1024;
/// Buffers for gathered frames that a worker keeps.
const SPARE_MAX: usize = 16;
/// What is received at once.
const RECEIVE_MAX: usize = 128 * 1024;
/// What is read of a peer that was told of the end, before it is cut off.
const REST_READS_MAX: usize = 64;
/// How often that is done before others have their turn.
const RECEIVES_PER_TURN: usize = 2;

/// Buffers and pipes that all HTTP/2 connections of a worker share. An idle connection holds no buffer.
pub struct Stock {
    received: RefCell<Box<[u8]>>,
    spare: RefCell<Vec<Vec<u8>>>,
    pipes: Pipes,
    /// Bytes that peers may send beyond their first windows.
    granted: Rc<Cell<usize>>,
}

impl Stock {
    /// Creates the shared buffers and pipes of one worker.
    pub fn new() -> Rc<Self> {
        let received = RefCell::new(vec![0; RECEIVE_MAX].into_boxed_slice());
        Rc::new(Self { received, spare: RefCell::default(), pipes: Pipes::default(), granted: Rc::default() })
    }

    fn take(&self) -> Vec<u8> {
        self.spare.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(GATHER_BUFFER))
    }

    fn give(&self, buffer: Vec<u8>) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_MAX && (GATHER_BUFFER..=2 * GATHER_BUFFER).contains(&buffer.capacity()) {
            spare.push(buffer);
        }
    }
}

/// An HTTP/2 connection, shared by its streams and the task that drives it.
#[derive(Clone)]
pub struct H2Connection(Rc<Shared>);

struct Shared {
    connection: Connection,
    stock: Rc<Stock>,
    deadlines: Rc<Deadlines>,
    engine: RefCell<http2::Connection>,
    /// Who waits for each stream.
    waits: Waits,
    turns: RefCell<Turns>,
    /// Frames that go from a pipe to the connection.
    piped: RefCell<Option<Piped>>,
    /// Streams that have something to send and cannot.
    stalled: Cell<usize>,
    driver: RefCell<Option<Waker>>,
    /// Whether the driver has been told that there is something to do.
    is_stirred: Cell<bool>,
    /// Whether nothing more is received or sent.
    is_over: Cell<bool>,
    /// Whether no further streams are wanted of it.
    is_left: Cell<bool>,
}

/// A protocol error of the peer.
pub struct Wrong {
    /// Whether the error concerns one stream, rather than the whole connection.
    pub is_of_stream: bool,
    /// Whether the error is a head beyond the size limit.
    pub is_too_large: bool,
    /// Description of the error.
    pub text: String,
}

/// The order in which streams may go on sending.
#[derive(Default)]
struct Turns {
    waiting: VecDeque<Key>,
    /// The stream whose turn it is, until the driver looks again.
    current: Option<Key>,
}

/// Frames in a pipe, whose bodies never came here: whole ones, or all but the rest of the last.
struct Piped {
    pipe: Pipe,
    left: usize,
    /// What is sent before them, of what was gathered; the rest comes behind them.
    before: usize,
}

/// How a connection ended.
pub enum End {
    /// The peer closed the connection, or the connection broke.
    Closed,
    /// The peer violated the protocol or a limit, and is told so (GOAWAY).
    Broken(Broken),
}

impl H2Connection {
    /// Creates a connection. Its owner has to poll [`Self::poll_drive`].
    pub fn new(
        stock: Rc<Stock>,
        deadlines: Rc<Deadlines>,
        connection: Connection,
        role: Role,
        limits: Limits,
    ) -> Self {
        let engine = http2::Connection::new(role, limits, Rc::clone(&stock.granted));
        Self(Rc::new(Shared {
            connection,
            stock,
            deadlines,
            engine: RefCell::new(engine),
            waits: Waits::default(),
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
    pub fn engine(&self) -> std::cell::RefMut<'_, http2::Connection> {
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

    /// Whether the TLS keys have encrypted as much as they may: the connection must take no further streams.
    pub fn is_key_exhausted(&self) -> bool {
        self.0.connection.is_key_exhausted()
    }

    /// Opens or accepts no further streams: the connection ends with its last stream.
    pub fn leave(&self) {
        self.0.is_left.set(true);
        self.stir();
    }

    /// Whether [`leave`](Self::leave) was called: no further streams are wanted.
    pub fn is_left(&self) -> bool {
        self.0.is_left.get()
    }

    fn now(&self) -> Now {
        Now { tick: self.0.deadlines.now(), second: self.0.deadlines.second() }
    }

    /// Processes bytes that were read before the connection was known to be HTTP/2. New streams are added to `opened`.
    pub fn take_in(&self, bytes: &[u8], opened: &mut Vec<Key>) -> Result<(), End> {
        let mut rest = bytes;
        loop {
            let (count, event) = self.engine().receive(rest, self.now()).map_err(End::Broken)?;
            rest = &rest[count..];
            match event {
                Some(Event::Opened(key)) => opened.push(key),
                Some(Event::Reset(key)) if opened.contains(&key) => {
                    // It was taken back before anybody looked at it (CVE-2023-44487).
                    opened.retain(|&other| other != key);
                    self.engine().take_back(key);
                }
                Some(event) => self.happened(event),
                None => return Ok(()),
            }
        }
    }

    fn happened(&self, event: Event) {
        let waits = &self.0.waits;
        match event {
            Event::Readable(key) => waits.wake(key, |wait| wait.to_read),
            Event::Writable(key) => waits.wake(key, |wait| wait.to_write),
            Event::Reset(key) => waits.wake(key, |wait| wait.to_read || wait.to_write || wait.for_reset),
            Event::AllWritable => waits.wake_all(|wait| wait.to_write),
            // Turns are given by the driver.
            Event::Opened(_) | Event::Room | Event::GoingAway => {}
        }
    }

    /// Drives the connection: receives, sends, and gives streams their turn to write. Ready when the connection has
    /// ended. New requests are added to `opened`.
    pub fn poll_drive(&self, context: &mut Context<'_>, limit: u32, opened: &mut Vec<Key>) -> Poll<End> {
        match &mut *self.0.driver.borrow_mut() {
            Some(driver) => driver.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        self.0.is_stirred.set(false);
        for at in 0..=RECEIVES_PER_TURN {
            if at == RECEIVES_PER_TURN {
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
            return Poll::Ready(End::Closed);
        }
        self.next_turn();
        Poll::Pending
    }

    fn poll_receive(&self, context: &mut Context<'_>, opened: &mut Vec<Key>) -> Poll<Result<(), End>> {
        if self.engine().unsent().len() >= UNSENT_MAX {
            // What answers a peer that does not listen has a limit. As soon as it listens, it is read again.
            ready!(self.poll_send(context)).map_err(|_| End::Closed)?;
        }
        let received = &mut self.0.stock.received.borrow_mut()[..];
        Poll::Ready(match ready!(self.0.connection.poll_read(context, received)) {
            Ok(count) if count > 0 => self.take_in(&received[..count], opened),
            _ => Err(End::Closed),
        })
    }

    /// Sends what is gathered.
    fn poll_send(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut engine = self.engine();
        let mut piped = self.0.piped.borrow_mut();
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

    /// Sends what is in a pipe, and what was gathered before that.
    fn poll_send_piped(
        &self,
        context: &mut Context<'_>,
        engine: &mut http2::Connection,
        piped: &mut Piped,
    ) -> Poll<io::Result<()>> {
        while piped.before > 0 {
            let bytes = &engine.unsent()[..piped.before];
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

    /// Lets the stream that has waited longest go on, if there is room. Whether it does is seen when the driver comes
    /// around next, which is behind it.
    fn next_turn(&self) {
        let turns = &mut *self.0.turns.borrow_mut();
        turns.current = None;
        if self.room_now() == 0 {
            return;
        }
        if let Some(key) = turns.waiting.pop_front() {
            turns.current = Some(key);
            self.0.waits.wake(key, |_| true);
            self.stir();
        }
    }

    /// What may be written now, for all streams together.
    fn room_now(&self) -> usize {
        if self.0.piped.borrow().is_some() {
            return 0;
        }
        let engine = self.0.engine.borrow();
        engine.room_of_connection().min(GATHER_MAX.saturating_sub(engine.unsent().len()))
    }

    /// Wakes the driver.
    pub fn stir(&self) {
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
        // What the kernel does not take at once is lost, like the connection.
        let _ = self.poll_send(&mut Context::from_waker(Waker::noop()));
        self.0.is_over.set(true);
        self.0.waits.wake_all(|_| true);
        // A peer that has closed already needs no telling.
        let _ = self.0.connection.shutdown_write();
    }
}

impl H2Connection {
    /// Reads and discards input until the peer closes, or until a limit of reads, which `reads` counts.
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

/// What streams do.
impl H2Connection {
    /// Registers a stream that an exchange uses from now on.
    pub fn hold(&self, key: Key) {
        self.0.waits.hold(key);
    }

    /// Releases a stream whose exchange has ended.
    pub fn release(&self, key: Key) {
        self.0.waits.release(key);
        let turns = &mut *self.0.turns.borrow_mut();
        turns.waiting.retain(|&other| other != key);
        turns.current = turns.current.filter(|&current| current != key);
        let is_over = self.is_over();
        let mut engine = self.engine();
        engine.release(key);
        // The last one may be what the driver waits for.
        let is_last = engine.held() == 0;
        drop(engine);
        if !is_over && is_last {
            self.stir();
        }
        self.stir_to_send();
    }

    /// The number of bytes of the stream's heads and bodies that can be read.
    pub fn text_len(&self, key: Key) -> usize {
        self.0.engine.borrow().text_len(key)
    }

    /// The peer's protocol error on a stream, or on the whole connection.
    pub fn wrong(&self, key: Key) -> Option<Wrong> {
        let engine = self.0.engine.borrow();
        if let Some(text) = engine.wrong(key) {
            return Some(Wrong {
                is_of_stream: true,
                is_too_large: engine.is_too_large(key),
                text: text.to_owned(),
            });
        }
        let text = format!("the connection ended for {}", engine.offence()?);
        Some(Wrong { is_of_stream: false, is_too_large: false, text })
    }

    /// The number of the stream's body bytes that left or are about to.
    pub fn body_sent(&self, key: Key) -> u64 {
        self.0.engine.borrow().body_sent(key, self.is_over())
    }

    /// Whether the peer has sent a part of a DATA frame of the stream, and not yet the rest.
    pub fn owes(&self, key: Key) -> bool {
        self.0.engine.borrow().owes(key)
    }

    /// Makes the close a reset if the peer has not taken all bytes: the kernel would keep them for as long as the peer
    /// answers.
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
        self.0.waits.of(key, context).to_read = true;
        Poll::Pending
    }

    /// Reads from a stream, as HTTP/1.1 text; 0 is the end.
    pub fn poll_read(
        &self,
        context: &mut Context<'_>,
        key: Key,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, Gone>> {
        let read = self.engine().read(key, buffer, self.0.deadlines.now())?;
        match read {
            Some(count) => {
                self.stir_to_send();
                Poll::Ready(Ok(count))
            }
            None if self.is_over() => Poll::Ready(Err(Gone::Broken)),
            None => {
                self.0.waits.of(key, context).to_read = true;
                Poll::Pending
            }
        }
    }

    /// The number of body bytes that [`poll_lend`](Self::poll_lend) can lend now.
    pub fn lendable(&self, key: Key) -> usize {
        self.0.engine.borrow().body(key).len()
    }

    /// Ready when `wanted` bytes of a body (at most half a window) can be lent, or when no more will come.
    pub fn poll_lendable(&self, context: &mut Context<'_>, key: Key, wanted: usize) -> Poll<()> {
        let engine = self.0.engine.borrow();
        if self.is_over() || engine.has_of_body(key, wanted.min(engine.gathers())) {
            return Poll::Ready(());
        }
        self.0.waits.of(key, context).to_read = true;
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
        drop(engine);
        self.stir_to_send();
        Poll::Ready(Ok(count))
    }

    /// Ready once the stream is reset or the connection has ended.
    pub fn poll_gone(&self, context: &mut Context<'_>, key: Key) -> Poll<()> {
        if self.is_over() || self.0.engine.borrow().is_broken(key) {
            return Poll::Ready(());
        }
        self.0.waits.of(key, context).for_reset = true;
        Poll::Pending
    }

    /// Writes the head at the front of `text`, and as much of the body behind it as fits. Returns the number of bytes
    /// taken.
    pub fn write_head(
        &self,
        key: Key,
        text: &[u8],
        is_last: bool,
        scheme: Scheme,
    ) -> Result<usize, WriteError> {
        if self.is_over() {
            return Err(WriteError::Gone(Gone::Broken));
        }
        self.lend();
        let len = self.engine().write_head(key, text, is_last, scheme)?;
        let rest = &text[len..];
        self.stir();
        if rest.is_empty() || self.wants_head(key) || !self.may_go(key) {
            return Ok(len);
        }
        let room = self.room(key).map_err(WriteError::Gone)?;
        Ok(len + self.engine().write(key, rest, room, is_last))
    }

    /// Ready when the stream's turn has come: with the number of bytes that can be written, at least one.
    pub fn poll_room(&self, context: &mut Context<'_>, key: Key) -> Poll<Result<usize, Gone>> {
        let of_stream = self.0.engine.borrow().room(key)?;
        if self.is_over() {
            return Poll::Ready(Err(Gone::Broken));
        }
        let may_go = self.may_go(key);
        if of_stream > 0 && may_go {
            return Poll::Ready(Ok(of_stream.min(self.room_now())));
        }
        if of_stream > 0 {
            self.wait_for_turn(context, key);
        }
        self.0.waits.of(key, context).to_write = true;
        Poll::Pending
    }

    fn wait_for_turn(&self, context: &Context<'_>, key: Key) {
        let waiting = &mut self.0.turns.borrow_mut().waiting;
        if !waiting.contains(&key) {
            waiting.push_back(key);
        }
        self.0.waits.of(key, context).to_write = true;
    }

    /// Whether a stream need not wait for others.
    fn may_go(&self, key: Key) -> bool {
        let turns = self.0.turns.borrow();
        let is_next = turns.current.map_or(turns.waiting.is_empty(), |current| current == key);
        is_next && self.room_now() > 0
    }

    /// The number of bytes that can be written on a stream now.
    pub fn room(&self, key: Key) -> Result<usize, Gone> {
        Ok(self.0.engine.borrow().room(key)?.min(self.room_now()))
    }

    /// Writes the start of `bytes`, at most `room` bytes. Returns the number of bytes taken.
    pub fn write(&self, key: Key, bytes: &[u8], room: usize, is_last: bool) -> usize {
        self.lend();
        let count = self.engine().write(key, bytes, room, is_last);
        self.stir();
        count
    }

    /// Whether the kernel can move bodies out of a pipe to the connection by itself.
    pub fn takes_pipes(&self) -> bool {
        self.0.connection.as_tcp().is_some()
    }

    /// The largest number of bytes to put into a pipe for a stream, by the windows of the stream and of the connection.
    pub fn pipe_room(&self, key: Key) -> usize {
        let engine = self.0.engine.borrow();
        engine.room(key).unwrap_or(0).min(engine.room_of_connection()).clamp(1, PIPE_MAX)
    }

    /// Sends bytes from a pipe in DATA frames; at least one byte. With `is_last`, the stream ends with the last of
    /// `len` bytes. A second pipe puts the frames together, so that the kernel sends them as a whole.
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
        let pipe = self.0.stock.pipes.take();
        let before = engine.unsent().len();
        let (mut left, mut piped) = (count, 0);
        while left > 0 {
            let body = left.min(PAYLOAD_MAX);
            left -= body;
            let head = engine.begin_frame(key, body, is_last && left == 0);
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

    /// Puts a frame into a pipe, and gathers what does not fit there; says how much does.
    fn put_frame(
        &self,
        engine: &mut http2::Connection,
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
    /// If the stream is gone.
    pub fn end(&self, key: Key, trailers: &[u8]) -> Result<(), Gone> {
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

    /// Counts a stream that begins (or ceases) to have data to send and no room.
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
