//! HTTP/2: several senders share one connection, which the first that needs it opens.
//!
//! The crate `h2` handles frames and header compression. This module decides when a response is complete.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use ::h2::client::{Builder, SendRequest};
use ::h2::{Reason, RecvStream, SendStream};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::arrivals::{Next, Turn};
use crate::check::Response;
use crate::connect;
use crate::cookies::Jar;
use crate::failure::{Failure, Setbacks};
use crate::fill::Fill;
use crate::give_up::GiveUp;
use crate::record::Moments;
use crate::slots::{Slot, Slots};
use crate::target::{Message, Requests};
use crate::tls::Sessions;
use crate::transport::Transport;
use crate::visit::{Answer, Visit};
use crate::watch::{Checker, Verdict, Watch};
use crate::worker::Worker;

/// Flow-control window of each response: allows 160 MB/s at a round-trip time of 50 ms.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// Flow-control window of a connection, for all its responses together.
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
/// Maximum size of a response's header fields (SETTINGS_MAX_HEADER_LIST_SIZE).
const FIELDS_BYTES_MAX: u32 = 64 * 1024;
/// Maximum number of connections on which a request is tried, if each ends before the server processes the request.
const ATTEMPTS_MAX: u32 = 3;

/// Starts a sender for each stream of a connection.
pub(crate) fn drive_all(worker: &Rc<Worker>, connection: usize, senders: &mut JoinSet<()>) {
    let link = Rc::new(Link::new(Rc::clone(worker)));
    let streams = worker.shared.plan.streams;
    for stream in 0..streams {
        senders.spawn_local(drive(Rc::clone(&link), connection * streams + stream));
    }
}

/// Sends one request at a time until the run is over.
async fn drive(link: Rc<Link>, index: usize) {
    let timeout = Duration::from_secs_f64(link.worker.shared.plan.timeout_seconds);
    let mut sender = Sender {
        index,
        held: None,
        last_server: 0,
        give_up: GiveUp::new(timeout),
        setbacks: Setbacks::default(),
        user: link.user(),
        link,
    };
    match sender.open_ahead().await {
        Ok(()) => sender.link.worker.shared.reach.succeeded(),
        // A server that is down for some of them is counted when the load begins.
        Err(failure) => sender.link.worker.shared.reach.failed(|| failure.unreached()),
    }
    let Some(mut free) = sender.link.worker.wait_for_start().await else { return };
    while let Some(turn) = sender.next_turn(&mut free).await {
        free = sender.perform(turn, free).await;
    }
}

/// Connections of a group of senders: one for each server.
struct Link {
    worker: Rc<Worker>,
    /// Open connection to each server.
    open: RefCell<Vec<Option<Session>>>,
    sessions: Sessions,
    /// Lock of the sender that opens a connection; the other senders wait to share it.
    opening: Mutex<()>,
    traffic: Rc<Traffic>,
}

/// An open HTTP/2 connection.
#[derive(Clone)]
struct Session {
    requests: SendRequest<Bytes>,
    /// Limit of concurrent requests.
    slots: Rc<Slots>,
    /// Number that distinguishes the connection from earlier and later ones.
    number: u64,
}

/// Bytes that were transferred and are not recorded yet.
#[derive(Debug, Default)]
struct Traffic {
    received_bytes: Cell<u64>,
    sent_bytes: Cell<u64>,
    /// Number of connections opened so far.
    connections: Cell<u64>,
}

impl Link {
    fn new(worker: Rc<Worker>) -> Self {
        let servers = worker.shared.targets.servers.count();
        Self {
            worker,
            open: RefCell::new(vec![None; servers]),
            sessions: Sessions::new(servers),
            opening: Mutex::default(),
            traffic: Rc::default(),
        }
    }

    /// The state of a new user, if requests depend on earlier responses.
    fn user(&self) -> Option<Box<User>> {
        let plan = &self.worker.shared.plan;
        // They were checked before the run.
        let jar = || plan.cookies.as_ref().map(|cookies| Jar::given(cookies).unwrap_or_default());
        plan.has_visits().then(|| Box::new(User { jar: jar() }))
    }

