//! Prints an outcome as text, and in the percentile format of HdrHistogram's plotters. No I/O.

use std::cmp::Reverse;
use std::fmt::Write;

use crate::error::Error;
use crate::outcome::{
    BrokenDown, BrokenDownRow, Distribution, MissedBy, RunExpectation, RunOutcome, RunProblem, ServerUsage,
    TlsMade,
};
use crate::plan::{Arrival, Breakdown, ConnectTargets, ThinkTime};
use crate::stream;

/// Lines of the percentile format per halving of the distance to 100%.
const LINES_PER_HALVING: u32 = 5;
/// Maximum number of printed rows of a table.
const ROWS_SHOWN: usize = 30;
/// Utilisation of its threads above which the generator may limit a closed loop.
const SATURATED: f64 = 0.95;

/// Outcome as text, for a terminal.
pub fn report(outcome: &RunOutcome) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_report(&mut text, outcome);
    text
}

fn write_report(text: &mut String, outcome: &RunOutcome) -> std::fmt::Result {
    write_settings(text, outcome)?;
    write_times(text, outcome)?;
    let interrupted = match (outcome.interrupted, &outcome.server_gone) {
        (_, Some(_)) => ", until the server stopped answering",
        (true, None) => ", interrupted",
        (false, None) => "",
    };
    match &outcome.stream {
        None => write_total(text, outcome, interrupted)?,
        Some(figures) => {
            stream::text::write_total(text, outcome, interrupted)?;
            stream::text::write_counts(text, figures)?;
        }
    }
    if outcome.streams_refused > 0 {
        let refused = count_of(outcome.streams_refused, "stream");
        writeln!(text, "  {refused} above the limit of the server, sent again when other streams had ended")?;
    }
    if outcome.redirects > 0 {
        let followed = count_of(outcome.redirects, "redirect");
        writeln!(text, "  {followed} followed; the times of a request include its redirects")?;
    }
    if outcome.stream.is_none() {
        writeln!(text, "  Requests/s {:>12.2}", outcome.requests_per_second)?;
    }
    let transfer = if outcome.measured_seconds > 0.0 {
        outcome.bytes_received as f64 / outcome.measured_seconds
    } else {
        0.0
    };
    writeln!(text, "  Transfer/s {:>12}", bytes(transfer))?;
    if let Some(tls) = outcome.tls.as_ref().filter(|tls| tls.handshake.count > 0) {
        let TlsMade { full, resumed, handshakes_per_second, .. } = tls;
        writeln!(text, "  Handshakes {full} full, {resumed} resumed, {handshakes_per_second:.2} a second")?;
    }
    let cpu = outcome.cpu;
    let (threads, used) = (count(outcome.settings.threads, "thread"), cpu.utilisation * 100.0);
    let unit = if outcome.stream.is_some() { "message" } else { "request" };
    writeln!(
        text,
        "  Generator  {:>9.2} us of CPU time a {unit}, {used:.0}% of {threads}",
        cpu.us_per_request
    )?;
    if let Some(ServerUsage { cpu_us_per_request, memory_bytes, .. }) = outcome.server {
        let memory = bytes(memory_bytes as f64);
        writeln!(text, "  Server     {cpu_us_per_request:>9.2} us of CPU time a {unit}, {memory} of memory")?;
    }
    if outcome.settings.arrival == Arrival::Closed && cpu.utilisation > SATURATED {
        writeln!(
            text,
            "             the generator may limit this rate; give it more threads (-t) and cores"
        )?;
    }
    write_schedule(text, outcome)?;
    write_errors(text, outcome)?;
    outcome.breakdowns.iter().try_for_each(|table| write_breakdown(text, table))?;
    for problem in &outcome.problems {
        writeln!(text, "\nINVALID: {}", explained(problem))?;
    }
    write_expectations(text, &outcome.expectations)
}

fn write_total(text: &mut String, outcome: &RunOutcome, interrupted: &str) -> std::fmt::Result {
    let (requests, received) = (outcome.requests, bytes(outcome.bytes_received as f64));
    let measured = seconds(outcome.measured_seconds);
    writeln!(text, "  {requests} requests in {measured}{interrupted}, {received} received")?;
    if outcome.unfinished > 0 {
        let oldest = seconds(outcome.oldest_unfinished_us as f64 / 1e6);
        let unfinished = outcome.unfinished;
        writeln!(
            text,
            "  {unfinished} more were under way at the end, the oldest for {oldest}: their age counts as their time \
             (≥: at least)"
        )?;
    }
    Ok(())
}

