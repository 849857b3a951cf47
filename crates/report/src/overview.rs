//! Overview of a page: all proxies, latency against rate, and published figures next to ours, as charts with tables.

/// Requests per second against workers.
mod workers;

use serde::Serialize;

use crate::chart::{self, Chart, Groups, LineChart, Look, NamedSeries};
use crate::figure;
use crate::judge;
use crate::published;
use crate::results::{
    Arrivals, ClientScheme, ClientVersion, ProxyRole, Run, Usage, UsageSample, WatchedUsage,
};
use crate::statistics::Estimate;
use crate::summary::{self, CaseSummary, Metric, Summary, SummaryRow};
use crate::table::{NOTHING, TextTable};

pub use workers::by_workers;

/// Maximum number of samples in a drawn line, evenly selected. Tables and files have all samples.
const DRAWN_MOST: usize = 40;

/// A chart with the table of its figures.
#[derive(Debug, Clone, Serialize)]
pub struct Shown {
    pub caption: String,
    /// `None` if the table is enough.
    pub chart: Option<Chart>,
    /// Samples of a chart with zoom, as JSON.
    pub series: Option<String>,
    pub table: TextTable,
}

/// Requests per second, throughput, cost and latency of all proxies in all cases.
pub fn beside_each_other(summary: &Summary<'_>) -> Vec<Shown> {
    let groups = of_requests().into_iter().chain(of_streams());
    let shown = |group: Groups<'_>| {
        let table = by_case(summary, &group);
        Some(Shown {
            caption: group.title.to_owned(),
            chart: Some(group.draw(summary)?),
            series: None,
            table,
        })
    };
    groups.filter_map(shown).collect()
}

/// Charts of requests. Messages of streams have separate charts.
fn of_requests() -> [Groups<'static>; 5] {
    let requests = |case: &CaseSummary<'_>| case.case.streams.is_none();
    let closed = |case: &CaseSummary<'_>| case.case.is_closed_loop() && case.case.streams.is_none();
    let searched = |case: &CaseSummary<'_>| matches!(case.case.arrivals, Arrivals::Searched { .. });
    [
        Groups {
            id: "all-capacities",
            title: "Highest rate within a bound on latency",
            axis: "requests or messages per second",
            includes: searched,
            value: |row| row.cell(Metric::RequestsPerSecond).estimate,
            figure: figure::rate,
        },
        Groups {
            id: "all-rates",
            title: "Requests per second in closed loops",
            axis: "requests per second",
            includes: closed,
            value: |row| row.cell(Metric::RequestsPerSecond).estimate,
            figure: figure::rate,
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
            includes: requests,
            value: |row| row.cell(Metric::CpuPerRequest).estimate,
            figure: figure::duration_us,
        },
        Groups {
            id: "all-p99",
            title: "99th percentile of latency",
            axis: "latency",
            includes: requests,
            value: |row| row.cell(Metric::LatencyP99).estimate,
            figure: figure::duration_us,
        },
    ]
}

/// Charts of the messages of streams.
fn of_streams() -> [Groups<'static>; 5] {
    let streams = |case: &CaseSummary<'_>| case.case.streams.is_some();
    let closed = |case: &CaseSummary<'_>| case.case.is_closed_loop() && case.case.streams.is_some();
    [
        Groups {
            id: "all-messages",
            title: "Messages per second in closed loops",
            axis: "messages received each second",
            includes: closed,
            value: |row| row.cell(Metric::RequestsPerSecond).estimate,
            figure: figure::rate,
        },
        Groups {
            id: "all-message-costs",
            title: "CPU time per message",
            axis: "CPU time of the proxy's process tree",
            includes: streams,
            value: |row| row.cell(Metric::CpuPerRequest).estimate,
            figure: figure::duration_us,
        },
        Groups {
            id: "all-delays",
            title: "99th percentile of the delay of messages",
            axis: "delay",
            includes: streams,
            value: |row| row.cell(Metric::LatencyP99).estimate,
            figure: figure::duration_us,
        },
        Groups {
            id: "all-gaps",
            title: "99th percentile of the gaps between messages of a stream",
            axis: "time between two messages",
            includes: streams,
            value: |row| row.gaps_us(0.99),
            figure: figure::duration_us,
        },
        Groups {
            id: "all-stream-memory",
            title: "Memory of the proxies with their streams",
            axis: "memory of the proxy's process tree",
            includes: streams,
            value: |row| row.cell(Metric::Memory).estimate,
            figure: figure::memory_bytes,
        },
    ]
}

