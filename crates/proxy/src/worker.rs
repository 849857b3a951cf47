//! All that one core owns. Tasks of the worker share it by reference; nothing in it is seen by another thread but
//! the counters and the load.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use telemetry::{Counters, WorkerLog};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use wire::HeadLimits;

use crate::buffer::Buffers;
use crate::client::{self, Client};
use crate::deadline::{Deadlines, TICK, Ticks};
use crate::frames;
use crate::lane::Lanes;
use crate::listen;
use crate::plan::Plan;
use crate::relay::{MinimumRate, Pipes};
use crate::secure::Records;
use crate::tcp::Tcp;
use crate::upstream::{Addresses, Server, Upstream};

/// What a worker is told from outside.
pub(crate) enum Message {
    /// A connection that another worker had too many of, and the index of its listener.
    Connection(std::net::TcpStream, std::net::SocketAddr, usize),
    /// Finish what runs, take nothing new.
    Drain,
    /// End at once.
    Stop,
}

/// Whether new requests are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Draining,
}

/// How many connections each worker has: read by all, written by its own.
pub(crate) type Loads = Arc<[AtomicUsize]>;

/// What a worker is made of, sent to its thread.
pub(crate) struct Parts {
    pub(crate) index: usize,
    pub(crate) plan: Arc<Plan>,
    pub(crate) addresses: Vec<Vec<Addresses>>,
    pub(crate) listeners: Vec<std::net::TcpListener>,
    pub(crate) messages: UnboundedReceiver<Message>,
    pub(crate) others: Arc<[UnboundedSender<Message>]>,
    pub(crate) loads: Loads,
    pub(crate) log: Option<WorkerLog>,
    pub(crate) counters: Counters,
}

/// One core's share of the proxy.
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) plan: Arc<Plan>,
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) deadlines: Rc<Deadlines>,
    pub(crate) lanes: Lanes,
    pub(crate) buffers: Buffers,
    pub(crate) records: Rc<Records>,
    pub(crate) pipes: Pipes,
    pub(crate) frames: Rc<frames::Stock>,
    pub(crate) counters: Counters,
    pub(crate) log: Option<RefCell<WorkerLog>>,
    pub(crate) ticks: TimeoutTicks,
    pub(crate) head_limits: HeadLimits,
    pub(crate) minimum_rate: Option<MinimumRate>,
    pub(crate) state: Cell<State>,
    pub(crate) loads: Loads,
    pub(crate) others: Arc<[UnboundedSender<Message>]>,
    date: Cell<[u8; 29]>,
    wall_clock: Cell<SystemTime>,
    /// Told when the last connection has ended.
    is_empty: Notify,
    /// Told when a drain begins.
    drain_began: Notify,
}

/// The time-outs in ticks.
pub(crate) struct TimeoutTicks {
    pub(crate) client_header: Ticks,
    pub(crate) client_body: Ticks,
    pub(crate) client_write: Ticks,
    pub(crate) keep_alive: Ticks,
    pub(crate) upstream_connect: Ticks,
    pub(crate) upstream_first_byte: Ticks,
    pub(crate) upstream_body: Ticks,
    pub(crate) tunnel_idle: Ticks,
}

impl TimeoutTicks {
    fn new(timeouts: &config::Timeouts) -> Self {
        Self {
            client_header: timeouts.client_header.into(),
            client_body: timeouts.client_body.into(),
            client_write: timeouts.client_write.into(),
            keep_alive: timeouts.keep_alive.into(),
            upstream_connect: timeouts.upstream_connect.into(),
            upstream_first_byte: timeouts.upstream_first_byte.into(),
            upstream_body: timeouts.upstream_body.into(),
            tunnel_idle: timeouts.tunnel_idle.into(),
        }
    }
}

