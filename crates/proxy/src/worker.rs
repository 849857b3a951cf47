//! The steps of a worker: listens, hands connections over, follows changes of the plan, ticks, and ends.
//!
//! Its data is in `context::worker`. Other threads only see its counters and its load.

/// Listening sockets, and accepting.
pub mod listen;
/// QUIC endpoints, and which connections they accept.
pub(crate) mod quic;
/// QUIC over an upgrade: what processes pass on to each other.
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
use telemetry::{Counters, Place, Series, WorkerLog};
use tokio::sync::{Notify, mpsc::UnboundedReceiver, mpsc::UnboundedSender};

use crate::connection::client;
use crate::context::client::Client;
use crate::context::coarse_clock::CoarseClock;
use crate::context::coders::Coders;
use crate::context::exchange_slot::ExchangeSlots;
use crate::context::handshake_notices::HandshakeNotices;
use crate::context::listening::{ListenerId, Listening};
use crate::context::logging::Logging;
use crate::context::plan::{Listener, Plan};
use crate::context::pressure::Pressure;
use crate::context::quic_hosts::QuicHosts;
use crate::context::quic_processes::QuicProcesses;
use crate::context::snapshot::Snapshot;
use crate::context::tracing::Ids;
use crate::context::under_way::Watched;
use crate::context::waits::Holding;
use crate::context::worker::{Change, ListeningSocket, Loads, LogChange, Message, State, Worker};
use crate::faults::Faults;
use crate::faults::connections;
use crate::files::OpenFiles;
use crate::shaping::Shaper;
use crate::upstream::Server;
use crate::upstream::wait_queue::WaitQueue;
use crate::worker::wakeup_coalescing::{Coalescing, Progress};
use transport::alarm::Alarms;
use transport::buffer::Buffers;
use transport::deadline::{Deadlines, TICK};
use transport::h2_connection;
use transport::pipes::Pipes;
use transport::quic_beginnings::Beginnings;
use transport::quic_client::QuicClients;
use transport::quic_endpoint::Datagram;
use transport::tcp::Tcp;
use transport::tls::Records;

/// How often a worker without connections looks at what else there is.
const REST: Duration = Duration::from_secs(1);

/// How long idle clients have to come with a request before they are left without an answer.
const IDLE_GRACE: Duration = Duration::from_secs(2);

/// The parts of a worker, sent to its thread.
pub struct Parts {
    /// The worker's index, from 0.
    pub index: usize,
    /// The first plan.
    pub plan: Arc<Plan>,
    /// The listeners of the plan, in its order.
    pub listeners: Vec<ListenerId>,
    /// This worker's sockets of the listeners.
    pub opened: Vec<(ListenerId, ListeningSocket)>,
    /// Receives messages for this worker.
    pub messages: UnboundedReceiver<Message>,
    /// Sends messages to each worker, this one included.
    pub others: Arc<[UnboundedSender<Message>]>,
    /// The number of connections of each worker.
    pub loads: Loads,
    /// The access log, if there is one.
    pub log: Option<WorkerLog>,
    /// The worker's counters.
    pub counters: Counters,
    /// The worker's counters by route, listener, upstream and server.
    pub series: Series,
    /// The start of the clock that all workers share.
    pub epoch: Instant,
    /// Whether memory is short.
    pub pressure: Arc<Pressure>,
    /// The fault rules.
    pub faults: Arc<Faults>,
    /// The processes before this one.
    pub quic_processes: Arc<QuicProcesses>,
    /// Handshakes of QUIC under way, with all workers.
    pub quic_beginnings: Arc<Beginnings>,
}

/// Starts a worker, in its own runtime. It listens when this returns: then the process before may leave that to it. The future
/// is the body of its thread, and runs until the worker is stopped or drained.
///
/// # Errors
/// If the process has no file descriptor left.
pub fn begin(parts: Parts) -> io::Result<impl Future<Output = ()>> {
    let alarms = Alarms::new(parts.epoch)?;
    let Parts { listeners, opened, messages, .. } = parts;
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
        quic_hosts: QuicHosts::of(parts.quic_processes, parts.quic_beginnings),
        quic_clients: QuicClients::new(&alarms, &deadlines),
        deadlines,
        slots: ExchangeSlots::new(client::serve_slot),
        buffers: Buffers::default(),
        records: Records::new(),
        pipes: Pipes::default(),
        coders: Coders::default(),
        open_files: OpenFiles::new(parts.others.len()),
        shaper,
        alarms,
        asked_others_at: Cell::new(u32::MAX),
        faults: parts.faults,
        frames: h2_connection::Stock::new(),
        counters: parts.counters,
        series: parts.series,
        holding: Holding::default(),
        watched: Watched::default(),
        log: Logging::new(parts.log),
        state: Cell::new(State::Running),
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
    keep_time(&worker);
    worker.listen(&listeners, opened, &[]);
    quic_upgrade::hear_predecessors(&worker);
    Ok(run(worker, messages))
}

