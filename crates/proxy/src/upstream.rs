//! The servers of each upstream, as one worker uses them: addresses and connections.

/// Reports why connections to a server fail.
mod trouble;
/// Admission of requests, for load shedding.
mod admission;
/// Connections to a server that are shared by many requests.
pub(crate) mod multiplex;
/// An HTTP/2 or HTTP/3 connection to a server.
mod channel;
/// HTTP/3 connections to a server.
mod quic;
/// Idle connections to a server, and the requests that wait for one.
pub(crate) mod pool;
/// Interfaces to the worker and the client of a connection.
pub(crate) mod lender;
/// Wait queue for servers at their limit of requests under way.
pub(crate) mod wait_queue;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use balance::{
    FleetMember, HealthState, InFlight, Passage, Picker, RequestOutcome, RetryBudget, ServerEvent,
    ServerHealth, Shed, ShedSettings, Time,
};
use config::{Protocol, Scheme};
use fastcgi::{CgiHeadLimits, RecordLimits, ResponseLimits};
use http1::{BodyFraming, ConnectionOptions};
use route::ProxyVersion;
use tls::{ClientSide, HandshakeFault};

use crate::body::upload::Upload;
use crate::context::plan::{Last, ServerPlan, UpstreamPlan};
use crate::failure::Failure;
use crate::upstream::lender::{Lender, Reserver};
use crate::upstream::multiplex::{Multiplex, StreamQueue};
use crate::upstream::pool::{Making, Pool};
use crate::upstream::wait_queue::{CallWorker, WaitQueue, WhatFor};
pub(crate) use admission::Admission;
use transport::cold::cold;
use transport::connection::Connection;
use transport::deadline::{Deadline, Deadlines, Ticks};
use transport::dial::{self, Destination, destinations};
use transport::endpoint::MessageEndpoint;
use transport::fastcgi_connection::FastcgiConnection;
use transport::latency_emulation::EmulatedLink;
use transport::tcp::Tcp;

pub(crate) struct WorkerUpstream {
    pub(crate) plan: Arc<UpstreamPlan>,
    /// In the order of the plan.
    pub(crate) servers: Vec<Rc<UpstreamServer>>,
    /// The state of each server, held once for all requests of this worker.
    standings: Vec<Shared>,
    pub(crate) picker: RefCell<Picker>,
    pub(crate) budget: RefCell<RetryBudget>,
    /// Limits the requests under way; further ones are shed.
    shed: Option<RefCell<Shed>>,
    /// The wait queue, if servers have limits on requests under way.
    pub(crate) line: Option<Rc<WaitQueue>>,
    /// Whether the plan needs the latency of every response.
    times_all: bool,
}

/// A server's state, shared within a worker: the outer count is not atomic, so that cloning is cheap.
type Shared = Rc<Arc<ServerHealth>>;

/// The worker's arguments to build its upstreams.
pub(crate) struct Surroundings<'a> {
    pub(crate) worker: usize,
    /// Notifies another worker, by its index, that a server of the upstream has room.
    pub(crate) call: &'a Rc<CallWorker>,
    pub(crate) shed: Option<ShedSettings>,
    pub(crate) now: Time,
}

/// A server, with this worker's connections to it.
pub(crate) struct UpstreamServer {
    pub(crate) plan: Arc<ServerPlan>,
    pool: Pool,
    /// The emulated link to the server.
    link: RefCell<Option<Arc<EmulatedLink>>>,
    /// The version of the PROXY header that its connections begin with.
    introduction: Cell<Option<ProxyVersion>>,
    multiplex: Multiplex,
    /// Connections that exist, busy and idle.
    open: Rc<Tally>,
    /// For the log: why the last connection failed, or which step of connecting is under way.
    trouble: RefCell<String>,
}

/// An idle connection that is reserved for one client.
pub(crate) struct PinnedConnection {
    server: Arc<ServerPlan>,
    connection: Box<ServerConnection>,
}

