//! The servers of each upstream as one worker sees them: their addresses, and connections to them.

/// Chooses the server for a request.
pub(crate) mod choose;
/// Connections to a server that are shared by many requests.
pub(crate) mod multiplex;
/// One such connection, of HTTP/2 or HTTP/3.
mod channel;
/// HTTP/3 connections to a server.
mod quic;
/// Idle connections to a server, and the requests that wait for one.
pub(crate) mod pool;
/// Decides whether a request is retried.
pub(crate) mod retry;
/// Wait queue for servers at their limit of requests under way.
pub(crate) mod wait_queue;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use balance::{
    Event, InFlight, Outcome, Passage, Picker, RetryBudget, ServerHealth, Shed, ShedSettings, State, Time,
    Work,
};
use config::{Protocol, Scheme};
use http1::{ConnectionOptions, Framing};
use route::ProxyVersion;
use telemetry::message;
use tls::ClientSide;
use tokio::sync::mpsc::UnboundedSender;

use crate::body::upload::Upload;
use crate::context::client::Client;
use crate::context::failure::Failure;
use crate::context::original_connection;
use crate::context::plan::{Last, ServerPlan, UpstreamPlan};
use crate::context::worker::{Message, Worker};
use crate::upstream::multiplex::{Multiplex, Waits};
use crate::upstream::pool::{Making, Pool};
use crate::upstream::wait_queue::{WaitQueue, WhatFor};
use transport::cold::cold;
use transport::connection::Connection;
use transport::deadline::{Deadline, Deadlines, Ticks};
use transport::descriptors::is_out_of_descriptors;
use transport::dial::{self, Destination, NotSecure, destinations};
use transport::endpoint::Endpoint;
use transport::latency_emulation::Link;
use transport::tcp::Tcp;

/// An upstream as one worker uses it.
pub(crate) struct Upstream {
    pub(crate) plan: Arc<UpstreamPlan>,
    /// The servers, in the order of the plan.
    pub(crate) servers: Vec<Rc<Server>>,
    /// How each of them stands, held once for all requests of this worker.
    standings: Vec<Shared>,
    pub(crate) picker: RefCell<Picker>,
    pub(crate) budget: RefCell<RetryBudget>,
    /// How many requests may be under way before more are shed.
    shed: Option<RefCell<Shed>>,
    /// The wait queue, if servers have limits on requests under way.
    pub(crate) line: Option<Rc<WaitQueue>>,
    /// Whether the plan needs to know how long each answer takes.
    times_all: bool,
}

/// How a server stands, as one worker shares it among its requests: by a count of its own, which is no atomic one.
type Shared = Rc<Arc<ServerHealth>>;

/// The arguments to build a worker's upstream, besides its plan.
pub(crate) struct Surroundings<'a> {
    pub(crate) worker: usize,
    pub(crate) others: &'a Arc<[UnboundedSender<Message>]>,
    pub(crate) shed: Option<ShedSettings>,
    pub(crate) now: Time,
}

/// A server, with this worker's connections to it.
pub(crate) struct Server {
    pub(crate) plan: Arc<ServerPlan>,
    /// Connections of HTTP/1.
    pool: Pool,
    /// What it is behind.
    link: RefCell<Option<Arc<Link>>>,
    /// How a connection says whose it is.
    introduction: Cell<Option<ProxyVersion>>,
    /// Connections of HTTP/2 and HTTP/3.
    multiplex: Multiplex,
    /// Connections that exist, busy and idle.
    open: Rc<Tally>,
}

/// An idle connection that is reserved for one client.
pub(crate) struct PinnedConnection {
    server: Arc<ServerPlan>,
    connection: Box<ServerConnection>,
}

