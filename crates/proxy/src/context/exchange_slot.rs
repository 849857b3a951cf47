//! Exchange slots: what only a running exchange needs, kept for the next one.
//!
//! An exchange slot is a future that serves one connection after the other, with heads, buffers and all its locals allocated
//! once. A connection's own task borrows an exchange slot while it has requests and polls it in place; idle it holds none, so
//! it is small, and nothing is allocated for a request.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use http1::{RequestHead, ResponseHead};

use crate::body::pump::Pump;
use crate::context::client::Client;
use crate::context::worker::Worker;
use transport::buffer::{self, Buffer, SMALL, TINY};

/// Exchange slots of either kind that a worker keeps beyond those in use.
const SPARE_MAX: usize = 256;
/// Memory for a head that an exchange slot keeps beyond its exchange.
const KEEP_MAX: usize = 4096;

/// A request in hand: its bytes, and what is made of them.
pub(crate) struct Request {
    pub(crate) head: RequestHead,
    /// What the client sent: the head at the front (unless it is kept), then body, then what follows.
    pub(crate) buffer: Buffer,
    /// The head's bytes, once a body passes through the buffer; else empty.
    kept: Vec<u8>,
    /// The first piece of the body, framed: what an attempt sends behind the head.
    pub(crate) first_piece: Vec<u8>,
    /// What the server is sent first: the new head and the first piece of the body.
    pub(crate) out: Vec<u8>,
    /// What the policies of its route have made for it.
    pub(crate) texts: Texts,
    pub(crate) body: Pump,
}

/// Texts for one request, of which only those mean something that its route asks for.
#[derive(Default, Clone)]
pub(crate) struct Texts {
    /// Path and query for the server; empty as they were sent.
    pub(crate) path: Vec<u8>,
    /// Host for the server; empty as the upstream has it.
    pub(crate) host: Vec<u8>,
    /// What the request is called.
    pub(crate) id: Vec<u8>,
    /// Path and query without what is not to reach a server, where a request may be answered from the store and something
    /// is left out; set for each request to a route that has a cache.
    pub(crate) kept_target: Option<Vec<u8>>,
    /// Lines of the cache, in the place of the client's own conditions; `None` leaves it those.
    pub(crate) conditions: Option<Vec<u8>>,
}

impl Request {
    /// The bytes that `head` was parsed from.
    pub(crate) fn head_bytes(&self) -> &[u8] {
        if self.kept.is_empty() { self.buffer.filled() } else { &self.kept }
    }

    /// Whether its body is being read.
    pub(crate) fn has_body_begun(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Makes way for the body: the buffer goes on behind the head.
    pub(crate) fn keep_head(&mut self) {
        if !self.kept.is_empty() {
            return;
        }
        self.kept.extend_from_slice(&self.buffer.filled()[..self.head.len]);
        self.buffer.consume(self.head.len);
    }

    /// The exchange is over: what is left in the buffer is the next request's.
    pub(crate) fn end(&mut self) {
        if self.kept.is_empty() {
            self.buffer.consume(self.head.len);
        }
        self.kept.clear();
        self.first_piece.clear();
        self.head.clear();
        // Exchange slots are shared by connections: what a request is called is no other's to see.
        self.texts.id.clear();
    }
}

/// A response in hand.
pub(crate) struct Response {
    pub(crate) head: ResponseHead,
    /// What the server sent.
    pub(crate) buffer: Buffer,
    /// The new head.
    pub(crate) out: Vec<u8>,
    /// Lines for it: the cookie of a session.
    pub(crate) added: Vec<u8>,
    pub(crate) body: Pump,
    /// What was wrong with the stream that it was to come on, in words.
    pub(crate) wrong: Option<String>,
}

/// The memory of an exchange slot.
pub(crate) struct Memory {
    pub(crate) request: Request,
    pub(crate) response: Response,
}

impl Memory {
    /// Whose buffers have this read area once they are used.
    pub(crate) fn new(worker: &Worker, read_area: usize) -> Self {
        Self {
            request: Request {
                head: RequestHead::default(),
                buffer: worker.buffers.take_waiting(read_area),
                kept: Vec::new(),
                first_piece: Vec::new(),
                out: Vec::with_capacity(TINY.min(read_area / 4)),
                texts: Texts::default(),
                body: Pump::new(),
            },
            response: Response {
                head: ResponseHead::default(),
                buffer: worker.buffers.take_waiting(read_area),
                out: Vec::with_capacity(TINY.min(read_area / 4)),
                added: Vec::new(),
                body: Pump::new(),
                wrong: None,
            },
        }
    }

    /// For a request that is no client's, with this head, which is yet to be parsed.
    pub(crate) fn of_request(worker: &Worker, head: &[u8]) -> Self {
        let mut memory = Self::new(worker, TINY);
        let buffer = &mut memory.request.buffer;
        worker.buffers.fit(buffer, head.len());
        buffer.spare()[..head.len()].copy_from_slice(head);
        buffer.advance(head.len());
        memory
    }

