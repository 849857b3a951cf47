//! Results by case and proxy: each figure with its spread over the repeats, and how it stands beside the subject's.
//!
//! Only valid measurements count; those that don't are listed with their reason, never dropped in silence.

use crate::figure;
use crate::judge::{self, Finding};
use crate::latency::Latency;
use crate::results::{
    Arrivals, Case, Layer, Measured, OWN_GENERATOR, Outcome, Proxy, Results, Role, Run, Scheme, Step,
    Upstream, Version,
};
use crate::statistics::{Difference, Estimate, difference};

/// A quantity that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Whole responses a second.
    RequestsPerSecond,
    /// Median latency.
    LatencyP50,
    /// 99th percentile of latency.
    LatencyP99,
    /// CPU time of the proxy for each request.
    CpuPerRequest,
    /// Memory of the proxy.
    Memory,
}

impl Metric {
    /// In the order of the columns.
    pub const ALL: [Self; 5] =
        [Self::RequestsPerSecond, Self::LatencyP50, Self::LatencyP99, Self::CpuPerRequest, Self::Memory];

    /// As a column heading.
    pub fn heading(self) -> &'static str {
        match self {
            Self::RequestsPerSecond => "requests/s",
            Self::LatencyP50 => "p50",
            Self::LatencyP99 => "p99",
            Self::CpuPerRequest => "CPU/request",
            Self::Memory => "memory",
        }
    }

    /// Within a sentence.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::RequestsPerSecond => "requests per second",
            Self::LatencyP50 => "median latency",
            Self::LatencyP99 => "99th percentile of latency",
            Self::CpuPerRequest => "CPU time per request",
            Self::Memory => "memory",
        }
    }

    /// A value with its unit.
    pub fn figure(self, value: f64) -> String {
        match self {
            Self::RequestsPerSecond => figure::rate(value),
            Self::LatencyP50 | Self::LatencyP99 | Self::CpuPerRequest => figure::duration_us(value),
            Self::Memory => figure::memory_bytes(value),
        }
    }

    /// The value of one measurement, where it has one.
    pub(crate) fn value(self, measured: &Measured) -> Option<f64> {
        match self {
            Self::RequestsPerSecond => Some(measured.requests as f64 / measured.seconds),
            Self::LatencyP50 => measured.latency.at_quantile_us(0.5).map(|us| us as f64),
            Self::LatencyP99 => measured.latency.at_quantile_us(0.99).map(|us| us as f64),
            Self::CpuPerRequest => cpu_per_request(measured),
            Self::Memory => measured.usage.map(|usage| usage.memory_bytes as f64),
        }
    }

    /// Whether having less or more of it than another says anything in this case.
    pub(crate) fn is_comparable(self, case: &Case) -> bool {
        // Every proxy is offered the same rate: answering it is no achievement over another.
        !(self == Self::RequestsPerSecond && matches!(case.arrivals, Arrivals::Constant { .. }))
    }
}

/// A search is over when the highest rate that met its bound and the lowest that did not come this close together.
pub const SEARCH_CLOSE: f64 = 1.05;

/// CPU time for each request, in microseconds.
fn cpu_per_request(measured: &Measured) -> Option<f64> {
    let usage = measured.usage.filter(|_| measured.requests > 0)?;
    Some(1e6 * (usage.user_seconds + usage.system_seconds) / measured.requests as f64)
}

/// The median of CPU time for each request, as user and system time.
fn cpu_split(valid: &[&Measured]) -> Option<[f64; 2]> {
    let both = Estimate::of(valid.iter().filter_map(|measured| cpu_per_request(measured)))?.median;
    let usages = || valid.iter().filter_map(|measured| measured.usage);
    let user: f64 = usages().map(|usage| usage.user_seconds).sum();
    let system: f64 = usages().map(|usage| usage.system_seconds).sum();
    let user_share = if user + system > 0.0 { user / (user + system) } else { 0.0 };
    Some([both * user_share, both * (1.0 - user_share)])
}

/// What the results say.
#[derive(Debug)]
pub struct Summary<'r> {
    /// What it is the summary of.
    pub results: &'r Results,
    /// In the order of the results.
    pub cases: Vec<CaseSummary<'r>>,
}

