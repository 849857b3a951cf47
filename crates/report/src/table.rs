//! Tables, before they become text, Markdown or HTML: all forms have the same words.

use serde::Serialize;

use crate::figure;
use crate::results::{ProxyRole, StreamsMeasured};
use crate::statistics::Estimate;
use crate::summary::{CaseCounts, CaseSummary, FigureVerdict, Metric, SummaryCell, SummaryRow};

/// Text for a missing figure.
pub const NOTHING: &str = "—";
/// Mark of a figure that differs from the subject's by less than the spread.
pub const EVEN: &str = "≈";

/// Heading of the connections that a proxy made to its origins during the load, as a median over the repeats.
const CONNECTIONS: &str = "connects";

/// Listed percentiles, with their headings.
pub const PERCENTILES: [(f64, &str); 6] =
    [(0.5, "p50"), (0.75, "p75"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "max")];

/// A table of text cells with headings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TextTable {
    pub caption: String,
    /// Headings of the columns; the first column names the row.
    pub headings: Vec<String>,
    /// Rows, each with as many cells as headings.
    pub rows: Vec<Vec<String>>,
}

pub fn figures(case: &CaseSummary<'_>) -> TextTable {
    // Files of earlier versions do not have it.
    let tells = case.rows.iter().any(|row| row.origin_connections().is_some());
    let more = if tells { vec![CONNECTIONS, "errors"] } else { vec!["errors"] };
    let counted = case.counted();
    let headings = [""].into_iter().chain(Metric::ALL.map(|metric| metric.heading(counted))).chain(more);
    let row = |row: &SummaryRow<'_>| {
        let errors =
            row.failed_share.map_or_else(|| NOTHING.to_owned(), |_| figure::count(row.errors as f64));
        let invalid = (!row.refused.is_empty()).then(|| format!("{} invalid", row.refused.len()));
        let remarks: Vec<String> = invalid.into_iter().chain(case.unranked(&row.proxy.name)).collect();
        let name = match remarks.is_empty() {
            true => row.proxy.name.clone(),
            false => format!("{} ({})", row.proxy.name, remarks.join(", ")),
        };
        let made = row.origin_connections().map(|estimate| figure::count(estimate.median));
        let more = tells.then(|| or_nothing(made)).into_iter().chain([errors]);
        [name].into_iter().chain(row.cells.iter().map(cell)).chain(more).collect()
    };
    TextTable {
        caption: case.title(),
        headings: headings.map(str::to_owned).collect(),
        rows: case.rows.iter().map(row).collect(),
    }
}

/// Errors of a case by cause; `None` if there was none.
pub fn errors(case: &CaseSummary<'_>) -> Option<TextTable> {
    let mut kinds: Vec<&str> = case.rows.iter().flat_map(|row| row.errors_by_kind.keys().copied()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let row = |row: &SummaryRow<'_>| {
        let counts = kinds.iter().map(|kind| row.errors_by_kind.get(kind).copied().unwrap_or(0));
        [row.proxy.name.clone()].into_iter().chain(counts.map(|count| figure::count(count as f64))).collect()
    };
    (!kinds.is_empty()).then(|| TextTable {
        caption: "Errors by cause".to_owned(),
        headings: [""].into_iter().chain(kinds.iter().copied()).map(str::to_owned).collect(),
        rows: case.rows.iter().map(row).collect(),
    })
}

/// Figures that only streams have; `None` for requests.
pub fn streams(case: &CaseSummary<'_>) -> Option<TextTable> {
    case.case.streams.as_ref()?;
    let headings = [
        "",
        "sent/s",
        "lost",
        "duplicates",
        "out of order",
        "closed early",
        "opened again",
        "gap p50",
        "gap p99",
        "longest silence",
    ];
    let row = |row: &SummaryRow<'_>| {
        let streams = row.streams();
        let count = |of: fn(&StreamsMeasured) -> u64| {
            or_nothing(streams.as_ref().map(|streams| figure::count(of(streams) as f64)))
        };
        let gap =
            |quantile| or_nothing(row.gaps_us(quantile).map(|estimate| figure::duration_us(estimate.median)));
        // A client that sends nothing has no rate.
        let sent = row.sent_per_second().filter(|_| !case.case.is_paced_by_server());
        vec![
            row.proxy.name.clone(),
            or_nothing(sent.map(|estimate| figure::rate(estimate.median))),
            count(|streams| streams.lost),
            count(|streams| streams.duplicates),
            count(|streams| streams.out_of_order),
            count(|streams| streams.closed_early),
            count(|streams| streams.reconnected),
            gap(0.5),
            gap(0.99),
            gap(1.0),
        ]
    };
    Some(TextTable {
        caption: "Streams and messages, all repeats together; rate and gaps are medians".to_owned(),
        headings: headings.map(str::to_owned).to_vec(),
        rows: case.rows.iter().map(row).collect(),
    })
}

