//! All that one core owns. Tasks of the worker share it by reference; nothing in it is seen by another thread but
//! the counters and the load.

/// Listening sockets, and accepting.
pub mod listen;
/// Whether memory is short.
pub mod pressure;
/// A short sleep that saves many wake-ups.
pub(crate) mod wakeup_coalescing;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use balance::{Time, WaitingWorkers};
use telemetry::{Counters, Place, Series, WorkerLog};
use tokio::sync::{Notify, mpsc::UnboundedReceiver, mpsc::UnboundedSender};
use tokio::task::JoinHandle;

use crate::connection::{client, unshaken};
use crate::context::client::Client;
use crate::context::exchange_slot::Lanes;
use crate::context::plan::{Listener, Plan};
use crate::context::snapshot::Snapshot;
use crate::faults::Faults;
use crate::faults::connections;
use crate::shaping::Shaper;
use crate::upstream::Server;
use crate::upstream::wait_queue::Line;
use crate::worker::listen::{ListenerId, Listening};
use crate::worker::pressure::{ADMITTED_MIN, Pressure};
use crate::worker::wakeup_coalescing::{Gathering, Progress};
use transport::alarm::Alarms;
use transport::buffer::Buffers;
use transport::deadline::{Deadlines, TICK};
use transport::h2_connection;
use transport::pipes::Pipes;
use transport::tcp::Tcp;
use transport::tls::Records;

/// What a worker is told from outside.
pub enum Message {
    /// A connection that another worker had too many of, and the listener that it came to.
    Connection(TcpStream, SocketAddr, ListenerId),
    /// Go on with another plan.
    Change(Box<Change>),
    /// This listener takes connections again, after it has refused them.
    Listen(ListenerId),
    /// Descriptors are used up: idle connections to servers take some.
    GiveUpIdle,
    /// A server of this upstream has room for somebody who waits.
    Room(Arc<WaitingWorkers>),
    /// Take nothing new, and end when the last client has gone: another process has taken over.
    Retire,
    /// Take nothing new, finish what runs, and end.
    Drain,
    /// End at once.
    Stop,
}

/// Another plan, and what it takes to get there.
pub struct Change {
    /// The plan from now on.
    pub plan: Arc<Plan>,
    /// Those of the plan, in its order. Others are not listened on any more.
    pub listeners: Vec<ListenerId>,
    /// This worker's sockets of those that are new.
    pub opened: Vec<(ListenerId, TcpListener)>,
    /// The log from now on.
    pub log: LogChange,
    /// Dropped when the worker has gone on. The log that it does not use any more goes there: to drop it may take long.
    pub done: UnboundedSender<WorkerLog>,
}

/// Where requests are logged from now on.
pub enum LogChange {
    /// The log stays.
    Same,
    /// Another log, or none.
    Other(Option<WorkerLog>),
}

/// What becomes of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// New ones are accepted, and those that are there are kept.
    Running,
    /// None is accepted, and each ends with its next response, which says so: a client that keeps to that loses nothing.
    Leaving,
    /// The same, and those that wait for a request are closed.
    Closing,
}

/// How often a worker without connections looks at what else there is.
const REST: Duration = Duration::from_secs(1);

/// The share, as a divisor, of the descriptors that a worker may use which idle connections to servers leave to others.
const SCARCE_SHARE: u64 = 10;

/// How long idle clients have to come with a request before they are left without an answer.
const IDLE_GRACE: Duration = Duration::from_secs(2);

/// How many connections each worker has: read by all, written by its own.
pub(crate) type Loads = Arc<[AtomicUsize]>;

/// What a worker is made of, sent to its thread.
pub struct Parts {
    /// The place among the workers, from 0.
    pub index: usize,
    /// The plan to begin with.
    pub plan: Arc<Plan>,
    /// The listeners of the plan, in its order.
    pub listeners: Vec<ListenerId>,
    /// This worker's sockets of them.
    pub opened: Vec<(ListenerId, TcpListener)>,
    /// Where messages to this worker arrive.
    pub messages: UnboundedReceiver<Message>,
    /// Where messages to each worker go, this one included.
    pub others: Arc<[UnboundedSender<Message>]>,
    /// Connections of each worker.
    pub loads: Loads,
    /// The access log, if there is one.
    pub log: Option<WorkerLog>,
    /// Counters of this worker.
    pub counters: Counters,
    /// Counters by name of this worker.
    pub series: Series,
    /// When time began, for all workers.
    pub epoch: Instant,
    /// Whether memory is short.
    pub pressure: Arc<Pressure>,
    /// Faults on purpose.
    pub faults: Arc<Faults>,
}

