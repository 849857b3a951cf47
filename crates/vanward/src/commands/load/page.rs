//! The page of a run, and `vanward load report`: one page of several runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use load::{Arrival, Breakdown, BrokenDown, RunOutcome, StreamCounts, StreamFigures};
use report::figure;
use report::latency::LatencyHistogram;
use report::load_page::{self, LoadRun, PageSecond, SweepStep};
use report::table::{NOTHING, TextTable};

use super::out;
use super::sweep::SweepPoint;
use super::watch::unwritten;

const RESULT_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Writes a page that shows several results in the same charts.
///
/// Each is a directory of `--out`, or a file that `--json` printed.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  vanward load --out before http://127.0.0.1:8080/
  vanward load --out after http://127.0.0.1:8080/
  vanward load report before after                   writes load-report.html")]
pub(super) struct LoadPageArgs {
    /// Files or folders that `vanward load --out` has written
    #[arg(required = true, value_name = "RESULT")]
    results: Vec<PathBuf>,
    /// The page to write
    #[arg(long, value_name = "FILE", default_value = "load-report.html")]
    out: PathBuf,
}

pub(super) fn run(arguments: &LoadPageArgs) -> ExitCode {
    match report(arguments) {
        Ok(text) => {
            // A closed pipe does no harm: the page is written.
            let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(message) => super::super::fail(super::super::FAILED, message),
    }
}

fn report(arguments: &LoadPageArgs) -> Result<String, String> {
    let outcomes = arguments.results.iter().map(|path| Ok((path.as_path(), read(path)?)));
    let outcomes: Vec<(&Path, RunOutcome)> = outcomes.collect::<Result<_, String>>()?;
    let names: Vec<String> = outcomes.iter().map(|(path, _)| short_name(path)).collect();
    let runs = outcomes.iter().zip(&names).map(|((path, outcome), name)| {
        let is_unique = names.iter().filter(|other| *other == name).count() == 1;
        self::converted(if is_unique { name.clone() } else { path.display().to_string() }, outcome)
    });
    let runs: Vec<LoadRun> = runs.collect::<Result<_, String>>()?;
    let title = match &outcomes[..] {
        [(_, only)] => title(only),
        _ => format!("{} results of the load generator", outcomes.len()),
    };
    let lede = outcomes.first().map(|(_, first)| lede(first)).unwrap_or_default();
    write(&arguments.out, &title, &lede, &runs)?;
    let mut text = String::new();
    for run in &runs {
        let [p50, p99] = [0.5, 0.99].map(|quantile| {
            let us = run.latency.at_quantile_us(quantile);
            us.map_or_else(|| NOTHING.to_owned(), |us| figure::duration_us(us as f64))
        });
        let (rate, failed) = (figure::rate(run.requests_per_second), figure::count(run.failed as f64));
        let unit = if run.of_messages { "messages" } else { "requests" };
        text += &format!("{}: {rate} {unit}/s, p50 {p50}, p99 {p99}, {failed} failed\n", run.name);
    }
    Ok(text + &format!("\nReport: {}\n", arguments.out.display()))
}

pub(super) fn write_one(path: &Path, outcome: &RunOutcome) -> Result<(), String> {
    write(path, &title(outcome), &lede(outcome), &[converted("this run".to_owned(), outcome)?])
}

pub(super) fn write_sweep(path: &Path, points: &[SweepPoint]) -> Result<(), String> {
    let Some(first) = points.first() else { return Ok(()) };
    let steps = points.iter().map(|point| {
        let run = converted(figure::things(point.connections, "connection"), &point.outcome)?;
        let server =
            point.outcome.server.map(|server| (server.cpu_us_per_request, server.memory_bytes as f64));
        Ok(SweepStep { across: point.connections as f64, server, run })
    });
    let steps: Vec<SweepStep> = steps.collect::<Result<_, String>>()?;
    let (title, lede) = (title(&first.outcome), lede(&first.outcome));
    let page = load_page::render_sweep(&title, &lede, "connections", &steps);
    let page = page.map_err(|error| error.to_string())?;
    std::fs::write(path, page).map_err(|error| unwritten(path, &error))
}

fn write(path: &Path, title: &str, lede: &str, runs: &[LoadRun]) -> Result<(), String> {
    let page = load_page::render(title, lede, runs).map_err(|error| error.to_string())?;
    std::fs::write(path, page).map_err(|error| unwritten(path, &error))
}

fn read(path: &Path) -> Result<RunOutcome, String> {
    let file = if path.is_dir() { path.join(out::RESULT) } else { path.to_owned() };
    let failed = |error: &dyn std::fmt::Display| {
        let path = file.display();
        format!("{path}: {error}; it must be a directory of --out, or a file that --json printed")
    };
    let size_bytes = std::fs::metadata(&file).map_err(|error| failed(&error))?.len();
    if size_bytes > RESULT_BYTES_MAX {
        return Err(failed(&"it is larger than 256 MiB"));
    }
    let text = std::fs::read_to_string(&file).map_err(|error| failed(&error))?;
    serde_json::from_str(&text).map_err(|error| failed(&error))
}

/// Name of a directory, or of a file without its extension.
fn short_name(path: &Path) -> String {
    let absolute = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = if absolute.is_dir() { absolute.file_name() } else { absolute.file_stem() };
    name.map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

pub(super) fn title(outcome: &RunOutcome) -> String {
    let settings = &outcome.settings;
    let more = if settings.urls > 1 { format!(" and {} more", settings.urls - 1) } else { String::new() };
    format!("{} {}{more}", settings.method, settings.url)
}

fn lede(outcome: &RunOutcome) -> String {
    let date = figure::date(outcome.started_unix_ms / 1000);
    format!("{date} · vanward load {}", outcome.version)
}

fn converted(name: String, outcome: &RunOutcome) -> Result<LoadRun, String> {
    let histogram = outcome.latency.histogram().map_err(|error| format!("{name}: {error}"))?;
    let steps = histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()));
    let mut end_seconds = 0.0;
    let seconds = outcome.seconds.iter().map(|second| {
        end_seconds += second.seconds;
        PageSecond {
            end_seconds,
            requests_per_second: second.requests_per_second(),
            failed_per_second: if second.seconds > 0.0 { second.failed as f64 / second.seconds } else { 0.0 },
            p50_us: second.p50_us as f64,
            p99_us: second.p99_us as f64,
        }
    });
    let expectations = outcome.expectations.iter().map(|each| {
        let measured = each.measured.clone().unwrap_or_else(|| "nothing".to_owned());
        (each.text.clone(), measured, each.is_met)
    });
    let mut problems: Vec<String> = outcome.problems.iter().map(load::explained).collect();
    problems.extend(outcome.server_gone.clone());
    if outcome.interrupted {
        problems.push("it was interrupted".to_owned());
    }
    let parts = outcome.breakdowns.iter().map(part).chain(outcome.stream.as_deref().map(streams));
    Ok(LoadRun {
        of_messages: outcome.stream.is_some(),
        facts: facts(outcome),
        requests_per_second: outcome.requests_per_second,
        requests: outcome.requests,
        failed: outcome.errors.total(),
        latency: LatencyHistogram::from_counts(steps),
        seconds: seconds.collect(),
        parts: parts.collect(),
        expectations: expectations.collect(),
        problems,
        name,
    })
}

