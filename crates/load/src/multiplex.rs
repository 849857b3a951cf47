//! HTTP/2 and HTTP/3: several senders share one connection, which the first of them opens.
//!
//! One task moves the bytes of a connection for all its senders, so that concurrent requests leave in one system call.
//! In a plain closed loop it also sends the next request after a response, so that senders are woken only for failures.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::arrivals::{NextTurn, RequestTurn};
use crate::cookies::Jar;
use crate::failure::{LoadFailure, Setbacks};
use crate::fill::Fill;
use crate::give_up::GiveUp;
use crate::http2::{H2LoadConnection, H2LoadRequest, ReceivedResponse, RequestBlock};
use crate::page::PagePattern;
use crate::slots::TakenSlot;
use crate::target::{H2Request, RenderedRequests};
use crate::tls::Sessions;
use crate::visit::{Visit, VisitFields};
use crate::watch::{Checker, Observer};
use crate::worker::LoadWorker;
use crate::{connect, http3};

/// HTTP/2 over TCP, or HTTP/3 over UDP.
mod carrier;
/// An open connection, shared by its task and its senders.
mod open;

use carrier::{Carrier, CarrierWire};
use open::{OpenConnection, OpenRequest, WaitingSender, record};

pub(crate) fn drive_all(worker: &Rc<LoadWorker>, connection: usize, senders: &mut JoinSet<()>) {
    let link = Rc::new(GroupLink::new(Rc::clone(worker)));
    let streams = worker.shared.plan.streams;
    for place in 0..streams {
        senders.spawn_local(drive(Rc::clone(&link), place, connection * streams + place));
    }
}

/// Sends one request at a time until the run is over.
async fn drive(link: Rc<GroupLink>, place: usize, index: usize) {
    let timeout = Duration::from_secs_f64(link.worker.shared.plan.timeout_seconds);
    let mut sender = RequestSender {
        index,
        place,
        held: None,
        last_server: 0,
        was_answered: false,
        give_up: GiveUp::new(timeout),
        setbacks: Setbacks::default(),
        user: link.user(),
        link,
    };
    match sender.open_ahead().await {
        Ok(()) => sender.link.worker.shared.reach.succeeded(),
        // A server that is down for some senders is counted when the load begins.
        Err(failure) => sender.link.worker.shared.reach.failed(|| failure.unreached()),
    }
    let Some(mut free) = sender.link.worker.wait_for_start().await else { return };
    while let Some(turn) = sender.next_turn(&mut free).await {
        free = sender.perform(turn, free).await;
    }
}

/// Connections of a group of senders: one for each server.
struct GroupLink {
    worker: Rc<LoadWorker>,
    open: RefCell<Vec<Option<SharedSession>>>,
    sessions: Sessions,
    /// Lock of the sender that opens a connection; the other senders wait to share it.
    opening: Mutex<()>,
    traffic: Rc<PendingTraffic>,
    /// Whether the connection's task sends the next request after a response.
    follows: bool,
}

/// Bytes that were transferred and are not recorded yet.
#[derive(Debug, Default)]
struct PendingTraffic {
    received_bytes: Cell<u64>,
    sent_bytes: Cell<u64>,
    connections: Cell<u64>,
}

impl PendingTraffic {
    fn received(&self, bytes: u64) {
        self.received_bytes.set(self.received_bytes.get() + bytes);
    }

    fn sent(&self, bytes: u64) {
        self.sent_bytes.set(self.sent_bytes.get() + bytes);
    }
}