/// What the results say of one case.
#[derive(Debug)]
pub struct CaseSummary<'r> {
    /// What was asked.
    pub case: &'r Case,
    /// A row for each proxy that takes part, in the order of the results.
    pub rows: Vec<Row<'r>>,
    /// The rules of the judge that the case breaks.
    pub findings: Vec<Finding>,
}

/// What the results say of one proxy in one case.
#[derive(Debug)]
pub struct Row<'r> {
    /// Which proxy.
    pub proxy: &'r Proxy,
    /// Measurements that count.
    pub valid: usize,
    /// Measurements that don't, each with its reason.
    pub refused: Vec<Refused<'r>>,
    /// Those of them that have no figures at all.
    pub failed: usize,
    /// A cell for each of [`Metric::ALL`].
    pub cells: Vec<Cell>,
    /// User and system CPU time for each request, in microseconds: the median of their sum, shared out as in all
    /// repeats together. A single one is too short for the kernel's count of ticks.
    pub cpu_split_us: Option<[f64; 2]>,
    /// The share of one core that the proxy used: the median.
    pub busy_cores: Option<f64>,
    /// Failed requests of all measurements but those that the generator spoiled: who fails so many that a measurement
    /// is refused has failed them.
    pub errors: u64,
    /// Their share of all that was asked in those measurements; `None` where nothing was.
    pub failed_share: Option<f64>,
    /// Whole responses of all valid measurements.
    pub requests: u64,
    /// Bytes received in them.
    pub received_bytes: u64,
    /// How late the generator was at its 99th percentile, in the worst of them.
    pub lateness_p99_us: Option<u64>,
    /// The valid measurements.
    measured: Vec<&'r Measured>,
    /// The latencies of all valid measurements as one.
    pub latency: Latency,
}

/// A measurement that does not count.
#[derive(Debug, Clone, Copy)]
pub struct Refused<'r> {
    /// Its round.
    pub round: usize,
    /// Why.
    pub reason: &'r str,
}

/// One figure of one proxy in one case.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// Of what.
    pub metric: Metric,
    /// `None` where nothing was measured.
    pub estimate: Option<Estimate>,
    /// How it stands beside the subject's; `None` for the subject itself, for `direct`, and where either has no
    /// figure or the two say nothing beside each other.
    pub beside_subject: Option<Beside>,
}

/// How a peer's figure stands beside the subject's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Beside {
    /// The subject's median by the peer's.
    pub subject_ratio: f64,
    /// Who has the better figure.
    pub verdict: Verdict,
}

/// Who has the better figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The subject.
    Won,
    /// The peer.
    Lost,
    /// They differ by less than they spread.
    Even,
    /// Too few repeats to tell.
    Unjudged,
    /// The judge refuses to rank them: see [`CaseSummary::findings`].
    Refused,
}

impl Row<'_> {
    /// A metric of each valid measurement that has it.
    pub fn values(&self, metric: Metric) -> Vec<f64> {
        self.measured.iter().filter_map(|measured| metric.value(measured)).collect()
    }

    /// Bytes received each second.
    pub fn bytes_per_second(&self) -> Option<Estimate> {
        Estimate::of(self.measured.iter().map(|measured| measured.received_bytes as f64 / measured.seconds))
    }

    /// Why it has no figure, for a chart; `None` where it counts.
    pub(crate) fn lacks(&self) -> Option<&'static str> {
        match (self.valid, self.refused.is_empty()) {
            (0, true) => Some("not measured"),
            (0, false) => Some("no valid round"),
            _ => None,
        }
    }

    /// Requests of the valid measurements that timed out: they are in no latency.
    pub(crate) fn timeouts(&self) -> u64 {
        self.measured.iter().filter_map(|measured| measured.errors.get("timeout")).sum()
    }

    /// Connections that were made to the origins in each.
    pub fn origin_connections(&self) -> Option<Estimate> {
        let counts = self.measured.iter().filter_map(|measured| measured.origin_connections);
        Estimate::of(counts.map(|count| count as f64))
    }

    /// The valid measurements.
    pub(crate) fn measured(&self) -> &[&Measured] {
        &self.measured
    }

    /// The cell of a metric.
    pub fn cell(&self, metric: Metric) -> &Cell {
        &self.cells[Metric::ALL.iter().position(|&each| each == metric).expect("ALL lists every metric")]
    }
}

