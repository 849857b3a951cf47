//! Layer 4: forwards a client's connection as bytes. A server is picked as for a request, and bytes move both ways
//! until both sides have ended.
//!
//! The content is not examined. Such a connection may outlive its listener and its plan.

use std::rc::Rc;
use std::time::{Duration, Instant};

use balance::Work;
use telemetry::{CounterPlaces, LogEntry, More, Retried, UpstreamCell};

use crate::body::pump::Pump;
use crate::context::client::FrontConnection;
use crate::context::client_tls::ClientTls;
use crate::context::snapshot::Snapshot;
use crate::context::worker::Worker;
use crate::failure::{Failure, Party};
use crate::forward::choose::Choice;
use crate::forward::retry::{AttemptProgress, Attempts, RetryVerdict, Setback, leave_aside};
use crate::forward::tunnel::{self, Flow, Parties};
use crate::record::Detours;
use crate::record::explain;
use crate::shaping::{LimitedRequest, NamedPart};
use crate::upstream::{PickedServer, ServerConnection, WorkerUpstream};
use transport::buffer::TINY;

/// Serves a layer 4 connection until it has ended, as part of the connection's task. TLS from the client, if
/// configured, ends here.
pub(crate) async fn serve(worker: &Worker, client: FrontConnection, passed_on: PassedOn) {
    worker.counters.connections_passed_on.increment();
    let PassedOn { to, received, server_name } = passed_on;
    let mut note = Layer4Note { server_name, ..Layer4Note::new() };
    let (mut upward, mut downward) = (Pump::new(), Pump::new());
    let outcome = match connect(worker, &client, to.as_ref(), &mut note).await {
        Ok(connection) => {
            // Small buffers, exchanged for larger ones only while data moves.
            let mut buffers = [worker.buffers.take(TINY), worker.buffers.take(TINY)];
            let [up, down] = &mut buffers;
            if !received.is_empty() {
                worker.buffers.fit(up, received.len());
                worker.buffers.ready(up);
                up.spare()[..received.len()].copy_from_slice(&received);
                up.advance(received.len());
                drop(received);
            }
            let ways = [Flow { body: &mut upward, buffer: up }, Flow { body: &mut downward, buffer: down }];
            let name = note.upstream.as_ref().map_or("", |upstream| upstream.plan.config.name.as_str());
            let upstream = NamedPart { name, index: 0 };
            let place = LimitedRequest {
                shaper: &worker.shaper,
                holding: &worker.holding,
                listening: &client.listening,
                totals: &client.totals,
                address: client.address,
                is_for_client: true,
                route: None,
                upstream,
            };
            let limit = worker.snapshot().ticks.tunnel_idle;
            let server = &connection.socket;
            let parties = Parties { worker, client: &client, server, place, arrivals: None };
            let outcome = tunnel::run(parties, limit, ways).await;
            if outcome.is_err() {
                // A connection that one side has not ended properly must not look complete to the other.
                connection.socket.reset_on_drop();
            }
            outcome
        }
        Err(failure) => Err(failure),
    };
    if outcome.is_err() {
        client.socket.reset_on_drop();
    }
    note.finish(worker, &client, [upward.moved, downward.moved], outcome.err());
}

/// Connects to a server, unless too many connections wait already.
async fn connect(
    worker: &Worker,
    client: &FrontConnection,
    to: Option<&(usize, String)>,
    note: &mut Layer4Note,
) -> Result<Box<ServerConnection>, Failure> {
    if worker.is_short_of_memory_for(worker.counters.connections_active.value()) {
        note.detours.shed = Some("memory");
        return Err(Failure::ShortOfMemory);
    }
    let snapshot = worker.snapshot();
    let (place, upstream) = upstream(&snapshot, client, to).ok_or(Failure::NoServer)?;
    note.upstream = Some(Rc::clone(upstream));
    let admission =
        upstream.admit(worker.coarse_time()).inspect_err(|_| note.detours.shed = Some("latency"))?;
    let counted = Layer4Counters { worker, places: snapshot.plan.places.as_deref(), upstream: place };
    let outcome = attempt(&counted, client, upstream, note).await;
    // For the adaptive limit, the time to connect is the only sign of how busy a server is.
    let work = match &outcome {
        Ok(_) => note.connect.map_or(Work::Other, |latency| Work::Done(Some(latency))),
        Err(Failure::UpstreamConnectTimeout | Failure::QueueTimeout) => Work::Overrun,
        Err(_) => Work::Other,
    };
    admission.end(work, worker.coarse_time());
    counted.waited(&note.detours);
    outcome
}