/// A connection to a server, with the state of the current response. Dropping it closes the connection.
///
/// Steps pass it along in its box: a value that is written in small pieces and moved as a whole at once is read again
/// before it has left the processor, which makes each move wait.
pub(crate) struct ServerConnection {
    pub(crate) socket: Endpoint,
    /// Whether the connection has carried an exchange before.
    pub(crate) is_reused: bool,
    /// Whether it was introduced as a client's own, and so serves no other.
    is_private: bool,
    /// Whether the last response was long: then the next head is read without much of its body, which is spliced.
    pub(crate) expects_long: bool,
    /// The indices of the upstream and of the server, for the return of the connection.
    pub(crate) upstream: usize,
    pub(crate) server: usize,
    /// The framing of the response.
    pub(crate) framing: Framing,
    pub(crate) options: ConnectionOptions,
    /// Whether the server keeps the connection open.
    pub(crate) persists: bool,
    /// The rest of the request's body.
    pub(crate) upload: Upload,
    /// Counts the request as under way with the server.
    pub(crate) under_way: Option<UnderWay>,
    /// One of the server's connections, or of a connection's streams.
    _permit: Permit,
}

impl ServerConnection {
    pub(crate) fn new(socket: impl Into<Endpoint>, permit: Permit, is_reused: bool) -> Box<Self> {
        Box::new(Self {
            socket: socket.into(),
            is_reused,
            is_private: false,
            expects_long: false,
            upstream: 0,
            server: 0,
            framing: Framing::None,
            options: ConnectionOptions::default(),
            persists: false,
            upload: Upload::done(),
            under_way: None,
            _permit: permit,
        })
    }

    /// Whether the connection can carry no further exchange: more than a stream on it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.socket.has_connection_ended()
    }

    /// Its exchange is over: nothing of it is kept.
    fn end(&mut self) {
        self.upload = Upload::done();
        self.under_way = None;
    }

    /// Whether it serves one more exchange: its server has not closed it.
    fn serves_again(&self, may_be_repeated: bool) -> bool {
        self.socket.is_quiet() && (may_be_repeated || self.socket.is_quiet_still())
    }
}