impl GroupLink {
    fn new(worker: Rc<LoadWorker>) -> Self {
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
    fn user(&self) -> Option<Box<StreamUser>> {
        let plan = &self.worker.shared.plan;
        // They were checked before the run.
        let jar = || plan.cookies.as_ref().map(|cookies| Jar::given(cookies).unwrap_or_default());
        plan.has_visits().then(|| Box::new(StreamUser { jar: jar() }))
    }

    /// The open connection to a server, or a new one.
    async fn session(&self, server: usize, give_up: &mut GiveUp) -> Result<SharedSession, LoadFailure> {
        if let Some(session) = self.usable(server) {
            return Ok(session);
        }
        give_up.start(Instant::now());
        let after = give_up.after();
        let turn = give_up.bound(self.opening.lock()).await;
        let _turn = turn.ok_or(LoadFailure::ConnectTimeout { after })?;
        if let Some(session) = self.usable(server) {
            return Ok(session);
        }
        // Boxed, because each request would otherwise move the large state of opening.
        let session = Box::pin(self.open(server, give_up)).await?;
        if self.worker.shared.plan.keepalive {
            self.open.borrow_mut()[server] = Some(session.clone());
        }
        Ok(session)
    }

    fn usable(&self, server: usize) -> Option<SharedSession> {
        let session = self.open.borrow()[server].clone()?;
        if session.is_usable() {
            return Some(session);
        }
        self.forget(server, &session);
        None
    }

    async fn open(&self, server: usize, give_up: &mut GiveUp) -> Result<SharedSession, LoadFailure> {
        let places = self.worker.shared.plan.streams;
        // Read first, so that a change during the connect is noticed.
        let address_changes = self.worker.address_changes(server);
        let (carrier, wire) = if self.worker.shared.plan.http3 {
            let (connection, wire) = http3::open(&self.worker, &self.sessions, server, give_up).await?;
            (Carrier::Http3(Box::new(connection)), CarrierWire::Udp(Box::new(wire)))
        } else {
            let transport = connect::open(&self.worker, &self.sessions, server, give_up).await?;
            let wire = CarrierWire::Tcp { transport, sent_bytes: 0, news_bytes: 0 };
            (Carrier::Http2(Box::new(H2LoadConnection::new(places))), wire)
        };
        let number = self.traffic.connections.get() + 1;
        self.traffic.connections.set(number);
        let open = Rc::new(OpenConnection {
            connection: RefCell::new(carrier),
            waiting: RefCell::new((0..places).map(|_| WaitingSender::default()).collect()),
            slots: Rc::default(),
            number,
            server,
            address_changes,
            handles: Cell::new(0),
            driver: RefCell::new(None),
            is_woken: Cell::new(false),
            cause: RefCell::new(None),
            was_answered: Cell::new(false),
            traffic: Rc::clone(&self.traffic),
            worker: Rc::clone(&self.worker),
            follows: self.follows,
        });
        let session = SharedSession::new(&open);
        tokio::task::spawn_local(Rc::clone(&open.slots).drive(open::run(open, wire)));
        // RFC 9113 §3.4: waits for the server's limit of streams, because it would refuse those beyond.
        let after = give_up.after();
        let opened = session.0.slots.opened(|| session.most());
        give_up.bound(opened).await.ok_or(LoadFailure::NoStreams { after })?;
        Ok(session)
    }

    /// Removes a connection that accepts no more requests.
    fn forget(&self, server: usize, session: &SharedSession) {
        self.open.borrow_mut()[server].take_if(|open| open.0.number == session.0.number);
        // Senders that wait for a slot then wait on the next connection; they have tried nothing yet.
        session.0.slots.end();
    }
}

/// Handle to an open connection. Dropping the last handle closes the connection.
struct SharedSession(Rc<OpenConnection>);

impl SharedSession {
    fn new(open: &Rc<OpenConnection>) -> Self {
        open.handles.set(open.handles.get() + 1);
        Self(Rc::clone(open))
    }

    /// Whether the connection accepts requests, and its server still has its address.
    fn is_usable(&self) -> bool {
        !self.0.slots.is_over() && !self.0.is_outdated()
    }

    /// Maximum number of concurrent streams.
    fn most(&self) -> usize {
        self.0.connection.borrow().most()
    }

    /// Takes a slot of the connection, and reports whether it had to wait. `None` if the connection is over.
    async fn slot(&self) -> Option<(TakenSlot, bool)> {
        self.0.slots.take(|| self.most()).await
    }
}

impl Clone for SharedSession {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for SharedSession {
    fn drop(&mut self) {
        let left = self.0.handles.get() - 1;
        self.0.handles.set(left);
        if left == 0 {
            self.0.wake();
        }
    }
}

/// A connection with a slot on it, for the requests of one sender.
struct HeldSlot {
    session: SharedSession,
    server: usize,
    /// Released when it is dropped.
    _slot: TakenSlot,
}

/// State of a user, besides its sender.
struct StreamUser {
    jar: Option<Jar>,
}

struct RequestSender {
    /// Set if requests depend on earlier responses.
    user: Option<Box<StreamUser>>,
    link: Rc<GroupLink>,
    index: usize,
    place: usize,
    held: Option<HeldSlot>,
    /// Server of the last request, and whether its connection had a response.
    last_server: usize,
    was_answered: bool,
    give_up: GiveUp,
    setbacks: Setbacks,
}

/// A request to send, and the checks of its response.
#[derive(Clone, Copy)]
struct SentRequest<'m> {
    block: &'m RequestBlock,
    is_head: bool,
    body: Option<&'m Bytes>,
    checker: Option<&'m Arc<Checker>>,
    pattern: Option<&'m Arc<PagePattern>>,
}

impl<'m> SentRequest<'m> {
    #[inline]
    fn from_message(message: &'m H2Request, worker: &'m LoadWorker) -> Self {
        let body = Some(&worker.bodies[message.body]);
        let (checker, pattern) = (message.checker.as_ref(), message.pattern.as_ref());
        Self { block: &message.block, is_head: message.is_head, body, checker, pattern }
    }

