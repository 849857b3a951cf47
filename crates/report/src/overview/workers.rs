//! Requests per second against workers, for cases that differ in them: a chart, and the fitted law of `scaling`.

use crate::chart::{self, LineChart, NamedSeries};
use crate::figure;
use crate::results::{Case, ComparedProxy};
use crate::scaling::Fit;
use crate::summary::{CaseSummary, Metric, Summary, title};
use crate::table::{NOTHING, TextTable};

use super::{Shown, lacks};

/// A chart and a table for each group of cases that differ only in their workers.
pub fn by_workers(summary: &Summary<'_>) -> Vec<Shown> {
    let mut groups: Vec<Vec<&CaseSummary<'_>>> = Vec::new();
    // At an offered rate all numbers of workers achieve the same.
    let is_capacity = |case: &&CaseSummary<'_>| !case.case.has_fixed_rate() && case.case.streams.is_none();
    for case in summary.cases.iter().filter(is_capacity) {
        match groups.iter_mut().find(|group| is_alike(group[0].case, case.case)) {
            Some(group) => group.push(case),
            None => groups.push(vec![case]),
        }
    }
    for group in &mut groups {
        group.sort_by_key(|case| case.case.workers);
        group.dedup_by_key(|case| case.case.workers);
    }
    groups.iter().filter(|group| group.len() > 1).enumerate().filter_map(scaling).collect()
}

/// Whether two cases differ only in their workers.
fn is_alike(one: &Case, other: &Case) -> bool {
    let same_workers = Case {
        workers: one.workers,
        name: one.name.clone(),
        published: one.published.clone(),
        ..other.clone()
    };
    *one == same_workers
}

fn scaling((index, cases): (usize, &Vec<&CaseSummary<'_>>)) -> Option<Shown> {
    let workers = |case: &CaseSummary<'_>| case.case.workers as f64;
    let row = |case: &CaseSummary<'_>, name: &str| case.rows.iter().position(|row| row.proxy.name == name);
    let values = |name: &str| -> Vec<(f64, f64)> {
        let of_case = |case: &&CaseSummary<'_>| {
            let values = row(case, name).map(|row| case.rows[row].values(Metric::RequestsPerSecond));
            let workers = workers(case);
            values.into_iter().flatten().map(move |value| (workers, value))
        };
        cases.iter().flat_map(of_case).collect()
    };
    let median = |case: &CaseSummary<'_>, name: &str| {
        let estimate = case.rows[row(case, name)?].cell(Metric::RequestsPerSecond).estimate;
        estimate.map(|estimate| estimate.median)
    };
    let proxies = cases[0].proxies();
    let numbered: Vec<_> = cases.iter().map(|case| (*case, workers(case))).collect();
    let named = |(look, proxy): (chart::Look, &&ComparedProxy)| NamedSeries {
        look,
        name: proxy.name.clone(),
        lacks: lacks(&numbered, &proxy.name),
    };
    let series: Vec<NamedSeries> = chart::looks(&proxies).into_iter().zip(&proxies).map(named).collect();
    let lines = chart::looks(&proxies).into_iter().zip(&proxies).map(|(look, proxy)| {
        let points = cases.iter().filter_map(|case| Some((workers(case), median(case, &proxy.name)?)));
        (look, points.collect::<Vec<_>>())
    });
    let caption = format!(
        "Requests per second against workers: {}",
        title(&Case { workers: 1, ..cases[0].case.clone() })
    );
    let chart = LineChart {
        id: &format!("workers-{index}"),
        title: &caption,
        axis: "workers of the proxy",
        is_logarithmic: false,
        across: figure::count,
        upwards: figure::rate,
        lines: lines.filter(|(_, points)| !points.is_empty()).collect(),
    };
    let rows = proxies.iter().map(|proxy| {
        let each = cases.iter().map(|case| median(case, &proxy.name).map(figure::rate));
        let cells = each.chain(law(Fit::new(&values(&proxy.name))));
        let cells = cells.map(|cell| cell.unwrap_or_else(|| NOTHING.to_owned()));
        [proxy.name.clone()].into_iter().chain(cells).collect()
    });
    let counts = cases.iter().map(|case| figure::things(case.case.workers, "worker"));
    let laws = ["wait for each other (σ)", "agree (κ)", "most at", "explained"].map(str::to_owned);
    let table = TextTable {
        caption: caption.clone(),
        headings: [String::new()].into_iter().chain(counts).chain(laws).collect(),
        rows: rows.collect(),
    };
    Some(Shown { chart: chart.chart(&series), series: None, caption, table })
}

/// Parameters of a fitted law in the order of the headings; empty for fewer than three numbers of workers.
fn law(fit: Option<Fit>) -> [Option<String>; 4] {
    let Some(fit) = fit else { return Default::default() };
    let share = |value: f64, (low, high): (f64, f64)| {
        let [value, low, high] = [value, low, high].map(|share| figure::ratio(100.0 * share));
        format!("{value}% ({low} to {high})")
    };
    let peak = fit.law.peak_workers().map_or_else(
        || "no end".to_owned(),
        |workers| match workers <= fit.measured_workers {
            true => figure::things(workers.round() as usize, "worker"),
            // The peak is beyond the measured numbers of workers.
            false => format!("beyond {}", figure::count(fit.measured_workers)),
        },
    );
    [
        Some(share(fit.law.contention, fit.contention_interval)),
        Some(share(fit.law.crosstalk, fit.crosstalk_interval)),
        Some(peak),
        Some(figure::percent(fit.explained)),
    ]
}
