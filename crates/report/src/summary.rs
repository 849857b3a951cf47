//! Summary of results by case and proxy: each figure with its spread over the repeats, and the comparison with the
//! subject.
//!
//! Only valid measurements count. Invalid ones are listed with their reason.

use std::collections::BTreeMap;

use crate::figure;
use crate::judge::{self, Finding};
use crate::latency::Latency;
use crate::results::{
    Arrivals, Case, Layer, Measured, OWN_GENERATOR, Outcome, Proxy, Results, Role, Run, Scheme, Step,
    Streams, StreamsMeasured, Upstream, Version,
};
use crate::statistics::{Difference, Estimate, difference};

/// A compared quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Complete responses per second.
    RequestsPerSecond,
    /// Median latency.
    LatencyP50,
    /// 99th percentile of the latency.
    LatencyP99,
    /// CPU time of the proxy per request.
    CpuPerRequest,
    /// Memory of the proxy.
    Memory,
}

impl Metric {
    /// All metrics, in the order of the columns.
    pub const ALL: [Self; 5] =
        [Self::RequestsPerSecond, Self::LatencyP50, Self::LatencyP99, Self::CpuPerRequest, Self::Memory];

    /// Column heading of the metric.
    pub fn heading(self, counted: Counted) -> &'static str {
        match (self, counted) {
            (Self::RequestsPerSecond, Counted::Requests) => "requests/s",
            (Self::RequestsPerSecond, Counted::Messages) => "messages/s",
            (Self::RequestsPerSecond, Counted::Both) => "requests, messages/s",
            (Self::LatencyP50, _) => "p50",
            (Self::LatencyP99, _) => "p99",
            (Self::CpuPerRequest, Counted::Requests) => "CPU/request",
            (Self::CpuPerRequest, Counted::Messages) => "CPU/message",
            (Self::CpuPerRequest, Counted::Both) => "CPU/request, message",
            (Self::Memory, _) => "memory",
        }
    }

    /// Name of the metric within a sentence.
    pub fn phrase(self, counted: Counted) -> &'static str {
        match (self, counted) {
            (Self::RequestsPerSecond, Counted::Requests) => "requests per second",
            (Self::RequestsPerSecond, Counted::Messages) => "messages per second",
            (Self::RequestsPerSecond, Counted::Both) => "requests or messages per second",
            (Self::LatencyP50, Counted::Messages) => "median delay",
            (Self::LatencyP50, _) => "median latency",
            (Self::LatencyP99, Counted::Messages) => "99th percentile of delay",
            (Self::LatencyP99, _) => "99th percentile of latency",
            (Self::CpuPerRequest, Counted::Requests) => "CPU time per request",
            (Self::CpuPerRequest, Counted::Messages) => "CPU time per message",
            (Self::CpuPerRequest, Counted::Both) => "CPU time per request or message",
            (Self::Memory, _) => "memory",
        }
    }

    /// A value with the unit of the metric.
    pub fn figure(self, value: f64) -> String {
        match self {
            Self::RequestsPerSecond => figure::rate(value),
            Self::LatencyP50 | Self::LatencyP99 | Self::CpuPerRequest => figure::duration_us(value),
            Self::Memory => figure::memory_bytes(value),
        }
    }

    /// Value of the metric in one measurement, if it has one.
    pub(crate) fn value(self, measured: &Measured) -> Option<f64> {
        match self {
            Self::RequestsPerSecond => Some(measured.requests as f64 / measured.seconds),
            Self::LatencyP50 => measured.latency.at_quantile_us(0.5).map(|us| us as f64),
            Self::LatencyP99 => measured.latency.at_quantile_us(0.99).map(|us| us as f64),
            Self::CpuPerRequest => cpu_per_request(measured),
            Self::Memory => measured.usage.map(|usage| usage.memory_bytes as f64),
        }
    }

    /// Whether a higher or lower value is meaningful in this case.
    pub(crate) fn is_comparable(self, case: &Case) -> bool {
        // Every proxy is offered the same rate: answering it is no achievement over another.
        !(self == Self::RequestsPerSecond && case.has_fixed_rate())
    }
}

