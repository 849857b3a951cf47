//! `--connections 1,10,100`: a run for each number of connections, and how figures grow with it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use load::{Outcome, Plan};
use report::figure;

use super::planned::whole;
use super::{Args, page};
use crate::commands;

/// A run of a sweep.
pub(super) struct Point {
    pub(super) connections: usize,
    pub(super) outcome: Outcome,
}

/// Runs the plan with each number of connections.
pub(super) fn run(arguments: &Args, plan: &Plan) -> ExitCode {
    if arguments.hgrm.is_some() {
        return commands::fail(
            commands::USAGE,
            "--hgrm is for one number of connections; --out has one for each",
        );
    }
    let plans: Vec<Plan> = arguments.connections.iter().map(|count| with_connections(plan, *count)).collect();
    // All are refused before the first runs.
    for plan in &plans {
        if let Err(error) = load::check(plan) {
            return super::refused(error);
        }
    }
    let mut points = Vec::with_capacity(plans.len());
    for plan in &plans {
        let connections = plan.connections;
        if !arguments.quiet {
            commands::say(figure::things(connections, "connection"));
        }
        let folder = arguments.out.as_ref().map(|out| out.join(format!("c{connections}")));
        match super::measured(arguments, plan, folder.as_deref()) {
            Ok(outcome) => points.push(Point { connections, outcome }),
            Err(code) => return code,
        }
        if points.last().is_some_and(|point| point.outcome.interrupted) {
            break;
        }
    }
    match present(arguments, &points) {
        Ok(()) => verdict(arguments, &points),
        Err(message) => commands::fail(commands::FAILED, message),
    }
}

/// The same load on another number of connections. Threads are as many as have one, at most.
fn with_connections(plan: &Plan, connections: u64) -> Plan {
    let connections = whole(connections);
    Plan { connections, threads: plan.threads.min(connections.max(1)), ..plan.clone() }
}

/// The exit code of the first run that does not end with 0; a missed expectation comes before all.
fn verdict(arguments: &Args, points: &[Point]) -> ExitCode {
    let is_missed = |point: &&Point| point.outcome.expectations.iter().any(|each| !each.is_met);
    let judged = points.iter().filter(is_missed).chain(points).map(|point| {
        let code = super::verdict(super::max_errors_of(arguments), &point.outcome);
        if code != ExitCode::SUCCESS {
            let connections = figure::things(point.connections, "connection");
            commands::say(format_args!("that was with {connections}"));
        }
        code
    });
    judged.into_iter().find(|code| *code != ExitCode::SUCCESS).unwrap_or(ExitCode::SUCCESS)
}

fn present(arguments: &Args, points: &[Point]) -> Result<(), String> {
    if let Some(out) = &arguments.out {
        let path = out.join("sweep.csv");
        std::fs::write(&path, csv(points)).map_err(|error| super::watch::unwritten(&path, &error))?;
        page::write_sweep(&out.join("report.html"), points)?;
    }
    let text = if arguments.json {
        let outcomes: Vec<&Outcome> = points.iter().map(|point| &point.outcome).collect();
        let document = serde_json::json!({ "schema": load::SCHEMA, "sweep": outcomes });
        document.to_string() + "\n"
    } else {
        table(points)
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // Nobody reads any longer.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}

/// A row for each number of connections, and why some are invalid.
fn table(points: &[Point]) -> String {
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
    for Point { connections, outcome } in points {
        let time = |time_us: u64| match outcome.latency.count {
            0 => "–".to_owned(),
            _ => figure::duration_us(time_us as f64),
        };
        let latency = &outcome.latency;
        let mut cells = vec![
            figure::rate(outcome.requests_per_second),
            time(latency.p50_us),
            time(latency.p90_us),
            time(latency.p99_us),
            time(latency.max_us),
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
    for Point { connections, outcome } in points {
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

fn csv(points: &[Point]) -> String {
    let mut text = "connections,requests_per_second,requests,failed,p50_us,p90_us,p99_us,p99_9_us,max_us,\
                    server_cpu_us_per_request,server_memory_bytes\n"
        .to_owned();
    for Point { connections, outcome } in points {
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