fn part(table: &BrokenDown) -> TextTable {
    let by = match table.by {
        Breakdown::Status => "status",
        Breakdown::Url => "URL",
        Breakdown::Name => "name",
        Breakdown::Stage => "stage",
    };
    let rows = table.rows.iter().map(|row| {
        let time = |time_us: u64| match row.latency.count {
            0 => NOTHING.to_owned(),
            _ => figure::duration_us(time_us as f64),
        };
        vec![
            row.name.clone(),
            figure::count(row.requests as f64),
            figure::count(row.failed as f64),
            figure::rate(row.requests_per_second),
            time(row.latency.p50_us),
            time(row.latency.p99_us),
            time(row.latency.max_us),
        ]
    });
    TextTable {
        caption: format!("By {by}"),
        headings: ["", "requests", "failed", "requests/s", "p50", "p99", "max"].map(str::to_owned).into(),
        rows: rows.collect(),
    }
}

fn streams(figures: &StreamFigures) -> TextTable {
    let StreamCounts { opened, failed, closed_early, reconnected, sent, received, .. } = figures.counts;
    let StreamCounts { lost, duplicates, out_of_order, .. } = figures.counts;
    let counts = [
        ("streams or calls opened", opened),
        ("could not be opened", failed),
        ("ended early", closed_early),
        ("opened again", reconnected),
        ("messages sent", sent),
        ("messages received", received),
        ("lost", lost),
        ("duplicates", duplicates),
        ("out of order", out_of_order),
    ];
    let gap = |time_us: u64| match figures.gaps.count {
        0 => NOTHING.to_owned(),
        _ => figure::duration_us(time_us as f64),
    };
    let counts = counts.map(|(name, count)| (name.to_owned(), figure::count(count as f64)));
    let statuses = figures.grpc_statuses.iter();
    let statuses =
        statuses.map(|(name, count)| (format!("grpc-status {name}"), figure::count(*count as f64)));
    let gaps =
        [("p50", figures.gaps.p50_us), ("p99", figures.gaps.p99_us), ("longest", figures.longest_gap_us)];
    let gaps = gaps.map(|(name, time_us)| (format!("gap between messages, {name}"), gap(time_us)));
    let rows = counts.into_iter().chain(statuses).chain(gaps).map(|(name, value)| vec![name, value]);
    TextTable {
        caption: "Streams".to_owned(),
        headings: ["", "measured"].map(str::to_owned).into(),
        rows: rows.collect(),
    }
}