fn write_settings(text: &mut String, outcome: &RunOutcome) -> std::fmt::Result {
    let settings = &outcome.settings;
    let list = if settings.urls > 1 { format!(" and {} more", settings.urls - 1) } else { String::new() };
    writeln!(text, "{} {}{list}", settings.method, settings.url)?;
    let unit = if outcome.stream.is_some() { "messages" } else { "requests" };
    let arrival = match &settings.arrival {
        Arrival::Closed if outcome.stream.as_ref().is_some_and(|figures| !figures.plan.workload.sends()) => {
            "as the server sends".to_owned()
        }
        Arrival::Closed => match settings.think_time {
            None => "closed loop".to_owned(),
            Some(ThinkTime { least_seconds, most_seconds }) if least_seconds == most_seconds => {
                format!("closed loop, think time {}", seconds(most_seconds))
            }
            Some(ThinkTime { least_seconds, most_seconds }) => {
                format!("closed loop, think time {} to {}", seconds(least_seconds), seconds(most_seconds))
            }
        },
        Arrival::Stages { stages, seed } => {
            let seed = seed.map(|seed| format!(", Poisson arrivals of seed {seed}")).unwrap_or_default();
            format!("{}{seed}", count(stages.len(), "stage"))
        }
        Arrival::Constant { requests_per_second } => {
            format!("{requests_per_second} {unit}/s at equal intervals")
        }
        Arrival::Poisson { requests_per_second, seed } => {
            format!("{requests_per_second} {unit}/s, Poisson arrivals of seed {seed}")
        }
    };
    let (connections, threads) =
        (count(settings.connections, "connection"), count(settings.threads, "thread"));
    let streams = match (settings.http2, settings.http3, settings.streams) {
        (false, false, _) => String::new(),
        (true, _, streams) => format!(" of HTTP/2, {} each", count(streams, "stream")),
        (_, true, streams) => format!(" of HTTP/3, {} each", count(streams, "stream")),
    };
    let fresh = if settings.keepalive { "" } else { ", a new connection for each request" };
    writeln!(text, "  {connections}{streams}, {threads}, {arrival}{fresh}")?;
    if let Some(figures) = &outcome.stream {
        writeln!(text, "  {}", stream::text::workload(figures))?;
    }
    let ConnectTargets { resolve, connect_to, unix_socket, resolve_every_seconds } = &settings.directions;
    let flags = [("--resolve", resolve), ("--connect-to", connect_to)];
    for (flag, values) in flags.into_iter().filter(|(_, values)| !values.is_empty()) {
        writeln!(text, "  {flag} {}", values.join(", "))?;
    }
    if let Some(seconds) = resolve_every_seconds {
        writeln!(text, "  names resolved every {seconds} s")?;
    }
    if let Some(path) = unix_socket {
        writeln!(text, "  over the Unix socket {}", path.display())?;
    }
    if let Some(tls) = &outcome.tls {
        let unverified = if settings.tls.verify { "" } else { ", certificates not verified" };
        let agreed = if tls.agreed.is_empty() { "no TLS session".to_owned() } else { tls.agreed.join(", ") };
        writeln!(text, "  {agreed}{unverified}")?;
    }
    writeln!(text)
}

fn write_times(text: &mut String, outcome: &RunOutcome) -> std::fmt::Result {
    let has_times = match &outcome.stream {
        None => outcome.latency.count > 0,
        Some(figures) => stream::text::has_times(outcome, figures),
    };
    if !has_times {
        let what = if outcome.stream.is_some() { "No message arrived" } else { "No request succeeded" };
        return writeln!(text, "  {what}, so there are no times to show.\n");
    }
    let columns = ["min", "mean", "stdev", "p50", "p75", "p90", "p99", "p99.9", "max"];
    write!(text, "  {:<13}", "")?;
    columns.iter().try_for_each(|column| write!(text, "{column:>9}"))?;
    writeln!(text)?;
    if let Some(figures) = &outcome.stream {
        return stream::text::write_times(text, outcome, figures);
    }
    match &outcome.schedule {
        None => row(text, "sent to done", &outcome.latency)?,
        Some(kept) => {
            row(text, "due to done", &outcome.latency)?;
            row(text, "sent to done", &outcome.service)?;
            row(text, "due to sent", &kept.lateness)?;
            row(text, "own lateness", &kept.own_lateness)?;
        }
    }
    if !outcome.settings.keepalive || outcome.settings.urls > 1 {
        row(text, "first byte", &outcome.first_byte)?;
        row(text, "connect", &outcome.connect)?;
    }
    if let Some(tls) = outcome.tls.as_ref().filter(|tls| tls.handshake.count > 0) {
        row(text, "TLS handshake", &tls.handshake)?;
    }
    if outcome.latency.clamped > 0 {
        writeln!(
            text,
            "  {} times were longer than an hour, and count as one hour",
            outcome.latency.clamped
        )?;
    }
    if outcome.errors.timeout > 0 {
        let (count, limit) =
            (count_of(outcome.errors.timeout, "request"), seconds(outcome.settings.timeout_seconds));
        writeln!(text, "  {count} timed out after {limit}, and count with that time (≥: at least)")?;
    }
    writeln!(text)
}