async fn run(worker: Rc<Worker>, mut messages: UnboundedReceiver<Message>) {
    while let Some(message) = messages.recv().await {
        match message {
            Message::Connection(stream, peer, listener) => worker.take_over(stream, peer, listener),
            Message::Change(change) => worker.change(*change).await,
            Message::Listen(listener) => worker.listen_again(listener),
            Message::Datagram(endpoint, datagram) => worker.take_datagram(endpoint, *datagram),
            Message::NextProcess(channel) => quic_upgrade::meet(&worker, channel),
            Message::Room(waiting) => worker.call_next(&waiting),
            Message::GiveUpIdle => worker.give_up_own_idle(),
            Message::Look(requests_max, answer) => worker.show(requests_max, &answer),
            Message::Answer(heard) => drop(heard),
            Message::Stop => break,
            Message::Retire => return worker.leave_and_end(None, &mut messages).await,
            Message::Drain => {
                return worker.leave_and_end(Some(worker.last_waits()), &mut messages).await;
            }
        }
    }
    worker.end();
}

/// Starts the tasks that keep the worker's time, from now on.
fn keep_time(worker: &Rc<Worker>) {
    worker.update_time();
    tokio::task::spawn_local(Rc::clone(&worker.alarms).run());
    let coalescing = Rc::new(Coalescing::default());
    tokio::task::spawn_local(tick(Rc::clone(worker), Rc::clone(&coalescing)));
    tokio::task::spawn_local(coalesce(Rc::clone(worker), coalescing));
}

/// Ten times a second: what is due, what is idle for too long, the date, the log. While there is nobody whom that
/// concerns, once a second.
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
                server.sweep(&worker);
                open += server.connections();
            }
            if worker.is_short_for_idle(open) {
                worker.give_up_own_idle();
            }
            // Room that nobody told of: a server has come up, or was given more.
            snapshot.lines().for_each(WaitQueue::call_next);
            worker.counters.upstream_connections_active.set(open as u64);
            worker.count_pools(&snapshot);
            worker.watched.turn(worker.epoch.elapsed());
            worker.open_files.sweep(worker.deadlines.now());
            worker.accepting.borrow_mut().retain(|task| !task.is_finished());
            // No more of them is used at once than there are requests.
            let requests = worker.counters.requests.value();
            let wanted = (requests - requests_before) as usize;
            requests_before = requests;
            worker.slots.shrink_spare(wanted);
            worker.buffers.shrink_spare(wanted);
        }
        worker.flush_log();
    }
}

/// Sleeps at times, and never past what is due.
async fn coalesce(worker: Rc<Worker>, coalescing: Rc<Coalescing>) {
    let sleep = |moment: Duration| std::thread::sleep(moment.min(worker.alarms.next_in()));
    coalescing.run(|| worker.progress(), sleep).await;
}

impl Worker {
    /// Notes how many connections there are to each server, and who waits for one, for whoever asks for metrics.
    fn count_pools(&self, snapshot: &Snapshot) {
        let Some(places) = &snapshot.plan.places else { return };
        // Several share the place of those without one of their own.
        let (mut others_queued, mut others_busy, mut others_idle) = (0, 0, 0);
        for (index, upstream) in snapshot.upstreams.iter().enumerate() {
            let queued = upstream.queued() as u64;
            match places.upstream(index) {
                Place::OTHER => others_queued += queued,
                place => self.series.upstream(place).queued.set(queued),
            }
            for (server_index, server) in upstream.servers.iter().enumerate() {
                let (open, idle) = (server.connections(), server.idle_connections());
                let (busy, idle) = (open.saturating_sub(idle) as u64, idle as u64);
                match places.server(index, server_index) {
                    Place::OTHER => (others_busy, others_idle) = (others_busy + busy, others_idle + idle),
                    place => {
                        let cell = self.series.server(place);
                        cell.connections_busy.set(busy);
                        cell.connections_idle.set(idle);
                    }
                }
            }
        }
        self.series.upstream(Place::OTHER).queued.set(others_queued);
        let others = self.series.server(Place::OTHER);
        others.connections_busy.set(others_busy);
        others.connections_idle.set(others_idle);
    }

    fn progress(&self) -> Progress {
        let counters = &self.counters;
        Progress { requests: counters.requests.value(), active: counters.requests_active.value() }
    }

    /// Goes on with another plan: requests that have begun keep to theirs. Returns when the sockets of removed listeners
    /// are closed: from then on nobody is served there.
    async fn change(self: &Rc<Self>, change: Change) {
        let Change { plan, listeners, opened, log, done } = change;
        if let LogChange::Other(log) = log {
            let last = self.log.replace(log);
            last.into_iter().for_each(|last| drop(done.send(last)));
        }
        let before = self.snapshot();
        let next = Snapshot::new(plan, Some(&before), self.index, &self.others, self.time());
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
        drop(done);
    }

