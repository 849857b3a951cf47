//! All metrics as text for Prometheus: defines the families.
//!
//! The number of series is bounded: routes, listeners and servers by `NAMED_MAX`, the rest by tables. A histogram is
//! written once it has an observation, causes of an upstream once they occurred; other series exist from the start.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::beside;
use crate::cached::CacheState;
use crate::certificates::{self, CertificateSample};
use crate::counters::{Causes, MetricKind, Snapshot};
use crate::directory::{NAMED_MAX, Totals};
use crate::exemplars::Exemplars;
use crate::histogram::Histogram;
use crate::maps::{self, MapSample};
use crate::process::ProcessState;
use crate::series::{Classes, ServerCell, StreamCell, StreamKind, UpstreamCell};
use crate::shared::{self, SharedSample};
use crate::sources::{self, ConfigurationSample, SourceSample};
use crate::text::{Family, Label, MetricsText, Syntax, Type};

/// The data of all metrics.
pub struct Exposition<'e> {
    /// The version of the program.
    pub version: &'e str,
    pub workers: usize,
    /// The sums of the workers' counters.
    pub counters: &'e Snapshot,
    /// The log words of causes, by index.
    pub causes: &'e [&'e str],
    /// The workers' totals by route, listener, upstream and server.
    pub totals: &'e Totals,
    pub standings: &'e [ServerHealthSample],
    pub cache: Option<CacheState<'e>>,
    pub certificates: &'e [CertificateSample],
    /// Sharing through Redis, if it is configured.
    pub shared: Option<SharedSample>,
    pub maps: &'e [MapSample],
    /// The sources of servers that are in use.
    pub sources: &'e [SourceSample],
    /// The shared configuration, if there is one.
    pub configuration: Option<ConfigurationSample>,
    /// The number of lines that the access log lost, if there is a log.
    pub log_lines_dropped: Option<u64>,
    /// Facts about the process, if the system provides them.
    pub process: Option<ProcessState>,
}

/// The current state of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerHealthSample {
    pub upstream: Arc<str>,
    pub server: Arc<str>,
    pub state: ServerState,
    /// Whether the server's circuit is open: it lets no request through, or only a probe.
    pub is_circuit_open: bool,
    /// Requests in progress on the server.
    pub requests_active: u64,
    /// The number of ejections, for any reason.
    pub ejections: u64,
    /// Successful active health checks.
    pub checks_passed: u64,
    /// Failed active health checks.
    pub checks_failed: u64,
}

/// Whether a server gets requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    Up,
    /// The server gets only requests of its existing sessions.
    Draining,
    /// The server gets no requests until its ejection ends.
    Ejected,
    /// The server gets no requests until health checks succeed.
    Down,
}

