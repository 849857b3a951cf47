//! What one core owns, as every stage of a request reaches it. The steps of a worker are in the folder `worker`.

use std::cell::{Cell, RefCell};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime};

use balance::{Time, WaitingWorkers};
use telemetry::{Counters, Series, WorkerLog};
use tokio::sync::{Notify, mpsc::UnboundedSender};
use tokio::task::JoinHandle;

use crate::context::exchange_slot::ExchangeSlots;
use crate::context::handshake_notices::HandshakeNotices;
use crate::context::listening::{ListenerId, Listening};
use crate::context::plan::Plan;
use crate::context::pressure::{ADMITTED_MIN, Pressure};
use crate::context::snapshot::Snapshot;
use crate::faults::Faults;
use crate::shaping::Shaper;
use crate::upstream::Server;
use transport::alarm::Alarms;
use transport::buffer::Buffers;
use transport::deadline::{Deadlines, TICK};
use transport::h2_connection;
use transport::pipes::Pipes;
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

/// The share, as a divisor, of the descriptors that a worker may use which idle connections to servers leave to others.
const SCARCE_SHARE: u64 = 10;

/// How many connections each worker has: read by all, written by its own.
pub(crate) type Loads = Arc<[AtomicUsize]>;

/// One core's share of the proxy.
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) snapshot: RefCell<Rc<Snapshot>>,
    pub(crate) listenings: RefCell<Vec<Rc<Listening>>>,
    /// Those that the last change has removed: a worker that was yet to be told may have handed connections over. A change
    /// waits for all workers, so that none is further behind.
    pub(crate) removed: RefCell<Vec<Rc<Listening>>>,
    /// The newest listener that this worker has been told of.
    pub(crate) newest: Cell<Option<ListenerId>>,
    /// Tasks that accept, until they have taken what was in the kernel's queue.
    pub(crate) accepting: RefCell<Vec<JoinHandle<()>>>,
    /// Connections to listeners that this worker is yet to hear of.
    pub(crate) early: RefCell<Vec<(TcpStream, SocketAddr, ListenerId)>>,
    pub(crate) deadlines: Rc<Deadlines>,
    pub(crate) slots: ExchangeSlots,
    pub(crate) buffers: Buffers,
    pub(crate) records: Rc<Records>,
    pub(crate) pipes: Pipes,
    pub(crate) shaper: Shaper,
    pub(crate) alarms: Rc<Alarms>,
    /// The tick at which other workers were last asked to give up idle connections.
    pub(crate) asked_others_at: Cell<u32>,
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
    pub(crate) handshake_notices: HandshakeNotices,
    pub(crate) loads: Loads,
    pub(crate) others: Arc<[UnboundedSender<Message>]>,
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) epoch: Instant,
    pub(crate) coarse_time: Cell<Time>,
    pub(crate) date: Cell<[u8; 29]>,
    pub(crate) wall_clock: Cell<SystemTime>,
    /// Time is behind: nobody has asked for it.
    pub(crate) rests: Cell<bool>,
    /// Told when a connection begins meanwhile.
    pub(crate) is_wanted: Notify,
    /// Told when the last connection has ended.
    pub(crate) is_empty: Notify,
    /// Told when nothing new is accepted any more.
    pub(crate) is_leaving: Notify,
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

    pub(crate) fn give_up_own_idle(&self) {
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
    pub(crate) fn is_short_for_idle(&self, open: usize) -> bool {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let share = limit.unwrap_or(u64::MAX) / self.loads.len().max(1) as u64;
        let used = self.own_load().load(Ordering::Relaxed) + open;
        self.pressure.is_on() || used as u64 > share - share / SCARCE_SHARE
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

    /// Client connections of all workers.
    pub(crate) fn connections_in_all(&self) -> usize {
        self.loads.iter().map(|load| load.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn own_load(&self) -> &AtomicUsize {
        &self.loads[self.index]
    }

    /// A connection has come: from now on time counts.
    pub(crate) fn wake(&self) {
        if self.rests.replace(false) {
            self.update_time();
            self.is_wanted.notify_one();
        }
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

    /// Whether requests are logged.
    pub(crate) fn is_logging(&self) -> bool {
        self.log.borrow().is_some()
    }

    pub(crate) fn flush_log(&self) {
        if let Some(log) = self.log.borrow_mut().as_mut() {
            log.flush();
        }
    }

    /// Has time go on, and wakes whoever is due.
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