    /// Listens on these, in the order of the plan, of which some are new; others end. `before` are the listeners of the
    /// plan before.
    fn listen(
        self: &Rc<Self>,
        order: &[ListenerId],
        opened: Vec<(ListenerId, ListeningSocket)>,
        before: &[Arc<Listener>],
    ) {
        let mut listenings = self.listenings.borrow_mut();
        // Connections to a listener may be handed over by others, also where this worker has no socket of it.
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
            // Connections of HTTP/2 tell their clients at once.
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

    /// Has a listener that took nothing look again.
    fn listen_again(&self, id: ListenerId) {
        self.listenings.borrow().iter().filter(|listening| listening.id == id).for_each(|it| it.look_again());
    }

    fn take_datagram(&self, endpoint: u8, datagram: Datagram) {
        self.pressure.end_stray();
        self.quic_hosts.take(endpoint, datagram);
    }

    /// Lets whoever waits longest here, in the line of these, try.
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
            // Its worker has gone on to a plan that this one is about to be told of.
            self.early.borrow_mut().push((stream, peer, listener));
            return;
        }
        let find = |among: &[Rc<Listening>]| among.iter().find(|listening| listening.id == listener).cloned();
        let listening = find(&self.listenings.borrow()).or_else(|| find(&self.removed.borrow()));
        // Whom nothing is known for any more is closed.
        if let Some(listening) = listening {
            self.begin(stream, peer, &listening);
        }
    }

    /// Starts serving a connection.
    pub(crate) fn begin(self: &Rc<Self>, stream: TcpStream, peer: SocketAddr, listening: &Rc<Listening>) {
        self.counters.connections_accepted.increment();
        let tcp = match self.faults.breaks_connections() {
            false => Tcp::new(stream),
            true => match connections::drawn(self, stream, peer, listening) {
                Some(tcp) => tcp,
                None => return,
            },
        };
        self.connection_begins();
        let client = Client::new(self, tcp, peer, Rc::clone(listening));
        tokio::task::spawn_local(client::connection(Rc::clone(self), Box::new(client)));
    }

    /// Takes nothing new, and ends when no connection is left, or when the last waits are over.
    async fn leave_and_end(
        self: &Rc<Self>,
        waits: Option<LastWaits>,
        messages: &mut UnboundedReceiver<Message>,
    ) {
        self.leave(waits, messages).await;
        self.end();
    }

    /// Takes nothing new, and returns when no connection is left, the last waits are over, or a stop is asked for.
    async fn leave(self: &Rc<Self>, mut waits: Option<LastWaits>, messages: &mut UnboundedReceiver<Message>) {
        // What it has told by now counts: who begins is its client then.
        quic_upgrade::hear_next(self);
        self.state.set(State::Leaving);
        self.is_leaving.notify_waiters();
        self.quic_hosts.settle();
        self.quic_hosts.leave_receiving(State::Leaving);
        self.deadlines.wake_idle();
        for task in self.accepting.take() {
            let _ = task.await;
        }
        loop {
            if self.own_load().load(Ordering::Relaxed) == 0 && !messages.is_closed() {
                // Who hands a connection over after this keeps it. What has come is served, and since nobody can say any
                // more when that is to end, it ends as in a drain.
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
                    Wait::Idle => {
                        self.state.set(State::Closing);
                        self.deadlines.expire_idle();
                    }
                    Wait::All => return,
                },
                message = messages.recv(), if !messages.is_closed() => {
                    if message.is_none_or(|message| self.hears_last(message, &mut waits)) {
                        return;
                    }
                }
            }
        }
    }

    /// Does what it is told while it takes nothing new; true if it is to end at once.
    fn hears_last(self: &Rc<Self>, message: Message, waits: &mut Option<LastWaits>) -> bool {
        match message {
            // Handed over before the other worker left as well.
            Message::Connection(stream, peer, listener) => self.take_over(stream, peer, listener),
            Message::Drain => *waits = waits.take().or_else(|| Some(self.last_waits())),
            Message::Room(waiting) => self.call_next(&waiting),
            Message::Datagram(endpoint, datagram) => self.take_datagram(endpoint, *datagram),
            Message::GiveUpIdle => self.give_up_own_idle(),
            Message::Look(requests_max, answer) => self.show(requests_max, &answer),
            Message::Answer(heard) => drop(heard),
            Message::Retire | Message::Change(_) | Message::Listen(_) | Message::NextProcess(_) => {}
            Message::Stop => return true,
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
        self.snapshot().servers().for_each(Server::end);
        self.slots.clear();
        self.flush_log();
    }
}

/// Until when a drain waits, by the worker's alarms.
struct LastWaits {
    /// `None` once it is over.
    idle_ns: Option<u64>,
    all_ns: u64,
}

/// A wait that is over.
enum Wait {
    /// Clients that are idle.
    Idle,
    /// All connections.
    All,
}

impl LastWaits {
    /// The next wait that is over; without any, for ever.
    async fn next(waits: &mut Option<Self>, alarms: &Rc<Alarms>) -> Wait {
        let Some(Self { idle_ns, all_ns }) = waits else { return std::future::pending().await };
        match *idle_ns {
            Some(due_ns) => {
                alarms.until(due_ns).await;
                *idle_ns = None;
                Wait::Idle
            }
            None => {
                alarms.until(*all_ns).await;
                Wait::All
            }
        }
    }
}
