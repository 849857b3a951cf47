//! The state of one worker (one core), for all stages of a request. The worker's steps are in the folder `worker`.

use std::cell::{Cell, RefCell};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime};

use balance::{Time, WaitingWorkers};
use expression::EvaluationScratch;
use route::{ProxyCount, ProxyCounts};
use telemetry::{CounterReader, Counters, Series, WorkerLog};
use tokio::sync::{Notify, mpsc::UnboundedSender};
use tokio::task::JoinHandle;

use crate::body::coders::Coders;
use crate::context::exchange_slot::ExchangeSlots;
use crate::context::plan::Plan;
use crate::context::quic_hosts::QuicHosts;
use crate::context::snapshot::Snapshot;
use crate::context::under_way::{WatchedWorker, WorkerView};
use crate::faults::Faults;
use crate::faults::quic::HeldBack;
use crate::listening::{ListenerId, Listening};
use crate::open_files::OpenFiles;
use crate::owned::coarse_clock::CoarseClock;
use crate::owned::handshake_notices::HandshakeNotices;
use crate::owned::logging::Logging;
use crate::owned::pressure::{ADMITTED_MIN, Pressure};
use crate::owned::record_scratch::RecordScratch;
use crate::shaping::Shaper;
use crate::shared::captures::Captures;
use crate::shared::kept_bytes::KeptByteCounter;
use crate::shared::tracing::Ids;
use crate::shared::waits::Holding;
use crate::upstream::UpstreamServer;
use crate::upstream::lender::Lender;
use transport::alarm::Alarms;
use transport::buffer::Buffers;
use transport::deadline::{Deadlines, TICK};
use transport::fastcgi_connection::FastcgiMemory;
use transport::h2_connection;
use transport::pipes::Pipes;
use transport::quic_client::QuicClients;
use transport::quic_endpoint::Datagram;
use transport::tls::Records;

pub enum WorkerMessage {
    /// A connection that an overloaded worker passes on, and its listener.
    Connection(TcpStream, SocketAddr, ListenerId),
    Change(Box<PlanChange>),
    /// A QUIC datagram for the endpoint with this number, which the kernel has delivered to another worker.
    Datagram(u8, Box<Datagram>),
    /// The next process is about to receive QUIC datagrams at the same sockets: the channel to it.
    NextProcess(OwnedFd),
    /// A listener accepts connections again, after it refused them.
    Listen(ListenerId),
    /// File descriptors are used up: close some idle connections to servers.
    GiveUpIdle,
    /// A server of this upstream has room for a request in the wait queue.
    Room(Arc<WaitingWorkers>),
    /// An operator watches: send the clients with the most requests, and at most so many requests under way.
    Look(usize, UnboundedSender<WorkerView>),
    /// Drop the sender, which proves that this worker is responsive.
    Answer(UnboundedSender<()>),
    /// Another process has taken over: accept nothing, and end when the last client has gone.
    Retire,
    /// Accept nothing, finish the requests under way, and end.
    Drain,
    /// End at once.
    Stop,
}

pub struct PlanChange {
    pub plan: Arc<Plan>,
    /// The listeners of the new plan, in its order. Other listeners are closed.
    pub listeners: Vec<ListenerId>,
    /// This worker's sockets of new listeners.
    pub opened: Vec<(ListenerId, ListeningSocket)>,
    pub log: LogChange,
    /// Dropped when the worker uses the new plan. The old log is sent there, because dropping it may take long.
    pub done: UnboundedSender<WorkerLog>,
}

/// A socket that clients reach.
pub enum ListeningSocket {
    Tcp(TcpListener),
    /// For QUIC datagrams, with its index among the previous process's sockets, if it comes from there.
    Udp(UdpSocket, Option<usize>),
}

/// The access log after a change.
pub enum LogChange {
    Same,
    Other(Option<WorkerLog>),
}

/// The stages of a worker's life, which decide about connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerPhase {
    /// New connections are accepted, and existing ones kept.
    Running,
    /// No connection is accepted, and each ends with its next response, which announces the end, so that clients lose
    /// no request.
    Leaving,
    /// No connection is accepted, each ends with its next response, and idle ones are closed.
    Closing,
}

/// Divisor: idle server connections leave this share of a worker's descriptors unused.
const SCARCE_SHARE: u64 = 10;

/// The number of connections of each worker: written by that worker, read by all.
pub(crate) type Loads = Arc<[AtomicUsize]>;

/// The counters of all workers.
pub(crate) struct WorkersCounters(pub(crate) Arc<[CounterReader]>);

impl std::fmt::Debug for WorkersCounters {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "counters of {} workers", self.0.len())
    }
}

impl ProxyCounts for WorkersCounters {
    fn count(&self, count: ProxyCount) -> u64 {
        let sum = telemetry::Snapshot::sum(self.0.iter());
        match count {
            ProxyCount::Accepted => sum.connections_accepted,
            ProxyCount::Connections => sum.connections_active,
            // A connection of HTTP/2 and HTTP/3 may serve several requests.
            ProxyCount::Idle => sum.connections_active.saturating_sub(sum.requests_active),
            ProxyCount::Requests => sum.requests,
            ProxyCount::Serving => sum.requests_active,
        }
    }
}

pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) snapshot: RefCell<Rc<Snapshot>>,
    pub(crate) listenings: RefCell<Vec<Rc<Listening>>>,
    /// Listeners that the last change removed: a worker with the previous plan may still have handed over connections
    /// for them. A change waits for all workers, so none is further behind.
    pub(crate) removed: RefCell<Vec<Rc<Listening>>>,
    /// The newest listener that this worker knows.
    pub(crate) newest: Cell<Option<ListenerId>>,
    /// Tasks that accept connections. They end once they have emptied the kernel's queue.
    pub(crate) accepting: RefCell<Vec<JoinHandle<()>>>,
    /// Connections to listeners that this worker does not know yet.
    pub(crate) early: RefCell<Vec<(TcpStream, SocketAddr, ListenerId)>>,
    pub(crate) quic_hosts: QuicHosts,
    /// HTTP/3 clients that faults hold back.
    pub(crate) held_back: HeldBack,
    /// Shared state of QUIC connections to servers.
    pub(crate) quic_clients: QuicClients,
    pub(crate) deadlines: Rc<Deadlines>,
    pub(crate) slots: ExchangeSlots,
    /// Scratch space of conditions; borrowed for one evaluation.
    pub(crate) expression_scratch: RefCell<EvaluationScratch>,
    pub(crate) buffers: Buffers,
    pub(crate) records: Rc<Records>,
    /// Buffers for connections to applications behind FastCGI.
    pub(crate) applications: Rc<FastcgiMemory>,
    pub(crate) record_scratch: RecordScratch,
    pub(crate) pipes: Pipes,
    pub(crate) coders: Coders,
    pub(crate) open_files: OpenFiles,
    pub(crate) shaper: Shaper,
    pub(crate) alarms: Rc<Alarms>,
    /// The tick at which other workers were last asked to close idle connections.
    pub(crate) asked_others_at: Cell<u32>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) captures: Arc<Captures>,
    pub(crate) frames: Rc<h2_connection::Stock>,
    pub(crate) counters: Counters,
    /// The counters of all workers, for texts.
    pub(crate) all_counters: WorkersCounters,
    pub(crate) series: Series,
    /// Whether the running exchange waits for the proxy itself.
    pub(crate) holding: Holding,
    /// Data for operators who watch.
    pub(crate) watched: WatchedWorker,
    /// The access log; `None` inside if it is off.
    pub(crate) log: Logging,
    pub(crate) state: Cell<WorkerPhase>,
    /// Rejected clients whose connection is not closed yet.
    pub(crate) turned_away: Cell<usize>,
    /// Limits reports of failed handshakes.
    pub(crate) handshake_notices: HandshakeNotices,
    pub(crate) loads: Loads,
    pub(crate) others: Arc<[UnboundedSender<WorkerMessage>]>,
    pub(crate) pressure: Arc<Pressure>,
    /// Random numbers for trace IDs.
    pub(crate) ids: Ids,
    pub(crate) epoch: Instant,
    pub(crate) coarse_clock: CoarseClock,
    pub(crate) coarse_time: Cell<Time>,
    pub(crate) date: Cell<[u8; 29]>,
    pub(crate) wall_clock: Cell<SystemTime>,
    /// Whether time is behind, because no connection needs it.
    pub(crate) rests: Cell<bool>,
    /// Notified when a connection begins while time is behind.
    pub(crate) is_wanted: Notify,
    /// Notified when the last connection has ended.
    pub(crate) is_empty: Notify,
    /// Notified when the worker stops accepting.
    pub(crate) is_leaving: Notify,
}

impl Lender for Worker {
    fn deadlines(&self) -> &Rc<Deadlines> {
        &self.deadlines
    }

    fn alarms(&self) -> &Rc<Alarms> {
        &self.alarms
    }

    fn records(&self) -> &Rc<Records> {
        &self.records
    }

    fn applications(&self) -> &Rc<FastcgiMemory> {
        &self.applications
    }

    fn frames(&self) -> &Rc<h2_connection::Stock> {
        &self.frames
    }

    fn quic_clients(&self) -> &QuicClients {
        &self.quic_clients
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.snapshot.borrow().plan)
    }

    fn give_up_idle(&self) -> bool {
        Self::give_up_idle(self)
    }
}

