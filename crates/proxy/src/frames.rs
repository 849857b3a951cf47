//! A connection as `h2` reads and writes it. Frames are gathered and leave together, when `h2` has no more.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::buffer::PIECE;
use crate::deadline::Deadlines;
use crate::failure::Failure;
use crate::flood::Walk;
use crate::socket::Socket;
use crate::tcp::Follows;
use crate::windows::{Taken, Windows};
use crate::worker::Worker;

/// Frames that are gathered before they are sent anyway.
pub(crate) const GATHER_MAX: usize = PIECE;
/// What the gathered frames take at most: one may still come when there is nearly enough.
const UNSENT_MAX: usize = GATHER_MAX + 16 * 1024 + 1024;
/// Buffers for gathered frames that a worker keeps.
const SPARE_MAX: usize = 16;
/// What is received at once.
const RECEIVE_MAX: usize = 32 * 1024;
/// RFC 9113 §3.4: what a client's connection begins with, before any frame.
const PREFACE_LEN: usize = 24;

/// What the connections of HTTP/2 of one worker share: one that has nothing to send or receive holds no buffer.
pub(crate) struct Stock {
    received: RefCell<Box<[u8]>>,
    spare: RefCell<Vec<Vec<u8>>>,
    /// Bytes that peers may send beyond their first windows.
    granted: Rc<Cell<usize>>,
}

impl Stock {
    pub(crate) fn new() -> Rc<Self> {
        let received = RefCell::new(vec![0; RECEIVE_MAX].into_boxed_slice());
        Rc::new(Self { received, spare: RefCell::default(), granted: Rc::default() })
    }

    fn take(&self) -> Vec<u8> {
        self.spare.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(UNSENT_MAX))
    }

    fn give(&self, buffer: Vec<u8>) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_MAX && buffer.capacity() <= UNSENT_MAX {
            spare.push(buffer);
        }
    }
}

/// A connection that frames travel on, as `h2` and whoever drives it share it.
#[derive(Clone)]
pub(crate) struct Frames(Rc<Shared>);

struct Shared {
    socket: Socket,
    gate: Gate,
    windows: Windows,
    stock: Rc<Stock>,
    deadlines: Rc<Deadlines>,
    incoming: RefCell<Incoming>,
    outgoing: RefCell<Outgoing>,
}

struct Incoming {
    /// Read before it was known to be HTTP/2, or before it was its turn.
    early: Vec<u8>,
    preface_left: usize,
    walk: Walk,
}

#[derive(Default)]
struct Outgoing {
    unsent: Vec<u8>,
    /// How much of `unsent` is sent.
    sent: usize,
}

impl Frames {
    /// From a client, of whom `early` is read already.
    pub(crate) fn new(worker: &Worker, socket: Socket, early: Vec<u8>) -> Self {
        Self::begin(worker, socket, early, PREFACE_LEN)
    }

    /// To a server, which sends no preface.
    pub(crate) fn to_server(worker: &Worker, socket: Socket) -> Self {
        Self::begin(worker, socket, Vec::new(), 0)
    }

    fn begin(worker: &Worker, socket: Socket, early: Vec<u8>, preface_left: usize) -> Self {
        let incoming = Incoming { early, preface_left, walk: Walk::default() };
        Self(Rc::new(Shared {
            socket,
            gate: Gate::default(),
            windows: Windows::new(Rc::clone(&worker.frames.granted)),
            stock: Rc::clone(&worker.frames),
            deadlines: Rc::clone(&worker.deadlines),
            incoming: RefCell::new(incoming),
            outgoing: RefCell::default(),
        }))
    }

    /// What holds the streams of this connection back.
    pub(crate) fn gate(&self) -> &Gate {
        &self.0.gate
    }

    /// A stream has taken this much of what had arrived for it.
    pub(crate) fn take(&self, taken: &mut Taken, count: usize) {
        self.0.windows.take(taken, count, self.0.deadlines.now());
    }

    /// Tells the peer of each stream's window where that has changed, to at most `limit`, with `tell`: it succeeds once
    /// the peer has acknowledged what it was told before.
    pub(crate) fn adjust(&self, limit: u32, tell: impl FnOnce(u32) -> Result<(), h2::Error>) {
        if let Some(stream) = self.0.windows.news(limit, self.0.deadlines.now())
            && tell(stream).is_ok()
        {
            self.0.windows.told(stream);
        }
    }

