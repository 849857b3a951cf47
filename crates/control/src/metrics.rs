//! The Prometheus metrics endpoint: its listener and its response. Workers count (see `telemetry::counters`). Sums
//! are computed on request, and every five seconds for the rates of the admin API. Labelled metrics are only
//! counted with an endpoint, an admin API or a cache.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use api::certificates::{CertificateSource, CertificateStatus};
use axum::Router;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use balance::{Flow, Time};
use telemetry::{
    AccessLog, CertificateSample, CounterPlaces, CounterReader, Counters, Directory, Exposition, History,
    HistorySample, MapSample, PlanNames, ProcessState, SAMPLE_PERIOD, SamplePoint, SeriesReader,
    ServerHealthSample, ServerState, SharedSample, Snapshot, Syntax, Totals,
};
use tokio::sync::mpsc::UnboundedSender;

use crate::acme;
use crate::admin::traffic::TrafficTotals;
use crate::change::Control;
use crate::control_listener::{ControlListener, PageAddress};
use crate::sources::Sources;
use crate::tick::tick;
use proxy::cache;
use proxy::context::plan::Plan;
use proxy::failure::Failure;

pub(crate) struct Metrics {
    directory: Mutex<Directory>,
    workers: usize,
    readers: Vec<CounterReader>,
    changes: Mutex<Counters>,
    log: Mutex<Logged>,
    pub(crate) listener: ControlListener<PageAddress>,
    pub(crate) sources: Sources,
    /// For the rates of the admin API.
    history: Mutex<History>,
}

/// The access log in use, with its lost lines.
#[derive(Default)]
struct Logged {
    log: Option<AccessLog>,
    /// Lost lines of earlier logs, because the counter must not decrease.
    dropped_before: u64,
}

impl Metrics {
    /// Creates metrics with a closed listener. `sockets` leads to the serving thread.
    pub(crate) fn new(
        mut readers: Vec<CounterReader>,
        series: Vec<SeriesReader>,
        sockets: UnboundedSender<Option<OwnedFd>>,
    ) -> Self {
        let changes = Counters::new();
        let workers = readers.len();
        readers.push(changes.reader());
        Self {
            directory: Mutex::new(Directory::new(series)),
            workers,
            readers,
            changes: Mutex::new(changes),
            log: Mutex::default(),
            listener: ControlListener::new(sockets),
            sources: Sources::default(),
            history: Mutex::default(),
        }
    }

    /// Sets the access log whose lost lines are exposed.
    pub(crate) fn tell_of(&self, log: Option<&AccessLog>) {
        lock(&self.log).log = log.cloned();
    }

    /// Adds the lost lines of an access log that is no longer in use.
    pub(crate) fn add_dropped(&self, lines: u64) {
        lock(&self.log).dropped_before += lines;
    }

    /// The number of lines that access logs lost; `None` without a log.
    pub(crate) fn log_lines_dropped(&self) -> Option<u64> {
        let Logged { log, dropped_before } = &*lock(&self.log);
        log.as_ref().map(|log| log.dropped() + dropped_before)
    }

    pub(crate) fn log_troubles(&self) -> Vec<String> {
        lock(&self.log).log.as_ref().map(AccessLog::troubles).unwrap_or_default()
    }

    pub(crate) fn counters(&self) -> Snapshot {
        Snapshot::sum(&self.readers)
    }

    pub(crate) fn changed(&self, is_taken_over: bool) {
        let changes = lock(&self.changes);
        let counter = if is_taken_over { &changes.reloads } else { &changes.reload_failures };
        counter.increment();
    }

    pub(crate) fn fetched_keys(&self, is_success: bool) {
        let changes = lock(&self.changes);
        let counter = if is_success { &changes.token_key_fetches } else { &changes.token_key_fetch_failures };
        counter.increment();
    }

    /// Counts spans as sent to a collector or as lost.
    pub(crate) fn sent_spans(&self, spans: u64, are_sent: bool) {
        let changes = lock(&self.changes);
        let counter = if are_sent { &changes.spans_sent } else { &changes.spans_refused };
        counter.add(spans);
    }

    /// Assigns places in the counters to the names of `plan`. `None` if they are not read: no metrics endpoint, no
    /// admin API and no cache.
    pub(crate) fn places(&self, plan: &Plan) -> Option<Arc<CounterPlaces>> {
        Self::counts(plan).then(|| lock(&self.directory).places(&names(plan)))
    }

    /// Whether counts by name are read.
    pub(crate) fn counts(plan: &Plan) -> bool {
        plan.config.is_measured() || plan.cache.is_some()
    }