    /// Keeps what a request takes that waits for long, and nothing more.
    pub(crate) fn park(&mut self, worker: &Worker) {
        worker.buffers.park(&mut self.request.buffer);
        worker.buffers.park(&mut self.response.buffer);
        self.request.out = Vec::new();
        self.response.out = Vec::new();
    }

    /// It goes on.
    pub(crate) fn unpark(&mut self, worker: &Worker) {
        worker.buffers.unpark(&mut self.request.buffer);
        worker.buffers.unpark(&mut self.response.buffer);
    }

    /// Forgets the last connection's bytes.
    pub(crate) fn reset(&mut self, worker: &Worker) {
        self.request.buffer.clear();
        self.response.buffer.clear();
        worker.buffers.wait(&mut self.request.buffer);
        worker.buffers.wait(&mut self.response.buffer);
        for text in [
            &mut self.request.kept,
            &mut self.request.first_piece,
            &mut self.request.out,
            &mut self.request.texts.path,
            &mut self.response.out,
            &mut self.response.added,
        ] {
            text.clear();
            text.shrink_to(KEEP_MAX);
        }
    }
}

/// A future that serves connections, one after the other.
pub(crate) struct ExchangeSlot {
    future: Pin<Box<dyn Future<Output = Infallible>>>,
    desk: Rc<Desk>,
    kind: Kind,
}

/// What an exchange slot is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A connection of HTTP/1, which has it for itself.
    Connection,
    /// One of the streams of a connection, which may be many.
    Stream,
}

/// What became of a connection in an exchange slot.
pub(crate) enum Served {
    /// It waits for its next request.
    Idle(Box<Client>),
    /// It speaks HTTP/2, as these bytes of it say. In a box, so that what every request comes to is small.
    Http2(Box<(Client, Vec<u8>)>),
    /// It is closed.
    Closed,
}

/// Where a connection is handed over, and back.
#[derive(Default)]
pub(crate) struct Desk {
    inbox: Cell<Option<Box<Client>>>,
    outbox: Cell<Option<Served>>,
}

impl Desk {
    /// The next connection. Whoever puts one there polls at once: no waker is needed.
    pub(crate) async fn next(&self) -> Box<Client> {
        poll_fn(|_| self.inbox.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    /// Hands a connection back.
    pub(crate) fn give_back(&self, served: Served) {
        self.outbox.set(Some(served));
    }
}

/// Makes the future of a slot, which serves the connections of its desk with buffers of such a read area.
pub(crate) type Serve = fn(Rc<Worker>, Rc<Desk>, usize) -> Pin<Box<dyn Future<Output = Infallible>>>;

impl ExchangeSlot {
    fn new(worker: &Rc<Worker>, kind: Kind, serve: Serve) -> Self {
        let desk = Rc::new(Desk::default());
        let read_area = match kind {
            Kind::Connection => SMALL,
            Kind::Stream => TINY,
        };
        let future = serve(Rc::clone(worker), Rc::clone(&desk), read_area);
        Self { future, desk, kind }
    }

    /// Gives the exchange slot a connection to serve.
    pub(crate) fn hand_over(&mut self, client: Box<Client>) {
        self.desk.inbox.set(Some(client));
    }

    /// Serves what the connection has to say, until it is idle or closed.
    pub(crate) fn served(&mut self) -> impl Future<Output = Served> {
        poll_fn(|context| {
            let Poll::Pending = self.future.as_mut().poll(context);
            self.desk.outbox.take().map_or(Poll::Pending, Poll::Ready)
        })
    }
}

/// The spare exchange slots of one worker.
pub(crate) struct ExchangeSlots {
    serve: Serve,
    of_connections: RefCell<Vec<ExchangeSlot>>,
    of_streams: RefCell<Vec<ExchangeSlot>>,
}

impl ExchangeSlots {
    /// None yet; `serve` is what they do.
    pub(crate) fn new(serve: Serve) -> Self {
        Self { serve, of_connections: RefCell::default(), of_streams: RefCell::default() }
    }

    pub(crate) fn take(&self, worker: &Rc<Worker>, kind: Kind) -> ExchangeSlot {
        self.spare(kind).borrow_mut().pop().unwrap_or_else(|| ExchangeSlot::new(worker, kind, self.serve))
    }

    /// Takes back an exchange slot whose connection has been handed back.
    pub(crate) fn give(&self, slot: ExchangeSlot) {
        let mut spare = self.spare(slot.kind).borrow_mut();
        if spare.len() < SPARE_MAX {
            spare.push(slot);
        }
    }

    /// Gives up half of the spare exchange slots of each kind beyond `wanted`.
    pub(crate) fn shrink_spare(&self, wanted: usize) {
        buffer::shrink(&mut self.of_connections.borrow_mut(), wanted);
        buffer::shrink(&mut self.of_streams.borrow_mut(), wanted);
    }

    /// Lets go of all exchange slots: they hold the worker, which holds them.
    pub(crate) fn clear(&self) {
        self.of_connections.take();
        self.of_streams.take();
    }

    fn spare(&self, kind: Kind) -> &RefCell<Vec<ExchangeSlot>> {
        match kind {
            Kind::Connection => &self.of_connections,
            Kind::Stream => &self.of_streams,
        }
    }
}