/// A connection to a server, with the state of the current response. Dropping it closes the connection.
///
/// Passed along in its box: moving the whole struct right after its fields were written would stall (store forwarding).
pub(crate) struct ServerConnection {
    pub(crate) socket: MessageEndpoint,
    /// Whether the connection has carried an exchange before.
    pub(crate) is_reused: bool,
    /// Whether it began with a client's PROXY header, and so serves no other client.
    is_private: bool,
    /// Whether the last response was long. The next head is then read with little of its body, which is spliced.
    pub(crate) expects_long: bool,
    /// Indices of upstream and server, for the return of the connection.
    pub(crate) upstream: usize,
    pub(crate) server: usize,
    pub(crate) framing: BodyFraming,
    pub(crate) options: ConnectionOptions,
    pub(crate) persists: bool,
    pub(crate) upload: Upload,
    /// Counts the request as under way with the server.
    pub(crate) under_way: Option<UnderWay>,
    /// Counts the connection, or the stream on it.
    _permit: Permit,
}

impl ServerConnection {
    pub(crate) fn new(socket: impl Into<MessageEndpoint>, permit: Permit, is_reused: bool) -> Box<Self> {
        Box::new(Self {
            socket: socket.into(),
            is_reused,
            is_private: false,
            expects_long: false,
            upstream: 0,
            server: 0,
            framing: BodyFraming::None,
            options: ConnectionOptions::default(),
            persists: false,
            upload: Upload::done(),
            under_way: None,
            _permit: permit,
        })
    }

    /// Whether the connection can carry no further exchange. For a stream: its connection has ended, too.
    pub(crate) fn has_ended(&self) -> bool {
        self.socket.has_connection_ended()
    }

    /// Drops the state of the finished exchange.
    fn end(&mut self) {
        self.upload = Upload::done();
        self.under_way = None;
    }

    /// Whether it can serve another exchange, because its server has not closed it.
    fn serves_again(&self, may_be_repeated: bool) -> bool {
        // A request that can be repeated survives a stale connection. For any other the kernel is asked, by a
        // system call.
        self.socket.is_quiet() && (may_be_repeated || self.socket.is_quiet_still())
    }
}

