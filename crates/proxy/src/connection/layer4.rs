//! Layer 4: a client's connection is forwarded as it is. A server is picked as for a request, and bytes move both ways
//! until both sides have ended.
//!
//! The content is not examined. Such a connection outlives its listener and its plan.

use std::rc::Rc;
use std::time::{Duration, Instant};

use balance::Work;
use telemetry::{Entry, More, Places, Retried, UpstreamCell};

use crate::body::pump::Pump;
use crate::body::tunnel::{self, Flow};
use crate::context::client::Client;
use crate::context::client_tls::ClientTls;
use crate::context::explain;
use crate::context::failure::{Failure, Party};
use crate::context::record::Detours;
use crate::context::snapshot::Snapshot;
use crate::context::worker::Worker;
use crate::shaping::{Named, Place};
use crate::upstream::choose::Choice;
use crate::upstream::retry::{Attempts, Progress, Setback, Verdict, leave_aside};
use crate::upstream::{PickedServer, ServerConnection, Upstream};
use transport::buffer::TINY;

/// Serves a layer 4 connection until it has ended. TLS to the client, if configured, ends here.
pub(crate) async fn serve(worker: &Worker, client: Client, passed_on: PassedOn) {
    worker.counters.connections_passed_on.increment();
    let PassedOn { to, received, server_name } = passed_on;
    let mut note = Note { server_name, ..Note::new() };
    let (mut upward, mut downward) = (Pump::new(), Pump::new());
    let outcome = match connect(worker, &client, to.as_ref(), &mut note).await {
        Ok(connection) => {
            // Small ones, exchanged for others only while something is under way.
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
            let upstream = Named { name, index: 0 };
            let place = Place {
                worker,
                client: &client,
                address: client.address,
                is_for_client: true,
                route: None,
                upstream,
            };
            let limit = worker.snapshot().ticks.tunnel_idle;
            let outcome = tunnel::run(place, &connection.socket, limit, None, ways).await;
            if outcome.is_err() {
                // What one side has not ended itself must not look whole to the other.
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

/// A connection to one of the servers, unless too many are waited for already.
async fn connect(
    worker: &Worker,
    client: &Client,
    to: Option<&(usize, String)>,
    note: &mut Note,
) -> Result<Box<ServerConnection>, Failure> {
    if worker.is_short_of_memory_for(worker.counters.connections_active.value()) {
        note.detours.shed = Some("memory");
        return Err(Failure::ShortOfMemory);
    }
    let snapshot = worker.snapshot();
    let (place, upstream) = upstream(&snapshot, client, to).ok_or(Failure::NoServer)?;
    note.upstream = Some(Rc::clone(upstream));
    let admission = upstream.admit(worker).inspect_err(|_| note.detours.shed = Some("latency"))?;
    let counted = Counted { worker, places: snapshot.plan.places.as_deref(), upstream: place };
    let outcome = attempt(&counted, client, upstream, note).await;
    // How long it takes to be let in is all that is seen of how busy a server is.
    let work = match &outcome {
        Ok(_) => note.connect.map_or(Work::Other, |latency| Work::Done(Some(latency))),
        Err(Failure::UpstreamConnectTimeout | Failure::QueueTimeout) => Work::Overrun,
        Err(_) => Work::Other,
    };
    admission.end(work, worker.coarse_time());
    counted.waited(&note.detours);
    outcome
}

/// Tries servers: where one cannot be reached another one is tried, as often as for a request.
async fn attempt(
    counted: &Counted<'_>,
    client: &Client,
    upstream: &Rc<Upstream>,
    note: &mut Note,
) -> Result<Box<ServerConnection>, Failure> {
    let worker = counted.worker;
    let mut attempts = Attempts::of_connection(worker, upstream);
    let mut choice = Choice::of_connection(worker, client, upstream);
    let mut tried = Vec::new();
    loop {
        let last_failure = note.failed.last().map(|(_, failure)| *failure);
        // What the servers said that were asked tells more.
        let picked = match next(client, &mut choice, &tried, &mut note.detours).await {
            Ok(picked) => picked,
            Err(Failure::ClientGone) => return Err(Failure::ClientGone),
            Err(failure) => return Err(last_failure.unwrap_or(failure)),
        };
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
                // As far as can be seen, it has answered.
                upstream.answered(&picked, 200, Some(latency), worker.time_of(connected));
                choice.settle(&picked, None);
                connection.under_way = Some(picked.into_under_way());
                return Ok(connection);
            }
            Err(failure) => failure,
        };
        counted.failed(picked.server, failure);
        upstream.failed(worker, &picked, failure, failure.facts().party == Party::Upstream);
        note.failed.push((picked.server, failure));
        let progress = Progress::default();
        if attempts.after(Setback::Failed(failure, progress), true) == Verdict::GiveUp {
            return Err(failure);
        }
        leave_aside((upstream, &choice), &mut tried, picked.server, (failure, progress));
    }
}

/// The next server, for which the client waits if none has room.
async fn next(
    client: &Client,
    choice: &mut Choice<'_>,
    tried: &[usize],
    detours: &mut Detours,
) -> Result<PickedServer, Failure> {
    if let Some(picked) = choice.at_once(tried, detours) {
        return Ok(picked);
    }
    let picked = choice.next(tried, detours).await?;
    // As for requests: where others wait, half a close counts as a close, so that no server is held for nobody.
    if client.socket.has_peer_closed() {
        choice.give_back(&picked);
        return Err(Failure::ClientGone);
    }
    Ok(picked)
}

/// Where what happens is counted, also by name if anybody wants to know.
struct Counted<'a> {
    worker: &'a Worker,
    places: Option<&'a Places>,
    /// Index of the upstream.
    upstream: usize,
}

impl Counted<'_> {
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

    /// Another attempt follows one that failed like this.
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

    fn cell(&self) -> Option<(&Places, &UpstreamCell)> {
        let places = self.places?;
        Some((places, self.worker.series.upstream(places.upstream(self.upstream))))
    }
}

