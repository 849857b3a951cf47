//! The steps of a worker: listens, hands connections over, follows changes of the plan, ticks, and ends.
//!
//! Its data is in `context::worker`. Other threads only see its counters and its load.

/// Injects faults into clients' connections.
mod broken_connections;
/// Listening sockets, and accepting.
pub mod listen;
/// QUIC endpoints, and which connections they accept.
pub(crate) mod quic;
/// Datagrams that old and new process pass to each other during an upgrade.
pub(crate) mod quic_upgrade;
/// Wake-up coalescing: a short sleep that saves many wake-ups.
pub(crate) mod wakeup_coalescing;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use balance::{Time, WaitingWorkers};
use telemetry::{CounterReader, Counters, Series, SeriesIndex, WorkerLog};
use tokio::sync::{Notify, mpsc::UnboundedReceiver, mpsc::UnboundedSender};

use crate::body::coders::Coders;
use crate::connection::client;
use crate::context::client::FrontConnection;
use crate::context::exchange_slot::ExchangeSlots;
use crate::context::plan::{Plan, PlanListener};
use crate::context::quic_hosts::QuicHosts;
use crate::context::snapshot::Snapshot;
use crate::context::under_way::WatchedWorker;
use crate::context::worker::{
    ListeningSocket, Loads, LogChange, PlanChange, Worker, WorkerMessage, WorkerPhase, WorkersCounters,
};
use crate::faults::Faults;
use crate::faults::quic::HeldBack;
use crate::listening::{ListenerId, Listening};
use crate::open_files::OpenFiles;
use crate::owned::coarse_clock::CoarseClock;
use crate::owned::handshake_notices::HandshakeNotices;
use crate::owned::logging::Logging;
use crate::owned::pressure::Pressure;
use crate::owned::quic_processes::QuicProcesses;
use crate::owned::record_scratch::RecordScratch;
use crate::shaping::Shaper;
use crate::shared::captures::Captures;
use crate::shared::tracing::Ids;
use crate::shared::waits::Holding;
use crate::upstream::UpstreamServer;
use crate::upstream::wait_queue::WaitQueue;
use crate::worker::wakeup_coalescing::{Coalescing, WorkerProgress};
use transport::alarm::Alarms;
use transport::buffer::Buffers;
use transport::deadline::{Deadlines, TICK};
use transport::fastcgi_connection::FastcgiMemory;
use transport::h2_connection;
use transport::pipes::Pipes;
use transport::quic_beginnings::Beginnings;
use transport::quic_client::QuicClients;
use transport::quic_endpoint::Datagram;
use transport::tcp::Tcp;
use transport::tls::Records;

/// Interval of ticks while the worker has no connections.
// An idle worker would otherwise wake 62 times a second (measured).
const REST: Duration = Duration::from_secs(1);

/// After a drain begins, idle clients have this long to send a request before their connection is closed.
const IDLE_GRACE: Duration = Duration::from_secs(2);

pub struct WorkerParts {
    /// Counts from 0.
    pub index: usize,
    pub plan: Arc<Plan>,
    /// In the order of the plan.
    pub listeners: Vec<ListenerId>,
    /// Includes only this worker's sockets.
    pub opened: Vec<(ListenerId, ListeningSocket)>,
    pub messages: UnboundedReceiver<WorkerMessage>,
    /// Senders to all workers, this one included.
    pub others: Arc<[UnboundedSender<WorkerMessage>]>,
    /// The number of connections of each worker.
    pub loads: Loads,
    pub log: Option<WorkerLog>,
    pub counters: Counters,
    /// The counters of all workers.
    pub all_counters: Arc<[CounterReader]>,
    pub series: Series,
    /// The start of the clock that all workers share.
    pub epoch: Instant,
    pub pressure: Arc<Pressure>,
    pub faults: Arc<Faults>,
    pub captures: Arc<Captures>,
    /// Processes that this one has replaced by upgrades, as far as they still run.
    pub quic_processes: Arc<QuicProcesses>,
    /// QUIC handshakes under way in all workers.
    pub quic_beginnings: Arc<Beginnings>,
}