impl WorkerUpstream {
    /// Builds an upstream for one worker. Servers that the worker already has are kept.
    pub(crate) fn new<'a>(
        plan: &Arc<UpstreamPlan>,
        known: impl Fn(&Arc<ServerPlan>) -> Option<&'a Rc<UpstreamServer>>,
        known_line: Option<&Rc<WaitQueue>>,
        surroundings: &Surroundings<'_>,
    ) -> Self {
        let server = |server: &Arc<ServerPlan>| {
            let server = known(server).map_or_else(|| Rc::new(UpstreamServer::new(server)), Rc::clone);
            server.pool.set(plan.config.pool);
            server.link.replace(plan.link.clone());
            server.introduction.set(plan.config.send_proxy_protocol);
            server
        };
        let Surroundings { worker, call, shed, now } = *surroundings;
        let line = || {
            let known = known_line.cloned();
            known.iter().for_each(|line| line.set_waiting_max(plan.config.queue.length));
            let made = || Rc::new(WaitQueue::new(plan.config.queue.length, &plan.waiting, worker, call));
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

    /// Admits a request, unless too many are under way. The caller reports its outcome by `Admission::end`.
    pub(crate) fn admit(&self, now: Time) -> Result<Admission<'_>, Failure> {
        self.budget.borrow_mut().request(now);
        let Some(shed) = &self.shed else { return Ok(Admission(None)) };
        if shed.borrow_mut().admit() { Ok(Admission(Some(shed))) } else { Err(Failure::Shed) }
    }

    /// Begins a request to a server: it counts as under way until the result is dropped. Returns `None` if the server
    /// has no room.
    #[inline]
    pub(crate) fn begin(&self, server: usize, is_last_resort: bool, now: Time) -> Option<PickedServer> {
        let limit = self.plan.fleet.members()[server].in_flight_max;
        let in_flight = InFlight::begin(Rc::clone(&self.standings[server]), limit)?;
        // Last, because a place in the half-open circuit is not returned automatically.
        let passage = self.plan.fleet.admit(server, now)?;
        let under_way = UnderWay { in_flight: Some(in_flight), line: self.line.clone() };
        let since = self.times().then(Instant::now);
        Some(PickedServer { server, since, is_last_resort, passage, under_way })
    }

    /// Whether another server is up that was not tried.
    pub(crate) fn has_another(&self, server: usize, tried: &[usize]) -> bool {
        let members = self.plan.fleet.members().iter().enumerate();
        members
            .filter(|(index, _)| *index != server && !tried.contains(index))
            .any(|(_, member)| member.health.state() == HealthState::Up)
    }

    /// Whether a server of a later priority is up that was not tried.
    pub(crate) fn has_backup(&self, server: usize, tried: &[usize]) -> bool {
        let members = self.plan.fleet.members();
        let is_backup = |(index, member): (usize, &FleetMember)| {
            member.priority > members[server].priority
                && member.health.state() == HealthState::Up
                && !tried.contains(&index)
        };
        members.iter().enumerate().any(is_backup)
    }

    /// The other servers of a server's priority.
    pub(crate) fn others_of_priority(&self, server: usize) -> impl Iterator<Item = usize> {
        let members = self.plan.fleet.members();
        let is_other =
            move |index: &usize| *index != server && members[*index].priority == members[server].priority;
        (0..members.len()).filter(is_other)
    }

    /// Whether the latency of requests that begin now is needed.
    fn times(&self) -> bool {
        self.times_all || self.shed.as_ref().is_some_and(|shed| shed.borrow().times())
    }

    /// Records that a server has responded, with its latency if that was measured.
    pub(crate) fn answered(
        &self,
        picked: &PickedServer,
        status: u16,
        latency: Option<Duration>,
        now: Time,
    ) -> Option<ServerEvent> {
        // These statuses mean that a server behind a gateway failed, or that the server is overloaded.
        let is_failure = matches!(status, 502..=504);
        if picked.is_last_resort && !is_failure && self.plan.fleet.revive(picked.server, now) {
            self.plan.tell_revived(picked.server);
        }
        let outcome = if is_failure { RequestOutcome::Failed } else { RequestOutcome::Answered(latency) };
        self.ended(picked, outcome, now, Last::Answered(status))
    }

    /// Records that a server has not responded, and why. Reports the first failure after a success.
    pub(crate) fn failed(
        &self,
        picked: &PickedServer,
        failure: Failure,
        why: Option<String>,
        now: Time,
    ) -> Option<ServerEvent> {
        self.plan.server_failed(picked.server, failure, why.as_deref(), now);
        self.ended(picked, RequestOutcome::Failed, now, Last::Failed(failure))
    }

    /// Records that a request has ended without its server's fault: the client left, for example.
    pub(crate) fn abandoned(
        &self,
        picked: &PickedServer,
        failure: Failure,
        now: Time,
    ) -> Option<ServerEvent> {
        self.ended(picked, RequestOutcome::Abandoned, now, Last::Failed(failure))
    }

    #[inline]
    fn ended(
        &self,
        picked: &PickedServer,
        outcome: RequestOutcome,
        now: Time,
        last: Last,
    ) -> Option<ServerEvent> {
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
    /// checked again after joining, because room may have become free before. Returns whether the request had to wait.
    pub(crate) async fn wait(
        &self,
        worker: &impl Lender,
        now: Time,
        deadline: &Deadline,
        waits_until: &mut Option<u32>,
        what_for: WhatFor,
        is_room: impl FnOnce() -> bool,
    ) -> Result<bool, Failure> {
        let joined = self.line.as_deref().and_then(|line| line.join(what_for, now));
        let Some(mut place) = joined else { return Err(Failure::UpstreamFull) };
        if place.is_first() && is_room() {
            return Ok(false);
        }
        let now = worker.deadlines().now();
        let until = *waits_until.get_or_insert_with(|| {
            worker.counters().requests_queued.increment();
            now.saturating_add(Ticks::from(self.plan.config.queue.timeout).0)
        });
        let outcome = deadline.within(Ticks(until.saturating_sub(now)), place.turn()).await;
        outcome.map(|_| true).map_err(|_| Failure::QueueTimeout)
    }
}

/// A request for which a server was picked.
pub(crate) struct PickedServer {
    pub(crate) server: usize,
    /// When the attempt began; `None` if its latency is not measured.
    pub(crate) since: Option<Instant>,
    /// Whether the server is not up, and was picked because no other is left, or for a trial.
    pub(crate) is_last_resort: bool,
    /// Set if the request probes a server whose circuit is half open.
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
    /// The queue to notify of the room.
    line: Option<Rc<WaitQueue>>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // Counted down first: otherwise the next request would find the server full.
        self.in_flight = None;
        if let Some(line) = self.line.take() {
            line.call_next();
        }
    }
}

