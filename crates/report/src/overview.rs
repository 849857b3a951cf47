//! What a page shows above the single cases: all proxies beside each other, latency against rate, and the published
//! figures beside ours. Each chart with its table.

use serde::Serialize;

use crate::chart::{self, Groups, Lines};
use crate::figure;
use crate::published;
use crate::results::{Arrivals, Role, Sample, Scheme};
use crate::statistics::Estimate;
use crate::summary::{CaseSummary, Metric, Summary};
use crate::table::{NOTHING, Table};

/// Samples of a line that are drawn, evenly chosen of more; the tables and files have all.
const DRAWN_MOST: usize = 40;

/// A chart with the table of its figures.
#[derive(Debug, Serialize)]
pub struct Shown {
    /// What it shows.
    pub caption: String,
    /// Inline SVG; none where a table says it all.
    pub chart: Option<String>,
    /// The figures.
    pub table: Table,
}

/// Requests per second, throughput, cost and latency of all proxies in all cases.
pub fn beside_each_other(summary: &Summary<'_>) -> Vec<Shown> {
    let closed = |case: &CaseSummary<'_>| case.case.arrivals == Arrivals::Closed;
    let any = |_: &CaseSummary<'_>| true;
    let groups = [
        Groups {
            id: "all-rates",
            title: "Requests per second in closed loops",
            axis: "requests per second",
            includes: closed,
            value: |row| row.cell(Metric::RequestsPerSecond).estimate,
            figure: figure::count,
        },
        Groups {
            id: "all-throughput",
            title: "Throughput in closed loops",
            axis: "bytes received each second",
            includes: closed,
            value: |row| row.bytes_per_second(),
            figure: figure::bytes,
        },
        Groups {
            id: "all-costs",
            title: "CPU time per request",
            axis: "CPU time of the proxy's process tree",
            includes: any,
            value: |row| row.cell(Metric::CpuPerRequest).estimate,
            figure: figure::duration_us,
        },
        Groups {
            id: "all-p99",
            title: "99th percentile of latency",
            axis: "latency",
            includes: any,
            value: |row| row.cell(Metric::LatencyP99).estimate,
            figure: figure::duration_us,
        },
    ];
    groups
        .iter()
        .filter_map(|group| {
            let chart = group.draw(summary)?;
            Some(Shown {
                caption: group.title.to_owned(),
                chart: Some(chart),
                table: by_case(summary, group),
            })
        })
        .collect()
}