/// Latency against offered rate, for each payload with several rates.
pub fn latency_against_rate(summary: &Summary<'_>) -> Vec<Shown> {
    let key = |case: &CaseSummary<'_>| {
        let case = case.case;
        let is_plain = (case.scheme == ClientScheme::Http, case.version == ClientVersion::Http1);
        let behind = (u8::from(case.layer), case.upstream.word());
        let generator = case.generator.clone();
        (
            is_plain,
            behind,
            case.payload.clone(),
            case.connections,
            case.workers,
            case.features.clone(),
            (generator, case.streams.clone()),
        )
    };
    let paced: Vec<(&CaseSummary<'_>, f64)> = summary
        .cases
        .iter()
        .filter_map(|case| match case.case.arrivals {
            Arrivals::Constant { rate_per_second } => Some((case, rate_per_second)),
            Arrivals::Closed | Arrivals::Searched { .. } => None,
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
    shown.extend(summary.cases.iter().enumerate().filter_map(|(index, case)| steps(summary, index, case)));
    shown
}

/// Every rate that a search tried, with its latency: the median of the rounds that tried it.
fn steps(summary: &Summary<'_>, index: usize, case: &CaseSummary<'_>) -> Option<Shown> {
    let Arrivals::Searched { bound } = &case.case.arrivals else { return None };
    let tried = |name: &str| -> Vec<(f64, f64)> {
        let of_proxy = |run: &&Run| run.proxy == name && run.case == case.case.name;
        let point = |run: &Run| {
            let measured = run.outcome.figures()?;
            Some((run.step?.rate_per_second, Metric::LatencyP99.value(measured)?))
        };
        let mut points: Vec<_> = summary.results.runs.iter().filter(of_proxy).filter_map(point).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)));
        // Rounds start with the same rates, so a rate that several rounds tried is one point.
        let of_rate = |same: &[(f64, f64)]| {
            (same[0].0, crate::statistics::median(&same.iter().map(|point| point.1).collect::<Vec<_>>()))
        };
        points.chunk_by(|one, other| one.0 == other.0).map(of_rate).collect()
    };
    let looks = chart::looks(&case.proxies()).into_iter().zip(&case.rows);
    let series: Vec<NamedSeries> = looks
        .clone()
        .map(|(look, row)| {
            let lacks = row.lacks().map(|word| (0.0, word));
            NamedSeries { look, name: row.proxy.name.clone(), lacks: lacks.into_iter().collect() }
        })
        .collect();
    let lines = looks.map(|(look, row)| (look, tried(&row.proxy.name)));
    let counted = case.counted();
    let caption =
        format!("99th percentile of {} at the rates that were tried: {}", counted.time(), case.title());
    let id = format!("steps-{index}");
    let chart = LineChart {
        id: &id,
        title: &caption,
        axis: &format!("{}s offered each second", counted.one()),
        is_logarithmic: true,
        across: figure::count,
        upwards: figure::duration_us,
        lines: lines.filter(|(_, points)| !points.is_empty()).collect(),
    };
    let row = |row: &SummaryRow<'_>| {
        let points = tried(&row.proxy.name);
        let of = |metric: Metric| row.cell(metric).estimate.map(|estimate| metric.figure(estimate.median));
        let knee = crate::knee::knee(&points).map(|knee| figure::count(knee.rate_per_second));
        let cells = [of(Metric::RequestsPerSecond), of(Metric::LatencyP99), of(Metric::CpuPerRequest), knee];
        let cells = cells.map(|cell| cell.unwrap_or_else(|| NOTHING.to_owned()));
        [row.proxy.name.clone()].into_iter().chain(cells).chain([points.len().to_string()]).collect()
    };
    let highest = format!("highest with {bound}");
    let cost = format!("{} there", Metric::CpuPerRequest.heading(counted));
    let headings = ["", &highest, "p99 there", &cost, "bends at", "rates tried"];
    let table = TextTable {
        caption: caption.clone(),
        headings: headings.map(str::to_owned).to_vec(),
        rows: case.rows.iter().map(row).collect(),
    };
    Some(Shown { chart: chart.chart(&series), series: None, caption, table })
}