impl<'r> Summary<'r> {
    /// Counts, merges and judges.
    pub fn of(results: &'r Results) -> Self {
        let cases = results.cases.iter().map(|case| case_summary(results, case)).collect();
        Self { results, cases }
    }

    /// The proxy that the others are compared with.
    pub fn subject(&self) -> Option<&'r Proxy> {
        self.results.proxies.iter().find(|proxy| proxy.role == Role::Subject)
    }

    /// Whether every proxy has at least one valid measurement of every case that it takes part in.
    pub fn is_complete(&self) -> bool {
        self.cases.iter().all(|case| case.rows.iter().all(|row| row.valid > 0))
    }
}

impl CaseSummary<'_> {
    /// `HTTPS, 128 B, closed loop, 64 connections`
    pub fn title(&self) -> String {
        title(self.case)
    }

    /// The row of the subject.
    pub fn subject(&self) -> Option<&Row<'_>> {
        self.rows.iter().find(|row| row.proxy.role == Role::Subject)
    }
}

/// What tells a case from the others of a plan, the usual left out.
pub(crate) fn title(case: &Case) -> String {
    let arrivals = match &case.arrivals {
        Arrivals::Closed => "closed loop".to_owned(),
        Arrivals::Constant { rate_per_second } => format!("{}/s constant", figure::count(*rate_per_second)),
        Arrivals::Searched { bound } => format!("highest rate with {bound}"),
    };
    let [before, after] = around_arrivals(case);
    [before, vec![arrivals], after].concat().join(", ")
}

/// The same of several cases that differ in their rate.
pub(crate) fn title_but_rate(case: &Case) -> String {
    around_arrivals(case).concat().join(", ")
}

/// What stands before and after the arrivals.
fn around_arrivals(case: &Case) -> [Vec<String>; 2] {
    let mut before = protocol(case);
    before.push(size(case));
    let mut after = vec![figure::things(case.connections, "connection")];
    after.extend(behind(case));
    after.extend((case.workers > 1).then(|| figure::things(case.workers, "worker")));
    after.extend(case.features.iter().cloned());
    after.extend((case.generator != OWN_GENERATOR).then(|| format!("load by {}", case.generator)));
    [before, after]
}

/// What is unusual between proxies and origins: `layer 4`, `origins over TLS`.
fn behind(case: &Case) -> Vec<String> {
    let layer = (case.layer == Layer::Four).then_some("layer 4");
    let upstream = match case.upstream {
        Upstream::Http => None,
        Upstream::Https => Some("origins over TLS"),
        Upstream::H2 => Some("origins over HTTP/2"),
    };
    layer.into_iter().chain(upstream).map(str::to_owned).collect()
}

/// `HTTPS`, `HTTP/2`; nothing for HTTP/1.1 in the clear.
pub(crate) fn protocol(case: &Case) -> Vec<String> {
    let scheme = (case.scheme == Scheme::Https).then_some("HTTPS");
    let version = (case.version == Version::Http2).then_some("HTTP/2");
    scheme.into_iter().chain(version).map(str::to_owned).collect()
}

/// Bytes of a body, or what the payload is called where they differ.
pub(crate) fn size(case: &Case) -> String {
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

/// The row of a search: in each round the highest rate that met the bound is what counts.
fn found<'r>(proxy: &'r Proxy, runs: &[&'r Run]) -> Row<'r> {
    let rounds = searches(runs);
    let mut row = row(proxy, &rounds.iter().filter_map(|(_, found)| found.ok()).collect::<Vec<_>>());
    let refused = rounds.iter().filter_map(|&(round, found)| Some(Refused { round, reason: found.err()? }));
    row.refused.extend(refused);
    row
}

/// What the search of each round found among the steps of one proxy: the highest rate that met the bound, or why none
/// counts. A rate below which nothing was missed is no highest one.
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
