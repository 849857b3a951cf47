//! Summary of results by case and proxy: each figure with its spread over the repeats, compared with the subject's.
//!
//! Only valid measurements count. Invalid ones are listed with their reason.

use std::collections::BTreeMap;

use crate::figure;
use crate::judge::{self, Finding};
use crate::latency::LatencyHistogram;
use crate::results::{
    Arrivals, Case, ClientScheme, ClientVersion, ComparedProxy, Layer, MeasuredFigures, MeasurementOutcome,
    OWN_GENERATOR, OriginProtocol, ProxyRole, Results, Run, SearchStep, StreamResults, StreamsMeasured,
};
use crate::statistics::{Difference, Estimate, difference};

/// A compared quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Complete responses per second.
    RequestsPerSecond,
    LatencyP50,
    LatencyP99,
    CpuPerRequest,
    Memory,
    /// Share of rounds that the proxy lost. Only compared between two runs.
    LostRounds,
    /// Share of requests that failed, and of messages that were lost. Only compared between two runs.
    FailedShare,
    /// Bytes of a response with its head. Only compared between two runs.
    ResponseBytes,
}

impl Metric {
    /// The metrics of the tables, in the order of the columns.
    pub const ALL: [Self; 5] =
        [Self::RequestsPerSecond, Self::LatencyP50, Self::LatencyP99, Self::CpuPerRequest, Self::Memory];

    pub fn heading(self, counted: CaseCounts) -> &'static str {
        match (self, counted) {
            (Self::RequestsPerSecond, CaseCounts::Requests) => "requests/s",
            (Self::RequestsPerSecond, CaseCounts::Messages) => "messages/s",
            (Self::RequestsPerSecond, CaseCounts::Both) => "requests, messages/s",
            (Self::LatencyP50, _) => "p50",
            (Self::LatencyP99, _) => "p99",
            (Self::CpuPerRequest, CaseCounts::Requests) => "CPU/request",
            (Self::CpuPerRequest, CaseCounts::Messages) => "CPU/message",
            (Self::CpuPerRequest, CaseCounts::Both) => "CPU/request, message",
            (Self::Memory, _) => "memory",
            (Self::LostRounds, _) => "lost rounds",
            (Self::FailedShare, _) => "errors",
            (Self::ResponseBytes, CaseCounts::Messages) => "bytes/message",
            (Self::ResponseBytes, _) => "bytes/response",
        }
    }

    pub fn phrase(self, counted: CaseCounts) -> &'static str {
        match (self, counted) {
            (Self::RequestsPerSecond, CaseCounts::Requests) => "requests per second",
            (Self::RequestsPerSecond, CaseCounts::Messages) => "messages per second",
            (Self::RequestsPerSecond, CaseCounts::Both) => "requests or messages per second",
            (Self::LatencyP50, CaseCounts::Messages) => "median delay",
            (Self::LatencyP50, _) => "median latency",
            (Self::LatencyP99, CaseCounts::Messages) => "99th percentile of delay",
            (Self::LatencyP99, _) => "99th percentile of latency",
            (Self::CpuPerRequest, CaseCounts::Requests) => "CPU time per request",
            (Self::CpuPerRequest, CaseCounts::Messages) => "CPU time per message",
            (Self::CpuPerRequest, CaseCounts::Both) => "CPU time per request or message",
            (Self::Memory, _) => "memory",
            (Self::LostRounds, _) => "lost rounds",
            (Self::FailedShare, _) => "errors",
            (Self::ResponseBytes, CaseCounts::Messages) => "bytes of a message",
            (Self::ResponseBytes, _) => "bytes of a response",
        }
    }

    /// A value with the unit of the metric.
    pub fn figure(self, value: f64) -> String {
        match self {
            Self::RequestsPerSecond => figure::rate(value),
            Self::LatencyP50 | Self::LatencyP99 | Self::CpuPerRequest => figure::duration_us(value),
            Self::Memory => figure::memory_bytes(value),
            // Three digits, because it is compared with a small share.
            Self::LostRounds | Self::FailedShare => format!("{:.3}%", value * 100.0),
            Self::ResponseBytes => figure::bytes(value),
        }
    }

    /// Value of the metric in one measurement, if it has one.
    pub(crate) fn value(self, measured: &MeasuredFigures) -> Option<f64> {
        match self {
            Self::RequestsPerSecond => Some(measured.requests as f64 / measured.seconds),
            Self::LatencyP50 => measured.latency.at_quantile_us(0.5).map(|us| us as f64),
            Self::LatencyP99 => measured.latency.at_quantile_us(0.99).map(|us| us as f64),
            Self::CpuPerRequest => cpu_per_request(measured),
            Self::Memory => measured.usage.map(|usage| usage.memory_bytes as f64),
            Self::ResponseBytes => {
                (measured.requests > 0).then(|| measured.received_bytes as f64 / measured.requests as f64)
            }
            // These metrics cover several measurements.
            Self::LostRounds | Self::FailedShare => None,
        }
    }

    /// Whether a higher or lower value is meaningful in this case.
    pub(crate) fn is_comparable(self, case: &Case) -> bool {
        // Every proxy is offered the same rate: answering it is no achievement over another.
        !(self == Self::RequestsPerSecond && case.has_fixed_rate())
    }
}