/// Starts a worker on its thread. It listens when this function returns, so an old process may then stop accepting. The
/// future is the body of the thread: it runs until the worker is stopped or drained.
///
/// # Errors
/// If no file descriptor is left.
pub fn begin(parts: WorkerParts) -> io::Result<impl Future<Output = ()>> {
    let alarms = Alarms::new(parts.epoch)?;
    let WorkerParts { listeners, opened, messages, .. } = parts;
    let snapshot = Snapshot::new(parts.plan, None, parts.index, &parts.others, Time::START);
    let shaper = Shaper::new(parts.index, Rc::clone(&alarms), &snapshot.plan);
    let deadlines = Deadlines::new();
    let worker = Rc::new(Worker {
        index: parts.index,
        snapshot: RefCell::new(Rc::new(snapshot)),
        listenings: RefCell::default(),
        removed: RefCell::default(),
        newest: Cell::new(None),
        accepting: RefCell::default(),
        early: RefCell::default(),
        quic_hosts: QuicHosts::new(parts.quic_processes, parts.quic_beginnings),
        held_back: HeldBack::default(),
        quic_clients: QuicClients::new(&alarms, &deadlines),
        deadlines,
        slots: ExchangeSlots::new(client::serve_slot),
        expression_scratch: RefCell::default(),
        buffers: Buffers::default(),
        records: Records::new(),
        applications: FastcgiMemory::new(),
        record_scratch: RecordScratch::default(),
        pipes: Pipes::default(),
        coders: Coders::default(),
        open_files: OpenFiles::new(parts.others.len()),
        shaper,
        alarms,
        asked_others_at: Cell::new(u32::MAX),
        faults: parts.faults,
        captures: parts.captures,
        frames: h2_connection::Stock::new(),
        counters: parts.counters,
        all_counters: WorkersCounters(parts.all_counters),
        series: parts.series,
        holding: Holding::default(),
        watched: WatchedWorker::default(),
        log: Logging::new(parts.log),
        state: Cell::new(WorkerPhase::Running),
        turned_away: Cell::new(0),
        handshake_notices: HandshakeNotices::default(),
        loads: parts.loads,
        others: parts.others,
        pressure: parts.pressure,
        ids: Ids::new(),
        epoch: parts.epoch,
        coarse_clock: CoarseClock::new(),
        coarse_time: Cell::new(Time::START),
        date: Cell::new([b' '; 29]),
        wall_clock: Cell::new(SystemTime::UNIX_EPOCH),
        rests: Cell::new(false),
        is_wanted: Notify::new(),
        is_empty: Notify::new(),
        is_leaving: Notify::new(),
    });
    // Time comes first, because connections arm their deadlines by it.
    keep_time(&worker);
    worker.listen(&listeners, opened, &[]);
    quic_upgrade::hear_predecessors(&worker);
    Ok(run(worker, messages))
}

/// Handles messages from the control thread and other workers until the worker ends.
async fn run(worker: Rc<Worker>, mut messages: UnboundedReceiver<WorkerMessage>) {
    while let Some(message) = messages.recv().await {
        match message {
            WorkerMessage::Connection(stream, peer, listener) => worker.take_over(stream, peer, listener),
            WorkerMessage::Change(change) => worker.change(*change).await,
            WorkerMessage::Listen(listener) => worker.listen_again(listener),
            WorkerMessage::Datagram(endpoint, datagram) => worker.take_datagram(endpoint, *datagram),
            WorkerMessage::NextProcess(channel) => quic_upgrade::meet(&worker, channel),
            WorkerMessage::Room(waiting) => worker.call_next(&waiting),
            WorkerMessage::GiveUpIdle => worker.give_up_own_idle(),
            WorkerMessage::Look(requests_max, answer) => worker.show(requests_max, &answer),
            WorkerMessage::Answer(heard) => drop(heard),
            WorkerMessage::Stop => break,
            WorkerMessage::Retire => return worker.leave_and_end(None, &mut messages).await,
            WorkerMessage::Drain => {
                return worker.leave_and_end(Some(worker.last_waits()), &mut messages).await;
            }
        }
    }
    worker.end();
}

fn keep_time(worker: &Rc<Worker>) {
    worker.update_time();
    tokio::task::spawn_local(Rc::clone(&worker.alarms).run());
    let coalescing = Rc::new(Coalescing::default());
    tokio::task::spawn_local(tick(Rc::clone(worker), Rc::clone(&coalescing)));
    tokio::task::spawn_local(coalesce(Rc::clone(worker), coalescing));
}