    /// The open connection to a server, or a new one.
    async fn session(&self, server: usize, give_up: &mut GiveUp) -> Result<Session, Failure> {
        if let Some(session) = self.usable(server).await {
            return Ok(session);
        }
        give_up.start(Instant::now());
        let after = give_up.after();
        let turn = give_up.bound(self.opening.lock()).await;
        let _turn = turn.ok_or(Failure::ConnectTimeout { after })?;
        if let Some(session) = self.usable(server).await {
            return Ok(session);
        }
        // Boxed: each request would otherwise move the room that opening takes.
        let session = Box::pin(self.open(server, give_up)).await?;
        if self.worker.shared.plan.keepalive {
            self.open.borrow_mut()[server] = Some(session.clone());
        }
        Ok(session)
    }

    async fn usable(&self, server: usize) -> Option<Session> {
        let mut session = self.open.borrow()[server].clone()?;
        match poll_fn(|context| session.requests.poll_ready(context)).await {
            Ok(()) => Some(session),
            Err(_) => {
                self.forget(server, &session);
                None
            }
        }
    }

    async fn open(&self, server: usize, give_up: &mut GiveUp) -> Result<Session, Failure> {
        let transport = connect::open(&self.worker, &self.sessions, server, give_up).await?;
        let channel = Channel {
            transport,
            worker: Rc::clone(&self.worker),
            traffic: Rc::clone(&self.traffic),
            overflow: Vec::new(),
            taken_bytes: 0,
        };
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            // Until the server has said how many it takes.
            .initial_max_send_streams(0)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(FIELDS_BYTES_MAX);
        let (requests, connection) = builder.handshake(channel).await?;
        // What ends it, its requests are told.
        let slots = Rc::<Slots>::default();
        tokio::task::spawn_local(Rc::clone(&slots).drive(connection));
        // RFC 9113 §3.4: the server says first how many streams it takes. Those beyond that it would refuse.
        let after = give_up.after();
        let opened = slots.opened(|| requests.current_max_send_streams());
        give_up.bound(opened).await.ok_or(Failure::NoStreams { after })?;
        let number = self.traffic.connections.get() + 1;
        self.traffic.connections.set(number);
        Ok(Session { requests, slots, number })
    }

    /// Removes a connection that accepts no more requests.
    fn forget(&self, server: usize, session: &Session) {
        self.open.borrow_mut()[server].take_if(|open| open.number == session.number);
        // Who waits for a slot on it waits for one on the next instead, and has tried nothing yet.
        session.slots.end();
    }
}

impl Session {
    /// Takes a slot of the connection, and reports whether it had to wait. `None` if the connection is over.
    async fn slot(&self) -> Option<(Slot, bool)> {
        self.slots.take(|| self.requests.current_max_send_streams()).await
    }
}

/// A connection with a slot on it, for the requests of one sender.
struct Held {
    session: Session,
    server: usize,
    /// Released when it is dropped.
    _slot: Slot,
}

/// What a user has besides a sender.
struct User {
    jar: Option<Jar>,
}

/// A sender: sends one request at a time.
struct Sender {
    /// Set if requests depend on earlier responses.
    user: Option<Box<User>>,
    link: Rc<Link>,
    index: usize,
    held: Option<Held>,
    /// Server of the last request.
    last_server: usize,
    give_up: GiveUp,
    setbacks: Setbacks,
}

/// A complete response, and when it arrived.
#[derive(Debug)]
struct Received {
    response: Response,
    first_byte: Instant,
    done: Instant,
    /// Fields of the response that a user looks at.
    answer: Option<Box<Answer>>,
    /// Checks of the response.
    watch: Option<Box<Watch>>,
}

impl Received {
    fn verdict(&self) -> Verdict {
        let Response { status, body_bytes, .. } = self.response;
        match &self.watch {
            None => Verdict::of(status),
            Some(watch) => watch.verdict(status, body_bytes),
        }
    }
}

/// What a request sends, and what its response must be.
#[derive(Clone, Copy)]
struct Sent<'m> {
    head: &'m ::http::Request<()>,
    /// Its body, if it has one.
    body: Option<&'m Bytes>,
    checker: Option<&'m Arc<Checker>>,
}

impl<'m> Sent<'m> {
    fn of(message: &'m Message, worker: &'m Worker) -> Self {
        let body = Some(&worker.bodies[message.body]);
        Self { head: &message.head, body, checker: message.checker.as_ref() }
    }
}

impl Sender {
    /// Opens the connection before a request needs it, if all requests go to one server.
    async fn open_ahead(&mut self) -> Result<(), Failure> {
        if !self.link.worker.opens_ahead() {
            return Ok(());
        }
        self.link.session(0, &mut self.give_up).await.map(drop)
    }

