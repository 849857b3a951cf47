//! Combines the records of all threads into the outcome, and judges its validity. No I/O.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;

use crate::error::Error;
use crate::form;
use crate::histogram_text::{self, encode};
use crate::outcome::{
    BrokenDown, BrokenDownRow, Cpu, Distribution, ErrorClass, MissedBy, RunOutcome, RunProblem, RunSettings,
    SCHEMA, ScheduleKept, ServerUsage, TlsMade,
};
use crate::plan::{Breakdown, LoadPlan};
use crate::record::{ThreadRecord, TimeHistogram};
use crate::schedule::ScheduleWindow;
use crate::stream::StreamFigures;
use crate::tls;
use crate::usage::Usage;
use crate::worker::LoadShared;

/// Lateness of the generator that is always allowed.
const OWN_LATENESS_US: u64 = 1_000;
/// Divisor of the latency's p99: this much lateness is also allowed, because it changes no important figure.
const OWN_LATENESS_DIVISOR: u64 = 10;
/// Divisor of the window: the allowed slip of a schedule.
const SLIP_DIVISOR: u64 = 100;
/// Slip that is always allowed: a hundredth of a short window would be too little.
const SLIP_US: u64 = 10_000;
/// Share of their time that saturated threads run or wait for a core.
const BUSY: f64 = 0.95;
/// Failures explain a missed rate if more than one request in this many failed.
const FAILED_DIVISOR: u64 = 10;

/// Requests hang from this age on …
const HUNG_US: u64 = 500_000;
/// … if they are also this many times as old as the slowest answer.
const HUNG_TIMES: u64 = 4;

/// Percentiles of a distribution, by the names of their fields.
const QUANTILES: [(&str, f64); 8] = [
    ("p50_us", 0.5),
    ("p75_us", 0.75),
    ("p90_us", 0.9),
    ("p95_us", 0.95),
    ("p99_us", 0.99),
    ("p99_9_us", 0.999),
    ("p99_99_us", 0.9999),
    ("max_us", 1.0),
];

/// Measurements of one thread.
#[derive(Debug)]
pub(crate) struct ThreadMeasurements {
    /// Window of the load, and when the thread ended; `None` if it was stopped before the window began.
    pub(crate) window: Option<(ScheduleWindow, Instant)>,
    pub(crate) started_at: SystemTime,
    pub(crate) cpu: Duration,
    /// Time that the thread was ready to run and waited for a core.
    pub(crate) waited: Duration,
    /// CPU time and memory of the server in the window; only one thread has it.
    pub(crate) server: Option<Usage>,
    /// Due requests that no connection sent.
    pub(crate) unclaimed: u64,
    /// Requests active at the end.
    pub(crate) unfinished: u64,
    pub(crate) oldest_unfinished: Duration,
    /// How long a request hangs: the age of the oldest, without the time that this thread waited for a core.
    pub(crate) hanging: Duration,
    pub(crate) slowest_us: u64,
    pub(crate) record: ThreadRecord,
}

impl ThreadMeasurements {
    /// Measurements of a thread that was stopped before the window began.
    pub(crate) fn nothing() -> Self {
        Self {
            window: None,
            started_at: SystemTime::now(),
            cpu: Duration::ZERO,
            waited: Duration::ZERO,
            server: None,
            unclaimed: 0,
            unfinished: 0,
            oldest_unfinished: Duration::ZERO,
            hanging: Duration::ZERO,
            slowest_us: 0,
            record: ThreadRecord::new(false),
        }
    }

    fn merge(&mut self, other: Self) {
        self.window = match (self.window, other.window) {
            (Some((window, ended)), Some((_, later))) => Some((window, ended.max(later))),
            (one, another) => one.or(another),
        };
        self.started_at = self.started_at.min(other.started_at);
        self.cpu += other.cpu;
        self.waited += other.waited;
        self.server = self.server.or(other.server);
        self.unclaimed += other.unclaimed;
        self.unfinished += other.unfinished;
        self.oldest_unfinished = self.oldest_unfinished.max(other.oldest_unfinished);
        self.hanging = self.hanging.max(other.hanging);
        self.slowest_us = self.slowest_us.max(other.slowest_us);
        self.record.merge(other.record);
    }
}

