//! Metric families in Prometheus' protobuf format (`io.prometheus.client.MetricFamily`, delimited), the only one with
//! native histograms. Implements only the messages that are written.

use crate::exemplars::Exemplar;
use crate::histogram::{BOUNDS, Histogram, SCHEMA, ZERO_THRESHOLD};
use crate::text::{Label, Type};
use crate::wire::{bytes, delimited, double, message, number, signed, varint};

/// `MetricType`s.
const COUNTER: u64 = 0;
const GAUGE: u64 = 1;
const HISTOGRAM: u64 = 4;

/// A family whose samples are being added.
#[derive(Debug)]
pub(crate) struct MetricFamily {
    name: String,
    help: String,
    kind: u64,
    /// `MetricFamily.metric`, each with tag and length.
    metrics: Vec<u8>,
}

impl MetricFamily {
    pub(crate) fn new(name: String, of: Type, help: &str) -> Self {
        let kind = match of {
            Type::Counter => COUNTER,
            Type::Gauge | Type::Info => GAUGE,
            Type::Histogram => HISTOGRAM,
        };
        Self { name, help: help.to_owned(), kind, metrics: Vec::new() }
    }

    pub(crate) fn sample(&mut self, labels: &[Label<'_>], value: f64) {
        let field = if self.kind == COUNTER { 3 } else { 2 };
        self.metric(labels, |out| message(out, field, |out| double(out, 1, value)));
    }

    pub(crate) fn histogram(
        &mut self,
        labels: &[Label<'_>],
        histogram: &Histogram,
        exemplars: &[Option<Exemplar>],
    ) {
        let native = histogram.native();
        let (spans, deltas) = spans(&native.buckets);
        // Computed from these buckets, so that both views and the count agree.
        let count = native.zero_count + native.buckets.iter().map(|(_, count)| count).sum::<u64>();
        let bounds = BOUNDS.iter().map(|(nanoseconds, _)| *nanoseconds as f64 / 1e9).chain([f64::INFINITY]);
        let buckets = bounds.zip(histogram.buckets()).enumerate();
        let write = |out: &mut Vec<u8>| {
            number(out, 1, count);
            double(out, 2, histogram.sum().as_secs_f64());
            let mut cumulative = 0;
            for (index, (bound, observed)) in buckets {
                cumulative += observed;
                message(out, 3, |out| {
                    number(out, 1, if index == BOUNDS.len() { count } else { cumulative });
                    double(out, 2, bound);
                    if let Some(exemplar) = exemplars.get(index).and_then(Option::as_ref) {
                        message(out, 3, |out| write_exemplar(out, exemplar));
                    }
                });
            }
            number(out, 5, signed(SCHEMA.into()));
            double(out, 6, ZERO_THRESHOLD);
            number(out, 7, native.zero_count);
            for (offset, length) in spans {
                message(out, 12, |out| {
                    number(out, 1, signed(offset.into()));
                    number(out, 2, length);
                });
            }
            if !deltas.is_empty() {
                message(out, 13, |out| deltas.iter().for_each(|delta| varint(out, signed(*delta))));
            }
        };
        self.metric(labels, |out| message(out, 7, write));
    }

    fn metric(&mut self, labels: &[Label<'_>], value: impl FnOnce(&mut Vec<u8>)) {
        message(&mut self.metrics, 4, |out| {
            write_labels(out, labels);
            value(out);
        });
    }

    /// Appends the family with its length before it. A family without samples is omitted, as the format requires.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        if !self.metrics.is_empty() {
            delimited(out, |out| {
                bytes(out, 1, self.name.as_bytes());
                bytes(out, 2, self.help.as_bytes());
                number(out, 3, self.kind);
                out.extend_from_slice(&self.metrics);
            });
        }
    }
}

fn write_exemplar(out: &mut Vec<u8>, exemplar: &Exemplar) {
    let since = exemplar.since_epoch();
    write_labels(out, &[("trace_id", &exemplar.trace_id())]);
    double(out, 2, exemplar.value.as_secs_f64());
    message(out, 3, |out| {
        for (field, value) in [(1, since.as_secs()), (2, since.subsec_nanos().into())] {
            if value > 0 {
                number(out, field, value);
            }
        }
    });
}

fn write_labels(out: &mut Vec<u8>, labels: &[Label<'_>]) {
    for (name, value) in labels {
        message(out, 1, |out| {
            bytes(out, 1, name.as_bytes());
            bytes(out, 2, value.as_bytes());
        });
    }
}

/// Returns runs of consecutive buckets, and the difference of each bucket from the previous one. A run is the number of
/// omitted buckets before it (for the first one, its start index) and its length.
fn spans(buckets: &[(i32, u64)]) -> (Vec<(i32, u64)>, Vec<i64>) {
    let (mut spans, mut deltas): (Vec<(i32, u64)>, Vec<i64>) = (Vec::new(), Vec::new());
    let (mut next, mut before) = (0, 0);
    for &(index, count) in buckets {
        match spans.last_mut() {
            Some((_, length)) if index == next => *length += 1,
            _ => spans.push((index - next, 1)),
        }
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        deltas.push(count - before);
        (next, before) = (index + 1, count);
    }
    (spans, deltas)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use prost::Message;

    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct Family {
        #[prost(string, optional, tag = "1")]
        name: Option<String>,
        #[prost(string, optional, tag = "2")]
        help: Option<String>,
        #[prost(enumeration = "MetricType", optional, tag = "3")]
        kind: Option<i32>,
        #[prost(message, repeated, tag = "4")]
        metrics: Vec<Metric>,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
    #[repr(i32)]
    enum MetricType {
        Counter = 0,
        Gauge = 1,
        Histogram = 4,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Metric {
        #[prost(message, repeated, tag = "1")]
        labels: Vec<LabelPair>,
        #[prost(message, optional, tag = "2")]
        gauge: Option<Number>,
        #[prost(message, optional, tag = "3")]
        counter: Option<Number>,
        #[prost(message, optional, tag = "7")]
        histogram: Option<HistogramMessage>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct LabelPair {
        #[prost(string, optional, tag = "1")]
        name: Option<String>,
        #[prost(string, optional, tag = "2")]
        value: Option<String>,
    }

    /// A counter or a gauge: both have their value in the same field.
    #[derive(Clone, PartialEq, Message)]
    struct Number {
        #[prost(double, optional, tag = "1")]
        value: Option<f64>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct HistogramMessage {
        #[prost(uint64, optional, tag = "1")]
        count: Option<u64>,
        #[prost(double, optional, tag = "2")]
        sum: Option<f64>,
        #[prost(message, repeated, tag = "3")]
        buckets: Vec<Bucket>,
        #[prost(sint32, optional, tag = "5")]
        schema: Option<i32>,
        #[prost(double, optional, tag = "6")]
        zero_threshold: Option<f64>,
        #[prost(uint64, optional, tag = "7")]
        zero_count: Option<u64>,
        #[prost(message, repeated, tag = "12")]
        spans: Vec<Span>,
        #[prost(sint64, repeated, tag = "13")]
        deltas: Vec<i64>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Bucket {
        #[prost(uint64, optional, tag = "1")]
        cumulative_count: Option<u64>,
        #[prost(double, optional, tag = "2")]
        upper_bound: Option<f64>,
        #[prost(message, optional, tag = "3")]
        exemplar: Option<ExemplarMessage>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Span {
        /// The omitted buckets before it; for the first one, its start index.
        #[prost(sint32, optional, tag = "1")]
        offset: Option<i32>,
        #[prost(uint32, optional, tag = "2")]
        length: Option<u32>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct ExemplarMessage {
        #[prost(message, repeated, tag = "1")]
        labels: Vec<LabelPair>,
        #[prost(double, optional, tag = "2")]
        value: Option<f64>,
        #[prost(message, optional, tag = "3")]
        timestamp: Option<Timestamp>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Timestamp {
        #[prost(int64, tag = "1")]
        seconds: i64,
        #[prost(int32, tag = "2")]
        nanos: i32,
    }

    #[test]
    fn runs_of_buckets_become_spans() {
        let span = |offset: i32, length: u64| (offset, length);
        for (buckets, expected) in [
            (&[][..], (vec![], vec![])),
            (&[(-4, 3)], (vec![span(-4, 1)], vec![3])),
            (
                &[(-4, 3), (-3, 1), (0, 5), (1, 5), (9, 1)],
                (vec![span(-4, 2), span(2, 2), span(7, 1)], vec![3, -2, 4, 0, -4]),
            ),
        ] {
            assert_eq!(spans(buckets), expected);
        }
    }

    #[test]
    fn both_views_of_a_histogram_are_written() {
        let histogram = Histogram::default();
        for microseconds in [5, 900, 900, 1_000_000] {
            histogram.observe(Duration::from_micros(microseconds));
        }
        let exemplar = Exemplar {
            trace_id: 0xabc,
            value: Duration::from_micros(900),
            at: UNIX_EPOCH + Duration::new(9, 5),
        };
        let mut exemplars = [None; BOUNDS.len() + 1];
        exemplars[6] = Some(exemplar);
        let mut family = MetricFamily::new("d_seconds".to_owned(), Type::Histogram, "Durations.");
        family.histogram(&[("route", "/")], &histogram, &exemplars);
        let mut out = Vec::new();
        family.write(&mut out);
        MetricFamily::new("empty".to_owned(), Type::Gauge, "Nothing.").write(&mut out);

        let read = Family::decode_length_delimited(out.as_slice()).expect("it is one family");
        assert_eq!(read.encode_length_delimited_to_vec(), out, "nothing is left out, and nothing is unknown");
        assert_eq!((read.name.as_deref(), read.help.as_deref()), (Some("d_seconds"), Some("Durations.")));
        assert_eq!(read.kind(), MetricType::Histogram);
        let label = &read.metrics[0].labels[0];
        assert_eq!((label.name.as_deref(), label.value.as_deref()), (Some("route"), Some("/")));
        let message = read.metrics[0].histogram.as_ref().expect("a histogram");
        assert_eq!((message.count, message.zero_count, message.schema), (Some(4), Some(1), Some(2)));
        assert_eq!((message.spans.len(), message.deltas.as_slice()), (2, &[2, -1][..]));
        // 900 µs are in the bucket that ends at 2^(-40/4) seconds, 977 µs; 1 s is a bound itself.
        assert_eq!((message.spans[0].offset, message.spans[1].offset), (Some(-40), Some(39)));
        let bucket = &message.buckets[6];
        assert_eq!((bucket.upper_bound, bucket.cumulative_count), (Some(0.001), Some(3)));
        let told = bucket.exemplar.as_ref().expect("an exemplar");
        assert_eq!(told.labels[0].value.as_deref(), Some("00000000000000000000000000000abc"));
        assert_eq!(told.timestamp, Some(Timestamp { seconds: 9, nanos: 5 }));
    }
}