impl UpstreamServer {
    fn new(plan: &Arc<ServerPlan>) -> Self {
        Self {
            plan: Arc::clone(plan),
            pool: Pool::default(),
            link: RefCell::default(),
            introduction: Cell::new(None),
            multiplex: Multiplex::default(),
            open: Rc::default(),
            trouble: RefCell::default(),
        }
    }

    /// Takes the idle connection that was used last, unless its server has closed it. Called first for each attempt
    /// over HTTP/1.
    ///
    /// If the request could not be retried, the kernel is asked as well, because the runtime may not yet know that the
    /// connection was closed.
    pub(crate) fn pooled(
        &self,
        worker: &impl Lender,
        client: &impl Reserver,
        may_be_repeated: bool,
    ) -> Option<Box<ServerConnection>> {
        let connection = self.quiet(client, may_be_repeated)?;
        Some(self.reused(connection, worker))
    }

    fn reused(&self, mut connection: Box<ServerConnection>, worker: &impl Lender) -> Box<ServerConnection> {
        connection.is_reused = true;
        if let Some(link) = &*self.link.borrow() {
            // Changed settings of an emulated link also apply to existing connections.
            let alarms = worker.alarms();
            connection.socket.map_connection(|connection| link.over(connection, alarms));
        }
        connection
    }

    fn quiet(&self, client: &impl Reserver, may_be_repeated: bool) -> Option<Box<ServerConnection>> {
        if self.introduction.get().is_some() {
            let PinnedConnection { server, connection } = *client.pinned().take()?;
            let is_good = Arc::ptr_eq(&server, &self.plan) && connection.serves_again(may_be_repeated);
            return is_good.then_some(connection);
        }
        self.pool.take(|connection| connection.serves_again(may_be_repeated))
    }

    /// The number of connections, busy and idle.
    pub(crate) fn connections(&self) -> usize {
        self.open.count()
    }

    pub(crate) fn idle_connections(&self) -> usize {
        self.pool.len() + self.multiplex.idle_connections()
    }

    pub(crate) fn pooled_connections(&self) -> usize {
        self.pool.len()
    }

    pub(crate) fn scheme(&self) -> Scheme {
        self.plan.config.scheme
    }

    pub(crate) fn multiplex(&self) -> &Multiplex {
        &self.multiplex
    }

    /// Returns a stream of an existing connection, if one has room.
    pub(crate) fn stream(&self) -> Option<Box<ServerConnection>> {
        self.multiplex.stream(self.scheme())
    }

    /// Opens a connection for one exchange at a time. If it begins with a PROXY header, it is reserved for this client.
    pub(crate) async fn connect(
        &self,
        worker: &impl Lender,
        client: &impl Reserver,
    ) -> Result<Box<ServerConnection>, Failure> {
        let header = self.introduction.get().map(|version| client.header(version));
        let header = header.as_deref().unwrap_or_default();
        let (socket, permit) = {
            let opened = self.open(worker, client.deadline(), header).await;
            count_connect(worker, opened.is_ok());
            opened?
        };
        let mut connection = ServerConnection::new(self.endpoint(worker, socket), permit, false);
        connection.is_private = !header.is_empty();
        Ok(connection)
    }