/// The reason why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunEnding {
    /// The planned end: by time, or by the number of requests.
    Planned,
    Interrupted,
    Gone,
}

/// Combines the measurements of all threads.
pub(crate) fn outcome(shared: &LoadShared, parts: Vec<ThreadMeasurements>, ending: RunEnding) -> RunOutcome {
    let all = parts.into_iter().reduce(|mut all, part| {
        all.merge(part);
        all
    });
    let mut all = all.unwrap_or_else(ThreadMeasurements::nothing);
    let slots = all.record.timeline.take().map(|timeline| timeline.into_slots()).unwrap_or_default();
    let plan = &shared.plan;
    let record = &all.record;
    let measured_seconds = measured_seconds(&all);
    let latency = distribution(record.headline());
    let schedule = plan.arrival.requests_per_second().map(|_| schedule_kept(&all));
    let cpu = cpu(&all, plan.threads, measured_seconds);
    let mut problems = match &schedule {
        Some(kept) => problems(
            kept,
            latency.p99_us,
            measured_seconds,
            by(kept, record, &cpu, plan.threads, measured_seconds),
        ),
        None => Vec::new(),
    };
    problems.extend(hung(&all));
    RunOutcome {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_unix_ms: all
            .started_at
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as u64),
        settings: settings(plan),
        measured_seconds,
        interrupted: ending == RunEnding::Interrupted,
        server_gone: (ending == RunEnding::Gone).then(|| gone(record)),
        requests: record.requests,
        requests_per_second: ratio(record.requests as f64, measured_seconds),
        bytes_received: record.bytes_received,
        body_bytes: record.body_bytes,
        bytes_sent: record.bytes_sent,
        statuses: (0u16..)
            .zip(&record.statuses)
            .filter(|(_, count)| **count > 0)
            .map(|(at, n)| (at, *n))
            .collect(),
        errors: record.errors,
        checks_missed: record.checks_missed,
        error_examples: record.error_examples.clone(),
        unfinished: all.unfinished,
        oldest_unfinished_us: u64::try_from(all.oldest_unfinished.as_micros()).unwrap_or(u64::MAX),
        connections_opened: record.connections_opened,
        streams_refused: record.streams_refused,
        redirects: record.redirects,
        latency,
        service: distribution(&record.service),
        first_byte: distribution(&record.first_byte),
        connect: distribution(&record.connect),
        tls: shared.targets.tls.as_ref().map(|_| tls_made(record, measured_seconds)),
        breakdowns: breakdowns(shared, record, measured_seconds),
        stream: plan.stream.as_ref().zip(record.tally.as_ref()).map(|(streams, tally)| {
            Box::new(StreamFigures::new(streams, tally, measured_seconds, distribution))
        }),
        seconds: Vec::new(),
        slots,
        schedule,
        cpu,
        server: all.server.map(|server| server_usage(&server, record)),
        problems,
        expectations: Vec::new(),
    }
}

fn settings(plan: &LoadPlan) -> RunSettings {
    RunSettings {
        url: plan.url(0).to_owned(),
        urls: plan.urls.len() + plan.listed.len(),
        shuffle_seed: plan.shuffle_seed,
        method: plan.listed.first().map_or(&plan.method, |request| &request.method).clone(),
        headers: plan.headers.iter().map(|field| form::shown(field)).collect(),
        user: plan.user.as_ref().and_then(|user| user.split(':').next()).map(str::to_owned),
        cookies: plan.cookies.is_some(),
        redirects_max: plan.redirects_max,
        responses: plan.responses,
        directions: plan.directions.clone(),
        request_body_bytes: plan.listed.first().map_or(&plan.body, |request| &request.body).len(),
        keepalive: plan.keepalive,
        tls: plan.tls.clone(),
        http2: plan.http2,
        http3: plan.http3,
        streams: plan.streams,
        connections: plan.connections,
        threads: plan.threads,
        arrival: plan.arrival.clone(),
        think_time: plan.think_time,
        duration_seconds: plan.window_seconds(),
        requests: plan.requests,
        warm_up_seconds: plan.warm_up_seconds,
        timeout_seconds: plan.timeout_seconds,
    }
}