/// Runs every 100 ms: timers, idle connections, the date, the log. Without connections it runs once a second.
async fn tick(worker: Rc<Worker>, coalescing: Rc<Coalescing>) {
    let mut second = worker.deadlines.second();
    let mut requests_before = 0;
    loop {
        worker.rests.set(worker.deadlines.is_empty());
        let pause = if worker.rests.get() { REST } else { TICK };
        tokio::select! {
            () = worker.alarms.sleep(pause) => {}
            () = worker.is_wanted.notified() => {}
        }
        worker.update_time();
        let longest = worker.snapshot().plan.config.wakeup_coalescing;
        coalescing.look(worker.time_ns(), worker.progress(), longest);
        if worker.deadlines.second() != second {
            second = worker.deadlines.second();
            let snapshot = worker.snapshot();
            let mut open = 0;
            for server in snapshot.servers() {
                server.sweep(worker.deadlines.now(), worker.loads.len());
                open += server.connections();
            }
            if worker.is_short_for_idle(open) {
                worker.give_up_own_idle();
            }
            // Catches free capacity that no connection reports: a server has come up, or its limit has risen.
            snapshot.lines().for_each(WaitQueue::call_next);
            worker.counters.upstream_connections_active.set(open as u64);
            worker.count_pools(&snapshot);
            worker.watched.turn(worker.epoch.elapsed());
            worker.open_files.sweep(worker.deadlines.now());
            // Finished tasks are those of removed listeners.
            worker.accepting.borrow_mut().retain(|task| !task.is_finished());
            // Keeps no more idle ones than there were requests in the last second: more cannot be in use at once.
            let requests = worker.counters.requests.value();
            let wanted = (requests - requests_before) as usize;
            requests_before = requests;
            worker.slots.shrink_spare(wanted);
            worker.buffers.shrink_spare(wanted);
        }
        worker.flush_log();
    }
}

/// The task that sleeps for wake-up coalescing. It never sleeps past the next alarm.
async fn coalesce(worker: Rc<Worker>, coalescing: Rc<Coalescing>) {
    let sleep = |moment: Duration| std::thread::sleep(moment.min(worker.alarms.next_in()));
    coalescing.run(|| worker.progress(), sleep).await;
}

impl Worker {
    /// Publishes the number of connections to each server and the queue lengths, for metrics.
    fn count_pools(&self, snapshot: &Snapshot) {
        let Some(places) = &snapshot.plan.places else { return };
        // Upstreams without a separate place in the metrics share one.
        let (mut others_queued, mut others_busy, mut others_idle) = (0, 0, 0);
        for (index, upstream) in snapshot.upstreams.iter().enumerate() {
            let queued = upstream.queued() as u64;
            match places.upstream(index) {
                SeriesIndex::OTHER => others_queued += queued,
                place => self.series.upstream(place).queued.set(queued),
            }
            for (server_index, server) in upstream.servers.iter().enumerate() {
                let (open, idle) = (server.connections(), server.idle_connections());
                let (busy, idle) = (open.saturating_sub(idle) as u64, idle as u64);
                match places.server(index, server_index) {
                    SeriesIndex::OTHER => {
                        (others_busy, others_idle) = (others_busy + busy, others_idle + idle);
                    }
                    place => {
                        let cell = self.series.server(place);
                        cell.connections_busy.set(busy);
                        cell.connections_idle.set(idle);
                    }
                }
            }
        }
        self.series.upstream(SeriesIndex::OTHER).queued.set(others_queued);
        let others = self.series.server(SeriesIndex::OTHER);
        others.connections_busy.set(others_busy);
        others.connections_idle.set(others_idle);
    }

    /// Returns the counts by which wake-up coalescing notices activity.
    fn progress(&self) -> WorkerProgress {
        let counters = &self.counters;
        WorkerProgress { requests: counters.requests.value(), active: counters.requests_active.value() }
    }

    /// Applies another plan. Requests that have begun keep theirs. Returns when the sockets of removed listeners are
    /// closed: from then on no client is accepted there.
    async fn change(self: &Rc<Self>, change: PlanChange) {
        let PlanChange { plan, listeners, opened, log, done } = change;
        if let LogChange::Other(log) = log {
            // Dropping a log may wait for a slow target, so the control thread does it.
            let last = self.log.replace(log);
            last.into_iter().for_each(|last| drop(done.send(last)));
        }
        let before = self.snapshot();
        let next = Snapshot::new(plan, Some(&before), self.index, &self.others, self.time());
        // In force before the sockets, because a new listener needs its settings.
        *self.snapshot.borrow_mut() = Rc::new(next);
        self.shaper.follow(&self.snapshot().plan);
        self.listen(&listeners, opened, &before.plan.listeners);
        for (stream, peer, listener) in self.early.take() {
            self.take_over(stream, peer, listener);
        }
        let removed = self.removed.borrow().clone();
        for listening in removed {
            listening.closed().await;
        }
        // Reported last, when no removed listener accepts any more.
        drop(done);
    }

