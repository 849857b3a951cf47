//! State of one load thread, lent to its connections. Threads share only the plan, the targets, orders and counters.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::sync::{Notify, watch};

use crate::arrivals::{ArrivalSchedule, RequestTurn};
use crate::breakdown;
use crate::http3::Quic;
use crate::page::PagePattern;
use crate::plan::{Arrival, LoadPlan};
use crate::record::ThreadRecord;
use crate::schedule::{Schedule, ScheduleWindow};
use crate::send::SendScratch;
use crate::stream;
use crate::target::{RenderedRequests, Targets};
use crate::think::Thinking;
use crate::tls::Sessions;
use crate::usage::{self, Usage};
use crate::vigil::Vigil;

#[derive(Debug)]
pub(crate) struct LoadShared {
    pub(crate) plan: LoadPlan,
    pub(crate) targets: Targets,
    /// Shared state of streams, if the run has streams in place of requests.
    pub(crate) streams: Option<stream::Prepared>,
    pub(crate) reach: ServerReach,
}

/// Whether any connection could be opened before the load begins. If none, there is nothing to measure.
#[derive(Debug, Default)]
pub(crate) struct ServerReach {
    is_reached: AtomicBool,
    failure: OnceLock<String>,
}

impl ServerReach {
    pub(crate) fn succeeded(&self) {
        self.is_reached.store(true, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, words: impl FnOnce() -> String) {
        self.failure.get_or_init(words);
    }

    /// The reason why no connection could be opened; `None` if one was opened.
    pub(crate) fn refusal(&self) -> Option<&str> {
        let failure = self.failure.get().map(String::as_str);
        failure.filter(|_| !self.is_reached.load(Ordering::Relaxed))
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Orders {
    /// The measured window. Set when every connection is ready: then the load begins.
    pub(crate) window: Option<ScheduleWindow>,
    /// Set to stop the run early.
    pub(crate) stop: bool,
    /// Set together with `stop` if the server is gone.
    pub(crate) is_gone: bool,
}

/// Counters for the live display. Each thread has its own cache line, and only that thread writes it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Live {
    pub(crate) requests: AtomicU64,
    pub(crate) errors: AtomicU64,
    /// Whether the server is gone for this thread, or the thread is done.
    pub(crate) is_gone: AtomicBool,
}

/// Callback, called once when the connections of a thread are ready.
struct OnReady(Cell<Option<Box<dyn FnOnce() + Send>>>);

impl std::fmt::Debug for OnReady {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("OnReady")
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Active {
    pub(crate) due: Instant,
    pub(crate) sent: Instant,
    /// Its index in the list, if it was chosen.
    pub(crate) request: Option<usize>,
}

/// The active requests. Allocates once, for the number of senders.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    active: Vec<Option<Active>>,
    free: Vec<usize>,
}

impl UnderWay {
    pub(crate) fn add(&mut self, due: Instant, sent: Instant, request: Option<usize>) -> usize {
        let number = self.free.pop().unwrap_or(self.active.len());
        let active = Some(Active { due, sent, request });
        match self.active.get_mut(number) {
            Some(place) => *place = active,
            None => self.active.push(active),
        }
        number
    }

    fn remove(&mut self, number: usize) -> Option<Active> {
        self.free.push(number);
        self.active[number].take()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = Active> + Clone {
        self.active.iter().flatten().copied()
    }

    /// Number of active requests, and the age of the oldest.
    pub(crate) fn at(&self, now: Instant) -> (u64, Duration) {
        let sent = self.all().map(|active| active.sent);
        let oldest = sent.clone().min().map_or(Duration::ZERO, |sent| now.saturating_duration_since(sent));
        (sent.count() as u64, oldest)
    }
}

#[derive(Debug)]
pub(crate) struct LoadWorker {
    pub(crate) shared: Arc<LoadShared>,
    pub(crate) is_open_model: bool,
    pub(crate) record: RefCell<ThreadRecord>,
    pub(crate) scratch: RefCell<SendScratch>,
    /// Buffers of HTTP/3, if the run has it.
    pub(crate) quic: RefCell<Quic>,
    /// Active requests of the measured window.
    pub(crate) under_way: RefCell<UnderWay>,
    /// Bodies of HTTP/2 messages. Each thread has its own, because counting references to shared ones would cost time.
    pub(crate) bodies: Box<[Bytes]>,
    /// Position in the URL list or in the sequence.
    cursor: Cell<usize>,
    /// Connections that have not tried to connect yet.
    unready: Cell<usize>,
    ready: OnReady,
    orders: watch::Receiver<Orders>,
    /// Window and arrivals, set when the load begins.
    begun: OnceCell<(ScheduleWindow, ArrivalSchedule)>,
    has_begun: Notify,
    live: Arc<[Live]>,
    thread: usize,
    /// Fan-out: messages that have arrived at the streams of this thread.
    pub(crate) arrived: Cell<u64>,
    /// Notified when nothing more will arrive on the streams of this thread.
    pub(crate) stream_done: Notify,
}

impl LoadWorker {
    /// How many times the addresses of a server have changed.
    #[inline]
    pub(crate) fn address_changes(&self, server: usize) -> u64 {
        match self.shared.plan.directions.resolve_every_seconds {
            None => 0,
            Some(_) => self.shared.targets.servers.get(server).addresses.changes(),
        }
    }

    /// Creates the state of a thread. `ready` is called when each connection has tried to connect.
    pub(crate) fn new(
        shared: Arc<LoadShared>,
        thread: usize,
        orders: watch::Receiver<Orders>,
        live: Arc<[Live]>,
        ready: Box<dyn FnOnce() + Send>,
    ) -> Self {
        let is_open_model = shared.plan.arrival != Arrival::Closed;
        Self {
            is_open_model,
            record: RefCell::new(ThreadRecord::new(is_open_model)),
            quic: RefCell::default(),
            scratch: RefCell::new(SendScratch::new(shared.targets.tls.is_some())),
            under_way: RefCell::default(),
            cursor: Cell::new(match &shared.targets.sequence {
                // With n threads, each takes every n-th entry, so that together they go through the list in its order.
                None => thread % shared.targets.requests.count(),
                // Each sends all requests by their weights.
                Some(sequence) => thread * sequence.len() / shared.plan.threads,
            }),
            bodies: shared.targets.bodies().map(Bytes::copy_from_slice).collect(),
            unready: Cell::new(senders(&shared.plan, thread)),
            ready: OnReady(Cell::new(Some(ready))),
            orders,
            begun: OnceCell::new(),
            has_begun: Notify::new(),
            live,
            thread,
            arrived: Cell::new(0),
            stream_done: Notify::new(),
            shared,
        }
    }

    pub(crate) fn connections(&self) -> usize {
        share(self.shared.plan.connections, self.thread, self.shared.plan.threads)
    }

    /// TLS configuration and certificate name for a server; `None` for plain HTTP.
    pub(crate) fn tls(
        &self,
        sessions: &Sessions,
        server: usize,
    ) -> Option<(Arc<ClientConfig>, ServerName<'static>)> {
        let name = self.shared.targets.servers.get(server).tls_name.as_ref()?;
        let config = self.shared.targets.tls.as_ref()?;
        Some((sessions.config(server, config, &self.shared.plan), name.clone()))
    }

    /// Creates the arrivals of the window, before the connections are started.
    pub(crate) fn begin(&self, window: ScheduleWindow) -> io::Result<()> {
        let plan = &self.shared.plan;
        let turns = stream::turns(plan, self.thread);
        let schedule = turns.and_then(|(thread, threads)| {
            Schedule::new(&plan.arrival, plan.warm_up_seconds, thread, threads)
        });
        let (thread, threads) = turns.unwrap_or((self.thread, plan.threads));
        let requests = plan.requests.map(|requests| {
            let (threads, thread) = (threads as u64, thread as u64);
            requests / threads + u64::from(thread < requests % threads)
        });
        let thinking =
            plan.think_time.map(|time| Thinking::new(time, senders(plan, self.thread), self.thread));
        let arrivals =
            ArrivalSchedule::new(schedule, thinking, window, requests, senders(plan, self.thread))?;
        let begun = self.begun.set((window, arrivals));
        debug_assert!(begun.is_ok(), "a load begins once");
        self.has_begun.notify_waiters();
        Ok(())
    }

    /// Waits until all threads' connections are ready and the load begins. `None` if the run is stopped before.
    pub(crate) async fn wait_for_start(&self) -> Option<Instant> {
        self.unready.set(self.unready.get() - 1);
        if self.unready.get() == 0
            && let Some(ready) = self.ready.0.take()
        {
            ready();
        }
        let window = self.wait_for_window().await?;
        tokio::time::sleep_until(window.load.into()).await;
        // On a busy machine this time may have passed before this thread gets the order.
        while self.begun.get().is_none() {
            self.has_begun.notified().await;
        }
        Some(Instant::now())
    }

    /// Waits for the measured window; `None` if the run is stopped before.
    pub(crate) async fn wait_for_window(&self) -> Option<ScheduleWindow> {
        let mut orders = self.orders.clone();
        let orders = orders.wait_for(|orders| orders.window.is_some() || orders.stop).await.ok()?;
        orders.window.filter(|_| !orders.stop)
    }

    pub(crate) async fn wait_for_stop(&self) {
        let mut orders = self.orders.clone();
        // An error means that the sender is gone: then the run is over, too.
        let _ = orders.wait_for(|orders| orders.stop).await;
    }

    /// Panics before the load has begun.
    pub(crate) fn arrivals(&self) -> &ArrivalSchedule {
        match self.begun.get() {
            Some((_, arrivals)) => arrivals,
            None => unreachable!("connections ask for a turn only after the start"),
        }
    }

    /// Whether a request that begins now belongs to the measured window.
    pub(crate) fn is_measured(&self, now: Instant) -> bool {
        self.begun.get().is_some_and(|(window, _)| now >= window.start)
    }

    /// The measured window, once the load has begun.
    pub(crate) fn window(&self) -> Option<ScheduleWindow> {
        self.begun.get().map(|(window, _)| *window)
    }

    pub(crate) fn thread(&self) -> usize {
        self.thread
    }

    /// Whether connections are opened before a request is chosen: if they are kept, and all requests go to one server.
    pub(crate) fn opens_ahead(&self) -> bool {
        self.shared.plan.keepalive && self.shared.targets.servers.planned() == 1
    }

    /// Whether a sender's next request follows at once: a closed loop without pauses or requests that need responses.
    pub(crate) fn follows_at_once(&self) -> bool {
        let LoadShared { plan, targets, .. } = &*self.shared;
        let is_closed = !self.is_open_model && plan.think_time.is_none() && !plan.has_visits();
        let RenderedRequests::Streams(messages) = &targets.requests else { return false };
        is_closed && self.opens_ahead() && messages.iter().all(|message| message.fill.is_none())
    }

    pub(crate) fn next_request(&self, count: usize) -> usize {
        let position = self.cursor.get();
        match &self.shared.targets.sequence {
            None => {
                self.cursor.set((position + self.shared.plan.threads) % count);
                position
            }
            Some(sequence) => {
                self.cursor.set((position + 1) % sequence.len());
                sequence[position] as usize
            }
        }
    }

    /// In a closed loop, counts a failed connect as one of the requested requests, so that a run against a dead server
    /// ends. Returns true if none was left.
    pub(crate) fn spend_on_failure(&self, now: Instant) -> bool {
        match self.arrivals() {
            ArrivalSchedule::Closed(closed) => closed.is_over(now),
            ArrivalSchedule::Open(open) => open.is_over(now),
        }
    }

    /// Records that a counted request is sent. Returns its number for [`Worker::settled`].
    pub(crate) fn departure(
        &self,
        turn: &RequestTurn,
        free: Instant,
        sent: Instant,
        request: Option<usize>,
    ) -> usize {
        if self.is_open_model {
            let end = self.begun.get().and_then(|(window, _)| window.end);
            self.record.borrow_mut().departure(turn.due, free, sent, end);
        }
        self.under_way.borrow_mut().add(turn.due, sent, request)
    }

    /// Records that the counted request with this number is complete or has failed.
    pub(crate) fn settled(&self, number: usize) {
        self.under_way.borrow_mut().remove(number);
        self.publish();
    }

    /// Records that the counted request with this number stays unanswered: its age is a lower limit of its time.
    #[cold]
    pub(crate) fn unanswered(&self, number: usize, now: Instant) {
        let active = self.under_way.borrow_mut().remove(number);
        if let Some(Active { due, sent, request }) = active {
            self.record.borrow_mut().unanswered(now - due, Some(now - sent));
            self.unanswered_part(request, due, if self.is_open_model { now - due } else { now - sent });
        }
        self.publish();
    }

    /// Records an unanswered request in the tables of the run.
    pub(crate) fn unanswered_part(&self, request: Option<usize>, due: Instant, age: Duration) {
        if self.has_tables() {
            let start = self.begun.get().map_or(due, |(window, _)| window.start);
            let LoadShared { plan, targets, .. } = &*self.shared;
            let part = (request, due.saturating_duration_since(start));
            self.record.borrow_mut().rows.unanswered(&targets.tables, plan, part, age);
        }
    }

    /// In a closed loop, counts a sender that opens a connection among the active requests. On a schedule, requests
    /// fall due all the same. Returns its number for [`Worker::settled`].
    pub(crate) fn opening(&self) -> Option<usize> {
        let now = Instant::now();
        let counts = !self.is_open_model && self.is_measured(now) && !self.arrivals().is_spent();
        counts.then(|| self.under_way.borrow_mut().add(now, now, None))
    }

    /// The pattern of the responses to a request, if they are compared.
    #[inline]
    pub(crate) fn pattern(&self, request: usize) -> Option<&Arc<PagePattern>> {
        match &self.shared.targets.requests {
            RenderedRequests::Http1(requests) => requests[request].pattern.as_ref(),
            RenderedRequests::Streams(messages) => messages[request].pattern.as_ref(),
        }
    }

    /// Adds the name of a listed request to the description of a missed check.
    pub(crate) fn missed(&self, request: usize, words: &str) -> String {
        match self.shared.plan.listed.get(request) {
            Some(listed) => format!("{}: {words}", listed.label()),
            None => words.to_owned(),
        }
    }

    /// Records a counted request in the run's tables, if any. `done`: status and time of a complete response.
    pub(crate) fn break_down(
        &self,
        request: usize,
        due: Instant,
        done: Option<(u16, Duration)>,
        is_success: bool,
    ) {
        let start = self.begun.get().map_or(due, |(window, _)| window.start);
        let part = breakdown::TablePart {
            request,
            due: due.saturating_duration_since(start),
            status: done.map(|(status, _)| status),
            is_success,
        };
        let LoadShared { plan, targets, .. } = &*self.shared;
        self.record.borrow_mut().rows.record(&targets.tables, plan, part, done.map(|(_, time)| time));
    }

    /// Whether the run has tables, in which each request is recorded.
    pub(crate) fn has_tables(&self) -> bool {
        !self.shared.targets.tables.is_empty()
    }

    /// Usage of the server so far, if its process is known and this thread is the first.
    pub(crate) fn server_usage(&self) -> Option<Usage> {
        usage::usage_of(self.shared.plan.server_process.filter(|_| self.thread == 0)?)
    }

    pub(crate) fn is_gone(&self, vigil: &mut Vigil, now: Instant) -> bool {
        let (answered, failed) = self.record.borrow().answered_and_failed();
        let (count, age) = self.under_way.borrow().at(now);
        let oldest = (count > 0).then(|| now.checked_sub(age)).flatten();
        vigil.is_gone(answered, failed, oldest, now)
    }

    /// Publishes whether the server is gone for this thread. Returns whether it is gone for all.
    pub(crate) fn tell_gone(&self, is_gone: bool) -> bool {
        self.live[self.thread].is_gone.store(is_gone, Ordering::Relaxed);
        is_gone && self.live.iter().all(|live| live.is_gone.load(Ordering::Relaxed))
    }

    pub(crate) fn senders(&self) -> usize {
        senders(&self.shared.plan, self.thread)
    }

    /// Updates the counters of the live display.
    pub(crate) fn publish(&self) {
        let record = self.record.borrow();
        self.live[self.thread].requests.store(record.requests, Ordering::Relaxed);
        self.live[self.thread].errors.store(record.errors.total(), Ordering::Relaxed);
    }
}

/// Number of senders of a thread: one for each stream of each connection.
fn senders(plan: &LoadPlan, thread: usize) -> usize {
    share(plan.connections, thread, plan.threads) * plan.streams
}

/// Share of one of `parts` in `count` things.
fn share(count: usize, part: usize, parts: usize) -> usize {
    count / parts + usize::from(part < count % parts)
}