fn breakdowns(shared: &LoadShared, record: &ThreadRecord, measured_seconds: f64) -> Vec<BrokenDown> {
    let stages = shared.plan.arrival.stages();
    let told = shared.targets.tables.iter().enumerate().map(|(number, table)| {
        let rows = record.rows.for_table(number).map(|(index, row)| {
            let stage = stages.get(index).filter(|_| table.by == Breakdown::Stage);
            BrokenDownRow {
                name: table.labels[index].clone(),
                requests: row.requests,
                failed: row.failed,
                requests_per_second: ratio(
                    row.requests as f64,
                    stage.map_or(measured_seconds, |stage| stage.seconds),
                ),
                latency: distribution(&row.times),
            }
        });
        BrokenDown { by: table.by, rows: rows.collect() }
    });
    told.collect()
}

fn tls_made(record: &ThreadRecord, measured_seconds: f64) -> TlsMade {
    let handshake = distribution(&record.handshake);
    let agreed = record.agreed.iter().map(|(version, suite)| {
        // The library's name is `TLSv1_3`.
        format!("{} {}", format!("{version:?}").replacen('_', ".", 1), tls::name(*suite))
    });
    TlsMade {
        full: handshake.count - record.resumed,
        resumed: record.resumed,
        handshakes_per_second: ratio(handshake.count as f64, measured_seconds),
        handshake,
        agreed: agreed.collect(),
    }
}

/// Actual duration of the window. A run that was not stopped early lasts at least the planned time, even if the last
/// response arrived earlier.
fn measured_seconds(all: &ThreadMeasurements) -> f64 {
    let Some((window, ended)) = all.window else { return 0.0 };
    let last_done = all.record.last_done.unwrap_or(window.start);
    let end = match window.end {
        Some(end) if ended >= end => end.max(last_done),
        _ => ended,
    };
    end.saturating_duration_since(window.start).as_secs_f64()
}

fn schedule_kept(all: &ThreadMeasurements) -> ScheduleKept {
    let record = &all.record;
    let start = all.window.map(|(window, _)| window.start);
    let (mut slip, mut sending) = (Duration::ZERO, Duration::ZERO);
    if let (Some(start), Some((due, sent))) = (start, record.last_sent) {
        slip = sent.saturating_duration_since(due);
        sending = sent.saturating_duration_since(start);
    }
    // The first request leaves at the very start, so n requests have n - 1 intervals.
    let intervals = record.sent.saturating_sub(1) as f64;
    ScheduleKept {
        due: record.sent + all.unclaimed,
        sent_in_window: record.sent_in_window,
        unsent: all.unclaimed,
        slip_us: slip.as_micros() as u64,
        sent_per_second: ratio(intervals, sending.as_secs_f64()),
        waited_for_connection: record.waited_for_connection,
        lateness: distribution(&record.lateness),
        own_lateness: distribution(&record.own_lateness),
    }
}

/// Reasons why a run with a rate is invalid. Each problem contains its limit.
fn problems(
    kept: &ScheduleKept,
    headline_p99_us: u64,
    measured_seconds: f64,
    missed_by: MissedBy,
) -> Vec<RunProblem> {
    let mut problems = Vec::new();
    let limit_us = OWN_LATENESS_US.max(headline_p99_us / OWN_LATENESS_DIVISOR);
    let own_lateness_p99_us = kept.own_lateness.p99_us;
    if own_lateness_p99_us > limit_us {
        problems.push(RunProblem::GeneratorLate { own_lateness_p99_us, limit_us });
    }
    let window_us = (measured_seconds * 1e6) as u64;
    let limit_us = SLIP_US.max(window_us / SLIP_DIVISOR);
    if kept.slip_us > limit_us || kept.unsent > kept.due / SLIP_DIVISOR {
        problems.push(RunProblem::RateMissed {
            due: kept.due,
            unsent: kept.unsent,
            slip_us: kept.slip_us,
            limit_us,
            waited_for_connection: kept.waited_for_connection,
            // A generator that is late although a connection is free is also too late for the rate.
            by: if problems.is_empty() { missed_by } else { MissedBy::Generator },
        });
    }
    problems
}

