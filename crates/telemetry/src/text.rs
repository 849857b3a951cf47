//! Writes metric families and samples in the formats that Prometheus reads: its own text (version 0.0.4), OpenMetrics
//! 1.0, and protobuf, the only one with native histograms.
//!
//! The reader's Accept field decides. Names and labels of series are equal in all formats.

use std::fmt::{Display, Write};
use std::time::Duration;

use crate::exemplars::Exemplar;
use crate::histogram::{BOUNDS, Histogram};
use crate::protobuf::MetricFamily;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// The Prometheus text format, version 0.0.4.
    Prometheus,
    OpenMetrics,
    /// Delimited messages `io.prometheus.client.MetricFamily`.
    Protobuf,
}

impl Syntax {
    /// Selects the format for an Accept field; by default, the Prometheus text format.
    #[must_use]
    pub fn accepted(accept: &str) -> Self {
        let mut best = (Self::Prometheus, 0.0);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let syntax = match parts.next().unwrap_or_default().to_ascii_lowercase().as_str() {
                "application/openmetrics-text" => Self::OpenMetrics,
                "text/plain" => Self::Prometheus,
                "application/vnd.google.protobuf" => Self::Protobuf,
                _ => continue,
            };
            // RFC 9110 §12.4.2: a weight is a parameter after those of the type.
            let mut weight = 1.0;
            let mut is_ours = true;
            for (name, value) in parts.filter_map(|parameter| parameter.split_once('=')) {
                let value = value.trim().trim_matches('"').to_ascii_lowercase();
                match (name.trim().to_ascii_lowercase().as_str(), value.as_str()) {
                    ("q", value) => weight = value.parse().unwrap_or(0.0),
                    ("version", version) if syntax == Self::OpenMetrics => is_ours = version == "1.0.0",
                    ("proto", message) => is_ours &= message == "io.prometheus.client.metricfamily",
                    ("encoding", encoding) => is_ours &= encoding == "delimited",
                    _ => {}
                }
            }
            if is_ours && weight > best.1 {
                best = (syntax, weight);
            }
        }
        best.0
    }

    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts observations by size.
    Histogram,
    /// Information in labels; the value is always 1.
    Info,
}

/// The output so far.
#[derive(Debug)]
pub struct MetricsText {
    syntax: Syntax,
    out: String,
    /// In protobuf: the finished families, and the current one.
    families: Vec<u8>,
    family: Option<MetricFamily>,
}

impl MetricsText {
    #[must_use]
    pub fn new(syntax: Syntax) -> Self {
        Self { syntax, out: String::new(), families: Vec::new(), family: None }
    }

    /// Starts a family. `name` has no suffix of its type; `help` is one line that needs no escaping.
    pub fn family(&mut self, name: &str, of: Type, help: &str) -> Family<'_> {
        debug_assert!(!help.contains(['\n', '\\', '"']), "nothing to be escaped: {help}");
        let suffix = match of {
            Type::Counter => "_total",
            Type::Info => "_info",
            Type::Gauge | Type::Histogram => "",
        };
        let name = format!("{name}{suffix}");
        if self.syntax == Syntax::Protobuf {
            self.end_family();
            self.family = Some(MetricFamily::new(name.clone(), of, help));
            return Family { text: self, name };
        }
        let (shown, kind) = match (self.syntax, of) {
            // OpenMetrics: a family has the name of its samples without the suffix.
            (Syntax::OpenMetrics, Type::Counter) => (name.trim_end_matches(suffix), "counter"),
            (Syntax::OpenMetrics, Type::Info) => (name.trim_end_matches(suffix), "info"),
            (_, Type::Counter) => (name.as_str(), "counter"),
            (_, Type::Gauge | Type::Info) => (name.as_str(), "gauge"),
            (_, Type::Histogram) => (name.as_str(), "histogram"),
        };
        put(&mut self.out, format_args!("# HELP {shown} {help}\n# TYPE {shown} {kind}\n"));
        Family { text: self, name }
    }

    /// Ends the page and returns it.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        match self.syntax {
            Syntax::Prometheus => self.out.into_bytes(),
            Syntax::OpenMetrics => {
                self.out.push_str("# EOF\n");
                self.out.into_bytes()
            }
            Syntax::Protobuf => {
                self.end_family();
                self.families
            }
        }
    }

    fn end_family(&mut self) {
        if let Some(family) = self.family.take() {
            family.write(&mut self.families);
        }
    }
}

