//! A client's connection that is passed on as it is (layer 4): a server is picked for it as for a request, and bytes
//! move both ways until both sides have ended.
//!
//! What is inside is not looked at. Such a connection outlives the listener that it came to, and the plan.

use std::rc::Rc;
use std::time::{Duration, Instant};

use balance::{Ask, Parts, Pick, SessionKey};
use telemetry::{Entry, Retried};

use crate::buffer::TINY;
use crate::client::Client;
use crate::failure::{Failure, Party};
use crate::plan::Stickiness;
use crate::relay::Pump;
use crate::retry::ATTEMPTS_MAX;
use crate::tunnel::{self, Way};
use crate::upstream::{Asked, Connection, UnderWay, Upstream};
use crate::worker::Worker;

/// Serves a connection until it has ended. Its TLS, if there is any, ends here.
pub(crate) async fn serve(worker: &Worker, client: Client) {
    worker.counters.connections_passed_on.increment();
    let mut note = Note::new();
    let (mut upward, mut downward) = (Pump::new(), Pump::new());
    let outcome = match connect(worker, &client, &mut note).await {
        Ok((connection, _under_way)) => {
            // Small ones, exchanged for others only while something is under way.
            let mut buffers = [worker.buffers.take(TINY), worker.buffers.take(TINY)];
            let [up, down] = &mut buffers;
            let ways = [Way { body: &mut upward, buffer: up }, Way { body: &mut downward, buffer: down }];
            let limit = worker.snapshot().ticks.tunnel_idle;
            let outcome = tunnel::run(worker, &client, &connection.socket, limit, ways).await;
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

/// A connection to one of the servers: where one cannot be reached, another is tried, as often as for a request.
async fn connect(
    worker: &Worker,
    client: &Client,
    note: &mut Note,
) -> Result<(Connection, UnderWay), Failure> {
    let upstream = upstream(worker, client).ok_or(Failure::NoServer)?;
    note.upstream = Some(Rc::clone(&upstream));
    let rules = &upstream.plan.config.retry;
    let began = worker.coarse_time();
    upstream.budget.borrow_mut().request(began);
    let choice = Choice::new(worker, client, &upstream);
    loop {
        let last_failure = note.failed.last().map(|(_, failure)| *failure);
        // What the servers said that were asked tells more.
        let asked = choice.next(&note.failed).await.map_err(|failure| last_failure.unwrap_or(failure))?;
        let failure = match upstream.servers[asked.server].connect(worker, client).await {
            Ok(connection) => {
                worker.counters.upstream_connects.increment();
                note.server = Some(asked.server);
                note.connect = Some(asked.since.elapsed());
                // As far as can be seen, it has answered.
                let connected = Instant::now();
                let latency = connected.duration_since(asked.since);
                upstream.answered(&asked, 200, latency, worker.time_of(connected));
                choice.settle(asked.server);
                return Ok((connection, asked.into_under_way()));
            }
            Err(failure) => failure,
        };
        worker.counters.upstream_connect_failures.increment();
        upstream.failed(worker, &asked, failure.facts().party == Party::Upstream);
        note.failed.push((asked.server, failure));
        let now = worker.coarse_time();
        let may_go_on = rules.on.connect
            && failure.facts().party == Party::Upstream
            && note.failed.len() < (rules.attempts as usize).min(ATTEMPTS_MAX)
            && now.since(began) <= rules.within
            && upstream.budget.borrow_mut().retry(now, &upstream.plan.reserve);
        if !may_go_on {
            return Err(failure);
        }
        worker.counters.retry(failure as usize);
    }
}

/// The choice of servers for one connection: by nothing but its client's address.
struct Choice<'a> {
    worker: &'a Worker,
    client: &'a Client,
    upstream: &'a Rc<Upstream>,
    /// For policies that hash.
    key: Option<u64>,
    session: Option<(SessionKey, &'a balance::Sessions)>,
}

impl<'a> Choice<'a> {
    fn new(worker: &'a Worker, client: &'a Client, upstream: &'a Rc<Upstream>) -> Self {
        let plan = &upstream.plan;
        let parts = Parts { client: client.address, path: b"", query: None, fields: &NoFields };
        let hash = |name: &[u8]| balance::Secret::default().hash(name);
        let key = plan.fleet.hashes().then(|| plan.config.hash_key.session(&parts, hash)).flatten();
        let session = match plan.stickiness.as_deref() {
            Some(Stickiness::Table { source, sessions, .. }) => {
                source.session(&parts, |name| sessions.key(name)).map(|key| (key, sessions))
            }
            // No cookie can be set here.
            Some(Stickiness::Cookie(..)) | None => None,
        };
        Self { worker, client, upstream, key, session }
    }

    /// The next server, which has the connection under way from now on; waits for one with room.
    async fn next(&self, failed: &[(usize, Failure)]) -> Result<Asked, Failure> {
        let tried: Vec<usize> = failed.iter().map(|(server, _)| *server).collect();
        let mut waits_until = None;
        loop {
            // Who came first is served first.
            let is_behind = waits_until.is_none() && self.upstream.has_queue();
            let (found, is_last_resort) = if is_behind { (Pick::Full, false) } else { self.pick(&tried) };
            match found {
                // Other workers ask it as well: it may have become full since.
                Pick::Server(server) => {
                    if let Some(mut asked) = self.upstream.begin(server) {
                        asked.is_last_resort = is_last_resort;
                        return Ok(asked);
                    }
                }
                Pick::None => return Err(Failure::NoServer),
                Pick::Full => {
                    self.upstream.wait(self.worker, &self.client.deadline, &mut waits_until).await?;
                }
            }
        }
    }

    /// The server of its session, else the policy's; and whether that one is asked for want of another.
    fn pick(&self, tried: &[usize]) -> (Pick, bool) {
        let ask = Ask { now: self.worker.coarse_time(), random: fastrand::u64(..), key: self.key, tried };
        let mut picker = self.upstream.picker.borrow_mut();
        let server = self.session.and_then(|(key, sessions)| sessions.find(key, ask.now));
        if let Some(Ok(server)) = server.map(|server| picker.follow(server, &ask)) {
            return (Pick::Server(server), false);
        }
        match picker.pick(&ask) {
            Pick::None if !tried.is_empty() => {
                (picker.last_resort(&ask).map_or(Pick::None, Pick::Server), true)
            }
            picked => (picked, false),
        }
    }

    /// It is connected to this one, and its session stays there.
    fn settle(&self, server: usize) {
        if let Some((key, sessions)) = self.session {
            sessions.bind(key, self.upstream.plan.fleet.members()[server].id, self.worker.coarse_time());
        }
    }
}

/// Nothing of what a request has.
struct NoFields;

impl balance::Fields for NoFields {
    fn values<'a>(&'a self, _: &'a str) -> impl Iterator<Item = &'a [u8]> {
        std::iter::empty()
    }
}

/// Where connections of its listener go now, or went when it was listened on last.
fn upstream(worker: &Worker, client: &Client) -> Option<Rc<Upstream>> {
    let snapshot = worker.snapshot();
    let (place, name) = snapshot.listener(&client.listening).passes_on.as_ref()?;
    let has_name = |upstream: &&Rc<Upstream>| upstream.plan.config.name == *name;
    let upstreams = &snapshot.upstreams;
    upstreams.get(*place).filter(has_name).or_else(|| upstreams.iter().find(has_name)).cloned()
}

/// What is noted for the log.
struct Note {
    began: Instant,
    upstream: Option<Rc<Upstream>>,
    /// The one that it is connected to.
    server: Option<usize>,
    connect: Option<Duration>,
    /// Servers that could not be reached, and why.
    failed: Vec<(usize, Failure)>,
}

impl Note {
    fn new() -> Self {
        Self { began: Instant::now(), upstream: None, server: None, connect: None, failed: Vec::new() }
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
        }
        let mut log = worker.log.borrow_mut();
        let Some(log) = log.as_mut() else { return };
        let duration = self.began.elapsed();
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
        let entry = Entry {
            body_bytes_sent: down,
            bytes_received: up,
            upstream: self.upstream.as_ref().map(|upstream| upstream.plan.config.name.as_str()),
            server: self.server.or(last_failed).map(label),
            duration,
            upstream_connect: self.connect,
            retries: retries as u8,
            retried: &retried[..retries],
            cause: failure.map(|failure| failure.facts().word),
            ..Entry::new(client.address)
        };
        log.record(&entry, worker.wall_clock());
    }
}