/// Requests that hang at the end: they are much older than the slowest answer, so the server's present speed is
/// unknown. A closed loop sends nothing in their place, so they are always few. The time that a thread waited for a
/// core is not the server's.
fn hung(all: &ThreadMeasurements) -> Option<RunProblem> {
    let oldest_us = u64::try_from(all.hanging.as_micros()).unwrap_or(u64::MAX);
    let limit_us = HUNG_US.max(all.slowest_us.saturating_mul(HUNG_TIMES));
    let (unfinished, slowest_us) = (all.unfinished, all.slowest_us);
    (oldest_us > limit_us).then_some(RunProblem::Hung { unfinished, oldest_us, slowest_us })
}

/// Cause of a missed rate.
fn by(
    kept: &ScheduleKept,
    record: &ThreadRecord,
    cpu: &Cpu,
    threads: usize,
    measured_seconds: f64,
) -> MissedBy {
    let busy = ratio(cpu.total_seconds + cpu.waited_seconds, measured_seconds * threads as f64);
    let errors = &record.errors;
    // A timeout shows a slow server, and a response shows a working connection; neither is a failed connection.
    let failed = errors.total() - errors.status - errors.check - errors.timeout;
    if busy >= BUSY {
        MissedBy::Generator
    } else if failed * FAILED_DIVISOR > record.sent {
        MissedBy::Errors
    } else if kept.own_lateness.max_us * 2 > kept.lateness.max_us && kept.slip_us > 0 && kept.unsent == 0 {
        MissedBy::Generator
    } else {
        MissedBy::Server
    }
}

/// Describes how the server was found to be gone.
fn gone(record: &ThreadRecord) -> String {
    let (answered, failed) = record.answered_and_failed();
    let examples = &record.error_examples;
    // The last example is a failed connect, if there is one.
    let example = examples.get(&ErrorClass::Connect).or_else(|| examples.values().next());
    let example = example.map(|words| format!(": {words}")).unwrap_or_default();
    format!("no request was answered after {answered} responses and {failed} failures{example}")
}

fn cpu(all: &ThreadMeasurements, threads: usize, measured_seconds: f64) -> Cpu {
    let total_seconds = all.cpu.as_secs_f64();
    let responses = responses(&all.record);
    Cpu {
        total_seconds,
        us_per_request: ratio(total_seconds * 1e6, responses as f64),
        utilisation: ratio(total_seconds, measured_seconds * threads as f64),
        waited_seconds: all.waited.as_secs_f64(),
    }
}

/// Complete responses, or messages received.
fn responses(record: &ThreadRecord) -> u64 {
    if record.tally.is_some() { record.requests } else { record.statuses.iter().sum() }
}

fn server_usage(server: &Usage, record: &ThreadRecord) -> ServerUsage {
    let (cpu_seconds, responses) = (server.cpu.as_secs_f64(), responses(record));
    ServerUsage {
        cpu_seconds,
        cpu_us_per_request: ratio(cpu_seconds * 1e6, responses as f64),
        memory_bytes: server.memory_bytes,
    }
}

/// Quotient; 0 if the divisor is 0, so that every figure is finite.
pub(crate) fn ratio(dividend: f64, divisor: f64) -> f64 {
    if divisor > 0.0 { dividend / divisor } else { 0.0 }
}

pub(crate) fn distribution(times: &TimeHistogram) -> Distribution {
    let histogram = &times.histogram;
    if histogram.is_empty() {
        return Distribution::default();
    }
    let quantile = |quantile| histogram.value_at_quantile(quantile);
    let censored = times.censored.as_deref().filter(|censored| !censored.is_empty());
    Distribution {
        count: histogram.len(),
        censored: censored.map_or(0, Histogram::len),
        at_least: censored.map(|censored| at_least(histogram, censored)).unwrap_or_default(),
        censored_histogram: censored.map(encode).unwrap_or_default(),
        min_us: censored.map_or(histogram.min(), |censored| least(histogram, censored)),
        mean_us: histogram.mean(),
        stdev_us: histogram.stdev(),
        p50_us: quantile(0.5),
        p75_us: quantile(0.75),
        p90_us: quantile(0.9),
        p95_us: quantile(0.95),
        p99_us: quantile(0.99),
        p99_9_us: quantile(0.999),
        p99_99_us: quantile(0.9999),
        max_us: histogram.max(),
        clamped: times.clamped,
        histogram: encode(histogram),
    }
}

