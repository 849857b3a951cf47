//! Evidence from our own results, for the judge.

use super::{Evidence, Ranking};
use crate::results::{Arrivals, Case, MeasuredFigures, ProxyRole, Results};
use crate::statistics::Estimate;
use crate::summary::{Metric, SummaryRow};

/// Error texts of the kernel or the generator for an exhausted limit.
const EXHAUSTED: [&str; 5] = [
    "Too many open files",
    "open files (ulimit -n)",
    "Cannot assign requested address",
    "Address already in use",
    "No buffer space available",
];

pub(crate) fn ranking(results: &Results, title: &str, case: &Case, rows: &[SummaryRow<'_>]) -> Ranking {
    let ranked = rows.iter().filter(|row| row.proxy.role != ProxyRole::Direct);
    Ranking {
        case: title.to_owned(),
        ranks_rates: !case.has_fixed_rate(),
        entries: ranked.map(|row| evidence(results, case, row)).collect(),
    }
}

fn evidence(results: &Results, case: &Case, row: &SummaryRow<'_>) -> Evidence {
    let offered = match case.arrivals {
        // A search finds the highest rate, so no rate is offered.
        Arrivals::Closed | Arrivals::Searched { .. } => None,
        Arrivals::Constant { rate_per_second } => Some(rate_per_second),
    };
    // With the same offered rate for all, the cost per request is ranked.
    let ranked = if case.has_fixed_rate() { Metric::CpuPerRequest } else { Metric::RequestsPerSecond };
    let requests = row.requests as f64;
    Evidence {
        name: row.proxy.name.clone(),
        repeats: row.values(ranked),
        per_second: row.cell(Metric::RequestsPerSecond).estimate.map(|estimate| estimate.median),
        offered_per_second: offered,
        failed_share: row.failed_share,
        failed_repeats: (row.failed > 0 && row.valid > 0)
            .then_some((row.failed, row.valid + row.refused.len())),
        response_bytes: (row.requests > 0).then(|| row.received_bytes as f64 / requests),
        lateness_us: row
            .lateness_p99_us
            .zip(row.cell(Metric::LatencyP99).estimate)
            .map(|(late, latency)| (late as f64, latency.median)),
        // With a bound on latency, no proxy is busy all the time.
        busy_share: middle(row, |measured| {
            let usage = measured.usage.filter(|_| case.is_closed_loop())?;
            let workers = case.workers.min(results.conditions.cores.proxy.len()).max(1);
            // Divided by the time of the load: the usage before and after it belongs to start and end.
            Some((usage.user_seconds + usage.system_seconds) / measured.seconds / workers as f64)
        }),
        generator_share: middle(row, |measured| {
            // A thread runs on one core at a time.
            let cores = results.conditions.cores.load.len().min(measured.load_threads.unwrap_or(usize::MAX));
            Some(measured.load_cpu_seconds? / measured.seconds / cores.max(1) as f64)
        }),
        others_share: middle(row, |measured| {
            let usage = measured.usage?;
            let proxy = usage.user_seconds + usage.system_seconds;
            // Includes the generator's start and end, if known: they are within that span.
            let whole =
                measured.load.as_ref().map(|load| load.usage.user_seconds + load.usage.system_seconds);
            let load = measured.load_cpu_seconds?.max(whole.unwrap_or(0.0));
            let ours = proxy + load + measured.origins_cpu_seconds?;
            // Divided by the time between the readings, which is longer than the load.
            let all = usage.seconds * results.cores() as f64;
            Some((measured.machine_cpu_seconds? - ours).max(0.0) / all)
        }),
        setup: row.proxy.started_for(&case.name).map(|started| started.setup.clone()).unwrap_or_default(),
        exhausted: row.refused.iter().find_map(|refused| {
            EXHAUSTED.into_iter().find(|words| refused.reason.contains(words)).map(str::to_owned)
        }),
        ..Evidence::default()
    }
}

/// Median over the valid measurements.
fn middle(row: &SummaryRow<'_>, share: impl Fn(&MeasuredFigures) -> Option<f64>) -> Option<f64> {
    Estimate::from_values(row.measured().iter().filter_map(|measured| share(measured)))
        .map(|estimate| estimate.median)
}
