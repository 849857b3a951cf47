//! Exchange slots: the memory that a running exchange needs, kept for the next one.
//!
//! A slot is a future that serves one connection after the other; its heads, buffers and locals are allocated once. A
//! connection's task borrows a slot while it has requests, and polls it in place. An idle connection holds none, so it
//! is small, and no request allocates memory.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use http1::{HeadError, HeadLimits, RequestHead, ResponseHead};
use telemetry::Trace;

use crate::body::pump::Pump;
use crate::body::replay::Replay;
use crate::body::tee::Tee;
use crate::context::client::Client;
use crate::context::under_way::Note;
use crate::context::vouched::Vouched;
use crate::context::web_call::WebCall;
use crate::context::worker::Worker;
use transport::buffer::{self, Buffer, SMALL, TINY};
use transport::endpoint::Endpoint;

/// Exchange slots of either kind that a worker keeps beyond those in use.
const SPARE_MAX: usize = 256;
/// Memory for a head that an exchange slot keeps beyond its exchange.
const KEEP_MAX: usize = 4096;

/// The current request: its bytes, and what was made of them.
pub(crate) struct Request {
    pub(crate) head: RequestHead,
    /// The bytes from the client: the head in front (unless it is kept apart), then the body, then what follows.
    pub(crate) buffer: Buffer,
    /// The head's bytes, once a body passes through the buffer; else empty.
    kept: Vec<u8>,
    /// The first piece of the body, framed: an attempt sends it behind the head.
    pub(crate) first_piece: Vec<u8>,
    /// The first bytes for the server: the new head and the first piece of the body.
    pub(crate) out: Vec<u8>,
    /// Texts that the policies of the route made for the request.
    pub(crate) texts: Texts,
    /// What is to copy the body, once that begins.
    pub(crate) tee: Option<Box<Tee>>,
    /// What the request was, if it is a call of gRPC-Web.
    pub(crate) web: Option<Box<WebCall>>,
    pub(crate) body: Pump,
    /// The body, where it is kept as a whole: then it comes from there.
    pub(crate) replay: Option<Box<Replay>>,
}

/// Texts for one request. Only those that the route uses are meaningful.
#[derive(Default, Clone)]
pub(crate) struct Texts {
    /// The path and query for the server; empty if they stay as sent.
    pub(crate) path: Vec<u8>,
    /// The Host for the server; empty if it is the upstream's default.
    pub(crate) host: Vec<u8>,
    /// The request ID.
    pub(crate) id: Vec<u8>,
    /// The Set-Cookie line that keeps the client on its side of a split; empty if it has it.
    pub(crate) split_cookie: Vec<u8>,
    /// The path and query without the parts that the cache leaves out, if there are such parts; set for each request to
    /// a route with a cache.
    pub(crate) kept_target: Option<Vec<u8>>,
    /// The cache's header lines, in place of the client's conditions; `None` keeps the client's.
    pub(crate) conditions: Option<Vec<u8>>,
    /// The head for another instance, while that is asked.
    pub(crate) hop: Option<Vec<u8>>,
    /// What the authentication has found out about the client, besides a listed user.
    pub(crate) vouched: Option<Arc<Vouched>>,
    /// The place of the request in its trace, if there are traces.
    pub(crate) trace: Option<Trace>,
}

impl Texts {
    /// The name of the user that somebody vouches for; empty if there is none.
    pub(crate) fn user(&self) -> &str {
        self.vouched.as_ref().map_or("", |vouched| vouched.user.as_str())
    }
}

impl Request {
    /// The bytes that `head` was parsed from.
    pub(crate) fn head_bytes(&self) -> &[u8] {
        if self.kept.is_empty() { self.buffer.filled() } else { &self.kept }
    }

    /// Whether nothing of the body is left to be said to the server but what leaves with the head.
    #[inline]
    pub(crate) fn is_done_for(&self, server: &Endpoint) -> bool {
        match &self.replay {
            None => self.body.is_done_for(server),
            Some(replay) => replay.is_done_for(server),
        }
    }