/// Whether a value is that of an unanswered request: at least half of those with this value are.
fn is_censored(all: &Histogram<u64>, censored: &Histogram<u64>, value_us: u64) -> bool {
    let (low, high) = (all.lowest_equivalent(value_us), all.highest_equivalent(value_us));
    let count = censored.count_between(low, high);
    count > 0 && 2 * count >= all.count_between(low, high)
}

/// Names of the figures that are only lower limits.
fn at_least(all: &Histogram<u64>, censored: &Histogram<u64>) -> Vec<String> {
    let is_least = |quantile| is_censored(all, censored, all.value_at_quantile(quantile));
    let named = QUANTILES.into_iter().filter(|(_, quantile)| is_least(*quantile)).map(|(name, _)| name);
    // The mean is unknown if the longest times are.
    let mean = is_least(1.0).then_some("mean_us");
    mean.into_iter().chain(named).map(str::to_owned).collect()
}

/// The shortest time of an answer; without any, of all.
fn least(all: &Histogram<u64>, censored: &Histogram<u64>) -> u64 {
    let is_answer = |value| {
        let (low, high) = (all.lowest_equivalent(value), all.highest_equivalent(value));
        all.count_between(low, high) > censored.count_between(low, high)
    };
    let answers = all.iter_recorded().map(|step| step.value_iterated_to()).find(|value| is_answer(*value));
    answers.map_or(all.min(), |value| all.lowest_equivalent(value).max(all.min()))
}