/// What the figures of a case, or of a whole run, count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Requests.
    Requests,
    /// Messages of streams.
    Messages,
    /// Requests in some cases, messages in others.
    Both,
}

impl Counted {
    fn of<'c>(mut cases: impl Iterator<Item = &'c Case>) -> Self {
        let of_case = |case: &Case| if case.streams.is_some() { Self::Messages } else { Self::Requests };
        let first = cases.next().map_or(Self::Requests, of_case);
        if cases.all(|case| of_case(case) == first) { first } else { Self::Both }
    }

    /// One of them.
    pub fn one(self) -> &'static str {
        match self {
            Self::Requests => "request",
            Self::Messages => "message",
            Self::Both => "request or message",
        }
    }

    /// The time that each of them takes.
    pub fn time(self) -> &'static str {
        match self {
            Self::Requests | Self::Both => "latency",
            Self::Messages => "delay",
        }
    }
}

impl From<Option<&Streams>> for Counted {
    fn from(streams: Option<&Streams>) -> Self {
        if streams.is_some() { Self::Messages } else { Self::Requests }
    }
}

/// Maximum ratio between the lowest missed and the highest met rate for a search to be complete.
pub const SEARCH_CLOSE: f64 = 1.05;

/// CPU time per request, in microseconds.
fn cpu_per_request(measured: &Measured) -> Option<f64> {
    let usage = measured.usage.filter(|_| measured.requests > 0)?;
    Some(1e6 * (usage.user_seconds + usage.system_seconds) / measured.requests as f64)
}

/// Median CPU time per request, split into user and system time.
fn cpu_split(valid: &[&Measured]) -> Option<[f64; 2]> {
    let both = Estimate::of(valid.iter().filter_map(|measured| cpu_per_request(measured)))?.median;
    let usages = || valid.iter().filter_map(|measured| measured.usage);
    let user: f64 = usages().map(|usage| usage.user_seconds).sum();
    let system: f64 = usages().map(|usage| usage.system_seconds).sum();
    let user_share = if user + system > 0.0 { user / (user + system) } else { 0.0 };
    Some([both * user_share, both * (1.0 - user_share)])
}

/// Summary of results.
#[derive(Debug)]
pub struct Summary<'r> {
    /// The results themselves.
    pub results: &'r Results,
    /// Summaries of the cases, in the order of the results.
    pub cases: Vec<CaseSummary<'r>>,
}

/// Summary of one case.
#[derive(Debug)]
pub struct CaseSummary<'r> {
    /// The case.
    pub case: &'r Case,
    /// A row for each proxy of the case, in the order of the results.
    pub rows: Vec<Row<'r>>,
    /// Rules of the judge that the case breaks.
    pub findings: Vec<Finding>,
}

/// Summary of one proxy in one case.
#[derive(Debug)]
pub struct Row<'r> {
    /// The proxy.
    pub proxy: &'r Proxy,
    /// Number of valid measurements.
    pub valid: usize,
    /// Invalid and failed measurements, with their reasons.
    pub refused: Vec<Refused<'r>>,
    /// Number of refused measurements without any figures.
    pub failed: usize,
    /// A cell for each of [`Metric::ALL`].
    pub cells: Vec<Cell>,
    /// User and system CPU time per request, in microseconds. Their sum is the median; the split is that of all repeats
    /// together, because ticks are too coarse for a single repeat.
    pub cpu_split_us: Option<[f64; 2]>,
    /// Median of the CPU cores that the proxy used.
    pub busy_cores: Option<f64>,
    /// Failed requests in all measurements, except those that the generator spoiled. Includes measurements that are
    /// invalid because of many failures.
    pub errors: u64,
    /// The same by their causes.
    pub errors_by_kind: BTreeMap<&'r str, u64>,
    /// Share of failed requests in the measurements that `errors` counts; `None` without requests.
    pub failed_share: Option<f64>,
    /// Complete responses of all valid measurements.
    pub requests: u64,
    /// Bytes received in all valid measurements.
    pub received_bytes: u64,
    /// Lateness of the generator at the 99th percentile, in the worst valid measurement.
    pub lateness_p99_us: Option<u64>,
    /// The valid measurements.
    measured: Vec<&'r Measured>,
    /// Merged latencies of all valid measurements.
    pub latency: Latency,
}