    /// Opens a connection for one exchange at a time, or takes one that becomes free, whichever comes first. The other
    /// one goes to the next request.
    pub(crate) async fn connect_or_reuse(
        self: &Rc<Self>,
        worker: &Rc<impl Lender>,
        client: &impl Reserver,
        may_be_repeated: bool,
    ) -> Result<Box<ServerConnection>, Failure> {
        // If no idle connections are kept, each connection carries one exchange.
        if self.introduction.get().is_some() || self.pool.settings().idle == 0 {
            return cold(|| self.connect(&**worker, client)).await;
        }
        let mut making = None;
        loop {
            let mut waiting = self.pool.wait(worker.deadlines());
            if making.is_none() && waiting.is_provided_for() {
                // Connections that other requests have begun should be ready by then.
                let given = poll_fn(|context| waiting.poll(context));
                if let Ok(connection) = client.deadline().within(LEANING_MAX, given).await {
                    match self.fit(connection, &**worker, may_be_repeated) {
                        Some(connection) => return Ok(connection),
                        // It was closed meanwhile, and this place in the queue is used up.
                        None => continue,
                    }
                }
            }
            // Boxed once it is needed, and kept over the rounds, so that a connection under way is never lost.
            let make = making.get_or_insert_with(|| Box::pin(Self::make(Rc::clone(self), Rc::clone(worker))));
            let either = poll_fn(|context| match make.as_mut().poll(context) {
                Poll::Ready(made) => Poll::Ready(WaitResult::Made(made)),
                Poll::Pending => waiting.poll(context).map(WaitResult::Given),
            });
            match either.await {
                WaitResult::Made(made) => return made,
                WaitResult::Given(connection) => {
                    if let Some(connection) = self.fit(connection, &**worker, may_be_repeated) {
                        if let Some(make) = making.take() {
                            let (server, deadlines) = (Rc::clone(self), Rc::clone(worker.deadlines()));
                            // The other connection is of use to the next request. Unused, it still has to end its
                            // TLS handshake.
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

    /// Returns a connection that was handed over, if it can serve this request.
    fn fit(
        &self,
        connection: Box<ServerConnection>,
        worker: &impl Lender,
        may_be_repeated: bool,
    ) -> Option<Box<ServerConnection>> {
        connection.serves_again(may_be_repeated).then(|| self.reused(connection, worker))
    }

    /// Makes a connection, for any waiting request.
    async fn make(self: Rc<Self>, worker: Rc<impl Lender>) -> Result<Box<ServerConnection>, Failure> {
        let _making = Making::new(&self.pool);
        // A separate deadline, because the request that has begun this connection may leave.
        let deadline = worker.deadlines().deadline();
        let opened = self.open(&*worker, &deadline, b"").await;
        count_connect(&*worker, opened.is_ok());
        opened.map(|(socket, permit)| ServerConnection::new(self.endpoint(&*worker, socket), permit, false))
    }

    /// Returns the endpoint of requests on a new connection that carries one at a time.
    fn endpoint(&self, worker: &impl Lender, socket: Connection) -> MessageEndpoint {
        if self.scheme() == Scheme::Fcgi { self.application(worker, socket).into() } else { socket.into() }
    }

    #[cold]
    fn application(&self, worker: &impl Lender, socket: Connection) -> FastcgiConnection {
        let limits = worker.plan().config.limits;
        let limits = ResponseLimits {
            records: RecordLimits::default(),
            head: CgiHeadLimits { bytes: limits.header_bytes, fields: limits.header_count },
            stderr_bytes: STDERR_MAX,
        };
        let label = format!("upstream {}, server {}", self.plan.upstream, self.plan.label);
        FastcgiConnection::new(socket, label.into(), limits, worker.applications())
    }

    /// Returns a stream of a new connection, or of one that other requests made meanwhile.
    pub(crate) async fn connect_for_streams(
        self: &Rc<Self>,
        worker: &Rc<impl Lender>,
        deadline: &Deadline,
    ) -> Result<Box<ServerConnection>, Failure> {
        self.multiplex.connect(worker, deadline, self).await
    }

    /// Opens a connection: tries the server's addresses in order, each within the time-out. `header` is sent first.
    pub(crate) async fn open(
        &self,
        worker: &impl Lender,
        deadline: &Deadline,
        header: &[u8],
    ) -> Result<(Connection, Permit), Failure> {
        self.open_by(worker, async |destination| self.reach(worker, deadline, header, destination).await)
            .await
    }

    /// Opens a connection by calling `reach` with each of the server's addresses in order.
    async fn open_by<T>(
        &self,
        worker: &impl Lender,
        reach: impl AsyncFn(Destination<'_>) -> Result<T, Failure>,
    ) -> Result<(T, Permit), Failure> {
        let limit = self.pool.settings().connections;
        if self.open.count() >= limit {
            self.is_troubled(&format!(
                "all connections that the server may have are in use: pool.connections, {limit}"
            ));
            return Err(Failure::UpstreamFull);
        }
        // Counted before the wait, so that many concurrent connects obey the limit, too.
        let permit = Permit::new(&self.open);
        let addresses = self.plan.addresses.load_full();
        let mut failure = Failure::UpstreamUnknown;
        for destination in destinations(&self.plan.config.host, &addresses) {
            let mut may_make_room = true;
            failure = loop {
                match reach(destination).await {
                    Ok(opened) => return Ok((opened, permit)),
                    // Tried once: after another failure nothing idle is left to close.
                    Err(Failure::OutOfDescriptors)
                        if std::mem::take(&mut may_make_room) && worker.give_up_idle() => {}
                    Err(Failure::OutOfDescriptors) => return Err(Failure::OutOfDescriptors),
                    Err(failure) => break failure,
                }
            };
        }
        Err(failure)
    }

    /// Time limit for each step of making a connection.
    pub(crate) fn connect_limit(&self, worker: &impl Lender) -> Ticks {
        let own = self.pool.settings().connect_timeout;
        own.map_or_else(|| worker.plan().config.timeouts.upstream_connect.into(), Ticks::from)
    }

    /// Connects, sends the PROXY header, and does the TLS handshake; each step within the time-out.
    async fn reach(
        &self,
        worker: &impl Lender,
        deadline: &Deadline,
        header: &[u8],
        destination: Destination<'_>,
    ) -> Result<Connection, Failure> {
        let limit = self.connect_limit(worker);
        // Cloned, because a borrow must not last over the waits below.
        let link = self.link.borrow().clone();
        let connected = async {
            if let Some(link) = &link {
                cold(|| link.connect(worker.alarms())).await;
            }
            destination.connect(async |pause| worker.alarms().sleep(pause).await).await
        };
        self.is_troubled("");
        let tcp = match deadline.within(limit, connected).await {
            Ok(Ok(tcp)) => tcp,
            Ok(Err(error)) => return Err(self.unreached(&error, destination)),
            Err(_) => {
                self.plan.was_reached(false);
                return Err(Failure::UpstreamConnectTimeout);
            }
        };
        self.plan.was_reached(true);
        // An empty socket buffer takes this little at once.
        if !header.is_empty() && !tcp.send_at_once(header) {
            self.is_troubled("the PROXY header could not be sent");
            return Err(Failure::UpstreamRefused);
        }
        let socket = match &self.plan.tls {
            None => tcp.into(),
            // Boxed: the state of a handshake is larger than everything else here.
            Some(tls) => {
                self.is_troubled("the TLS handshake did not complete");
                let secured = cold(|| deadline.within(limit, self.secured(worker, tls, tcp))).await;
                secured.unwrap_or(Err(Failure::UpstreamConnectTimeout))?
            }
        };
        Ok(match &link {
            Some(link) => link.over(socket, worker.alarms()),
            None => socket,
        })
    }

    /// Makes the TLS handshake on a new connection, which must choose the configured protocol.
    async fn secured(
        &self,
        worker: &impl Lender,
        (tls, place): &(Arc<ClientSide>, usize),
        tcp: Tcp,
    ) -> Result<Connection, Failure> {
        let (fault, why) = match dial::secure((tls, *place), tls.config(), tcp, worker.records()).await {
            Ok((secure, is_http2)) if is_http2 == (tls.protocol() == Protocol::Http2) => {
                return Ok(secure.into());
            }
            Ok(_) => (
                Some(HandshakeFault::Protocol),
                "the server does not support the configured protocol".to_owned(),
            ),
            Err(error) => (error.fault(), error.to_string()),
        };
        let Some(fault) = fault else {
            // Typical of a server that is shutting down.
            self.is_troubled("it closed the connection in the TLS handshake");
            return Err(Failure::UpstreamRefused);
        };
        Err(self.refused(Failure::of_server_handshake(fault), &why))
    }

    /// Gives a connection whose exchange has ended properly to its client or to the pool.
    pub(crate) fn release(
        &self,
        mut connection: Box<ServerConnection>,
        client: &impl Reserver,
        deadlines: &Deadlines,
    ) {
        if !connection.socket.may_go_on() {
            return;
        }
        if connection.is_private {
            connection.end();
            let server = Arc::clone(&self.plan);
            client.pinned().set(Some(Box::new(PinnedConnection { server, connection })));
            return;
        }
        self.keep(connection, deadlines);
    }

    /// Gives a connection back to the pool; one that is reserved for a client is closed.
    pub(crate) fn keep(&self, mut connection: Box<ServerConnection>, deadlines: &Deadlines) {
        if connection.is_private || !connection.socket.may_go_on() {
            return;
        }
        connection.end();
        self.pool.put(connection, deadlines.now());
    }

    /// Closes idle connections that have timed out, are surplus, or were closed by the server.
    pub(crate) fn sweep(&self, now: u32, workers: usize) {
        self.pool.sweep(now, &self.plan.in_use, self.open.count(), workers);
        self.multiplex.sweep(now, Ticks::from(self.pool.settings().idle_timeout));
    }

    /// Closes the half of the idle HTTP/1 connections that was used longest ago, to free descriptors or memory.
    pub(crate) fn give_up_half(&self) {
        self.pool.give_up_half();
    }

    /// Closes QUIC connections when the worker ends. The kernel closes TCP connections.
    pub(crate) fn end(&self) {
        self.multiplex.end();
    }

    /// The number of addresses to try, at least one.
    pub(crate) fn addresses_count(&self) -> u32 {
        u32::try_from(self.plan.addresses.load().len()).unwrap_or(u32::MAX).max(1)
    }
}

impl Drop for UpstreamServer {
    fn drop(&mut self) {
        self.pool.tell_in_use(&self.plan.in_use, 0);
    }
}

/// A counter of live things, such as open connections.
#[derive(Default)]
pub(crate) struct Tally {
    count: Cell<usize>,
    /// Notified whenever a thing goes.
    told: Option<Rc<StreamQueue>>,
}

impl Tally {
    /// Creates a counter that notifies `waits` when one of its things goes.
    pub(crate) fn telling(waits: &Rc<StreamQueue>) -> Rc<Self> {
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
pub(crate) fn count_connect(worker: &impl Lender, is_made: bool) {
    let counters = &worker.counters();
    let counter = if is_made { &counters.upstream_connects } else { &counters.upstream_connect_failures };
    counter.increment();
}

/// The result of waiting for a connection.
enum WaitResult {
    Made(Result<Box<ServerConnection>, Failure>),
    Given(Box<ServerConnection>),
}

/// The most bytes of error output in the log, of one response of an application behind FastCGI.
const STDERR_MAX: usize = 8 * 1024;

/// How long a request waits for a connection that others are making, before it makes another.
const LEANING_MAX: Ticks = Ticks(2);