fn decode(text: &str) -> Result<Histogram<u64>, Error> {
    if text.is_empty() {
        return Ok(TimeHistogram::new().histogram);
    }
    histogram_text::decode(text).map_err(|reason| Error::Histogram { reason })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percentile {
    pub time_us: u64,
    /// Whether it belongs to an unanswered request, so that the time is only a lower limit.
    pub is_at_least: bool,
}

impl Distribution {
    /// Decodes the complete histogram, to merge it with others or to compute any percentile.
    pub fn histogram(&self) -> Result<Histogram<u64>, Error> {
        decode(&self.histogram)
    }

    /// The time of any quantile, from 0 to 1.
    ///
    /// # Errors
    /// If the histogram does not decode.
    pub fn percentile(&self, quantile: f64) -> Result<Percentile, Error> {
        let (all, censored) = (self.histogram()?, decode(&self.censored_histogram)?);
        let time_us = all.value_at_quantile(quantile);
        Ok(Percentile { time_us, is_at_least: is_censored(&all, &censored, time_us) })
    }

    /// Whether the figure with this name, such as `p99_us`, is only a lower limit.
    pub fn is_at_least(&self, name: &str) -> bool {
        self.at_least.iter().any(|other| other == name)
    }

    /// The times that the distribution was made from.
    pub(crate) fn times(&self) -> Result<TimeHistogram, Error> {
        let censored = decode(&self.censored_histogram)?;
        let censored = Some(Box::new(censored)).filter(|censored| !censored.is_empty());
        Ok(TimeHistogram { histogram: self.histogram()?, clamped: self.clamped, censored })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::ServerReach;

    fn kept(own_lateness_p99_us: u64, slip_us: u64, unsent: u64) -> ScheduleKept {
        let own_lateness = Distribution { p99_us: own_lateness_p99_us, ..Distribution::default() };
        ScheduleKept { due: 10_000, unsent, slip_us, own_lateness, ..ScheduleKept::default() }
    }

    #[test]
    fn a_run_is_invalid_when_the_generator_was_late_or_the_rate_missed() {
        let late = |limit_us| move |problem: &RunProblem| matches!(problem, RunProblem::GeneratorLate { limit_us: limit, .. } if *limit == limit_us);
        // Lateness p99, headline p99, slip, unsent, window in seconds: late, missed.
        let cases = [
            ((1_000, 100, 10_000, 100, 1.0), (false, false)),
            ((1_001, 100, 0, 0, 1.0), (true, false)),
            ((1_001, 20_000, 0, 0, 1.0), (false, false)),
            ((0, 0, 10_001, 0, 1.0), (false, true)),
            ((0, 0, 10_001, 0, 10.0), (false, false)),
            ((0, 0, 100_001, 0, 10.0), (false, true)),
            ((0, 0, 0, 101, 1.0), (false, true)),
            ((9_999, 0, 99_999, 0, 0.0), (true, true)),
        ];
        for (case, (is_late, is_missed)) in cases {
            let (own_us, headline_us, slip_us, unsent, seconds) = case;
            let found = problems(&kept(own_us, slip_us, unsent), headline_us, seconds, MissedBy::Server);
            assert_eq!(found.iter().any(late(1_000.max(headline_us / 10))), is_late, "{case:?}");
            assert_eq!(
                found.iter().any(|found| matches!(found, RunProblem::RateMissed { .. })),
                is_missed,
                "{case:?}"
            );
        }
    }

    #[test]
    fn who_missed_a_rate_follows_from_time_errors_and_lateness() {
        // CPU time and wait of a second, errors of reading and timeouts, own and whole lateness, unsent.
        let cases = [
            ((0.1, 0.1), (0, 0), (10, 100_000), 0, MissedBy::Server),
            ((0.1, 0.9), (0, 0), (10, 100_000), 0, MissedBy::Generator),
            ((0.1, 0.9), (900, 0), (10, 100_000), 0, MissedBy::Generator),
            ((0.1, 0.1), (101, 0), (10, 100_000), 0, MissedBy::Errors),
            ((0.1, 0.1), (100, 0), (10, 100_000), 0, MissedBy::Server),
            ((0.1, 0.1), (0, 900), (10, 100_000), 0, MissedBy::Server),
            ((0.1, 0.1), (0, 0), (60_000, 100_000), 0, MissedBy::Generator),
            ((0.1, 0.1), (0, 0), (60_000, 100_000), 5, MissedBy::Server),
        ];
        for case in cases {
            let ((total_seconds, waited_seconds), (read, timeout), (own_us, all_us), unsent, expected) = case;
            let mut kept = kept(own_us, 20_000, unsent);
            kept.own_lateness.max_us = own_us;
            kept.lateness.max_us = all_us;
            let mut record = ThreadRecord::new(true);
            record.sent = 1_000;
            (record.errors.read, record.errors.timeout) = (read, timeout);
            let cpu = Cpu { total_seconds, waited_seconds, ..Cpu::default() };
            assert_eq!(by(&kept, &record, &cpu, 1, 1.0), expected, "{case:?}");
        }
    }

    #[test]
    fn a_distribution_carries_its_whole_histogram() {
        let mut times = TimeHistogram::new();
        for time_us in 1..=1000 {
            times.record(Duration::from_micros(time_us));
        }
        let told = distribution(&times);
        assert_eq!(
            (told.count, told.min_us, told.p50_us, told.p99_us, told.max_us),
            (1000, 1, 500, 990, 1000)
        );
        assert_eq!(told.histogram().expect("decodes"), times.histogram);
        let garbled = Distribution { histogram: "AAAA".to_owned(), ..told };
        assert!(matches!(garbled.histogram(), Err(Error::Histogram { .. })));
    }

    #[test]
    fn nothing_measured_is_told_in_zeros() {
        let plan = LoadPlan::new("http://127.0.0.1:1/");
        let targets = crate::target::Targets::new(&plan).expect("a good plan");
        let told = outcome(
            &LoadShared { plan, targets, streams: None, reach: ServerReach::default() },
            vec![ThreadMeasurements::nothing(), ThreadMeasurements::nothing()],
            RunEnding::Interrupted,
        );
        assert_eq!((told.requests, told.requests_per_second, told.cpu), (0, 0.0, Cpu::default()));
        assert_eq!((told.measured_seconds, told.latency.clone()), (0.0, Distribution::default()));
        let text = serde_json::to_string(&told).expect("serialises");
        assert!(!text.contains("null,\"requests_per_second\"") && !text.contains("NaN"), "{text}");
        assert_eq!(serde_json::from_str::<RunOutcome>(&text).expect("parses"), told);
    }
}