impl Upstream {
    /// Builds an upstream for one worker, with the servers that the worker has already.
    pub(crate) fn new<'a>(
        plan: &Arc<UpstreamPlan>,
        known: impl Fn(&Arc<ServerPlan>) -> Option<&'a Rc<Server>>,
        known_line: Option<&Rc<WaitQueue>>,
        surroundings: &Surroundings<'_>,
    ) -> Self {
        let server = |server: &Arc<ServerPlan>| {
            let server = known(server).map_or_else(|| Rc::new(Server::new(server)), Rc::clone);
            server.pool.set(plan.config.pool);
            server.link.replace(plan.link.clone());
            server.introduction.set(plan.config.send_proxy_protocol);
            server
        };
        let Surroundings { worker, others, shed, now } = *surroundings;
        let line = || {
            let known = known_line.cloned();
            known.iter().for_each(|line| line.set_waiting_max(plan.config.queue.length));
            let made = || Rc::new(WaitQueue::new(plan.config.queue.length, &plan.waiting, worker, others));
            known.unwrap_or_else(made)
        };
        Self {
            servers: plan.servers.iter().map(server).collect(),
            standings: plan
                .fleet
                .members()
                .iter()
                .map(|member| Rc::new(Arc::clone(&member.health)))
                .collect(),
            picker: RefCell::new(Picker::new(Arc::clone(&plan.fleet), worker as u64)),
            budget: RefCell::new(RetryBudget::new(plan.config.retry_budget)),
            shed: shed.map(|settings| RefCell::new(Shed::new(settings, now))),
            line: plan.has_limits().then(line),
            times_all: plan.fleet.times_all(),
            plan: Arc::clone(plan),
        }
    }

    /// Admits a request, unless too many are under way. `Admission::end` is to be told the outcome.
    pub(crate) fn admit(&self, worker: &Worker) -> Result<Admission<'_>, Failure> {
        self.budget.borrow_mut().request(worker.coarse_time());
        let Some(shed) = &self.shed else { return Ok(Admission(None)) };
        if shed.borrow_mut().admit() { Ok(Admission(Some(shed))) } else { Err(Failure::Shed) }
    }

    /// Begins a request to a server: it counts as under way until the result is dropped. `None` if the server has no
    /// room.
    #[inline]
    pub(crate) fn begin(&self, server: usize, is_last_resort: bool, now: Time) -> Option<PickedServer> {
        let limit = self.plan.fleet.members()[server].in_flight_max;
        let in_flight = InFlight::begin(Rc::clone(&self.standings[server]), limit)?;
        // Last, as this place is not given back by itself.
        let passage = self.plan.fleet.enter(server, now)?;
        let under_way = UnderWay { in_flight: Some(in_flight), line: self.line.clone() };
        let since = self.times().then(Instant::now);
        Some(PickedServer { server, since, is_last_resort, passage, under_way })
    }

    /// Whether another server is up that has not been tried.
    pub(crate) fn has_another(&self, server: usize, tried: &[usize]) -> bool {
        let members = self.plan.fleet.members().iter().enumerate();
        members
            .filter(|(index, _)| *index != server && !tried.contains(index))
            .any(|(_, member)| member.health.state() == State::Up)
    }

    /// Whether somebody wants to know how long the answer to what is begun now takes.
    fn times(&self) -> bool {
        self.times_all || self.shed.as_ref().is_some_and(|shed| shed.borrow().times())
    }

    /// Records that a server has responded, and its latency if that was measured.
    pub(crate) fn answered(
        &self,
        picked: &PickedServer,
        status: u16,
        latency: Option<Duration>,
        now: Time,
    ) -> Option<Event> {
        // What a gateway says about what is behind it, or a server that has no room.
        let is_failure = matches!(status, 502..=504);
        if picked.is_last_resort && !is_failure && self.plan.fleet.revive(picked.server, now) {
            self.plan.tell_revived(picked.server);
        }
        let outcome = if is_failure { Outcome::Failed } else { Outcome::Answered(latency) };
        self.ended(picked, outcome, now, Last::Answered(status))
    }

    /// Records that a server has not responded.
    pub(crate) fn failed(
        &self,
        worker: &Worker,
        picked: &PickedServer,
        failure: Failure,
        is_its_fault: bool,
    ) -> Option<Event> {
        let outcome = if is_its_fault { Outcome::Failed } else { Outcome::Abandoned };
        self.ended(picked, outcome, worker.coarse_time(), Last::Failed(failure))
    }

    #[inline]
    fn ended(&self, picked: &PickedServer, outcome: Outcome, now: Time, last: Last) -> Option<Event> {
        let event = self.plan.fleet.end_passed(picked.server, picked.passage, outcome, now)?;
        self.plan.tell(picked.server, event, now, last);
        Some(event)
    }

    /// The number of this worker's requests in the wait queue.
    pub(crate) fn queued(&self) -> usize {
        self.line.as_ref().map_or(0, |line| line.len())
    }

    /// Whether requests wait for any server, rather than for a particular one.
    pub(crate) fn has_queue(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.is_for_any())
    }

    /// Waits in the queue for a server with room, until the tick `waits_until`, which the first wait sets. `is_room` is
    /// checked again after joining, since room may have been made before. Returns whether the request had to wait.
    pub(crate) async fn wait(
        &self,
        worker: &Worker,
        deadline: &Deadline,
        waits_until: &mut Option<u32>,
        what_for: WhatFor,
        is_room: impl FnOnce() -> bool,
    ) -> Result<bool, Failure> {
        let joined = self.line.as_deref().and_then(|line| line.join(what_for, worker.coarse_time()));
        let Some(mut place) = joined else { return Err(Failure::UpstreamFull) };
        if place.is_first() && is_room() {
            return Ok(false);
        }
        let now = worker.deadlines.now();
        let until = *waits_until.get_or_insert_with(|| {
            worker.counters.requests_queued.increment();
            now.saturating_add(Ticks::from(self.plan.config.queue.timeout).0)
        });
        let outcome = deadline.within(Ticks(until.saturating_sub(now)), place.turn()).await;
        outcome.map(|_| true).map_err(|_| Failure::QueueTimeout)
    }
}