    /// The bound address of the endpoint; `None` if it is closed.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.listener.lock().as_ref().map(|open| open.known)
    }

    pub(crate) fn totals(&self) -> Totals {
        lock(&self.directory).totals()
    }

    /// The traffic up to `now`, the time since the start.
    pub(crate) fn traffic(&self, now: Duration, totals: &Totals) -> TrafficTotals {
        let history = lock(&self.history);
        let (time, before) = match history.minute_ago(now) {
            Some((age, sample)) => (age, sample.clone()),
            // Since the start.
            None => (now, HistorySample::default()),
        };
        TrafficTotals { now: HistorySample::new(self.counters(), totals), before, time }
    }

    pub(crate) fn hour(&self) -> Vec<SamplePoint> {
        lock(&self.history).hour().copied().collect()
    }

    /// Records the current totals, for rates of the last minute. `is_wanted` is false without an admin API.
    fn sample(&self, now: Duration, is_wanted: bool) {
        if is_wanted {
            let sample = HistorySample::new(self.counters(), &self.totals());
            lock(&self.history).put(now, sample);
        } else {
            lock(&self.history).clear();
        }
    }

    fn page(
        &self,
        plan: &Plan,
        (certificates, shared): (&[CertificateSample], Option<SharedSample>),
        now: Time,
        syntax: Syntax,
    ) -> Vec<u8> {
        let totals = self.totals();
        let (misses, refusals) = (cache::miss_words(), cache::refusal_words());
        let exposition = Exposition {
            version: env!("CARGO_PKG_VERSION"),
            workers: self.workers,
            counters: &self.counters(),
            causes: Failure::WORDS,
            totals: &totals,
            standings: &standings(plan, now),
            cache: plan.cache.as_ref().map(|cache| cache.state(&misses, &refusals)),
            certificates,
            shared,
            maps: &map_samples(plan),
            sources: &self.sources.samples(plan),
            configuration: self.sources.configuration(),
            log_lines_dropped: self.log_lines_dropped(),
            process: ProcessState::now(),
        };
        exposition.write(syntax)
    }
}

/// No holder of a lock here can panic halfway through a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn names(plan: &Plan) -> PlanNames {
    let upstreams = plan.upstreams.iter().map(|upstream| {
        let servers = upstream.servers.iter().map(|server| server.label.as_str().into());
        (upstream.config.name.as_str().into(), servers.collect())
    });
    let listeners = plan.config.listeners.iter();
    let listeners = listeners.map(|listener| listener.tcp.as_ref().map(|_| listener.name.as_str().into()));
    PlanNames {
        listeners: listeners.collect(),
        routes: plan.routes.iter().map(|route| route.label.as_str().into()).collect(),
        upstreams: upstreams.collect(),
    }
}

fn standings(plan: &Plan, now: Time) -> Vec<ServerHealthSample> {
    let mut standings = Vec::new();
    for upstream in &plan.upstreams {
        let name: Arc<str> = upstream.config.name.as_str().into();
        let members = upstream.fleet.members().iter().enumerate();
        for (server, (index, member)) in upstream.servers.iter().zip(members) {
            let findings = upstream.watches[index].findings();
            standings.push(ServerHealthSample {
                upstream: Arc::clone(&name),
                server: server.label.as_str().into(),
                state: match member.health.state() {
                    balance::HealthState::Up => ServerState::Up,
                    balance::HealthState::Draining => ServerState::Draining,
                    balance::HealthState::Ejected => ServerState::Ejected,
                    balance::HealthState::Down => ServerState::Down,
                },
                is_circuit_open: upstream.fleet.flow(index, now) != Flow::Closed,
                requests_active: u64::from(member.health.in_flight()),
                ejections: findings.ejections,
                checks_passed: findings.checks - findings.failures,
                checks_failed: findings.failures,
            });
        }
    }
    standings
}

/// Samples the totals for the admin API, until the proxy ends. Without an admin API the rates are not needed.
pub(crate) async fn sample(control: Weak<Control>) {
    loop {
        tick(SAMPLE_PERIOD).await;
        let Some(control) = control.upgrade() else { return };
        control.metrics.sample(control.epoch.elapsed(), control.plan().config.is_watched());
    }
}

fn certificates(control: &Control) -> Vec<CertificateSample> {
    let statuses = crate::admin::certificates(control, acme::now()).into_iter();
    let sample = |status: CertificateStatus| CertificateSample {
        listener: status.listener,
        name: status.names.into_iter().next().unwrap_or_default(),
        source: match status.source {
            CertificateSource::File => "file",
            CertificateSource::Auto => "auto",
            CertificateSource::StandIn => "stand-in",
            CertificateSource::SelfSigned => "self-signed",
        },
        not_after_seconds: status.valid_until_seconds,
        renewal_failures: status.renewal.map(|renewal| renewal.failures),
    };
    statuses.map(sample).collect()
}

pub(crate) fn router(control: Weak<Control>) -> Router {
    Router::new()
        .route("/metrics", get(answer))
        .fallback(|| async { (StatusCode::NOT_FOUND, "The metrics are at /metrics.\n") })
        .with_state(control)
}

async fn answer(State(control): State<Weak<Control>>, headers: HeaderMap) -> Response {
    let Some(control) = control.upgrade() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "The proxy is ending.\n").into_response();
    };
    // RFC 9110 §5.3: several lines of a field are one list.
    let accept: Vec<&str> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let syntax = Syntax::accepted(&accept.join(","));
    let certificates = certificates(&control);
    let beside = (&certificates[..], control.shared.sample());
    let page = control.metrics.page(&control.plan(), beside, control.time(), syntax);
    ([(CONTENT_TYPE, syntax.content_type())], page).into_response()
}
fn map_samples(plan: &Plan) -> Vec<MapSample> {
    let sample =
        |(name, [hits, misses, entries]): (String, [u64; 3])| MapSample { name, hits, misses, entries };
    plan.maps.samples().into_iter().map(sample).collect()
}