pub(crate) fn row(text: &mut String, name: &str, times: &Distribution) -> std::fmt::Result {
    if times.count == 0 {
        return writeln!(text, "  {name:<13}     none");
    }
    let values = [
        ("min_us", times.min_us as f64),
        ("mean_us", times.mean_us),
        ("stdev_us", times.stdev_us),
        ("p50_us", times.p50_us as f64),
        ("p75_us", times.p75_us as f64),
        ("p90_us", times.p90_us as f64),
        ("p99_us", times.p99_us as f64),
        ("p99_9_us", times.p99_9_us as f64),
        ("max_us", times.max_us as f64),
    ];
    write!(text, "  {name:<13}")?;
    values
        .into_iter()
        .try_for_each(|(figure, time_us)| write!(text, "{:>9}", bounded(times, figure, time_us)))?;
    writeln!(text)
}

/// A time, with a sign if it is only a lower limit.
fn bounded(times: &Distribution, figure: &str, time_us: f64) -> String {
    let sign = if times.is_at_least(figure) { "≥" } else { "" };
    format!("{sign}{}", time(time_us))
}

fn write_schedule(text: &mut String, outcome: &RunOutcome) -> std::fmt::Result {
    let Some(kept) = &outcome.schedule else { return Ok(()) };
    let (due, unsent, waited) = (kept.due, kept.unsent, kept.waited_for_connection);
    let rate = kept.sent_per_second;
    writeln!(
        text,
        "  Schedule   {due} due, {unsent} never sent, {waited} waited for a free connection, {rate:.2} sent/s"
    )
}

fn write_errors(text: &mut String, outcome: &RunOutcome) -> std::fmt::Result {
    let errors = outcome.errors;
    if errors.total() == 0 {
        return Ok(());
    }
    let classes = [
        ("connect", errors.connect),
        ("read", errors.read),
        ("write", errors.write),
        ("time-out", errors.timeout),
        ("status", errors.status),
        ("malformed", errors.malformed),
        ("TLS", errors.tls),
        ("reset", errors.reset),
        ("redirect", errors.redirect),
        ("check", errors.check),
    ];
    let told: Vec<String> = classes
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(class, count)| format!("{class} {count}"))
        .collect();
    writeln!(text, "  Errors     {}", told.join(", "))?;
    if errors.check > 0 {
        writeln!(text, "  Checks     missed: {}", outcome.checks_missed.text())?;
    }
    for words in outcome.error_examples.values() {
        writeln!(text, "             such as: {words}")?;
    }
    if errors.status > 0 && !outcome.statuses.is_empty() {
        let statuses: Vec<String> =
            outcome.statuses.iter().map(|(status, count)| format!("{status}: {count}")).collect();
        writeln!(text, "  Statuses   {}", statuses.join(", "))?;
    }
    Ok(())
}

/// Table by status, URL, name or stage; of many rows, those with the most requests.
fn write_breakdown(text: &mut String, table: &BrokenDown) -> std::fmt::Result {
    let heading = match table.by {
        Breakdown::Status => "status",
        Breakdown::Url => "URL",
        Breakdown::Name => "name",
        Breakdown::Stage => "stage",
    };
    let mut rows: Vec<_> = table.rows.iter().collect();
    if matches!(table.by, Breakdown::Url | Breakdown::Name) {
        rows.sort_by_key(|row| Reverse(row.requests + row.failed));
    }
    let left_out = rows.len().saturating_sub(ROWS_SHOWN);
    rows.truncate(ROWS_SHOWN);
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(heading.len());
    write!(text, "\n  {heading:<width$}{:>11}{:>9}{:>12}", "requests", "failed", "requests/s")?;
    ["p50", "p90", "p99", "max"].iter().try_for_each(|column| write!(text, "{column:>9}"))?;
    writeln!(text)?;
    for row in rows {
        let BrokenDownRow { name, requests, failed, requests_per_second, latency } = row;
        write!(text, "  {name:<width$}{requests:>11}{failed:>9}{requests_per_second:>12.2}")?;
        let times = [
            ("p50_us", latency.p50_us),
            ("p90_us", latency.p90_us),
            ("p99_us", latency.p99_us),
            ("max_us", latency.max_us),
        ];
        for (figure, time_us) in times {
            let shown =
                if latency.count == 0 { "–".to_owned() } else { bounded(latency, figure, time_us as f64) };
            write!(text, "{shown:>9}")?;
        }
        writeln!(text)?;
    }
    if left_out > 0 {
        writeln!(text, "  and {left_out} more, with fewer requests; --json has all")?;
    }
    Ok(())
}