impl ServerState {
    const ALL: [(Self, &'static str); 4] =
        [(Self::Up, "up"), (Self::Draining, "draining"), (Self::Ejected, "ejected"), (Self::Down, "down")];
}

impl Exposition<'_> {
    #[must_use]
    pub fn write(&self, syntax: Syntax) -> Vec<u8> {
        let mut text = MetricsText::new(syntax);
        self.routes(&mut text);
        self.streams(&mut text);
        beside::write(self.totals, self.causes, &mut text);
        self.listeners(&mut text);
        self.causes(&mut text);
        self.counters(&mut text);
        self.upstreams(&mut text);
        self.server_requests(&mut text);
        self.server_events(&mut text);
        self.standings(&mut text);
        if let Some(cache) = &self.cache {
            cache.write(self.totals, &mut text);
        }
        certificates::write(self.certificates, &mut text);
        if let Some(sample) = &self.shared {
            shared::write(sample, &mut text);
        }
        maps::write(self.maps, &mut text);
        sources::write(self.sources, self.configuration.as_ref(), &mut text);
        self.program(&mut text);
        if let Some(process) = self.process {
            write_process(&process, &mut text);
        }
        text.finish()
    }

    fn routes(&self, text: &mut MetricsText) {
        let help = "Requests that ended, by route and class of the status that the client got.";
        let mut family = text.family("vanward_requests", Type::Counter, help);
        for (route, cell) in &self.totals.routes {
            for (class, count) in Classes::NAMES.into_iter().zip(cell.requests.values()) {
                family.sample(&[("route", route), ("class", class)], count);
            }
        }
        let help = "Time from the first byte of a request to the last byte of its response.";
        let mut family = text.family("vanward_request_duration_seconds", Type::Histogram, help);
        for (route, cell) in &self.totals.routes {
            if cell.duration.is_used() {
                let exemplars = cell.exemplars.look().map(Exemplars::values).unwrap_or_default();
                family.histogram_with(&[("route", route)], &cell.duration, &exemplars);
            }
        }
        let help = "Part of a request's duration in which it waited neither for its client nor for a server.";
        let mut family = text.family("vanward_request_held_seconds", Type::Histogram, help);
        for (route, cell) in &self.totals.routes {
            if cell.held.is_used() {
                family.histogram(&[("route", route)], &cell.held);
            }
        }
    }

    fn streams(&self, text: &mut MetricsText) {
        let help = "Time from the first byte of a request to the first byte of the stream that answers it.";
        let family = text.family("vanward_stream_first_byte_seconds", Type::Histogram, help);
        self.durations_of_streams(family, |cell| &cell.first_byte);
        let help = "The longest silence of the server on a stream, recorded when the stream ends.";
        let family = text.family("vanward_stream_longest_gap_seconds", Type::Histogram, help);
        self.durations_of_streams(family, |cell| &cell.longest_gap);
    }

    fn durations_of_streams(&self, mut family: Family<'_>, of: impl Fn(&StreamCell) -> &Histogram) {
        for (route, cell) in &self.totals.routes {
            for ((_, kind), stream) in StreamKind::NAMED.into_iter().zip(&cell.streams) {
                if let Some(histogram) = stream.look().map(&of).filter(|histogram| histogram.is_used()) {
                    family.histogram(&[("route", route), ("kind", kind)], histogram);
                }
            }
        }
    }

    fn listeners(&self, text: &mut MetricsText) {
        let help = "Connections that were passed on and have ended, by listener.";
        let mut family = text.family("vanward_listener_connections", Type::Counter, help);
        for (listener, cell) in &self.totals.listeners {
            family.sample(&[("listener", listener)], cell.connections.value());
        }
        let help = "Passed-on connections that failed, by cause.";
        let mut family = text.family("vanward_listener_failures", Type::Counter, help);
        for (listener, cell) in &self.totals.listeners {
            let counts = self.causes.iter().zip(cell.failures.values());
            for (cause, count) in counts.filter(|(_, count)| *count > 0) {
                family.sample(&[("listener", listener), ("cause", cause)], count);
            }
        }
        let help = "Duration of connections that were passed on.";
        let mut family = text.family("vanward_listener_connection_duration_seconds", Type::Histogram, help);
        for (listener, cell) in &self.totals.listeners {
            if cell.duration.is_used() {
                family.histogram(&[("listener", listener)], &cell.duration);
            }
        }
        let help = "Bytes of passed-on connections, from clients and to them, counted when they end.";
        let mut family = text.family("vanward_listener_bytes", Type::Counter, help);
        for (listener, cell) in &self.totals.listeners {
            for (direction, count) in [("received", &cell.bytes_received), ("sent", &cell.bytes_sent)] {
                family.sample(&[("listener", listener), ("direction", direction)], count.value());
            }
        }
    }

    fn causes(&self, text: &mut MetricsText) {
        let help = "Requests and connections that failed, by cause.";
        let mut family = text.family("vanward_failures", Type::Counter, help);
        for (cause, count) in self.causes.iter().zip(self.counters.failures) {
            family.sample(&[("cause", cause)], count);
        }
    }

    fn counters(&self, text: &mut MetricsText) {
        for row in self.counters.each().filter(|row| !row.exposed.is_empty()) {
            let of = match row.kind {
                MetricKind::Counter => Type::Counter,
                MetricKind::Gauge => Type::Gauge,
            };
            text.family(&format!("vanward_{}", row.exposed), of, row.meaning).sample(&[], row.value);
        }
    }

    fn upstreams(&self, text: &mut MetricsText) {
        let help = "Failed attempts, whether or not a retry followed, by cause.";
        let family = text.family("vanward_upstream_failures", Type::Counter, help);
        self.causes_of_upstreams(family, |cell| &cell.failures);
        let help = "Retries, by the cause of the failure before.";
        let family = text.family("vanward_upstream_retries", Type::Counter, help);
        self.causes_of_upstreams(family, |cell| &cell.retries);

        let help = "Requests for which another upstream was asked, after an error of this one (on_status).";
        let mut family = text.family("vanward_upstream_fallbacks", Type::Counter, help);
        for (upstream, cell) in &self.totals.upstreams {
            let count = cell.fallbacks.value();
            if count > 0 {
                family.sample(&[("upstream", upstream)], count);
            }
        }
        let help = "Requests that are waiting for a server with room.";
        let mut family = text.family("vanward_upstream_queue_requests", Type::Gauge, help);
        for (upstream, cell) in &self.totals.upstreams {
            family.sample(&[("upstream", upstream)], cell.queued.value());
        }
        let help = "Time that requests waited for a server with room, including requests that found none.";
        let family = text.family("vanward_upstream_queue_duration_seconds", Type::Histogram, help);
        self.durations_of_upstreams(family, |cell| &cell.queue);
        let help = "Time to open new connections to servers, including the TLS handshake.";
        let family = text.family("vanward_upstream_connect_duration_seconds", Type::Histogram, help);
        self.durations_of_upstreams(family, |cell| &cell.connect);
    }

    fn causes_of_upstreams(&self, mut family: Family<'_>, of: impl Fn(&UpstreamCell) -> &Causes) {
        for (upstream, cell) in &self.totals.upstreams {
            let counts = self.causes.iter().zip(of(cell).values());
            for (cause, count) in counts.filter(|(_, count)| *count > 0) {
                family.sample(&[("upstream", upstream), ("cause", cause)], count);
            }
        }
    }

    fn durations_of_upstreams(&self, mut family: Family<'_>, of: impl Fn(&UpstreamCell) -> &Histogram) {
        for (upstream, cell) in &self.totals.upstreams {
            if of(cell).is_used() {
                family.histogram(&[("upstream", upstream)], of(cell));
            }
        }
    }

    fn server_requests(&self, text: &mut MetricsText) {
        let help = "Attempts by server and class of its answer; class none got no answer.";
        let mut family = text.family("vanward_upstream_requests", Type::Counter, help);
        for (labels, cell) in self.servers() {
            for (class, count) in Classes::NAMES.into_iter().zip(cell.requests.values()) {
                family.sample(&[labels[0], labels[1], ("class", class)], count);
            }
        }
        let help = "Time from the start of an attempt to the first byte of the server's response.";
        let mut family = text.family("vanward_upstream_first_byte_seconds", Type::Histogram, help);
        for (labels, cell) in self.servers() {
            if cell.first_byte.is_used() {
                family.histogram(&labels, &cell.first_byte);
            }
        }
    }

    fn server_events(&self, text: &mut MetricsText) {
        let help = "Connections to servers, with a request or in the pool; counted once a second.";
        let mut family = text.family("vanward_upstream_connections", Type::Gauge, help);
        for (labels, cell) in self.servers() {
            for (state, gauge) in [("busy", &cell.connections_busy), ("idle", &cell.connections_idle)] {
                family.sample(&[labels[0], labels[1], ("state", state)], gauge.value());
            }
        }
        let help = "Times that the circuit of a server opened.";
        let mut family = text.family("vanward_upstream_circuit_openings", Type::Counter, help);
        for (labels, cell) in self.servers() {
            family.sample(&labels, cell.circuit_openings.value());
        }
        let help = "Connections of clients that were passed on to a server.";
        let mut family = text.family("vanward_upstream_connections_passed_on", Type::Counter, help);
        for (labels, cell) in self.servers() {
            family.sample(&labels, cell.connections_passed_on.value());
        }
    }

    fn standings(&self, text: &mut MetricsText) {
        // By name: a server that is configured twice is shown once.
        let named: BTreeMap<_, _> = self
            .standings
            .iter()
            .map(|standing| ((&*standing.upstream, &*standing.server), standing))
            .collect();
        let standings = || {
            let each = named.iter().take(NAMED_MAX);
            each.map(|((upstream, server), standing)| {
                ([("upstream", *upstream), ("server", *server)], *standing)
            })
        };
        let help = "Whether a server is in this state: 1 for its current state.";
        let mut family = text.family("vanward_upstream_server_state", Type::Gauge, help);
        for (labels, standing) in standings() {
            for (state, name) in ServerState::ALL {
                let is_in = u8::from(standing.state == state);
                family.sample(&[labels[0], labels[1], ("state", name)], is_in);
            }
        }
        let help = "Whether the circuit of a server is open: 1 if it gets no request, or only a probe.";
        let mut family = text.family("vanward_upstream_server_circuit_open", Type::Gauge, help);
        for (labels, standing) in standings() {
            family.sample(&labels, u8::from(standing.is_circuit_open));
        }
        let help = "Running requests of a server.";
        let mut family = text.family("vanward_upstream_server_requests_active", Type::Gauge, help);
        for (labels, standing) in standings() {
            family.sample(&labels, standing.requests_active);
        }
        let help = "Times that a server was ejected for being worse than the others.";
        let mut family = text.family("vanward_upstream_ejections", Type::Counter, help);
        for (labels, standing) in standings() {
            family.sample(&labels, standing.ejections);
        }
        let help = "Active checks of servers, by result.";
        let mut family = text.family("vanward_upstream_checks", Type::Counter, help);
        for (labels, standing) in standings() {
            for (result, count) in [("passed", standing.checks_passed), ("failed", standing.checks_failed)] {
                family.sample(&[labels[0], labels[1], ("result", result)], count);
            }
        }
    }

    fn program(&self, text: &mut MetricsText) {
        if let Some(dropped) = self.log_lines_dropped {
            let help = "Lines of the access log that were lost.";
            text.family("vanward_log_lines_dropped", Type::Counter, help).sample(&[], dropped);
        }
        text.family("vanward_workers", Type::Gauge, "Number of worker threads.").sample(&[], self.workers);
        let mut family = text.family("vanward_build", Type::Info, "Version of the running program.");
        family.sample(&[("version", self.version)], 1);
    }

    fn servers(&self) -> impl Iterator<Item = ([Label<'_>; 2], &ServerCell)> {
        let servers = self.totals.servers.iter();
        servers.map(|((upstream, server), cell)| ([("upstream", &**upstream), ("server", &**server)], cell))
    }
}

fn write_process(process: &ProcessState, text: &mut MetricsText) {
    let help = "User and system time of this process.";
    text.family("process_cpu_seconds", Type::Counter, help).sample(&[], process.cpu_seconds);
    let help = "When this process started, since the epoch.";
    text.family("process_start_time_seconds", Type::Gauge, help).sample(&[], process.started_seconds);
    let limit = process.descriptors_max;
    for (name, help, value) in [
        ("process_resident_memory_bytes", "Resident memory of this process.", Some(process.resident_bytes)),
        ("process_virtual_memory_bytes", "Virtual memory of this process.", Some(process.virtual_bytes)),
        ("process_threads", "Threads of this process.", Some(process.threads)),
        ("process_open_fds", "Open file descriptors of this process.", Some(process.descriptors)),
        ("process_max_fds", "Limit on the open file descriptors of this process.", limit),
    ] {
        if let Some(value) = value {
            text.family(name, Type::Gauge, help).sample(&[], value);
        }
    }
}