/// Describes requests without a response, which count with their age.
fn without_answer(outcome: &RunOutcome) -> String {
    let latency = &outcome.latency;
    match latency.at_least.is_empty() {
        true => String::new(),
        false => format!(
            "{}; at least so long: {}",
            figure::count(latency.censored as f64),
            latency.at_least.join(", ").replace("_us", "").replace("_9", ".9")
        ),
    }
}

fn facts(outcome: &RunOutcome) -> Vec<(String, String)> {
    let settings = &outcome.settings;
    let unit = if outcome.stream.is_some() { "messages" } else { "requests" };
    let arrival = match &settings.arrival {
        Arrival::Closed => "closed loop".to_owned(),
        Arrival::Constant { requests_per_second } => format!("{requests_per_second} {unit}/s"),
        Arrival::Poisson { requests_per_second, .. } => format!("{requests_per_second} {unit}/s, at random"),
        Arrival::Stages { stages, .. } => {
            stages.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }
    };
    let version = match (settings.http2, settings.http3) {
        (true, _) => "HTTP/2",
        (_, true) => "HTTP/3",
        _ => "HTTP/1.1",
    };
    let errors = outcome.error_examples.values().cloned().collect::<Vec<_>>().join("; ");
    let facts = [
        ("Request", title(outcome)),
        ("Load", arrival),
        (
            "Connections",
            format!(
                "{}, {} each, {version}",
                settings.connections,
                figure::things(settings.streams, "stream")
            ),
        ),
        ("Threads", settings.threads.to_string()),
        ("Measured", format!("{:.2} s", outcome.measured_seconds)),
        ("Received", figure::bytes(outcome.bytes_received as f64)),
        (
            "Generator",
            format!(
                "{} CPU per {}",
                figure::duration_us(outcome.cpu.us_per_request),
                unit.trim_end_matches('s')
            ),
        ),
        ("Without an answer", without_answer(outcome)),
        ("Checks missed", outcome.checks_missed.text()),
        ("Errors, such as", errors),
    ];
    let told = facts.into_iter().filter(|(_, value)| !value.is_empty());
    told.map(|(name, value)| (name.to_owned(), value)).collect()
}