/// The unit of the figures in a case, or in a whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseCounts {
    Requests,
    Messages,
    /// Requests in some cases, messages in others.
    Both,
}

impl CaseCounts {
    fn from_cases<'c>(mut cases: impl Iterator<Item = &'c Case>) -> Self {
        let of_case = |case: &Case| if case.streams.is_some() { Self::Messages } else { Self::Requests };
        let first = cases.next().map_or(Self::Requests, of_case);
        if cases.all(|case| of_case(case) == first) { first } else { Self::Both }
    }

    /// The word in the singular.
    pub fn one(self) -> &'static str {
        match self {
            Self::Requests => "request",
            Self::Messages => "message",
            Self::Both => "request or message",
        }
    }

    /// The word for the time of each.
    pub fn time(self) -> &'static str {
        match self {
            Self::Requests | Self::Both => "latency",
            Self::Messages => "delay",
        }
    }
}

impl From<Option<&StreamResults>> for CaseCounts {
    fn from(streams: Option<&StreamResults>) -> Self {
        if streams.is_some() { Self::Messages } else { Self::Requests }
    }
}

/// Maximum ratio between the lowest missed and the highest met rate for a search to be complete.
pub const SEARCH_CLOSE: f64 = 1.05;

/// CPU time per request, in microseconds.
fn cpu_per_request(measured: &MeasuredFigures) -> Option<f64> {
    let usage = measured.usage.filter(|_| measured.requests > 0)?;
    Some(1e6 * (usage.user_seconds + usage.system_seconds) / measured.requests as f64)
}

/// Median CPU time per request, split into user and system time.
fn cpu_split(valid: &[&MeasuredFigures]) -> Option<[f64; 2]> {
    let both = Estimate::from_values(valid.iter().filter_map(|measured| cpu_per_request(measured)))?.median;
    let usages = || valid.iter().filter_map(|measured| measured.usage);
    let user: f64 = usages().map(|usage| usage.user_seconds).sum();
    let system: f64 = usages().map(|usage| usage.system_seconds).sum();
    let user_share = if user + system > 0.0 { user / (user + system) } else { 0.0 };
    Some([both * user_share, both * (1.0 - user_share)])
}

#[derive(Debug)]
pub struct Summary<'r> {
    pub results: &'r Results,
    /// In the order of the results.
    pub cases: Vec<CaseSummary<'r>>,
}

#[derive(Debug)]
pub struct CaseSummary<'r> {
    pub case: &'r Case,
    /// A row for each proxy of the case, in the order of the results.
    pub rows: Vec<SummaryRow<'r>>,
    /// Rules of the judge that the case breaks.
    pub findings: Vec<Finding>,
}