fn write_expectations(text: &mut String, expectations: &[RunExpectation]) -> std::fmt::Result {
    if !expectations.is_empty() {
        writeln!(text)?;
    }
    expectations.iter().try_for_each(|RunExpectation { text: expected, measured, is_met }| {
        let verdict = if *is_met { "met" } else { "MISSED" };
        let measured = measured.as_deref().unwrap_or("nothing was measured");
        writeln!(text, "  {verdict:<6}  expected {expected}, measured {measured}")
    })
}

/// The reason why a run is invalid, as a sentence with the remedy.
pub fn explained(problem: &RunProblem) -> String {
    match *problem {
        RunProblem::AgentLost { ref command, ref why } => {
            format!("the agent of `{command}` was lost: {why}. The figures are from the other agents.")
        }
        RunProblem::Hung { unfinished, oldest_us, slowest_us } => format!(
            "the server stopped answering: {} had no answer at the end, the oldest for {}, and the slowest answer \
             took {}. \
             If it is only slow, measure for longer (-d).",
            count_of(unfinished, "request"),
            time(oldest_us as f64),
            time(slowest_us as f64),
        ),
        RunProblem::GeneratorLate { own_lateness_p99_us, limit_us } => format!(
            "the generator itself was late: {} at p99 with a connection free (at most {} is allowed). \
             Give it a quiet core or more threads (-t), or lower the rate (-R).",
            time(own_lateness_p99_us as f64),
            time(limit_us as f64),
        ),
        RunProblem::RateMissed { due, unsent, slip_us, limit_us, by, .. } => {
            let fault = match by {
                MissedBy::Server => {
                    "No connection was free: the server was too slow for this rate; lower the rate (-R) or open more \
                     connections (-c)."
                }
                MissedBy::Errors => {
                    "Connections failed, and the generator sends nothing on them until it reconnects: look at the \
                     errors first."
                }
                MissedBy::Generator => {
                    "The generator had too little CPU time: give it a quiet core or more threads (-t), or lower the \
                     rate (-R)."
                }
            };
            let unsent = match unsent {
                0 => String::new(),
                unsent => format!("of {due} requests due, {unsent} were never sent, and "),
            };
            format!(
                "the rate was not kept: {unsent}the last one was sent {} late (at most {} is allowed). {fault}",
                time(slip_us as f64),
                time(limit_us as f64),
            )
        }
    }
}

/// Percentile distribution in milliseconds, in the format of HdrHistogram's tools (`.hgrm`).
pub fn percentiles(distribution: &Distribution) -> Result<String, Error> {
    let histogram = distribution.histogram()?;
    let mut text =
        format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let mut counted = 0;
    for step in histogram.iter_quantiles(LINES_PER_HALVING) {
        counted += step.count_since_last_iteration();
        let (value_ms, quantile) = (step.value_iterated_to() as f64 / 1e3, step.quantile_iterated_to());
        let _ = if quantile < 1.0 {
            writeln!(
                text,
                "{value_ms:>12.3} {quantile:>14.12} {counted:>10} {:>14.2}",
                1.0 / (1.0 - quantile)
            )
        } else {
            writeln!(text, "{value_ms:>12.3} {quantile:>14.12} {counted:>10}")
        };
    }
    let (mean, deviation) = (distribution.mean_us / 1e3, distribution.stdev_us / 1e3);
    let (longest, total) = (distribution.max_us as f64 / 1e3, distribution.count);
    let _ = writeln!(text, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]");
    let _ = writeln!(text, "#[Max     = {longest:>12.3}, Total count    = {total:>12}]");
    let _ = writeln!(text, "#[Buckets = {:>12}, SubBuckets     = {:>12}]", histogram.buckets(), 2048);
    Ok(text)
}