/// Runs a worker until it is stopped or drained: the body of its thread.
pub(crate) async fn run(parts: Parts) {
    let Parts { listeners, mut messages, .. } = parts;
    let config = &parts.plan.config;
    let limits = config.limits;
    let worker = Rc::new(Worker {
        index: parts.index,
        upstreams: config
            .upstreams
            .iter()
            .zip(&parts.addresses)
            .zip(&parts.plan.upstream_tls)
            .map(|((upstream, addresses), tls)| Upstream::new(upstream, addresses, tls.as_ref()))
            .collect(),
        deadlines: Deadlines::new(),
        lanes: Lanes::default(),
        buffers: Buffers::default(),
        records: Records::new(),
        pipes: Pipes::default(),
        frames: frames::Stock::new(),
        counters: parts.counters,
        log: parts.log.map(RefCell::new),
        ticks: TimeoutTicks::new(&config.timeouts),
        head_limits: HeadLimits {
            bytes: limits.header_bytes,
            fields: limits.header_count,
            target: limits.target_bytes,
        },
        minimum_rate: MinimumRate::new(&limits),
        state: Cell::new(State::Running),
        loads: parts.loads,
        others: parts.others,
        date: Cell::new([b' '; 29]),
        wall_clock: Cell::new(SystemTime::UNIX_EPOCH),
        is_empty: Notify::new(),
        drain_began: Notify::new(),
        plan: parts.plan,
    });
    worker.update_clock();
    tokio::task::spawn_local(tick(Rc::clone(&worker)));
    let accepting: Vec<_> = listeners
        .into_iter()
        .enumerate()
        .map(|(index, listener)| {
            tokio::task::spawn_local(listen::accept(Rc::clone(&worker), index, listener))
        })
        .collect();
    while let Some(message) = messages.recv().await {
        match message {
            Message::Connection(stream, peer, listener) => worker.begin(stream, peer, listener),
            Message::Stop => break,
            Message::Drain => {
                worker.begin_drain();
                // Each takes in what the kernel has accepted already, and ends.
                for task in accepting {
                    let _ = task.await;
                }
                worker.drained(&mut messages).await;
                break;
            }
        }
    }
    worker.end();
}

/// Ten times a second: what is due, what is idle for too long, the date, the log.
async fn tick(worker: Rc<Worker>) {
    let began = Instant::now();
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let ticks_per_second = (Duration::from_secs(1).as_millis() / TICK.as_millis()) as u32;
    loop {
        interval.tick().await;
        // 2^32 ticks are 13 years.
        let now = (began.elapsed().as_millis() / TICK.as_millis()) as u32;
        let before = worker.deadlines.now();
        worker.update_clock();
        worker.deadlines.advance(now);
        if now / ticks_per_second != before / ticks_per_second {
            for server in worker.upstreams.iter().flat_map(|upstream| &upstream.servers) {
                server.sweep(now);
            }
            let servers = worker.upstreams.iter().flat_map(|upstream| &upstream.servers);
            let open: usize = servers.map(Server::connections).sum();
            worker.counters.upstream_connections_active.set(open as u64);
        }
        if let Some(log) = &worker.log {
            log.borrow_mut().flush();
        }
    }
}

impl Worker {
    /// The value of Date, at most a tick old.
    pub(crate) fn date(&self) -> [u8; 29] {
        self.date.get()
    }

    /// The time of day, at most a tick old.
    pub(crate) fn wall_clock(&self) -> SystemTime {
        self.wall_clock.get()
    }

    /// The time for the log; without one nobody asks the kernel.
    pub(crate) fn clock(&self) -> Option<Instant> {
        self.log.is_some().then(Instant::now)
    }

    /// Client connections of all workers.
    pub(crate) fn connections_in_all(&self) -> usize {
        self.loads.iter().map(|load| load.load(Ordering::Relaxed)).sum()
    }

    fn own_load(&self) -> &AtomicUsize {
        &self.loads[self.index]
    }

    /// Starts serving a connection.
    pub(crate) fn begin(
        self: &Rc<Self>,
        stream: std::net::TcpStream,
        peer: std::net::SocketAddr,
        listener: usize,
    ) {
        self.counters.connections_accepted.increment();
        let load = self.own_load();
        // Only this thread writes it.
        load.store(load.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let client = Client::new(self, Tcp::new(stream), peer, listener);
        tokio::task::spawn_local(client::connection(Rc::clone(self), client));
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

    /// Returns once a drain has begun.
    pub(crate) async fn draining(&self) {
        while self.state.get() == State::Running {
            self.drain_began.notified().await;
        }
    }

    fn begin_drain(&self) {
        self.state.set(State::Draining);
        self.drain_began.notify_waiters();
        self.deadlines.expire_idle();
    }

    /// Waits until no connection is left, the deadline for draining has passed, or a stop is asked for.
    async fn drained(self: &Rc<Self>, messages: &mut UnboundedReceiver<Message>) {
        let deadline = tokio::time::sleep(self.plan.config.timeouts.drain);
        tokio::pin!(deadline);
        loop {
            if self.own_load().load(Ordering::Relaxed) == 0 {
                return;
            }
            tokio::select! {
                () = self.is_empty.notified() => {}
                () = &mut deadline => return,
                message = messages.recv() => match message {
                    // Handed over before the other worker drained as well.
                    Some(Message::Connection(stream, peer, listener)) => self.begin(stream, peer, listener),
                    Some(Message::Drain) => {}
                    Some(Message::Stop) | None => return,
                },
            }
        }
    }

    fn end(&self) {
        self.lanes.clear();
        if let Some(log) = &self.log {
            log.borrow_mut().flush();
        }
    }

    fn update_clock(&self) {
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