    #[inline]
    fn asked(self, worker: &'m LoadWorker, server: usize, keeps_fields: bool) -> H2LoadRequest<'m> {
        H2LoadRequest {
            common: worker.shared.targets.common(server),
            block: self.block,
            body: self.body.cloned().unwrap_or_default(),
            is_head: self.is_head,
            keeps_fields,
            observer: Observer::new(self.checker, self.pattern),
        }
    }
}

impl RequestSender {
    /// Opens the connection before a request needs it, if all requests go to one server.
    async fn open_ahead(&mut self) -> Result<(), LoadFailure> {
        if !self.link.worker.opens_ahead() {
            return Ok(());
        }
        self.link.session(0, &mut self.give_up).await.map(drop)
    }

    /// Takes a connection and a slot before a request, if all go to one server. Returns whether it took new ones.
    async fn hold_ahead(&mut self) -> Result<bool, LoadFailure> {
        let is_ready = self.held.as_ref().is_some_and(|held| held.session.is_usable());
        if is_ready || !self.link.worker.opens_ahead() {
            return Ok(false);
        }
        // A connection that cannot be opened is as late as a response.
        let number = self.link.usable(0).is_none().then(|| self.link.worker.opening()).flatten();
        let held = Box::pin(self.hold(0)).await.map(|_| true);
        number.into_iter().for_each(|number| self.link.worker.settled(number));
        held
    }

    /// Takes a connection to this server and a slot on it. Returns whether it waited for the slot.
    async fn hold(&mut self, server: usize) -> Result<bool, LoadFailure> {
        self.held = None;
        loop {
            let session = self.link.session(server, &mut self.give_up).await?;
            // The connection may have ended meanwhile: then a new one is needed.
            let Some((slot, waited)) = session.slot().await else {
                self.link.forget(server, &session);
                continue;
            };
            self.held = Some(HeldSlot { session, server, _slot: slot });
            return Ok(waited);
        }
    }

    /// Waits for the next request to send; `None` ends the run. Updates `free`: since when the sender is ready.
    async fn next_turn(&mut self, free: &mut Instant) -> Option<RequestTurn> {
        let worker = Rc::clone(&self.link.worker);
        loop {
            match self.hold_ahead().await {
                Ok(false) => break,
                // While it waited for a slot, the sender was not ready. This is not the generator's delay.
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
            NextTurn::Send(turn) => Some(turn),
            NextTurn::Over => None,
        }
    }

    /// Sends the request of this turn and records its result. Returns when the sender is free again.
    async fn perform(&mut self, turn: RequestTurn, free: Instant) -> Instant {
        let worker = Rc::clone(&self.link.worker);
        let RenderedRequests::Streams(messages) = &worker.shared.targets.requests else {
            unreachable!("the requests of a run are of one protocol")
        };
        let chosen = worker.next_request(messages.len());
        let message = &messages[chosen];
        let sent = if worker.is_open_model { Instant::now() } else { turn.due };
        let number = turn.counted.then(|| worker.departure(&turn, free, sent, Some(chosen)));
        let mut exchange = OpenRequest { turn, sent, chosen, number };
        let exchanged = if self.user.is_none() {
            match &message.fill {
                None => self.tried(message.server, None, &mut exchange).await,
                Some(fill) => Box::pin(self.filled(message, fill, &mut exchange)).await,
            }
        } else {
            Box::pin(self.visit(message, &mut exchange)).await
        };
        record(&worker, &self.link.traffic, &exchange, exchanged.as_ref());
        match exchanged {
            Ok(ReceivedResponse { done, .. }) => {
                self.setbacks.end();
                done
            }
            Err(failure) => {
                let RequestTurn { due, counted } = exchange.turn;
                Box::pin(self.setbacks.fail(&worker, &failure, due, counted)).await;
                Instant::now()
            }
        }
    }

    /// Sends a request with a template.
    async fn filled(
        &mut self,
        message: &H2Request,
        fill: &Fill,
        exchange: &mut OpenRequest,
    ) -> Result<ReceivedResponse, LoadFailure> {
        let worker = Rc::clone(&self.link.worker);
        let targets = &worker.shared.targets;
        let filled = fill.message(targets.form(exchange.chosen));
        let (head, body) = filled.map_err(LoadFailure::Unsent)?;
        let block = targets.common(message.server).block(&head);
        let body = Some(&body);
        let request = SentRequest { block: &block, body, ..SentRequest::from_message(message, &worker) };
        self.tried(message.server, Some(request), exchange).await
    }

    /// Sends a request of a user, and the redirects that follow it.
    async fn visit(
        &mut self,
        message: &H2Request,
        exchange: &mut OpenRequest,
    ) -> Result<ReceivedResponse, LoadFailure> {
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
            let request =
                SentRequest { block: &block, is_head, body, ..SentRequest::from_message(message, &worker) };
            let received = self.tried(visit.server, Some(request), exchange).await?;
            let fields = received.fields.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
            let answer = VisitFields::of_fields(received.page.status, fields);
            let jar = self.user.as_mut().and_then(|user| user.jar.as_mut());
            if !visit.takes(&worker.shared, &answer, jar)? {
                return Ok(received);
            }
            worker.record.borrow_mut().redirects += u64::from(exchange.turn.counted);
        }
    }