/// An admitted request, until its outcome is known.
pub(crate) struct Admission<'a>(Option<&'a RefCell<Shed>>);

impl Admission<'_> {
    /// Reports the outcome of the request.
    pub(crate) fn end(mut self, work: Work, now: Time) {
        if let Some(shed) = self.0.take() {
            shed.borrow_mut().end(work, now);
        }
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if let Some(shed) = self.0.take() {
            shed.borrow_mut().end(Work::Other, Time::START);
        }
    }
}

/// A request for which a server was picked.
pub(crate) struct PickedServer {
    pub(crate) server: usize,
    /// When the attempt began; `None` if nobody needs its latency.
    pub(crate) since: Option<Instant>,
    /// Whether the server is not up, and was picked because no other is left.
    pub(crate) is_last_resort: bool,
    /// Whether it tries a server whose circuit is half open.
    passage: Passage,
    under_way: UnderWay,
}

impl PickedServer {
    /// Extracts the guard that counts the request as under way, until the whole response has been passed on.
    pub(crate) fn into_under_way(self) -> UnderWay {
        self.under_way
    }
}

/// Guard of a request under way with a server. Dropping it makes room for another request.
pub(crate) struct UnderWay {
    in_flight: Option<InFlight<Shared>>,
    /// Where somebody may wait for the room.
    line: Option<Rc<WaitQueue>>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.in_flight = None;
        if let Some(line) = self.line.take() {
            line.call_next();
        }
    }
}

impl Server {
    fn new(plan: &Arc<ServerPlan>) -> Self {
        Self {
            plan: Arc::clone(plan),
            pool: Pool::default(),
            link: RefCell::default(),
            introduction: Cell::new(None),
            multiplex: Multiplex::default(),
            open: Rc::default(),
        }
    }

    /// Takes the idle connection that was used last, unless its server has closed it.
    ///
    /// If the request could not be retried, the kernel is asked as well: the runtime may not know yet of a connection
    /// that was closed just now.
    pub(crate) fn pooled(
        &self,
        worker: &Worker,
        client: &Client,
        may_be_repeated: bool,
    ) -> Option<Box<ServerConnection>> {
        let connection = self.quiet(client, may_be_repeated)?;
        Some(self.reused(connection, worker))
    }

    fn reused(&self, mut connection: Box<ServerConnection>, worker: &Worker) -> Box<ServerConnection> {
        connection.is_reused = true;
        if let Some(link) = &*self.link.borrow() {
            // One that is there already meets what is changed as well.
            let alarms = worker.shaper.alarms();
            connection.socket.map_connection(|connection| link.over(connection, alarms));
        }
        connection
    }

    fn quiet(&self, client: &Client, may_be_repeated: bool) -> Option<Box<ServerConnection>> {
        if self.introduction.get().is_some() {
            let PinnedConnection { server, connection } = *client.pinned.take()?;
            let is_good = Arc::ptr_eq(&server, &self.plan) && connection.serves_again(may_be_repeated);
            return is_good.then_some(connection);
        }
        self.pool.take(|connection| connection.serves_again(may_be_repeated))
    }

    /// The number of connections, busy and idle.
    pub(crate) fn connections(&self) -> usize {
        self.open.count()
    }

    /// The number of connections without an exchange.
    pub(crate) fn idle_connections(&self) -> usize {
        self.pool.len() + self.multiplex.idle_connections()
    }

    /// The number of HTTP/1 connections without an exchange.
    pub(crate) fn pooled_connections(&self) -> usize {
        self.pool.len()
    }