/// An invalid or failed measurement.
#[derive(Debug, Clone, Copy)]
pub struct Refused<'r> {
    /// Number of its round.
    pub round: usize,
    /// Why it does not count.
    pub reason: &'r str,
}

/// One figure of one proxy in one case.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// The metric.
    pub metric: Metric,
    /// The figure; `None` if nothing was measured.
    pub estimate: Option<Estimate>,
    /// Comparison with the subject. `None` for the subject itself, for `direct`, without a figure of both, and for a
    /// metric that is not comparable in this case.
    pub beside_subject: Option<Beside>,
}

/// Comparison of a peer's figure with the subject's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Beside {
    /// Ratio of the medians, subject to peer.
    pub subject_ratio: f64,
    /// Which of both is better.
    pub verdict: Verdict,
}

/// Which of subject and peer has the better figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The subject is better.
    Won,
    /// The peer is better.
    Lost,
    /// The figures differ by less than their spread.
    Even,
    /// Too few repeats for a verdict.
    Unjudged,
    /// The judge refuses to rank the figures: see [`CaseSummary::findings`].
    Refused,
}

impl Row<'_> {
    /// Values of a metric in the valid measurements that have it.
    pub fn values(&self, metric: Metric) -> Vec<f64> {
        self.measured.iter().filter_map(|measured| metric.value(measured)).collect()
    }

    /// Bytes received per second.
    pub fn bytes_per_second(&self) -> Option<Estimate> {
        Estimate::of(self.measured.iter().map(|measured| measured.received_bytes as f64 / measured.seconds))
    }

    /// Reason for a missing figure, for a chart; `None` if there are valid measurements.
    pub(crate) fn lacks(&self) -> Option<&'static str> {
        match (self.valid, self.refused.is_empty()) {
            (0, true) => Some("not measured"),
            (0, false) => Some("no valid round"),
            _ => None,
        }
    }

    /// Requests of the valid measurements that timed out. They are in no latency.
    pub(crate) fn timeouts(&self) -> u64 {
        self.measured.iter().filter_map(|measured| measured.errors.get("timeout")).sum()
    }

    /// What streams have beside other figures, of all valid measurements together.
    pub fn streams(&self) -> Option<StreamsMeasured> {
        let measured = self.measured.iter().filter_map(|measured| measured.streams.as_ref());
        measured.cloned().reduce(|all, one| all.merged(&one))
    }

    /// Messages sent per second.
    pub fn sent_per_second(&self) -> Option<Estimate> {
        let sent = |measured: &&Measured| Some(measured.streams.as_ref()?.sent as f64 / measured.seconds);
        Estimate::of(self.measured.iter().filter_map(sent))
    }

    /// A percentile of the times between two messages of a stream, in each valid measurement; 1 is the longest silence.
    pub fn gaps_us(&self, quantile: f64) -> Option<Estimate> {
        let gap = |measured: &&Measured| {
            let streams = measured.streams.as_ref()?;
            match quantile {
                1.0 => Some(streams.longest_silence_us),
                _ => streams.gaps.at_quantile_us(quantile),
            }
        };
        Estimate::of(self.measured.iter().filter_map(gap).map(|us| us as f64))
    }

    /// Connections to the origins in each valid measurement.
    pub fn origin_connections(&self) -> Option<Estimate> {
        let counts = self.measured.iter().filter_map(|measured| measured.origin_connections);
        Estimate::of(counts.map(|count| count as f64))
    }

    /// The valid measurements.
    pub(crate) fn measured(&self) -> &[&Measured] {
        &self.measured
    }

    /// Cell of a metric.
    pub fn cell(&self, metric: Metric) -> &Cell {
        &self.cells[Metric::ALL.iter().position(|&each| each == metric).expect("ALL lists every metric")]
    }
}