/// Connects to servers in turn, with as many retries as for a request.
async fn attempt(
    counted: &Layer4Counters<'_>,
    client: &FrontConnection,
    upstream: &Rc<WorkerUpstream>,
    note: &mut Layer4Note,
) -> Result<Box<ServerConnection>, Failure> {
    let worker = counted.worker;
    let mut attempts = Attempts::of_connection(worker, upstream);
    let mut choice = Choice::of_connection(worker, client, upstream);
    let mut tried = Vec::new();
    loop {
        let last_failure = note.failed.last().map(|(_, failure)| *failure);
        // The last server's failure says more than the lack of another one.
        let picked = match next(client, &mut choice, &tried, &mut note.detours).await {
            Ok(picked) => picked,
            Err(Failure::ClientGone) => return Err(Failure::ClientGone),
            Err(failure) => return Err(last_failure.unwrap_or(failure)),
        };
        // Counted when another attempt begins, so the last failure is no retry.
        if let Some(failure) = last_failure {
            counted.retried(failure);
        }
        let connecting = Instant::now();
        let failure = match upstream.servers[picked.server].connect(worker, client).await {
            Ok(mut connection) => {
                let connected = Instant::now();
                let latency = connected.duration_since(connecting);
                note.server = Some(picked.server);
                note.connect = Some(latency);
                counted.connected(picked.server, latency);
                // A connection counts as an answer for the server's health.
                upstream.answered(&picked, 200, Some(latency), worker.time_of(connected));
                choice.settle(&picked, None);
                connection.under_way = Some(picked.into_under_way());
                return Ok(connection);
            }
            Err(failure) => failure,
        };
        counted.failed(picked.server, failure);
        if failure.facts().party == Party::Upstream {
            let why = upstream.servers[picked.server].trouble();
            upstream.failed(&picked, failure, why, worker.coarse_time());
        } else {
            upstream.abandoned(&picked, failure, worker.coarse_time());
        }
        note.failed.push((picked.server, failure));
        // No server has seen a byte from the client, so any failure may be retried.
        let progress = AttemptProgress::default();
        if attempts.after(Setback::Failed(failure, progress), true) == RetryVerdict::GiveUp {
            return Err(failure);
        }
        leave_aside(&attempts, &choice, &mut tried, picked.server, failure, progress);
    }
}

/// Picks the next server. The client waits if all are at their limit.
async fn next(
    client: &FrontConnection,
    choice: &mut Choice<'_>,
    tried: &[usize],
    detours: &mut Detours,
) -> Result<PickedServer, Failure> {
    // A connection that need not wait is not checked for a close, which would be a system call.
    if let Some(picked) = choice.at_once(tried, detours) {
        return Ok(picked);
    }
    let picked = choice.next(tried, detours).await?;
    // As for requests: while others wait, a half-closed client counts as gone, so that it does not occupy a server.
    if client.socket.has_peer_closed() {
        choice.give_back(&picked);
        return Err(Failure::ClientGone);
    }
    Ok(picked)
}

/// Counts events of the connection, also by upstream and server if metrics are wanted.
struct Layer4Counters<'a> {
    worker: &'a Worker,
    places: Option<&'a CounterPlaces>,
    upstream: usize,
}

impl Layer4Counters<'_> {
    fn connected(&self, server: usize, duration: Duration) {
        if let Some((places, upstream)) = self.cell() {
            upstream.connect.observe(duration);
            let server = self.worker.series.server(places.server(self.upstream, server));
            server.connections_passed_on.increment();
        }
    }

    fn failed(&self, server: usize, failure: Failure) {
        if let Some((places, upstream)) = self.cell() {
            upstream.failures.count(failure as usize);
            self.worker.series.server(places.server(self.upstream, server)).requests.count(0);
        }
    }

    /// Counts the retry after a failed attempt.
    fn retried(&self, failure: Failure) {
        self.worker.counters.retry(failure as usize);
        if let Some((_, upstream)) = self.cell() {
            upstream.retries.count(failure as usize);
        }
    }

    fn waited(&self, detours: &Detours) {
        if let (Some((_, upstream)), Some(duration)) = (self.cell(), detours.queued) {
            upstream.queue.observe(duration);
        }
    }

    fn cell(&self) -> Option<(&CounterPlaces, &UpstreamCell)> {
        let places = self.places?;
        Some((places, self.worker.series.upstream(places.upstream(self.upstream))))
    }
}

/// Returns the upstream of a connection: `to`, or one of the listener's by weight.
fn upstream<'a>(
    snapshot: &'a Snapshot,
    client: &FrontConnection,
    to: Option<&(usize, String)>,
) -> Option<(usize, &'a Rc<WorkerUpstream>)> {
    let shares = || snapshot.listener(&client.listening).passes_on.as_ref()?.draw(fastrand::u64(..));
    let (place, name) = to.or_else(shares)?;
    // The index is from the plan under which the connection began. A reload may have moved the upstream.
    let has_name = |upstream: &&Rc<WorkerUpstream>| upstream.plan.config.name == *name;
    let upstreams = &snapshot.upstreams;
    match upstreams.get(*place).filter(has_name) {
        Some(upstream) => Some((*place, upstream)),
        None => upstreams.iter().enumerate().find(|(_, upstream)| has_name(upstream)),
    }
}