    /// Prepares for a request: a connection and a slot, if all requests go to one server. Returns whether it took new
    /// ones.
    async fn hold_ahead(&mut self) -> Result<bool, Failure> {
        let is_ready = self.held.as_ref().is_some_and(|held| !held.session.slots.is_over());
        if is_ready || !self.link.worker.opens_ahead() {
            return Ok(false);
        }
        Box::pin(self.hold(0)).await.map(|_| true)
    }

    /// Takes a connection to this server and a slot on it. Returns whether it waited for the slot.
    async fn hold(&mut self, server: usize) -> Result<bool, Failure> {
        self.held = None;
        loop {
            let session = self.link.session(server, &mut self.give_up).await?;
            // It may have ended meanwhile: then there is another.
            let Some((slot, waited)) = session.slot().await else {
                self.link.forget(server, &session);
                continue;
            };
            self.held = Some(Held { session, server, _slot: slot });
            return Ok(waited);
        }
    }

    /// Waits for the next request to send; `None` is the end of the run. Updates `free`, the time since which the
    /// sender is ready.
    async fn next_turn(&mut self, free: &mut Instant) -> Option<Turn> {
        let worker = Rc::clone(&self.link.worker);
        loop {
            match self.hold_ahead().await {
                Ok(false) => break,
                // It was not ready for a request while it waited for a slot: that is no delay of the generator's.
                Ok(true) => {
                    *free = Instant::now();
                    break;
                }
                Err(failure) => {
                    *free = Instant::now();
                    if worker.spend_on_failure(*free) {
                        return None;
                    }
                    let counted = worker.is_measured(*free);
                    Box::pin(self.setbacks.fail(&worker, &failure, *free, counted)).await;
                    *free = Instant::now();
                }
            }
        }
        match poll_fn(|context| worker.arrivals().poll_next(self.index, *free, context)).await {
            Next::Send(turn) => Some(turn),
            Next::Over => None,
        }
    }

    /// Sends the request of this turn and records its result. Returns when the sender is free again.
    async fn perform(&mut self, turn: Turn, free: Instant) -> Instant {
        let worker = Rc::clone(&self.link.worker);
        let Requests::Http2(messages) = &worker.shared.targets.requests else {
            unreachable!("the requests of a run are of one protocol")
        };
        let chosen = worker.next_request(messages.len());
        let message = &messages[chosen];
        let sent = if worker.is_open_model { Instant::now() } else { turn.due };
        let number = turn.counted.then(|| worker.departure(&turn, free, sent));
        let exchanged = if self.user.is_none() {
            match &message.fill {
                None => {
                    let request = Sent::of(message, &worker);
                    self.tried(message.server, request, sent, turn.counted).await
                }
                Some(fill) => Box::pin(self.filled(chosen, message, fill, sent, turn.counted)).await,
            }
        } else {
            Box::pin(self.visit(chosen, message, sent, turn.counted)).await
        };
        // What was moved before the window is in no figure.
        let traffic = &self.link.traffic;
        let (sent_bytes, received_bytes) = (traffic.sent_bytes.take(), traffic.received_bytes.take());
        if let Some(number) = number {
            let verdict = exchanged.as_ref().map_or(Verdict::Status, Received::verdict);
            let mut record = worker.record.borrow_mut();
            record.transferred(sent_bytes, received_bytes);
            if let Ok(Received { response, first_byte, done, watch, .. }) = &exchanged {
                let moments = Moments { due: turn.due, sent, first_byte: *first_byte, done: *done };
                record.response(*response, verdict, &moments, |missed| {
                    let watch = watch.as_ref();
                    let words = watch.map(|watch| watch.words(missed, response.status, response.body_bytes));
                    worker.missed(chosen, &words.unwrap_or_default())
                });
            }
            drop(record);
            if worker.has_tables() {
                let began = if worker.is_open_model { turn.due } else { sent };
                let done = exchanged.as_ref().ok();
                worker.break_down(
                    chosen,
                    turn.due,
                    done.map(|done| (done.response.status, done.done - began)),
                    done.is_some() && verdict == Verdict::Good,
                );
            }
            worker.settled(number);
        }
        match exchanged {
            Ok(Received { done, .. }) => {
                self.setbacks.end();
                done
            }
            Err(failure) => {
                Box::pin(self.setbacks.fail(&worker, &failure, turn.due, turn.counted)).await;
                Instant::now()
            }
        }
    }