impl<'r> Summary<'r> {
    /// Summarises and judges results.
    pub fn of(results: &'r Results) -> Self {
        let cases = results.cases.iter().map(|case| case_summary(results, case)).collect();
        Self { results, cases }
    }

    /// The proxy that the others are compared with.
    pub fn subject(&self) -> Option<&'r Proxy> {
        self.results.proxies.iter().find(|proxy| proxy.role == Role::Subject)
    }

    /// What the figures of all cases count.
    pub fn counted(&self) -> Counted {
        Counted::of(self.cases.iter().map(|case| case.case))
    }

    /// Whether every proxy has at least one valid measurement in each of its cases.
    pub fn is_complete(&self) -> bool {
        self.cases.iter().all(|case| case.rows.iter().all(|row| row.valid > 0))
    }
}

impl CaseSummary<'_> {
    /// Title of the case: `HTTPS, 128 B, closed loop, 64 connections`.
    pub fn title(&self) -> String {
        title(self.case)
    }

    /// What the figures of the case count.
    pub fn counted(&self) -> Counted {
        Counted::from(self.case.streams.as_ref())
    }

    /// The proxies of the rows.
    pub(crate) fn proxies(&self) -> Vec<&Proxy> {
        self.rows.iter().map(|row| row.proxy).collect()
    }

    /// Whether a row belongs into a chart: `direct` does not where every proxy slows its requests.
    pub(crate) fn draws(&self, row: &Row<'_>) -> bool {
        row.proxy.role != Role::Direct || !self.case.is_slowed()
    }

    /// Row of the subject.
    pub fn subject(&self) -> Option<&Row<'_>> {
        self.rows.iter().find(|row| row.proxy.role == Role::Subject)
    }
}

/// Title of a case: what distinguishes it from others, without the usual settings.
pub(crate) fn title(case: &Case) -> String {
    let arrivals = match &case.arrivals {
        Arrivals::Closed if case.is_paced_by_server() => "paced by the server".to_owned(),
        Arrivals::Closed => "closed loop".to_owned(),
        Arrivals::Constant { rate_per_second } => format!("{}/s constant", figure::count(*rate_per_second)),
        Arrivals::Searched { bound } => format!("highest rate with {bound}"),
    };
    let [before, after] = around_arrivals(case);
    [before, vec![arrivals], after].concat().join(", ")
}

/// Title for several cases that differ only in their rate.
pub(crate) fn title_but_rate(case: &Case) -> String {
    around_arrivals(case).concat().join(", ")
}

/// Parts of a title before and after the arrivals.
fn around_arrivals(case: &Case) -> [Vec<String>; 2] {
    let mut before = protocol(case);
    before.push(size(case));
    let mut after = vec![figure::things(case.connections, "connection")];
    if let Some(streams) = &case.streams {
        let each = || format!("{} on each", figure::things(streams.per_connection, "stream"));
        after.extend((streams.per_connection > 1).then(each));
        after.extend(streams.senders.map(|senders| format!("{senders} of them sending")));
    }
    after.extend(behind(case));
    after.extend((case.workers > 1).then(|| figure::things(case.workers, "worker")));
    after.extend(case.features.iter().cloned());
    after.extend((case.generator != OWN_GENERATOR).then(|| format!("load by {}", case.generator)));
    [before, after]
}