/// A time with three digits and its unit.
pub(crate) fn time(time_us: f64) -> String {
    match time_us {
        ..1e3 => format!("{time_us:.0}us"),
        ..1e4 => format!("{:.2}ms", time_us / 1e3),
        ..1e5 => format!("{:.1}ms", time_us / 1e3),
        ..1e6 => format!("{:.0}ms", time_us / 1e3),
        _ => format!("{:.2}s", time_us / 1e6),
    }
}

pub(crate) fn seconds(seconds: f64) -> String {
    if seconds < 0.1 { time(seconds * 1e6) } else { format!("{seconds:.2}s") }
}

pub(crate) fn bytes(bytes: f64) -> String {
    match bytes {
        ..1e3 => format!("{bytes:.0} B"),
        ..1e6 => format!("{:.2} kB", bytes / 1e3),
        ..1e9 => format!("{:.2} MB", bytes / 1e6),
        _ => format!("{:.2} GB", bytes / 1e9),
    }
}

fn count_of(number: u64, thing: &str) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), thing)
}

fn count(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::plan::LoadPlan;
    use crate::summary::{ThreadMeasurements, outcome};
    use crate::target::Targets;
    use crate::worker::{LoadShared, ServerReach};

    fn nothing(plan: LoadPlan) -> RunOutcome {
        let targets = Targets::new(&plan).expect("a good plan");
        let measured =
            ThreadMeasurements { started_at: SystemTime::UNIX_EPOCH, ..ThreadMeasurements::nothing() };
        outcome(
            &LoadShared { plan, targets, streams: None, reach: ServerReach::default() },
            vec![measured],
            crate::summary::RunEnding::Interrupted,
        )
    }

    #[test]
    fn a_run_that_measured_nothing_reads_sensibly() {
        let plans = [
            LoadPlan::new("http://127.0.0.1:9/"),
            LoadPlan { keepalive: false, ..LoadPlan::new("http://127.0.0.1:9/") },
            LoadPlan {
                arrival: Arrival::Constant { requests_per_second: 5.0 },
                ..LoadPlan::new("http://127.0.0.1:9/")
            },
        ];
        for plan in plans {
            let text = report(&nothing(plan));
            assert!(text.contains("No request succeeded"), "{text}");
            assert!(text.contains("0 requests in 0us, interrupted"), "{text}");
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        }
    }

    #[test]
    fn errors_and_problems_are_told_with_their_remedy() {
        let mut told = nothing(LoadPlan::new("http://127.0.0.1:9/"));
        told.errors.read = 3;
        told.errors.status = 1;
        told.statuses.insert(503, 1);
        told.problems = vec![
            RunProblem::GeneratorLate { own_lateness_p99_us: 2_500, limit_us: 1_000 },
            RunProblem::RateMissed {
                due: 100,
                unsent: 7,
                slip_us: 1_200_000,
                limit_us: 10_000,
                waited_for_connection: 90,
                by: MissedBy::Server,
            },
        ];
        let text = report(&told);
        for expected in [
            "read 3, status 1",
            "503: 1",
            "2.50ms at p99",
            "7 were never sent",
            "1.20s late",
            "lower the rate",
        ] {
            assert!(text.contains(expected), "{expected} is not in {text}");
        }
    }

    #[test]
    fn the_percentile_format_is_that_of_the_plotters() {
        let mut times = crate::record::TimeHistogram::new();
        (1..=4).for_each(|milliseconds| times.record(Duration::from_millis(milliseconds)));
        let distribution = Distribution {
            count: 4,
            max_us: 4_000,
            mean_us: 2_500.0,
            histogram: crate::histogram_text::encode(&times.histogram),
            ..Distribution::default()
        };
        let text = percentiles(&distribution).expect("decodes");
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]);
        assert_eq!(lines[2], ["1.000", "0.000000000000", "1", "1.00"]);
        let last = lines.iter().rfind(|line| line.len() == 3).expect("a last value");
        assert_eq!(last[1..], ["1.000000000000", "4"]);
        assert!(text.contains("#[Mean    =        2.500"), "{text}");
    }

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        let times =
            [(0.0, "0us"), (999.0, "999us"), (1_234.0, "1.23ms"), (12_340.0, "12.3ms"), (2e6, "2.00s")];
        for (value, expected) in times {
            assert_eq!(time(value), expected);
        }
        assert_eq!(
            (bytes(0.0), bytes(2_500.0), bytes(3e9)),
            ("0 B".into(), "2.50 kB".into(), "3.00 GB".into())
        );
    }
}
