//! `--connections 1,10,100`: a run for each number of connections, and a table of the figures.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use load::{LoadPlan, RunOutcome};
use report::figure;

use super::planned::whole;
use super::{LoadArgs, out, page};
use crate::commands::{self, verdict};

pub(super) struct SweepPoint {
    pub(super) connections: usize,
    pub(super) outcome: RunOutcome,
}

pub(super) fn run(arguments: &LoadArgs, plan: &LoadPlan) -> ExitCode {
    if arguments.hgrm.is_some() {
        return commands::fail(
            commands::USAGE,
            "--hgrm is for one number of connections; --out has one for each",
        );
    }
    let plans: Vec<LoadPlan> =
        arguments.connections.iter().map(|count| with_connections(plan, *count)).collect();
    // All are checked before the first runs.
    for plan in &plans {
        if let Err(error) = load::check(plan) {
            return super::refused(error);
        }
    }
    // Verdicts of an earlier sweep are removed, also of runs that are not reached.
    if let Some(out) = &arguments.out {
        let mut folders = plans.iter().map(|plan| folder(out, plan.connections));
        if let Err(message) = folders.try_for_each(|folder| out::OutFolder::create(&folder).map(drop)) {
            return commands::fail(commands::FAILED, message);
        }
    }
    let mut points = Vec::with_capacity(plans.len());
    for plan in &plans {
        let connections = plan.connections;
        if !arguments.quiet {
            commands::say(figure::things(connections, "connection"));
        }
        let folder = arguments.out.as_ref().map(|out| folder(out, connections));
        match super::measured(arguments, plan, folder.as_deref()) {
            Ok(outcome) => points.push(SweepPoint { connections, outcome }),
            Err(code) => return code,
        }
        if points.last().is_some_and(|point| point.outcome.interrupted) {
            break;
        }
    }
    let printed = present(arguments, &points);
    settled(arguments, &points, &printed)
}

/// Copies the load with another number of connections, and at most one thread per connection.
fn with_connections(plan: &LoadPlan, connections: u64) -> LoadPlan {
    let connections = whole(connections);
    LoadPlan { connections, threads: plan.threads.min(connections.max(1)), ..plan.clone() }
}

/// Returns the exit code of the first run without 0; a missed expectation comes first. Each run has a JUnit file.
fn settled(arguments: &LoadArgs, points: &[SweepPoint], printed: &Result<(), String>) -> ExitCode {
    let mut first: Option<(u8, String)> = None;
    for SweepPoint { connections, outcome } in points {
        let judged = verdict::after(printed.clone(), &arguments.limits().judge(outcome));
        let folder = arguments.out.as_ref().map(|out| folder(out, *connections));
        let filed = folder.map_or(Ok(()), |folder| out::judge(&folder, outcome, &judged));
        if let Err((code, message)) = verdict::after(filed, &judged) {
            let message = format!("{message}; that was with {}", figure::things(*connections, "connection"));
            let is_first =
                first.as_ref().is_none_or(|(known, _)| code == verdict::MISSED && *known != verdict::MISSED);
            if is_first {
                first = Some((code, message));
            }
        }
    }
    verdict::ended(first.map_or(Ok(()), Err))
}

fn folder(out: &Path, connections: usize) -> PathBuf {
    out.join(format!("c{connections}"))
}

fn present(arguments: &LoadArgs, points: &[SweepPoint]) -> Result<(), String> {
    if let Some(out) = &arguments.out {
        let path = out.join("sweep.csv");
        std::fs::write(&path, csv(points)).map_err(|error| super::watch::unwritten(&path, &error))?;
        page::write_sweep(&out.join("report.html"), points)?;
    }
    let text = if arguments.json {
        let outcomes: Vec<&RunOutcome> = points.iter().map(|point| &point.outcome).collect();
        let document = serde_json::json!({ "schema": load::SCHEMA, "sweep": outcomes });
        document.to_string() + "\n"
    } else {
        table(points)
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // The reader has gone.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}

/// Formats a row for each number of connections, and why some are invalid.
fn table(points: &[SweepPoint]) -> String {
    let has_server = points.iter().any(|point| point.outcome.server.is_some());
    let mut text = points.first().map(|point| page::title(&point.outcome) + "\n\n").unwrap_or_default();
    let _ = write!(text, "  {:>11}", "connections");
    let mut columns = vec!["requests/s", "p50", "p90", "p99", "max", "failed"];
    if has_server {
        columns.extend(["CPU/request", "memory"]);
    }
    for column in columns {
        let _ = write!(text, " {column:>11}");
    }
    text.push('\n');
    for SweepPoint { connections, outcome } in points {
        let latency = &outcome.latency;
        let time = |name: &str, time_us: u64| match (latency.count, latency.is_at_least(name)) {
            (0, _) => "–".to_owned(),
            (_, false) => figure::duration_us(time_us as f64),
            (_, true) => format!("≥{}", figure::duration_us(time_us as f64)),
        };
        let mut cells = vec![
            figure::rate(outcome.requests_per_second),
            time("p50_us", latency.p50_us),
            time("p90_us", latency.p90_us),
            time("p99_us", latency.p99_us),
            time("max_us", latency.max_us),
            figure::count(outcome.errors.total() as f64),
        ];
        if let Some(server) = outcome.server {
            cells.push(figure::duration_us(server.cpu_us_per_request));
            cells.push(figure::memory_bytes(server.memory_bytes as f64));
        }
        let _ = write!(text, "  {connections:>11}");
        for cell in cells {
            let _ = write!(text, " {cell:>11}");
        }
        text.push('\n');
    }
    for SweepPoint { connections, outcome } in points {
        for problem in &outcome.problems {
            let _ = writeln!(
                text,
                "\nINVALID with {}: {}",
                figure::things(*connections, "connection"),
                load::explained(problem)
            );
        }
    }
    text
}

fn csv(points: &[SweepPoint]) -> String {
    let mut text = "connections,requests_per_second,requests,failed,p50_us,p90_us,p99_us,p99_9_us,max_us,\
                    server_cpu_us_per_request,server_memory_bytes\n"
        .to_owned();
    for SweepPoint { connections, outcome } in points {
        let (latency, failed) = (&outcome.latency, outcome.errors.total());
        let server = outcome.server.map_or_else(
            || ",".to_owned(),
            |server| format!("{:.3},{}", server.cpu_us_per_request, server.memory_bytes),
        );
        let _ = writeln!(
            text,
            "{connections},{:.3},{},{failed},{},{},{},{},{},{server}",
            outcome.requests_per_second,
            outcome.requests,
            latency.p50_us,
            latency.p90_us,
            latency.p99_us,
            latency.p99_9_us,
            latency.max_us
        );
    }
    text
}
