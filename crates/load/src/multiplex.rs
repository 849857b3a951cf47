//! HTTP/2 and HTTP/3: several senders share one connection, which the first that needs it opens.
//!
//! One task moves the bytes of a connection, for all its senders: what they send together leaves in one system call. In a
//! plain closed loop it also sends the request that follows a response, so that senders are woken only for failures.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::arrivals::{Next, Turn};
use crate::cookies::Jar;
use crate::failure::{Failure, Setbacks};
use crate::fill::Fill;
use crate::give_up::GiveUp;
use crate::http2::{Asked, Block, Code, Connection, Received};
use crate::slots::Slot;
use crate::target::{Message, Requests};
use crate::tls::Sessions;
use crate::visit::{Answer, Visit};
use crate::watch::{Checker, Watch};
use crate::worker::Worker;
use crate::{connect, http3};

/// HTTP/2 over TCP, or HTTP/3 over UDP.
mod carrier;
/// An open connection, shared by its task and its senders.
mod open;

use carrier::{Carrier, Wire};
use open::{Exchange, Open, Waiting, record};

/// Maximum number of connections on which a request is tried, if each ends before the server processes the request.
const ATTEMPTS_MAX: u32 = 3;

/// Starts a sender for each stream of a connection.
pub(crate) fn drive_all(worker: &Rc<Worker>, connection: usize, senders: &mut JoinSet<()>) {
    let link = Rc::new(Link::new(Rc::clone(worker)));
    let streams = worker.shared.plan.streams;
    for place in 0..streams {
        senders.spawn_local(drive(Rc::clone(&link), place, connection * streams + place));
    }
}

