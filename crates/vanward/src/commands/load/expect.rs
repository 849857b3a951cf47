//! Expectations of a run: `--expect 'p99 < 50ms'`. Parsed with the other flags, and judged by the outcome.

use load::{Expectation, Outcome, StreamFigures};
use report::condition::{Condition, Figure, StreamFigure};

/// Parses the value of `--expect`.
pub(super) fn condition(text: &str) -> Result<Condition, String> {
    Condition::parse(text)
}

/// Refuses expectations of the server if its process is not known, and those of streams for requests.
pub(super) fn check(conditions: &[Condition], has_process: bool, has_streams: bool) -> Result<(), String> {
    let is_of_server =
        |condition: &&Condition| matches!(condition.figure(), Figure::CpuPerRequest | Figure::Memory);
    let is_of_streams = |condition: &&Condition| matches!(condition.figure(), Figure::Stream(_));
    if let Some(condition) = conditions.iter().find(is_of_streams).filter(|_| !has_streams) {
        return Err(format!(
            "--expect {:?} is about streams: measure them with vanward load events, websocket or grpc",
            condition.text()
        ));
    }
    match conditions.iter().find(is_of_server) {
        Some(condition) if !has_process => Err(format!(
            "--expect {:?} is about the server, which a generator does not see: name its process with --pid",
            condition.text()
        )),
        _ => Ok(()),
    }
}

/// Whether it limits failed requests.
pub(super) fn is_about_errors(condition: &Condition) -> bool {
    matches!(condition.figure(), Figure::Errors | Figure::ErrorShare)
}

/// Judges each expectation.
pub(super) fn judge(conditions: &[Condition], outcome: &Outcome) -> Vec<Expectation> {
    let judged = conditions.iter().map(|condition| {
        let measured = measured(condition.figure(), outcome);
        Expectation {
            text: condition.text().to_owned(),
            measured: measured.map(|value| condition.told(value)),
            is_met: measured.is_some_and(|value| condition.is_met_by(value)),
        }
    });
    judged.collect()
}

/// The figure of a run; `None` if it was not measured.
fn measured(figure: Figure, outcome: &Outcome) -> Option<f64> {
    let latency = Some(&outcome.latency).filter(|latency| latency.count > 0);
    let failed = outcome.errors.total();
    let all = outcome.requests + failed;
    let of_class = |class: u16| {
        let is_in = |(status, _): &(&u16, &u64)| **status / 100 == class;
        outcome.statuses.iter().filter(is_in).map(|(_, count)| *count).sum::<u64>()
    };
    let share = |count: u64| (all > 0).then(|| count as f64 / all as f64);
    match figure {
        Figure::Quantile(quantile) => {
            let histogram = latency?.histogram().ok()?;
            Some(histogram.value_at_quantile(quantile) as f64)
        }
        Figure::Mean => latency.map(|latency| latency.mean_us),
        Figure::Errors => (all > 0).then_some(failed as f64),
        Figure::ErrorShare => share(failed),
        Figure::Status(class) => (all > 0).then(|| of_class(class) as f64),
        Figure::StatusShare(class) => share(of_class(class)),
        Figure::Rate => (outcome.measured_seconds > 0.0).then_some(outcome.requests_per_second),
        Figure::CpuPerRequest => {
            outcome.server.filter(|_| outcome.requests > 0).map(|server| server.cpu_us_per_request)
        }
        Figure::Memory => outcome.server.map(|server| server.memory_bytes as f64),
        Figure::Stream(figure) => of_streams(figure, outcome.stream.as_deref()?),
    }
}

/// A figure of streams; `None` if it was not measured.
fn of_streams(figure: StreamFigure, figures: &StreamFigures) -> Option<f64> {
    let counts = &figures.counts;
    let all = counts.received + counts.lost;
    let counted = match figure {
        StreamFigure::Lost => counts.lost,
        StreamFigure::LostShare => return (all > 0).then(|| counts.lost as f64 / all as f64),
        StreamFigure::Duplicates => counts.duplicates,
        StreamFigure::OutOfOrder => counts.out_of_order,
        StreamFigure::ClosedEarly => counts.closed_early,
        StreamFigure::Reconnected => counts.reconnected,
        StreamFigure::SentRate => return Some(figures.sent_per_second),
        StreamFigure::Gap(1.0) => figures.longest_gap_us,
        StreamFigure::Gap(quantile) => {
            let histogram = figures.gaps.histogram().ok().filter(|histogram| !histogram.is_empty())?;
            histogram.value_at_quantile(quantile)
        }
    };
    // Where nothing was sent or received, nothing was found to be right.
    (counts.sent + counts.received > 0).then_some(counted as f64)
}

/// Error message if an expectation was missed.
pub(super) fn missed(outcome: &Outcome) -> Option<String> {
    let missed: Vec<String> = outcome
        .expectations
        .iter()
        .filter(|each| !each.is_met)
        .map(|each| format!("{} (measured {})", each.text, each.measured.as_deref().unwrap_or("nothing")))
        .collect();
    let all = outcome.expectations.len();
    (!missed.is_empty())
        .then(|| format!("{} of {all} expectations were missed: {}", missed.len(), missed.join(", ")))
}