/// Unusual settings between proxies and origins: `layer 4`, `origins over TLS`.
fn behind(case: &Case) -> Vec<String> {
    let layer = (case.layer == Layer::Four).then_some("layer 4");
    let upstream = match case.upstream {
        Upstream::Http => None,
        Upstream::Https => Some("origins over TLS"),
        Upstream::H2 => Some("origins over HTTP/2"),
    };
    layer.into_iter().chain(upstream).map(str::to_owned).collect()
}

/// Protocol words: `HTTPS`, `HTTP/2`; empty for HTTP/1.1 without TLS.
pub(crate) fn protocol(case: &Case) -> Vec<String> {
    let scheme = (case.scheme == Scheme::Https).then_some("HTTPS");
    let version = match case.version {
        Version::Http1 => None,
        Version::Http2 => Some("HTTP/2"),
        Version::Http3 => Some("HTTP/3"),
    };
    scheme.into_iter().chain(version).map(str::to_owned).collect()
}

/// Size of a body; the name of the payload if sizes vary; what the streams are.
pub(crate) fn size(case: &Case) -> String {
    if let Some(streams) = &case.streams {
        let kind = streams.kind.phrase();
        return match (streams.message_bytes, streams.kind.is_paced_by_server()) {
            (_, true) => format!("{kind} ({})", case.payload),
            (0, false) => kind.to_owned(),
            (bytes, false) => format!("{kind} of {}", figure::bytes(bytes as f64)),
        };
    }
    match case.payload_bytes {
        0 => case.payload.clone(),
        bytes => figure::bytes(bytes as f64),
    }
}

fn case_summary<'r>(results: &'r Results, case: &'r Case) -> CaseSummary<'r> {
    let mut rows: Vec<Row<'r>> = results
        .proxies
        .iter()
        .filter(|proxy| case.includes(proxy.role))
        .map(|proxy| {
            let runs = results.runs.iter().filter(|run| run.proxy == proxy.name && run.case == case.name);
            let runs: Vec<&Run> = runs.collect();
            match case.arrivals {
                Arrivals::Searched { .. } => found(proxy, &runs),
                Arrivals::Closed | Arrivals::Constant { .. } => row(proxy, &runs),
            }
        })
        .collect();
    let findings = judge::judge(&judge::ranking(results, &title(case), case, &rows));
    let subject = rows
        .iter()
        .find(|row| row.proxy.role == Role::Subject)
        .map(|row| (row.proxy.name.as_str(), row.cells.clone()));
    if let Some((subject, cells)) = subject {
        for row in rows.iter_mut().filter(|row| row.proxy.role == Role::Peer) {
            for (cell, subject_cell) in row.cells.iter_mut().zip(&cells) {
                let is_rate = cell.metric == Metric::RequestsPerSecond;
                let is_refused = findings.iter().any(|finding| {
                    finding.spoils(subject, is_rate) || finding.spoils(&row.proxy.name, is_rate)
                });
                cell.beside_subject = beside(case, cell, subject_cell).map(|beside| match is_refused {
                    true => Beside { verdict: Verdict::Refused, ..beside },
                    false => beside,
                });
            }
        }
    }
    CaseSummary { case, rows, findings }
}