impl KeptByteCounter for Worker {
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Worker {
    /// The value of Date, at most a tick old.
    pub(crate) fn date(&self) -> [u8; 29] {
        self.date.get()
    }

    /// Converts a clock reading since the last tick to the time of day, without reading a second clock.
    pub(crate) fn wall_clock_at(&self, instant: Instant) -> SystemTime {
        self.wall_clock.get() + self.time_of(instant).since(self.coarse_time())
    }

    /// The present time, at most a tick old.
    pub(crate) fn wall_clock(&self) -> SystemTime {
        self.wall_clock.get()
    }

    /// The snapshot for new requests.
    pub(crate) fn snapshot(&self) -> Rc<Snapshot> {
        Rc::clone(&self.snapshot.borrow())
    }

    /// Closes open files and idle server connections because file descriptors are used up: this worker's, else those of
    /// other workers. Returns whether descriptors are free now.
    pub(crate) fn give_up_idle(&self) -> bool {
        // Files come first: they are cheaper to get back than connections.
        if self.open_files.close() {
            return true;
        }
        if self.pooled() > 1 {
            self.give_up_own_idle();
            return true;
        }
        // Asked at most once a tick: a burst of failures would flood the other workers.
        if self.asked_others_at.replace(self.deadlines.now()) != self.deadlines.now() {
            let others = self.others.iter().enumerate().filter(|(index, _)| *index != self.index);
            // A worker that has ended has none.
            others.for_each(|(_, other)| drop(other.send(WorkerMessage::GiveUpIdle)));
        }
        false
    }

    pub(crate) fn give_up_own_idle(&self) {
        self.open_files.close();
        // The last one is as useful as a descriptor.
        if self.pooled() > 1 {
            let snapshot = self.snapshot();
            snapshot.servers().for_each(UpstreamServer::give_up_half);
        }
    }

    fn pooled(&self) -> usize {
        self.snapshot().servers().map(UpstreamServer::pooled_connections).sum()
    }

    /// Whether memory or file descriptors run short, with `open` connections to servers. True before they are used up.
    pub(crate) fn is_short_for_idle(&self, open: usize) -> bool {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let share = limit.unwrap_or(u64::MAX) / self.loads.len().max(1) as u64;
        let used = self.own_load().load(Ordering::Relaxed) + open;
        self.pressure.is_on() || used as u64 > share - share / SCARCE_SHARE
    }

    /// The current time on the clock that all workers share.
    pub(crate) fn time(&self) -> Time {
        self.time_of(Instant::now())
    }

    /// The current time in nanoseconds on the clock that all workers share, for rates.
    pub(crate) fn time_ns(&self) -> u64 {
        // 2^64 nanoseconds are 584 years.
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Converts a clock reading to the time that all workers share.
    pub(crate) fn time_of(&self, instant: Instant) -> Time {
        Time::from_micros(instant.duration_since(self.epoch).as_micros() as u64)
    }

    /// Unix time in milliseconds, at most a tick old.
    pub(crate) fn unix_ms(&self) -> u64 {
        let since = self.wall_clock.get().duration_since(SystemTime::UNIX_EPOCH);
        // 2^64 milliseconds suffice.
        since.map_or(0, |since| since.as_millis() as u64)
    }

    /// Unix time in seconds, at most a tick old.
    pub(crate) fn unix_seconds(&self) -> u64 {
        let since = self.wall_clock.get().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    }

    /// The time that all workers share, at most a tick old.
    pub(crate) fn coarse_time(&self) -> Time {
        self.coarse_time.get()
    }

    /// Whether memory is too short for another request.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        self.is_short_of_memory_for(self.counters.requests_active.value())
    }

    /// Whether memory is too short for another item, when `active` items are under way.
    pub(crate) fn is_short_of_memory_for(&self, active: u64) -> bool {
        self.pressure.is_on() && active > ADMITTED_MIN
    }

    /// The number of client connections of all workers.
    pub(crate) fn connections_in_all(&self) -> usize {
        self.loads.iter().map(|load| load.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn own_load(&self) -> &AtomicUsize {
        &self.loads[self.index]
    }

    /// Resumes the worker's clock, because a connection has begun.
    pub(crate) fn wake(&self) {
        if self.rests.replace(false) {
            // Time is updated first, because the connection arms its deadlines by it.
            self.update_time();
            self.is_wanted.notify_one();
        }
    }

    /// Counts a new connection of this worker. The worker does not end before it.
    pub(crate) fn connection_begins(&self) {
        let load = self.own_load();
        // Only this thread writes it.
        load.store(load.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Counts the end of a connection of this worker.
    pub(crate) fn connection_ended(&self) {
        let load = self.own_load();
        let left = load.load(Ordering::Relaxed) - 1;
        load.store(left, Ordering::Relaxed);
        if left == 0 {
            self.is_empty.notify_one();
        }
    }

    /// Whether a connection of this listener is kept after its next response.
    pub(crate) fn keeps(&self, listening: &Listening) -> bool {
        self.state.get() == WorkerPhase::Running && listening.place().is_some()
    }

    /// Returns once the worker stops accepting.
    pub(crate) async fn leaving(&self) {
        while self.state.get() == WorkerPhase::Running {
            self.is_leaving.notified().await;
        }
    }

    /// Sends live requests and clients to an operator, who may have left.
    pub(crate) fn show(&self, requests_max: usize, answer: &UnboundedSender<WorkerView>) {
        let clock = Instant::now();
        let _ = answer.send(self.watched.look(requests_max, clock, clock.duration_since(self.epoch)));
    }

    pub(crate) fn flush_log(&self) {
        if let Some(log) = self.log.borrow_mut().as_mut() {
            log.flush();
        }
    }

    /// Advances the worker's time, and wakes the tasks that are due. Called on each tick.
    pub(crate) fn update_time(&self) {
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