/// Sends one request at a time until the run is over.
async fn drive(link: Rc<Link>, place: usize, index: usize) {
    let timeout = Duration::from_secs_f64(link.worker.shared.plan.timeout_seconds);
    let mut sender = Sender {
        index,
        place,
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
    /// Whether the connection itself sends the request that follows a response.
    follows: bool,
}

/// Bytes that were transferred and are not recorded yet.
#[derive(Debug, Default)]
struct Traffic {
    received_bytes: Cell<u64>,
    sent_bytes: Cell<u64>,
    /// Number of connections opened so far.
    connections: Cell<u64>,
}

impl Traffic {
    fn received(&self, bytes: u64) {
        self.received_bytes.set(self.received_bytes.get() + bytes);
    }

    fn sent(&self, bytes: u64) {
        self.sent_bytes.set(self.sent_bytes.get() + bytes);
    }
}

impl Link {
    fn new(worker: Rc<Worker>) -> Self {
        let servers = worker.shared.targets.servers.count();
        let follows = worker.follows_at_once();
        Self {
            worker,
            open: RefCell::new((0..servers).map(|_| None).collect()),
            sessions: Sessions::new(servers),
            opening: Mutex::default(),
            traffic: Rc::default(),
            follows,
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
        if let Some(session) = self.usable(server) {
            return Ok(session);
        }
        give_up.start(Instant::now());
        let after = give_up.after();
        let turn = give_up.bound(self.opening.lock()).await;
        let _turn = turn.ok_or(Failure::ConnectTimeout { after })?;
        if let Some(session) = self.usable(server) {
            return Ok(session);
        }
        // Boxed: each request would otherwise move the room that opening takes.
        let session = Box::pin(self.open(server, give_up)).await?;
        if self.worker.shared.plan.keepalive {
            self.open.borrow_mut()[server] = Some(session.clone());
        }
        Ok(session)
    }

    fn usable(&self, server: usize) -> Option<Session> {
        let session = self.open.borrow()[server].clone()?;
        if !session.0.slots.is_over() {
            return Some(session);
        }
        self.forget(server, &session);
        None
    }

    async fn open(&self, server: usize, give_up: &mut GiveUp) -> Result<Session, Failure> {
        let places = self.worker.shared.plan.streams;
        let (carrier, wire) = if self.worker.shared.plan.http3 {
            let (connection, wire) = http3::open(&self.worker, &self.sessions, server, give_up).await?;
            (Carrier::Http3(Box::new(connection)), Wire::Udp(Box::new(wire)))
        } else {
            let transport = connect::open(&self.worker, &self.sessions, server, give_up).await?;
            let wire = Wire::Tcp { transport, sent_bytes: 0, news_bytes: 0 };
            (Carrier::Http2(Box::new(Connection::new(places))), wire)
        };
        let number = self.traffic.connections.get() + 1;
        self.traffic.connections.set(number);
        let open = Rc::new(Open {
            connection: RefCell::new(carrier),
            waiting: RefCell::new((0..places).map(|_| Waiting::default()).collect()),
            slots: Rc::default(),
            number,
            handles: Cell::new(0),
            driver: RefCell::new(None),
            is_woken: Cell::new(false),
            cause: RefCell::new(None),
            traffic: Rc::clone(&self.traffic),
            worker: Rc::clone(&self.worker),
            follows: self.follows,
        });
        let session = Session::new(&open);
        tokio::task::spawn_local(Rc::clone(&open.slots).drive(open::run(open, wire)));
        // RFC 9113 §3.4: the server says first how many streams it takes. Those beyond that it would refuse.
        let after = give_up.after();
        let opened = session.0.slots.opened(|| session.most());
        give_up.bound(opened).await.ok_or(Failure::NoStreams { after })?;
        Ok(session)
    }

    /// Removes a connection that accepts no more requests.
    fn forget(&self, server: usize, session: &Session) {
        self.open.borrow_mut()[server].take_if(|open| open.0.number == session.0.number);
        // Who waits for a slot on it waits for one on the next instead, and has tried nothing yet.
        session.0.slots.end();
    }
}

/// An open connection, as one of those that use it has it. When the last is dropped, it is closed.
struct Session(Rc<Open>);

impl Session {
    fn new(open: &Rc<Open>) -> Self {
        open.handles.set(open.handles.get() + 1);
        Self(Rc::clone(open))
    }

    /// Number of concurrent streams that the server takes.
    fn most(&self) -> usize {
        self.0.connection.borrow().most()
    }

    /// Takes a slot of the connection, and reports whether it had to wait. `None` if the connection is over.
    async fn slot(&self) -> Option<(Slot, bool)> {
        self.0.slots.take(|| self.most()).await
    }
}

impl Clone for Session {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let left = self.0.handles.get() - 1;
        self.0.handles.set(left);
        if left == 0 {
            self.0.wake();
        }
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
    /// Its place on connections.
    place: usize,
    held: Option<Held>,
    /// Server of the last request.
    last_server: usize,
    give_up: GiveUp,
    setbacks: Setbacks,
}

/// What a request sends, and what its response must be.
#[derive(Clone, Copy)]
struct Sent<'m> {
    block: &'m Block,
    is_head: bool,
    /// Its body, if it has one.
    body: Option<&'m Bytes>,
    checker: Option<&'m Arc<Checker>>,
}

impl<'m> Sent<'m> {
    #[inline]
    fn of(message: &'m Message, worker: &'m Worker) -> Self {
        let body = Some(&worker.bodies[message.body]);
        Self { block: &message.block, is_head: message.is_head, body, checker: message.checker.as_ref() }
    }

    #[inline]
    fn asked(self, worker: &'m Worker, server: usize, keeps_fields: bool) -> Asked<'m> {
        Asked {
            common: worker.shared.targets.common(server),
            block: self.block,
            body: self.body.cloned().unwrap_or_default(),
            is_head: self.is_head,
            keeps_fields,
            watch: self.checker.map(|checker| Box::new(Watch::new(checker))),
        }
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
        let is_ready = self.held.as_ref().is_some_and(|held| !held.session.0.slots.is_over());
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
        let Requests::Streams(messages) = &worker.shared.targets.requests else {
            unreachable!("the requests of a run are of one protocol")
        };
        let chosen = worker.next_request(messages.len());
        let message = &messages[chosen];
        let sent = if worker.is_open_model { Instant::now() } else { turn.due };
        let number = turn.counted.then(|| worker.departure(&turn, free, sent));
        let mut exchange = Exchange { turn, sent, chosen, number };
        let exchanged = if self.user.is_none() {
            match &message.fill {
                None => self.tried(message.server, None, &mut exchange).await,
                Some(fill) => Box::pin(self.filled(message, fill, &mut exchange)).await,
            }
        } else {
            Box::pin(self.visit(message, &mut exchange)).await
        };
        record(&worker, &self.link.traffic, &exchange, exchanged.as_ref().ok());
        match exchanged {
            Ok(Received { done, .. }) => {
                self.setbacks.end();
                done
            }
            Err(failure) => {
                let Turn { due, counted } = exchange.turn;
                Box::pin(self.setbacks.fail(&worker, &failure, due, counted)).await;
                Instant::now()
            }
        }
    }

    /// A request that differs each time.
    async fn filled(
        &mut self,
        message: &Message,
        fill: &Fill,
        exchange: &mut Exchange,
    ) -> Result<Received, Failure> {
        let worker = Rc::clone(&self.link.worker);
        let targets = &worker.shared.targets;
        let filled = fill.message(targets.form(exchange.chosen));
        let (head, body) = filled.map_err(Failure::Unsent)?;
        let block = targets.common(message.server).block(&head);
        let body = Some(&body);
        let request =
            Sent { block: &block, is_head: message.is_head, body, checker: message.checker.as_ref() };
        self.tried(message.server, Some(request), exchange).await
    }

    /// A request of a user, with the redirects that follow it.
    async fn visit(&mut self, message: &Message, exchange: &mut Exchange) -> Result<Received, Failure> {
        let worker = Rc::clone(&self.link.worker);
        let targets = &worker.shared.targets;
        let mut visit = Visit::new(&worker.shared, exchange.chosen, message.server, message.fill.as_deref());
        loop {
            let jar = self.user.as_ref().and_then(|user| user.jar.as_ref());
            let head = visit.message(targets, jar)?;
            let block = targets.common(visit.server).block(&head);
            let filled = visit.filled_body();
            let body = filled.as_ref().unwrap_or(&worker.bodies[message.body]);
            let body = Some(body).filter(|_| visit.has_body());
            let is_head = head.method() == ::http::Method::HEAD;
            let request = Sent { block: &block, is_head, body, checker: message.checker.as_ref() };
            let received = self.tried(visit.server, Some(request), exchange).await?;
            let fields = received.fields.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
            let answer = Answer::of_fields(received.status, fields);
            let jar = self.user.as_mut().and_then(|user| user.jar.as_mut());
            if !visit.takes(&worker.shared, &answer, jar)? {
                return Ok(received);
            }
            worker.record.borrow_mut().redirects += u64::from(exchange.turn.counted);
        }
    }

    /// Sends a request, by default the one that was chosen. Sends it again on another connection or later if the server
    /// has not processed it. Where requests follow at once, the exchange is the last of them.
    async fn tried(
        &mut self,
        server: usize,
        request: Option<Sent<'_>>,
        exchange: &mut Exchange,
    ) -> Result<Received, Failure> {
        let mut attempt = 1;
        loop {
            let number = exchange.number;
            let exchanged = self.exchange(server, request, exchange).await;
            if exchange.number != number {
                attempt = 1;
            }
            match exchanged {
                Err(failure) if failure.is_unprocessed() && attempt < ATTEMPTS_MAX => attempt += 1,
                // RFC 9113 §8.7, RFC 9114 §4.1.1: not looked at, since more were under way than the server takes.
                Err(
                    Failure::Reset(Code::REFUSED_STREAM) | Failure::Http3Reset(h3::Code::REQUEST_REJECTED),
                ) if self.waits_for_another(exchange.sent).await => {
                    let mut record = self.link.worker.record.borrow_mut();
                    record.streams_refused += u64::from(exchange.turn.counted);
                }
                exchanged => return exchanged,
            }
        }
    }

    async fn exchange(
        &mut self,
        server: usize,
        request: Option<Sent<'_>>,
        exchange: &mut Exchange,
    ) -> Result<Received, Failure> {
        let is_held = |held: &Held| held.server == server && !held.session.0.slots.is_over();
        if !self.held.as_ref().is_some_and(is_held) {
            Box::pin(self.hold(server)).await?;
        }
        self.last_server = server;
        let Some(held) = &self.held else { unreachable!("it has just been taken") };
        // The time-out covers the whole request, its connect included.
        self.give_up.start(exchange.sent);
        let (open, place, give_up) = (Rc::clone(&held.session.0), self.place, &mut self.give_up);
        let worker = &*open.worker;
        let sent = match (&worker.shared.targets.requests, request) {
            (_, Some(request)) => request,
            (Requests::Streams(messages), None) => Sent::of(&messages[exchange.chosen], worker),
            (Requests::Http1(_), None) => unreachable!("the requests of a run are of one protocol"),
        };
        open.waiting.borrow_mut()[place].exchange = Some(*exchange);
        open.ask(&mut open.connection.borrow_mut(), place, sent.asked(worker, server, self.user.is_some()));
        open.wake();
        let mut was_woken = false;
        let exchanged = poll_fn(|context| {
            if let Poll::Ready(result) = open.poll_ended(place, context) {
                return Poll::Ready(Some(result));
            }
            if !std::mem::replace(&mut was_woken, true) {
                return give_up.watch(context).map(|()| None);
            }
            // Others may have followed the request.
            if let Some(exchange) = &open.waiting.borrow()[place].exchange {
                give_up.start(exchange.sent);
            }
            give_up.poll(context).map(|()| None)
        });
        let exchanged = exchanged.await;
        let (last, has_succeeded) = open.waiting.borrow_mut()[place].end();
        *exchange = last.unwrap_or(*exchange);
        if has_succeeded {
            self.setbacks.end();
        }
        let exchanged = exchanged.unwrap_or_else(|| {
            open.connection.borrow_mut().cancel(place);
            open.wake();
            Err(Failure::Timeout { after: give_up.after() })
        });
        match &exchanged {
            // The connection is as good as before.
            Ok(_) | Err(Failure::Reset(_) | Failure::Http3Reset(_)) => {}
            Err(_) => {
                if let Some(held) = &self.held {
                    self.link.forget(server, &held.session);
                }
            }
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
        self.give_up.bound(session.0.slots.freed()).await.unwrap_or(false)
    }
}