    /// A request that differs each time.
    async fn filled(
        &mut self,
        chosen: usize,
        message: &Message,
        fill: &Fill,
        sent: Instant,
        is_counted: bool,
    ) -> Result<Received, Failure> {
        let worker = Rc::clone(&self.link.worker);
        let filled = fill.message(worker.shared.targets.form(chosen));
        let (head, body) = filled.map_err(Failure::Unsent)?;
        let request = Sent { head: &head, body: Some(&body), checker: message.checker.as_ref() };
        self.tried(message.server, request, sent, is_counted).await
    }

    /// A request of a user, with the redirects that follow it.
    async fn visit(
        &mut self,
        chosen: usize,
        message: &Message,
        sent: Instant,
        is_counted: bool,
    ) -> Result<Received, Failure> {
        let worker = Rc::clone(&self.link.worker);
        let mut visit = Visit::new(&worker.shared, chosen, message.server, message.fill.as_deref());
        loop {
            let jar = self.user.as_ref().and_then(|user| user.jar.as_ref());
            let head = visit.message(&worker.shared.targets, jar)?;
            let filled = visit.filled_body();
            let body = filled.as_ref().unwrap_or(&worker.bodies[message.body]);
            let body = Some(body).filter(|_| visit.has_body());
            let request = Sent { head: &head, body, checker: message.checker.as_ref() };
            let mut received = self.tried(visit.server, request, sent, is_counted).await?;
            let answer = received.answer.take().unwrap_or_default();
            let jar = self.user.as_mut().and_then(|user| user.jar.as_mut());
            if !visit.takes(&worker.shared, &answer, jar)? {
                return Ok(received);
            }
            worker.record.borrow_mut().redirects += u64::from(is_counted);
        }
    }

    /// Sends a request, again on another connection or later if the server has not processed it.
    async fn tried(
        &mut self,
        server: usize,
        request: Sent<'_>,
        sent: Instant,
        is_counted: bool,
    ) -> Result<Received, Failure> {
        let mut attempt = 1;
        loop {
            match self.exchange(server, request, sent).await {
                Err(failure) if failure.is_unprocessed() && attempt < ATTEMPTS_MAX => attempt += 1,
                // RFC 9113 §8.7: not looked at, since more were under way than the server takes.
                Err(Failure::Reset(Reason::REFUSED_STREAM)) if self.waits_for_another(sent).await => {
                    self.link.worker.record.borrow_mut().streams_refused += u64::from(is_counted);
                }
                exchanged => return exchanged,
            }
        }
    }

    async fn exchange(
        &mut self,
        server: usize,
        Sent { head, body, checker }: Sent<'_>,
        sent: Instant,
    ) -> Result<Received, Failure> {
        let is_held = |held: &Held| held.server == server && !held.session.slots.is_over();
        if !self.held.as_ref().is_some_and(is_held) {
            Box::pin(self.hold(server)).await?;
        }
        self.last_server = server;
        let Some(held) = &mut self.held else { unreachable!("it has just been taken") };
        // The time-out covers the whole request, its connect included.
        self.give_up.start(sent);
        let after = self.give_up.after();
        let no_body = Bytes::new();
        let body = body.unwrap_or(&no_body);
        let keeps_answer = self.user.is_some();
        let exchange = request(&mut held.session.requests, head.clone(), body, checker, keeps_answer);
        let exchanged = self.give_up.bound(exchange).await.unwrap_or(Err(Failure::Timeout { after }));
        match &exchanged {
            // The connection is as good as before.
            Ok(_) | Err(Failure::Reset(_)) => {}
            Err(_) => self.link.forget(server, &held.session),
        }
        if exchanged.is_err() || !self.link.worker.opens_ahead() {
            self.held = None;
        }
        exchanged
    }

    /// Waits until another request on the connection ends, within the timeout of this request. False if there is no
    /// other request, or after the timeout.
    async fn waits_for_another(&mut self, sent: Instant) -> bool {
        let Some(session) = self.link.open.borrow()[self.last_server].clone() else { return false };
        self.give_up.start(sent);
        self.give_up.bound(session.slots.freed()).await.unwrap_or(false)
    }
}