/// A label: its name and value. The value is escaped.
pub type Label<'l> = (&'static str, &'l str);

pub trait Number: Display {
    fn as_f64(&self) -> f64;
}

macro_rules! numbers {
    ($($number:ty),+) => {
        $(impl Number for $number {
            fn as_f64(&self) -> f64 {
                *self as f64
            }
        })+
    };
}

numbers!(u8, i32, u32, u64, usize, i64, f64);

/// The family to which samples are added.
#[derive(Debug)]
pub struct Family<'t> {
    text: &'t mut MetricsText,
    name: String,
}

impl Family<'_> {
    pub fn sample(&mut self, labels: &[Label<'_>], value: impl Number) {
        match &mut self.text.family {
            Some(family) => family.sample(labels, value.as_f64()),
            None => self.line("", labels, value),
        }
    }

    pub(crate) fn histogram(&mut self, labels: &[Label<'_>], histogram: &Histogram) {
        self.histogram_with(labels, histogram, &[]);
    }

    /// Writes the samples of a histogram, with exemplars for its buckets if the format supports them.
    pub(crate) fn histogram_with(
        &mut self,
        labels: &[Label<'_>],
        histogram: &Histogram,
        exemplars: &[Option<Exemplar>],
    ) {
        if let Some(family) = &mut self.text.family {
            return family.histogram(labels, histogram, exemplars);
        }
        let counts = histogram.buckets();
        // The name and the labels are the same for every bucket.
        let mut start = format!("{}_bucket{{", self.name);
        write_labels(&mut start, labels);
        if !labels.is_empty() {
            start.push(',');
        }
        let mut total = 0;
        let bounds = BOUNDS.iter().map(|(_, seconds)| *seconds).chain(["+Inf"]);
        for ((bound, count), bucket) in bounds.zip(counts).zip(0..) {
            total += count;
            put(&mut self.text.out, format_args!("{start}le=\"{bound}\"}} {total}"));
            match exemplars.get(bucket) {
                Some(Some(exemplar)) if self.text.syntax == Syntax::OpenMetrics => self.exemplar(exemplar),
                _ => {}
            }
            self.text.out.push('\n');
        }
        let sum: Duration = histogram.sum();
        self.line("_sum", labels, format_args!("{}.{:09}", sum.as_secs(), sum.subsec_nanos()));
        self.line("_count", labels, total);
    }

    fn exemplar(&mut self, exemplar: &Exemplar) {
        let (value, at) = (exemplar.value, exemplar.since_epoch());
        put(
            &mut self.text.out,
            format_args!(
                " # {{trace_id=\"{}\"}} {}.{:09} {}.{:03}",
                exemplar.trace_id(),
                value.as_secs(),
                value.subsec_nanos(),
                at.as_secs(),
                at.subsec_millis()
            ),
        );
    }

    fn line(&mut self, suffix: &str, labels: &[Label<'_>], value: impl Display) {
        let out = &mut self.text.out;
        out.push_str(&self.name);
        out.push_str(suffix);
        if !labels.is_empty() {
            out.push('{');
            write_labels(out, labels);
            out.push('}');
        }
        put(out, format_args!(" {value}\n"));
    }
}

fn write_labels(out: &mut String, labels: &[Label<'_>]) {
    for (at, (name, value)) in labels.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(name);
        out.push_str("=\"");
        for character in value.chars() {
            match character {
                '\\' => out.push_str("\\\\"),
                '"' => out.push_str("\\\""),
                '\n' => out.push_str("\\n"),
                character => out.push(character),
            }
        }
        out.push('"');
    }
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reader_s_choice() {
        let of_prometheus_2 = "application/openmetrics-text;version=1.0.0,\
            application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let of_prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
            application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let of_prometheus_2_native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
            encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, expected) in [
            ("", Syntax::Prometheus),
            ("*/*", Syntax::Prometheus),
            ("text/html, */*;q=0.1", Syntax::Prometheus),
            (of_prometheus_2, Syntax::OpenMetrics),
            (of_prometheus_3, Syntax::OpenMetrics),
            ("application/openmetrics-text", Syntax::OpenMetrics),
            ("Application/OpenMetrics-Text ; Version=\"1.0.0\" ; Q=0.9", Syntax::OpenMetrics),
            ("application/openmetrics-text;version=0.0.1", Syntax::Prometheus),
            ("application/openmetrics-text;q=0.3,text/plain;q=0.4", Syntax::Prometheus),
            ("application/openmetrics-text;q=0,text/plain;q=0", Syntax::Prometheus),
            ("application/openmetrics-text;q=much", Syntax::Prometheus),
            (of_prometheus_2_native, Syntax::Protobuf),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text",
                Syntax::Prometheus,
            ),
            ("application/vnd.google.protobuf;proto=other;encoding=delimited", Syntax::Prometheus),
        ] {
            assert_eq!(Syntax::accepted(accept), expected, "{accept}");
        }
    }

    fn example(syntax: Syntax) -> String {
        let mut text = MetricsText::new(syntax);
        let mut counter = text.family("a", Type::Counter, "A counter.");
        counter.sample(&[], 1);
        counter.sample(&[("path", "/\\\"\n=ü"), ("class", "2xx")], 2);
        text.family("b", Type::Info, "Labels.").sample(&[("version", "1")], 1);
        text.family("c", Type::Gauge, "A gauge.").sample(&[], 0.25);
        let histogram = Histogram::default();
        for microseconds in [20, 900, 1_500_000, 60_000_000] {
            histogram.observe(Duration::from_micros(microseconds));
        }
        let exemplar = Exemplar {
            trace_id: 0xabc,
            value: Duration::from_micros(900),
            at: std::time::UNIX_EPOCH + Duration::from_millis(1_500_000_000_250),
        };
        let mut exemplars = [None; BOUNDS.len() + 1];
        exemplars[6] = Some(exemplar);
        let mut family = text.family("d_seconds", Type::Histogram, "Durations.");
        family.histogram_with(&[("route", "/")], &histogram, &exemplars);
        String::from_utf8(text.finish()).expect("it is text")
    }

    #[test]
    fn prometheus_own_syntax() {
        let text = example(Syntax::Prometheus);
        let start = "# HELP a_total A counter.\n# TYPE a_total counter\na_total 1\n\
            a_total{path=\"/\\\\\\\"\\n=ü\",class=\"2xx\"} 2\n\
            # HELP b_info Labels.\n# TYPE b_info gauge\nb_info{version=\"1\"} 1\n\
            # HELP c A gauge.\n# TYPE c gauge\nc 0.25\n\
            # HELP d_seconds Durations.\n# TYPE d_seconds histogram\n\
            d_seconds_bucket{route=\"/\",le=\"1e-05\"} 0\nd_seconds_bucket{route=\"/\",le=\"2e-05\"} 1\n";
        assert!(text.starts_with(start), "{text}");
        let end = "d_seconds_bucket{route=\"/\",le=\"1.0\"} 2\nd_seconds_bucket{route=\"/\",le=\"2.0\"} 3\n\
            d_seconds_bucket{route=\"/\",le=\"5.0\"} 3\nd_seconds_bucket{route=\"/\",le=\"10.0\"} 3\n\
            d_seconds_bucket{route=\"/\",le=\"20.0\"} 3\nd_seconds_bucket{route=\"/\",le=\"50.0\"} 3\n\
            d_seconds_bucket{route=\"/\",le=\"+Inf\"} 4\nd_seconds_sum{route=\"/\"} 61.500920000\n\
            d_seconds_count{route=\"/\"} 4\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn openmetrics_has_the_same_samples_and_exemplars() {
        let text = example(Syntax::OpenMetrics);
        let exemplar = " # {trace_id=\"00000000000000000000000000000abc\"} 0.000900000 1500000000.250";
        assert!(
            text.contains(&format!("d_seconds_bucket{{route=\"/\",le=\"0.001\"}} 2{exemplar}\n")),
            "{text}"
        );
        let text = text.replace(exemplar, "");
        assert!(text.starts_with("# HELP a A counter.\n# TYPE a counter\na_total 1\n"), "{text}");
        assert!(text.contains("# TYPE b info\nb_info{"), "{text}");
        assert!(text.ends_with("\n# EOF\n"), "{text}");
        let samples =
            |text: &str| text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
        assert_eq!(samples(&text), samples(&example(Syntax::Prometheus)));
        assert!(!example(Syntax::Prometheus).contains("trace_id"));
    }
}
