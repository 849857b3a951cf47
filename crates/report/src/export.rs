//! Exports results as files: CSV, time series, percentile distributions, charts as SVG.

use crate::chart::{self, Chart, Theme};
use crate::figure;
use crate::latency::LatencyHistogram;
use crate::overview;
use crate::results::{Arrivals, ProxyRole, Results, Run, StreamsMeasured, UsageSample, WatchedUsage};
use crate::summary::{Metric, Summary};

/// Steps of a percentile distribution per halving of the distance to 100%.
const STEPS: u32 = 5;

/// Name and value of a column.
type OfStreams = (&'static str, fn(&StreamsMeasured) -> Option<u64>);

/// Columns that only cases with streams fill; their requests are messages.
const OF_STREAMS: [OfStreams; 8] = [
    ("sent", |streams| Some(streams.sent)),
    ("lost", |streams| Some(streams.lost)),
    ("duplicates", |streams| Some(streams.duplicates)),
    ("out_of_order", |streams| Some(streams.out_of_order)),
    ("closed_early", |streams| Some(streams.closed_early)),
    ("reconnected", |streams| Some(streams.reconnected)),
    ("gap_p99_us", |streams| streams.gaps.at_quantile_us(0.99)),
    ("longest_silence_us", |streams| Some(streams.longest_silence_us)),
];

/// CSV with a line for each measurement, including invalid ones with their reason.
pub fn csv(results: &Results) -> String {
    let mut out =
        "proxy,case,round,offered_per_second,began_seconds,seconds,requests,errors,received_bytes,p99_9_latency_us,refused"
            .to_owned();
    for metric in Metric::ALL {
        out.push_str(&format!(",{}", metric.key()));
    }
    out.push_str(",origin_connections");
    for (name, _) in OF_STREAMS {
        out.push_str(&format!(",{name}"));
    }
    out.push('\n');
    for run in &results.runs {
        let mut fields = vec![
            quoted(&run.proxy),
            quoted(&run.case),
            run.round.to_string(),
            offered(results, run).map(|rate| format!("{rate:.3}")).unwrap_or_default(),
            format!("{:.3}", run.began_seconds),
        ];
        match run.outcome.figures() {
            None => fields.extend(vec![String::new(); 5]),
            Some(measured) => fields.extend([
                format!("{:.3}", measured.seconds),
                measured.requests.to_string(),
                measured.error_count().to_string(),
                measured.received_bytes.to_string(),
                measured.latency.at_quantile_us(0.999).map(|us| us.to_string()).unwrap_or_default(),
            ]),
        }
        fields.push(quoted(run.outcome.refusal().unwrap_or_default()));
        fields.extend(Metric::ALL.map(|metric| {
            let value = run.outcome.figures().and_then(|measured| metric.value(measured));
            value.filter(|value| value.is_finite()).map(|value| format!("{value:.3}")).unwrap_or_default()
        }));
        let made = run.outcome.figures().and_then(|measured| measured.origin_connections);
        fields.push(made.map(|count| count.to_string()).unwrap_or_default());
        let streams = run.outcome.figures().and_then(|measured| measured.streams.as_ref());
        fields.extend(
            OF_STREAMS
                .map(|(_, of)| streams.and_then(of).map(|figure| figure.to_string()).unwrap_or_default()),
        );
        out.push_str(&fields.join(","));
        out.push('\n');
    }
    out
}

/// Offered rate of a measurement; `None` in a closed loop.
fn offered(results: &Results, run: &Run) -> Option<f64> {
    let case = results.cases.iter().find(|case| case.name == run.case)?;
    match case.arrivals {
        Arrivals::Constant { rate_per_second } => Some(rate_per_second),
        Arrivals::Closed | Arrivals::Searched { .. } => run.step.map(|step| step.rate_per_second),
    }
}

/// Samples of a part over time. The first columns are those of monolake's collector: time, CPU in percent of a core,
/// memory in KiB, TCP connections, threads. Then, since the previous line: bytes in and out, retransmitted segments.
fn collected(samples: &[UsageSample]) -> String {
    let mut out = "Time,CPU,Memory,TCP,Thread,Received,Sent,Again\n".to_owned();
    for sample in samples {
        // Unknown values stay empty.
        let [received, sent, again] = sample.traffic.map_or_else(Default::default, |traffic| {
            [traffic.received_bytes, traffic.sent_bytes, traffic.segments_sent_again]
                .map(|count| count.to_string())
        });
        out.push_str(&format!(
            "{:.1},{:.1},{},{},{},{received},{sent},{again}\n",
            sample.at_seconds,
            100.0 * sample.busy_cores,
            sample.memory_bytes / 1024,
            sample.connections,
            sample.threads
        ));
    }
    out
}

/// Percentile distribution in milliseconds, in the format of HdrHistogram's plotter.
fn hgrm(latency: &LatencyHistogram) -> String {
    let mut out = "       Value     Percentile TotalCount 1/(1-Percentile)\n\n".to_owned();
    let count = latency.count();
    if count == 0 {
        return out;
    }
    let mut quantiles = Vec::new();
    let mut left = 1.0;
    while left * count as f64 >= 1.0 {
        quantiles
            .extend((0..STEPS).map(|step| 1.0 - left * (1.0 - f64::from(step) / (2.0 * f64::from(STEPS)))));
        left /= 2.0;
    }
    for (quantile, us) in quantiles.iter().zip(latency.at_quantiles_us(&quantiles)) {
        out.push_str(&format!(
            "{:12.3} {quantile:14.12} {:10} {:14.2}\n",
            us as f64 / 1000.0,
            (quantile * count as f64).ceil() as u64,
            1.0 / (1.0 - quantile)
        ));
    }
    let most = latency.max_us().unwrap_or(0) as f64 / 1000.0;
    out.push_str(&format!("{most:12.3} {:14.12} {count:10}\n", 1.0));
    out.push_str(&format!("#[Max     = {most:12.3}, Total count    = {count:12}]\n"));
    out
}

/// Latency distributions of every proxy in every case, over all repeats: file name and content.
pub fn distributions(summary: &Summary<'_>) -> Vec<(String, String)> {
    let rows = summary.cases.iter().flat_map(|case| case.rows.iter().map(move |row| (case, row)));
    rows.filter(|(_, row)| row.valid > 0)
        .map(|(case, row)| {
            (file_name(&format!("{} {}", case.case.name, row.proxy.name), "hgrm"), hgrm(&row.latency))
        })
        .collect()
}

/// Samples of every part in the last measurement of each proxy in each case: file name and content.
pub fn collections(summary: &Summary<'_>) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for case in &summary.cases {
        for (row, measured) in case.rows.iter().filter_map(|row| Some((row, *row.measured().last()?))) {
            let watched = |watched: &Option<WatchedUsage>| {
                watched.as_ref().map(|watched| watched.samples.clone()).unwrap_or_default()
            };
            let parts = [
                ("proxy", measured.samples.clone()),
                ("load", watched(&measured.load)),
                ("origins", watched(&measured.origins)),
            ];
            files.extend(parts.into_iter().filter(|(_, samples)| !samples.is_empty()).map(
                |(part, samples)| {
                    let name = format!("{} {} {part}", case.case.name, row.proxy.name);
                    (file_name(&name, "csv"), collected(&samples))
                },
            ));
        }
    }
    files
}