#[derive(Debug)]
pub struct SummaryRow<'r> {
    pub proxy: &'r ComparedProxy,
    pub valid: usize,
    /// Invalid and failed measurements, with their reasons.
    pub refused: Vec<RefusedMeasurement<'r>>,
    /// Number of refused measurements without any figures.
    pub failed: usize,
    /// A cell for each of [`Metric::ALL`].
    pub cells: Vec<SummaryCell>,
    /// User and system CPU time per request, in microseconds. Their sum is the median; the split is that of all repeats
    /// together, because ticks are too coarse for a single repeat.
    pub cpu_split_us: Option<[f64; 2]>,
    /// Median of the CPU cores that the proxy used.
    pub busy_cores: Option<f64>,
    /// Failed requests in all measurements, except those that the generator spoiled. Includes measurements that are
    /// invalid because of many failures.
    pub errors: u64,
    /// `errors` by cause.
    pub errors_by_kind: BTreeMap<&'r str, u64>,
    /// Share of failed requests in the measurements that `errors` counts; `None` without requests.
    pub failed_share: Option<f64>,
    /// Complete responses of all valid measurements.
    pub requests: u64,
    pub received_bytes: u64,
    /// Lateness of the generator at the 99th percentile, in the worst valid measurement.
    pub lateness_p99_us: Option<u64>,
    measured: Vec<&'r MeasuredFigures>,
    /// The rounds of `measured`.
    rounds: Vec<usize>,
    /// Merged latencies of all valid measurements.
    pub latency: LatencyHistogram,
}

#[derive(Debug, Clone, Copy)]
pub struct RefusedMeasurement<'r> {
    pub round: usize,
    pub reason: &'r str,
}

/// A single figure of one proxy in one case.
#[derive(Debug, Clone, Copy)]
pub struct SummaryCell {
    pub metric: Metric,
    /// `None` if nothing was measured.
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
    pub verdict: FigureVerdict,
    /// The verdict by the spread alone, even if the judge refuses to rank the figures.
    pub by_spread: FigureVerdict,
}

/// Which of subject and peer has the better figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureVerdict {
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

impl SummaryRow<'_> {
    /// Values of a metric in the valid measurements that have it.
    pub fn values(&self, metric: Metric) -> Vec<f64> {
        self.measured.iter().filter_map(|measured| metric.value(measured)).collect()
    }

    /// A figure of each valid measurement, with the number of its round.
    pub fn by_round(&self, figure: impl Fn(&MeasuredFigures) -> Option<f64>) -> Vec<(usize, f64)> {
        let all = self.rounds.iter().zip(&self.measured);
        all.filter_map(|(round, measured)| Some((*round, figure(measured)?))).collect()
    }

    pub fn bytes_per_second(&self) -> Option<Estimate> {
        Estimate::from_values(
            self.measured.iter().map(|measured| measured.received_bytes as f64 / measured.seconds),
        )
    }

    /// Reason for a missing figure, for a chart; `None` if there are valid measurements.
    pub(crate) fn lacks(&self) -> Option<&'static str> {
        match (self.valid, self.refused.is_empty()) {
            (0, true) => Some("not measured"),
            (0, false) => Some("no valid round"),
            _ => None,
        }
    }

    /// Requests of the valid measurements that timed out. No latency includes them.
    pub(crate) fn timeouts(&self) -> u64 {
        self.measured.iter().filter_map(|measured| measured.errors.get("timeout")).sum()
    }

    /// Additional figures of streams, of all valid measurements together.
    pub fn streams(&self) -> Option<StreamsMeasured> {
        let measured = self.measured.iter().filter_map(|measured| measured.streams.as_ref());
        measured.cloned().reduce(|all, one| all.merged(&one))
    }

    pub fn sent_per_second(&self) -> Option<Estimate> {
        let sent =
            |measured: &&MeasuredFigures| Some(measured.streams.as_ref()?.sent as f64 / measured.seconds);
        Estimate::from_values(self.measured.iter().filter_map(sent))
    }

    /// A percentile of the times between two messages of a stream, in each valid measurement; 1 is the longest silence.
    pub fn gaps_us(&self, quantile: f64) -> Option<Estimate> {
        let gap = |measured: &&MeasuredFigures| {
            let streams = measured.streams.as_ref()?;
            match quantile {
                1.0 => Some(streams.longest_silence_us),
                _ => streams.gaps.at_quantile_us(quantile),
            }
        };
        Estimate::from_values(self.measured.iter().filter_map(gap).map(|us| us as f64))
    }

    pub fn origin_connections(&self) -> Option<Estimate> {
        let counts = self.measured.iter().filter_map(|measured| measured.origin_connections);
        Estimate::from_values(counts.map(|count| count as f64))
    }

    pub(crate) fn measured(&self) -> &[&MeasuredFigures] {
        &self.measured
    }

    pub fn cell(&self, metric: Metric) -> &SummaryCell {
        &self.cells[Metric::ALL
            .iter()
            .position(|&each| each == metric)
            .expect("ALL lists every metric of the tables")]
    }
}

