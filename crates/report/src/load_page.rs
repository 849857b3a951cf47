//! Page of one or several runs of the load generator, in common charts.

use serde::Serialize;

use crate::chart::{self, LineChart, Look};
use crate::figure;
use crate::latency::LatencyHistogram;
use crate::page::{PageError, placed};
use crate::results::{ComparedProxy, ProxyRole};
use crate::table::{NOTHING, PERCENTILES, TextTable};

/// Maximum number of points of a line over time. Further seconds are drawn together.
const POINTS_MOST: usize = 240;
const POINTS_PER_DECADE: usize = 12;
/// Minimum number of observations beyond the end of a percentile curve.
const BEYOND: f64 = 10.0;
/// Highest percentile shown: 99.9999%.
const DECADES_MOST: f64 = 6.0;

#[derive(Debug, Clone, Default)]
pub struct LoadRun {
    /// Short name, unique in the page.
    pub name: String,
    /// Whether it counts messages of streams, not requests.
    pub of_messages: bool,
    /// The request and the settings: label and value.
    pub facts: Vec<(String, String)>,
    pub requests_per_second: f64,
    pub requests: u64,
    pub failed: u64,
    pub latency: LatencyHistogram,
    pub seconds: Vec<PageSecond>,
    pub parts: Vec<TextTable>,
    /// Expectations with their results: the text, the measured value, whether it was met.
    pub expectations: Vec<(String, String, bool)>,
    /// Why the run is invalid, or was cut short.
    pub problems: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct PageSecond {
    /// From the start of the run.
    pub end_seconds: f64,
    pub requests_per_second: f64,
    pub failed_per_second: f64,
    /// Median latency; 0 without a success.
    pub p50_us: f64,
    pub p99_us: f64,
}

#[derive(Debug, Clone, Default)]
pub struct SweepStep {
    /// Position on the axis, above 0, such as the number of connections.
    pub across: f64,
    /// CPU time of the server per request, in microseconds, and its memory in bytes.
    pub server: Option<(f64, f64)>,
    pub run: LoadRun,
}

#[derive(Serialize)]
struct LoadPage {
    style: &'static str,
    chart_style: &'static str,
    title: String,
    lede: String,
    legend: String,
    problems: Vec<String>,
    figures: TextTable,
    expectations: Option<TextTable>,
    charts: Vec<DrawnPage>,
    percentiles: TextTable,
    runs: Vec<LoadSection>,
}

#[derive(Serialize)]
struct DrawnPage {
    caption: &'static str,
    chart: String,
}

#[derive(Serialize)]
struct LoadSection {
    name: String,
    facts: Vec<(String, String)>,
    parts: Vec<TextTable>,
}

/// Renders the page. `title` names the measurement, `lede` its time and program.
pub fn render(title: &str, lede: &str, runs: &[LoadRun]) -> Result<String, PageError> {
    let proxies: Vec<ComparedProxy> = runs.iter().enumerate().map(series).collect();
    let proxies: Vec<&ComparedProxy> = proxies.iter().collect();
    let looks = chart::looks(&proxies);
    let of_all = |sentences: fn(&LoadRun) -> &[String]| {
        let told = |run: &LoadRun| {
            let name = if runs.len() > 1 { format!("{}: ", run.name) } else { String::new() };
            sentences(run).iter().map(|sentence| format!("{name}{sentence}")).collect::<Vec<_>>()
        };
        runs.iter().flat_map(told).collect()
    };
    let page = LoadPage {
        style: include_str!("page.css"),
        chart_style: chart::STYLE,
        title: title.to_owned(),
        lede: lede.to_owned(),
        legend: if runs.len() > 1 { chart::legend(&proxies) } else { String::new() },
        problems: of_all(|run| &run.problems),
        figures: figures(runs),
        expectations: expectations(runs),
        charts: charts(runs, &looks),
        percentiles: percentiles(runs),
        runs: runs.iter().map(section).collect(),
    };
    placed(include_str!("load_page.html"), page)
}

/// Renders the page of a sweep: figures against the swept setting, `axis`.
pub fn render_sweep(title: &str, lede: &str, axis: &str, steps: &[SweepStep]) -> Result<String, PageError> {
    let runs: Vec<LoadRun> = steps.iter().map(|step| step.run.clone()).collect();
    let proxies: Vec<ComparedProxy> = runs.iter().enumerate().map(series).collect();
    let proxies: Vec<&ComparedProxy> = proxies.iter().collect();
    let looks = chart::looks(&proxies);
    let problems = runs
        .iter()
        .flat_map(|run| run.problems.iter().map(move |problem| format!("{}: {problem}", run.name)));
    let mut charts = sweep_charts(axis, steps, looks.first());
    charts.extend(by_percentile(&runs, &looks));
    let page = LoadPage {
        style: include_str!("page.css"),
        chart_style: chart::STYLE,
        title: title.to_owned(),
        lede: lede.to_owned(),
        legend: chart::legend(&proxies),
        problems: problems.collect(),
        figures: figures_of_steps(steps),
        expectations: expectations(&runs),
        charts,
        percentiles: percentiles(&runs),
        runs: runs.iter().map(section).collect(),
    };
    placed(include_str!("load_page.html"), page)
}

/// Figures of the runs, with those of the server.
fn figures_of_steps(steps: &[SweepStep]) -> TextTable {
    let mut table = figures(&steps.iter().map(|step| step.run.clone()).collect::<Vec<_>>());
    if steps.iter().any(|step| step.server.is_some()) {
        table.headings.extend(["CPU/request", "memory"].map(str::to_owned));
        for (row, step) in table.rows.iter_mut().zip(steps) {
            let nothing = || NOTHING.to_owned();
            row.push(step.server.map_or_else(nothing, |(us, _)| figure::duration_us(us)));
            row.push(step.server.map_or_else(nothing, |(_, bytes)| figure::memory_bytes(bytes)));
        }
    }
    table
}

/// Charts of figures against the logarithm of the swept setting.
fn sweep_charts(axis: &str, steps: &[SweepStep], look: Option<&Look>) -> Vec<DrawnPage> {
    let Some(look) = look else { return Vec::new() };
    /// ID, caption, whether the axis is logarithmic, its ticks, and the value.
    type Chart = (&'static str, &'static str, bool, fn(f64) -> String, fn(&SweepStep) -> Option<f64>);
    let charts: [Chart; 5] = [
        ("rate", "Requests per second", false, figure::rate, |step| Some(step.run.requests_per_second)),
        ("p50", "Median latency", true, figure::duration_us, |step| at(step, 0.5)),
        ("p99", "p99 of the latency", true, figure::duration_us, |step| at(step, 0.99)),
        ("cpu", "CPU time of the server per request", false, figure::duration_us, |step| {
            step.server.map(|(us, _)| us)
        }),
        ("memory", "Memory of the server", false, figure::bytes, |step| step.server.map(|(_, bytes)| bytes)),
    ];
    let drawn = charts.into_iter().filter_map(|(id, caption, is_logarithmic, upwards, value)| {
        let points = steps.iter().filter_map(|step| Some((step.across.max(1.0).log10(), value(step)?)));
        let lines = LineChart {
            id,
            title: caption,
            axis,
            is_logarithmic,
            across: |logarithm| figure::count(10f64.powf(logarithm)),
            upwards,
            lines: vec![(*look, points.collect())],
        };
        Some(DrawnPage { caption, chart: lines.draw()? })
    });
    drawn.collect()
}

fn at(step: &SweepStep, quantile: f64) -> Option<f64> {
    // A logarithmic axis has no 0.
    step.run.latency.at_quantile_us(quantile).map(|us| us.max(1) as f64)
}

fn series((index, run): (usize, &LoadRun)) -> ComparedProxy {
    let role = if index == 0 { ProxyRole::Subject } else { ProxyRole::Peer };
    ComparedProxy { name: run.name.clone(), role, version: String::new(), started: Vec::new() }
}

fn section(run: &LoadRun) -> LoadSection {
    LoadSection { name: run.name.clone(), facts: run.facts.clone(), parts: run.parts.clone() }
}

fn count_messages(runs: &[LoadRun]) -> bool {
    runs.iter().all(|run| run.of_messages)
}

fn figures(runs: &[LoadRun]) -> TextTable {
    let headings = if count_messages(runs) {
        ["", "messages/s", "messages", "failed", "p50", "p99", "max"]
    } else {
        ["", "requests/s", "requests", "failed", "p50", "p99", "max"]
    };
    let rows = runs.iter().map(|run| {
        let quantile = |quantile| {
            let us = run.latency.at_quantile_us(quantile);
            us.map_or_else(|| NOTHING.to_owned(), |us| figure::duration_us(us as f64))
        };
        vec![
            run.name.clone(),
            figure::rate(run.requests_per_second),
            figure::count(run.requests as f64),
            figure::count(run.failed as f64),
            quantile(0.5),
            quantile(0.99),
            quantile(1.0),
        ]
    });
    TextTable {
        caption: "Figures of the whole run".to_owned(),
        headings: headings.map(str::to_owned).into(),
        rows: rows.collect(),
    }
}

fn percentiles(runs: &[LoadRun]) -> TextTable {
    let quantiles = PERCENTILES.map(|(quantile, _)| quantile);
    let rows = runs.iter().map(|run| {
        let mut row = vec![run.name.clone()];
        let found = run.latency.at_quantiles_us(&quantiles);
        row.extend(found.iter().map(|us| figure::duration_us(*us as f64)));
        row.resize(PERCENTILES.len() + 1, NOTHING.to_owned());
        row
    });
    let headings = [""].into_iter().chain(PERCENTILES.map(|(_, heading)| heading));
    TextTable {
        caption: if count_messages(runs) {
            "Delay of messages by percentile"
        } else {
            "Latency of successful requests by percentile"
        }
        .to_owned(),
        headings: headings.map(str::to_owned).collect(),
        rows: rows.collect(),
    }
}

fn expectations(runs: &[LoadRun]) -> Option<TextTable> {
    let rows = runs.iter().flat_map(|run| {
        run.expectations.iter().map(|(text, measured, is_met)| {
            let verdict = if *is_met { "met" } else { "missed" };
            vec![text.clone(), run.name.clone(), measured.clone(), verdict.to_owned()]
        })
    });
    let rows: Vec<Vec<String>> = rows.collect();
    (!rows.is_empty()).then(|| TextTable {
        caption: "Expectations".to_owned(),
        headings: ["expectation", "run", "measured", "verdict"].map(str::to_owned).into(),
        rows,
    })
}

fn charts(runs: &[LoadRun], looks: &[Look]) -> Vec<DrawnPage> {
    let over_time = |id, title, is_logarithmic, upwards, value: fn(&PageSecond) -> f64| LineChart {
        id,
        title,
        axis: "seconds",
        is_logarithmic,
        across: |seconds| seconds.to_string(),
        upwards,
        lines: lines(runs, looks, |run| points(&run.seconds, value, is_logarithmic)),
    };
    let has_failures = runs.iter().any(|run| run.seconds.iter().any(|second| second.failed_per_second > 0.0));
    let is_of_messages = count_messages(runs);
    let title =
        if is_of_messages { "Messages per second over time" } else { "Requests per second over time" };
    let rate = over_time("rate", title, false, figure::rate, |second| second.requests_per_second);
    let p50 = over_time("p50", "Median latency over time", true, figure::duration_us, |second| second.p50_us);
    let p99 =
        over_time("p99", "99th percentile of the latency over time", true, figure::duration_us, |second| {
            second.p99_us
        });
    let failed = over_time("failed", "Failed requests per second over time", false, figure::rate, |second| {
        second.failed_per_second
    });
    [Some(rate), Some(p99), Some(p50), has_failures.then_some(failed)]
        .into_iter()
        .flatten()
        .filter_map(|lines| Some(DrawnPage { caption: caption(lines.id), chart: lines.draw()? }))
        .chain(by_percentile(runs, looks))
        .collect()
}

fn by_percentile(runs: &[LoadRun], looks: &[Look]) -> Option<DrawnPage> {
    let lines = LineChart {
        id: "percentiles",
        title: "Latency by percentile",
        axis: "percentile of requests",
        is_logarithmic: true,
        across: |decades| percentile(decades),
        upwards: figure::duration_us,
        lines: lines(runs, looks, |run| curve(&run.latency)),
    };
    Some(DrawnPage { caption: caption(lines.id), chart: lines.draw()? })
}

fn caption(id: &str) -> &'static str {
    match id {
        "rate" => "Requests per second",
        "p99" => "p99 of each second",
        "p50" => "Median of each second",
        "failed" => "Failed requests per second",
        _ => "Latency by percentile, of the whole run",
    }
}