/// CPU time per request of the proxies of a case, in user mode and in the kernel.
pub fn cpu(case: &CaseSummary<'_>) -> TextTable {
    let headings = ["", "user", "system", "both", "range", "core use", "subject by it"];
    let subject = case.subject().map_or("subject", |row| row.proxy.name.as_str());
    let rows = case.rows.iter().filter(|row| row.proxy.role != ProxyRole::Direct).map(|row| {
        let total = row.cell(Metric::CpuPerRequest);
        let part = |index: usize| or_nothing(row.cpu_split_us.map(|split| figure::duration_us(split[index])));
        vec![
            row.proxy.name.clone(),
            part(0),
            part(1),
            or_nothing(total.estimate.map(|estimate| figure::duration_us(estimate.median))),
            or_nothing(total.estimate.map(|estimate| range(Metric::CpuPerRequest, &estimate))),
            or_nothing(row.busy_cores.map(figure::percent)),
            or_nothing(total.beside_subject.map(|beside| figure::ratio(beside.subject_ratio))),
        ]
    });
    TextTable {
        caption: format!("CPU time per {}, of the proxy's whole process tree", case.counted().one()),
        headings: headings
            .iter()
            .map(|&heading| heading.replace("subject by it", &format!("{subject} ÷ it")))
            .collect(),
        rows: rows.collect(),
    }
}

/// Latency at the usual percentiles, over all repeats.
pub fn percentiles(case: &CaseSummary<'_>) -> TextTable {
    let quantiles = PERCENTILES.map(|(quantile, _)| quantile);
    // Requests that timed out took longer, and are not among these latencies.
    let has_timeouts = case.rows.iter().any(|row| row.timeouts() > 0);
    let rows = case.rows.iter().map(|row| {
        let mut latencies = row.latency.at_quantiles_us(&quantiles).into_iter();
        let cells =
            quantiles.iter().map(|_| or_nothing(latencies.next().map(|us| figure::duration_us(us as f64))));
        let timeouts = has_timeouts.then(|| figure::count(row.timeouts() as f64));
        [row.proxy.name.clone()].into_iter().chain(cells.collect::<Vec<_>>()).chain(timeouts).collect()
    });
    TextTable {
        caption: match case.counted() {
            CaseCounts::Messages => "Percentiles of the delay of messages, all repeats together".to_owned(),
            CaseCounts::Requests | CaseCounts::Both => "Latency percentiles, all repeats together".to_owned(),
        },
        headings: [""]
            .into_iter()
            .chain(PERCENTILES.map(|(_, heading)| heading))
            .chain(has_timeouts.then_some("timed out"))
            .map(str::to_owned)
            .collect(),
        rows: rows.collect(),
    }
}

/// Text of a cell: `31,022 ±2%`, followed by [`EVEN`] if it does not differ from the subject's.
fn cell(cell: &SummaryCell) -> String {
    let Some(estimate) = cell.estimate else { return NOTHING.to_owned() };
    let mut text = cell.metric.figure(estimate.median);
    if estimate.count > 1 {
        text.push_str(&format!(" ±{}", figure::percent(estimate.spread())));
    }
    if cell.beside_subject.is_some_and(|beside| beside.verdict == FigureVerdict::Even) {
        text.push_str(&format!(" {EVEN}"));
    }
    text
}

/// Text of an interval: `16.9–17.6 µs`.
fn range(metric: Metric, estimate: &Estimate) -> String {
    let (low, high) = (metric.figure(estimate.low), metric.figure(estimate.high));
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number}–{high}"),
        _ => format!("{low}–{high}"),
    }
}

fn or_nothing(text: Option<String>) -> String {
    text.unwrap_or_else(|| NOTHING.to_owned())
}