    /// Whether the body is being read.
    pub(crate) fn has_body_begun(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Keeps the head apart, so that the buffer is free for the body.
    pub(crate) fn keep_head(&mut self) {
        if !self.kept.is_empty() {
            return;
        }
        self.kept.extend_from_slice(&self.buffer.filled()[..self.head.len]);
        self.buffer.consume(self.head.len);
    }

    /// Ends the exchange: the rest of the buffer belongs to the next request.
    pub(crate) fn end(&mut self) {
        if self.kept.is_empty() {
            self.buffer.consume(self.head.len);
        }
        self.kept.clear();
        self.first_piece.clear();
        self.head.clear();
        // Exchange slots are shared by connections: what a request is called is no other's to see.
        self.texts.id.clear();
        self.texts.vouched = None;
        self.texts.trace = None;
        self.tee = None;
        self.replay = None;
        self.web = None;
        self.body.copy_to(None);
    }

    /// Puts another head in the place of the one that was parsed, before the body begins. Its version and its first line are
    /// the same.
    ///
    /// # Errors
    /// It is no head.
    pub(crate) fn replace_head(&mut self, text: &[u8]) -> Result<(), HeadError> {
        let version = self.head.start.version;
        self.keep_head();
        self.kept.clear();
        self.kept.extend_from_slice(text);
        self.head.clear();
        let limits = HeadLimits { bytes: text.len(), fields: usize::MAX, target: text.len() };
        self.head.parse(text, &limits)?;
        self.head.start.version = version;
        Ok(())
    }
}

/// The current response.
pub(crate) struct Response {
    pub(crate) head: ResponseHead,
    /// The bytes from the server.
    pub(crate) buffer: Buffer,
    /// The new head for the client.
    pub(crate) out: Vec<u8>,
    /// Header lines to add to the response: the session cookie.
    pub(crate) added: Vec<u8>,
    pub(crate) body: Pump,
    /// What no later step can find out of a failure: the server's error on the HTTP/2 stream of the response, or why a
    /// body is not kept.
    pub(crate) wrong: Option<String>,
}

/// The memory of an exchange slot.
pub(crate) struct Memory {
    pub(crate) request: Request,
    pub(crate) response: Response,
    /// Where clients' requests are noted for who watches; `None` for requests of the proxy's own.
    pub(crate) note: Option<Rc<Note>>,
}

impl Memory {
    /// Allocates the memory. `read_area` is the size of its buffers when they are in use.
    pub(crate) fn new(worker: &Worker, read_area: usize) -> Self {
        Self {
            note: None,
            request: Request {
                head: RequestHead::default(),
                buffer: worker.buffers.take_waiting(read_area),
                kept: Vec::new(),
                first_piece: Vec::new(),
                out: Vec::with_capacity(TINY.min(read_area / 4)),
                texts: Texts::default(),
                tee: None,
                web: None,
                body: Pump::new(),
                replay: None,
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

    /// Memory for a request of the proxy's own with this head, which is not parsed yet.
    pub(crate) fn of_request(worker: &Worker, head: &[u8]) -> Self {
        let mut memory = Self::new(worker, TINY);
        let buffer = &mut memory.request.buffer;
        worker.buffers.fit(buffer, head.len());
        buffer.spare()[..head.len()].copy_from_slice(head);
        buffer.advance(head.len());
        memory
    }

    /// Reduces the memory of a request that waits for long to what its bytes need.
    pub(crate) fn park(&mut self, worker: &Worker) {
        worker.buffers.park(&mut self.request.buffer);
        worker.buffers.park(&mut self.response.buffer);
        self.request.out = Vec::new();
        self.response.out = Vec::new();
    }

    /// Restores the buffers of a request that waited.
    pub(crate) fn unpark(&mut self, worker: &Worker) {
        worker.buffers.unpark(&mut self.request.buffer);
        worker.buffers.unpark(&mut self.response.buffer);
    }

    /// Removes the bytes of the last connection.
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

/// The kind of connection that an exchange slot serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An HTTP/1 connection.
    Connection,
    /// A stream of an HTTP/2 connection, which may have many.
    Stream,
}

/// How the work on a connection in an exchange slot ended.
pub(crate) enum Served {
    /// The connection waits for its next request.
    Idle(Box<Client>),
    /// The connection begins with these bytes of HTTP/2. Boxed, so that the usual results stay small.
    Http2(Box<(Client, Vec<u8>)>),
    /// The connection is closed.
    Closed,
}

/// Where a connection is handed to an exchange slot and back.
#[derive(Default)]
pub(crate) struct Desk {
    inbox: Cell<Option<Box<Client>>>,
    outbox: Cell<Option<Served>>,
}

impl Desk {
    /// Waits for the next connection. The caller that hands it over polls at once, so no waker is needed.
    pub(crate) async fn next(&self) -> Box<Client> {
        poll_fn(|_| self.inbox.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    /// Hands a connection back.
    pub(crate) fn give_back(&self, served: Served) {
        self.outbox.set(Some(served));
    }
}

/// Creates the future of a slot, which serves the connections of its desk. The number is the read area of its buffers.
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

    /// Hands a connection to the slot.
    pub(crate) fn hand_over(&mut self, client: Box<Client>) {
        self.desk.inbox.set(Some(client));
    }

    /// Serves the requests of the connection, until it is idle or closed.
    pub(crate) fn served(&mut self) -> impl Future<Output = Served> {
        poll_fn(|context| {
            let Poll::Pending = self.future.as_mut().poll(context);
            self.desk.outbox.take().map_or(Poll::Pending, Poll::Ready)
        })
    }
}

/// The pool of spare exchange slots of one worker.
pub(crate) struct ExchangeSlots {
    serve: Serve,
    of_connections: RefCell<Vec<ExchangeSlot>>,
    of_streams: RefCell<Vec<ExchangeSlot>>,
}

impl ExchangeSlots {
    /// An empty pool; `serve` creates the future of each slot.
    pub(crate) fn new(serve: Serve) -> Self {
        Self { serve, of_connections: RefCell::default(), of_streams: RefCell::default() }
    }

    pub(crate) fn take(&self, worker: &Rc<Worker>, kind: Kind) -> ExchangeSlot {
        self.spare(kind).borrow_mut().pop().unwrap_or_else(|| ExchangeSlot::new(worker, kind, self.serve))
    }

    /// Returns an exchange slot, whose connection has been handed back, to the pool.
    pub(crate) fn give(&self, slot: ExchangeSlot) {
        let mut spare = self.spare(slot.kind).borrow_mut();
        if spare.len() < SPARE_MAX {
            spare.push(slot);
        }
    }

    /// Drops half of the spare exchange slots of each kind beyond `wanted`.
    pub(crate) fn shrink_spare(&self, wanted: usize) {
        buffer::shrink(&mut self.of_connections.borrow_mut(), wanted);
        buffer::shrink(&mut self.of_streams.borrow_mut(), wanted);
    }

    /// Drops all exchange slots, which breaks their reference cycle with the worker.
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