/// One core's share of the proxy.
pub(crate) struct Worker {
    pub(crate) index: usize,
    snapshot: RefCell<Rc<Snapshot>>,
    listenings: RefCell<Vec<Rc<Listening>>>,
    /// Those that the last change has removed: a worker that was yet to be told may have handed connections over. A change
    /// waits for all workers, so that none is further behind.
    removed: RefCell<Vec<Rc<Listening>>>,
    /// The newest listener that this worker has been told of.
    newest: Cell<Option<ListenerId>>,
    /// Tasks that accept, until they have taken what was in the kernel's queue.
    accepting: RefCell<Vec<JoinHandle<()>>>,
    /// Connections to listeners that this worker is yet to hear of.
    early: RefCell<Vec<(TcpStream, SocketAddr, ListenerId)>>,
    pub(crate) deadlines: Rc<Deadlines>,
    pub(crate) lanes: Lanes,
    pub(crate) buffers: Buffers,
    pub(crate) records: Rc<Records>,
    pub(crate) pipes: Pipes,
    pub(crate) shaper: Shaper,
    pub(crate) alarms: Rc<Alarms>,
    gathering: Gathering,
    /// The tick at which other workers were last asked to give up idle connections.
    asked_others_at: Cell<u32>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) frames: Rc<h2_connection::Stock>,
    pub(crate) counters: Counters,
    pub(crate) series: Series,
    /// `None` is off.
    pub(crate) log: RefCell<Option<WorkerLog>>,
    pub(crate) state: Cell<State>,
    /// Clients there was no room for that are not gone yet.
    pub(crate) turned_away: Cell<usize>,
    /// Handshakes that failed and were told of.
    pub(crate) unshaken: unshaken::Told,
    pub(crate) loads: Loads,
    pub(crate) others: Arc<[UnboundedSender<Message>]>,
    pressure: Arc<Pressure>,
    epoch: Instant,
    coarse_time: Cell<Time>,
    date: Cell<[u8; 29]>,
    wall_clock: Cell<SystemTime>,
    /// Time is behind: nobody has asked for it.
    rests: Cell<bool>,
    /// Told when a connection begins meanwhile.
    is_wanted: Notify,
    /// Told when the last connection has ended.
    is_empty: Notify,
    /// Told when nothing new is accepted any more.
    is_leaving: Notify,
}

/// A worker that runs until it is stopped or drained: the body of its thread.
///
/// # Errors
/// When the process may have no more descriptors.
pub fn begin(parts: Parts) -> io::Result<impl Future<Output = ()>> {
    let alarms = Alarms::new(parts.epoch)?;
    Ok(run(parts, alarms))
}

async fn run(parts: Parts, alarms: Rc<Alarms>) {
    let Parts { listeners, opened, mut messages, .. } = parts;
    let snapshot = Snapshot::new(parts.plan, None, parts.index, &parts.others, Time::START);
    let shaper = Shaper::new(parts.index, Rc::clone(&alarms), &snapshot.plan);
    let worker = Rc::new(Worker {
        index: parts.index,
        snapshot: RefCell::new(Rc::new(snapshot)),
        listenings: RefCell::default(),
        removed: RefCell::default(),
        newest: Cell::new(None),
        accepting: RefCell::default(),
        early: RefCell::default(),
        deadlines: Deadlines::new(),
        lanes: Lanes::default(),
        buffers: Buffers::default(),
        records: Records::new(),
        pipes: Pipes::default(),
        shaper,
        alarms,
        gathering: Gathering::default(),
        asked_others_at: Cell::new(u32::MAX),
        faults: parts.faults,
        frames: h2_connection::Stock::new(),
        counters: parts.counters,
        series: parts.series,
        log: RefCell::new(parts.log),
        state: Cell::new(State::Running),
        turned_away: Cell::new(0),
        unshaken: unshaken::Told::default(),
        loads: parts.loads,
        others: parts.others,
        pressure: parts.pressure,
        epoch: parts.epoch,
        coarse_time: Cell::new(Time::START),
        date: Cell::new([b' '; 29]),
        wall_clock: Cell::new(SystemTime::UNIX_EPOCH),
        rests: Cell::new(false),
        is_wanted: Notify::new(),
        is_empty: Notify::new(),
        is_leaving: Notify::new(),
    });
    worker.update_time();
    tokio::task::spawn_local(Rc::clone(&worker.alarms).run());
    tokio::task::spawn_local(tick(Rc::clone(&worker)));
    tokio::task::spawn_local(gather(Rc::clone(&worker)));
    worker.listen(&listeners, opened, &[]);
    while let Some(message) = messages.recv().await {
        match message {
            Message::Connection(stream, peer, listener) => worker.take_over(stream, peer, listener),
            Message::Change(change) => worker.change(*change),
            Message::Listen(listener) => worker.listen_again(listener),
            Message::Room(waiting) => worker.call_next(&waiting),
            Message::GiveUpIdle => worker.give_up_own_idle(),
            Message::Stop => break,
            Message::Retire => {
                worker.leave(None, &mut messages).await;
                break;
            }
            Message::Drain => {
                worker.leave(Some(worker.last_waits()), &mut messages).await;
                break;
            }
        }
    }
    worker.end();
}