    /// Starts and ends listening, so that the listeners are those of `order`, the plan's order. `opened` are the
    /// sockets of new ones, `before` the listeners of the previous plan.
    fn listen(
        self: &Rc<Self>,
        order: &[ListenerId],
        opened: Vec<(ListenerId, ListeningSocket)>,
        before: &[Arc<PlanListener>],
    ) {
        let mut listenings = self.listenings.borrow_mut();
        // Other workers may hand over connections to a listener for which this worker has no socket.
        for &id in order {
            if !listenings.iter().any(|listening| listening.id == id) {
                listenings.push(Listening::new(id));
            }
        }
        self.newest.set(self.newest.get().max(order.iter().max().copied()));
        let removed: Vec<_> =
            listenings.extract_if(.., |listening| !listening.settle(order, before)).collect();
        let some_end = !removed.is_empty();
        self.removed.replace(removed);
        if some_end {
            // Wakes HTTP/2 connections, so that they send GOAWAY at once.
            self.deadlines.wake_idle();
        }
        for (id, socket) in opened {
            let Some(listening) = listenings.iter().find(|listening| listening.id == id) else { continue };
            match socket {
                ListeningSocket::Tcp(socket) => {
                    let accept =
                        listen::accept(Rc::clone(self), Rc::clone(listening), socket, listening.settled());
                    self.accepting.borrow_mut().push(tokio::task::spawn_local(accept));
                }
                ListeningSocket::Udp(socket, place) => quic::begin(self, listening, socket, place),
            }
        }
        drop(listenings);
        self.quic_hosts.settle();
    }

    /// Makes a listener check its socket again after it has refused connections.
    fn listen_again(&self, id: ListenerId) {
        self.listenings.borrow().iter().filter(|listening| listening.id == id).for_each(|it| it.look_again());
    }

    fn take_datagram(&self, endpoint: u8, datagram: Datagram) {
        self.pressure.end_stray();
        self.quic_hosts.take(endpoint, datagram);
    }

    /// Wakes the request that has waited longest in this worker's queue for the servers of `waiting`.
    fn call_next(&self, waiting: &Arc<WaitingWorkers>) {
        let snapshot = self.snapshot();
        if let Some(line) = snapshot.lines().find(|line| line.is_of(waiting)) {
            line.call_next();
        }
    }

    /// Serves a connection that another worker has accepted.
    fn take_over(self: &Rc<Self>, stream: TcpStream, peer: SocketAddr, listener: ListenerId) {
        self.wake();
        if self.newest.get() < Some(listener) {
            // The other worker already has a newer plan, which this one is about to get.
            self.early.borrow_mut().push((stream, peer, listener));
            return;
        }
        let find = |among: &[Rc<Listening>]| among.iter().find(|listening| listening.id == listener).cloned();
        let listening = find(&self.listenings.borrow()).or_else(|| find(&self.removed.borrow()));
        // A connection whose listener is no longer known is closed.
        if let Some(listening) = listening {
            self.begin(stream, peer, &listening);
        }
    }

    /// Starts serving an accepted and admitted connection: draws a fault and spawns its task.
    pub(crate) fn begin(self: &Rc<Self>, stream: TcpStream, peer: SocketAddr, listening: &Rc<Listening>) {
        self.counters.connections_accepted.increment();
        let tcp = match self.faults.breaks_connections() {
            false => Tcp::new(stream),
            true => match broken_connections::drawn(self, stream, peer, listening) {
                Some(tcp) => tcp,
                None => return,
            },
        };
        self.connection_begins();
        let client = FrontConnection::new(self, tcp, peer, Rc::clone(listening));
        tokio::task::spawn_local(client::connection(Rc::clone(self), Box::new(client)));
    }

    /// Accepts nothing new. Ends when no connection is left or the last time-out is over.
    async fn leave_and_end(
        self: &Rc<Self>,
        waits: Option<LastWaits>,
        messages: &mut UnboundedReceiver<WorkerMessage>,
    ) {
        self.leave(waits, messages).await;
        self.end();
    }