/// Where a connection goes: `to`, or where connections of its listener go now, or went when it was listened on last.
fn upstream<'a>(
    snapshot: &'a Snapshot,
    client: &Client,
    to: Option<&(usize, String)>,
) -> Option<(usize, &'a Rc<Upstream>)> {
    let (place, name) = to.or(snapshot.listener(&client.listening).passes_on.as_ref())?;
    let has_name = |upstream: &&Rc<Upstream>| upstream.plan.config.name == *name;
    let upstreams = &snapshot.upstreams;
    match upstreams.get(*place).filter(has_name) {
        Some(upstream) => Some((*place, upstream)),
        None => upstreams.iter().enumerate().find(|(_, upstream)| has_name(upstream)),
    }
}

/// A connection that is passed on by what its client has sent first.
#[derive(Default)]
pub(crate) struct PassedOn {
    /// Index and name of the upstream; `None` means that of the listener.
    pub(crate) to: Option<(usize, String)>,
    /// What was received of the client already.
    pub(crate) received: Vec<u8>,
    /// The server name that it asked for (SNI).
    pub(crate) server_name: Option<Box<str>>,
}

/// What is noted for the log.
struct Note {
    began: Instant,
    /// The server name that the client asked for, where its TLS is passed on.
    server_name: Option<Box<str>>,
    upstream: Option<Rc<Upstream>>,
    /// The one that it is connected to.
    server: Option<usize>,
    connect: Option<Duration>,
    detours: Detours,
    /// Servers that could not be reached, and why.
    failed: Vec<(usize, Failure)>,
}

impl Note {
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

    /// The connection has ended, after as many bytes to the server and to the client.
    fn finish(&self, worker: &Worker, client: &Client, [up, down]: [u64; 2], failure: Option<Failure>) {
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
            // The listener may be gone by now, and the plan that the connection began under is.
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
        client: &Client,
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
        // The last one that failed was followed by none, unless a server was reached.
        let last_failed = self.failed.last().map(|(server, _)| *server);
        let retries = if self.server.is_some() { retried.len() } else { retried.len().saturating_sub(1) };
        let detail = failure.and_then(|failure| {
            let upstream = self.upstream.as_ref().map(|upstream| &upstream.plan.config);
            explain::over_connection(&worker.snapshot().plan.config, upstream, failure)
        });
        let passed_on = || telemetry::ClientTls {
            server_name: self.server_name.as_deref().unwrap_or_default(),
            ..telemetry::ClientTls::default()
        };
        let tls = client.tls.as_deref().map_or_else(passed_on, ClientTls::entry);
        let entry = Entry {
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
            ..Entry::new(client.address)
        };
        log.record(&entry, worker.wall_clock_at(self.began + duration));
    }
}