/// Ten times a second: what is due, what is idle for too long, the date, the log. While there is nobody whom that
/// concerns, once a second.
async fn tick(worker: Rc<Worker>) {
    let mut second = worker.deadlines.second();
    loop {
        worker.rests.set(worker.deadlines.is_empty());
        let pause = if worker.rests.get() { REST } else { TICK };
        tokio::select! {
            () = worker.alarms.sleep(pause) => {}
            () = worker.is_wanted.notified() => {}
        }
        worker.update_time();
        let longest = worker.snapshot().plan.config.gather;
        worker.gathering.look(worker.time_ns(), worker.progress(), longest);
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
            snapshot.lines().for_each(Line::call_next);
            worker.counters.upstream_connections_active.set(open as u64);
            worker.count_pools(&snapshot);
            worker.accepting.borrow_mut().retain(|task| !task.is_finished());
        }
        worker.flush_log();
    }
}

/// Sleeps at times, and never past what is due.
async fn gather(worker: Rc<Worker>) {
    let sleep = |moment: Duration| std::thread::sleep(moment.min(worker.alarms.next_in()));
    worker.gathering.run(|| worker.progress(), sleep).await;
}

impl Worker {
    /// The value of Date, at most a tick old.
    pub(crate) fn date(&self) -> [u8; 29] {
        self.date.get()
    }

    /// The time of day at a reading of the clock since the last tick: exact, and no second clock is read for it.
    pub(crate) fn wall_clock_at(&self, instant: Instant) -> SystemTime {
        self.wall_clock.get() + self.time_of(instant).since(self.coarse_time())
    }

    /// The plan for what begins now.
    pub(crate) fn snapshot(&self) -> Rc<Snapshot> {
        Rc::clone(&self.snapshot.borrow())
    }

    /// Descriptors are used up: idle connections of this worker to servers are given up, else those of others. Says
    /// whether there are some now.
    pub(crate) fn give_up_idle(&self) -> bool {
        if self.pooled() > 1 {
            self.give_up_own_idle();
            return true;
        }
        if self.asked_others_at.replace(self.deadlines.now()) != self.deadlines.now() {
            let others = self.others.iter().enumerate().filter(|(index, _)| *index != self.index);
            // A worker that has ended has none.
            others.for_each(|(_, other)| drop(other.send(Message::GiveUpIdle)));
        }
        false
    }

    fn give_up_own_idle(&self) {
        // The last one is as good as a descriptor.
        if self.pooled() > 1 {
            let snapshot = self.snapshot();
            snapshot.servers().for_each(Server::give_up_half);
        }
    }

    fn pooled(&self) -> usize {
        self.snapshot().servers().map(Server::pooled_connections).sum()
    }

    /// Whether memory or descriptors are scarce, with so many connections to servers: before they are used up.
    fn is_short_for_idle(&self, open: usize) -> bool {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let share = limit.unwrap_or(u64::MAX) / self.loads.len().max(1) as u64;
        let used = self.own_load().load(Ordering::Relaxed) + open;
        self.pressure.is_on() || used as u64 > share - share / SCARCE_SHARE
    }

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

    /// Time, the same for all workers.
    pub(crate) fn time(&self) -> Time {
        self.time_of(Instant::now())
    }

    /// The same in nanoseconds, for what is counted by rates.
    pub(crate) fn time_ns(&self) -> u64 {
        // 2^64 nanoseconds are 584 years.
        self.epoch.elapsed().as_nanos() as u64
    }

    /// A reading of the clock as that time.
    pub(crate) fn time_of(&self, instant: Instant) -> Time {
        Time::from_micros(instant.duration_since(self.epoch).as_micros() as u64)
    }

    /// The time of day in milliseconds, at most a tick old.
    pub(crate) fn unix_ms(&self) -> u64 {
        let since = self.wall_clock.get().duration_since(SystemTime::UNIX_EPOCH);
        // 2^64 milliseconds are far enough.
        since.map_or(0, |since| since.as_millis() as u64)
    }