/// A chart as files, in the colours of a theme.
#[derive(Debug)]
pub struct Plot {
    /// Name of the files, without the ending.
    pub name: String,
    chart: Chart,
    theme: Theme,
    source: String,
}

impl Plot {
    pub fn svg(&self) -> String {
        self.chart.svg(&self.theme, &self.source)
    }

    /// `None` if the chart is too large.
    #[cfg(feature = "pictures")]
    pub fn png(&self) -> Option<Vec<u8>> {
        self.chart.png(&self.theme, &self.source)
    }
}

/// Every chart of the page as files, for each theme.
pub fn plots(summary: &Summary<'_>, themes: &[Theme]) -> Vec<Plot> {
    let mut plots: Vec<(String, Chart)> = Vec::new();
    let overview = overview::beside_each_other(summary);
    let of_several = overview::latency_against_rate(summary).into_iter().chain(overview::by_workers(summary));
    for shown in overview.into_iter().chain(of_several) {
        plots.extend(shown.chart.map(|chart| (shown.caption, chart)));
    }
    for (index, case) in summary.cases.iter().enumerate() {
        let charts = [
            (format!("cpu {}", case.case.name), chart::cpu_per_request(case, "chart")),
            (format!("latency {}", case.case.name), chart::latency(case, "chart")),
        ];
        plots.extend(charts.into_iter().filter_map(|(name, chart)| Some((name, chart?))));
        plots.extend(
            overview::over_time(case, index)
                .into_iter()
                .filter_map(|shown| Some((format!("{} {}", shown.caption, case.case.name), shown.chart?))),
        );
    }
    let source = source(summary);
    let plot = |name: &str, chart: &Chart, theme: Theme| Plot {
        name: plain(&format!("{name}{}", theme.ending)),
        chart: chart.clone(),
        theme,
        source: source.clone(),
    };
    let all = plots.iter().flat_map(|one| themes.iter().map(move |theme| (one, theme)));
    all.map(|((name, chart), theme)| plot(name, chart, *theme)).collect()
}