fn against_rate(rates: &[(&CaseSummary<'_>, f64)], index: usize) -> Option<Shown> {
    let p99 = |case: &CaseSummary<'_>, name: &str| {
        let row = case.rows.iter().find(|row| row.proxy.name == name)?;
        Some(row.cell(Metric::LatencyP99).estimate?.median)
    };
    let proxies = rates[0].0.proxies();
    let drawn = rates[0].0.rows.iter().filter(|row| rates[0].0.draws(row)).map(|row| row.proxy.name.as_str());
    let drawn: Vec<(Look, &str)> = chart::looks(&proxies)
        .into_iter()
        .zip(&proxies)
        .map(|(look, proxy)| (look, proxy.name.as_str()))
        .filter(|(_, name)| drawn.clone().any(|other| other == *name))
        .collect();
    let lines = drawn.iter().map(|&(look, name)| {
        let points = rates.iter().filter_map(|(case, rate)| Some((*rate, p99(case, name)?)));
        (look, points.collect::<Vec<_>>())
    });
    let counted = rates[0].0.counted();
    let series: Vec<NamedSeries> = drawn
        .iter()
        .map(|&(look, name)| NamedSeries { look, name: name.to_owned(), lacks: lacks(rates, name) })
        .collect();
    let (id, caption) = (
        format!("rates-{index}"),
        format!(
            "99th percentile of {} against rate: {}",
            counted.time(),
            summary::title_but_rate(rates[0].0.case)
        ),
    );
    let chart = LineChart {
        id: &id,
        title: &caption,
        axis: &format!("{}s offered each second", counted.one()),
        is_logarithmic: true,
        across: figure::count,
        upwards: figure::duration_us,
        lines: lines.filter(|(_, points)| !points.is_empty()).collect(),
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
    let table = TextTable {
        caption: caption.clone(),
        headings: [String::new()].into_iter().chain(headings).chain(["bends at".to_owned()]).collect(),
        rows: proxies.iter().map(|proxy| row(&proxy.name)).collect(),
    };
    Some(Shown { chart: chart.chart(&series), series: None, caption, table })
}

/// Returns the positions without a figure of this proxy, among cases that differ in one number, with the word for each.
fn lacks(cases: &[(&CaseSummary<'_>, f64)], name: &str) -> Vec<(f64, &'static str)> {
    let of_case = |(case, at): &(&CaseSummary<'_>, f64)| {
        let row = case.rows.iter().find(|row| row.proxy.name == name)?;
        Some((*at, row.lacks()?))
    };
    cases.iter().filter_map(of_case).collect()
}

/// Usage of the proxies of a case over time, in the last measurement of each: CPU, memory, threads, connections.
/// `index` is the position of the case in the page.
pub fn over_time(case: &CaseSummary<'_>, index: usize) -> Vec<Shown> {
    let sampled: Vec<Sampled<'_>> = chart::looks(&case.proxies())
        .into_iter()
        .zip(&case.rows)
        .filter_map(|(look, row)| {
            Some(Sampled { look, row, samples: row.measured().last()?.samples.as_slice() })
        })
        .filter(|sampled| !sampled.samples.is_empty())
        .collect();
    QUANTITIES.iter().filter_map(|quantity| quantity.over_time(case, index, &sampled)).collect()
}

struct Sampled<'s> {
    look: Look,
    row: &'s SummaryRow<'s>,
    samples: &'s [UsageSample],
}

struct Quantity {
    key: &'static str,
    name: &'static str,
    /// Unit for the script of the page.
    unit: &'static str,
    of: fn(&UsageSample) -> f64,
    figure: fn(f64) -> String,
}

const QUANTITIES: [Quantity; 4] = [
    Quantity {
        key: "cpu",
        name: "CPU",
        unit: "share",
        of: |sample| sample.busy_cores,
        figure: figure::percent,
    },
    Quantity {
        key: "memory",
        name: "Memory",
        unit: "bytes",
        of: |sample| sample.memory_bytes as f64,
        figure: figure::memory_bytes,
    },
    Quantity {
        key: "threads",
        name: "Threads",
        unit: "count",
        of: |sample| sample.threads as f64,
        figure: figure::count,
    },
    Quantity {
        key: "connections",
        name: "TCP connections",
        unit: "count",
        of: |sample| sample.connections as f64,
        figure: figure::count,
    },
];

impl Quantity {
    fn over_time(&self, case: &CaseSummary<'_>, index: usize, sampled: &[Sampled<'_>]) -> Option<Shown> {
        let id = format!("{}-over-time-{index}", self.key);
        let title = format!("{} over time: {}", self.name, case.title());
        let lines = sampled.iter().map(|Sampled { look, samples, .. }| {
            let step = samples.len().div_ceil(DRAWN_MOST).max(1);
            let drawn = samples.iter().step_by(step);
            (*look, drawn.map(|sample| (sample.at_seconds, (self.of)(sample))).collect())
        });
        let chart = LineChart {
            id: &id,
            title: &title,
            axis: "seconds",
            is_logarithmic: false,
            across: figure::ratio,
            upwards: self.figure,
            lines: lines.collect(),
        };
        let named = chart::looks(&case.proxies()).into_iter().zip(&case.rows);
        let named = named.filter(|(_, row)| row.proxy.role != ProxyRole::Direct).map(|(look, row)| {
            let lacks = row.lacks().map(|word| (0.0, word));
            NamedSeries { look, name: row.proxy.name.clone(), lacks: lacks.into_iter().collect() }
        });
        let chart = chart.chart(&named.collect::<Vec<_>>())?;
        let rows = sampled.iter().map(|Sampled { row, samples, .. }| {
            let mut values: Vec<f64> = samples.iter().map(self.of).collect();
            values.sort_by(f64::total_cmp);
            let middle = crate::statistics::median(&values);
            let cells = [values[0], middle, values[values.len() - 1]].map(self.figure);
            [row.proxy.name.clone()].into_iter().chain(cells).collect()
        });
        let table = TextTable {
            caption: title.clone(),
            headings: ["", "least", "median", "most"].map(str::to_owned).to_vec(),
            rows: rows.collect(),
        };
        let caption = format!("{} over time", self.name);
        Some(Shown { caption, chart: Some(chart), series: Some(self.series(sampled)), table })
    }

    /// All samples as JSON, for the zoom.
    fn series(&self, sampled: &[Sampled<'_>]) -> String {
        let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
        let lines = sampled.iter().map(|Sampled { look, row, samples }| {
            serde_json::json!({
                "name": row.proxy.name,
                "look": look.class(),
                "at": samples.iter().map(|sample| rounded(sample.at_seconds)).collect::<Vec<_>>(),
                "values": samples.iter().map(|sample| rounded((self.of)(sample))).collect::<Vec<_>>(),
            })
        });
        let data = serde_json::json!({ "unit": self.unit, "lines": lines.collect::<Vec<_>>() });
        // Escapes `<`, so that no text looks like the end of the script around it.
        data.to_string().replace('<', "\\u003c")
    }
}

/// Usage of each part in the last measurement of each proxy: proxy, generator, origins.
pub fn parts(case: &CaseSummary<'_>) -> Option<TextTable> {
    let mut rows = Vec::new();
    for row in &case.rows {
        let Some(measured) = row.measured().last() else { continue };
        let parts = [
            ("proxy", measured.usage, measured.samples.as_slice()),
            watched("generator", &measured.load),
            watched("origins", &measured.origins),
        ];
        for (part, usage, samples) in parts {
            let Some(usage) = usage else { continue };
            let each_second = |count: u64| figure::count(count as f64 / usage.seconds);
            let mut cells = vec![
                row.proxy.name.clone(),
                part.to_owned(),
                figure::percent(usage.user_seconds / usage.seconds),
                figure::percent(usage.system_seconds / usage.seconds),
                figure::memory_bytes(usage.memory_bytes as f64),
                figure::count(usage.threads as f64),
                each_second(usage.voluntary_switches),
                each_second(usage.involuntary_switches),
            ];
            cells.extend(passed(samples));
            // Older results have the kernel's counters for the whole machine, and none for each part.
            if let (Some(network), true) = (measured.network, samples.iter().all(|one| one.traffic.is_none()))
            {
                let [again, all] = [network.retransmitted_segments, network.sent_segments];
                cells[10] = format!("{} of all {}", figure::count(again as f64), figure::count(all as f64));
            }
            rows.push(cells);
        }
    }
    let headings = [
        "beside",
        "part",
        "user",
        "system",
        "memory",
        "threads",
        "waits/s",
        "made room/s",
        "received/s",
        "sent/s",
        "segments retransmitted",
    ];
    (!rows.is_empty()).then(|| TextTable {
        caption: format!("Resources used by each part in its last measurement: {}", case.title()),
        headings: headings.map(str::to_owned).to_vec(),
        rows,
    })
}

/// Row for a part other than the proxy.
fn watched<'m>(
    part: &'static str,
    watched: &'m Option<WatchedUsage>,
) -> (&'static str, Option<Usage>, &'m [UsageSample]) {
    let samples = watched.as_ref().map_or(&[][..], |watched| &watched.samples);
    (part, watched.as_ref().map(|watched| watched.usage), samples)
}

/// Traffic of a part's connections: bytes received and sent per second, and retransmitted segments.
fn passed(samples: &[UsageSample]) -> [String; 3] {
    let sum = samples
        .iter()
        .map(|sample| sample.traffic)
        .reduce(|sum, one| sum.zip(one).map(|(sum, one)| sum + one));
    let (Some(sum), Some(last)) = (sum.flatten(), samples.last()) else {
        return [NOTHING; 3].map(str::to_owned);
    };
    let each_second = |bytes: u64| figure::bytes(bytes as f64 / last.at_seconds);
    [
        each_second(sum.received_bytes),
        each_second(sum.sent_bytes),
        figure::count(sum.segments_sent_again as f64),
    ]
}

/// Expectations of the plan and their results; `None` if there are none.
pub fn expectations(summary: &Summary<'_>) -> Option<TextTable> {
    let all = &summary.results.expectations;
    let rows = all.iter().map(|each| {
        let measured = each.measured.clone().unwrap_or_else(|| NOTHING.to_owned());
        let word = if each.is_met { "met" } else { "missed" };
        vec![each.text.clone(), each.case.clone(), each.proxy.clone(), measured, word.to_owned()]
    });
    (!all.is_empty()).then(|| TextTable {
        caption: "Expectations of the plan".to_owned(),
        headings: ["expected", "case", "proxy", "measured", "result"].map(str::to_owned).to_vec(),
        rows: rows.collect(),
    })
}

#[derive(Debug, Serialize)]
pub struct BrokenRule {
    pub rule: &'static str,
    pub cases: usize,
    /// The figures that are not ranked.
    pub follows: &'static str,
    /// Why the rule matters, and what to do.
    pub remedy: &'static str,
    /// The cases with the observed facts.
    pub table: TextTable,
}

/// Rules that cases break, in the order of the rules.
pub fn verdicts(summary: &Summary<'_>) -> Vec<BrokenRule> {
    let broken = |rule: &'static judge::JudgeRule| {
        let findings = summary.cases.iter().flat_map(|case| {
            let of_rule = case.findings.iter().filter(|finding| finding.rule == rule.name);
            of_rule.map(move |finding| (case, finding))
        });
        let rows: Vec<Vec<String>> = findings
            .map(|(case, finding)| vec![case.title(), finding.seen.clone(), finding.entries.join(", ")])
            .collect();
        let follows = match rule.spoils {
            judge::Spoils::Everything => "not ranked",
            judge::Spoils::Rates => "requests/s not ranked",
            judge::Spoils::Nothing => "doubtful",
        };
        let table = TextTable {
            caption: format!("Cases that break {}", rule.name),
            headings: ["case", "evidence", follows].map(str::to_owned).to_vec(),
            rows,
        };
        (!table.rows.is_empty()).then_some(BrokenRule {
            rule: rule.name,
            cases: table.rows.len(),
            follows,
            remedy: rule.remedy,
            table,
        })
    };
    judge::RULES.iter().filter_map(broken).collect()
}

/// Published and our own requests per second, as ratios to a proxy that both have; `None` without published ones.
pub fn published_ratios(summary: &Summary<'_>) -> Option<TextTable> {
    let rows: Vec<Vec<String>> =
        summary.cases.iter().flat_map(|case| published_beside(summary, case)).collect();
    (!rows.is_empty()).then(|| TextTable {
        caption: "Requests per second, published and measured here, and as ratios between proxies. The machines differ, so \
                  only ratios compare."
            .to_owned(),
        headings: ["case", "proxy", "published", "measured", "published/s", "measured/s"].map(str::to_owned).to_vec(),
        rows,
    })
}

/// Rows for the systems that were published or measured in a case: published ones first.
fn published_beside(summary: &Summary<'_>, case: &CaseSummary<'_>) -> Vec<Vec<String>> {
    let Some(name) = case.case.published.as_deref() else { return Vec::new() };
    let rates = summary
        .results
        .published
        .iter()
        .filter(|figure| (figure.case.as_str(), figure.metric.as_str()) == (name, "requests_per_second"));
    let architecture = &summary.results.machine.architecture;
    let measured =
        |row: &SummaryRow<'_>| row.cell(Metric::RequestsPerSecond).estimate.map(|estimate| estimate.median);
    let mut beside: Vec<(&str, Option<f64>, Option<f64>)> = rates
        .map(|figure| {
            let row =
                case.rows.iter().find(|row| is_published_as(&row.proxy.name, architecture, &figure.system));
            (figure.system.as_str(), Some(figure.value), row.and_then(measured))
        })
        .collect();
    if beside.is_empty() {
        return Vec::new();
    }
    let is_published =
        |proxy: &str| beside.iter().any(|(system, ..)| is_published_as(proxy, architecture, system));
    let others =
        case.rows.iter().filter(|row| row.proxy.role != ProxyRole::Direct && !is_published(&row.proxy.name));
    let others: Vec<_> = others.map(|row| (row.proxy.name.as_str(), None, measured(row))).collect();
    beside.extend(others);
    let base = beside.iter().find_map(|(name, theirs, ours)| Some((*name, (*theirs)?, (*ours)?)));
    let or_nothing =
        |value: Option<f64>, figure: fn(f64) -> String| value.map_or_else(|| NOTHING.to_owned(), figure);
    let row = |(name, theirs, ours): (&str, Option<f64>, Option<f64>)| {
        let ratios = base.map(|(_, their_base, our_base)| {
            [theirs.map(|value| value / their_base), ours.map(|value| value / our_base)]
        });
        let [their_ratio, our_ratio] = ratios.unwrap_or_default();
        vec![
            case.title(),
            base.map_or_else(|| name.to_owned(), |(base, ..)| format!("{name} ÷ {base}")),
            or_nothing(their_ratio, figure::ratio),
            or_nothing(our_ratio, figure::ratio),
            or_nothing(theirs, figure::rate),
            or_nothing(ours, figure::rate),
        ]
    };
    beside.into_iter().map(row).collect()
}

/// Whether a published system is this proxy, possibly with an architecture in its name: `squid-arm64`.
fn is_published_as(proxy: &str, architecture: &str, system: &str) -> bool {
    let architecture = if architecture == "aarch64" { "arm64" } else { architecture };
    system
        .strip_prefix(proxy)
        .is_some_and(|rest| rest.is_empty() || rest.strip_prefix('-') == Some(architecture))
}

/// Findings of the judge about the published tables, and remarks about their documents; empty if nothing was published.
pub fn published_verdicts(summary: &Summary<'_>) -> Vec<String> {
    let is_of = |experiment: &&published::PublishedExperiment| {
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

/// Table with a row for each case and a column for each proxy.
fn by_case(summary: &Summary<'_>, group: &Groups<'_>) -> TextTable {
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
    TextTable {
        caption: group.title.to_owned(),
        headings: std::iter::once("").chain(names.iter().copied()).map(str::to_owned).collect(),
        rows: summary.cases.iter().filter(|case| (group.includes)(case)).map(row).collect(),
    }
}