/// Sends a request and receives its response to the end.
async fn request(
    requests: &mut SendRequest<Bytes>,
    head: ::http::Request<()>,
    body: &Bytes,
    checker: Option<&Arc<Checker>>,
    keeps_answer: bool,
) -> Result<Received, Failure> {
    let (response, upload) = requests.send_request(head, body.is_empty())?;
    let receive = async {
        let response = response.await?;
        let first_byte = Instant::now();
        let status = response.status().as_u16();
        let answer = keeps_answer.then(|| Box::new(answer(status, response.headers())));
        let mut watch = checker.map(|checker| Box::new(Watch::new(checker)));
        if let Some(watch) = &mut watch {
            let fields = response.headers().iter();
            let fields = fields.map(|(name, value)| (name.as_str(), value.as_bytes()));
            watch.fields(&fields.collect::<Vec<_>>());
        }
        let body_bytes = receive_body(response.into_body(), &mut watch).await?;
        let done = Instant::now();
        let response = Response { status, body_bytes, keepalive: true };
        Ok(Received { response, first_byte, done, answer, watch })
    };
    if body.is_empty() {
        return receive.await;
    }
    let send = send_body(upload, body.clone());
    tokio::pin!(receive, send);
    tokio::select! {
        biased;
        // RFC 9113 §8.1: a server may answer before the end of the request, and need not read the rest.
        received = &mut receive => received,
        sent = &mut send => match sent {
            Ok(()) => receive.await,
            // The response, or what came in its place, says why.
            Err(error) => receive.await.map_err(|failure| match failure {
                Failure::Http2(_) => error.into(),
                failure => failure,
            }),
        },
    }
}

fn answer(status: u16, fields: &::http::HeaderMap) -> Answer {
    Answer::of_fields(status, fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
}

async fn receive_body(mut body: RecvStream, watch: &mut Option<Box<Watch>>) -> Result<u64, ::h2::Error> {
    let mut body_bytes = 0;
    while let Some(piece) = poll_fn(|context| body.poll_data(context)).await {
        let piece = piece?;
        if let Some(watch) = watch {
            watch.body(&piece);
        }
        let length = piece.len();
        body_bytes += length as u64;
        body.flow_control().release_capacity(length)?;
    }
    poll_fn(|context| body.poll_trailers(context)).await?;
    Ok(body_bytes)
}

async fn send_body(mut stream: SendStream<Bytes>, mut rest: Bytes) -> Result<(), ::h2::Error> {
    stream.reserve_capacity(rest.len());
    while !rest.is_empty() {
        match poll_fn(|context| stream.poll_capacity(context)).await {
            Some(capacity) => {
                let piece = rest.split_to(capacity?.min(rest.len()));
                stream.send_data(piece, rest.is_empty())?;
            }
            // The stream is over.
            None => break,
        }
    }
    Ok(())
}

/// Byte stream for the crate `h2`, over a transport.
struct Channel {
    transport: Transport,
    worker: Rc<Worker>,
    traffic: Rc<Traffic>,
    /// Received bytes that were more than requested: at most what one receive decrypts.
    overflow: Vec<u8>,
    /// How many bytes of `overflow` were taken.
    taken_bytes: usize,
}

impl AsyncRead for Channel {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.taken_bytes == this.overflow.len() {
            this.overflow.clear();
            this.taken_bytes = 0;
            if let Transport::Plain(stream) = &mut this.transport {
                let known_bytes = out.filled().len();
                ready!(Pin::new(stream).poll_read(context, out))?;
                this.traffic.received((out.filled().len() - known_bytes) as u64);
                return Poll::Ready(Ok(()));
            }
            let mut scratch = this.worker.scratch.borrow_mut();
            let overflow = &mut this.overflow;
            let received = this.transport.poll_receive(context, &mut scratch.buffer, |bytes| {
                this.traffic.received(bytes.len() as u64);
                let (now, later) = bytes.split_at(bytes.len().min(out.remaining()));
                out.put_slice(now);
                overflow.extend_from_slice(later);
            });
            ready!(received)?;
            return Poll::Ready(Ok(()));
        }
        let rest = &this.overflow[this.taken_bytes..];
        let now = &rest[..rest.len().min(out.remaining())];
        out.put_slice(now);
        this.taken_bytes += now.len();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Channel {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(this.transport.poll_write(context, bytes))?;
        this.traffic.sent_bytes.set(this.traffic.sent_bytes.get() + written as u64);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().transport.poll_flush(context).map_err(io::Error::from)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

impl Traffic {
    fn received(&self, bytes: u64) {
        self.received_bytes.set(self.received_bytes.get() + bytes);
    }
}