/// Source of figures: the run, the machine, the rounds, and the version of each proxy.
fn source(summary: &Summary<'_>) -> String {
    let results = summary.results;
    let versions: Vec<String> = results
        .proxies
        .iter()
        .filter(|proxy| proxy.role != ProxyRole::Direct)
        .map(|proxy| {
            if proxy.version.is_empty() {
                proxy.name.clone()
            } else {
                format!("{} {}", proxy.name, proxy.version)
            }
        })
        .collect();
    let conditions = &results.conditions;
    format!(
        "Source: {}, {}, by {}. {}, {}; {} of {:.2} s. Bars and lines are medians, whiskers the spread. {}.",
        results.title,
        figure::date(results.started_unix_seconds),
        results.measured_by,
        results.machine.processor,
        figure::things(results.machine.cores, "core"),
        figure::things(conditions.rounds, "round"),
        conditions.measured_seconds,
        versions.join("; ")
    )
}

/// File name for a title: `cpu-tiny-closed.svg`.
fn file_name(words: &str, ending: &str) -> String {
    format!("{}.{ending}", plain(words))
}

/// Replaces characters that file names should not have: `cpu-tiny-closed`.
fn plain(words: &str) -> String {
    let plain: String = words
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' })
        .collect();
    plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::TcpTraffic;

    #[test]
    fn a_distribution_rises_to_its_maximum() {
        let text = hgrm(&LatencyHistogram::from_counts([(1000, 90), (2000, 9), (9000, 1)]));
        let values: Vec<f64> = text
            .lines()
            .skip(2)
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split_whitespace().next().and_then(|value| value.parse().ok()).expect("a value"))
            .collect();
        assert!(values.is_sorted() && values.first() == Some(&1.0) && values.last() == Some(&9.0), "{text}");
        assert_eq!(hgrm(&LatencyHistogram::default()).lines().count(), 2);
    }

    #[test]
    fn the_collector_s_columns() {
        let sample = UsageSample {
            at_seconds: 1.0,
            busy_cores: 0.985,
            memory_bytes: 2 << 20,
            threads: 3,
            connections: 64,
            ..UsageSample::default()
        };
        let traffic = TcpTraffic { received_bytes: 700, sent_bytes: 5, segments_sent_again: 0 };
        let known = UsageSample { traffic: Some(traffic), ..sample.clone() };
        assert_eq!(
            collected(&[sample, known]),
            "Time,CPU,Memory,TCP,Thread,Received,Sent,Again\n1.0,98.5,2048,64,3,,,\n1.0,98.5,2048,64,3,700,5,0\n"
        );
    }

    #[test]
    fn names_of_files_are_plain() {
        assert_eq!(file_name("Latency: HTTPS, 128 B/s", "svg"), "latency-https-128-b-s.svg");
        assert_eq!(quoted("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}