fn lines(
    runs: &[LoadRun],
    looks: &[Look],
    points: impl Fn(&LoadRun) -> Vec<(f64, f64)>,
) -> Vec<(Look, Vec<(f64, f64)>)> {
    let drawn = looks.iter().zip(runs).map(|(look, run)| (*look, points(run)));
    drawn.filter(|(_, points)| !points.is_empty()).collect()
}

/// A value over time. Of many seconds, several are drawn as their mean; a logarithmic axis has no 0.
fn points(seconds: &[PageSecond], value: fn(&PageSecond) -> f64, is_logarithmic: bool) -> Vec<(f64, f64)> {
    let together = seconds.len().div_ceil(POINTS_MOST).max(1);
    let mean = |chunk: &[PageSecond]| {
        let values: Vec<f64> =
            chunk.iter().map(value).filter(|value| !is_logarithmic || *value > 0.0).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        chunk.last().filter(|_| !values.is_empty()).map(|last| (last.end_seconds, mean))
    };
    seconds.chunks(together).filter_map(mean).collect()
}

/// Latencies at evenly spaced decades, as far as there are enough observations.
fn curve(latency: &LatencyHistogram) -> Vec<(f64, f64)> {
    let end = (latency.count() as f64 / BEYOND).log10().min(DECADES_MOST);
    if end <= 0.0 {
        return Vec::new();
    }
    let count = (end * POINTS_PER_DECADE as f64) as usize;
    let decades: Vec<f64> = (0..=count).map(|index| index as f64 / POINTS_PER_DECADE as f64).collect();
    let quantiles: Vec<f64> = decades.iter().map(|decade| 1.0 - 10f64.powf(-decade)).collect();
    let latencies = latency.at_quantiles_us(&quantiles);
    decades.into_iter().zip(latencies.into_iter().map(|us| us.max(1) as f64)).collect()
}