    /// Sends a request, by default the chosen one. If the server has not processed it, sends it again until its
    /// timeout. If the connection's task sends more requests, `exchange` becomes the last of them.
    async fn tried(
        &mut self,
        server: usize,
        request: Option<SentRequest<'_>>,
        exchange: &mut OpenRequest,
    ) -> Result<ReceivedResponse, LoadFailure> {
        loop {
            let failure = match self.exchange(server, request, exchange).await {
                Err(failure) if failure.is_unprocessed() => failure,
                exchanged => return exchanged,
            };
            if !self.may_send_again(exchange.sent).await {
                return Err(failure);
            }
            let is_counted = exchange.turn.counted && failure.is_refused();
            self.link.worker.record.borrow_mut().streams_refused += u64::from(is_counted);
        }
    }

    async fn exchange(
        &mut self,
        server: usize,
        request: Option<SentRequest<'_>>,
        exchange: &mut OpenRequest,
    ) -> Result<ReceivedResponse, LoadFailure> {
        let is_held = |held: &HeldSlot| held.server == server && held.session.is_usable();
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
            (RenderedRequests::Streams(messages), None) => {
                SentRequest::from_message(&messages[exchange.chosen], worker)
            }
            (RenderedRequests::Http1(_), None) => unreachable!("the requests of a run are of one protocol"),
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
            // The connection's task may have sent further requests.
            if let Some(exchange) = &open.waiting.borrow()[place].exchange {
                give_up.start(exchange.sent);
            }
            give_up.poll(context).map(|()| None)
        });
        let exchanged = exchanged.await;
        let (last, has_succeeded) = open.waiting.borrow_mut()[place].end();
        *exchange = last.unwrap_or(*exchange);
        self.was_answered = open.was_answered.get();
        if has_succeeded {
            self.setbacks.end();
        }
        let exchanged = exchanged.unwrap_or_else(|| {
            open.connection.borrow_mut().cancel(place);
            open.wake();
            Err(LoadFailure::Timeout { after: give_up.after() })
        });
        match &exchanged {
            // The connection is still usable.
            Ok(_) | Err(LoadFailure::Reset(_) | LoadFailure::Http3Reset(_)) => {}
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

    /// Waits until a request that was not processed may be sent again. Returns false after its timeout.
    async fn may_send_again(&mut self, sent: Instant) -> bool {
        let session = self.link.usable(self.last_server);
        let Self { give_up, setbacks, was_answered, .. } = self;
        give_up.start(sent);
        let waited = give_up.bound(async {
            match session {
                // Waits for the end of another request, or for a while: other requests may last as long as the load.
                Some(session) => tokio::select! {
                    () = session.0.slots.freed() => {}
                    () = setbacks.back_off() => {}
                },
                None if *was_answered => {}
                // The server accepts connections, but sends no response on them.
                None => setbacks.back_off().await,
            }
        });
        waited.await.is_some() && sent.elapsed() < give_up.after()
    }
}