    /// What the connection has to end for, told once.
    pub(crate) fn flood(&self) -> Option<Failure> {
        self.0.incoming.borrow_mut().walk.tripped()
    }

    /// Begins the next turn of reading; whether the last was cut short.
    pub(crate) fn resume(&self) -> bool {
        let walk = &mut self.0.incoming.borrow_mut().walk;
        let was_over = walk.is_turn_over();
        walk.begin_turn();
        was_over
    }

    /// Whether the peer has said how it wants to be spoken to.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.incoming.borrow().walk.has_begun()
    }

    /// Sends what is gathered: called when `h2` has had its turn, since it flushes each frame by itself.
    pub(crate) fn poll_send(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Outgoing { unsent, sent } = &mut *self.0.outgoing.borrow_mut();
        if unsent.is_empty() {
            // What `h2` had queued is sent, or was dropped with its stream.
            self.0.gate.sent(usize::MAX);
            return Poll::Ready(Ok(()));
        }
        while *sent < unsent.len() {
            *sent += ready!(self.0.socket.poll_write(context, &unsent[*sent..], Follows::Nothing))?;
        }
        self.0.gate.sent(*sent);
        *sent = 0;
        unsent.clear();
        self.0.stock.give(std::mem::take(unsent));
        Poll::Ready(Ok(()))
    }

    /// Waits until there is room to gather more.
    fn poll_room(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.0.outgoing.borrow().unsent.len() < GATHER_MAX {
            return Poll::Ready(Ok(()));
        }
        self.poll_send(context)
    }
}

/// Holds streams back that have more to send than their connection has sent: what is read for them is then still in the
/// processor's cache when it leaves, and a stream that cannot send holds next to nothing.
#[derive(Default)]
pub(crate) struct Gate {
    queued: Cell<usize>,
    waiting: RefCell<Vec<Waker>>,
    /// Streams that have something to send and cannot, for want of a window or because of the gate.
    stalled: Cell<usize>,
}

impl Gate {
    /// Ready when the connection takes more.
    pub(crate) fn poll_open(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.queued.get() < GATHER_MAX {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Whether some stream cannot send.
    pub(crate) fn has_stalled(&self) -> bool {
        self.stalled.get() > 0
    }

    /// A stream begins or ends to be stalled.
    pub(crate) fn stall(&self, is_stalled: bool) {
        let stalled = self.stalled.get();
        self.stalled.set(if is_stalled { stalled + 1 } else { stalled - 1 });
    }

    /// A stream has given the connection this much.
    pub(crate) fn queue(&self, bytes: usize) {
        self.queued.set(self.queued.get() + bytes);
    }

    fn sent(&self, bytes: usize) {
        self.queued.set(self.queued.get().saturating_sub(bytes));
        if self.queued.get() < GATHER_MAX {
            self.waiting.take().into_iter().for_each(Waker::wake);
        }
    }
}

impl AsyncRead for Frames {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let Incoming { early, preface_left, walk } = &mut *self.0.incoming.borrow_mut();
        if walk.is_turn_over() {
            // Whoever drives the connection begins the next: nobody has to be woken.
            return Poll::Pending;
        }
        let is_early = !early.is_empty();
        if is_early {
            buffer.put_slice(&early[..early.len().min(buffer.remaining())]);
        } else {
            // Through memory that is initialised once.
            let received = &mut self.0.stock.received.borrow_mut()[..];
            let limit = received.len().min(buffer.remaining());
            let count = ready!(self.0.socket.poll_read(context, &mut received[..limit]))?;
            buffer.put_slice(&received[..count]);
        }
        let bytes = &buffer.filled()[before..];
        let skipped = (*preface_left).min(bytes.len());
        *preface_left -= skipped;
        let taken = skipped + walk.follow(&bytes[skipped..], self.0.deadlines.second());
        if is_early {
            early.drain(..taken);
        } else if taken < bytes.len() {
            early.extend_from_slice(&bytes[taken..]);
        }
        buffer.set_filled(before + taken);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Frames {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_room(context))?;
        let unsent = &mut self.0.outgoing.borrow_mut().unsent;
        let count: usize = pieces.iter().map(|piece| piece.len()).sum();
        if unsent.capacity() == 0 {
            *unsent = self.0.stock.take();
        }
        pieces.iter().for_each(|piece| unsent.extend_from_slice(piece));
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(context))?;
        // A peer that has closed already needs no telling.
        let _ = self.0.socket.shutdown_write();
        Poll::Ready(Ok(()))
    }
}