/// Label of a number of decades: `0%`, `90%`, `99%`, `99.9%` for 0, 1, 2, 3.
fn percentile(decades: f64) -> String {
    let percent = 100.0 * (1.0 - 10f64.powf(-decades));
    let digits = (decades.ceil() as usize).saturating_sub(2);
    format!("{percent:.digits$}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str) -> LoadRun {
        let second = |number: u32| PageSecond {
            end_seconds: f64::from(number),
            requests_per_second: 100.0,
            failed_per_second: 0.0,
            p50_us: 500.0,
            p99_us: if number == 2 { 0.0 } else { 9_000.0 },
        };
        LoadRun {
            name: name.to_owned(),
            facts: vec![("URL".to_owned(), "http://a/<b>".to_owned())],
            requests_per_second: 100.0,
            requests: 300,
            latency: LatencyHistogram::from_counts([(500, 290), (9_000, 10)]),
            seconds: (1..=3).map(second).collect(),
            ..LoadRun::default()
        }
    }

    #[test]
    fn a_page_has_every_run_in_each_chart_and_escapes_what_it_is_given() {
        let one = render("GET http://a/", "today", &[run("one")]).expect("a page");
        assert!(one.contains("&lt;b&gt;") && !one.contains("<ul class=\"legend\">"), "{one}");
        assert_eq!(one.matches("class=\"curve s0\"").count(), 4);
        assert!(one.contains("9.00 ms") && !one.contains("Failed requests per second"));

        let mut other = run("two");
        other.expectations = vec![("p99 < 1ms".to_owned(), "9.00 ms".to_owned(), false)];
        other.problems = vec!["the generator was late".to_owned()];
        other.seconds[0].failed_per_second = 2.0;
        let both = render("Two runs", "", &[run("one"), other]).expect("a page");
        assert!(both.contains("<ul class=\"legend\">"));
        let [all, first] = ["class=\"curve s", "class=\"curve s0\""].map(|curve| both.matches(curve).count());
        assert_eq!((first, all - first), (1 + 5, 1 + 5), "the legend, and each chart");
        for text in ["two: the generator was late", "p99 &lt; 1ms", "missed", "Failed requests per second"] {
            assert!(both.contains(text), "{text}");
        }
    }

    #[test]
    fn many_seconds_are_drawn_together_and_nothing_has_no_chart() {
        let seconds: Vec<PageSecond> =
            (0..1_000).map(|at| PageSecond { end_seconds: f64::from(at), ..run("").seconds[0] }).collect();
        assert!(points(&seconds, |second| second.p50_us, true).len() <= POINTS_MOST);
        assert_eq!(points(&seconds, |second| second.failed_per_second, true), []);
        assert!(charts(&[LoadRun::default()], &[]).is_empty());
        assert!(render("t", "", &[LoadRun::default()]).expect("a page").contains(NOTHING));
        assert_eq!(
            [0.0, 0.5, 1.0, 2.0, 2.5, 4.0].map(percentile),
            ["0%", "68%", "90%", "99%", "99.7%", "99.99%"]
        );
    }
}