/// Latency against the rate that was offered, for each payload that was asked for at several rates.
pub fn latency_against_rate(summary: &Summary<'_>) -> Vec<Shown> {
    let key = |case: &CaseSummary<'_>| {
        (case.case.scheme == Scheme::Https, case.case.payload.clone(), case.case.connections)
    };
    let paced: Vec<(&CaseSummary<'_>, f64)> = summary
        .cases
        .iter()
        .filter_map(|case| match case.case.arrivals {
            Arrivals::Constant { rate_per_second } => Some((case, rate_per_second)),
            Arrivals::Closed => None,
        })
        .collect();
    let mut seen = Vec::new();
    let mut shown = Vec::new();
    for (case, _) in &paced {
        let key_here = key(case);
        let mut rates: Vec<(&CaseSummary<'_>, f64)> =
            paced.iter().copied().filter(|(other, _)| key(other) == key_here).collect();
        if rates.len() > 1 && !seen.contains(&key_here) {
            rates.sort_by(|one, other| one.1.total_cmp(&other.1));
            shown.extend(against_rate(&rates, seen.len()));
            seen.push(key_here);
        }
    }
    shown
}

fn against_rate(rates: &[(&CaseSummary<'_>, f64)], index: usize) -> Option<Shown> {
    let p99 = |case: &CaseSummary<'_>, name: &str| {
        let row = case.rows.iter().find(|row| row.proxy.name == name)?;
        Some(row.cell(Metric::LatencyP99).estimate?.median)
    };
    let proxies: Vec<_> = rates[0].0.rows.iter().map(|row| row.proxy).collect();
    let lines: Vec<_> = chart::looks(&proxies)
        .into_iter()
        .zip(&proxies)
        .map(|(look, proxy)| {
            let points = rates.iter().filter_map(|(case, rate)| Some((*rate, p99(case, &proxy.name)?)));
            (look, points.collect::<Vec<_>>())
        })
        .filter(|(_, points)| !points.is_empty())
        .collect();
    let (id, caption) = (
        format!("rates-{index}"),
        format!("99th percentile of latency against rate: {}", rates[0].0.payload()),
    );
    let chart = Lines {
        id: &id,
        title: &caption,
        axis: "requests offered each second",
        is_logarithmic: true,
        across: figure::count,
        upwards: figure::duration_us,
        lines,
    };
    let knee = |name: &str| {
        let points: Vec<(f64, f64)> =
            rates.iter().filter_map(|(case, rate)| Some((*rate, p99(case, name)?))).collect();
        crate::knee::knee(&points)
            .map_or_else(|| NOTHING.to_owned(), |knee| figure::count(knee.rate_per_second))
    };
    let row = |name: &str| {
        let cells = rates
            .iter()
            .map(|(case, _)| p99(case, name).map_or_else(|| NOTHING.to_owned(), figure::duration_us));
        [name.to_owned()].into_iter().chain(cells).chain([knee(name)]).collect()
    };
    let headings = rates.iter().map(|(_, rate)| format!("{}/s", figure::count(*rate)));
    let table = Table {
        caption: caption.clone(),
        headings: [String::new()].into_iter().chain(headings).chain(["bends at".to_owned()]).collect(),
        rows: proxies.iter().map(|proxy| row(&proxy.name)).collect(),
    };
    Some(Shown { chart: chart.draw(), caption, table })
}

/// What the proxies of a case used over time, of the last measurement of each: CPU, memory, threads, connections.
pub fn over_time(case: &CaseSummary<'_>) -> Vec<Shown> {
    type Quantity = (&'static str, &'static str, fn(&Sample) -> f64, fn(f64) -> String);
    let quantities: [Quantity; 4] = [
        ("cpu", "CPU", |sample| sample.busy_cores, figure::percent),
        ("memory", "Memory", |sample| sample.memory_bytes as f64, figure::memory_bytes),
        ("threads", "Threads", |sample| sample.threads as f64, figure::count),
        ("connections", "TCP connections", |sample| sample.connections as f64, figure::count),
    ];
    let proxies: Vec<_> = case.rows.iter().map(|row| row.proxy).collect();
    let looks = chart::looks(&proxies);
    let sampled: Vec<_> = looks
        .into_iter()
        .zip(&case.rows)
        .filter_map(|(look, row)| Some((look, row, row.measured().last()?.samples.as_slice())))
        .filter(|(_, _, samples)| !samples.is_empty())
        .collect();
    let shown = quantities.into_iter().filter_map(|(key, name, quantity, figure)| {
        let id = format!("{key}-{}", case.case.name);
        let title = format!("{name} over time: {}", case.title());
        let lines = sampled.iter().map(|(look, _, samples)| {
            let step = samples.len().div_ceil(DRAWN_MOST).max(1);
            let drawn = samples.iter().step_by(step);
            (*look, drawn.map(|sample| (sample.at_seconds, quantity(sample))).collect())
        });
        let chart = Lines {
            id: &id,
            title: &title,
            axis: "seconds",
            is_logarithmic: false,
            across: figure::ratio,
            upwards: figure,
            lines: lines.collect(),
        };
        let chart = chart.draw()?;
        let rows = sampled.iter().map(|(_, row, samples)| {
            let mut values: Vec<f64> = samples.iter().map(quantity).collect();
            values.sort_by(f64::total_cmp);
            let middle = crate::statistics::median(&values);
            let cells = [values[0], middle, values[values.len() - 1]].map(figure);
            [row.proxy.name.clone()].into_iter().chain(cells).collect()
        });
        let table = Table {
            caption: title.clone(),
            headings: ["", "least", "median", "most"].map(str::to_owned).to_vec(),
            rows: rows.collect(),
        };
        Some(Shown { caption: format!("{name} over time"), chart: Some(chart), table })
    });
    shown.collect()
}

/// The rules that cases break.
pub fn verdicts(summary: &Summary<'_>) -> Table {
    let rows = summary.cases.iter().flat_map(|case| {
        case.findings.iter().map(|finding| {
            vec![
                finding.rule.to_owned(),
                case.title(),
                finding.seen.clone(),
                format!("{} {}", finding.consequence(), finding.remedy),
            ]
        })
    });
    Table {
        caption: "Rules that were broken, and what follows".to_owned(),
        headings: ["rule", "case", "what was seen", "what follows"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

/// The published requests per second of each case as ratios between proxies, beside our own; `None` where nobody
/// published anything.
pub fn published_ratios(summary: &Summary<'_>) -> Option<Table> {
    let figures = &summary.results.published;
    let per_second = |system: &str, case: &str| {
        let figure = figures.iter().find(|figure| {
            (figure.system.as_str(), figure.case.as_str(), figure.metric.as_str())
                == (system, case, "requests_per_second")
        });
        figure.map(|figure| figure.value)
    };
    let mut rows = Vec::new();
    for case in &summary.cases {
        let Some(name) = case.case.published.as_deref() else { continue };
        let base = case.rows.iter().find_map(|row| {
            Some((
                row,
                per_second(&row.proxy.name, name)?,
                row.cell(Metric::RequestsPerSecond).estimate?.median,
            ))
        });
        let Some((base, their_base, our_base)) = base else { continue };
        for row in case.rows.iter().filter(|row| row.proxy.role != Role::Direct) {
            let theirs = per_second(&row.proxy.name, name);
            let ours = row.cell(Metric::RequestsPerSecond).estimate.map(|estimate| estimate.median);
            let or_nothing = |value: Option<f64>, figure: fn(f64) -> String| {
                value.map_or_else(|| NOTHING.to_owned(), figure)
            };
            rows.push(vec![
                case.title(),
                format!("{} ÷ {}", row.proxy.name, base.proxy.name),
                or_nothing(theirs.map(|value| value / their_base), figure::ratio),
                or_nothing(ours.map(|value| value / our_base), figure::ratio),
                or_nothing(theirs, figure::count),
                or_nothing(ours, figure::count),
            ]);
        }
    }
    (!rows.is_empty()).then(|| Table {
        caption: "Requests per second as ratios between proxies: published, and measured here. The machines differ, so only ratios compare."
            .to_owned(),
        headings: ["case", "ratio", "published", "measured", "published/s", "measured/s"].map(str::to_owned).to_vec(),
        rows,
    })
}

/// What the judge says of the published tables, and what their documents show; empty where there are none.
pub fn published_verdicts(summary: &Summary<'_>) -> Vec<String> {
    let is_of = |experiment: &&published::Experiment| {
        summary.results.published.first().is_some_and(|figure| {
            experiment
                .figures()
                .any(|known| (known.system, known.case) == (figure.system.as_str(), figure.case.as_str()))
        })
    };
    let Some(experiment) = published::EXPERIMENTS.iter().find(is_of) else { return Vec::new() };
    let mut said = vec![format!("Source: {}.", experiment.source)];
    said.extend(experiment.findings().into_iter().map(|(cases, finding)| {
        let others = match cases.len() - 1 {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        format!("{} ({}{others}): {}", finding.rule, cases[0], finding.sentence())
    }));
    said.extend(experiment.remarks.iter().map(|&remark| remark.to_owned()));
    said
}

/// A row for each case, a column for each proxy.
fn by_case(summary: &Summary<'_>, group: &Groups<'_>) -> Table {
    let names: Vec<&str> = summary.results.proxies.iter().map(|proxy| proxy.name.as_str()).collect();
    let cell = |estimate: Estimate| match estimate.count {
        1 => (group.figure)(estimate.median),
        _ => format!("{} ±{}", (group.figure)(estimate.median), figure::percent(estimate.spread())),
    };
    let row = |case: &CaseSummary<'_>| {
        let cells = names.iter().map(|name| {
            let row = case.rows.iter().find(|row| row.proxy.name == *name);
            row.and_then(group.value).map_or_else(|| NOTHING.to_owned(), cell)
        });
        [case.title()].into_iter().chain(cells).collect()
    };
    Table {
        caption: group.title.to_owned(),
        headings: std::iter::once("").chain(names.iter().copied()).map(str::to_owned).collect(),
        rows: summary.cases.iter().filter(|case| (group.includes)(case)).map(row).collect(),
    }
}