    /// The time of day in whole seconds.
    pub(crate) fn unix_seconds(&self) -> u64 {
        let since = self.wall_clock.get().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    }

    /// Time, at most a tick old.
    pub(crate) fn coarse_time(&self) -> Time {
        self.coarse_time.get()
    }

    /// Whether there is not enough memory for one more request.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        self.is_short_of_memory_for(self.counters.requests_active.value())
    }

    /// The same for one more of so many things that are under way.
    pub(crate) fn is_short_of_memory_for(&self, active: u64) -> bool {
        self.pressure.is_on() && active > ADMITTED_MIN
    }

    fn progress(&self) -> Progress {
        let counters = &self.counters;
        Progress { requests: counters.requests.value(), active: counters.requests_active.value() }
    }

    /// Client connections of all workers.
    pub(crate) fn connections_in_all(&self) -> usize {
        self.loads.iter().map(|load| load.load(Ordering::Relaxed)).sum()
    }

    fn own_load(&self) -> &AtomicUsize {
        &self.loads[self.index]
    }

    /// Goes on with another plan: requests that have begun keep to theirs.
    fn change(self: &Rc<Self>, change: Change) {
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
        drop(done);
    }

    /// Listens on these, in the order of the plan, of which some are new; others end. `before` are the listeners of the
    /// plan before.
    fn listen(
        self: &Rc<Self>,
        order: &[ListenerId],
        opened: Vec<(ListenerId, TcpListener)>,
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
            if let Some(listening) = listenings.iter().find(|listening| listening.id == id) {
                let accept = listen::accept(Rc::clone(self), Rc::clone(listening), socket);
                self.accepting.borrow_mut().push(tokio::task::spawn_local(accept));
            }
        }
    }

    /// Has a listener that took nothing look again.
    fn listen_again(&self, id: ListenerId) {
        self.listenings.borrow().iter().filter(|listening| listening.id == id).for_each(|it| it.look_again());
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

    /// A connection has come: from now on time counts.
    pub(crate) fn wake(&self) {
        if self.rests.replace(false) {
            self.update_time();
            self.is_wanted.notify_one();
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

    /// There is one more connection of this worker, which it does not end before.
    pub(crate) fn connection_begins(&self) {
        let load = self.own_load();
        // Only this thread writes it.
        load.store(load.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// A connection of this worker has ended.
    pub(crate) fn connection_ended(&self) {
        let load = self.own_load();
        let left = load.load(Ordering::Relaxed) - 1;
        load.store(left, Ordering::Relaxed);
        if left == 0 {
            self.is_empty.notify_one();
        }
    }

    /// Whether a connection that came to this listener outlives its next response.
    pub(crate) fn keeps(&self, listening: &Listening) -> bool {
        self.state.get() == State::Running && listening.place().is_some()
    }

    /// Returns once nothing new is accepted any more.
    pub(crate) async fn leaving(&self) {
        while self.state.get() == State::Running {
            self.is_leaving.notified().await;
        }
    }

    /// Takes nothing new, and returns when no connection is left, the last waits are over, or a stop is asked for.
    async fn leave(self: &Rc<Self>, mut waits: Option<LastWaits>, messages: &mut UnboundedReceiver<Message>) {
        self.state.set(State::Leaving);
        self.is_leaving.notify_waiters();
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
            Message::GiveUpIdle => self.give_up_own_idle(),
            Message::Retire | Message::Change(_) | Message::Listen(_) => {}
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
        self.lanes.clear();
        self.flush_log();
    }

    /// Whether requests are logged.
    pub(crate) fn is_logging(&self) -> bool {
        self.log.borrow().is_some()
    }

    fn flush_log(&self) {
        if let Some(log) = self.log.borrow_mut().as_mut() {
            log.flush();
        }
    }

    /// Has time go on, and wakes whoever is due.
    fn update_time(&self) {
        // 2^32 ticks are 13 years.
        self.deadlines.advance((self.epoch.elapsed().as_millis() / TICK.as_millis()) as u32);
        self.coarse_time.set(self.time());
        let now = SystemTime::now();
        self.wall_clock.set(now);
        let text = httpdate::fmt_http_date(now);
        let mut date = [b' '; 29];
        // IMF-fixdate is 29 bytes long (RFC 9110 §5.6.7).
        if text.len() == date.len() {
            date.copy_from_slice(text.as_bytes());
        }
        self.date.set(date);
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
    /// For clients that are idle.
    Idle,
    /// For all that runs.
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