impl<'r> Summary<'r> {
    pub fn from_results(results: &'r Results) -> Self {
        let cases = results.cases.iter().map(|case| case_summary(results, case)).collect();
        Self { results, cases }
    }

    /// The proxy that the others are compared with.
    pub fn subject(&self) -> Option<&'r ComparedProxy> {
        self.results.proxies.iter().find(|proxy| proxy.role == ProxyRole::Subject)
    }

    pub fn counted(&self) -> CaseCounts {
        CaseCounts::from_cases(self.cases.iter().map(|case| case.case))
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

    pub fn counted(&self) -> CaseCounts {
        CaseCounts::from(self.case.streams.as_ref())
    }

    pub(crate) fn proxies(&self) -> Vec<&ComparedProxy> {
        self.rows.iter().map(|row| row.proxy).collect()
    }

    /// Whether a row belongs into a chart: that of `direct` does not if every proxy slows its requests.
    pub(crate) fn draws(&self, row: &SummaryRow<'_>) -> bool {
        row.proxy.role != ProxyRole::Direct || !self.case.is_slowed()
    }

    /// The figures of a proxy that the judge does not rank: `not ranked`, `requests/s not ranked`, or nothing.
    pub(crate) fn unranked(&self, proxy: &str) -> Option<String> {
        let is_spoiled = |of_rates| self.findings.iter().any(|finding| finding.spoils(proxy, of_rates));
        let rate = Metric::RequestsPerSecond;
        match (is_spoiled(false), is_spoiled(true) && rate.is_comparable(self.case)) {
            (true, _) => Some("not ranked".to_owned()),
            (false, true) => Some(format!("{} not ranked", rate.heading(self.counted()))),
            (false, false) => None,
        }
    }

    pub fn subject(&self) -> Option<&SummaryRow<'_>> {
        self.rows.iter().find(|row| row.proxy.role == ProxyRole::Subject)
    }
}

/// Title of a case: its differences from others, without the usual settings.
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
        OriginProtocol::Http => None,
        OriginProtocol::Https => Some("origins over TLS"),
        OriginProtocol::H2 => Some("origins over HTTP/2"),
    };
    layer.into_iter().chain(upstream).map(str::to_owned).collect()
}

/// Protocol words: `HTTPS`, `HTTP/2`; empty for HTTP/1.1 without TLS.
pub(crate) fn protocol(case: &Case) -> Vec<String> {
    let scheme = (case.scheme == ClientScheme::Https).then_some("HTTPS");
    let version = match case.version {
        ClientVersion::Http1 => None,
        ClientVersion::Http2 => Some("HTTP/2"),
        ClientVersion::Http3 => Some("HTTP/3"),
    };
    scheme.into_iter().chain(version).map(str::to_owned).collect()
}

/// Size of a body; the name of the payload if sizes vary; the kind of streams.
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
    let mut rows: Vec<SummaryRow<'r>> = results
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
        .find(|row| row.proxy.role == ProxyRole::Subject)
        .map(|row| (row.proxy.name.as_str(), row.cells.clone()));
    if let Some((subject, cells)) = subject {
        for row in rows.iter_mut().filter(|row| row.proxy.role == ProxyRole::Peer) {
            for (cell, subject_cell) in row.cells.iter_mut().zip(&cells) {
                let is_rate = cell.metric == Metric::RequestsPerSecond;
                let is_refused = findings.iter().any(|finding| {
                    finding.spoils(subject, is_rate) || finding.spoils(&row.proxy.name, is_rate)
                });
                cell.beside_subject = beside(case, cell, subject_cell).map(|beside| match is_refused {
                    true => Beside { verdict: FigureVerdict::Refused, ..beside },
                    false => beside,
                });
            }
        }
    }
    CaseSummary { case, rows, findings }
}