    /// The scheme of requests to the server.
    pub(crate) fn scheme(&self) -> Scheme {
        self.plan.config.scheme
    }

    pub(crate) fn multiplex(&self) -> &Multiplex {
        &self.multiplex
    }

    /// A stream of an existing connection, if one has room.
    pub(crate) fn stream(&self) -> Option<Box<ServerConnection>> {
        self.multiplex.stream(self.scheme())
    }

    /// Opens a connection for one exchange at a time. If it begins with a PROXY header, it is reserved for this client.
    pub(crate) async fn connect(
        &self,
        worker: &Worker,
        client: &Client,
    ) -> Result<Box<ServerConnection>, Failure> {
        let header = self.introduction.get().map(|version| original_connection::header(version, client));
        let header = header.as_deref().unwrap_or_default();
        let (socket, permit) = {
            let opened = self.open(worker, &client.deadline, header).await;
            count_connect(worker, opened.is_ok());
            opened?
        };
        let mut connection = ServerConnection::new(socket, permit, false);
        connection.is_private = !header.is_empty();
        Ok(connection)
    }

    /// Opens a connection for one exchange at a time, or takes one that becomes free, whichever comes first. The other
    /// one goes to the next request.
    pub(crate) async fn connect_or_reuse(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        client: &Client,
        may_be_repeated: bool,
    ) -> Result<Box<ServerConnection>, Failure> {
        // Without room for idle ones each connection is for one exchange.
        if self.introduction.get().is_some() || self.pool.settings().idle == 0 {
            return cold(|| self.connect(worker, client)).await;
        }
        let mut making = None;
        loop {
            let mut waiting = self.pool.wait(&worker.deadlines);
            if making.is_none() && waiting.is_provided_for() {
                // What others have begun should be there by then.
                let given = poll_fn(|context| waiting.poll(context));
                if let Ok(connection) = client.deadline.within(LEANING_MAX, given).await {
                    match self.fit(connection, worker, may_be_repeated) {
                        Some(connection) => return Ok(connection),
                        // It was closed meanwhile: this place in the queue is used up.
                        None => continue,
                    }
                }
            }
            let make = making.get_or_insert_with(|| Box::pin(Self::make(Rc::clone(self), Rc::clone(worker))));
            let either = poll_fn(|context| match make.as_mut().poll(context) {
                Poll::Ready(made) => Poll::Ready(Either::Made(made)),
                Poll::Pending => waiting.poll(context).map(Either::Given),
            });
            match either.await {
                Either::Made(made) => return made,
                Either::Given(connection) => {
                    if let Some(connection) = self.fit(connection, worker, may_be_repeated) {
                        if let Some(make) = making.take() {
                            let (server, deadlines) = (Rc::clone(self), Rc::clone(&worker.deadlines));
                            tokio::task::spawn_local(async move {
                                if let Ok(connection) = make.await
                                    && connection.socket.end_handshake()
                                {
                                    server.pool.put(connection, deadlines.now());
                                }
                            });
                        }
                        return Ok(connection);
                    }
                }
            }
        }
    }

    /// One that was handed over, if it is good for this request.
    fn fit(
        &self,
        connection: Box<ServerConnection>,
        worker: &Worker,
        may_be_repeated: bool,
    ) -> Option<Box<ServerConnection>> {
        connection.serves_again(may_be_repeated).then(|| self.reused(connection, worker))
    }

    /// Makes one, and counts it, whoever will have it.
    async fn make(self: Rc<Self>, worker: Rc<Worker>) -> Result<Box<ServerConnection>, Failure> {
        let _making = Making::new(&self.pool);
        let deadline = worker.deadlines.deadline();
        let opened = self.open(&worker, &deadline, b"").await;
        count_connect(&worker, opened.is_ok());
        opened.map(|(socket, permit)| ServerConnection::new(socket, permit, false))
    }