/// Row of a search: the highest rate of each round that met the bound counts.
fn found<'r>(proxy: &'r Proxy, runs: &[&'r Run]) -> Row<'r> {
    let rounds = searches(runs);
    let mut row = row(proxy, &rounds.iter().filter_map(|(_, found)| found.ok()).collect::<Vec<_>>());
    let refused = rounds.iter().filter_map(|&(round, found)| Some(Refused { round, reason: found.err()? }));
    row.refused.extend(refused);
    row
}

/// Results of one proxy's searches, by round: the highest rate that met the bound, or why the round does not count.
/// Without a missed rate close above, the highest rate is unknown.
pub(crate) fn searches<'r>(steps: &[&'r Run]) -> Vec<(usize, Result<&'r Run, &'static str>)> {
    let mut rounds: Vec<usize> = steps.iter().map(|run| run.round).collect();
    rounds.sort_unstable();
    rounds.dedup();
    let found = |round: usize| {
        let of_round =
            steps.iter().filter_map(|&run| Some((run, run.step?))).filter(|(run, _)| run.round == round);
        let met = of_round.clone().filter(|(_, step)| step.is_met);
        let highest =
            met.max_by(|(_, one), (_, other)| one.rate_per_second.total_cmp(&other.rate_per_second));
        let Some((run, Step { rate_per_second, .. })) = highest else {
            return Err("no rate that was tried met the bound");
        };
        // What was read from a file may be off by its last digit.
        let close = rate_per_second * SEARCH_CLOSE * (1.0 + f64::EPSILON * 8.0);
        let is_missed = |(run, step): (&Run, Step)| {
            !step.is_met && step.rate_per_second <= close && run.outcome.tells_of_proxy()
        };
        if of_round.clone().any(is_missed) {
            Ok(run)
        } else {
            Err("the search ended before it was near: what it found is only some rate that met the bound")
        }
    };
    rounds.into_iter().map(|round| (round, found(round))).collect()
}

fn row<'r>(proxy: &'r Proxy, runs: &[&'r Run]) -> Row<'r> {
    let valid: Vec<&Measured> = runs.iter().filter_map(|run| run.outcome.valid()).collect();
    let refused = runs
        .iter()
        .filter_map(|run| Some(Refused { round: run.round, reason: run.outcome.refusal()? }))
        .collect();
    let median = |values: &mut dyn Iterator<Item = f64>| Estimate::of(values).map(|estimate| estimate.median);
    let telling = || {
        let of_proxy = runs.iter().filter(|run| run.outcome.tells_of_proxy());
        of_proxy.filter_map(|run| run.outcome.figures())
    };
    let errors = telling().map(Measured::error_count).sum::<u64>();
    let asked = errors + telling().map(|measured| measured.requests).sum::<u64>();
    let mut errors_by_kind = BTreeMap::new();
    for (kind, count) in telling().flat_map(|measured| &measured.errors) {
        *errors_by_kind.entry(kind.as_str()).or_default() += count;
    }
    let cells = Metric::ALL.iter().map(|&metric| Cell {
        metric,
        estimate: Estimate::of(valid.iter().filter_map(|measured| metric.value(measured))),
        beside_subject: None,
    });
    Row {
        proxy,
        valid: valid.len(),
        refused,
        failed: runs.iter().filter(|run| matches!(run.outcome, Outcome::Failed { .. })).count(),
        cells: cells.collect(),
        cpu_split_us: cpu_split(&valid),
        busy_cores: median(
            &mut valid
                .iter()
                .filter_map(|measured| measured.usage)
                .map(|usage| (usage.user_seconds + usage.system_seconds) / usage.seconds),
        ),
        errors,
        errors_by_kind,
        failed_share: (asked > 0).then(|| errors as f64 / asked as f64),
        requests: valid.iter().map(|measured| measured.requests).sum(),
        received_bytes: valid.iter().map(|measured| measured.received_bytes).sum(),
        lateness_p99_us: valid.iter().filter_map(|measured| measured.lateness_p99_us).max(),
        latency: Latency::merged(valid.iter().map(|measured| &measured.latency)),
        measured: valid,
    }
}

fn beside(case: &Case, peer: &Cell, subject: &Cell) -> Option<Beside> {
    if !peer.metric.is_comparable(case) {
        return None;
    }
    let (subject, estimate) = (subject.estimate?, peer.estimate?);
    let more_is_better = peer.metric == Metric::RequestsPerSecond;
    let verdict = match difference(&subject, &estimate) {
        Difference::Within => Verdict::Even,
        Difference::Unjudged => Verdict::Unjudged,
        Difference::Higher if more_is_better => Verdict::Won,
        Difference::Lower if !more_is_better => Verdict::Won,
        Difference::Higher | Difference::Lower => Verdict::Lost,
    };
    Some(Beside { subject_ratio: subject.median / estimate.median, verdict })
}