    /// Accepts nothing new. Returns when no connection is left, the last time-out is over, or a stop is requested.
    async fn leave(
        self: &Rc<Self>,
        mut waits: Option<LastWaits>,
        messages: &mut UnboundedReceiver<WorkerMessage>,
    ) {
        // Handles what the next process has sent so far: clients that it has begun to serve belong to it.
        quic_upgrade::hear_next(self);
        self.state.set(WorkerPhase::Leaving);
        self.is_leaving.notify_waiters();
        self.quic_hosts.settle();
        self.quic_hosts.leave_receiving(WorkerPhase::Leaving);
        self.deadlines.wake_idle();
        for task in self.accepting.take() {
            let _ = task.await;
        }
        loop {
            if self.own_load().load(Ordering::Relaxed) == 0 && !messages.is_closed() {
                // From now on other workers cannot hand over connections. Those already here are served, but no message
                // can end the wait any more, so it ends as in a drain.
                messages.close();
                waits = waits.or_else(|| Some(self.last_waits()));
                while let Some(message) = messages.recv().await {
                    if self.hears_last(message, &mut waits) {
                        return;
                    }
                }
            }
            if self.own_load().load(Ordering::Relaxed) == 0 {
                return;
            }
            tokio::select! {
                () = self.is_empty.notified() => {}
                wait = LastWaits::next(&mut waits, &self.alarms) => match wait {
                    WorkerWait::Idle => {
                        self.state.set(WorkerPhase::Closing);
                        self.deadlines.expire_idle();
                    }
                    WorkerWait::All => return,
                },
                message = messages.recv(), if !messages.is_closed() => {
                    if message.is_none_or(|message| self.hears_last(message, &mut waits)) {
                        return;
                    }
                }
            }
        }
    }

    /// Handles a message while the worker accepts nothing new. Returns true if it must end at once.
    fn hears_last(self: &Rc<Self>, message: WorkerMessage, waits: &mut Option<LastWaits>) -> bool {
        match message {
            // Handed over before the other worker began to leave.
            WorkerMessage::Connection(stream, peer, listener) => self.take_over(stream, peer, listener),
            WorkerMessage::Drain => *waits = waits.take().or_else(|| Some(self.last_waits())),
            WorkerMessage::Room(waiting) => self.call_next(&waiting),
            WorkerMessage::Datagram(endpoint, datagram) => self.take_datagram(endpoint, *datagram),
            WorkerMessage::GiveUpIdle => self.give_up_own_idle(),
            WorkerMessage::Look(requests_max, answer) => self.show(requests_max, &answer),
            WorkerMessage::Answer(heard) => drop(heard),
            // A worker that leaves takes part in no more changes.
            WorkerMessage::Retire
            | WorkerMessage::Change(_)
            | WorkerMessage::Listen(_)
            | WorkerMessage::NextProcess(_) => {}
            WorkerMessage::Stop => return true,
        }
        false
    }

    fn last_waits(&self) -> LastWaits {
        let all = self.snapshot().plan.config.timeouts.drain;
        let idle = IDLE_GRACE.min(all);
        LastWaits { idle_ns: Some(self.alarms.after(idle)), all_ns: self.alarms.after(all) }
    }

    fn end(&self) {
        self.quic_hosts.end();
        self.snapshot().servers().for_each(UpstreamServer::end);
        self.slots.clear();
        self.flush_log();
    }
}

/// The times at which a drain stops waiting, by the worker's alarms.
struct LastWaits {
    /// `None` once that time has passed.
    idle_ns: Option<u64>,
    all_ns: u64,
}

/// A time-out of a drain that has passed.
enum WorkerWait {
    Idle,
    All,
}

impl LastWaits {
    /// Returns the next time-out when it has passed. Without any, waits forever.
    async fn next(waits: &mut Option<Self>, alarms: &Rc<Alarms>) -> WorkerWait {
        let Some(Self { idle_ns, all_ns }) = waits else { return std::future::pending().await };
        match *idle_ns {
            Some(due_ns) => {
                alarms.until(due_ns).await;
                *idle_ns = None;
                WorkerWait::Idle
            }
            None => {
                alarms.until(*all_ns).await;
                WorkerWait::All
            }
        }
    }
}