    /// A stream of a new connection, or of one that other requests made meanwhile.
    pub(crate) async fn connect_for_streams(
        self: &Rc<Self>,
        worker: &Rc<Worker>,
        deadline: &Deadline,
    ) -> Result<Box<ServerConnection>, Failure> {
        self.multiplex.connect(worker, deadline, self).await
    }

    /// Opens a connection: tries the server's addresses in order, each within the time-out. `header` is sent first.
    pub(crate) async fn open(
        &self,
        worker: &Worker,
        deadline: &Deadline,
        header: &[u8],
    ) -> Result<(Connection, Permit), Failure> {
        self.open_by(worker, async |destination| self.reach(worker, deadline, header, destination).await)
            .await
    }

    /// Opens a connection by `reach`, which each of the server's addresses is given to in order.
    async fn open_by<T>(
        &self,
        worker: &Worker,
        reach: impl AsyncFn(Destination<'_>) -> Result<T, Failure>,
    ) -> Result<(T, Permit), Failure> {
        if self.open.count() >= self.pool.settings().connections {
            return Err(Failure::UpstreamFull);
        }
        // Counted before the wait, so that a crowd of connects keeps to the limit as well.
        let permit = Permit::new(&self.open);
        let addresses = self.plan.addresses.load_full();
        let mut failure = Failure::UpstreamUnknown;
        for destination in destinations(&self.plan.config.host, &addresses) {
            let mut may_make_room = true;
            failure = loop {
                match reach(destination).await {
                    Ok(opened) => return Ok((opened, permit)),
                    Err(Failure::OutOfDescriptors)
                        if std::mem::take(&mut may_make_room) && worker.give_up_idle() => {}
                    Err(Failure::OutOfDescriptors) => return Err(Failure::OutOfDescriptors),
                    Err(failure) => break failure,
                }
            };
        }
        Err(failure)
    }

    /// How long each step of making a connection takes at most.
    pub(crate) fn connect_limit(&self, worker: &Worker) -> Ticks {
        let own = self.pool.settings().connect_timeout;
        own.map_or_else(|| worker.snapshot().ticks.upstream_connect, Ticks::from)
    }

    /// Makes a connection ready for use: each step within the time-out.
    async fn reach(
        &self,
        worker: &Worker,
        deadline: &Deadline,
        header: &[u8],
        destination: Destination<'_>,
    ) -> Result<Connection, Failure> {
        let limit = self.connect_limit(worker);
        let link = self.link.borrow().clone();
        let connected = async {
            if let Some(link) = &link {
                cold(|| link.connect(worker.shaper.alarms())).await;
            }
            destination.connect(async |pause| worker.alarms.sleep(pause).await).await
        };
        let connected = deadline.within(limit, connected).await;
        self.plan.was_reached(matches!(connected, Ok(Ok(_))));
        let tcp = match connected {
            Ok(Ok(tcp)) => tcp,
            Ok(Err(error)) if is_out_of_descriptors(&error) => return Err(Failure::OutOfDescriptors),
            Ok(Err(_)) => return Err(Failure::UpstreamRefused),
            Err(_) => return Err(Failure::UpstreamConnectTimeout),
        };
        // A fresh socket takes this little at once.
        if !header.is_empty() && !tcp.send_at_once(header) {
            return Err(Failure::UpstreamRefused);
        }
        let socket = match &self.plan.tls {
            None => tcp.into(),
            // Behind a pointer: the state of a handshake is larger than all else here.
            Some(tls) => {
                let secured = cold(|| deadline.within(limit, self.secured(worker, tls, tcp))).await;
                secured.unwrap_or(Err(Failure::UpstreamConnectTimeout))?
            }
        };
        Ok(match &link {
            Some(link) => link.over(socket, worker.shaper.alarms()),
            None => socket,
        })
    }

    /// Does the TLS handshake.
    async fn secured(
        &self,
        worker: &Worker,
        (tls, place): &(Arc<ClientSide>, usize),
        tcp: Tcp,
    ) -> Result<Connection, Failure> {
        let why = match dial::secure((tls, *place), tls.config(), tcp, &worker.records).await {
            Ok((secure, is_http2)) if is_http2 == (tls.protocol() == Protocol::Http2) => {
                return Ok(secure.into());
            }
            Err(NotSecure::Closed) => return Err(Failure::UpstreamRefused),
            Ok(_) => "the server does not support the configured protocol".to_owned(),
            Err(error) => error.to_string(),
        };
        message::warn(&format!("{}: {why}", self.plan.authority));
        Err(Failure::UpstreamHandshake)
    }

    /// Returns a connection whose exchange has ended properly, to its client or to the pool.
    pub(crate) fn release(
        &self,
        mut connection: Box<ServerConnection>,
        client: &Client,
        deadlines: &Deadlines,
    ) {
        if connection.socket.is_key_exhausted() {
            return;
        }
        if connection.is_private {
            connection.end();
            let server = Arc::clone(&self.plan);
            client.pinned.set(Some(Box::new(PinnedConnection { server, connection })));
            return;
        }
        self.keep(connection, deadlines);
    }

    /// Returns a connection to the pool; one that is reserved for a client is closed.
    pub(crate) fn keep(&self, mut connection: Box<ServerConnection>, deadlines: &Deadlines) {
        if connection.is_private || connection.socket.is_key_exhausted() {
            return;
        }
        connection.end();
        self.pool.put(connection, deadlines.now());
    }

    /// Closes idle connections that have timed out, are surplus, or were closed by the server.
    pub(crate) fn sweep(&self, worker: &Worker) {
        let now = worker.deadlines.now();
        self.pool.sweep(now, &self.plan.in_use, self.open.count(), worker.loads.len());
        self.multiplex.sweep(now, Ticks::from(self.pool.settings().idle_timeout));
    }

    /// Closes the half of the idle HTTP/1 connections that was used longest ago, to free descriptors or memory.
    pub(crate) fn give_up_half(&self) {
        self.pool.give_up_half();
    }

    /// Tells the server of the end of connections that the kernel does not end, because the worker does.
    pub(crate) fn end(&self) {
        self.multiplex.end();
    }

    /// The number of addresses to try, at least one.
    pub(crate) fn addresses_count(&self) -> u32 {
        u32::try_from(self.plan.addresses.load().len()).unwrap_or(u32::MAX).max(1)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.pool.tell_in_use(&self.plan.in_use, 0);
    }
}

/// A counter of live things, such as open connections.
#[derive(Default)]
pub(crate) struct Tally {
    count: Cell<usize>,
    /// Who is told of each that goes.
    told: Option<Rc<Waits>>,
}

impl Tally {
    /// A counter that notifies `waits` when one of its things goes.
    pub(crate) fn telling(waits: &Rc<Waits>) -> Rc<Self> {
        Rc::new(Self { count: Cell::default(), told: Some(Rc::clone(waits)) })
    }

    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }
}

/// Guard that counts one live thing until it is dropped.
pub(crate) struct Permit(Rc<Tally>);

impl Permit {
    pub(crate) fn new(tally: &Rc<Tally>) -> Self {
        tally.count.set(tally.count.get() + 1);
        Self(Rc::clone(tally))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        if let Some(waits) = &self.0.told {
            waits.has_room();
        }
    }
}

/// Counts a connection as made or as failed.
pub(crate) fn count_connect(worker: &Worker, is_made: bool) {
    let counters = &worker.counters;
    let counter = if is_made { &counters.upstream_connects } else { &counters.upstream_connect_failures };
    counter.increment();
}

/// What a request that waits for a connection has come to.
enum Either {
    Made(Result<Box<ServerConnection>, Failure>),
    Given(Box<ServerConnection>),
}

/// How long a request waits for a connection that others have begun before it makes one of its own.
const LEANING_MAX: Ticks = Ticks(2);
