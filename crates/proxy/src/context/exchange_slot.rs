//! Exchange slots: the memory that a running exchange needs, kept for the next one.
//!
//! A slot is a future that serves one connection after the other; its heads, buffers and locals are allocated once. A
//! connection's task borrows a slot while it has requests, and polls it in place. An idle connection holds none, so it
//! is small, and no request allocates memory.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use fastcgi::{Script, ScriptForm};
use grpc::CallForm;
use http1::{BodyFraming, HeadError, HeadLimits, RequestHead, ResponseHead};
use telemetry::Trace;

use crate::body::pump::Pump;
use crate::body::replay::Replay;
use crate::body::tee::Tee;
use crate::context::client::FrontConnection;
use crate::context::under_way::SlotNote;
use crate::context::worker::Worker;
use crate::shared::concurrency::Counted;
use crate::shared::vouched::Vouched;
use transport::buffer::{self, Buffer, SMALL, TINY};
use transport::endpoint::MessageEndpoint;

/// Spare exchange slots that a worker keeps, of each kind.
const SPARE_MAX: usize = 256;
/// Memory for a head that an exchange slot keeps after its exchange.
const KEEP_MAX: usize = 4096;

pub(crate) struct CurrentRequest {
    pub(crate) head: RequestHead,
    /// The bytes from the client: the head first (unless it is in `kept`), then the body, then later requests.
    pub(crate) buffer: Buffer,
    /// The head's bytes, once the body passes through the buffer; otherwise empty.
    kept: Vec<u8>,
    /// The first piece of the body, framed: each attempt sends it behind the head.
    pub(crate) first_piece: Vec<u8>,
    /// The first bytes for the server: the new head and the first piece of the body.
    pub(crate) out: Vec<u8>,
    /// Texts that the route's policies made for the request.
    pub(crate) texts: Texts,
    /// Copies the body, once that begins.
    pub(crate) tee: Option<Box<Tee>>,
    /// Set if the request is a gRPC-Web call.
    pub(crate) web: Option<Box<WebCall>>,
    pub(crate) body: Pump,
    /// The kept body, if the request was buffered: it is sent from there.
    pub(crate) replay: Option<Box<Replay>>,
    /// Counts the request as under way for the limits of its route.
    pub(crate) counted: Vec<Counted>,
}

/// Facts about a gRPC-Web call, needed when the response to the translated call arrives.
pub(crate) struct WebCall {
    /// The form of its response.
    pub(crate) form: CallForm,
    /// The Content-Type of the client's request, before the translation.
    pub(crate) content_type: Vec<u8>,
    /// The framing of the request's body.
    pub(crate) framing: BodyFraming,
    /// Whether the body is base64.
    pub(crate) is_text: bool,
}

/// Texts for one request. Only those that the route uses are valid.
#[derive(Default, Clone)]
pub(crate) struct Texts {
    /// The path and query for the server; empty if unchanged.
    pub(crate) path: Vec<u8>,
    /// The Host for the server; empty for the upstream's default.
    pub(crate) host: Vec<u8>,
    pub(crate) id: Vec<u8>,
    /// The body of a configured response with variables.
    pub(crate) body: Vec<u8>,
    /// The Set-Cookie line that keeps the client on its side of a split; empty if the client has the cookie.
    pub(crate) split_cookie: Vec<u8>,
    /// The lines with the remaining rate limits, for the client.
    pub(crate) rate_limit: Vec<u8>,
    /// The path and query without the parts that the cache key omits, if there are such parts. Set for each request of
    /// a route with a cache.
    pub(crate) kept_target: Option<Vec<u8>>,
    /// The cache's lines in place of the client's conditions; `None` keeps the client's.
    pub(crate) conditions: Option<Vec<u8>>,
    /// The head for another instance, while that is asked.
    pub(crate) hop: Option<Vec<u8>>,
    /// Findings of authentication about the client, besides a listed user.
    pub(crate) vouched: Option<Arc<Vouched>>,
    /// `None` without tracing.
    pub(crate) trace: Option<Trace>,
    /// When the request was admitted, if a condition of its route asks for the time of the response.
    pub(crate) began: Option<Instant>,
    /// The script that an application behind FastCGI runs for the request.
    pub(crate) script: Option<Box<ScriptText>>,
}

/// The script of a request.
#[derive(Default, Clone)]
pub(crate) struct ScriptText {
    /// Whether it was found before a server was chosen.
    pub(crate) is_found: bool,
    /// How much of the body does not leave with the head.
    pub(crate) body_left: u64,
    /// Memory for the search.
    pub(crate) memory: Vec<u8>,
    /// The script's name, with the path info behind it.
    path: Vec<u8>,
    name_len: usize,
}

impl ScriptText {
    pub(crate) fn set(&mut self, script: &Script<'_>) {
        self.path.clear();
        self.path.extend_from_slice(script.name);
        self.path.extend_from_slice(script.path_info);
        self.name_len = script.name.len();
    }

