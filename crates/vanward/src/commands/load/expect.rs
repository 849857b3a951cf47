//! Expectations of a run: `--expect 'p99 < 50ms'`. Parsed with the other flags, and judged by the outcome.

use load::{Distribution, RunExpectation, RunOutcome, StreamFigures};
use report::condition::{ConditionFigure, FigureCondition, StreamFigure};

/// Parses the value of `--expect`.
pub(super) fn condition(text: &str) -> Result<FigureCondition, String> {
    FigureCondition::parse(text)
}

/// Rejects expectations about the server if its process is unknown, and those about streams for requests.
pub(super) fn check(
    conditions: &[FigureCondition],
    has_process: bool,
    has_streams: bool,
) -> Result<(), String> {
    let is_of_server = |condition: &&FigureCondition| {
        matches!(condition.figure(), ConditionFigure::CpuPerRequest | ConditionFigure::Memory)
    };
    let is_of_streams =
        |condition: &&FigureCondition| matches!(condition.figure(), ConditionFigure::Stream(_));
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

pub(super) fn judge(conditions: &[FigureCondition], outcome: &RunOutcome) -> Vec<RunExpectation> {
    let judged = conditions.iter().map(|condition| {
        let measured = measured(condition.figure(), outcome);
        let is_least = measured.is_some() && is_at_least(condition.figure(), &outcome.latency);
        let told = |value| {
            let least = if is_least { "at least " } else { "" };
            format!("{least}{}", condition.told(value))
        };
        // A lower bound meets an expectation only if any longer time does, too.
        let is_met_by =
            |value| condition.is_met_by(value) && (!is_least || condition.is_met_by(f64::INFINITY));
        RunExpectation {
            text: condition.text().to_owned(),
            measured: measured.map(told),
            is_met: measured.is_some_and(is_met_by),
        }
    });
    judged.collect()
}

/// Whether a figure falls among requests without a response.
fn is_at_least(figure: ConditionFigure, latency: &Distribution) -> bool {
    match figure {
        ConditionFigure::Quantile(quantile) => {
            latency.percentile(quantile).is_ok_and(|found| found.is_at_least)
        }
        ConditionFigure::Mean => latency.is_at_least("mean_us"),
        _ => false,
    }
}

/// Returns a figure of a run; `None` if it was not measured.
fn measured(figure: ConditionFigure, outcome: &RunOutcome) -> Option<f64> {
    let latency = Some(&outcome.latency).filter(|latency| latency.count > 0);
    let failed = outcome.errors.total();
    let all = outcome.requests + failed;
    let of_class = |class: u16| {
        let is_in = |(status, _): &(&u16, &u64)| **status / 100 == class;
        outcome.statuses.iter().filter(is_in).map(|(_, count)| *count).sum::<u64>()
    };
    let share = |count: u64| (all > 0).then(|| count as f64 / all as f64);
    match figure {
        ConditionFigure::Quantile(quantile) => {
            let histogram = latency?.histogram().ok()?;
            Some(histogram.value_at_quantile(quantile) as f64)
        }
        ConditionFigure::Mean => latency.map(|latency| latency.mean_us),
        ConditionFigure::Errors => (all > 0).then_some(failed as f64),
        ConditionFigure::ErrorShare => share(failed),
        ConditionFigure::Status(class) => (all > 0).then(|| of_class(class) as f64),
        ConditionFigure::StatusShare(class) => share(of_class(class)),
        ConditionFigure::Rate => (outcome.measured_seconds > 0.0).then_some(outcome.requests_per_second),
        ConditionFigure::CpuPerRequest => {
            outcome.server.filter(|_| outcome.requests > 0).map(|server| server.cpu_us_per_request)
        }
        ConditionFigure::Memory => outcome.server.map(|server| server.memory_bytes as f64),
        ConditionFigure::Stream(figure) => of_streams(figure, outcome.stream.as_deref()?),
    }
}

/// Returns a figure of streams; `None` if it was not measured.
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
    // Without any message, zero losses prove nothing.
    (counts.sent + counts.received > 0).then_some(counted as f64)
}

pub(super) fn missed(outcome: &RunOutcome) -> Option<String> {
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