/// A layer 4 connection, with what its client has sent so far.
#[derive(Default)]
pub(crate) struct PassedOn {
    /// Index and name of the upstream; `None` means the listener's.
    pub(crate) to: Option<(usize, String)>,
    /// Bytes already read from the client.
    pub(crate) received: Vec<u8>,
    /// The requested server name (SNI).
    pub(crate) server_name: Option<Box<str>>,
}

struct Layer4Note {
    began: Instant,
    /// The requested server name, where TLS is passed on.
    server_name: Option<Box<str>>,
    upstream: Option<Rc<WorkerUpstream>>,
    server: Option<usize>,
    connect: Option<Duration>,
    detours: Detours,
    /// Servers that could not be reached, with the failure.
    failed: Vec<(usize, Failure)>,
}

impl Layer4Note {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            server_name: None,
            upstream: None,
            server: None,
            connect: None,
            detours: Detours::default(),
            failed: Vec::new(),
        }
    }

    /// Counts and logs a connection that has ended. The numbers are bytes to the server and to the client.
    fn finish(
        &self,
        worker: &Worker,
        client: &FrontConnection,
        [up, down]: [u64; 2],
        failure: Option<Failure>,
    ) {
        let counters = &worker.counters;
        counters.client_bytes_received.add(up);
        counters.upstream_bytes_sent.add(up);
        counters.upstream_bytes_received.add(down);
        counters.client_bytes_sent.add(down);
        if let Some(failure) = failure {
            counters.failure(failure as usize);
            if self.detours.shed.is_some() {
                counters.requests_shed.increment();
            }
        }
        let duration = self.began.elapsed();
        let snapshot = worker.snapshot();
        if let Some(places) = snapshot.plan.places.as_deref() {
            // The listener and the plan under which the connection began may be gone, so their current places are
            // looked up.
            let cell = worker.series.listener(places.listener(client.listening.place()));
            cell.connections.increment();
            if let Some(failure) = failure {
                cell.failures.count(failure as usize);
            }
            cell.duration.observe(duration);
            cell.bytes_received.add(up);
            cell.bytes_sent.add(down);
        }
        self.log(worker, client, [up, down], duration, failure);
    }

    fn log(
        &self,
        worker: &Worker,
        client: &FrontConnection,
        [up, down]: [u64; 2],
        duration: Duration,
        failure: Option<Failure>,
    ) {
        let mut log = worker.log.borrow_mut();
        let Some(log) = log.as_mut() else { return };
        let label = |server: usize| {
            self.upstream.as_ref().map_or("", |upstream| upstream.plan.servers[server].label.as_str())
        };
        let retried = |(server, failure): &(usize, Failure)| Retried {
            server: label(*server),
            cause: failure.facts().word,
        };
        let retried: Vec<Retried<'_>> = self.failed.iter().map(retried).collect();
        // No retry followed the last failure, unless a server was reached.
        let last_failed = self.failed.last().map(|(server, _)| *server);
        let retries = if self.server.is_some() { retried.len() } else { retried.len().saturating_sub(1) };
        let detail = failure.and_then(|failure| {
            let upstream = self.upstream.as_ref().map(|upstream| &*upstream.plan.config);
            let server = self.upstream.as_ref().zip(self.server.or(last_failed));
            let trouble = server.and_then(|(upstream, server)| upstream.servers[server].trouble());
            explain::over_connection(&worker.snapshot().plan.config, upstream, trouble, failure)
        });
        let passed_on = || telemetry::LoggedTls {
            server_name: self.server_name.as_deref().unwrap_or_default(),
            ..telemetry::LoggedTls::default()
        };
        let tls = client.tls.as_deref().map_or_else(passed_on, ClientTls::entry);
        let entry = LogEntry {
            body_bytes_sent: down,
            bytes_received: up,
            upstream: self.upstream.as_ref().map(|upstream| upstream.plan.config.name.as_str()),
            server: self.server.or(last_failed).map(label),
            duration,
            retries: retries as u8,
            cause: failure.map(|failure| failure.facts().word),
            detail: detail.as_deref(),
            more: &More {
                tls,
                upstream_connect: self.connect,
                retried: &retried[..retries],
                queued: self.detours.queued,
                session_moved: self.detours.session_moved.map(|(reason, from)| (reason, from.map(label))),
                shed: self.detours.shed,
                ..More::NONE
            },
            ..LogEntry::new(client.address)
        };
        log.record(&entry, worker.wall_clock_at(self.began + duration));
    }
}