    pub(crate) fn script(&self) -> Script<'_> {
        let (name, path_info) = self.path.split_at(self.name_len);
        Script { name, path_info, form: ScriptForm::Script }
    }
}

impl Texts {
    /// The script of the request, for requests to applications. Allocated once per slot.
    pub(crate) fn script_mut(&mut self) -> &mut ScriptText {
        self.script.get_or_insert_default()
    }

    /// The user that a token or a server vouches for; empty if there is none.
    pub(crate) fn user(&self) -> &str {
        self.vouched.as_ref().map_or("", |vouched| vouched.user.as_str())
    }
}

impl CurrentRequest {
    /// The bytes that `head` was parsed from.
    pub(crate) fn head_bytes(&self) -> &[u8] {
        if self.kept.is_empty() { self.buffer.filled() } else { &self.kept }
    }

    /// Whether the server gets no more of the body than what leaves with the head.
    #[inline]
    pub(crate) fn is_done_for(&self, server: &MessageEndpoint) -> bool {
        match &self.replay {
            None => self.body.is_done_for(server),
            Some(replay) => replay.is_done_for(server),
        }
    }

    /// Whether the body is being read.
    pub(crate) fn has_body_begun(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Moves the head to a separate buffer, so that `buffer` is free for the body.
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
        // Exchange slots are shared by connections: another client must not see the request ID.
        self.texts.id.clear();
        self.texts.rate_limit.clear();
        self.texts.vouched = None;
        self.texts.trace = None;
        self.texts.began = None;
        if let Some(script) = &mut self.texts.script {
            script.is_found = false;
        }
        self.tee = None;
        self.replay = None;
        self.web = None;
        self.counted.clear();
        self.body.copy_to(None);
    }

    /// Replaces the parsed head before the body begins. Version and start line are kept.
    ///
    /// # Errors
    /// If the text is not a head.
    pub(crate) fn replace_head(&mut self, text: &[u8]) -> Result<(), HeadError> {
        let version = self.head.start.version;
        self.keep_head();
        self.kept.clear();
        self.kept.extend_from_slice(text);
        self.head.clear();
        self.head.parse(text, &HeadLimits::of_own(text))?;
        // The client's version still decides how the response is framed.
        self.head.start.version = version;
        Ok(())
    }
}

/// A client's request, while its server is asked for something else.
pub(crate) struct LaidAside {
    head: RequestHead,
    kept: Vec<u8>,
    first_piece: Vec<u8>,
    body: Pump,
    replay: Option<Box<Replay>>,
    path: Vec<u8>,
    kept_target: Option<Vec<u8>>,
    conditions: Option<Vec<u8>>,
}

impl CurrentRequest {
    /// Puts a request without a body, conditions and rewritten path in place of the client's. `resume` ends that.
    ///
    /// # Errors
    /// If the text is not a head. Then the client's request stays.
    pub(crate) fn lay_aside(&mut self, text: Vec<u8>) -> Result<LaidAside, HeadError> {
        self.keep_head();
        let version = self.head.start.version;
        let limits = HeadLimits::of_own(&text);
        let aside = LaidAside {
            head: mem::take(&mut self.head),
            kept: mem::replace(&mut self.kept, text),
            first_piece: mem::take(&mut self.first_piece),
            body: mem::replace(&mut self.body, Pump::new()),
            replay: self.replay.take(),
            path: mem::take(&mut self.texts.path),
            kept_target: self.texts.kept_target.take(),
            conditions: self.texts.conditions.replace(Vec::new()),
        };
        if let Err(error) = self.head.parse(&self.kept, &limits) {
            self.resume(aside);
            return Err(error);
        }
        self.head.start.version = version;
        Ok(aside)
    }

    /// Puts the client's request back.
    pub(crate) fn resume(&mut self, aside: LaidAside) {
        let LaidAside { head, kept, first_piece, body, replay, path, kept_target, conditions } = aside;
        (self.head, self.kept, self.first_piece) = (head, kept, first_piece);
        (self.body, self.replay) = (body, replay);
        (self.texts.path, self.texts.kept_target, self.texts.conditions) = (path, kept_target, conditions);
    }
}

pub(crate) struct CurrentResponse {
    pub(crate) head: ResponseHead,
    /// The bytes from the server.
    pub(crate) buffer: Buffer,
    /// The new head for the client.
    pub(crate) out: Vec<u8>,
    /// Lines to add to the response, such as the session cookie.
    pub(crate) added: Vec<u8>,
    pub(crate) body: Pump,
    /// Details of a failure that later steps cannot find out: the server's error on the response's stream, or why a
    /// body is not kept.
    pub(crate) wrong: Option<String>,
}

/// The memory of an exchange slot.
pub(crate) struct SlotMemory {
    pub(crate) request: CurrentRequest,
    pub(crate) response: CurrentResponse,
    /// The note for operators who watch live requests; `None` for subrequests.
    pub(crate) note: Option<Rc<SlotNote>>,
}