/// Row of a search: the highest rate of each round that met the bound counts.
fn found<'r>(proxy: &'r ComparedProxy, runs: &[&'r Run]) -> SummaryRow<'r> {
    let rounds = searches(runs);
    let mut row = row(proxy, &rounds.iter().filter_map(|(_, found)| found.ok()).collect::<Vec<_>>());
    let refused =
        rounds.iter().filter_map(|&(round, found)| Some(RefusedMeasurement { round, reason: found.err()? }));
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
        let Some((run, SearchStep { rate_per_second, .. })) = highest else {
            return Err("no rate tried met the bound");
        };
        // A rate from a file may differ in its last digit.
        let close = rate_per_second * SEARCH_CLOSE * (1.0 + f64::EPSILON * 8.0);
        let is_missed = |(run, step): (&Run, SearchStep)| {
            !step.is_met && step.rate_per_second <= close && run.outcome.tells_of_proxy()
        };
        if of_round.clone().any(is_missed) {
            Ok(run)
        } else {
            Err("the search ended too early: its rate met the bound, but a higher rate may meet it, too")
        }
    };
    rounds.into_iter().map(|round| (round, found(round))).collect()
}

fn row<'r>(proxy: &'r ComparedProxy, runs: &[&'r Run]) -> SummaryRow<'r> {
    let valid = || runs.iter().filter_map(|run| Some((run.round, run.outcome.valid()?)));
    let (rounds, valid): (Vec<usize>, Vec<&MeasuredFigures>) = valid().unzip();
    let refused = runs
        .iter()
        .filter_map(|run| Some(RefusedMeasurement { round: run.round, reason: run.outcome.refusal()? }))
        .collect();
    let median =
        |values: &mut dyn Iterator<Item = f64>| Estimate::from_values(values).map(|estimate| estimate.median);
    let telling = || {
        let of_proxy = runs.iter().filter(|run| run.outcome.tells_of_proxy());
        of_proxy.filter_map(|run| run.outcome.figures())
    };
    let errors = telling().map(MeasuredFigures::error_count).sum::<u64>();
    let asked = errors + telling().map(|measured| measured.requests).sum::<u64>();
    let mut errors_by_kind = BTreeMap::new();
    for (kind, count) in telling().flat_map(|measured| &measured.errors) {
        *errors_by_kind.entry(kind.as_str()).or_default() += count;
    }
    let cells = Metric::ALL.iter().map(|&metric| SummaryCell {
        metric,
        estimate: Estimate::from_values(valid.iter().filter_map(|measured| metric.value(measured))),
        beside_subject: None,
    });
    SummaryRow {
        proxy,
        valid: valid.len(),
        refused,
        failed: runs.iter().filter(|run| matches!(run.outcome, MeasurementOutcome::Failed { .. })).count(),
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
        latency: LatencyHistogram::merged(valid.iter().map(|measured| &measured.latency)),
        measured: valid,
        rounds,
    }
}

fn beside(case: &Case, peer: &SummaryCell, subject: &SummaryCell) -> Option<Beside> {
    if !peer.metric.is_comparable(case) {
        return None;
    }
    let (subject, estimate) = (subject.estimate?, peer.estimate?);
    let more_is_better = peer.metric == Metric::RequestsPerSecond;
    let verdict = match difference(&subject, &estimate) {
        Difference::Within => FigureVerdict::Even,
        Difference::Unjudged => FigureVerdict::Unjudged,
        Difference::Higher if more_is_better => FigureVerdict::Won,
        Difference::Lower if !more_is_better => FigureVerdict::Won,
        Difference::Higher | Difference::Lower => FigureVerdict::Lost,
    };
    Some(Beside { subject_ratio: subject.median / estimate.median, verdict, by_spread: verdict })
}