impl SlotMemory {
    /// Allocates the memory. `read_area` is the size of its buffers when they are in use.
    pub(crate) fn new(worker: &Worker, read_area: usize) -> Self {
        Self {
            note: None,
            request: CurrentRequest {
                head: RequestHead::default(),
                // Takes no memory until bytes arrive.
                buffer: worker.buffers.take_waiting(read_area),
                kept: Vec::new(),
                first_piece: Vec::new(),
                out: Vec::with_capacity(TINY.min(read_area / 4)),
                texts: Texts::default(),
                tee: None,
                web: None,
                body: Pump::new(),
                replay: None,
                counted: Vec::new(),
            },
            response: CurrentResponse {
                head: ResponseHead::default(),
                buffer: worker.buffers.take_waiting(read_area),
                out: Vec::with_capacity(TINY.min(read_area / 4)),
                added: Vec::new(),
                body: Pump::new(),
                wrong: None,
            },
        }
    }

    /// Allocates memory for a subrequest with this head, which is not parsed yet.
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
        // Replaced, because clearing would keep their memory.
        self.request.out = Vec::new();
        self.response.out = Vec::new();
    }

    /// Restores the buffers of a request that has waited.
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
            &mut self.request.texts.body,
            &mut self.response.out,
            &mut self.response.added,
        ] {
            text.clear();
            // A rare long head must not stay in every slot.
            text.shrink_to(KEEP_MAX);
        }
    }
}

/// A future that serves connections, one after the other.
pub(crate) struct ExchangeSlot {
    future: Pin<Box<dyn Future<Output = Infallible>>>,
    desk: Rc<Desk>,
    kind: SlotKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotKind {
    Connection,
    /// A stream of an HTTP/2 or HTTP/3 connection, which may have many.
    Stream,
}

/// The result of serving a connection in an exchange slot.
pub(crate) enum Served {
    /// The connection waits for its next request.
    Idle(Box<FrontConnection>),
    /// The connection begins with these bytes of HTTP/2. Boxed, so that the usual results stay small.
    Http2(Box<(FrontConnection, Vec<u8>)>),
    Closed,
}

/// Passes a connection to an exchange slot and back.
#[derive(Default)]
pub(crate) struct Desk {
    inbox: Cell<Option<Box<FrontConnection>>>,
    outbox: Cell<Option<Served>>,
}

impl Desk {
    /// Waits for the next connection. The caller that hands it over polls at once, so no waker is needed.
    pub(crate) async fn next(&self) -> Box<FrontConnection> {
        poll_fn(|_| self.inbox.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    pub(crate) fn give_back(&self, served: Served) {
        self.outbox.set(Some(served));
    }
}

/// Creates the future of a slot, which serves the connections of its desk. The number is the size of its read buffers.
pub(crate) type Serve = fn(Rc<Worker>, Rc<Desk>, usize) -> Pin<Box<dyn Future<Output = Infallible>>>;

impl ExchangeSlot {
    fn new(worker: &Rc<Worker>, kind: SlotKind, serve: Serve) -> Self {
        let desk = Rc::new(Desk::default());
        let read_area = match kind {
            SlotKind::Connection => SMALL,
            // One connection may have many streams, so each begins small.
            SlotKind::Stream => TINY,
        };
        let future = serve(Rc::clone(worker), Rc::clone(&desk), read_area);
        Self { future, desk, kind }
    }

    pub(crate) fn hand_over(&mut self, client: Box<FrontConnection>) {
        self.desk.inbox.set(Some(client));
    }

    /// Serves the requests of the connection, until it is idle or closed.
    pub(crate) fn served(&mut self) -> impl Future<Output = Served> {
        poll_fn(|context| {
            // A slot's future never ends. Only the outbox says that the connection was served.
            let Poll::Pending = self.future.as_mut().poll(context);
            self.desk.outbox.take().map_or(Poll::Pending, Poll::Ready)
        })
    }
}

/// A worker's pool of spare exchange slots.
pub(crate) struct ExchangeSlots {
    serve: Serve,
    of_connections: RefCell<Vec<ExchangeSlot>>,
    of_streams: RefCell<Vec<ExchangeSlot>>,
}

impl ExchangeSlots {
    /// Creates an empty pool; `serve` creates the future of each slot.
    pub(crate) fn new(serve: Serve) -> Self {
        Self { serve, of_connections: RefCell::default(), of_streams: RefCell::default() }
    }

    pub(crate) fn take(&self, worker: &Rc<Worker>, kind: SlotKind) -> ExchangeSlot {
        // The slot that was given back last: the core's cache probably still has its memory.
        self.spare(kind).borrow_mut().pop().unwrap_or_else(|| ExchangeSlot::new(worker, kind, self.serve))
    }

    /// Gives an exchange slot back to the pool, after its connection was handed back.
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

    fn spare(&self, kind: SlotKind) -> &RefCell<Vec<ExchangeSlot>> {
        match kind {
            SlotKind::Connection => &self.of_connections,
            SlotKind::Stream => &self.of_streams,
        }
    }
}
